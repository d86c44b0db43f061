"""One of the broker's log directories: its owner, its checkpoints, and whether it works.

.lock                             held while a broker runs on the directory
.kafka_cleanshutdown              there if the last broker stopped as it should
meta.properties                   the broker and the cluster that the directory belongs to
recovery-point-offset-checkpoint  up to where each log is known to be on disk
log-start-offset-checkpoint       where each log begins, if not with a segment
replication-offset-checkpoint     the high watermarks
cleaner-offset-checkpoint         up to where each log is compacted
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from typing import Final
from uuid import UUID

from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.log.log_files import parent_of
from ottla.log.offset_checkpoint import CHECKPOINTS, CorruptCheckpointError, OffsetCheckpoint
from ottla.runtime import Disk, DiskLock
from ottla.structs import NO_UUID, NamedTuple, TopicPartition, decode_uuid, encode_uuid

logger = logging.getLogger(__name__)


LOCK_FILE: Final = ".lock"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
META_PROPERTIES_FILE: Final = "meta.properties"

# The disk is full, or we have too many files open: that may pass, and nothing is broken.
PASSING_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})


class MetaProperties(NamedTuple):
    """The broker and the cluster that a log directory belongs to."""

    broker_id: int
    cluster_id: str

    def __str__(self) -> str:
        return f"broker {self.broker_id} of cluster {self.cluster_id}"


class LogDir:
    """A log directory. Once it is offline it stays so until the broker is started again.

    `log_count` is how many partitions have their log in it, as the log manager counts them.
    After a failed fsync no later one is believed: the kernel may have dropped the data.
    """

    __slots__ = (
        "_lock",
        "_on_failure",
        "checkpoints",
        "cleaned_offsets",
        "disk",
        "high_watermarks",
        "is_offline",
        "log_count",
        "log_start_offsets",
        "on_flush",
        "path",
        "recovery_points",
    )

    def __init__(
        self, disk: Disk, path: str, on_failure: Callable[[LogDir], object] | None = None
    ) -> None:
        self.disk = disk
        self.path = path.rstrip("/") or "/"
        self.is_offline = False
        self.log_count = 0
        self._on_failure = on_failure
        self.on_flush: Callable[[int], object] | None = None
        """Told of each flush of a log, and how many ms it took, where flushes are measured."""
        self._lock: DiskLock | None = None
        self.checkpoints = [OffsetCheckpoint(disk, self.file(name)) for name in CHECKPOINTS]
        self.recovery_points, self.log_start_offsets, *others = self.checkpoints
        self.high_watermarks, self.cleaned_offsets = others

    def __repr__(self) -> str:
        return f"LogDir({self.path!r}{', offline' if self.is_offline else ''})"

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def fail(self, error: BaseException) -> None:
        """Take the directory out of service."""
        if not self.is_offline:
            self.is_offline = True
            logger.error("Log directory %s is offline: %s", self.path, error)
            if self._on_failure is not None:
                self._on_failure(self)

    def failed(self, error: OSError, what: str) -> KafkaError:
        """The error for a caller, where a change was made in part: the directory goes offline."""
        self.fail(error)
        return KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, f"{what}: {error}")

    def refused(self, error: OSError, what: str) -> KafkaError:
        """The error for a caller, where nothing was changed yet, on the disk and in memory.

        Only then may an OSError that can pass be survived: the caller tries again from the start.
        """
        if error.errno not in PASSING_ERRORS:
            self.fail(error)
        return KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, f"{what}: {error}")

    def offline_error(self) -> KafkaError:
        return KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {self.path} is offline")

    def acquire(self) -> None:
        """Make the directory and lock it; ConfigError when another broker uses it."""
        above: list[str] = []
        path = self.path
        while not self.disk.is_dir(path):
            path = parent_of(path)
            above.append(path)
        self.disk.make_dirs(self.path)
        for path in above:
            self.disk.fsync_dir(path)
        if not above:  # a process that was killed may have made it and not come so far
            with suppress(OSError):
                self.disk.fsync_dir(parent_of(self.path))
        try:
            self._lock = self.disk.lock(self.file(LOCK_FILE))
        except BlockingIOError:
            raise ConfigError(
                f"log.dirs={self.path}: another process has locked it ({LOCK_FILE})"
            ) from None

    def close(self) -> None:
        """Mark the directory as clean, unless it has failed, and release it."""
        if not self.is_offline:
            try:
                self.mark_clean()
            except OSError as error:
                self.fail(error)
        self.release()

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @property
    def is_clean(self) -> bool:
        """Whether the last broker flushed everything before it stopped."""
        return self.disk.exists(self.file(CLEAN_SHUTDOWN_FILE))

    def mark_in_use(self) -> None:
        """Count the directory as clean only after `mark_clean` from now on."""
        if self.is_clean:
            self.disk.unlink(self.file(CLEAN_SHUTDOWN_FILE))
            self.disk.fsync_dir(self.path)

    def mark_clean(self) -> None:
        self.disk.replace(self.file(CLEAN_SHUTDOWN_FILE), b"")

    def read_offsets(self, checkpoint: OffsetCheckpoint) -> dict[TopicPartition, int] | None:
        """A checkpoint's offsets; None if it is missing or damaged: logs can be scanned."""
        try:
            return checkpoint.read()
        except CorruptCheckpointError as error:
            logger.warning("Leaving a damaged checkpoint out: %s", error)
            return None

    def keep_offsets(self, unserved: Collection[TopicPartition]) -> None:
        """Leave what the checkpoints have of these logs: a later start may serve them."""
        for checkpoint in self.checkpoints if unserved else ():
            known = self.read_offsets(checkpoint) or {}
            checkpoint.kept |= {tp: known[tp] for tp in unserved if tp in known}

    def read_meta_properties(self) -> MetaProperties | None:
        """The owner of the directory; None if it is new. ConfigError if it does not say."""
        return read_owner(self.disk, self.file(META_PROPERTIES_FILE))

    def write_meta_properties(self, properties: MetaProperties) -> None:
        text = f"version=0\nbroker.id={properties.broker_id}\ncluster.id={properties.cluster_id}\n"
        self.disk.replace(self.file(META_PROPERTIES_FILE), text.encode())


def read_owner(disk: Disk, path: str) -> MetaProperties | None:
    """The owner in a meta.properties; None without the file, ConfigError if it names none."""
    if not disk.exists(path):
        return None
    text = disk.read_bytes(path).decode("utf-8", "replace")
    lines = (line.strip() for line in text.splitlines())
    fields = dict(line.split("=", 1) for line in lines if "=" in line and line[0] not in "#!")
    try:
        # Version 1, which KRaft wrote, has node.id in the place of broker.id.
        broker_id = int(fields.get("broker.id", fields.get("node.id", "")))
        return MetaProperties(broker_id, fields["cluster.id"])
    except (ValueError, KeyError):
        raise ConfigError(f"{path}: it has no broker.id or no cluster.id") from None


def with_fewest_logs(live_dirs: Sequence[LogDir]) -> LogDir:
    """Where a new partition goes; KAFKA_STORAGE_ERROR if no directory is left."""
    if not live_dirs:
        raise KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, "every log directory is offline")
    return min(live_dirs, key=lambda log_dir: log_dir.log_count)


def read_topic_id(disk: Disk, path: str) -> UUID:
    """The topic id in a `partition.metadata`; NO_UUID where it is missing or damaged.

    A topic id that was lost in a crash is written again when the partition is next assigned.
    """
    if not disk.exists(path):
        return NO_UUID
    text = disk.read_bytes(path).decode("ascii", "replace")
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    try:
        return decode_uuid(fields.get("topic_id", ""))
    except ValueError:
        return NO_UUID


def write_topic_id(disk: Disk, path: str, topic_id: UUID) -> None:
    """Write the file; the first flush of the log syncs it."""
    data = f"version: 0\ntopic_id: {encode_uuid(topic_id)}\n".encode()
    with closing(disk.open(path, create=True)) as file:
        file.pwrite(data, 0)
        file.truncate(len(data))
