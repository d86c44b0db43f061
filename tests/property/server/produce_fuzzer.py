"""Batches and message sets of all kinds, most of them damaged, for a Produce handler.

A damaged one mostly gets a length and a CRC that are right, so that it is not refused for these.
What holds: every one is answered, with an error that producers know or with none; a refused one
moves no offset; one that is taken moves it by its records, which can be read again.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections import Counter

from crc32c import crc32c
from hostile_batches import BROKEN, hostile_batches, hostile_varints
from message_sets import message, wrapper
from produce_world import NOW_MS, ProduceWorld

from ottla.errors import ErrorCode
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType, compress
from ottla.record.record_batch import BATCH_OVERHEAD, RecordBatch

KNOWN_ERRORS = (
    ErrorCode.NONE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    # A gap in sequence numbers, where batches were refused a moment ago.
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
)
HEADER_FIELDS = (
    (0, ">q"),
    (8, ">i"),
    (12, ">i"),
    (16, ">b"),
    (21, ">h"),
    (23, ">i"),
    (27, ">q"),
    (35, ">q"),
    (43, ">q"),
    (51, ">h"),
    (53, ">i"),
    (57, ">i"),
)
MESSAGE_SETS = 0.1
UNDAMAGED = 0.15
NEW_WORLD_EVERY = 20_000


def sealed(data: bytearray) -> bytes:
    """With the length and the CRC that the bytes ask for."""
    if len(data) >= BATCH_OVERHEAD:
        struct.pack_into(">i", data, 8, len(data) - 12)
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


class ProduceFuzzer:
    """Sends what a seed makes of chance, and counts the answers by their error."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.taken: list[bytes] = []
        self._known = [*hostile_batches().values(), *hostile_varints().values()]
        self._whole = [self._build() for _ in range(300)]
        self._sets = [self._message_set() for _ in range(100)]

    def run(self, count: int, keep: int = 0) -> None:
        """Send so many, and keep up to `keep` of those that were taken."""
        world = ProduceWorld()
        for number in range(count):
            if number % NEW_WORLD_EVERY == NEW_WORLD_EVERY - 1:
                world = ProduceWorld()
            data, version = self._draw()
            before = world.end_offset
            error = world.error(data, version)
            assert error in KNOWN_ERRORS, (error, data.hex())
            self.counts[error.name] += 1
            moved = world.end_offset - before
            if error is not ErrorCode.NONE:
                assert not moved, data.hex()
                continue
            stored = world.stored(before)
            assert [record.offset for record in stored] == [*range(before, before + moved)]
            if version == 9:
                assert moved == RecordBatch(data).record_count > 0
                if len(self.taken) < keep:
                    self.taken.append(data)

    def _draw(self) -> tuple[bytes, int]:
        chance = self.chance
        if chance.random() < MESSAGE_SETS:
            return self._damaged_set(), chance.randrange(3)
        kind = chance.random()
        if kind < UNDAMAGED:
            return chance.choice(self._whole), 9
        if kind < 2 * UNDAMAGED:
            return self._mutated(bytearray(chance.choice(self._known))), 9
        return self._mutated(bytearray(chance.choice(self._whole))), 9

    def _build(self) -> bytes:
        chance = self.chance
        codec = chance.choice(list(CompressionType))
        size, equal = chance.choice(((1, 1), (5, 0), (40, 1), (200, 0)))
        value = chance.randbytes(chance.randrange(30))
        rows = []
        for _ in range(chance.randrange(size) + 1):
            if not equal:
                value = chance.choice((None, b"", chance.randbytes(chance.randrange(300))))
            key = chance.choice((None, b"k", chance.randbytes(chance.randrange(9))))
            headers = (("h", chance.choice((None, b"x"))),) * chance.choice((0, 0, 0, 1, 70))
            rows.append((NOW_MS + chance.randrange(20_000), key, value, headers))
        return build_batch(rows, codec)

    def _mutated(self, data: bytearray) -> bytes:
        chance = self.chance
        if len(data) <= BATCH_OVERHEAD:
            return bytes(data)
        kind = chance.randrange(7)
        if kind == 0:
            position, layout = chance.choice(HEADER_FIELDS)
            bits = 8 * struct.calcsize(layout)
            number = chance.choice((0, 1, -1, 2, chance.getrandbits(bits - 1), -1 << (bits - 1)))
            struct.pack_into(layout, data, position, number)
        elif kind == 1:
            del data[chance.randrange(BATCH_OVERHEAD, len(data)) :]
        elif kind == 2:
            data += chance.randbytes(chance.randrange(1, 20))
        elif kind == 3:
            position = chance.randrange(BATCH_OVERHEAD, len(data))
            varint = chance.choice(list(BROKEN.values()))
            data[position : position + chance.randrange(3)] = varint
        elif kind == 4:
            data = self._repacked(data)
        else:
            for _ in range(chance.randrange(1, 4)):
                data[chance.randrange(BATCH_OVERHEAD, len(data))] = chance.randrange(256)
        return bytes(data) if chance.random() < 0.05 else sealed(data)

    def _repacked(self, data: bytearray) -> bytearray:
        """Damaged records in a codec that is not damaged."""
        chance = self.chance
        batch = RecordBatch(bytes(data))
        try:
            section = bytearray(batch.payload())
        except Exception:
            return data
        if section:
            section[chance.randrange(len(section))] = chance.randrange(256)
        codec = chance.choice(list(CompressionType))
        head = data[:BATCH_OVERHEAD]
        struct.pack_into(">h", head, 21, batch.attributes & ~7 & 0x7FFF | codec)
        return head + compress(codec, section)

    def _message_set(self) -> bytes:
        chance = self.chance
        magic = chance.randrange(2)
        parts = b"".join(
            message(n, chance.choice((None, b"k")), b"v" * chance.randrange(30), magic=magic)
            for n in range(chance.randrange(1, 6))
        )
        return wrapper(9, parts, magic=magic) if chance.random() < 0.5 else parts

    def _damaged_set(self) -> bytes:
        chance = self.chance
        data = bytearray(chance.choice(self._sets))
        if chance.random() < 0.3:
            return bytes(data)
        for _ in range(chance.randrange(1, 3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        (size,) = struct.unpack_from(">i", data, 8)
        if 4 < size <= len(data) - 12:
            struct.pack_into(">I", data, 12, zlib.crc32(data[16 : 12 + size]))
        return bytes(data)
