"""Numbers of what was written to topics and read of them."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.errors import ErrorCode
from ottla.replication.replica_requests import (
    NOTE_AS_CAUGHT_UP_MS,
    AwakePartitions,
    PartitionFetch,
)
from ottla.replication.replica_stats import ReplicaStats, TopicStats
from ottla.structs import TopicPartition


@pytest.mark.parametrize(
    ("error", "rejected", "failed"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, 50, 0),
        (ErrorCode.RECORD_LIST_TOO_LARGE, 0, 0),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, 0),
        (ErrorCode.CORRUPT_MESSAGE, 0, 0),
        (ErrorCode.NOT_ENOUGH_REPLICAS, 0, 1),
        (ErrorCode.INVALID_RECORD, 0, 1),
    ],
)
def test_refused_batch_is_counted_by_its_reason(error, rejected, failed):
    """A broker that does what it should has not failed."""
    stats = TopicStats()
    stats.note_refusal(error, 50)

    assert (stats.produces, stats.bytes_rejected, stats.failed_produces) == (1, rejected, failed)


def test_numbers_of_a_topic_that_is_gone_stay_in_the_total():
    """A total that fell would look like a broker that was started again."""
    stats = ReplicaStats()
    first, other = stats.join("t"), stats.join("u")
    assert stats.join("t") is first
    first.messages_in, other.messages_in = 3, 4
    first.bytes_out = 7
    stats.leave("t")
    assert set(stats.topics) == {"t", "u"}
    stats.leave("t")
    again = stats.join("t")
    again.messages_in = 2
    stats.leave("t")
    total = stats.total()

    assert set(stats.topics) == {"u"}
    assert (total.messages_in, total.bytes_out) == (9, 7)


def test_partition_of_a_session_is_asleep_until_it_has_news_or_its_time_has_come():
    """So that a follower which has everything is noted as caught up now and then."""
    requests = [
        PartitionFetch(TopicPartition("t", index), UUID(int=1), 0, 100) for index in range(2)
    ]
    session = AwakePartitions({each.key: each for each in requests})
    session.wake(requests[1])
    woken = list(session)
    session.wake_all(NOTE_AS_CAUGHT_UP_MS - 1)
    before = requests[0] in session
    session.wake_all(NOTE_AS_CAUGHT_UP_MS)

    assert (woken, before) == ([requests[1]], False)
    assert requests[1] in session
    assert list(session) == requests
