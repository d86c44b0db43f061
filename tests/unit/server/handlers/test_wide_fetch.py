"""A consumer's fetch of very many partitions: in slices, and complete."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla.errors import ErrorCode
from ottla.replication.replica_requests import (
    FetchParams,
    FetchPartitionResult,
    PartitionFetch,
)
from ottla.server.handlers import wide_fetch
from ottla.server.handlers.wide_fetch import LOOK_AGAIN_MS, WideFetch
from ottla.structs import NO_UUID, IsolationLevel, TopicPartition
from ottla.testing import mock_runtime

AT_ONCE = 3
BATCH = 100


class Reads:
    """Reads a batch of each partition that has one, within max_bytes; the first one as a whole."""

    def __init__(self):
        self.with_data = set()
        self.errors = {}
        self.slices = []
        self.sent = 0
        self.after = None

    def read(self, params, requests, is_first=True):
        self.slices.append([each.topic_partition.partition for each in requests])
        results, left = {}, params.max_bytes
        for each in requests:
            number = each.topic_partition.partition
            size = BATCH if number in self.with_data and (is_first or left >= BATCH) else 0
            if size:
                left, is_first = left - size, False
            records = SimpleNamespace(size=size) if size else None
            error = self.errors.get(number, ErrorCode.NONE)
            results[each.key] = FetchPartitionResult(error, records=records)
        if self.after is not None:
            self.after()
        return results

    def answer(self, params, requests, respond, results):
        self.sent += sum(results[each.key].size_in_bytes for each in requests)
        respond(results)


class World:
    def __init__(self, count, monkeypatch, **params):
        monkeypatch.setattr(wide_fetch, "READ_AT_ONCE", AT_ONCE)
        self.runtime, self.reads = mock_runtime(), Reads()
        self.requests = [
            PartitionFetch(TopicPartition("t", number), NO_UUID, 0, 10**6, -1, -1, 0)
            for number in range(count)
        ]
        given = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 10**6, **params}
        self.params = FetchParams(-1, isolation=IsolationLevel.READ_COMMITTED, **given)
        self.is_wanted = True

    def begin(self):
        return self.runtime.scheduler.spawn(self.results(), "fetch")

    async def results(self):
        """Those of the one answer."""
        answers = []
        fetch = WideFetch(self, self.params, self.requests, lambda: self.is_wanted)
        await fetch.run(answers.append)
        (results,) = answers
        return results

    def read(self):
        task = self.begin()
        self.runtime.scheduler.run_ready()
        return task.result()


@pytest.mark.parametrize("count", range(10))
def test_each_partition_is_read_once_in_slices(count, monkeypatch):
    """In the order of the request."""
    world = World(count, monkeypatch)
    world.reads.with_data = set(range(count))
    results = world.read()

    assert list(results) == [each.key for each in world.requests]
    assert [number for each in world.reads.slices for number in each] == list(range(count))
    assert all(len(each) <= AT_ONCE for each in world.reads.slices)


@pytest.mark.parametrize("room", [0, 99, 100, 250, 10_000])
@pytest.mark.parametrize("first", [0, 2, 4, 8])
def test_limit_of_bytes_is_one_of_the_whole_fetch(room, first, monkeypatch):
    """One batch comes at any size, from whichever slice has the first one."""
    world = World(9, monkeypatch, max_bytes=room)
    world.reads.with_data = set(range(first, 9))
    sizes = [each.size_in_bytes for each in world.read().values()]

    assert sum(sizes) == world.reads.sent == min(max(room // BATCH, 1), 9 - first) * BATCH


def test_fetch_without_data_looks_again_until_its_wait_is_over(monkeypatch):
    """A partition that has grown behind its slice is not missed."""
    world = World(7, monkeypatch, max_wait_ms=3 * LOOK_AGAIN_MS)
    task = world.begin()
    world.runtime.advance(LOOK_AGAIN_MS - 1)
    assert (len(world.reads.slices), task.done()) == (3, False)
    world.reads.with_data = {1}
    world.runtime.advance(1)

    assert task.done()
    assert sum(each.size_in_bytes for each in task.result().values()) == BATCH


@pytest.mark.parametrize("wait_ms", [1, LOOK_AGAIN_MS, LOOK_AGAIN_MS + 1, 5 * LOOK_AGAIN_MS])
def test_wait_ends_when_the_reader_has_said(wait_ms, monkeypatch):
    """Neither sooner nor later."""
    world = World(7, monkeypatch, max_wait_ms=wait_ms)
    task = world.begin()
    world.runtime.advance(wait_ms - 1)
    assert not task.done()
    world.runtime.advance(1)

    assert len(task.result()) == 7


def test_nothing_is_read_for_a_reader_that_is_gone(monkeypatch):
    """Whatever it was willing to wait."""
    world = World(7, monkeypatch, max_wait_ms=2**31 - 1)
    task = world.begin()
    world.runtime.advance(1)
    world.is_wanted = False
    world.runtime.advance(LOOK_AGAIN_MS)

    assert task.done()
    assert len(world.reads.slices) == 3


@pytest.mark.parametrize("number", [0, 6])
def test_news_end_the_wait_and_unknown_partitions_do_not(number, monkeypatch):
    """As in any fetch; where no partition is known there is nothing to wait for."""
    world = World(7, monkeypatch, max_wait_ms=10_000)
    world.reads.errors[number] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    task = world.begin()
    world.runtime.advance(5 * LOOK_AGAIN_MS)
    assert not task.done()
    world.reads.errors[3] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.runtime.advance(LOOK_AGAIN_MS)
    assert task.done()
    world.reads.errors = dict.fromkeys(range(7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    assert len(world.read()) == 7


def test_others_have_their_turn_between_two_slices(monkeypatch):
    """The loop is not held for the whole of it."""
    world = World(30, monkeypatch)
    turns = []
    world.reads.after = lambda: world.runtime.scheduler.call_soon(
        lambda: turns.append(len(world.reads.slices))
    )
    world.read()

    assert turns == list(range(1, 11))
