"""Newest first over all partitions: the order of time, limits, and where a walk goes on."""

from __future__ import annotations

import asyncio
import random

from topics_of_records import START, interleaved, send
from visitor import Visitor, visit

from ottla.clients.partition_reader import Chunk
from ottla.console import newest_first as room
from ottla.console.newest_first import Limits, NewestFirst, Wanted
from ottla.console.record_source import FoundRecord, ReadPart, RecordSource, Span
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime import SystemClock
from ottla.structs import TopicPartition


def walk_of(visitor: Visitor, spans: dict[int, tuple[int, int]], **settings) -> NewestFirst:
    """A walk over partitions of `orders`."""
    cluster = visitor.app.cluster
    source = RecordSource(cluster.client, lambda: cluster.all_topics.cluster)
    wanted = {TopicPartition("orders", each): Span(*span) for each, span in spans.items()}
    return NewestFirst(source, cluster.runtime.clock, wanted, **settings)


def test_records_of_all_partitions_come_in_the_order_of_time(ottla_fresh_broker):
    """Whatever the step; a walk goes on where it was, and another one where it has left off."""
    interleaved(ottla_fresh_broker)

    async def walk(visitor: Visitor) -> None:
        await visitor.app.cluster.snapshot()
        for step in (1, 7, 100):
            found = walk_of(visitor, dict.fromkeys(range(3), (0, 20)), step=step)
            first = await found.take(25)
            rest = walk_of(visitor, {p: (0, end) for p, end in found.left.items()}, step=step)
            whole = first + await found.take(1_000)
            times = [each.timestamp_ms for each in whole]
            assert times == sorted(times, reverse=True)
            assert len(whole) == 60
            assert found.is_over
            assert not found.left
            assert first + await rest.take(1_000) == whole
            assert not found.out_of_order

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_wanted_records_are_found_in_order(ottla_fresh_broker):
    """And counted beside all that were read."""
    interleaved(ottla_fresh_broker)

    async def walk(visitor: Visitor) -> None:
        await visitor.app.cluster.snapshot()
        spans = dict.fromkeys(range(3), (0, 20))
        found = walk_of(visitor, spans, step=4, wanted=Wanted(lambda r: r.key == b"k1"))
        taken = await found.take(100)
        assert [each.timestamp_ms for each in taken] == [
            START + n * 10 for n in range(59, -1, -1) if n % 5 == 1
        ]
        assert found.read_records == 60

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_walk_ends_at_its_limits(ottla_fresh_broker):
    """It says how far it came, and another walk finds the rest."""
    interleaved(ottla_fresh_broker)

    async def walk(visitor: Visitor) -> None:
        await visitor.app.cluster.snapshot()
        never = {"wanted": Wanted(lambda r: r.value.startswith(b'{"id": 0,')), "step": 5}
        found = walk_of(visitor, dict.fromkeys(range(3), (0, 20)), limits=Limits(20), **never)
        assert await found.take(10) == []
        assert found.is_spent
        assert sum(found.left.values()) == 60 - found.read_records
        rest = walk_of(visitor, {p: (0, end) for p, end in found.left.items()}, **never)
        assert [each.offset for each in await rest.take(10)] == [0]

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_limit_of_time_holds_within_a_window(ottla_fresh_broker, monkeypatch):
    """Slow tests leave the older records, which another walk finds."""
    interleaved(ottla_fresh_broker)
    monkeypatch.setattr(room, "TESTED_AT_ONCE", 4)
    late = Limits(ms=0)

    async def walk(visitor: Visitor) -> None:
        await visitor.app.cluster.snapshot()
        tested: list[int] = []
        found = walk_of(visitor, {0: (0, 20)}, step=20, limits=Limits(ms=3_600_000))

        def is_wanted(record: FoundRecord) -> bool:
            tested.append(record.offset)
            if record.offset == 14:
                monkeypatch.setattr(found, "_limits", late)
            return record.offset % 2 == 0

        monkeypatch.setattr(found, "_is_wanted", is_wanted)
        taken = await found.take(100)
        assert tested == list(range(19, 11, -1))
        assert [each.offset for each in taken] == [18, 16, 14, 12]
        assert (found.left, found.is_spent) == ({0: 12}, True)

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_partition_whose_timestamps_run_backwards_is_named(ottla_fresh_broker):
    """Nothing of it is left out."""
    ottla_fresh_broker.create_topic("orders", 2)
    rows = [(0, START + n, None, b"a", []) for n in range(10)]
    rows += [(1, START + 5 - n, None, b"b", []) for n in range(5)]
    send(ottla_fresh_broker, "orders", *rows)

    async def walk(visitor: Visitor) -> None:
        await visitor.app.cluster.snapshot()
        found = walk_of(visitor, {0: (0, 10), 1: (0, 5)}, step=3)
        assert len(await found.take(100)) == 15
        assert found.out_of_order == {1}

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_large_records_are_not_all_read(ottla_fresh_broker):
    """Of fifty in the window only the newest are, as many as a page may cost."""
    ottla_fresh_broker.create_topic("orders", 1)
    rows = [(0, START + n, None, bytes(900_000), []) for n in range(20)]
    send(ottla_fresh_broker, "orders", *rows)

    async def walk(visitor: Visitor) -> None:
        await visitor.app.cluster.snapshot()
        found = walk_of(visitor, {0: (0, 20)}, step=20)
        assert [each.offset for each in await found.take(2)] == [19, 18]
        assert found.read_bytes < 10 * 900_000

    visit(ottla_fresh_broker.bootstrap_servers, walk)


class Gaps:
    """A source whose partitions have the records of a table, and gaps between."""

    def __init__(self, records: dict[int, dict[int, int]]) -> None:
        self.records = records
        self.fetches = 0

    async def fetch(self, spans, max_wait_ms=0, partition_bytes=0):
        self.fetches += 1
        return {
            where: Chunk([memoryview(b"")], span.end, -1)
            if where.partition in self.records
            else KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not yours")
            for where, span in spans.items()
        }

    def read(self, partition, chunk, span, may_have=None) -> ReadPart:
        """In the place of `read_part`."""
        found = [
            FoundRecord(partition, offset, at_ms, None, b"x")
            for offset, at_ms in self.records[partition].items()
            if span.start <= offset < span.end
        ]
        times = [(each.timestamp_ms, each.timestamp_ms) for each in found]
        return ReadPart(found, len(found), times)


def test_empty_ranges_are_passed_by_steps_that_double(monkeypatch):
    """As compaction leaves them; a partition that cannot be read is named."""
    source = Gaps({0: {5: START}})
    monkeypatch.setattr("ottla.console.newest_first.read_part", source.read)
    spans = {TopicPartition("a", 0): Span(0, 1_000_000), TopicPartition("a", 1): Span(0, 9)}
    walk = NewestFirst(source, SystemClock(), spans)

    assert [each.offset for each in asyncio.run(walk.take(5))] == [5]
    assert source.fetches < 40
    assert walk.errors == {1: "not yours"}


def test_any_records_come_in_the_order_of_time(monkeypatch):
    """Random partitions with random gaps, each in order: the walk is a sort."""
    chance = random.Random(7)
    for _ in range(30):
        table = {
            partition: dict(
                zip(
                    sorted(chance.sample(range(400), count)),
                    sorted(chance.choices(range(START, START + 300), k=count)),
                    strict=True,
                )
            )
            for partition in range(chance.randint(1, 5))
            for count in [chance.randint(0, 60)]
        }
        source = Gaps(table)
        monkeypatch.setattr("ottla.console.newest_first.read_part", source.read)
        spans = {TopicPartition("a", each): Span(0, 400) for each in table}
        walk = NewestFirst(source, SystemClock(), spans, step=chance.randint(1, 50))
        taken = asyncio.run(walk.take(chance.randint(1, 80)))
        every = sorted((at for rows in table.values() for at in rows.values()), reverse=True)
        assert [each.timestamp_ms for each in taken] == every[: len(taken)]
        assert not walk.out_of_order
