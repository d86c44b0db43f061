"""Fetches of ranges: bounded, by leader, and with the errors of each partition."""

from __future__ import annotations

from topics_of_records import interleaved
from visitor import Visitor, visit

from ottla.console.asked import PageRequests, current
from ottla.console.record_source import RecordSource, Span, batches_of, records_of, size_of
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
            records = records_of(partition, chunk, Span(3, 7))
            assert [each.offset for each in records] == [3, 4, 5, 6]
            assert size_of(chunk) == sum(each.size_in_bytes for each in batches_of(chunk))
        assert isinstance(found[TopicPartition("orders", 9)], KafkaError)
        assert [each.api for each in asked.requests] == ["Fetch"]

    visit(ottla_fresh_broker.bootstrap_servers, walk)
