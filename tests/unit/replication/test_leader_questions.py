"""What a follower asks its leader, and what is done with the answers."""

from __future__ import annotations

import asyncio
import gc

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ErrorCode
from ottla.protocol.leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.replication.leader_questions import LeaderQuestions
from ottla.structs import NO_EPOCH, TopicPartition

T0 = TopicPartition("t", 0)


class Leader:
    """It answers at once: every epoch ends at offset 5."""

    def version_of(self, request, low):
        return low

    async def send(self, request, version, timeout_ms):
        end = EpochEndOffset(partition=0, leader_epoch=3, end_offset=5)
        return OffsetForLeaderEpochResponse(
            topics=[OffsetForLeaderTopicResult(topic="t", partitions=[end])]
        )


class Follower:
    """Writes down where it was told to cut its log."""

    topic_partition, leader_epoch, is_current = T0, 4, True

    def __init__(self, last_epoch: int) -> None:
        self.last_epoch = last_epoch
        self.cuts: list[str] = []

    async def take_epoch_end(self, end):
        self.cuts.append(f"where epoch {end.epoch} ends")

    async def truncate_without_epochs(self):
        self.cuts.append("where it is committed")


@pytest.mark.parametrize(
    ("last_epoch", "cut"), [(3, "where epoch 3 ends"), (NO_EPOCH, "where it is committed")]
)
def test_fetcher_that_is_closed_before_a_cut_leaves_nothing_unawaited(last_epoch, cut):
    """A stop said "coroutine was never awaited" of cuts that had not begun."""
    questions = LeaderQuestions(Leader(), BrokerConfig(), 1, lambda followers, reason: None)
    closed, finished = Follower(last_epoch), Follower(last_epoch)
    gc.freeze()  # what is there already is not looked at

    async def ask() -> None:
        asking = asyncio.ensure_future(questions.ask_epoch_ends([closed]))
        await asyncio.sleep(0)  # it has the answer, and is about to cut
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await questions.ask_epoch_ends([finished])

    asyncio.run(ask())
    gc.collect()  # a warning is an error of this test

    assert (closed.cuts, finished.cuts) == ([], [cut])


def test_each_follower_without_an_epochs_end_sits_out_alone():
    """One has no answer, one a refusal, one another leader by now; the last one is cut."""
    delayed: dict[int, str] = {}

    def delay(followers, reason):
        delayed.update({each.topic_partition.partition: reason for each in followers})

    def ends(partition, error=ErrorCode.NONE):
        return EpochEndOffset(
            partition=partition, error_code=int(error), leader_epoch=3, end_offset=5
        )

    class Answering(Leader):
        async def send(self, request, version, timeout_ms):
            lines = [ends(1, ErrorCode.FENCED_LEADER_EPOCH), ends(9), ends(2), ends(3)]
            return OffsetForLeaderEpochResponse(
                topics=[OffsetForLeaderTopicResult(topic="t", partitions=lines)]
            )

    followers = [Follower(3) for _ in range(4)]
    for index, follower in enumerate(followers):
        follower.topic_partition = TopicPartition("t", index)
    followers[2].is_current = False
    asyncio.run(LeaderQuestions(Answering(), BrokerConfig(), 1, delay).ask_epoch_ends(followers))

    assert delayed == {
        0: "the leader has not answered where its epoch ends",
        1: "FENCED_LEADER_EPOCH",
    }
    assert [follower.cuts for follower in followers] == [[], [], [], ["where epoch 3 ends"]]
