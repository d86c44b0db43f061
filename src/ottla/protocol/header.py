"""Frames: the size and the header in front of requests and responses.

A frame here is the bytes after the 4-byte size. The header of a flexible version ends with a tagged
section; the client id in it stays a string with a 16-bit length in all versions (KIP-482).
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from ottla.protocol.message import (
    ENCODE_FAULTS,
    IN_SLICES,
    REQUESTS,
    Request,
    Response,
    decode,
    decode_in_slices,
    encode_parts,
    join,
    refusal,
    request_class,
)
from ottla.protocol.types import BYTES_LIKE, UNLIMITED, Buffer, Part
from ottla.protocol.wire import records_size, skip_tags

if TYPE_CHECKING:
    from ottla.runtime.scheduler import Work

REQUEST_HEAD: Final = Layout(">hhih")
REQUEST_HEAD_BYTES: Final = 10
RESPONSE_HEAD: Final = Layout(">ii")
SIZE: Final = Layout(">i")
SIZE_BYTES: Final = 4
unpack_request_head: Final = REQUEST_HEAD.unpack_from
pack_response_head: Final = RESPONSE_HEAD.pack_into
MAX_FRAME_BYTES: Final = 0x7FFFFFFF


class RequestHeader:
    """API key, version, client id, and the correlation id that the response must carry."""

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id")

    def __init__(
        self, api_key: int, api_version: int, correlation_id: int, client_id: str | None
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key}, api_version={self.api_version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r})"
        )


def encode_request(
    api_version: int, correlation_id: int, client_id: str | None, request: Request
) -> bytes:
    """The request after its size and header, ready to be sent; file regions are read."""
    name = None if client_id is None else client_id.encode()
    out = bytearray(SIZE.size)
    out += REQUEST_HEAD.pack(
        request.api_key, api_version, correlation_id, -1 if name is None else len(name)
    )
    out += name or b""
    if api_version >= request.first_flexible_version:
        out.append(0)
    parts = encode_parts(request, api_version, out)
    size = records_size(parts) - SIZE.size
    if size > MAX_FRAME_BYTES:
        raise LocalProtocolError(f"{type(request).__name__}: {size} bytes do not fit in a frame")
    SIZE.pack_into(out, 0, size)
    return join(parts)


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header of a request, and the position where its body begins."""
    if len(frame) < REQUEST_HEAD_BYTES:
        raise RemoteProtocolError(f"a request of {len(frame)} bytes has no room for its header")
    api_key, version, correlation_id, length = unpack_request_head(frame)
    client_id = None
    if length < 0:
        if length != -1:
            raise RemoteProtocolError(f"request header: client_id: length {length} is negative")
        position = REQUEST_HEAD_BYTES
    else:
        position = REQUEST_HEAD_BYTES + length
        if position > len(frame):
            raise RemoteProtocolError("request header: client_id: it ends too early")
        try:
            client_id = str(frame[REQUEST_HEAD_BYTES:position], "utf-8")
        except UnicodeDecodeError as fault:
            raise RemoteProtocolError(f"request header: client_id: {fault}") from fault
    request = REQUESTS.get(api_key) or request_class(api_key)
    if version >= request.first_flexible_version:
        if frame[position : position + 1] == b"\0":
            position += 1
        else:
            position = after_tags(frame, position)
    return RequestHeader(api_key, version, correlation_id, client_id), position


def after_tags(frame: Buffer, position: int) -> int:
    """The position after the tagged section of a header, in which no tag is known."""
    try:
        count = frame[position]
        position += 1
        return skip_tags(frame, position, count, len(frame))[1] if count else position
    except (IndexError, ValueError) as fault:
        raise RemoteProtocolError(f"header: tagged fields: {fault}") from fault


def decode_request(
    header: RequestHeader, frame: Buffer, position: int, most: int = UNLIMITED
) -> Request:
    """The body of a request, which begins at `position` of its frame; `most` elements in all."""
    request = REQUESTS.get(header.api_key) or request_class(header.api_key)
    return decode(request, header.api_version, frame, position, most)


def decode_request_in_slices(
    header: RequestHeader, frame: Buffer, position: int, most: int
) -> Work[Request]:
    """The same with a pause after each slice of the work; the frame is needed for the first."""
    request = REQUESTS.get(header.api_key) or request_class(header.api_key)
    return decode_in_slices(request, header.api_version, frame, position, most)


def encode_response(header: RequestHeader, response: Response) -> list[Part]:
    """The answer to the request of `header` behind its size, in parts to be sent in order.

    Records are parts of their own, not copied: bytes as they are, file regions to be sent from
    the file. A version of ApiVersions that is not known here is answered in v0 (KIP-511).
    """
    version = header.api_version
    cls = type(response)
    if cls.answers_unknown_versions and version not in cls.versions:
        version = 0
    out = bytearray(8 if version < cls.first_flexible_header else 9)
    parts: list[Part] = []
    try:
        last = cls.encoders[version](response, out, parts)
    except ENCODE_FAULTS as fault:
        raise refusal(cls, version, fault, LocalProtocolError) from fault
    return _framed(header, cls, out, parts, last)


def encode_response_in_slices(header: RequestHeader, response: Response) -> Work[list[Part]]:
    """The same with a pause after each slice of the work."""
    version = header.api_version
    cls = type(response)
    out = bytearray(8 if version < cls.first_flexible_header else 9)
    parts: list[Part] = []
    try:
        last = yield from cls.encoders[version + IN_SLICES](response, out, parts)
    except ENCODE_FAULTS as fault:
        raise refusal(cls, version, fault, LocalProtocolError) from fault
    return _framed(header, cls, out, parts, last)


def _framed(
    header: RequestHeader,
    cls: type[Response],
    out: bytearray,
    parts: list[Part],
    last: bytearray,
) -> list[Part]:
    """The parts of an answer, whose head is in `out`, with their size in it."""
    size = len(last)
    for part in parts:
        size += len(part) if isinstance(part, BYTES_LIKE) else part.size
    if last:
        parts.append(last)
    if size > MAX_FRAME_BYTES:
        raise LocalProtocolError(f"{cls.__name__}: {size} bytes do not fit in a frame")
    pack_response_head(out, 0, size - 4, header.correlation_id)
    return parts


def decode_response(
    request_class: type[Request], api_version: int, frame: Buffer
) -> tuple[int, Response]:
    """The correlation id and the body of the answer to a request of this class and version."""
    if len(frame) < SIZE.size:
        raise RemoteProtocolError(f"a response of {len(frame)} bytes has no correlation id")
    (correlation_id,) = SIZE.unpack_from(frame)
    response = request_class.response_class
    position = SIZE.size
    if api_version >= response.first_flexible_header:
        position = after_tags(frame, position)
    if response.answers_unknown_versions and frame[4:6] == UNSUPPORTED_VERSION:
        api_version = 0
    return correlation_id, decode(response, api_version, frame, position)


UNSUPPORTED_VERSION: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
