"""Times small messages against kafka-python in the same run: `python benchmarks/bench_protocol.py`.

A Produce v9 of one partition with a batch of 170 bytes, a Fetch v12 of one partition, and their
answers, each decoded and encoded with header. The best of some rounds counts, alternating between
the two so that both meet the same machine.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

from ottla.protocol.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.header import (
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from ottla.protocol.message import Request, Response, decode, encode, join
from ottla.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol import consumer, producer

RECORDS = bytes(170)
PRODUCE = ProduceRequest(
    acks=-1,
    timeout_ms=30000,
    topic_data=[
        TopicProduceData(
            name="some-topic", partition_data=[PartitionProduceData(index=3, records=RECORDS)]
        )
    ],
)
PRODUCED = ProduceResponse(
    responses=[
        TopicProduceResponse(
            name="some-topic",
            partition_responses=[
                PartitionProduceResponse(index=3, base_offset=12345, log_start_offset=0)
            ],
        )
    ]
)
FETCH = FetchRequest(
    max_wait_ms=500,
    min_bytes=1,
    max_bytes=52428800,
    topics=[
        FetchTopic(
            topic="some-topic",
            partitions=[
                FetchPartition(partition=3, fetch_offset=12345, partition_max_bytes=1 << 20)
            ],
        )
    ],
)
FETCHED = FetchResponse(
    responses=[
        FetchableTopicResponse(
            topic="some-topic",
            partitions=[PartitionData(partition_index=3, high_watermark=12346, records=RECORDS)],
        )
    ]
)


def peer_message(cls: Any, version: int, message: Request | Response) -> Any:
    """The same message as an object of kafka-python, with a header, ready to be encoded."""
    peer = cls.decode(encode(message, version), version=version)
    peer._header = None
    peer.API_VERSION = version
    peer.with_header(correlation_id=7)
    return peer


def cases(
    version: int, request: Request, response: Response, room: Any
) -> list[tuple[str, Callable[[], object], Callable[[], object]]]:
    """Name, what we do, what kafka-python does."""
    name = type(request).__name__.removesuffix("Request")
    peer_request_class = getattr(room, f"{name}Request")
    peer_response_class = getattr(room, f"{name}Response")
    peer_request = peer_message(peer_request_class, version, request)
    peer_response = peer_message(peer_response_class, version, response)
    frame = memoryview(bytearray(encode_request(version, 7, "client", request)[4:]))
    body = memoryview(encode(request, version))
    header = RequestHeader(request.api_key, version, 7, "client")
    answer = memoryview(join(encode_response(header, response)))[4:]
    answer_body = memoryview(encode(response, version))

    def serve_request() -> Request:
        decoded, position = decode_request_header(frame)
        return decode_request(decoded, frame, position)

    return [
        (
            f"{name} v{version} request: decode body",
            lambda: decode(type(request), version, body),
            lambda: peer_request_class.decode(body, version=version),
        ),
        (
            f"{name} v{version} request: decode header and body",
            serve_request,
            lambda: peer_request_class.decode(frame, version=version, header=True),
        ),
        (
            f"{name} v{version} request: encode frame",
            lambda: encode_request(version, 7, "client", request),
            lambda: peer_request.encode(header=True, framed=True),
        ),
        (
            f"{name} v{version} response: encode frame",
            lambda: encode_response(header, response),
            lambda: peer_response.encode(header=True, framed=True),
        ),
        (
            f"{name} v{version} response: decode body",
            lambda: decode(type(response), version, answer_body),
            lambda: peer_response_class.decode(answer_body, version=version),
        ),
        (
            f"{name} v{version} response: decode frame",
            lambda: decode_response(type(request), version, answer),
            lambda: peer_response_class.decode(answer, version=version, header=True),
        ),
    ]


def microseconds(call: Callable[[], object], count: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(count):
        call()
    return (time.perf_counter_ns() - start) / count / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20000, help="calls in a round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(f"{'':<45} {'ottla':>9} {'kafka-python':>13} {'ratio':>6}")
    every = cases(9, PRODUCE, PRODUCED, producer) + cases(12, FETCH, FETCHED, consumer)
    for name, ours, theirs in every:
        rounds = [
            (microseconds(ours, options.count), microseconds(theirs, options.count))
            for _ in range(options.rounds)
        ]
        our_best, their_best = (min(times) for times in zip(*rounds, strict=True))
        ratio = their_best / our_best
        print(f"{name:<45} {our_best:>6.2f} us {their_best:>10.2f} us {ratio:>5.1f}x")


if __name__ == "__main__":
    main()
