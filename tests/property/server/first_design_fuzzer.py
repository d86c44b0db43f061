"""Frames for the listener of the first design: valid ones of hostile sizes, damaged ones, noise.

The fuzzer knows which of its message sets are valid, so that it can say what the files must hold.
"""

from __future__ import annotations

import asyncio
import random
import struct
import zlib
from collections import defaultdict
from typing import Any

from request_fuzzer import SETTLE_TURNS, DeafClient, Watch

from ottla.testing import InProcessBroker

SETTINGS: dict[str, Any] = {
    "first_design_listener": ":0",
    "first_design_flush_interval_messages": 1,
    "num_partitions": 2,
    "message_max_bytes": 10_128,
    "log_segment_bytes": 200_000,
}
TOPICS = [b"t", b"t", b"a.b_0", b"", b"..", b"a/b", b"\xff", b"x" * 249, b"x" * 250]
GOOD_TOPICS = [*TOPICS[:3], b"x" * 249]
PARTITIONS = [0, 0, 0, 1, 1, 2, -2, 2**31 - 1, -(2**31)]
NUMBERS = [0, 1, -1, -2, 7, 100, 30_000, 2**31 - 1, 2**31, 2**63 - 1, -(2**63)]
PAYLOADS = [0, 1, 1, 30, 30, 1000, 10_000, 10_001]
ROOT = "/data.first-design"


def entry(payload: bytes, magic: int = 0, codec: int = 0) -> bytes:
    body = bytes([magic, *[codec] * magic]) + struct.pack(">I", zlib.crc32(payload)) + payload
    return struct.pack(">i", len(body)) + body


class FirstDesignFuzzer:
    """Makes frames by chance; `expected` has the bytes of each partition, as far as it is known."""

    def __init__(self, seed: int, sizes: list[int]) -> None:
        self.chance = random.Random(seed)
        self.sizes = sizes
        self.expected: dict[tuple[bytes, int], bytes] = defaultdict(bytes)

    def frame(self) -> bytes:
        """The bytes of a request without its size."""
        chance = self.chance
        kind = chance.randrange(10)
        if kind < 4:
            return self._produce(
                1 if kind < 3 else chance.choice([0, 1, 2, 50]), is_multi=kind == 3
            )
        if kind < 7:
            count = chance.choice([0, 1, 2, 50, 1000, 1001]) if kind == 6 else 1
            places = b"".join(self._place() for _ in range(count))
            return (b"\0\2" + struct.pack(">h", count) if kind == 6 else b"\0\1") + places
        if kind == 7:
            return b"\0\4" + self._place()
        if kind == 8:
            return chance.randbytes(chance.choice([0, 1, 2, 10, 100]))
        return self._harmed(b"\0\1" + self._place())

    def _place(self) -> bytes:
        number, size = self.chance.choice(NUMBERS), self.chance.choice(NUMBERS)
        size = max(-(2**31), min(2**31 - 1, size))
        return self._part(self.chance.choice(TOPICS), self.chance.choice(PARTITIONS)) + struct.pack(
            ">qi", number, size
        )

    def _part(self, topic: bytes, partition: int) -> bytes:
        return struct.pack(">h", len(topic)) + topic + struct.pack(">i", partition)

    def _produce(self, count: int, *, is_multi: bool) -> bytes:
        sets = [self._set() for _ in range(count)]
        is_valid = all(is_good for *_, is_good in sets)
        body = b""
        for topic, partition, data, _ in sets:
            body += self._part(topic, partition) + struct.pack(">i", len(data)) + data
            if is_valid and data:
                self.expected[topic, partition] += data
        return (b"\0\3" + struct.pack(">h", count) if is_multi else b"\0\0") + body

    def _set(self) -> tuple[bytes, int, bytes, bool]:
        chance = self.chance
        is_wild = chance.random() < 0.15
        topic = chance.choice(TOPICS if is_wild else GOOD_TOPICS)
        partition = chance.choice(PARTITIONS if is_wild else PARTITIONS[:5])
        size = chance.choice(PAYLOADS)
        count = chance.choice(self.sizes) if size <= 30 else chance.choice([1, 2])
        magic, codec = chance.choice([(0, 0), (1, 0), (1, 1), (1, 2)])
        data = b"".join(entry(chance.randbytes(size), magic, codec) for _ in range(count))
        is_good = topic in GOOD_TOPICS and partition in (0, 1)
        if chance.random() < 0.2 and data:
            return topic, partition, self._harmed(data), False
        return topic, partition, data, is_good and (size <= 10_000 or not data)

    def _harmed(self, data: bytes) -> bytes:
        """With a bit that flips, without its end, or with a length that lies."""
        harmed = bytearray(data)
        kind = self.chance.randrange(3)
        if kind == 0:
            place = self.chance.randrange(len(harmed))
            if len(data) > 9 and data[4] == 1:
                place = min(place, 4)  # bits of attributes that mean nothing may be anything
            harmed[place] ^= 1 << self.chance.randrange(8)
        elif kind == 1:
            del harmed[-1 - self.chance.randrange(min(8, len(harmed))) :]
        else:
            harmed += self.chance.randbytes(self.chance.choice([1, 3, 4, 9]))
        return bytes(harmed)


class FirstDesignWatch(Watch):
    """Hands frames to the listener of the first design."""

    def __init__(self, broker: InProcessBroker) -> None:
        super().__init__(broker)
        self.listener = broker.broker.named("FirstDesign").listener
        self.slices = broker.broker.runtime.slices

    async def _ask(self, frame: memoryview, client: DeafClient) -> None:
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(client.hand_over, self.listener, frame)
        idle = 0
        while idle < SETTLE_TURNS:
            await asyncio.sleep(0)
            idle = idle + 1 if self.slices.is_idle else 0
        assert client.ended == 1, f"a request ends once: {client.ended}"

    def contents(self, topic: bytes, partition: int) -> bytes:
        """All bytes of a partition, file by file."""
        log = self.listener._logs.logs[topic.decode(), partition]
        disk = self.broker.disk
        return b"".join(disk.contents(each.path)[: each.size] for each in log.segments)
