"""The five requests of Kafka's first design (0.7), and their answers.

    request        size 4 · type 2 · body
    produce      0 topic · partition 4 · size of the message set 4 · message set      no answer
    fetch        1 topic · partition 4 · position 8 · most bytes 4
    multi-fetch  2 count 2 · as many bodies of fetch
    multi-produce 3 count 2 · as many bodies of produce                               no answer
    offsets      4 topic · partition 4 · time 8 · most offsets 4

    answer         size 4 · error code 2 · body
    fetch          the messages, as they are in the file
    multi-fetch    as many whole answers of fetch; the size counts them, the error code is 0
    offsets        count 4 · offset 8 each, the newest first

A topic is its length in 2 bytes and its name. A request has no version, no correlation id and no
client id, so that its bytes mean something else to a modern broker: each needs a port of its own.
Answers come in the order of the requests. The codes of errors are those that Kafka still has.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from struct import Struct as Layout
from typing import Any, Final

from ottla.errors import ErrorCode, RemoteProtocolError
from ottla.protocol.types import Buffer
from ottla.structs import NamedTuple

RANDOM_PARTITION: Final = -1
"""The partition of a produce that the broker chooses."""
MAX_PARTS: Final = 1_000
"""The most message sets, or places to read from, that one request may name."""

ANSWER_HEAD: Final = Layout(">ih")
SIZE: Final = Layout(">i")
TYPE: Final = Layout(">h")
COUNT: Final = Layout(">h")
NAME_LENGTH: Final = Layout(">h")
APPEND_TAIL: Final = Layout(">ii")
READ_TAIL: Final = Layout(">iqi")


class RequestType(IntEnum):
    """The second field of a request."""

    PRODUCE = 0
    FETCH = 1
    MULTI_FETCH = 2
    MULTI_PRODUCE = 3
    OFFSETS = 4


class ToAppend(NamedTuple):
    """A message set for a partition."""

    topic: str
    partition: int
    messages: Buffer


class ToRead(NamedTuple):
    """A place to read from, and how many bytes at most."""

    topic: str
    partition: int
    position: int
    max_bytes: int


class ToFind(NamedTuple):
    """A time before which segments must have been begun, and how many of them are wanted."""

    topic: str
    partition: int
    time_ms: int
    max_count: int


Part = ToAppend | ToRead | ToFind


class _Reader:
    """Reads one frame from its start to its end."""

    def __init__(self, frame: Buffer) -> None:
        self.view = memoryview(frame)
        self.position = 0

    def take(self, layout: Layout) -> tuple[int, ...]:
        values = layout.unpack_from(self.view, self.position)
        self.position += layout.size
        return values

    def bytes(self, size: int) -> memoryview:
        end = self.position + size
        if size < 0 or end > len(self.view):
            raise RemoteProtocolError(f"{size} bytes at {self.position} of {len(self.view)}")
        self.position, start = end, self.position
        return self.view[start:end]

    def topic(self) -> str:
        (length,) = self.take(NAME_LENGTH)
        try:
            return str(self.bytes(length), "utf-8")
        except UnicodeDecodeError:
            raise RemoteProtocolError("the name of a topic is not UTF-8") from None

    def to_append(self) -> ToAppend:
        topic = self.topic()
        partition, size = self.take(APPEND_TAIL)
        return ToAppend(topic, partition, self.bytes(size))

    def to_read(self) -> ToRead:
        return ToRead(self.topic(), *self.take(READ_TAIL))

    def to_find(self) -> ToFind:
        return ToFind(self.topic(), *self.take(READ_TAIL))

    def count(self) -> int:
        (count,) = self.take(COUNT)
        if not 0 <= count <= MAX_PARTS:
            raise RemoteProtocolError(f"{count} parts: a request may have 0 to {MAX_PARTS}")
        return count

    def parts(self) -> tuple[RequestType, list[Part]]:
        (number,) = self.take(TYPE)
        try:
            type_ = RequestType(number)
        except ValueError:
            raise RemoteProtocolError(f"there is no request of type {number}") from None
        is_multi = type_ in (RequestType.MULTI_FETCH, RequestType.MULTI_PRODUCE)
        read = READERS[type_]
        return type_, [read(self) for _ in range(self.count() if is_multi else 1)]


READERS: Final[dict[RequestType, Callable[[_Reader], Part]]] = {
    RequestType.PRODUCE: _Reader.to_append,
    RequestType.FETCH: _Reader.to_read,
    RequestType.MULTI_FETCH: _Reader.to_read,
    RequestType.MULTI_PRODUCE: _Reader.to_append,
    RequestType.OFFSETS: _Reader.to_find,
}


def decode_request(frame: Buffer) -> tuple[RequestType, list[Any]]:
    """The type of a request, and its parts; the message sets are views of the frame.

    Raises:
        RemoteProtocolError: it is no request, or has bytes too few or too many.
    """
    reader = _Reader(frame)
    try:
        found = reader.parts()
    except struct.error:
        raise RemoteProtocolError(f"a request that ends after {len(reader.view)} bytes") from None
    left_over = len(reader.view) - reader.position
    if left_over:
        raise RemoteProtocolError(f"{left_over} bytes behind the end of a request")
    return found


def encode_produce(sets: Sequence[ToAppend]) -> bytes:
    """A produce, or a multi-produce of several message sets."""
    bodies = [
        _name(topic) + APPEND_TAIL.pack(partition, len(messages)) + messages
        for topic, partition, messages in sets
    ]
    return _request(RequestType.PRODUCE, RequestType.MULTI_PRODUCE, bodies)


def encode_fetch(places: Sequence[ToRead]) -> bytes:
    """A fetch, or a multi-fetch of several places."""
    bodies = [_name(topic) + READ_TAIL.pack(*rest) for topic, *rest in places]
    return _request(RequestType.FETCH, RequestType.MULTI_FETCH, bodies)


def encode_offsets(wanted: ToFind) -> bytes:
    """A request for offsets."""
    topic, *rest = wanted
    body = _name(topic) + READ_TAIL.pack(*rest)
    return _request(RequestType.OFFSETS, RequestType.OFFSETS, [body])


def _name(topic: str) -> bytes:
    name = topic.encode()
    return NAME_LENGTH.pack(len(name)) + name


def _request(single: RequestType, multi: RequestType, bodies: Sequence[bytes]) -> bytes:
    if len(bodies) == 1:
        parts = [TYPE.pack(single), *bodies]
    else:
        parts = [TYPE.pack(multi), COUNT.pack(len(bodies)), *bodies]
    return SIZE.pack(sum(map(len, parts))) + b"".join(parts)


def encode_answer_head(body_bytes: int, error: ErrorCode = ErrorCode.NONE) -> bytes:
    """The beginning of an answer whose body has so many bytes."""
    return ANSWER_HEAD.pack(TYPE.size + body_bytes, error)


def encode_offsets_answer(offsets: Sequence[int], error: ErrorCode = ErrorCode.NONE) -> bytes:
    """An answer to a request for offsets."""
    body = Layout(f">i{len(offsets)}q").pack(len(offsets), *offsets)
    return encode_answer_head(len(body), error) + body


def decode_answer(frame: Buffer) -> tuple[ErrorCode, memoryview]:
    """The error code and the body of an answer without its size."""
    view = memoryview(frame)
    if len(view) < TYPE.size:
        raise RemoteProtocolError(f"an answer of {len(view)} bytes has no error code")
    return ErrorCode.of(*TYPE.unpack_from(view)), view[TYPE.size :]


def decode_multi_answer(body: memoryview, count: int) -> list[tuple[ErrorCode, memoryview]]:
    """The answers inside the answer to a multi-fetch."""
    found = []
    reader = _Reader(body)
    try:
        for _ in range(count):
            (size,) = reader.take(SIZE)
            found.append(decode_answer(reader.bytes(size)))
    except struct.error:
        raise RemoteProtocolError(f"{count} fetches, and {len(found)} answers") from None
    return found


def decode_offsets_answer(body: memoryview) -> list[int]:
    """The offsets in the body of an answer."""
    try:
        (count,) = SIZE.unpack_from(body)
        return list(Layout(f">{max(0, count)}q").unpack(body[SIZE.size :]))
    except struct.error:
        raise RemoteProtocolError(f"{len(body)} bytes are no list of offsets") from None
