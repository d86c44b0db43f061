"""The logs of the first design of one broker, in virtual time, on a disk in memory."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from ottla.config.broker_config import BrokerConfig
from ottla.extensions.first_design.byte_logs import ByteLogs
from ottla.record.compression import CompressionType, compress
from ottla.runtime import FileRegion
from ottla.runtime.scheduler import at_once
from ottla.structs import TopicPartition
from ottla.testing import MemoryDisk, MockRuntime, mock_runtime

ROOT = "/logs.first-design"
GZIP = CompressionType.GZIP
PAGES = TopicPartition("pages", 0)
SETTINGS = {
    "log.dirs": "/logs",
    "first.design.flush.interval.messages": "1",
    "first.design.flush.interval.ms": "1000",
    "num.partitions": "2",
}


def entry(payload: bytes, magic: int = 0, codec: int = 0) -> bytes:
    """An entry made by hand: length, magic, in magic 1 attributes, CRC of the payload, payload."""
    body = bytes([magic, *[codec] * magic]) + struct.pack(">I", zlib.crc32(payload)) + payload
    return struct.pack(">i", len(body)) + body


def wrapped(*payloads: bytes) -> bytes:
    """A compressed set."""
    return entry(compress(GZIP, b"".join(map(entry, payloads))), 1, GZIP)


def region_of(data: bytes) -> FileRegion:
    disk = MemoryDisk()
    disk.replace("/file", data)
    return FileRegion(disk.open("/file"), 0, len(data))


class ByteLogsWorld:
    """Started, with what the disk of a runtime holds."""

    def __init__(self, runtime: MockRuntime | None = None, **settings: Any) -> None:
        self.runtime = runtime or mock_runtime()
        self.disk = self.runtime.disk
        given = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.config = BrokerConfig.parse(SETTINGS | given)
        self.logs = ByteLogs(self.runtime, self.config)
        self.run(self.logs.start())

    def run(self, coroutine: Any) -> Any:
        return self.runtime.scheduler.run(coroutine)

    def append(self, *payloads: bytes, to: TopicPartition = PAGES) -> None:
        """Append messages, and let background jobs end."""
        messages = b"".join(map(entry, payloads))
        self.logs.append(self.logs.check(*to), messages, len(payloads))
        self.runtime.scheduler.run_ready()

    def read(self, position: int = 0, of: TopicPartition = PAGES) -> bytes:
        region = self.logs.read(of, position, 1_000_000)
        return b"" if region is None else region.read()

    def read_all(self, of: TopicPartition = PAGES) -> bytes:
        """From the first message that is there, file by file."""
        log = self.logs.logs[of]
        position, found = log.start, b""
        while position < log.flushed:
            piece = self.read(position, of)
            found, position = found + piece, position + len(piece)
        return found

    def retain(self) -> None:
        at_once(self.logs.retain())
        self.runtime.scheduler.run_ready()

    def stop(self) -> None:
        self.run(self.logs.stop())
        self.logs.close()

    def again(self, *, killed: bool = False, **settings: Any) -> ByteLogsWorld:
        """The next process on the same disk."""
        if killed:
            self.disk.end_process()
        else:
            self.stop()
        return ByteLogsWorld(mock_runtime(disk=self.disk), **settings)
