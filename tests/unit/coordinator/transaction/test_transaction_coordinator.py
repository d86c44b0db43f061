"""The transaction coordinator: states and requests, fencing, markers, crashes, time."""

import logging

import pytest
from coordinator_world import T0, T1, TIMEOUT_MS, S, TransactionWorld

from ottla.coordinator.coordinator_writer import SETTLE_MS
from ottla.coordinator.transaction import transaction_state_manager
from ottla.coordinator.transaction.marker_sender import MARKERS_IN_A_STEP
from ottla.coordinator.transaction.transaction import LAST_EPOCH, NEXT_STATES, TransactionState
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import TopicPartition, TxnProducer

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID = ErrorCode.INVALID_TXN_STATE
FENCED = ErrorCode.PRODUCER_FENCED
NOBODY = (-1, -1)


@pytest.fixture
def world():
    return TransactionWorld()


@pytest.mark.parametrize(
    ("state", "init", "add", "commit", "abort"),
    [
        (S.EMPTY, NONE, NONE, INVALID, INVALID),
        (S.ONGOING, CONCURRENT, NONE, NONE, NONE),
        (S.PREPARE_COMMIT, CONCURRENT, CONCURRENT, CONCURRENT, INVALID),
        (S.PREPARE_ABORT, CONCURRENT, CONCURRENT, INVALID, CONCURRENT),
        (S.COMPLETE_COMMIT, NONE, NONE, NONE, INVALID),
        (S.COMPLETE_ABORT, NONE, NONE, INVALID, NONE),
    ],
)
def test_every_request_has_its_answer_in_every_state(state, init, add, commit, abort):
    """The table in the module's own description."""
    answers = []
    for request in ("init", "add", "commit", "abort"):
        world = TransactionWorld()
        producer = world.put(state)
        if request == "init":
            answers.append(world.init()[0])
        elif request == "add":
            answers.append(world.add(producer, T1))
        else:
            answers.append(world.end(producer, request == "commit"))

    assert answers == [init, add, commit, abort]


@pytest.mark.parametrize("state", [S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_nothing_begins_while_a_change_is_on_its_way_into_the_log(world, state):
    """A request that comes in between has to come again."""
    producer = world.put(state)
    world.log.hold = True
    assert world.add(producer, T1) is None

    assert world.add(producer, T0) is CONCURRENT
    assert world.end(producer) is CONCURRENT
    assert world.init() == (CONCURRENT, *NOBODY)
    world.log.release()
    assert world.state is S.ONGOING


def test_partitions_are_confirmed_while_a_change_is_on_its_way_into_the_log(world):
    """An offset commit is not put off because the producer is adding another partition."""
    producer = world.ongoing(T0)
    world.log.hold = True
    assert world.add(producer, T1) is None

    assert world.coordinator.verify_partitions(producer, [T0, T1]) == {T0: NONE, T1: INVALID}
    world.log.release()
    assert world.coordinator.verify_partitions(producer, [T0, T1]) == {T0: NONE, T1: NONE}


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_partitions_of_a_transaction_that_ends_are_not_confirmed(world, state):
    """Not before its markers are written: a batch would come after them, in no transaction."""
    producer = world.put(state)

    assert world.coordinator.verify_partitions(producer, [T0]) == {T0: CONCURRENT}


def test_only_the_ways_of_the_table_are_open():
    """Every state can be left, but for the one of ids that are forgotten."""
    assert set(NEXT_STATES) == set(TransactionState)
    assert [state for state, following in NEXT_STATES.items() if not following] == [S.DEAD]
    for state in TransactionState:
        for following in TransactionState:
            world = TransactionWorld()
            world.put(state)
            changed = world.metadata.current._replace(state=following)
            if following in NEXT_STATES[state]:
                assert world.metadata.prepare(changed) is changed
            else:
                with pytest.raises(AssertionError):
                    world.metadata.prepare(changed)


def test_commit_writes_a_marker_to_each_partition(world):
    """Each partition gets a marker, and then the id is free for the next transaction."""
    producer = world.ongoing(T0, T1)
    assert world.end(producer) is NONE

    assert world.leaders.written == [(T0, 100, 0, True), (T1, 100, 0, True)]
    assert world.state is S.COMPLETE_COMMIT
    assert world.metadata.current.partitions == frozenset()
    assert world.add(producer, T1) is NONE
    assert world.end(producer, commit=False) is NONE
    assert world.leaders.written[2:] == [(T1, 100, 0, False)]


def test_lost_answer_to_the_end_is_given_again(world):
    """The producer asks once more, and must not hear of an error."""
    producer = world.ongoing()
    assert [world.end(producer), world.end(producer)] == [NONE, NONE]
    assert len(world.leaders.written) == 1


@pytest.mark.parametrize(
    ("other", "error"),
    [
        (TxnProducer("x", 100, 1), FENCED),
        (TxnProducer("x", 100, -1), FENCED),
        (TxnProducer("x", 99, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (TxnProducer("nobody", 100, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (TxnProducer("", 100, 0), ErrorCode.INVALID_REQUEST),
    ],
)
def test_others_than_the_present_producer_change_nothing(world, other, error):
    """Neither zombies nor strangers."""
    producer = world.ongoing()

    assert world.add(other, T1) is error
    assert world.end(other) is error
    assert world.coordinator.verify_partitions(other, [T0]) == {T0: error}
    assert world.state is S.ONGOING
    assert world.metadata.current.partitions == {T0}
    assert world.coordinator.verify_partitions(producer, [T0, T1]) == {T0: NONE, T1: INVALID}


def test_new_producer_aborts_what_the_old_one_had_begun(world):
    """It is told to come again until that is done; the old one is fenced at once."""
    zombie = world.ongoing()
    world.leaders.hold = True
    assert world.init() == (CONCURRENT, *NOBODY)
    assert world.init() == (CONCURRENT, *NOBODY)
    assert world.end(zombie) is FENCED
    world.leaders.hold = False
    world.restart()

    assert world.leaders.written == [(T0, 100, 1, False)]
    assert world.init() == (NONE, 100, 2)


def test_producer_may_have_its_own_epoch_raised(world):
    """It names what it has; when the answer is lost it asks again and gets the same (KIP-360)."""
    first = world.producer()
    assert world.init(first) == (NONE, 100, 1)
    assert world.init(first) == (NONE, 100, 1)
    assert world.init(TxnProducer("x", 100, 1)) == (NONE, 100, 2)

    assert world.init(first) == (FENCED, *NOBODY)
    assert world.init(TxnProducer("x", 55, 2)) == (FENCED, *NOBODY)


def test_another_producer_id_is_taken_when_the_epochs_are_used_up(world):
    """A new producer id is given, and the producer of the last epoch is recognised by it."""
    world.put(S.COMPLETE_COMMIT)
    world.metadata.current = world.metadata.current._replace(producer_epoch=LAST_EPOCH)
    known = TxnProducer("x", 7, LAST_EPOCH)

    assert world.init(known) == (NONE, 100, 0)
    assert world.init(known) == (NONE, 100, 0)
    assert world.init() == (NONE, 100, 1)


EDGES = [0, 50, LAST_EPOCH - 2, LAST_EPOCH - 1, LAST_EPOCH, LAST_EPOCH + 1]


@pytest.mark.parametrize("present", EDGES)
@pytest.mark.parametrize("named", EDGES)
@pytest.mark.parametrize("producer_id", [7, 6])
def test_only_the_present_producer_gets_a_new_epoch(world, present, named, producer_id):
    """A zombie is fenced at any epoch: at the last one it once got the new producer id.

    Producer 6 had the id before: its last epoch must not be taken for one of the present producer.
    """
    world.put(S.COMPLETE_COMMIT)
    world.metadata.current = world.metadata.current._replace(
        producer_epoch=present, previous_producer_id=6
    )
    before = world.metadata.current
    answer = world.init(TxnProducer("x", producer_id, named))

    if (producer_id, named) != (7, present):
        assert answer == (FENCED, *NOBODY)
        assert world.metadata.current == before
    elif present < LAST_EPOCH:
        assert answer == (NONE, 7, present + 1)
    else:
        assert answer == (NONE, 100, 0)


@pytest.mark.parametrize("present", EDGES)
@pytest.mark.parametrize("named", EDGES)
@pytest.mark.parametrize("producer_id", [7, 6, 5])
def test_zombie_does_not_abort_what_its_successor_has_begun(world, present, named, producer_id):
    """It is fenced at once, and the transaction goes on: none but its own producer ends it."""
    world.put(S.ONGOING)
    world.metadata.current = world.metadata.current._replace(
        producer_epoch=present, previous_producer_id=6
    )
    before = world.metadata.current
    answer = world.init(TxnProducer("x", producer_id, named))

    if (producer_id, named) == (7, present):
        assert answer == (CONCURRENT, *NOBODY)
        assert world.state is S.COMPLETE_ABORT
    else:
        assert answer == (FENCED, *NOBODY)
        assert (world.metadata.current, world.leaders.written) == (before, [])


@pytest.mark.parametrize("epoch", [LAST_EPOCH - 1, LAST_EPOCH])
def test_zombie_stays_fenced_when_a_transaction_times_out_at_the_last_epochs(world, epoch):
    """The coordinator raises the epoch once more; the one after the last it gives to nobody."""
    world.put(S.ONGOING)
    world.metadata.current = world.metadata.current._replace(producer_epoch=epoch)
    world.advance(20_000)
    assert (world.state, world.metadata.current.producer_epoch) == (S.COMPLETE_ABORT, epoch + 1)

    for zombie in (50, epoch - 1, epoch):
        assert world.init(TxnProducer("x", 7, zombie)) == (FENCED, *NOBODY)
    error, producer_id, epoch = world.init()
    assert (error, epoch) == (NONE, 0)
    assert producer_id != 7


def test_epoch_of_the_coordinator_alone_is_nobodys(world):
    """A client that guesses it cannot begin or end anything with it: no epoch comes after it."""
    world.put(S.COMPLETE_ABORT)
    world.metadata.current = world.metadata.current._replace(producer_epoch=LAST_EPOCH + 1)
    guess = TxnProducer("x", 7, LAST_EPOCH + 1)
    answers = []
    for commit in (True, False):
        ending = world.coordinator.end_with_bump(guess, commit, lambda *a: answers.append(a))
        world.runtime.scheduler.run(ending)

    assert answers == [(FENCED, *NOBODY)] * 2
    assert world.add(guess, T0) is FENCED
    assert world.end(guess, commit=False) is FENCED
    assert not world.metadata.is_pending


def test_transaction_that_is_open_at_the_coordinators_epoch_is_aborted(world):
    """A log of others may have one; the id must not be stuck in it."""
    world.put(S.ONGOING)
    world.metadata.current = world.metadata.current._replace(producer_epoch=LAST_EPOCH + 1)
    world.advance(20_000)

    assert world.state is S.COMPLETE_ABORT
    assert world.init() == (NONE, 100, 0)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_unreasonable_timeouts_are_refused(world, timeout_ms):
    """At most transaction.max.timeout.ms."""
    error = ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert world.init(timeout_ms=timeout_ms) == (error, *NOBODY)
    assert world.init(timeout_ms=900_000)[0] is NONE


def test_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(world):
    """Looked for every ten seconds."""
    producer = world.ongoing()
    world.advance(TIMEOUT_MS)
    assert world.state is S.ONGOING
    world.advance(10_000)

    assert world.state is S.COMPLETE_ABORT
    assert world.leaders.written == [(T0, 100, 1, False)]
    assert world.end(producer) is FENCED


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("hours", [-1, 1])
def test_clock_that_is_set_changes_no_time_limit_of_a_transaction(world, hours, restarts):
    """An hour ahead once aborted whatever was open; an hour back kept it open for so long."""
    world.ongoing()
    if restarts:
        world.restart()
    world.runtime.clock.set_wall_clock(world.runtime.clock.now_ms() + hours * 3_600_000)
    world.advance(TIMEOUT_MS)
    assert world.state is S.ONGOING
    world.advance(10_000)

    assert world.state is S.COMPLETE_ABORT


def test_transaction_loaded_with_a_clock_set_back_has_its_timeout_again(world):
    """It began in the future, as far as the new coordinator can see."""
    world.ongoing()
    world.runtime.clock.set_wall_clock(world.runtime.clock.now_ms() - 3_600_000)
    world.restart()
    world.advance(TIMEOUT_MS + 10_000)

    assert world.state is S.COMPLETE_ABORT


def test_later_partitions_do_not_prolong_a_transaction(world):
    """Its time began with the first."""
    producer = world.ongoing()
    world.advance(TIMEOUT_MS - 1)
    assert world.add(producer, T1) is NONE
    world.advance(10_001)

    assert world.state is S.COMPLETE_ABORT


@pytest.mark.parametrize("commit", [True, False])
def test_markers_are_sent_until_all_leaders_have_them(world, commit):
    """A leader that is down gets its own later; the others get none twice."""
    world.leaders.errors = {T1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    producer = world.ongoing(T0, T1)
    assert world.end(producer, commit) is NONE
    assert world.add(producer, T0) is CONCURRENT
    world.advance(1000)
    assert world.leaders.written == [(T0, 100, 0, commit)]
    world.leaders.errors = {}
    world.advance(100)

    assert world.leaders.written == [(T0, 100, 0, commit), (T1, 100, 0, commit)]
    assert world.state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)


@pytest.mark.parametrize("commit", [True, False])
def test_coordinator_that_comes_after_a_crash_finishes_what_was_decided(world, commit):
    """The decision is in the log before the first marker."""
    world.leaders.hold = True
    producer = world.ongoing(T0, T1)
    assert world.end(producer, commit) is NONE
    world.leaders.hold = False
    world.restart()

    assert world.leaders.written == [(T0, 100, 0, commit), (T1, 100, 0, commit)]
    assert world.end(producer, commit) is NONE


def test_nothing_is_decided_while_it_is_not_in_the_log(world):
    """No marker goes out for a decision that a crash could take back."""
    producer = world.ongoing()
    world.log.hold = True
    assert world.end(producer) is None
    assert world.leaders.attempts == 0
    world.log.release()
    assert world.leaders.attempts == 1


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_failed_write_leaves_everything_as_it_was(world, failure, told):
    """The producer may try again."""
    producer = world.ongoing()
    world.log.error = failure
    assert world.end(producer) is told
    assert world.add(producer, T1) is told
    assert world.init()[0] is told
    world.log.error = NONE

    assert world.leaders.attempts == 0
    assert world.metadata.current.producer_epoch == 1  # nobody is let in after a fence
    assert world.end(producer) is FENCED
    assert world.init()[0] is CONCURRENT
    assert world.init() == (NONE, 100, 2)


def test_completion_that_cannot_be_written_is_tried_again(world):
    """The markers are out, so there is no way back."""
    producer = world.ongoing()
    world.leaders.hold = True
    world.end(producer)
    world.leaders.hold = False
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.restart()
    assert world.state is S.PREPARE_COMMIT
    world.log.error = NONE
    world.advance(100)

    assert world.state is S.COMPLETE_COMMIT


def test_write_that_is_refused_again_and_again_is_logged_once(world, caplog):
    """The whole state of the transaction stood in the log ten times a second."""
    producer = world.ongoing()
    world.leaders.hold = True
    world.end(producer)
    world.leaders.hold = False
    caplog.set_level(logging.INFO, logger=transaction_state_manager.__name__)
    for error in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        world.log.error = error
        if not caplog.records:
            world.restart()
        world.advance(10_000)

    told = "Transactional id 'x' stays PrepareCommit, as CompleteCommit cannot be written: "
    assert [line for line in caplog.messages if "cannot be written" in line] == [
        f"{told}NOT_ENOUGH_REPLICAS",
        f"{told}NOT_LEADER_OR_FOLLOWER",
    ]


def test_markers_of_very_many_partitions_are_sent_in_steps(world):
    """Others are served between them; those that fail are sent again, and no other."""
    partitions = [TopicPartition("many", number) for number in range(3 * MARKERS_IN_A_STEP)]
    world.leaders.errors = {partitions[1]: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    world.end(world.ongoing(*partitions))
    assert len(world.leaders.written) <= MARKERS_IN_A_STEP
    world.advance(50)
    assert {tp for tp, *_ in world.leaders.written} == set(partitions) - {partitions[1]}
    assert world.leaders.attempts == 3
    assert world.state is S.PREPARE_COMMIT
    world.leaders.errors = {}
    world.advance(100)

    assert [tp for tp, *_ in world.leaders.written].count(partitions[1]) == 1
    assert len(world.leaders.written) == len(partitions)
    assert world.state is S.COMPLETE_COMMIT


def test_partitions_of_deleted_topics_need_no_marker(world):
    """Deleted topics need no marker; none counts as deleted before the topics are known."""
    world.leaders.errors = {T1: ErrorCode.LEADER_NOT_AVAILABLE}
    world.end(world.ongoing(T0, T1))
    world.advance(1000)
    assert world.state is S.PREPARE_COMMIT
    world.leaders.deleted = {T1}
    world.advance(100)

    assert world.leaders.written == [(T0, 100, 0, True)]
    assert world.state is S.COMPLETE_COMMIT


def test_markers_are_sent_when_the_coordinators_log_is_back(world):
    """Its epoch is not known while it is offline; the transaction must not stay undone for that."""
    producer = world.ongoing()
    epoch = world.log.leader_epoch

    def offline(partition):
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "offline")

    world.log.leader_epoch = offline
    assert world.end(producer) is NONE
    world.advance(1000)
    assert world.state is S.PREPARE_COMMIT
    world.log.leader_epoch = epoch
    world.advance(100)

    assert world.leaders.written == [(T0, 100, 0, True)]
    assert world.state is S.COMPLETE_COMMIT


def test_coordinator_that_resigns_while_its_log_is_offline_sends_no_markers(world):
    """Its successor does; with an epoch of later this one would fence it."""
    producer = world.ongoing()
    epoch = world.log.leader_epoch

    def offline(partition):
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "offline")

    world.log.leader_epoch = offline
    assert world.end(producer) is NONE
    world.coordinator.on_resignation(0)
    world.log.leader_epoch = epoch
    world.advance(1000)

    assert world.leaders.attempts == 0


@pytest.mark.parametrize("count", [1, 3 * MARKERS_IN_A_STEP])
def test_coordinator_that_resigns_sends_no_markers_that_are_left(world, count):
    """Neither those of another step nor those that a leader has refused: its successor does."""
    partitions = [TopicPartition("many", number) for number in range(count)]
    world.leaders.errors = {partitions[0]: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    world.end(world.ongoing(*partitions))
    attempts = world.leaders.attempts
    world.coordinator.on_resignation(0)
    world.leaders.errors = {}
    world.advance(10_000)

    assert attempts == world.leaders.attempts == 1
    world.coordinator.on_election(0)
    world.advance(1_000)
    assert {tp for tp, *_ in world.leaders.written} == set(partitions)
    assert world.state is S.COMPLETE_COMMIT


@pytest.mark.parametrize("commit", [True, False])
def test_decision_that_is_replicated_late_counts_and_no_other_is_taken_meanwhile(world, commit):
    """The producer has heard of an error, but the next coordinator would read the decision."""
    producer = world.ongoing()
    world.log.error, world.log.is_replicated = ErrorCode.REQUEST_TIMED_OUT, False
    assert world.end(producer, commit) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.error = NONE
    assert world.end(producer, not commit) is CONCURRENT
    assert world.init() == (CONCURRENT, *NOBODY)
    world.advance(TIMEOUT_MS + 10_000)
    assert world.leaders.written == []
    world.log.is_replicated = True
    world.advance(SETTLE_MS)

    assert world.leaders.written == [(T0, 100, 0, commit)]
    assert world.end(producer, commit) is NONE
    assert world.coordinator.manager.differences(0) == []


def test_fence_that_too_few_replicas_have_is_in_the_log_and_not_raised_again(world):
    """The answer is an error, but the next coordinator reads the raised epoch."""
    world.ongoing()
    world.leaders.errors = {T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert world.init()[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE

    assert (world.state, world.metadata.current.producer_epoch) == (S.PREPARE_ABORT, 1)
    assert world.coordinator.manager.differences(0) == []


def test_completion_that_is_replicated_late_is_not_written_again(world):
    """It was tried again in vain, ten times a second, while the first one was on its way."""
    producer = world.ongoing()
    world.leaders.errors = {T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    world.end(producer)
    world.leaders.errors = {}
    world.log.error, world.log.is_replicated = ErrorCode.REQUEST_TIMED_OUT, False
    world.advance(1000)
    written = len(world.log.partitions[0])
    world.log.is_replicated = True
    world.advance(SETTLE_MS)

    assert world.state is S.COMPLETE_COMMIT
    assert len(world.log.partitions[0]) == written
    assert world.coordinator.manager.differences(0) == []


def test_transaction_that_cannot_be_aborted_leaves_the_others_their_time_limit(world, monkeypatch):
    """One id in a strange state once kept all others open."""
    first, second = (TxnProducer(name, *world.init(transactional_id=name)[1:]) for name in "xy")
    world.add(first, T0)
    world.add(second, T1)
    abort = world.coordinator._abort_and_fence

    def broken(metadata, on_decided):
        assert metadata.transactional_id != "x"
        abort(metadata, on_decided)

    monkeypatch.setattr(world.coordinator, "_abort_and_fence", broken)
    world.advance(TIMEOUT_MS + 10_000)

    assert world.state is S.ONGOING
    assert world.coordinator.manager.get("y").current.state is S.COMPLETE_ABORT


def test_coordinator_that_has_been_replaced_stops(world):
    """The leader of a partition knows a newer epoch than this one has."""
    world.leaders.errors = {T0: ErrorCode.TRANSACTION_COORDINATOR_FENCED}
    world.end(world.ongoing())
    world.advance(60_000)

    assert world.leaders.attempts == 1
    assert world.state is S.PREPARE_COMMIT


def test_ids_are_refused_while_they_are_loaded_and_after_they_have_moved(world):
    """The client comes again, or looks for another coordinator."""
    producer = world.ongoing()
    world.coordinator.on_resignation(0)
    assert world.end(producer) is ErrorCode.NOT_COORDINATOR
    world.coordinator.on_election(0)
    assert world.end(producer) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.runtime.scheduler.run_ready()
    assert world.end(producer) is NONE
    world.coordinator.shutdown()
    assert world.end(producer) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_id_that_moves_while_a_producer_id_is_asked_for_is_not_begun_here(world):
    """The next coordinator may have given it an epoch by then."""
    generate = world.ids.generate_producer_id

    async def move():
        world.coordinator.on_resignation(0)
        return await generate()

    world.ids.generate_producer_id = move
    world.start()

    assert world.init() == (ErrorCode.NOT_COORDINATOR, *NOBODY)
    assert world.coordinator.manager.get("x") is None


def test_epochs_that_run_out_while_another_request_is_served_are_asked_about_again(world):
    """No producer id was asked for, as there was an epoch left."""
    world.put(S.COMPLETE_COMMIT)
    exhausted = world.metadata.current._replace(producer_epoch=LAST_EPOCH)
    manager, seen = world.coordinator.manager, []
    get = manager.get

    def use_up(transactional_id):
        known = get(transactional_id)
        if seen:
            known.current = exhausted
        seen.append(known)
        return known

    manager.get = use_up
    try:
        assert world.init() == (ErrorCode.CONCURRENT_TRANSACTIONS, *NOBODY)
    finally:
        del manager.get
    assert world.init() == (NONE, 100, 0)


def test_write_that_ends_after_the_id_has_moved_counts_for_nothing(world):
    """The next coordinator reads what became of it."""
    producer = world.ongoing()
    world.log.hold = True
    answers = []
    world.coordinator.end_transaction(producer, True, answers.append)
    world.coordinator.on_resignation(0)
    world.log.release()

    assert answers == [ErrorCode.NOT_COORDINATOR]
    assert world.leaders.attempts == 0


def test_ids_that_nobody_uses_are_forgotten():
    """After transactional.id.expiration.ms, and for good; open ones stay."""
    world = TransactionWorld(transactional_id_expiration_ms=100_000)
    world.end(world.ongoing())
    world.advance(3_600_000)
    assert world.coordinator.manager.get("x") is None
    world.restart()
    assert world.coordinator.manager.get("x") is None

    world.put(S.PREPARE_COMMIT)
    world.advance(3_600_000)
    assert world.state is S.PREPARE_COMMIT


def test_frame_that_was_held_back_does_not_touch_the_next_transaction(world):
    """The producer had given its connection up for a newer one, and gone on there."""
    _, producer_id, epoch = world.init(session=5)
    old = TxnProducer("x", producer_id, epoch, session=5)
    new = old._replace(session=6)
    assert world.add(old, T0) is NONE
    assert world.end(new) is NONE
    assert world.add(new, T0) is NONE

    assert world.end(old) is ErrorCode.NOT_COORDINATOR
    assert world.add(old, T1) is ErrorCode.NOT_COORDINATOR
    assert world.state is S.ONGOING
    assert world.metadata.current.partitions == {T0}
    assert world.end(new) is NONE


def test_new_producer_on_an_older_connection_is_no_latecomer(world):
    """Connections are compared for one producer only."""
    world.init(session=9)
    _, producer_id, epoch = world.init(session=3)

    assert world.add(TxnProducer("x", producer_id, epoch, session=3), T0) is NONE


def test_id_is_got_by_another_connection_than_the_transaction_uses(world):
    """Of aiokafka's two connections the one for transactions may be the older one."""
    _, producer_id, epoch = world.init(session=9)
    producer = TxnProducer("x", producer_id, epoch, session=3)

    assert world.add(producer, T0) is NONE
    assert world.end(producer) is NONE


def test_transaction_goes_on_over_a_new_coordinator(world):
    """It knows the transaction from the log, and of no connection."""
    _, producer_id, epoch = world.init(session=9)
    producer = TxnProducer("x", producer_id, epoch, session=3)
    assert world.add(producer, T0) is NONE
    world.restart()

    assert world.add(producer, T1) is NONE
    assert world.metadata.current.partitions == {T0, T1}
    assert world.end(producer) is NONE


def test_partition_that_is_in_the_transaction_already_is_not_written_again(world):
    """The producer has asked a second time; one more partition is written."""
    producer = world.ongoing(T0)
    records = len(world.log.records())
    assert world.add(producer, T0) is NONE
    assert len(world.log.records()) == records
    assert world.add(producer, T0, T1) is NONE

    assert len(world.log.records()) == records + 1
    assert world.metadata.current.partitions == {T0, T1}


def test_coordinator_that_is_shut_down_knows_nothing_and_aborts_nothing(world):
    """Another one has read the log by then."""
    producer = world.ongoing(T0)
    records = len(world.log.records())
    world.coordinator.shutdown()
    world.advance(10 * TIMEOUT_MS)

    assert world.coordinator.manager.get("x") is None
    assert len(world.log.records()) == records
    assert world.add(producer, T1) not in (None, NONE)
    assert world.init()[0] is not NONE
    world.coordinator.on_election(0)
    with world.log.replicated():
        world.advance(10 * TIMEOUT_MS)
    assert world.state is S.ONGOING
    assert world.add(producer, T1) not in (None, NONE)
