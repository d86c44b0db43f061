"""Where groups and transactional ids live, and when what is written for them counts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ErrorCode
from ottla.log.log_validator import AppendOrigin
from ottla.replication.absences import Absences
from ottla.replication.append_results import ACKS_ALL, PartitionAppendResult
from ottla.server.coordinators import TopicLog
from ottla.structs import TopicPartition, java_hash
from ottla.testing import mock_runtime

P1 = TopicPartition("__consumer_offsets", 1)


class NoTopics:
    """A cache that knows no topic yet."""

    def topic(self, name):
        return None


class Replicas:
    """Notes what is appended, and says what becomes of it."""

    def __init__(self, error: ErrorCode) -> None:
        self.error = error
        self.appended: list[tuple] = []

    def append_records(self, timeout_ms, acks, records, on_done, origin):
        self.appended.append((timeout_ms, acks, list(records), origin))
        on_done({partition: PartitionAppendResult(self.error, 7) for partition in records})


def offsets_log(replicas=None) -> TopicLog:
    config = BrokerConfig.parse({})
    count, timeout_ms = config.offsets_topic_num_partitions, config.offsets_commit_timeout_ms
    return TopicLog(replicas, NoTopics(), "__consumer_offsets", count, timeout_ms)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("\U0001f600", 1772899),
        ("polygenelubricants", 2**31),
    ],
)
def test_hash_is_that_of_javas_strings(text, code):
    """Over UTF-16 units: a character beyond them is two."""
    assert java_hash(text) == code


@pytest.mark.parametrize(
    ("group", "partition"),
    [("group", 98629247 % 50), ("polygenelubricants", 0), ("consumer", 567770122 % 50)],
)
def test_group_lives_in_one_of_fifty_partitions(group, partition):
    """The hash without its sign; the smallest int, which has no positive one, counts as 0."""
    assert offsets_log().partition_for(group) == partition


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT])
def test_batch_counts_when_all_in_sync_replicas_have_it(error):
    """It fails after offsets.commit.timeout.ms; its place in the log is known in any case."""
    replicas, heard = Replicas(error), []
    offsets_log(replicas).append(1, b"batch", lambda *answer: heard.append(answer))

    assert replicas.appended == [(5000, ACKS_ALL, [P1], AppendOrigin.COORDINATOR)]
    assert heard == [(error, 7)]


class Partition:
    """One that this broker leads."""

    def __init__(self, high_watermark: int, log_end_offset: int) -> None:
        self.high_watermark = high_watermark
        self.log = self
        self.log_end_offset = log_end_offset


class Led:
    """The only partition that this broker has."""

    def __init__(self, partition: Partition) -> None:
        self.partitions = {P1: partition}

    def partition(self, topic_partition):
        return self.partitions[topic_partition]


def test_end_of_the_leaders_log_may_lie_beyond_what_is_committed():
    """An offset counts when the high watermark is beyond it, and nowhere but on a replica."""
    log = offsets_log(Led(Partition(high_watermark=4, log_end_offset=6)))

    assert log.end_offset(1) == 6
    assert [log.is_committed(1, offset) for offset in (-1, 3, 4, 5)] == [True, True, False, False]
    assert not log.is_committed(0, -1)


def test_log_of_before_may_be_another_brokers_where_this_one_did_not_run():
    """A process that was stopped hears that last, behind the requests that wait for it."""
    runtime = mock_runtime()
    absences = Absences(runtime.clock, session_ms=18_000)
    absences.watch(runtime.scheduler)
    log, before_ms = offsets_log(SimpleNamespace(absences=absences)), runtime.clock.monotonic_ms()
    runtime.clock.advance(13_000)

    assert log.may_be_succeeded(before_ms)
    assert not log.may_be_succeeded(runtime.clock.monotonic_ms())
