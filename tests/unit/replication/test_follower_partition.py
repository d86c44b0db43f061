"""A follower's log: where it is cut when the leader has said where its own ends."""

from __future__ import annotations

import asyncio
import math
from unittest.mock import Mock

import pytest
from replica_world import T0, log_values

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.log.leader_epoch_cache import EpochEntry
from ottla.protocol.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.record.batch_builder import build_batch
from ottla.record.record_batch import assign_offset
from ottla.replication.fetcher import TURN_MS
from ottla.replication.follower_partition import (
    BATCHES_IN_A_PIECE,
    FollowerPartition,
    FollowerPhase,
)
from ottla.replication.leader_questions import LeaderQuestions
from ottla.structs import TopicPartition

ASKED = FollowerPhase.TRUNCATING
PIECE = BATCHES_IN_A_PIECE


@pytest.fixture
def follower(world):
    """Broker 2's replica: two records of epoch 0, two of epoch 1; no fetcher touches it."""
    world.append(1, b"a", b"b")
    world.advance(100)
    world.elect(1)
    world.append(1, b"c", b"d")
    world.advance(2_000)
    broker = world.brokers[2]
    broker.manager.fetchers.shutdown()
    world.run()
    follower = FollowerPartition(broker.manager.partition(T0), broker.log_manager)
    follower.phase = ASKED
    return follower


def run(world, coroutine):
    return world.runtime.scheduler.run(coroutine)


@pytest.mark.parametrize(
    ("end", "left", "phase"),
    [
        (EpochEntry(1, 9), 4, FollowerPhase.FETCHING),
        (EpochEntry(1, 3), 3, FollowerPhase.FETCHING),
        (EpochEntry(0, 1), 1, FollowerPhase.FETCHING),
        (EpochEntry(0, 9), 2, FollowerPhase.FETCHING),
        (EpochEntry(-1, 2), 2, FollowerPhase.FETCHING),
        (EpochEntry(5, 3), 3, FollowerPhase.FETCHING),
        (EpochEntry(-1, -1), 4, FollowerPhase.FETCHING),
    ],
)
def test_log_is_cut_where_the_leaders_epoch_ends(world, follower, end, left, phase):
    """Without an answer, what is committed stays."""
    run(world, follower.take_epoch_end(end))

    assert follower.log.log_end_offset == left
    assert follower.phase is phase


def test_epoch_that_the_leader_has_and_the_follower_has_not_is_asked_about_again(world):
    """The log is cut to the epoch before it, and what is left may diverge earlier (KIP-279)."""
    world.append(1, b"a")
    world.advance(100)
    for _ in range(2):
        world.elect(1)
    world.append(1, b"b")
    world.advance(2_000)
    broker = world.brokers[2]
    broker.manager.fetchers.shutdown()
    follower = FollowerPartition(broker.manager.partition(T0), broker.log_manager)
    follower.phase = FollowerPhase.FETCHING
    run(world, follower.take_epoch_end(EpochEntry(1, 9)))

    assert follower.log.log_end_offset == 1
    assert follower.phase is FollowerPhase.TRUNCATING


def test_epoch_at_the_end_without_records_is_cut_with_the_log(world, follower):
    """It would be the last one that the follower asks about, and nobody else has it."""
    follower.log.leader_epoch_cache.assign(7, follower.log.log_end_offset)
    run(world, follower.take_epoch_end(EpochEntry(1, 4)))

    assert follower.log.log_end_offset == 4
    assert follower.last_epoch == 1


def test_lag_is_what_is_committed_and_not_here(follower):
    """Before the leader has said how far that is, a follower counts as behind."""
    found = [(follower.lag, follower.is_behind)]
    for high_watermark in (0, 3, 4, 9):
        follower.leader_high_watermark = high_watermark
        found.append((follower.lag, follower.is_behind))
    follower.note_leader(6, 0)

    assert found == [(None, True), (0, False), (0, False), (0, False), (5, True)]
    assert follower.lag == 2


@pytest.mark.parametrize(("offset", "is_cut"), [(5, False), (4, False), (2, True)])
def test_log_that_ends_before_the_leaders_is_not_cut(world, follower, offset, is_cut):
    """Then the leader may have nothing that is so old."""
    assert run(world, follower.take_leader_end(offset)) is is_cut
    assert follower.phase is (FollowerPhase.FETCHING if is_cut else ASKED)
    assert follower.log.log_end_offset == (offset if is_cut else 4)


@pytest.mark.parametrize(
    ("offset", "start", "phase"),
    [(7, 7, FollowerPhase.FETCHING), (4, 0, ASKED), (2, 0, ASKED)],
)
def test_log_begins_anew_where_the_leader_has_nothing_older(world, follower, offset, start, phase):
    """An empty log has no epochs to ask about; others are compared again."""
    follower.phase = FollowerPhase.OUT_OF_RANGE
    run(world, follower.take_leader_start(offset))

    assert follower.log.log_start_offset == start
    assert follower.phase is phase


def test_follower_that_was_given_up_touches_nothing(world, follower):
    """Another fetcher may copy into the log by now, or the broker leads."""
    follower.give_up()
    run(world, follower.take_epoch_end(EpochEntry(0, 1)))

    assert not follower.is_current
    assert [value for _, value in log_values(follower.log)] == [b"a", b"b", b"c", b"d"]


def test_progress_is_told_only_where_more_is_committed(world, follower):
    """Whoever waits for a follower's high watermark is not woken for nothing."""
    high = follower.log.high_watermark
    follower.log.update_high_watermark(2)
    told = [follower.note_leader(each, 0) for each in (2, 3, 3, 1)]

    assert high == 4
    assert told == [False, True, False, False]
    assert follower.log.high_watermark == 3


class Leader:
    """It answers with these lines, whatever it is asked."""

    def __init__(self, *lines: ListOffsetsPartitionResponse) -> None:
        self.lines = list(lines)

    def version_of(self, request, low):
        return low

    async def send(self, request, version, timeout_ms):
        topics = [ListOffsetsTopicResponse(name="t", partitions=self.lines)] if self.lines else []
        return ListOffsetsResponse(topics=topics)


class Asking:
    """A follower that has to be cut at the leader's end, and cannot be."""

    leader_epoch, is_current, failure_count = 4, True, 0

    def __init__(self, partition: int, error: Exception | None = None) -> None:
        self.topic_partition = TopicPartition("t", partition)
        self.error = error
        self.cut_at: list[int] = []

    async def take_leader_end(self, offset: int) -> bool:
        if self.error is not None:
            raise self.error
        self.cut_at.append(offset)
        return True


@pytest.mark.parametrize(
    "error", [KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no"), ValueError("x")]
)
def test_each_follower_that_cannot_be_cut_sits_out_alone(error, caplog):
    """One has no answer, one a refusal, one a disk that refuses, one another leader by now."""
    delayed: dict[int, str] = {}

    def delay(followers, reason):
        delayed.update({each.topic_partition.partition: reason for each in followers})

    leader = Leader(
        ListOffsetsPartitionResponse(partition_index=1, error_code=6, offset=-1),
        ListOffsetsPartitionResponse(partition_index=2, error_code=0, offset=5),
        ListOffsetsPartitionResponse(partition_index=9, error_code=0, offset=7),  # not asked for
        ListOffsetsPartitionResponse(partition_index=4, error_code=0, offset=7),
        ListOffsetsPartitionResponse(partition_index=3, error_code=0, offset=7),
    )
    silent, refused, broken, cut = Asking(0), Asking(1), Asking(2, error), Asking(3)
    given_up = Asking(4)
    given_up.is_current = False
    questions = LeaderQuestions(leader, BrokerConfig(), 1, delay)
    asyncio.run(questions.ask_ends([silent, refused, broken, cut, given_up]))

    assert delayed[0] == "the leader has not answered where its log ends"
    assert delayed[1] == "NOT_LEADER_OR_FOLLOWER"
    assert delayed[2] == (str(error) if isinstance(error, KafkaError) else repr(error))
    assert set(delayed) == {0, 1, 2}
    assert cut.cut_at == [7]
    assert given_up.cut_at == []
    caplog.clear()


def batches_of(count):
    """What a leader of epoch 1 sends behind the four records of the follower."""
    data = bytearray()
    for offset in range(4, 4 + count):
        batch = bytearray(build_batch([(1_000, None, b"%06d" % offset, ())]))
        assign_offset(memoryview(batch), 0, offset, 1)
        data += batch
    return memoryview(bytes(data))


@pytest.mark.parametrize("count", [1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 1])
@pytest.mark.parametrize("given_up_at", [math.inf, 4 + PIECE, 5 + PIECE])
def test_many_batches_are_appended_in_pieces(world, follower, count, given_up_at):
    """A replica that is led or copied otherwise after a pause takes no more of them."""
    ends = []

    async def pause():
        ends.append(follower.log.log_end_offset)
        if ends[-1] >= given_up_at:
            follower.give_up()

    data = batches_of(count)
    size = run(world, follower.append(data, 0, pause))

    expected = [min(4 + each, 4 + count) for each in range(PIECE, count + PIECE, PIECE)]
    expected = expected[: 1 + next((n for n, e in enumerate(expected) if e >= given_up_at), 99)]
    assert ends == expected
    assert follower.log.log_end_offset == expected[-1]
    assert size == len(data) * (expected[-1] - 4) // count


@pytest.mark.parametrize("is_given_up", [False, True])
def test_batch_that_begins_before_the_end_is_taken_behind_a_cut(world, follower, is_given_up):
    """By no replica that is led or copied otherwise once the cut is on disk."""
    run(world, follower.take_epoch_end(EpochEntry(1, 3)))
    batch = bytearray(build_batch([(1_000, None, each, ()) for each in (b"c", b"d")]))
    assign_offset(memoryview(batch), 0, 2, 1)
    truncate = follower._log_manager.truncate

    async def cut(log, offset, is_current):
        await truncate(log, offset, is_current)
        if is_given_up:
            follower.give_up()

    async def pause():
        pass

    follower._log_manager = Mock(truncate=cut)
    size = run(world, follower.append(memoryview(bytes(batch)), 0, pause))

    assert size == (0 if is_given_up else len(batch))
    assert follower.log.log_end_offset == (2 if is_given_up else 4)
    assert [value for _, value in log_values(follower.log)] == (
        [b"a", b"b"] if is_given_up else [b"a", b"b", b"c", b"d"]
    )


def test_piece_that_is_damaged_keeps_those_before_it(world, follower):
    """They are whole; the next fetch begins behind them."""
    data = bytearray(batches_of(2 * PIECE + 1))
    data[-1] ^= 1

    async def pause():
        pass

    with pytest.raises(KafkaError):
        run(world, follower.append(memoryview(bytes(data)), 0, pause))

    assert follower.log.log_end_offset == 4 + 2 * PIECE


def test_others_run_while_very_many_batches_are_copied(world):
    """A fetch of ten megabytes of small batches has held the loop for seconds."""
    world.cut_off(2)
    for number in range(4 * PIECE):
        world.append(1, b"%d" % number, acks=1)
    log, seen = world.brokers[2].log(), []

    def watch():
        seen.append(log.log_end_offset)
        if log.log_end_offset < 4 * PIECE:
            world.runtime.scheduler.call_soon(watch)

    def on_call(name, path):
        if name == "pwrite" and path.endswith(".log"):
            world.runtime.clock.advance(TURN_MS)
            if not seen:
                watch()

    world.disks[2].on_call = on_call
    world.heal()
    world.advance(5_000)

    assert set(seen) == {0, PIECE, 2 * PIECE, 3 * PIECE, 4 * PIECE}
