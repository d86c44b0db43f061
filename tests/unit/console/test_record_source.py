"""Fetches of ranges: bounded, by leader, and with the errors of each partition."""

from __future__ import annotations

from topics_of_records import START, interleaved, send
from visitor import Visitor, visit

from ottla.console.asked import PageRequests, current
from ottla.console.record_source import RecordSource, Span, batches_of, read_part, size_of
from ottla.errors import KafkaError
from ottla.structs import TopicPartition


def test_ranges_of_several_partitions_take_one_request(ottla_fresh_broker):
    """Records outside of a range are left out; what is not there is an error of its own."""
    interleaved(ottla_fresh_broker)

    async def walk(visitor: Visitor) -> None:
        cluster = visitor.app.cluster
        await cluster.snapshot()
        asked = PageRequests(cluster.network)
        current.set(asked)
        source = RecordSource(cluster.client, lambda: cluster.all_topics.cluster)
        spans = {TopicPartition("orders", each): Span(3, 7) for each in range(3)}
        spans[TopicPartition("orders", 9)] = Span(0, 1)
        found = await source.fetch(spans)
        for partition in range(3):
            chunk = found[TopicPartition("orders", partition)]
            part = read_part(partition, chunk, Span(3, 7))
            assert [each.offset for each in part.records] == [3, 4, 5, 6]
            assert part.number == 4
            assert part.is_ordered
            assert size_of(chunk) == sum(each.size_in_bytes for each in batches_of(chunk))
        assert isinstance(found[TopicPartition("orders", 9)], KafkaError)
        assert [each.api for each in asked.requests] == ["Fetch"]

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_batches_that_cannot_be_wanted_are_only_counted(ottla_fresh_broker):
    """Their first and newest timestamps are those of their headers."""
    ottla_fresh_broker.create_topic("orders", 1)
    send(ottla_fresh_broker, "orders", *((0, START + n, None, b"x", []) for n in range(5)))

    async def walk(visitor: Visitor) -> None:
        cluster = visitor.app.cluster
        await cluster.snapshot()
        source = RecordSource(cluster.client, lambda: cluster.all_topics.cluster)
        where = TopicPartition("orders", 0)
        chunk = (await source.fetch({where: Span(0, 5)}))[where]
        whole = read_part(0, chunk, Span(0, 5))
        counted = read_part(0, chunk, Span(0, 5), lambda payload: False)
        assert (counted.records, counted.number) == ([], 5)
        assert counted.times[-1][1] == whole.times[-1][1] == START + 4
        assert read_part(0, chunk, Span(1, 4), lambda payload: True).number == 3

    visit(ottla_fresh_broker.bootstrap_servers, walk)
