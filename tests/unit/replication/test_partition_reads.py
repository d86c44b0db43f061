"""What a partition lets be read, asked and deleted, and what it knows of its role."""

from __future__ import annotations

import pytest
from replica_world import T0, TOPIC_ID

from ottla.errors import ErrorCode, KafkaError
from ottla.log.log_validator import AppendOrigin
from ottla.record.batch_builder import build_end_transaction_marker
from ottla.record.control_record import ControlRecordType, EndTransactionMarker
from ottla.replication.replica_requests import FetchParams, PartitionFetch
from ottla.runtime.scheduler import at_once
from ottla.structs import (
    CONSUMER_REPLICA_ID,
    LATEST_TIMESTAMP,
    NO_EPOCH,
    IsolationLevel,
)


def partition(world, broker_id=1):
    return world.brokers[broker_id].manager.partition(T0)


def read(world, offset, isolation=IsolationLevel.READ_UNCOMMITTED, replica_id=CONSUMER_REPLICA_ID):
    params = FetchParams(replica_id, 0, 1, 1 << 20, isolation)
    return partition(world).read_records(
        PartitionFetch(T0, TOPIC_ID, offset, 1 << 20), params, 1 << 20, True
    )


def error_of(call):
    with pytest.raises(KafkaError) as caught:
        call()
    return caught.value.error


def abort_a_transaction(world):
    """Two records of one that was aborted, and one that is committed as it is."""
    partition(world).begin_verification(7, 0, 0).is_confirmed = True
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    world.append(1, b"a", b"b", is_transactional=True, **producer)
    end = EndTransactionMarker(ControlRecordType.ABORT, 0)
    marker = build_end_transaction_marker(end, 1_000, 7, 0)
    partition(world).append_records_to_leader(
        memoryview(bytearray(marker)), 1, 1_000, AppendOrigin.COORDINATOR
    )
    world.append(1, b"c")
    world.advance(100)


def test_role_is_that_of_the_last_state(world):
    """Leader, epoch, version and replicas; each is told to clients and checked against requests."""
    world.elect(2)
    state = world.states[T0]

    for broker_id in (1, 2, 3):
        known = partition(world, broker_id)
        assert known.leader == 2
        assert known.leader_epoch == state.leader_epoch
        assert known.version == state.leader_and_isr.version
        assert known.replicas == (1, 2, 3)
        assert known.is_leader is (broker_id == 2)


def test_reader_of_committed_records_learns_what_was_aborted(world):
    """Others get no list: they take the records as they are."""
    abort_a_transaction(world)

    committed = read(world, 0, IsolationLevel.READ_COMMITTED)
    assert [(each.producer_id, each.first_offset) for each in committed.aborted_transactions] == [
        (7, 0)
    ]
    assert not read(world, 0).aborted_transactions
    assert not read(world, 0, IsolationLevel.READ_COMMITTED, replica_id=2).aborted_transactions


@pytest.mark.parametrize(
    ("wanted", "start"),
    [(0, 0), (2, 2), (3, 3), (-1, 3), (4, None), (-2, None), (-(2**63), None), (2**63 - 1, None)],
)
def test_records_are_deleted_up_to_what_is_committed(world, wanted, start):
    """-1 stands for all of it; what is not committed yet cannot be deleted."""
    world.append(1, b"a", b"b", b"c")
    world.advance(100)
    world.cut_off(3)
    world.append(1, b"d")

    if start is None:
        assert error_of(lambda: partition(world).delete_records(wanted)) is (
            ErrorCode.OFFSET_OUT_OF_RANGE
        )
        assert partition(world).log.log_start_offset == 0
    else:
        assert partition(world).delete_records(wanted) == start
        assert partition(world).log.log_start_offset == start


@pytest.mark.parametrize(
    ("epoch", "error"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_question_of_another_leader_epoch_is_refused(world, epoch, error):
    """Whoever asks knows an older leader, or one that this broker does not know yet."""
    world.elect(1)
    known = partition(world)

    assert error_of(lambda: known.end_offset_for_epoch(0, epoch)) is error
    assert (
        error_of(
            lambda: at_once(
                known.fetch_offset_for_timestamp(
                    LATEST_TIMESTAMP, IsolationLevel.READ_UNCOMMITTED, epoch
                )
            )
        )
        is error
    )
    assert known.end_offset_for_epoch(0, 1) == known.end_offset_for_epoch(0, NO_EPOCH)


@pytest.mark.parametrize("timestamp_ms", [LATEST_TIMESTAMP, 10**12])
def test_end_of_a_new_leader_is_not_told_before_it_is_known(world, timestamp_ms):
    """Its predecessor may have committed more: the next answer must not be smaller (KIP-207)."""
    world.cut_off(2)
    world.cut_off(3)
    world.append(1, b"a")
    world.elect(1)
    known = partition(world)

    def ask(**replica):
        return at_once(
            known.fetch_offset_for_timestamp(
                timestamp_ms, IsolationLevel.READ_UNCOMMITTED, **replica
            )
        )

    assert error_of(ask) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert ask(replica_id=2).error is ErrorCode.NONE


def test_reader_that_is_ahead_in_its_epoch_learns_where_it_ends(world):
    """Its log diverges there; one whose epoch is not known here is out of range."""
    world.append(1, b"a", b"b")
    world.advance(100)

    def ask(offset, epoch):
        params = FetchParams(2, 0, 1, 1 << 20, IsolationLevel.READ_UNCOMMITTED)
        request = PartitionFetch(T0, TOPIC_ID, offset, 1 << 20, last_fetched_epoch=epoch)
        return partition(world).read_records(request, params, 1 << 20, True).diverging_epoch

    assert ask(2, 0) is None
    assert ask(3, 0) == (0, 2)
    assert error_of(lambda: ask(1, 9)) is ErrorCode.OFFSET_OUT_OF_RANGE
    partition(world).log.maybe_increment_log_start_offset(1)
    assert error_of(lambda: ask(0, 0)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert ask(1, 0) is None


def test_epoch_in_which_nothing_was_written_is_forgotten_by_the_follower(world):
    """It would make the logs diverge for ever."""
    world.append(1, b"a")
    world.advance(100)
    world.elect(2)
    led_in = partition(world, 2).log.leader_epoch_cache.latest_epoch
    state = world.states[T0]
    elected = state.leader_and_isr._replace(leader=1, leader_epoch=2, version=9)
    world.brokers[2].manager.become_leader_or_follower(
        [state._replace(leader_and_isr=elected)], world.live_brokers()
    )
    follows_in = partition(world, 2).log.leader_epoch_cache.latest_epoch

    assert (led_in, follows_in) == (1, 0)


def test_reader_of_a_follower_is_fenced_by_its_epoch(world):
    """A follower serves those that know of the same leader as itself, and no others."""
    world.append(1, b"a")
    world.elect(1)
    world.advance(1_200)

    def ask(epoch):
        params = FetchParams(
            CONSUMER_REPLICA_ID,
            0,
            1,
            1 << 20,
            IsolationLevel.READ_UNCOMMITTED,
            may_read_from_follower=True,
        )
        request = PartitionFetch(T0, TOPIC_ID, 0, 1 << 20, current_leader_epoch=epoch)
        return partition(world, 2).read_records(request, params, 1 << 20, True)

    assert ask(1).records.size == ask(NO_EPOCH).records.size > 0
    assert error_of(lambda: ask(0)) is ErrorCode.FENCED_LEADER_EPOCH
    assert error_of(lambda: ask(2)) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_record_that_is_not_committed_is_found_by_no_time(world):
    """A consumer that began there would be told that its offset is out of range."""
    world.cut_off(2)
    world.append(1, b"a")
    found = at_once(partition(world).fetch_offset_for_timestamp(0, IsolationLevel.READ_UNCOMMITTED))
    by_replica = at_once(
        partition(world).fetch_offset_for_timestamp(
            0, IsolationLevel.READ_UNCOMMITTED, replica_id=2
        )
    )

    assert (found.error, found.offset) == (ErrorCode.NONE, -1)
    assert by_replica.offset == 0


def test_open_transaction_is_known_to_the_leader_alone(world):
    """A follower may have it from the batches, and is not the one to ask."""
    partition(world).begin_verification(7, 0, 0).is_confirmed = True
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    world.append(1, b"a", is_transactional=True, **producer)
    world.advance(1_000)

    assert partition(world).has_open_txn(7, 0)
    assert not partition(world).has_open_txn(7, 1)
    assert not partition(world).has_open_txn(8, 0)
    assert not partition(world, 2).has_open_txn(7, 0)


def test_fetch_of_a_broker_that_is_no_replica_here_is_refused(world):
    """One that knows the leader's epoch knows more than the leader, and is to ask again."""
    params = FetchParams(9, 0, 1, 1 << 20, IsolationLevel.READ_UNCOMMITTED)

    def error_in(epoch):
        request = PartitionFetch(T0, TOPIC_ID, 0, 1 << 20, current_leader_epoch=epoch)
        return error_of(lambda: partition(world).on_follower_fetch(request, params))

    assert error_in(0) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert error_in(NO_EPOCH) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_fetch_from_before_a_followers_newest_registration_counts_as_nothing(world):
    """It was restarted since, and may have lost what it asks to go on from; -1 tells nothing."""
    for broker_id in (2, 3):
        world.cut_off(broker_id)
    world.append(1, b"a", b"b", acks=1)
    manager = world.brokers[1].manager

    def fetch(offset, epoch):
        params = FetchParams(2, 0, 1, 1 << 20, IsolationLevel.READ_UNCOMMITTED, replica_epoch=epoch)
        request = PartitionFetch(T0, TOPIC_ID, offset, 1 << 20)
        answers = []
        manager.fetch_records(params, [request], answers.append)
        (answer,) = answers
        end = partition(world).leadership.followers[2].log_end_offset
        return answer[request.key].error, answer[request.key].records is None, end

    registered = partition(world).leadership.followers[2].broker_epoch
    newer = registered + 1

    assert fetch(0, newer) == (ErrorCode.NONE, False, 0)
    assert fetch(1, registered) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, True, 0)
    assert fetch(1, newer) == (ErrorCode.NONE, False, 1)
    assert fetch(0, NO_EPOCH) == (ErrorCode.NONE, False, 0)
    assert fetch(1, registered) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, True, 0)


@pytest.mark.parametrize(
    "question",
    [
        lambda here: here.delete_records(0),
        lambda here: here.low_watermark,
        lambda here: here.check_leader_epoch(NO_EPOCH),
    ],
)
def test_question_to_the_leader_is_refused_by_a_follower(world, question):
    """Its answer could be older than what was acknowledged."""
    question(partition(world))

    assert error_of(lambda: question(partition(world, 2))) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition(world, 2).begin_verification(7, 0, 0) is None


def test_follower_describes_its_own_producers(world):
    """An administrator asks each replica for the transactions that it has open (KIP-664)."""
    abort_a_transaction(world)

    of_leader, of_follower = (
        [
            (each.producer_id, each.last_sequence)
            for each in partition(world, id_).active_producers()
        ]
        for id_ in (1, 2)
    )
    assert of_leader == of_follower == [(7, 1)]


def test_fetch_of_a_follower_tells_what_it_changes(world):
    """Whether more is committed now, and whether deleted records are gone there as well."""
    world.append(1, b"a")
    world.advance(1_200)
    for broker_id in (2, 3):
        world.cut_off(broker_id)
    world.append(1, b"b")

    def fetch(broker_id, offset, start):
        params = FetchParams(broker_id, 0, 1, 1 << 20, IsolationLevel.READ_UNCOMMITTED)
        request = PartitionFetch(T0, TOPIC_ID, offset, 1 << 20, log_start_offset=start)
        return partition(world).on_follower_fetch(request, params)

    assert fetch(2, 2, 0) == (False, False)
    assert fetch(3, 2, 1) == (True, True)
    assert fetch(3, 2, 1) == (False, False)
