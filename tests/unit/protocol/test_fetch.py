"""Fetch as Kafka 4.1's replica verification sends it, which does not ask for versions first."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.header import decode_request, decode_request_header, encode_request

UNKNOWN = 2**63 - 1


def sent(version: int, partition: FetchPartition) -> FetchPartition:
    """What a broker understands of a request for this partition."""
    topics = [FetchTopic(topic_id=UUID(int=5), partitions=[partition])]
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=topics)
    frame = encode_request(version, 1, "broker--2-fetcher-1", request)[4:]
    header, position = decode_request_header(frame)
    received = decode_request(header, frame, position)
    assert isinstance(received, FetchRequest)
    return received.topics[0].partitions[0]


def test_replica_that_knows_a_high_watermark_is_understood() -> None:
    """Versions from 18 on are understood (KIP-1166); with v17 the tool waited for ever."""
    partition = FetchPartition(partition=0, fetch_offset=3, partition_max_bytes=9, high_watermark=7)

    assert sent(18, partition) == partition
    assert sent(17, partition).high_watermark == UNKNOWN
