"""Leaders and followers together: what is committed, who is in sync, where logs are cut."""

from __future__ import annotations

import errno
import struct

import pytest
from apis_world import Context
from replica_world import LAG_MS, T0, ReplicaWorld, log_values

from ottla.config.topic_config import TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.log.follower_append import append_as_follower
from ottla.log.log_retention import delete_old_segments
from ottla.log.log_truncation import truncate_to
from ottla.log.log_validator import AppendOrigin
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.fetch import LAST_VERSION_WITH_NAMES, FetchRequest
from ottla.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.record.batch_builder import build_batch, build_end_transaction_marker
from ottla.record.control_record import ControlRecordType, EndTransactionMarker
from ottla.record.record_batch import assign_offset
from ottla.replication.append_results import ACKS_LEADER
from ottla.replication.follower_partition import FollowerPartition
from ottla.runtime.scheduler import at_once
from ottla.structs import (
    NO_EPOCH,
    NO_UUID,
    IsolationLevel,
    StopReplicaPartition,
    TopicPartition,
)


def errors(answers):
    return [answer.error for answer in answers]


def isr(world):
    return set(world.states[T0].leader_and_isr.isr)


def let_3_ask_to_be_in_sync(world):
    """It has missed something and caught up; returns what the controller answers with."""
    world.cut_off(3)
    world.append(1, b"missed", acks=ACKS_LEADER)
    world.advance(2 * LAG_MS)
    world.heal()
    world.answers_isr_changes = False
    world.advance(2_000)
    ((_, _, _, on_done),) = world.isr_changes
    world.isr_changes = []
    return on_done


def let_3_catch_up_with(world, count, size):
    """It comes back, and is not in sync: so many batches of that size are written without it."""
    world.kill(3)
    world.elect(1, isr=(1, 2))
    for _ in range(count):
        world.append(1, bytes(size))
    world.advance(100)
    world.start(3)
    world.tell(only=3)


def test_followers_copy_what_the_leader_appends(world):
    """An acks=all produce is answered when both have it, and every log holds the same."""
    answers = world.append(1, b"a", b"b")
    world.advance(100)

    assert errors(answers) == [ErrorCode.NONE]
    assert [world.values(broker_id) for broker_id in (1, 2, 3)] == [[(0, b"a"), (1, b"b")]] * 3
    assert world.brokers[1].log().high_watermark == 2


def test_consumers_see_only_what_all_in_sync_replicas_have(world):
    """While a follower in sync is cut off, nothing more is committed."""
    world.cut_off(3)
    answers = world.append(1, b"a")
    world.advance(200)

    assert answers == []
    assert world.brokers[2].log().log_end_offset == 1
    assert world.fetch(1, 0).records is None


def test_follower_that_has_everything_stays_in_sync(world):
    """Where nothing is written nobody can fall behind, heard of or not."""
    world.append(1, b"a")
    world.advance(100)
    world.cut_off(3)
    world.advance(3 * LAG_MS)

    assert isr(world) == {1, 2, 3}


def test_follower_that_lags_leaves_the_in_sync_replicas_and_comes_back(world):
    """Without it records are committed; it catches up and is in sync again."""
    world.cut_off(3)
    answers = world.append(1, b"a", timeout_ms=60_000)
    world.advance(2 * LAG_MS)
    assert errors(answers) == [ErrorCode.NONE]
    assert isr(world) == {1, 2}

    world.heal()
    world.advance(2_000)

    assert isr(world) == {1, 2, 3}
    assert world.values(3) == [(0, b"a")]


def test_leader_waits_for_the_maximal_set_while_a_change_is_under_way(world):
    """What the controller may have done counts until it has answered (KIP-497)."""
    world.answers_isr_changes = False
    world.cut_off(3)
    answers = world.append(1, b"a", timeout_ms=60_000)
    world.advance(2 * LAG_MS)
    ((_, proposed, _, _),) = world.isr_changes
    assert proposed.isr == (1, 2)
    assert answers == []

    world.answer_isr_changes()
    world.run()

    assert errors(answers) == [ErrorCode.NONE]


def test_follower_whose_addition_is_under_way_is_waited_for(world):
    """It may be elected as soon as the controller has written it."""
    let_3_ask_to_be_in_sync(world)
    world.cut_off(3)
    answers = world.append(1, b"a", timeout_ms=60_000)
    world.advance(2 * LAG_MS)

    assert isr(world) == {1, 2}
    assert answers == []
    assert world.brokers[1].manager.partition(T0).leadership.in_sync.maximal == {1, 2, 3}


def test_refused_change_leaves_the_in_sync_replicas_as_they_were(world):
    """The controller knows that the broker is gone; it is asked again, but not with every fetch."""
    answer = let_3_ask_to_be_in_sync(world)
    answer(ErrorCode.INELIGIBLE_REPLICA)
    leadership = world.brokers[1].manager.partition(T0).leadership
    assert leadership.in_sync.maximal == {1, 2}

    world.append(1, b"a")
    world.advance(200)
    assert world.isr_changes == []
    world.advance(2_000)

    assert [proposed.isr for _, proposed, _, _ in world.isr_changes] == [(1, 2, 3)]


def test_replica_that_the_controller_refuses_is_not_waited_for(world):
    """A broker that was shutting down held writes up for a second, or until it was gone."""
    answer = let_3_ask_to_be_in_sync(world)
    answer(ErrorCode.INELIGIBLE_REPLICA)
    leadership = world.brokers[1].manager.partition(T0).leadership
    assert leadership.in_sync.maximal == {1, 2}
    world.brokers[3].manager.fetchers.shutdown()

    answers = world.append(1, b"a")

    assert [answer.error for answer in answers] == [ErrorCode.NONE]


def test_partitions_are_dealt_out_again_among_more_fetchers(world):
    """num.replica.fetchers can change while the broker runs, and nothing is lost or doubled."""
    others = [TopicPartition(T0.topic, number) for number in range(1, 4)]
    for topic_partition in others:
        world.create(topic_partition=topic_partition)
    follower = world.brokers[3].manager
    world.append(1, b"before")
    world.advance(1_000)
    for count in (2, 4, 1):
        follower.update_config(follower.config.replace(num_replica_fetchers=count))
        world.append(1, b"with %d" % count)
        world.advance(1_000)
        assert len(follower.fetchers) == count

    values = [value for _, value in world.values(3)]
    assert values == [b"before", b"with 2", b"with 4", b"with 1"]
    assert isr(world) == {1, 2, 3}


def test_broker_that_stops_is_not_waited_for_where_it_led(world):
    """It copied from its successor, which held writes up until a controller refused it."""
    world.brokers[1].manager.is_leaving = True
    world.answers_isr_changes = False
    world.elect(2, isr=(2, 3))
    world.advance(1_000)

    answers = world.append(2, b"a")

    assert world.isr_changes == []
    assert [answer.error for answer in answers] == [ErrorCode.NONE]
    assert world.values(1) == []


def test_broker_that_stops_goes_on_with_what_it_is_in_sync_with(world):
    """Until it is out of the in-sync replicas, a leader needs it to commit."""
    world.brokers[3].manager.is_leaving = True
    world.elect(2)

    answers = world.append(2, b"a")

    assert [answer.error for answer in answers] == [ErrorCode.NONE]
    assert world.values(3) == [(0, b"a")]


def test_proposal_names_the_registrations_of_the_replicas(world):
    """The controller can tell a broker that was started again meanwhile (KIP-903)."""
    world.cut_off(3)
    world.answers_isr_changes = False
    world.append(1, b"missed", acks=ACKS_LEADER)
    world.advance(2 * LAG_MS)
    ((_, _, epochs, _),) = world.isr_changes

    assert epochs == {1: 1, 2: 2}


def test_too_few_replicas_refuse_before_and_after_the_append():
    """min.insync.replicas counts when the batch comes, and again when it is committed."""
    world = ReplicaWorld(topic_settings={"min.insync.replicas": "2"})
    world.create()
    world.cut_off(2)
    world.cut_off(3)
    answers = world.append(1, b"a", timeout_ms=60_000)
    world.advance(3 * LAG_MS)
    assert isr(world) == {1}
    assert errors(answers) == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]

    assert errors(world.append(1, b"b")) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert errors(world.append(1, b"c", acks=ACKS_LEADER)) == [ErrorCode.NONE]
    world.close()


def test_old_leader_cuts_off_what_the_new_one_never_had(world):
    """Records that were not committed give way; those that were stay (KIP-101)."""
    world.append(1, b"committed")
    world.advance(100)
    world.cut_off(1)
    lost = world.append(1, b"lost", acks=ACKS_LEADER)
    world.advance(100)
    world.elect(2, isr=(2, 3))
    world.append(2, b"new")
    world.advance(100)
    world.heal()
    world.advance(2_000)

    assert errors(lost) == [ErrorCode.NONE]
    expected = [(0, b"committed"), (1, b"new")]
    assert [world.values(broker_id) for broker_id in (1, 2, 3)] == [expected] * 3
    assert isr(world) == {1, 2, 3}


def test_producer_that_waits_is_told_when_the_leadership_is_gone(world):
    """It must not hear of another leader's progress as of its own."""
    world.cut_off(2)
    world.cut_off(3)
    answers = world.append(1, b"a")
    world.elect(2)

    assert errors(answers) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_logs_that_part_in_several_epochs_are_cut_at_the_right_place(world):
    """Fast leader changes: the follower asks again until both have the epoch (KIP-279)."""
    world.append(1, b"base")
    world.advance(100)
    for broker_id in (1, 2, 3):
        world.cut_off(broker_id)
    for leader in (1, 2, 1, 2):  # each writes alone, in its own epochs
        world.elect(leader, isr=(1, 2, 3))
        world.append(leader, b"by %d" % leader, acks=ACKS_LEADER)
    world.heal()
    world.elect(2)
    world.advance(3_000)

    values = [world.values(broker_id) for broker_id in (1, 2, 3)]
    assert values[0] == values[1] == values[2]
    assert [value for _, value in values[0]] == [b"base", b"by 2", b"by 2"]


def test_epoch_without_records_does_not_keep_the_logs_apart(world):
    """A leader of a moment has an epoch at its end that nobody else knows."""
    world.append(1, b"a")
    world.advance(100)
    world.cut_off(2)
    world.elect(2)
    world.heal()
    world.elect(1)
    world.append(1, b"b")
    world.advance(2_000)

    assert world.values(2) == [(0, b"a"), (1, b"b")]
    assert world.brokers[2].log().leader_epoch_cache.entries == [(0, 0), (2, 1)]


def test_new_leader_does_not_know_at_once_how_far_was_committed(world):
    """OFFSET_NOT_AVAILABLE until the high watermark has come up to its epoch (KIP-207)."""
    world.append(1, b"a")
    world.advance(100)
    world.kill(1)
    world.cut_off(3)
    world.brokers[2].log().update_high_watermark(0)
    world.elect(2, isr=(2, 3))
    manager = world.brokers[2].manager

    def end():
        return at_once(manager.fetch_offset(T0, -1, IsolationLevel.READ_UNCOMMITTED, NO_EPOCH))

    assert end().error is ErrorCode.OFFSET_NOT_AVAILABLE
    asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=-1)])
    request = ListOffsetsRequest(replica_id=-1, topics=[asked])
    lines = {}
    for version in (4, 5):
        answer = world.brokers[2].handlers[ApiKey.LIST_OFFSETS](Context(version), request)
        lines[version] = ErrorCode.of(answer.topics[0].partitions[0].error_code)
    # Older clients do not know the newer error, and take it for the end of all trying.
    assert lines == {4: ErrorCode.LEADER_NOT_AVAILABLE, 5: ErrorCode.OFFSET_NOT_AVAILABLE}
    world.heal()
    world.advance(2_000)

    assert end().offset == 1


def test_follower_begins_anew_where_the_leader_has_nothing_older(world):
    """While it was down, retention has gone past the end of its log."""
    world.append(1, b"a")
    world.advance(100)
    world.kill(3)
    world.elect(1, isr=(1, 2))
    for number in range(5):
        world.append(1, b"%d" % number)
    world.advance(100)
    for broker_id in (1, 2):
        log = world.brokers[broker_id].log()
        log.roller.roll()
        log.maybe_increment_log_start_offset(4)
        delete_old_segments(log, world.runtime.clock.now_ms())
    world.start(3)
    world.tell(only=3)
    world.advance(3_000)

    assert world.values(3) == world.values(1) == [(4, b"3"), (5, b"4")]
    assert world.brokers[3].log().log_start_offset == 4


def test_follower_that_is_ahead_of_an_unclean_leader_gives_in(world):
    """The last resort loses records, and the replicas agree on which."""
    world.append(1, b"a")
    world.advance(100)
    world.cut_off(3)
    world.append(1, b"b", acks=ACKS_LEADER)
    world.advance(200)
    world.heal()
    world.elect(3, isr=(3,))
    world.append(3, b"c")
    world.advance(3_000)

    assert world.values(1) == world.values(2) == world.values(3) == [(0, b"a"), (1, b"c")]


def test_follower_that_is_ahead_in_the_leaders_epoch_is_cut_by_the_answer_of_a_fetch(world):
    """No leader is elected: nothing else would make it compare its log again."""
    world.append(1, b"a")
    world.advance(1_000)
    ahead = bytearray(build_batch([(1_000, None, b"nowhere else", ())]))
    assign_offset(memoryview(ahead), 0, 1, 0)
    append_as_follower(world.brokers[2].log(), ahead, 0, 0)
    world.advance(2_000)
    answers = world.append(1, b"b")
    world.advance(1_000)

    assert errors(answers) == [ErrorCode.NONE]
    assert world.values(2) == world.values(1) == [(0, b"a"), (1, b"b")]


def test_answer_for_another_end_than_the_log_has_by_now_is_not_taken(world):
    """It would leave a hole: a log may be cut, or put in another's place, while it is asked for."""
    for value in (b"a", b"b"):
        world.append(1, value)
    world.advance(1_000)
    truncate_to(world.brokers[2].log(), 1)
    answers = world.append(1, b"c")
    world.advance(2_000)

    assert errors(answers) == [ErrorCode.NONE]
    assert world.values(2) == world.values(1) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_follower_that_is_given_up_while_it_copies_takes_nothing_else_from_the_answer(
    world, monkeypatch, core_source
):
    """Its log is led here by then, or copied from somebody else."""
    append, given_up = FollowerPartition.append, []

    async def give_up(self, *arguments):
        size = await append(self, *arguments)
        if self.partition.broker_id == 3:
            self.give_up()
            given_up.append(size)
        return size

    monkeypatch.setattr(FollowerPartition, "append", give_up)
    let_3_catch_up_with(world, 3, 10)
    world.advance(1_000)
    log = world.brokers[3].log()

    assert len(given_up) == 1
    assert (log.log_end_offset, log.high_watermark) == (3, 0)


def test_damaged_batch_of_the_leader_is_not_copied(world):
    """The CRC is checked; the follower keeps what it has and tries again."""
    world.append(1, b"good")
    world.advance(100)
    world.cut_off(2)
    world.cut_off(3)
    world.append(1, b"to be damaged", acks=ACKS_LEADER)
    segment = world.brokers[1].log().segments.active
    byte = segment.file.pread(1, segment.size - 3)[0]
    segment.file.pwrite(bytes([byte ^ 1]), segment.size - 3)
    world.heal()
    world.advance(3_000)

    assert log_values(world.brokers[2].log()) == [(0, b"good")]
    assert world.brokers[2].log().log_end_offset == 1


def test_restarted_brokers_know_what_was_committed(world):
    """All are killed at once; the page cache survives, and the same leader goes on."""
    world.append(1, b"a")
    world.advance(6_000)
    for broker_id in (1, 2, 3):
        world.kill(broker_id)
    for broker_id in (1, 2, 3):
        world.start(broker_id)
    world.tell()
    answers = world.append(1, b"b")
    world.advance(2_000)

    assert errors(answers) == [ErrorCode.NONE]
    assert world.values(3) == [(0, b"a"), (1, b"b")]


def test_leader_does_not_count_a_follower_that_lost_its_tail(world):
    """A fetch from an earlier offset says what the follower has now."""
    world.append(1, b"a")
    world.advance(100)
    world.kill(3, lose_unsynced=True)
    world.start(3)
    world.cut_off(2)
    world.tell(only=3)
    answers = world.append(1, b"b")
    world.advance(2_000)

    assert world.values(3) == [(0, b"a"), (1, b"b")]
    assert answers == []
    assert world.brokers[1].log().high_watermark == 1


def test_records_are_deleted_when_all_replicas_have_moved_their_start(world):
    """The answer is the low watermark; a replica that is cut off holds it up until the timeout."""
    world.append(1, b"a", b"b")
    world.advance(600)
    answers = []
    world.brokers[1].manager.delete_records(5_000, {T0: 1}, answers.append)
    assert answers == []
    world.advance(1_200)
    assert answers == [{T0: (1, ErrorCode.NONE)}]
    assert [world.brokers[broker_id].log().log_start_offset for broker_id in (1, 2, 3)] == [1] * 3

    world.cut_off(3)
    world.brokers[1].manager.delete_records(5_000, {T0: 2}, answers.append)
    world.advance(5_100)

    assert answers[1] == {T0: (-1, ErrorCode.REQUEST_TIMED_OUT)}


def test_throttled_follower_waits_for_the_leaders_rate():
    """A replica that is not in sync gets no more than the rate; one in sync gets all."""
    world = ReplicaWorld(
        settings={"leader.replication.throttled.rate": "1000"},
        topic_settings={"leader.replication.throttled.replicas": "*"},
    )
    world.create()
    let_3_catch_up_with(world, count=10, size=20_000)
    world.advance(1_000)
    assert world.brokers[2].log().log_end_offset == 10
    assert world.brokers[3].log().log_end_offset < 10

    world.brokers[1].manager.leader_quota.bytes_per_second = 2**63 - 1
    world.advance(2_000)

    assert world.brokers[3].log().log_end_offset == 10
    world.close()


def test_replicas_that_no_setting_names_do_not_use_the_leaders_rate_up():
    """It is there for those that move; what the others get is not counted."""
    world = ReplicaWorld(settings={"leader.replication.throttled.rate": "1000"})
    world.create()
    world.append(1, bytes(100_000))
    world.advance(1_000)

    assert world.brokers[2].log().log_end_offset == 1
    assert world.brokers[1].manager.leader_quota.is_limited
    assert not world.brokers[1].manager.leader_quota.is_exceeded
    world.close()


def test_follower_keeps_to_its_own_rate():
    """The follower leaves throttled partitions out of its fetches until the rate allows them."""
    world = ReplicaWorld(
        settings={"follower.replication.throttled.rate": "100000"},
        topic_settings={"follower.replication.throttled.replicas": "0:3"},
    )
    world.create()
    let_3_catch_up_with(world, count=3, size=1_000_000)
    world.advance(3_000)
    assert world.brokers[3].log().log_end_offset == 1

    world.advance(25_000)

    assert world.brokers[3].log().log_end_offset == 3
    world.close()


def test_follower_knows_transactions_and_producers_from_the_batches(world):
    """After a leader change readers of committed records see the same, and retries are known."""

    def append(records, origin=AppendOrigin.CLIENT):
        leader = world.brokers[1].manager
        leader.append_records(1_000, -1, {T0: records}, lambda results: None, origin=origin)
        world.advance(100)

    def batch(sequence):
        data = build_batch(
            [(0, None, b"v", ())],
            producer_id=5,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        return memoryview(bytearray(data))

    partition = world.brokers[1].manager.partition(T0)
    partition.begin_verification(5, 0, 0).is_confirmed = True
    append(batch(0))
    marker = EndTransactionMarker(ControlRecordType.ABORT, 0)
    abort = memoryview(bytearray(build_end_transaction_marker(marker, 1_000, 5, 0)))
    append(abort, AppendOrigin.COORDINATOR)
    partition.begin_verification(5, 0, 0).is_confirmed = True
    append(batch(1))
    world.advance(1_000)
    world.elect(2)
    world.advance(2_000)

    log = world.brokers[2].log()
    assert (log.last_stable_offset, log.high_watermark) == (2, 3)
    assert [a.producer_id for a in log.segments.active.txn_index.entries()] == [5]
    assert log.producer_state_manager.producers[5].last_sequence == 1


@pytest.mark.parametrize("error", [struct.error("planted"), ValueError("planted"), OSError(5, "x")])
def test_partition_that_cannot_be_copied_keeps_no_other_back(
    world, monkeypatch, caplog, core_source, error
):
    """Whatever it makes the code raise: it is named once, and tried again and again."""
    other = TopicPartition("t", 1)
    world.create(topic_partition=other)
    world.advance(1_000)
    take = FollowerPartition.append

    async def fail_for_one(follower, records, *rest):
        if follower.topic_partition == T0 and records:
            raise error
        return await take(follower, records, *rest)

    monkeypatch.setattr(FollowerPartition, "append", fail_for_one)
    world.append(1, b"poison", acks=ACKS_LEADER)
    world.advance(100)
    answers = world.append(1, b"x", topic_partition=other)
    world.advance(10_000)

    assert errors(answers) == [ErrorCode.NONE]
    assert log_values(world.brokers[2].log(other)) == [(0, b"x")]
    assert caplog.text.count("copying t-0 has failed") == 2  # at each of the two followers
    monkeypatch.undo()
    world.advance(5_000)
    assert world.values(2) == world.values(3) == [(0, b"poison")]
    caplog.clear()


def test_flush_that_was_refused_once_stops_no_fetcher(world):
    """It waits for the flush, and nothing comes that would ask for another one."""
    for broker in world.brokers.values():
        config = TopicConfig.of(broker.config, {"flush.messages": "1"})
        broker.log().update_config(config)
    other = TopicPartition("t", 1)
    world.create(topic_partition=other)
    world.disks[2].fail("replace", "*leader-epoch-checkpoint", error=errno.ENOSPC)
    world.append(1, b"a", acks=ACKS_LEADER)
    world.advance(1_000)
    answers = world.append(1, b"b", topic_partition=other)
    world.advance(5_000)

    assert errors(answers) == [ErrorCode.NONE]
    assert world.values(2) == [(0, b"a")]
    assert world.brokers[1].log().high_watermark == 1


@pytest.mark.parametrize("version", [12, 14, 15, 17])
def test_leader_of_an_older_version_is_copied_as_well(world, version):
    """Whatever the field in which a follower says which broker it is."""
    world.newest[FetchRequest] = version
    answers = world.append(1, b"a")
    world.advance(1_200)

    assert errors(answers) == [ErrorCode.NONE]
    assert world.values(2) == world.values(3) == [(0, b"a")]
    (connection,) = world.brokers[2].connections
    assert connection.requests[-1][1] == version
    assert world.brokers[1].log().high_watermark == 1


def test_topic_without_an_id_is_asked_for_by_its_name(world):
    """It was made before topics had ids; without it the newest version is in use again."""
    (connection,) = world.brokers[2].connections
    world.advance(1_000)
    with_ids = connection.requests[-1][1]
    old = TopicPartition("old", 0)
    world.topic_names[NO_UUID] = None
    world.create(topic_partition=old, topic_id=NO_UUID)
    answers = world.append(1, b"a", topic_partition=old)
    world.advance(1_000)
    with_names = connection.requests[-1][1]
    world.brokers[2].manager.stop_replica([StopReplicaPartition(old, 0, False)])
    world.advance(2_000)

    assert errors(answers) == [ErrorCode.NONE]
    assert (with_ids, with_names) == (FetchRequest.max_version, LAST_VERSION_WITH_NAMES)
    assert connection.requests[-1][1] == with_ids


def test_leader_has_more_time_to_answer_than_it_may_wait(world):
    """A long poll that ends empty is no lost connection."""
    (connection,) = world.brokers[2].connections
    request, _, timeout_ms = connection.requests[-1]

    assert timeout_ms == request.max_wait_ms + 30_000
    assert request.max_wait_ms == 500


def first_delays(caplog):
    """How long partitions have sat out since the last call, in the order of the log."""
    lines = [each.message for each in caplog.records if "sits out for" in each.message]
    caplog.clear()
    return [int(line.partition("sits out for ")[2].partition(" ")[0]) for line in lines]


def test_partition_that_was_copied_again_sits_out_as_short_as_the_first_time(
    world, monkeypatch, caplog, core_source
):
    """Only failures one after the other make it longer."""
    caplog.set_level("INFO", "ottla.replication.fetcher")
    take = FollowerPartition.append

    async def fail(follower, records, *rest):
        if records and follower.partition.broker_id == 2:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "planted")
        return await take(follower, records, *rest)

    outages = []
    for value in (b"a", b"b"):
        with monkeypatch.context() as patch:
            patch.setattr(FollowerPartition, "append", fail)
            world.append(1, value)
            world.advance(1_500)
        world.advance(2_000)
        outages.append(first_delays(caplog))

    assert outages[0] == outages[1]
    assert len(outages[0]) > 3
    assert outages[0] == sorted(set(outages[0]))
    assert world.values(2) == [(0, b"a"), (1, b"b")]


def test_connection_that_held_is_tried_again_as_soon_as_the_first_time(world, caplog):
    """Only failures one after the other make the pauses longer."""
    caplog.set_level("INFO", "ottla.replication.fetcher")
    attempts = []
    for _ in range(2):
        world.advance(1_000)
        caplog.clear()
        world.cut_off(2)
        world.advance(800)
        attempts.append(sum("fetching from" in each.message for each in caplog.records))
        world.heal()
        world.advance(3_000)

    assert attempts[0] == attempts[1] > 3


def test_partition_that_sits_out_is_asked_for_as_soon_as_its_time_is_over(
    world, monkeypatch, core_source
):
    """Though the others of its fetcher have nothing new, and their long poll would last longer."""
    world.create(topic_partition=TopicPartition("t", 1))
    world.advance(1_000)
    take, failures = FollowerPartition.append, [ValueError("planted")]

    async def fail_once(follower, records, *rest):
        if records and failures and follower.partition.broker_id == 2:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failures.pop()))
        return await take(follower, records, *rest)

    monkeypatch.setattr(FollowerPartition, "append", fail_once)
    world.append(1, b"a")
    missing = world.values(2)
    for _ in range(10):
        world.runtime.advance(10)
        world.run()

    assert (missing, failures) == ([], [])
    assert world.values(2) == [(0, b"a")]


def test_batch_is_committed_as_soon_as_the_follower_has_flushed_it():
    """Its fetcher waits for the disk, and not for the time after which it looks in any case."""
    world = ReplicaWorld(topic_settings={"flush.messages": "1"})
    world.create()
    world.advance(1_000)
    answers = world.append(1, b"a")
    for _ in range(10):
        world.runtime.advance(5)
        world.run()

    assert errors(answers) == [ErrorCode.NONE]
    world.close()


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        ("replace", "*leader-epoch-checkpoint"),
        ("fsync", "*.log"),
        ("fsync_dir", "*"),
    ],
)
def test_follower_whose_flush_has_failed_does_not_claim_the_batch(operation, path):
    """Its directory is offline then, and no fetch may say that the batch is on its disk."""
    world = ReplicaWorld(topic_settings={"flush.messages": "1"})
    world.create()
    world.advance(1_000)
    world.disks[2].fail(operation, path, times=1_000)
    answers = world.append(1, b"a", timeout_ms=60_000)
    world.advance(LAG_MS // 2)  # later it is no longer in sync, and nobody waits for it

    log = world.brokers[2].log()
    assert (log.log_end_offset, log.recovery_point) == (1, 0)
    assert world.brokers[1].log().high_watermark == 0
    assert answers == []
    world.close()
