"""Frames: the size and the header in front of requests and responses.

A frame here is what follows the 4-byte size. The header of a flexible version ends with a tagged
section; the client id in it stays a string with a 16-bit length in all versions (KIP-482).
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import Final

from ottla.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from ottla.protocol.message import (
    REQUESTS,
    Request,
    Response,
    decode,
    encode_parts,
    join,
    request_class,
)
from ottla.protocol.types import Buffer, Part
from ottla.protocol.wire import records_size, skip_tags

REQUEST_HEAD: Final = Layout(">hhih")
RESPONSE_HEAD: Final = Layout(">ii")
FLEXIBLE_RESPONSE_HEAD: Final = Layout(">iix")
SIZE: Final = Layout(">i")


class RequestHeader:
    """What is asked, in which version, by whom, and the number that the answer must carry."""

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
    """The request behind its size and header, ready to be sent; file regions are read."""
    name = None if client_id is None else client_id.encode()
    out = bytearray(SIZE.size)
    out += REQUEST_HEAD.pack(
        request.api_key, api_version, correlation_id, -1 if name is None else len(name)
    )
    out += name or b""
    if api_version in request.flexible:
        out.append(0)
    whole = bytearray(join(encode_parts(request, api_version, out)))
    SIZE.pack_into(whole, 0, len(whole) - SIZE.size)
    return bytes(whole)


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header of a request, and the position where its body begins."""
    if len(frame) < REQUEST_HEAD.size:
        raise RemoteProtocolError(f"a request of {len(frame)} bytes has no room for its header")
    api_key, api_version, correlation_id, length = REQUEST_HEAD.unpack_from(frame)
    client_id = None
    position = REQUEST_HEAD.size
    if length >= 0:
        position += length
        if position > len(frame):
            raise RemoteProtocolError("request header: client_id: it ends too early")
        try:
            client_id = str(frame[REQUEST_HEAD.size : position], "utf-8")
        except UnicodeDecodeError as fault:
            raise RemoteProtocolError(f"request header: client_id: {fault}") from fault
    elif length != -1:
        raise RemoteProtocolError(f"request header: client_id: length {length} is negative")
    request = REQUESTS.get(api_key) or request_class(api_key)
    if api_version >= request.flexible.first:
        position = after_tags(frame, position)
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def after_tags(frame: Buffer, position: int) -> int:
    """The position after the tagged section of a header, in which no tag is known."""
    try:
        count = frame[position]
        position += 1
        return skip_tags(frame, position, count, len(frame)) if count else position
    except (IndexError, ValueError) as fault:
        raise RemoteProtocolError(f"header: tagged fields: {fault}") from fault


def decode_request(header: RequestHeader, frame: Buffer, position: int) -> Request:
    """The body of a request, which begins at `position` of its frame."""
    request = REQUESTS.get(header.api_key) or request_class(header.api_key)
    return decode(request, header.api_version, frame, position)


def encode_response(header: RequestHeader, response: Response) -> list[Part]:
    """The answer to the request of `header` behind its size, in parts to be sent in order.

    Records are parts of their own, not copied: bytes as they are, file regions to be sent from
    the file. A version of ApiVersions that is not known here is answered in v0 (KIP-511).
    """
    version = header.api_version
    cls = type(response)
    if version > cls.max_version and cls.answers_unknown_versions:
        version = 0
    if version in cls.flexible_header:
        out = bytearray(FLEXIBLE_RESPONSE_HEAD.pack(0, header.correlation_id))
    else:
        out = bytearray(RESPONSE_HEAD.pack(0, header.correlation_id))
    parts = encode_parts(response, version, out)
    size = len(out) if len(parts) == 1 else records_size(parts)
    try:
        SIZE.pack_into(out, 0, size - SIZE.size)
    except OverflowError as fault:
        raise LocalProtocolError(f"a response of {size} bytes is too large") from fault
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
    if api_version in response.flexible_header:
        position = after_tags(frame, position)
    if response.answers_unknown_versions and frame[4:6] == UNSUPPORTED_VERSION:
        api_version = 0
    return correlation_id, decode(response, api_version, frame, position)


UNSUPPORTED_VERSION: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
