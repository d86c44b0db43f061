"""The replica manager over real logs on a disk in memory: appends, reads, and what waits."""

from __future__ import annotations

import errno
import logging
from uuid import UUID

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.log.log_manager import LogManager
from ottla.log.log_validator import INLINE_UNPACKED_BYTES
from ottla.network.refusal_log import TOLD_EVERY_MS
from ottla.record.batch_builder import BatchBuilder, build_batch
from ottla.record.compression import CompressionType
from ottla.record.memory_records import batches
from ottla.replication import delayed_operations
from ottla.replication.append_results import ACKS_ALL, ACKS_LEADER
from ottla.replication.partition import Partition
from ottla.replication.replica_manager import ReplicaManager
from ottla.replication.replica_requests import FetchParams, PartitionFetch
from ottla.runtime.scheduler import at_once
from ottla.structs import (
    CONSUMER_REPLICA_ID,
    NO_EPOCH,
    IsolationLevel,
    LeaderAndIsr,
    PartitionState,
    StopReplicaPartition,
    TopicPartition,
)
from ottla.testing import mock_runtime

BROKER = 3
TOPIC_ID = UUID(int=5)
FIRST = TopicPartition("t", 0)
SECOND = TopicPartition("t", 1)
ELSEWHERE = TopicPartition("t", 3)
"""A partition of which this broker has no replica."""


@pytest.fixture
def runtime():
    return mock_runtime()


@pytest.fixture
def manager(runtime):
    """A broker that leads two partitions of a topic in epoch 1."""
    manager = ReplicaManager(runtime, new_logs(runtime, "/logs"), BROKER, {ELSEWHERE}.__contains__)
    manager.become_leader_or_follower([led(FIRST), led(SECOND)], {})
    return manager


def new_logs(runtime, *directories):
    """The log manager of a new process."""
    config = BrokerConfig.parse({"log.dirs": ",".join(directories)})
    log_manager = LogManager(runtime, config, lambda topic: TopicConfig.of(config, {}))
    log_manager.acquire()
    log_manager.claim(BROKER, "cluster")
    return log_manager


def led(topic_partition, leader=BROKER, epoch=1):
    state = LeaderAndIsr(leader, epoch, (leader,))
    return PartitionState(topic_partition, TOPIC_ID, 1, state, (leader,))


def batch(*values):
    builder = BatchBuilder()
    for value in values:
        builder.append(1_000, None, value)
    return memoryview(bytearray(builder.build()))


def append(manager, records, acks=ACKS_LEADER, topic_partition=FIRST):
    """Append one batch and return its result."""
    answers = []
    manager.append_records(1_000, acks, {topic_partition: records}, answers.append)
    manager.complete_delayed()
    return answers[0][topic_partition]


def fetch(
    manager, *offsets, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, partition_bytes=1 << 20
):
    """Fetch the partitions from these offsets; returns the list that the answer goes to."""
    answers = []
    wanted = [
        PartitionFetch(TopicPartition("t", index), TOPIC_ID, offset, partition_bytes)
        for index, offset in enumerate(offsets)
    ]
    params = FetchParams(
        CONSUMER_REPLICA_ID, max_wait_ms, min_bytes, max_bytes, IsolationLevel.READ_UNCOMMITTED
    )

    def respond(results):
        answers.append({request.topic_partition: results[request.key] for request in wanted})

    manager.fetch_records(params, wanted, respond)
    return answers


def values(result):
    """What the records of a fetch result hold."""
    found = [] if result.records is None else batches(result.records.read())
    return [record.value for read in found for record in read.records()]


@pytest.mark.parametrize("acks", [ACKS_LEADER, ACKS_ALL])
def test_what_is_appended_is_read_back(manager, acks):
    """Offsets count on, and the batch comes back as it was sent."""
    assert append(manager, batch(b"a", b"b"), acks).base_offset == 0
    assert append(manager, batch(b"c"), acks).base_offset == 2

    (answer,) = fetch(manager, 1)

    assert values(answer[FIRST]) == [b"a", b"b", b"c"]
    assert answer[FIRST].high_watermark == 3


def test_refused_batches_of_a_request_have_one_line_of_the_log(
    manager, caplog, monkeypatch, core_source
):
    """A request may have thousands of them, and be sent without end.

    Another partition, or the same one a while later, has a line of its own.
    """
    caplog.set_level(logging.INFO)

    def refuse(*_):
        raise KafkaError(ErrorCode.INVALID_RECORD, "no")

    def send(*partitions):
        answers = []
        sent = {tp: batch(b"x") for tp in partitions}
        manager.append_records(1_000, ACKS_LEADER, sent, answers.append)
        return [result.error for result in answers[0].values()]

    monkeypatch.setattr(Partition, "append_records_to_leader", refuse)
    assert send(FIRST, SECOND) == [ErrorCode.INVALID_RECORD] * 2
    for _ in range(3):
        assert send(SECOND) == [ErrorCode.INVALID_RECORD]
    manager.runtime.advance(TOLD_EVERY_MS)
    assert send(FIRST) == [ErrorCode.INVALID_RECORD]

    lines = [line for line in caplog.messages if line.startswith("refused a batch")]
    assert lines == [
        "refused a batch for t-0: INVALID_RECORD: no (and 1 more batches)",
        "refused a batch for t-1: INVALID_RECORD: no",
        "refused a batch for t-0: INVALID_RECORD: no",
    ]
    assert "2 more refusals" in caplog.text


def test_an_unknown_partition_is_refused_alone(manager):
    """One partition's error leaves the others of the request untouched."""
    answers = []
    unknown = TopicPartition("nowhere", 0)
    entries = {unknown: batch(b"x"), FIRST: batch(b"y")}
    manager.append_records(1_000, ACKS_LEADER, entries, answers.append)

    assert answers[0][unknown].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answers[0][FIRST].error is ErrorCode.NONE


def test_partition_without_a_replica_here_is_refused_as_that_of_another_leader(manager):
    """Clients were told that there is no such partition, and did not ask where it is."""
    error = append(manager, batch(b"x"), topic_partition=ELSEWHERE).error
    (fetched,) = fetch(manager, 0, 0, 0, 0, max_wait_ms=500)  # it does not wait
    looked_up = at_once(manager.fetch_offset(ELSEWHERE, -1, IsolationLevel.READ_UNCOMMITTED, -1))
    deleted = []
    manager.delete_records(1_000, {ELSEWHERE: 0}, deleted.append)

    assert error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetched[ELSEWHERE].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert looked_up.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert deleted[0][ELSEWHERE].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_clients_do_not_write_to_internal_topics(manager):
    """Only the broker itself appends to the topics that it keeps its state in."""
    result = append(manager, batch(b"x"), topic_partition=TopicPartition("__consumer_offsets", 0))

    assert result.error is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_too_few_in_sync_replicas_refuse_acks_all_only(manager):
    """min.insync.replicas is about acks=all; nothing is appended."""
    partition = manager.partition(FIRST)
    config = BrokerConfig.parse({"log.dirs": "/logs"})
    partition.log.update_config(TopicConfig.of(config, {"min.insync.replicas": "2"}))

    assert append(manager, batch(b"x"), ACKS_ALL).error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert append(manager, batch(b"y"), ACKS_LEADER).base_offset == 0


def test_a_fetch_waits_until_something_is_appended(manager):
    """An empty long poll is answered by the append, with what was appended."""
    answers = fetch(manager, 0, max_wait_ms=500)
    assert answers == []

    append(manager, batch(b"news"))

    assert values(answers[0][FIRST]) == [b"news"]


def test_a_fetch_waits_for_enough_bytes(manager):
    """min.bytes counts over all partitions of the fetch."""
    one = len(batch(b"x" * 100))
    answers = fetch(manager, 0, 0, max_wait_ms=500, min_bytes=one + 1)

    append(manager, batch(b"x" * 100))
    assert answers == []
    append(manager, batch(b"x" * 100), topic_partition=SECOND)

    assert [len(values(result)) for result in answers[0].values()] == [1, 1]
    assert len(fetch(manager, 0, max_wait_ms=500, min_bytes=one)) == 1


def test_fetches_of_one_partition_are_answered_some_at_a_time(
    manager, runtime, monkeypatch, core_source
):
    """The rest in later turns of the loop, without another request."""
    monkeypatch.setattr(delayed_operations, "ENTRIES_AT_ONCE", 1)
    answers = [fetch(manager, 0, max_wait_ms=500) for _ in range(3)]
    append(manager, batch(b"news"))
    assert sum(map(len, answers)) < 3
    runtime.scheduler.run_ready()

    assert [values(answer[FIRST]) for (answer,) in answers] == [[b"news"]] * 3


def test_a_fetch_does_not_wait_for_bytes_beyond_its_limit(manager):
    """Whole batches may come to less than min.bytes and yet be all that fits."""
    one = len(batch(b"x" * 100))
    for _ in range(3):
        append(manager, batch(b"x" * 100))
    limit = 3 * one - 1
    cut_by_partition = fetch(manager, 0, max_wait_ms=500, min_bytes=limit, partition_bytes=limit)
    cut_by_request = fetch(manager, 0, max_wait_ms=500, min_bytes=limit, max_bytes=limit)

    for [answer] in (cut_by_partition, cut_by_request):
        assert len(values(answer[FIRST])) == 2


def test_a_fetch_is_answered_empty_when_its_time_is_up(manager, runtime):
    """max.wait.ms ends the wait."""
    answers = fetch(manager, 0, max_wait_ms=500)

    runtime.scheduler.advance(500)

    assert values(answers[0][FIRST]) == []
    assert answers[0][FIRST].error is ErrorCode.NONE


def test_an_error_is_answered_at_once(manager):
    """A reader whose offset is out of range does not wait to be told."""
    (answer,) = fetch(manager, 7, max_wait_ms=500)

    assert answer[FIRST].error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_unknown_partition_does_not_end_the_wait_for_the_others(manager):
    """A consumer that went on asking for a deleted topic was answered at once, each time."""
    answers = fetch(manager, 0, 0, 0, max_wait_ms=500)  # there is no third partition
    assert answers == []

    append(manager, batch(b"news"))

    assert values(answers[0][FIRST]) == [b"news"]
    unknown = answers[0][TopicPartition("t", 2)]
    assert unknown.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_fetch_with_nothing_to_wait_for_is_answered_at_once(manager):
    """As in Kafka: no partitions, as of a consumer that closes its session, or none that exists."""
    partition = manager.partitions.pop(FIRST)
    (answer,) = fetch(manager, 0, max_wait_ms=500)
    manager.partitions[FIRST] = partition

    assert answer[FIRST].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch(manager, max_wait_ms=500) == [{}]


def test_the_first_partition_with_data_gives_a_whole_batch(manager):
    """However small the limits, a reader gets on: one batch from the first that has any."""
    append(manager, batch(b"x" * 1000), topic_partition=SECOND)

    (answer,) = fetch(manager, 0, 0, max_bytes=10, partition_bytes=10)

    assert len(values(answer[SECOND])) == 1


def test_the_limit_of_the_request_is_shared(manager):
    """What the first partitions take is not there for the others."""
    append(manager, batch(b"x" * 100))
    append(manager, batch(b"x" * 100), topic_partition=SECOND)

    (answer,) = fetch(manager, 0, 0, max_bytes=len(batch(b"x" * 100)) + 10)

    assert [len(values(result)) for result in answer.values()] == [1, 0]


@pytest.mark.parametrize("limit", [-(2**31), -1, 0, 1, 10])
@pytest.mark.parametrize("which", ["max_bytes", "partition_bytes"])
def test_limit_that_no_batch_fits_lets_one_through(manager, which, limit):
    """Of one partition: a limit of 0 is a limit, and so is one below."""
    for _ in range(3):
        append(manager, batch(b"x" * 100))
    append(manager, batch(b"x" * 100), topic_partition=SECOND)

    (answer,) = fetch(manager, 2, 0, **{which: limit})

    assert [len(values(result)) for result in answer.values()] == [1, 0]
    assert [result.size_in_bytes >= 0 for result in answer.values()] == [True, True]


def test_giving_a_partition_up_ends_the_waits_for_it(manager):
    """Whoever waits for a partition that is deleted is told that it is gone."""
    answers = fetch(manager, 0, max_wait_ms=500)

    manager.stop_replica([StopReplicaPartition(FIRST, 1, delete=True)])

    assert answers[0][FIRST].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_another_leader_epoch_is_refused(manager):
    """A reader with an older epoch is fenced, one with a newer epoch is ahead of us (KIP-320)."""
    partition = manager.partition(FIRST)

    def error_for(epoch):
        result = at_once(manager.fetch_offset(FIRST, -1, IsolationLevel.READ_UNCOMMITTED, epoch))
        return result.error

    assert partition.leader_epoch == 1
    assert error_for(0) is ErrorCode.FENCED_LEADER_EPOCH
    assert error_for(1) is ErrorCode.NONE
    assert error_for(2) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_partition_led_elsewhere_refuses(manager):
    """This broker answers only for what it leads."""
    manager.become_leader_or_follower([led(FIRST, leader=9, epoch=2)], {})

    assert append(manager, batch(b"x")).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_records_are_deleted_up_to_the_high_watermark(manager):
    """The log start moves up, -1 means all that is committed, and no offset is beyond it."""
    append(manager, batch(b"a", b"b", b"c"))
    answers = []

    for offset in (2, 9, -1):
        manager.delete_records(1_000, {FIRST: offset}, answers.append)

    assert [answer[FIRST] for answer in answers] == [
        (2, ErrorCode.NONE),
        (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (3, ErrorCode.NONE),
    ]


def test_records_of_compacted_topics_are_not_deleted(manager):
    """A topic that is only compacted keeps its log start."""
    config = BrokerConfig.parse({"log.dirs": "/logs"})
    log = manager.partition(FIRST).log
    log.update_config(TopicConfig.of(config, {"cleanup.policy": "compact"}))
    answers = []

    manager.delete_records(1_000, {FIRST: -1}, answers.append)

    assert answers[0][FIRST].error is ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("acks", [ACKS_LEADER, ACKS_ALL])
def test_flush_messages_holds_the_acknowledgement_until_the_disk_has_it(manager, runtime, acks):
    """With flush.messages=1 nobody is told that a batch is safe before it was flushed."""
    log = manager.partition(FIRST).log
    config = BrokerConfig.parse({"log.dirs": "/logs"})
    log.update_config(TopicConfig.of(config, {"flush.messages": "1"}))
    answers = []

    manager.append_records(1_000, acks, {FIRST: batch(b"x")}, answers.append)
    assert answers == []
    runtime.scheduler.advance(0)

    assert answers[0][FIRST].error is ErrorCode.NONE
    assert log.recovery_point == 1


def test_a_flush_that_fails_is_no_acknowledgement(manager, runtime):
    """The kernel may have dropped the data: the producer hears of it, the directory is offline."""
    log = manager.partition(FIRST).log
    config = BrokerConfig.parse({"log.dirs": "/logs"})
    log.update_config(TopicConfig.of(config, {"flush.messages": "1"}))
    runtime.disk.fail("fsync", "*.log")
    answers = []

    manager.append_records(1_000, ACKS_LEADER, {FIRST: batch(b"x")}, answers.append)
    runtime.scheduler.advance(0)

    assert answers[0][FIRST].error is ErrorCode.KAFKA_STORAGE_ERROR


def test_shutdown_answers_whoever_waits(manager):
    """A long poll does not hold the broker's end up."""
    answers = fetch(manager, 0, max_wait_ms=60_000)

    manager.shutdown()

    assert values(answers[0][FIRST]) == []


def test_log_of_a_new_leader_without_followers_is_committed_to_its_end(manager, runtime):
    """Nobody is there to wait for: consumers get all of it at once."""
    append(manager, batch(b"a"))
    manager.partition(FIRST).log.update_high_watermark(0)
    again = ReplicaManager(runtime, manager.log_manager, BROKER, lambda partition: True)
    again.become_leader_or_follower([led(FIRST, epoch=2)], {})

    assert values(fetch(again, 0)[0][FIRST]) == [b"a"]


def test_broker_that_is_alone_looks_for_no_replicas_that_have_fallen_behind(manager, runtime):
    """It has none, and nothing to wake up for."""
    manager.startup()

    assert runtime.scheduler.loop.next_due_ms() is None


def test_record_is_served_to_those_who_wait_once_it_is_flushed(manager, runtime):
    """With flush.messages=1 it is committed when the disk has it, and not before."""
    log = manager.partition(FIRST).log
    log.update_config(TopicConfig.of(manager.log_manager.config, {"flush.messages": "1"}))
    long_poll = fetch(manager, 0, max_wait_ms=10_000)
    append_later(manager, batch(b"x"))
    manager.complete_delayed()
    before = list(long_poll)
    runtime.scheduler.advance(0)

    assert before == []
    assert values(long_poll[0][FIRST]) == [b"x"]


def large():
    """A batch that is looked through in the background."""
    records = [(1_000, None, bytes(INLINE_UNPACKED_BYTES // 2), ())] * 3
    return memoryview(bytearray(build_batch(records, CompressionType.GZIP)))


def test_large_batch_is_appended_once_it_was_looked_through(manager, runtime):
    """The small one of the request waits for it with the answer; who waits for it gets it."""
    long_poll = fetch(manager, 0, max_wait_ms=10_000)
    answers = []
    entries = {FIRST: large(), SECOND: batch(b"small")}
    manager.append_records(1_000, ACKS_LEADER, entries, answers.append)
    manager.complete_delayed()
    before = list(answers)
    runtime.scheduler.advance(0)

    assert before == []
    assert [result.error for result in answers[0].values()] == [ErrorCode.NONE] * 2
    assert set(answers[0]) == {FIRST, SECOND}
    assert len(values(long_poll[0][FIRST])) > 1


@pytest.mark.parametrize("meanwhile", ["another leads", "the topic is made again"])
def test_batch_that_waits_for_a_large_one_is_acknowledged_by_its_own_log_alone(
    manager, runtime, meanwhile
):
    """Another leader may have had it cut off; the log has come as far again since."""
    answers = []
    entries = {FIRST: batch(b"small"), SECOND: large()}
    manager.append_records(1_000, ACKS_ALL, entries, answers.append)
    if meanwhile == "another leads":
        manager.become_leader_or_follower([led(FIRST, leader=9, epoch=2)], {})
    state = led(FIRST, epoch=3)
    again = state if meanwhile == "another leads" else state._replace(topic_id=UUID(int=6))
    manager.become_leader_or_follower([again], {})
    append(manager, batch(b"newer"))
    runtime.scheduler.advance(0)

    errors = {tp: result.error for tp, result in answers[0].items()}
    assert errors == {FIRST: ErrorCode.NOT_LEADER_OR_FOLLOWER, SECOND: ErrorCode.NONE}


def test_batch_waits_for_a_large_one_while_its_leader_stays(manager, runtime):
    """Also in another epoch: nobody else has led, and the log is whole."""
    answers = []
    entries = {FIRST: batch(b"small"), SECOND: large()}
    manager.append_records(1_000, ACKS_ALL, entries, answers.append)
    manager.become_leader_or_follower([led(FIRST, epoch=2)], {})
    runtime.scheduler.advance(0)

    assert [result.error for result in answers[0].values()] == [ErrorCode.NONE] * 2


def test_large_batch_that_is_refused_is_logged_as_any_other(manager, runtime, caplog):
    """By then the line of its request has been written."""
    caplog.set_level(logging.INFO)
    config = TopicConfig.of(manager.log_manager.config, {"cleanup.policy": "compact"})
    manager.partition(FIRST).log.update_config(config)
    answers = []
    manager.append_records(1_000, ACKS_LEADER, {FIRST: large()}, answers.append)
    runtime.scheduler.advance(0)

    assert answers[0][FIRST].error is ErrorCode.INVALID_RECORD  # it has no keys
    assert "refused a batch for t-0" in caplog.text


def test_large_batch_is_refused_by_a_broker_that_stops(manager, runtime):
    """Its logs are closed next; the producer asks the next leader."""
    answers = []
    manager.append_records(1_000, ACKS_LEADER, {FIRST: large()}, answers.append)
    manager.shutdown()
    runtime.scheduler.advance(0)

    assert answers[0][FIRST].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert manager.partition(FIRST).log.log_end_offset == 0


def test_failed_log_directory_takes_its_partitions_offline(manager, runtime):
    """A failed fsync: who waits is told KAFKA_STORAGE_ERROR, and so is everybody after."""
    log = manager.partition(FIRST).log
    log.update_config(TopicConfig.of(manager.log_manager.config, {"flush.messages": "1"}))
    runtime.disk.fail("fsync", "/logs/t-0/*")
    waiting = append_later(manager, batch(b"x"))
    long_poll = fetch(manager, 0, 0, max_wait_ms=1_000, min_bytes=1_000)

    runtime.advance(1)
    manager.on_log_dir_failure(log.log_dir)

    assert waiting[0][FIRST].error is ErrorCode.KAFKA_STORAGE_ERROR
    assert long_poll[0][SECOND].error is ErrorCode.KAFKA_STORAGE_ERROR
    assert append(manager, batch(b"y")).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert fetch(manager, 0)[0][FIRST].error is ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.become_leader_or_follower([led(FIRST, epoch=2)], {}) == {
        FIRST: ErrorCode.KAFKA_STORAGE_ERROR
    }


def append_later(manager, records):
    """Append to the first partition; returns the list that the answer goes to."""
    answers = []
    manager.append_records(1_000, ACKS_LEADER, {FIRST: records}, answers.append)
    return answers


def test_partition_in_a_failed_directory_is_not_deleted(manager):
    """The controller hears so and waits: the directory would bring the partition back."""
    manager.partition(FIRST).log.log_dir.fail(OSError("gone"))
    manager.on_log_dir_failure(manager.log_manager.dirs[0])

    assert manager.stop_replica([StopReplicaPartition(FIRST, NO_EPOCH, True)]) == {
        FIRST: ErrorCode.KAFKA_STORAGE_ERROR
    }
    assert FIRST in manager.offline_partitions


@pytest.mark.parametrize("operation", ["make_dirs", "open"])
def test_log_that_a_full_disk_has_refused_is_made_when_there_is_room(manager, runtime, operation):
    """Until then the partition is offline: it was missing for ever, though nothing had failed."""
    third = TopicPartition("t", 2)
    runtime.disk.fail(operation, "/logs/t-2*", error=errno.ENOSPC)

    assert manager.become_leader_or_follower([led(third)], {}) == {
        third: ErrorCode.KAFKA_STORAGE_ERROR
    }
    assert append(manager, batch(b"x"), topic_partition=third).error is (
        ErrorCode.KAFKA_STORAGE_ERROR
    )
    assert manager.offline_partitions == {third}
    assert manager.become_leader_or_follower([led(third)], {}) == {third: ErrorCode.NONE}
    assert manager.offline_partitions == set()
    assert append(manager, batch(b"x"), topic_partition=third).error is ErrorCode.NONE


def test_partition_that_may_be_in_a_failed_directory_is_not_deleted(runtime):
    """It failed before its logs were loaded: the deletion was answered, and the topic came back."""
    logs = new_logs(runtime, "/logs", "/failed")
    runtime.disk.fail("list_dir", "/failed")
    runtime.scheduler.run(logs.startup())
    manager = ReplicaManager(runtime, logs, BROKER, lambda partition: True)

    assert manager.stop_replica([StopReplicaPartition(FIRST, NO_EPOCH, True)]) == {
        FIRST: ErrorCode.KAFKA_STORAGE_ERROR
    }


def test_log_of_a_topic_that_was_made_again_meanwhile_is_put_away(manager, runtime):
    """The broker was away when the topic was deleted and created; the new one begins empty."""
    append(manager, batch(b"old"))
    again = ReplicaManager(runtime, manager.log_manager, BROKER, lambda partition: True)
    state = led(FIRST, epoch=0)._replace(topic_id=UUID(int=2), is_new=False)

    assert again.become_leader_or_follower([state], {}) == {FIRST: ErrorCode.NONE}
    log = again.partition(FIRST).log
    assert (log.topic_id, log.log_end_offset) == (UUID(int=2), 0)
    assert append(again, batch(b"new")).base_offset == 0


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_partition_that_cannot_be_deleted_keeps_no_other_back(manager, runtime, error):
    """Each has its own answer; the log of that one is still there, in a failed directory."""
    append(manager, batch(b"x"))
    runtime.disk.fail("rename", "/logs/t-0", error=error)
    stopped = [StopReplicaPartition(each, NO_EPOCH, True) for each in (FIRST, SECOND)]
    found = manager.stop_replica(stopped)
    assert found[FIRST] is ErrorCode.KAFKA_STORAGE_ERROR
    assert list(found) == [FIRST, SECOND]

    assert manager.log_manager.get_log(FIRST).log_dir.is_offline
    assert manager.stop_replica(stopped)[FIRST] is ErrorCode.KAFKA_STORAGE_ERROR


def test_bug_that_one_partition_meets_is_an_error_of_that_one(manager, monkeypatch, caplog):
    """In either order of the controller; the others are led, and given up."""
    delete_log = manager.log_manager.delete_log

    def fail_for_one(topic_partition):
        if topic_partition == FIRST:
            raise ValueError("planted")
        delete_log(topic_partition)

    monkeypatch.setattr(manager.log_manager, "delete_log", fail_for_one)
    stopped = [StopReplicaPartition(each, NO_EPOCH, True) for each in (FIRST, SECOND)]
    assert manager.stop_replica(stopped) == {
        FIRST: ErrorCode.UNKNOWN_SERVER_ERROR,
        SECOND: ErrorCode.NONE,
    }
    assert "t-0 cannot be stopped" in caplog.text

    monkeypatch.setattr(manager.log_manager, "put_stray_away", lambda tp, _: fail_for_one(tp))
    assert manager.become_leader_or_follower([led(FIRST), led(SECOND)], {}) == {
        FIRST: ErrorCode.UNKNOWN_SERVER_ERROR,
        SECOND: ErrorCode.NONE,
    }
    caplog.clear()


def test_log_that_cannot_be_made_again_and_again_is_logged_once(manager, runtime, caplog):
    """The controller orders it every few seconds; once it was there, a new refusal is news."""
    third = TopicPartition("t", 2)
    for refusals in (3, 0, 2):
        if not refusals:
            manager.become_leader_or_follower([led(third)], {})
            manager.stop_replica([StopReplicaPartition(third, NO_EPOCH, True)])
        for _ in range(refusals):
            runtime.disk.fail("open", "/logs/t-2/*", error=errno.ENOSPC)
            manager.become_leader_or_follower([led(third)], {})

    assert caplog.text.count("t-2 cannot be taken over") == 2
    caplog.clear()


def test_log_that_could_not_be_made_can_be_deleted(manager, runtime):
    """The disk was full, and nothing is left of it: the topic need not wait for a restart."""
    third = TopicPartition("t", 2)
    runtime.disk.fail("open", "/logs/t-2/*", error=errno.ENOSPC)
    assert manager.become_leader_or_follower([led(third)], {}) == {
        third: ErrorCode.KAFKA_STORAGE_ERROR
    }
    assert not runtime.disk.exists("/logs/t-2")
    assert manager.offline_partitions == {third}
    assert manager.stop_replica([StopReplicaPartition(third, NO_EPOCH, True)]) == {
        third: ErrorCode.NONE
    }
    assert manager.offline_partitions == set()
    assert manager.become_leader_or_follower([led(third)], {}) == {third: ErrorCode.NONE}


def test_produce_that_waits_is_given_to_the_one_who_would_give_it_up(manager):
    """The client may hang up before there is an answer."""
    held = []
    manager.partition(FIRST).log.update_config(
        TopicConfig.of(manager.log_manager.config, {"flush.messages": "1"})
    )
    entries = {FIRST: batch(b"x")}
    manager.append_records(1_000, ACKS_LEADER, entries, list, wait_for=held.append)
    manager.append_records(1_000, ACKS_LEADER, {SECOND: batch(b"x")}, list, wait_for=held.append)

    assert [list(operation.results) for operation in held] == [[FIRST]]


def test_what_is_written_and_read_is_counted_by_topic(manager):
    """Writes, reads and refusals are counted by topic and kind, except faults of the client."""
    append(manager, batch(b"a", b"b"))
    append(manager, batch(b"a"), topic_partition=SECOND)
    append(
        manager, memoryview(bytearray(b"no batch at all, and yet as long as the head of one is"))
    )
    (read,) = fetch(manager, 0)
    fetch(manager, 9)
    manager.become_leader_or_follower([led(SECOND, leader=9, epoch=2)], {})
    append(manager, batch(b"a"), topic_partition=SECOND)
    fetch(manager, 3, 0)
    stats = manager.stats.topics["t"]

    assert (stats.messages_in, stats.produces) == (3, 4)
    assert stats.bytes_in == len(batch(b"a", b"b")) + len(batch(b"a"))
    assert stats.bytes_out == read[FIRST].records.size == len(batch(b"a", b"b"))
    assert (stats.fetches, stats.failed_fetches, stats.failed_produces) == (4, 2, 0)
    before = stats.messages_in
    manager.stop_replica([StopReplicaPartition(each, NO_EPOCH, False) for each in (FIRST, SECOND)])
    assert manager.stats.topics == {}
    assert manager.stats.total().messages_in == before


@pytest.mark.parametrize(
    ("leader", "is_new", "is_told"),
    [(BROKER, False, True), (BROKER, True, False), (1, False, False)],
)
def test_log_that_is_led_and_not_there_is_said_to_begin_empty(
    runtime, caplog, leader, is_new, is_told
):
    """A directory was left out of log.dirs: its only replicas were empty, and no line said so."""
    manager = ReplicaManager(runtime, new_logs(runtime, "/logs"), BROKER, {ELSEWHERE}.__contains__)
    state = led(FIRST, leader)._replace(is_new=is_new)
    manager.become_leader_or_follower([state], {})
    manager.become_leader_or_follower([state._replace(controller_epoch=2)], {})

    assert caplog.text.count("t-0 has no log in log.dirs, and begins empty") == is_told
