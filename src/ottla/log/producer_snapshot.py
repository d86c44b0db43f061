"""Snapshots of the producer state: `<20 digits>.snapshot`, the state before that offset.

version        int16   1
CRC-32C        uint32  of everything behind it
count          int32
each producer  id int64, epoch int16, last sequence int32, last offset int64, offset delta
               int32, timestamp int64, coordinator epoch int32, first offset of its open
               transaction int64 (-1: none)
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, error
from typing import Final

from ottla.log.producer_state_entry import BatchMetadata, ProducerStateEntry
from ottla.record.kernel import crc32c
from ottla.structs import NO_OFFSET, NO_SEQUENCE

VERSION: Final = 1
HEAD: Final = Struct(">hI")
COUNT: Final = Struct(">i")
ENTRY: Final = Struct(">qhiqiqiq")
NO_BATCH: Final = BatchMetadata(NO_SEQUENCE, NO_OFFSET, 0, -1)


class CorruptSnapshotError(Exception):
    """A snapshot that does not match its CRC; the state can be read from the log."""


MANY_PRODUCERS: Final = 5_000
CHANGED_AT_ONCE: Final = 500


class SnapshotImage:
    """The entries of a snapshot of very many producers, which follow their changes.

    A segment is rolled within an append: 200,000 producers must not be encoded then, which takes
    0.2 s. So they are encoded a few at a time while they write; the rest is done at the snapshot.
    """

    __slots__ = ("_changed", "_entries", "_places", "_producers")

    def __init__(self, producers: dict[int, ProducerStateEntry]) -> None:
        self._producers = producers
        self._entries = bytearray()
        self._places: dict[int, int] = {}
        self._changed = dict.fromkeys(producers)

    def note(self, producer_id: int) -> None:
        """The producer changes, is a new one or is forgotten; it has done so by the next call."""
        if len(self._changed) >= CHANGED_AT_ONCE:
            self._follow(CHANGED_AT_ONCE)
        self._changed[producer_id] = None

    def encode(self) -> bytes:
        """The file for all of the producers."""
        self._follow(len(self._changed))
        return _with_head(len(self._places), bytes(self._entries))

    def _follow(self, count: int) -> None:
        for _ in range(count):
            producer_id, _ = self._changed.popitem()
            known = self._producers.get(producer_id)
            if known is None:
                self._remove(producer_id)
            else:
                place = self._places.setdefault(producer_id, len(self._entries))
                self._entries[place : place + ENTRY.size] = _encode_entry(known)

    def _remove(self, producer_id: int) -> None:
        """The last entry takes its place."""
        place = self._places.pop(producer_id, None)
        if place is None:
            return
        last = self._entries[-ENTRY.size :]
        del self._entries[-ENTRY.size :]
        if place < len(self._entries):
            self._entries[place : place + ENTRY.size] = last
            self._places[ENTRY.unpack(last)[0]] = place


def encode_snapshot(producers: Iterable[ProducerStateEntry]) -> bytes:
    """The file for these producers; of each one the last batch is kept, as in Kafka."""
    entries = [_encode_entry(producer) for producer in producers]
    return _with_head(len(entries), b"".join(entries))


def decode_snapshot(path: str, raw: bytes) -> dict[int, ProducerStateEntry]:
    """The producers of a snapshot by their ids, or CorruptSnapshotError."""
    try:
        version, crc = HEAD.unpack_from(raw)
        (count,) = COUNT.unpack_from(raw, HEAD.size)
    except error:
        raise CorruptSnapshotError(f"{path}: {len(raw)} bytes are too few") from None
    if version != VERSION or crc != crc32c(memoryview(raw)[HEAD.size :]):
        raise CorruptSnapshotError(f"{path}: wrong version or CRC")
    start = HEAD.size + COUNT.size
    if len(raw) != start + count * ENTRY.size:
        raise CorruptSnapshotError(f"{path}: {count} producers do not fit {len(raw)} bytes")
    states = (_decode_entry(*numbers) for numbers in ENTRY.iter_unpack(raw[start:]))
    return {state.producer_id: state for state in states}


def _with_head(count: int, entries: bytes) -> bytes:
    body = COUNT.pack(count) + entries
    return HEAD.pack(VERSION, crc32c(body)) + body


def _encode_entry(producer: ProducerStateEntry) -> bytes:
    last = producer.batches[-1] if producer.batches else NO_BATCH
    return ENTRY.pack(
        producer.producer_id,
        producer.producer_epoch,
        last.last_sequence,
        last.last_offset,
        last.offset_delta,
        producer.last_timestamp_ms,
        producer.coordinator_epoch,
        producer.current_txn_first_offset,
    )


def _decode_entry(
    producer_id: int, producer_epoch: int, last_sequence: int, last_offset: int, *rest: int
) -> ProducerStateEntry:
    offset_delta, timestamp_ms, coordinator_epoch, txn_first_offset = rest
    state = ProducerStateEntry(
        producer_id, producer_epoch, coordinator_epoch, timestamp_ms, txn_first_offset
    )
    if last_sequence != NO_SEQUENCE:
        state.batches = (BatchMetadata(last_sequence, last_offset, offset_delta, timestamp_ms),)
    return state
