"""The journal of the embedded registry: every write on disk before it is acknowledged.

Two files serve recovery. `journal` grows by one frame for each group of writes that reach the disk
together; `snapshot` is the whole tree as it was after some write, and replaces the journal up to
there. A frame is length (int32), CRC-32 of the payload (uint32), payload. The next frame is written
only when the one before is durable: so the bytes behind the last sound frame were never
acknowledged and are cut off, while a broken frame with a sound one behind it is damage, and is
reported.

A third file, `session`, has the ephemeral nodes while the broker runs. Only `read_tree` reads it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from ottla.errors import ErrorCode, KafkaError
from ottla.registry.node_tree import NodeTree, Write, WriteKind
from ottla.registry.tree import RegistryFailedError
from ottla.registry.tree_snapshot import (
    FRAME,
    SNAPSHOT_MAGIC,
    decode_node,
    decode_snapshot,
    frame,
    payloads_of,
    unframe,
)
from ottla.runtime import Disk, File, Runtime, Timer

logger = logging.getLogger(__name__)

JOURNAL_MAGIC: Final = b"OTTLAJ1\n"
COMPACTION_BYTES: Final = 1 << 20
"""A journal of this size, and twice that of the snapshot, is folded into a new snapshot."""
FULL_DISK_RETRY_MS: Final = 1000

_WRITE: Final = struct.Struct(">BqqHi")  # kind, id, time, lengths of path and data


class Journal:
    """The files of one registry. Writes that come together reach the disk with one fsync.

    While the disk is full they wait for room, except at the start and at the end. Any other
    failure ends the journal, since the disk's content after a failed fsync is not known.
    """

    def __init__(self, runtime: Runtime, directory: str, snapshot: Callable[[], bytes]) -> None:
        self.runtime = runtime
        self.path = f"{directory}/journal"
        self.snapshot_path = f"{directory}/snapshot"
        self._snapshot = snapshot
        self._snapshot_size = 0
        self._file: File | None = None
        self._pending: list[PendingWrite] = []
        self._is_writing = False
        self.waits_for_room = False
        self._retry: Timer | None = None
        self._failure: str | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def load(self) -> tuple[NodeTree, int]:
        """The tree and the id of its last write, as they were acknowledged."""
        disk = self.runtime.disk
        tree, last_id = NodeTree(), 0
        if disk.exists(self.snapshot_path):
            data = disk.read_bytes(self.snapshot_path)
            self._snapshot_size = len(data)
            try:
                tree, last_id = decode_snapshot(data)
            except (ValueError, struct.error, KafkaError) as error:
                raise damaged(self.snapshot_path, str(error)) from error
        self._file = disk.open(self.path, create=True)
        data = self._file.pread(self._file.size(), 0)
        end = self._sound_end(data)
        try:
            last_id = _replay(tree, last_id, data)
        except (ValueError, struct.error, KafkaError) as error:
            raise damaged(self.path, str(error)) from error
        self._cut(end, len(data))
        return tree, last_id

    def _sound_end(self, data: bytes) -> int:
        """Where the sound part of the journal ends; 0 where there is not even its head."""
        end = len(JOURNAL_MAGIC)
        if len(data) < end or not data.strip(b"\0"):  # the crash came while it was created
            return 0
        if not data.startswith(JOURNAL_MAGIC):
            raise damaged(self.path, "it does not begin as a journal")
        for payload in payloads_of(data, end):
            end += FRAME.size + len(payload)
        if end + FRAME.size <= len(data):
            length, _ = FRAME.unpack_from(data, end)
            if length > 0 and unframe(data, end + FRAME.size + length) is not None:
                raise damaged(self.path, f"the frame at {end} is broken, but a sound one follows")
        return end

    def _cut(self, end: int, size: int) -> None:
        assert self._file is not None, "the journal is open"
        if end < size:
            logger.warning(
                "%s: cut off %d bytes of writes that were not acknowledged", self.path, size - end
            )
            self._file.truncate(end)
        if end == 0:
            self._file.pwrite(JOURNAL_MAGIC, 0)
        self._file.fsync()
        self.runtime.disk.fsync_dir(self.path.rpartition("/")[0])

    def append(self, *writes: Write) -> asyncio.Future[None]:
        """Add writes that are kept or lost together; the future is done once they are durable."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._failure is not None:
            future.set_exception(RegistryFailedError(self._failure))
            return future
        self._pending.append((b"".join(map(encode_write, writes)), future))
        if not self._is_writing:
            self._write_pending()
        return future

    def _write_pending(self) -> None:
        assert self._file is not None, "the journal is open"
        self._retry = None
        file, disk = self._file, self.runtime.disk
        batch, self._pending = self._pending, []
        size = file.size()
        limit = max(COMPACTION_BYTES, 2 * self._snapshot_size)
        if size > limit:
            snapshot = self._snapshot()  # it holds the writes of the batch already
            self._snapshot_size = len(snapshot)

            def job() -> None:
                with full_disk_told():
                    disk.replace(self.snapshot_path, snapshot)
                file.truncate(len(JOURNAL_MAGIC))
                file.fsync()
        else:
            data = frame(b"".join(write for write, _ in batch))

            def job() -> None:
                try:
                    with full_disk_told():
                        file.pwrite(data, size)
                except DiskFullError:
                    file.truncate(size)  # a part of the frame may have had room
                    raise
                file.fsync()

        self._is_writing = True
        self._idle.clear()
        self.runtime.background.submit(
            job, lambda _: self._on_written(batch), lambda error: self._on_failed(batch, error)
        )

    def _on_written(self, batch: list[PendingWrite]) -> None:
        for _, future in batch:
            if not future.done():  # done before: the caller was cancelled
                future.set_result(None)
        self._is_writing = False
        if self._pending:
            self._write_pending()
        else:
            self._idle.set()

    def _on_failed(self, batch: list[PendingWrite], error: BaseException) -> None:
        self._pending = batch + self._pending
        if isinstance(error, DiskFullError) and self.waits_for_room:
            logger.error("%s: the disk is full; writes wait until there is room", self.path)
            self._retry = self.runtime.scheduler.call_later(FULL_DISK_RETRY_MS, self._write_pending)
        else:
            self._fail_pending(error)

    def _fail_pending(self, error: BaseException) -> None:
        self._failure = f"{self.path} could not be written: {error}"
        logger.error("%s", self._failure)
        batch, self._pending = self._pending, []
        self._is_writing = False
        for _, future in batch:
            if not future.done():
                future.set_exception(RegistryFailedError(self._failure))
        self._idle.set()

    async def close(self) -> None:
        """Wait for writes under way, but not for room; then nothing more can be appended."""
        self.waits_for_room = False
        if self._retry is not None:
            self._retry.cancel()
            self._fail_pending(DiskFullError(errno.ENOSPC, "the disk is full"))
        await self._idle.wait()
        self._failure = f"{self.path} is closed"
        if self._file is not None:
            self._file.close()
            self._file = None


def encode_write(write: Write) -> bytes:
    path = write.path.encode()
    head = _WRITE.pack(write.kind, write.id, write.time_ms, len(path), len(write.data))
    return head + path + write.data


def decode_writes(payload: bytes) -> Iterator[Write]:
    """The writes of one frame."""
    position = 0
    while position < len(payload):
        kind, write_id, time_ms, path_length, data_length = _WRITE.unpack_from(payload, position)
        path_start = position + _WRITE.size
        data_start = path_start + path_length
        position = data_start + data_length
        path = payload[path_start:data_start].decode()
        yield Write(WriteKind(kind), write_id, time_ms, path, payload[data_start:position])


def read_tree(disk: Disk, directory: str, *, is_open: bool) -> NodeTree:
    """The tree as its files have it, beside a broker that may be writing them (`is_open`).

    Nothing is written or cut. Ephemeral nodes are there while the broker is. KafkaError where
    the files are damaged.
    """
    journal, snapshot = f"{directory}/journal", f"{directory}/snapshot"
    while True:
        before = _read_if_there(disk, snapshot)
        writes = _read_if_there(disk, journal)
        if _read_if_there(disk, snapshot) == before:
            break  # else the journal was folded into the snapshot between the two reads
    try:
        tree, last_id = decode_snapshot(before) if before else (NodeTree(), 0)
        _replay(tree, last_id, writes)
        if is_open:
            for payload in payloads_of(
                _read_if_there(disk, f"{directory}/session"), len(SNAPSHOT_MAGIC)
            ):
                path, node = decode_node(payload)
                node.is_ephemeral = True
                tree.restore(path, node)
    except (ValueError, struct.error, KafkaError) as error:
        raise damaged(directory, str(error)) from error
    return tree


def _read_if_there(disk: Disk, path: str) -> bytes:
    return disk.read_bytes(path) if disk.exists(path) else b""


def _replay(tree: NodeTree, last_id: int, journal: bytes) -> int:
    """Apply the journal's entries after a write; returns the id of the last one."""
    for payload in payloads_of(journal, len(JOURNAL_MAGIC)):
        for write in decode_writes(payload):
            if write.id > last_id:  # earlier ones are in the snapshot already
                tree.apply(write)
                last_id = write.id
    return last_id


PendingWrite = tuple[bytes, "asyncio.Future[None]"]
"""A write as it will stand in a frame, and the future that is done once it is durable."""


class DiskFullError(OSError):
    """The disk has no room: nothing of the write is in the journal, and it can be repeated."""


@contextmanager
def full_disk_told() -> Iterator[None]:
    """Raise DiskFullError where the error of a write says that there is no room."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(error.errno, error.strerror, error.filename) from error
        raise


def damaged(path: str, reason: str) -> KafkaError:
    """The error that keeps a broker from starting on a registry that has lost something."""
    return KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"{path} is damaged: {reason}. Without it the topics are not known; restore it from a copy",
    )
