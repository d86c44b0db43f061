"""Frames: size, headers, and the quirks of ApiVersions."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from ottla.protocol.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.group import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.header import (
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from ottla.protocol.message import encode, join
from ottla.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.runtime import FileRegion
from ottla.testing import MemoryDisk

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def header(api_version: int, api_key: int = 12) -> RequestHeader:
    return RequestHeader(api_key, api_version, 77, "client")


def test_request_has_size_key_version_correlation_id_and_client_id() -> None:
    """A version that is not flexible has the header v1."""
    frame = encode_request(0, 77, "me", HEARTBEAT)

    assert frame == b"\0\0\0\x16" + b"\0\x0c\0\0\0\0\0\x4d\0\2me" + encode(HEARTBEAT, 0)


def test_flexible_request_header_ends_with_tags_but_keeps_its_client_id() -> None:
    """Header v2: the client id still has a 16-bit length (KIP-482)."""
    frame = encode_request(4, 77, "me", HEARTBEAT)

    assert frame[4:] == b"\0\x0c\0\4\0\0\0\x4d\0\2me\0" + encode(HEARTBEAT, 4)


@pytest.mark.parametrize("client_id", ["me", "", None, "größe"])
@pytest.mark.parametrize("version", [0, 4])
def test_request_is_read_as_it_was_written(version: int, client_id: str | None) -> None:
    """The header says where the body begins; a client need not name itself."""
    frame = memoryview(encode_request(version, -5, client_id, HEARTBEAT))[4:]

    decoded, position = decode_request_header(frame)

    assert decoded.api_key == 12
    assert decoded.api_version == version
    assert decoded.correlation_id == -5
    assert decoded.client_id == client_id
    assert decode_request(decoded, frame, position) == HEARTBEAT


def test_request_header_skips_tags() -> None:
    """Those that a newer client may send."""
    head = b"\0\x0c\0\4\0\0\0\x4d\xff\xff"

    _, position = decode_request_header(head + b"\2\0\1a\x63\2bc" + b"body")

    assert position == len(head) + 8


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (b"", "0 bytes has no room"),
        (b"\0\x0c\0\0\0\0\0\x4d\0", "9 bytes has no room"),
        (b"\0\x0c\0\0\0\0\0\x4d\0\2m", "client_id: it ends too early"),
        (b"\0\x0c\0\0\0\0\0\x4d\xff\xfe", "client_id: length -2 is negative"),
        (b"\0\x0c\0\0\0\0\0\x4d\0\1\xff", "client_id: 'utf-8'"),
        (b"\0\x0c\0\4\0\0\0\x4d\xff\xff", "tagged fields"),
        (b"\0\x0c\0\4\0\0\0\x4d\xff\xff\5\0\0", "tagged fields: 5 elements announced"),
        (b"\0\x0c\0\4\0\0\0\x4d\xff\xff\1\0\x7f", "tagged fields: tag 0 has 127 bytes"),
        (b"\x7f\xff\0\0\0\0\0\x4d\xff\xff", "no request has the API key 32767"),
        (b"\xff\xff\0\0\0\0\0\x4d\xff\xff", "no request has the API key -1"),
    ],
)
def test_broken_request_header_is_refused(frame: bytes, told: str) -> None:
    """The error names what is wrong with it."""
    with pytest.raises(RemoteProtocolError) as raised:
        decode_request_header(frame)

    assert told in str(raised.value)


def test_response_has_size_and_correlation_id() -> None:
    """The response is one part, as there are no records."""
    parts = encode_response(header(1), HeartbeatResponse(throttle_time_ms=3, error_code=27))

    assert parts == [b"\0\0\0\x0a" + b"\0\0\0\x4d" + b"\0\0\0\3\0\x1b"]


def test_flexible_response_has_tags_in_its_header() -> None:
    """The header of a flexible response is header v1."""
    parts = encode_response(header(4), HeartbeatResponse())

    assert parts == [b"\0\0\0\x0c" + b"\0\0\0\x4d\0" + b"\0\0\0\0\0\0\0"]


@pytest.mark.parametrize("version", [0, 4])
def test_response_is_read_as_it_was_written(version: int) -> None:
    """The correlation id tells which request it answers."""
    response = HeartbeatResponse(error_code=27)
    frame = memoryview(join(encode_response(header(version), response)))[4:]

    assert decode_response(HeartbeatRequest, version, frame) == (77, response)


@pytest.mark.parametrize("frame", [b"\0\0\0", b"\0\0\0\x4d", b"\0\0\0\x4d\1\0\x7f"])
def test_broken_response_header_is_refused(frame: bytes) -> None:
    """A broken request header is refused in the same way."""
    with pytest.raises(RemoteProtocolError):
        decode_response(HeartbeatRequest, 4, frame)


def fetch_response(records: Any) -> FetchResponse:
    partition = PartitionData(partition_index=1, records=records)
    return FetchResponse(
        responses=[
            FetchableTopicResponse(topic="t", partitions=[partition, PartitionData(records=b"s")])
        ]
    )


def test_records_that_are_not_there_are_empty_not_null() -> None:
    """librdkafka takes null records for a broken response."""
    topic = FetchableTopicResponse(topic="t", partitions=[PartitionData(error_code=3)])

    assert encode(FetchResponse(responses=[topic]), 4).endswith(b"\0\0\0\0")
    assert encode(FetchResponse(responses=[topic]), 12).endswith(b"\1\0\0\0")


def test_records_are_sent_as_parts_without_a_copy() -> None:
    """The size in front counts them; joined, the parts are the plain encoding."""
    records = b"r" * 5000

    parts = encode_response(header(4, api_key=1), fetch_response(records))

    assert parts[1] is records
    assert len(parts) == 3
    body = join(parts)
    assert int.from_bytes(body[:4], "big") == len(body) - 4
    assert body[8:] == encode(fetch_response(records), 4)


def test_region_of_a_file_is_a_part_to_be_sent_from_the_file() -> None:
    """It is read only where the message is needed in one piece."""
    file = MemoryDisk().open("/00000000000000000000.log", create=True)
    file.pwrite(b"r" * 5000, 0)
    region = FileRegion(file, 1000, 3000)

    parts = encode_response(header(12, api_key=1), fetch_response(region))

    assert parts[1] is region
    frame = join(parts)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    _, response = decode_response(FetchRequest, 12, frame[4:])
    assert isinstance(response, FetchResponse)
    assert response.responses[0].partitions[0].records == b"r" * 3000


def test_records_of_a_request_are_views_of_its_frame() -> None:
    """They can be stamped in place before they are written to the log."""
    partition = PartitionProduceData(index=1, records=b"batch")
    request = ProduceRequest(topic_data=[TopicProduceData(partition_data=[partition])])
    frame = bytearray(encode_request(9, 1, None, request)[4:])

    decoded, position = decode_request_header(memoryview(frame))
    body = decode_request(decoded, memoryview(frame), position)
    assert isinstance(body, ProduceRequest)
    view = body.topic_data[0].partition_data[0].records
    view[0:1] = b"B"

    assert bytes(view) == b"Batch"
    assert b"Batch" in frame


def test_response_that_no_frame_can_hold_is_refused() -> None:
    """The size is a signed int32."""
    region = FileRegion(MemoryDisk().open("/log", create=True), 0, 2**31 - 100)
    huge = fetch_response([region])
    huge.responses.append(huge.responses[0])

    with pytest.raises(LocalProtocolError, match="do not fit in a frame"):
        encode_response(header(4, api_key=1), huge)


def test_api_versions_is_answered_without_tags_in_the_header() -> None:
    """In every version, so that any client can read it (KIP-511)."""
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, max_version=4)])

    parts = encode_response(header(3, api_key=18), response)

    assert join(parts)[8:] == encode(response, 3)
    assert decode_response(ApiVersionsRequest, 3, join(parts)[4:]) == (77, response)


@pytest.mark.parametrize("version", [5, 99, -1])
def test_unknown_version_of_api_versions_is_answered_in_v0(version: int) -> None:
    """A client reads a response in v0 whatever version it asked for (KIP-511)."""
    response = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=18, max_version=4)],
    )

    frame = join(encode_response(header(version, api_key=18), response))[4:]

    assert frame == b"\0\0\0\x4d" + b"\0\x23" + b"\0\0\0\1" + b"\0\x12\0\0\0\4"
    assert decode_response(ApiVersionsRequest, 3, frame) == (77, response)


def test_header_of_an_unknown_version_of_api_versions_is_read() -> None:
    """The broker must get as far as seeing that it does not know the version."""
    known = encode_request(4, 1, "c", ApiVersionsRequest(client_software_name="n"))[4:]
    frame = known[:2] + b"\0\x63" + known[4:]

    decoded, position = decode_request_header(frame)

    assert (decoded.api_key, decoded.api_version, position) == (18, 99, 12)
    with pytest.raises(RemoteProtocolError) as raised:
        decode_request(decoded, frame, position)
    assert raised.value.error is ErrorCode.UNSUPPORTED_VERSION


def test_header_shows_itself() -> None:
    """The text of a header is for logs."""
    assert repr(header(4)) == (
        "RequestHeader(api_key=12, api_version=4, correlation_id=77, client_id='client')"
    )
