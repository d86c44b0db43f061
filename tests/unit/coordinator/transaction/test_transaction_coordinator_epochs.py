"""Ends of transactions that raise the epoch: transaction.version 2 (KIP-890)."""

import pytest
from coordinator_world import T0, T1, TIMEOUT_MS, S, TransactionWorld

from ottla.coordinator.transaction.transaction import EPOCH_BUMP, LAST_EPOCH
from ottla.coordinator.transaction.transaction_partitions import TransactionPartitions
from ottla.errors import ErrorCode
from ottla.structs import TxnProducer

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID = ErrorCode.INVALID_TXN_STATE
FENCED = ErrorCode.PRODUCER_FENCED
REFUSED = (-1, -1)


class BumpWorld(TransactionWorld):
    """The same, with producers that follow transaction.version 2."""

    def bump(self, producer, commit=True):
        """Error, producer id and epoch; None while the request is open."""
        answers = []
        ending = self.coordinator.end_with_bump(producer, commit, lambda *a: answers.append(a))
        self.runtime.scheduler.run(ending)
        return answers[0] if answers else None


@pytest.fixture
def world():
    return BumpWorld()


@pytest.mark.parametrize("commit", [True, False])
def test_end_raises_the_epoch_and_the_markers_have_it(world, commit):
    """What comes late of the transaction finds a newer epoch in the logs."""
    producer = world.ongoing(T0, T1)
    assert world.bump(producer, commit) == (NONE, 100, 1)

    assert world.leaders.written == [(T0, 100, 1, commit), (T1, 100, 1, commit)]
    assert world.leaders.versions == [EPOCH_BUMP]
    assert world.add(producer, T0) is FENCED
    assert world.end(producer, commit) is FENCED
    assert world.add(TxnProducer("x", 100, 1), T0) is NONE


@pytest.mark.parametrize("restarts", [False, True])
def test_end_that_is_asked_for_again_gets_the_same_answer(world, restarts):
    """A coordinator that loaded it from the log answers alike, never with the other outcome."""
    producer = world.ongoing()
    assert world.bump(producer) == (NONE, 100, 1)
    if restarts:
        world.restart()

    assert world.bump(producer) == (NONE, 100, 1)
    assert world.bump(producer, commit=False) == (INVALID, *REFUSED)
    assert len(world.leaders.written) == 1


@pytest.mark.parametrize(
    ("state", "commit", "abort"),
    [
        (S.EMPTY, INVALID, NONE),
        (S.ONGOING, NONE, NONE),
        (S.PREPARE_COMMIT, CONCURRENT, CONCURRENT),
        (S.PREPARE_ABORT, CONCURRENT, CONCURRENT),
        (S.COMPLETE_COMMIT, INVALID, NONE),
        (S.COMPLETE_ABORT, INVALID, NONE),
    ],
)
def test_present_producer_gets_its_answer_in_every_state(state, commit, abort):
    """An abort of nothing raises the epoch; a commit of nothing is a mistake."""
    answers = []
    for wanted in (True, False):
        world = BumpWorld()
        answers.append(world.bump(world.put(state), wanted)[0])

    assert answers == [commit, abort]


def test_abort_of_nothing_writes_no_marker(world):
    """The producer gets an epoch in which it has not written."""
    producer = world.producer()

    assert world.bump(producer, commit=False) == (NONE, 100, 1)
    assert (world.state, world.leaders.written) == (S.COMPLETE_ABORT, [])
    assert world.bump(producer, commit=False) == (NONE, 100, 1)


def test_next_transaction_waits_for_the_markers_of_the_last(world):
    """Its producer knows its epoch before they are out."""
    producer = world.ongoing()
    world.leaders.hold = True
    assert world.bump(producer) == (NONE, 100, 1)
    following = TxnProducer("x", 100, 1)

    assert world.add(following, T1) is CONCURRENT
    assert world.bump(following, commit=False) == (CONCURRENT, *REFUSED)
    assert world.bump(producer) == (CONCURRENT, *REFUSED)
    world.leaders.hold = False
    world.restart()
    assert world.add(following, T1) is NONE


@pytest.mark.parametrize("restarts", [False, True])
def test_new_producer_id_follows_the_last_epoch(world, restarts):
    """Markers still have the old one; whoever asks again hears of the new one."""
    partitions = TransactionPartitions.of({T0})
    world.put(S.ONGOING)
    world.metadata.current = world.metadata.current._replace(
        producer_epoch=LAST_EPOCH, partitions=partitions
    )
    producer = TxnProducer("x", 7, LAST_EPOCH)
    world.leaders.hold = True
    assert world.bump(producer) == (NONE, 100, 0)
    assert world.add(TxnProducer("x", 100, 0), T0) is CONCURRENT
    assert world.init(TxnProducer("x", 100, 0)) == (CONCURRENT, *REFUSED)
    world.leaders.hold = False
    world.restart()

    assert world.leaders.written == [(T0, 7, LAST_EPOCH + 1, True)]
    if restarts:
        world.restart()
    assert world.bump(producer) == (NONE, 100, 0)
    assert world.add(TxnProducer("x", 100, 0), T0) is NONE
    assert world.bump(producer)[0] is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_transaction_that_timed_out_fences_its_producer(world):
    """Its end is not taken for one that the producer has asked for."""
    producer = world.ongoing()
    assert world.bump(producer) == (NONE, 100, 1)
    following = TxnProducer("x", 100, 1)
    assert world.add(following, T0) is NONE
    world.advance(TIMEOUT_MS + 10_000)

    assert world.state is S.COMPLETE_ABORT
    assert world.bump(following, commit=False) == (FENCED, *REFUSED)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("commit", [True, False])
def test_end_that_raises_no_epoch_has_markers_of_the_present_one(world, commit, restarts):
    """transaction.version may be lowered between two transactions of one producer."""
    producer = world.ongoing()
    assert world.bump(producer) == (NONE, 100, 1)
    following = TxnProducer("x", 100, 1)
    assert world.add(following, T0) is NONE
    if restarts:
        world.restart()
    assert world.end(following, commit) is NONE

    assert world.leaders.written[1:] == [(T0, 100, 1, commit)]
    assert world.leaders.written_versions == [EPOCH_BUMP, 0]
    assert world.state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)


def test_new_producer_gets_the_epoch_after_the_raised_one(world):
    """A new producer gets the next epoch, which fences the one that ended the transaction."""
    producer = world.ongoing()
    world.bump(producer)

    assert world.init() == (NONE, 100, 2)
    assert world.metadata.current.client_version < EPOCH_BUMP
    assert world.bump(producer) == (FENCED, *REFUSED)
    assert world.bump(TxnProducer("x", 100, 1)) == (FENCED, *REFUSED)


def test_end_while_a_change_is_on_its_way_has_to_come_again(world):
    """Into the log; then it is known what is to be ended."""
    producer = world.producer()
    world.log.hold = True
    assert world.add(producer, T0) is None

    assert world.bump(producer) == (CONCURRENT, *REFUSED)
    world.log.release()
    world.log.hold = False
    assert world.bump(producer) == (NONE, 100, 1)
