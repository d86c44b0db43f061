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
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.log.leader_epoch_cache import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CorruptCheckpointError,
    OffsetCheckpoint,
)
from ottla.runtime import Disk, DiskLock, File
from ottla.structs import NO_UUID, TopicPartition, Value, decode_uuid, encode_uuid

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


class LogDir:
    """A log directory. Once it is offline it stays so until the broker is started again.

    `log_count` is how many partitions have their log in it, as the log manager counts them.
    After a failed fsync no later one is believed: the kernel may have dropped the data.
    """

    __slots__ = (
        "_lock",
        "_on_failure",
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
        self.recovery_points = self._checkpoint(RECOVERY_POINT_CHECKPOINT)
        self.log_start_offsets = self._checkpoint(LOG_START_OFFSET_CHECKPOINT)
        self.high_watermarks = self._checkpoint(REPLICATION_OFFSET_CHECKPOINT)
        self.cleaned_offsets = self._checkpoint(CLEANER_OFFSET_CHECKPOINT)

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
            head, slash, _ = path.rpartition("/")
            path = head or slash or "."
            above.append(path)
        self.disk.make_dirs(self.path)
        for path in above:
            self.disk.fsync_dir(path)
        try:
            self._lock = self.disk.lock(self.file(LOCK_FILE))
        except BlockingIOError:
            raise ConfigError(
                f"log.dirs={self.path}: another process has locked it ({LOCK_FILE})"
            ) from None

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

    def read_meta_properties(self) -> MetaProperties | None:
        """The owner of the directory; None if it is new. ConfigError if it does not say."""
        return read_owner(self.disk, self.file(META_PROPERTIES_FILE))

    def write_meta_properties(self, properties: MetaProperties) -> None:
        text = f"version=0\nbroker.id={properties.broker_id}\ncluster.id={properties.cluster_id}\n"
        self.disk.replace(self.file(META_PROPERTIES_FILE), text.encode())

    def _checkpoint(self, name: str) -> OffsetCheckpoint:
        return OffsetCheckpoint(self.disk, self.file(name))


def read_owner(disk: Disk, path: str) -> MetaProperties | None:
    """What a meta.properties says; None where there is none, ConfigError if it does not say."""
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


# Forcing files to disk without making the loop wait for it.


class FsyncError(Exception):
    """The kernel could not bring data to disk; it may have dropped them."""


class FlushJob(Value):
    """What must be forced to disk, as values for a background thread.

    The call raises FsyncError if that failed, OSError if it could not be tried.
    """

    disk: Disk
    replacements: list[tuple[str, bytes]]
    files: list[File]
    paths: list[str]
    directories: list[str]

    def __call__(self) -> None:
        for path, data in self.replacements:
            _unless_gone(self.disk.replace, path, data)
        for file in self.files:
            _unless_gone(_fsync, file)
        for path in self.paths:
            _unless_gone(self._sync_path, path)
        for directory in self.directories:
            _unless_gone(_fsync_dir, self.disk, directory)

    def _sync_path(self, path: str) -> None:
        file = self.disk.open(path)
        try:
            _fsync(file)
        finally:
            file.close()


def _fsync(file: File) -> None:
    try:
        file.fsync()
    except OSError as error:
        if error.errno == errno.EBADF:
            raise
        raise FsyncError(f"fsync of {file.path}: {error}") from error


def _fsync_dir(disk: Disk, directory: str) -> None:
    try:
        disk.fsync_dir(directory)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EMFILE, errno.ENFILE):  # it could not be opened
            raise
        raise FsyncError(f"fsync of {directory}: {error}") from error


def _unless_gone(action: Callable[..., object], *arguments: object) -> None:
    """What was deleted while the job waited needs no flush: its file is closed or not there."""
    try:
        action(*arguments)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno != errno.EBADF:
            raise


# The names of the files and directories of a log, which are Kafka's.
#
# A partition lives in `<topic>-<partition>/`. Each segment has files named by its base offset in 20
# digits; a suffix behind that says that the file is on its way in or out.


LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
TEMPORARY_SUFFIX: Final = ".tmp"
DELETE_DIR_SUFFIX: Final = "-delete"
FUTURE_DIR_SUFFIX: Final = "-future"
STRAY_DIR_SUFFIX: Final = "-stray"

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
MOVE_MARK: Final = "replica-move"
"""Marks a directory that was copied from another log directory, until the original is gone."""

CLUSTER_METADATA_DIR: Final = "__cluster_metadata-0"
"""Where a KRaft broker keeps its metadata log: no partition, though it looks like one."""

MAX_NAME_BYTES: Final = 255
MAX_TOPIC_NAME_LENGTH: Final = 249
"""A directory name of 255 holds the name, a dash, and the digits of a partition."""
_TOPIC_NAME: Final = r"[a-zA-Z0-9._-]+"
_SHOWN_LENGTH: Final = 64
_PARTITION_DIR: Final = rf"([a-zA-Z0-9._-]{{1,{MAX_TOPIC_NAME_LENGTH}}})-(0|[1-9][0-9]{{0,9}})"
_FUTURE_DIR: Final = rf"(.+)\.[0-9a-f]{{32}}{FUTURE_DIR_SUFFIX}"
_OFFSET_NAME: Final = r"([0-9]{20})(\.[a-z]+)(\.[a-z]+)?"


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    """Where a file of the segment is: `<directory>/<20 digits><suffix>`."""
    return f"{directory}/{base_offset:020d}{suffix}"


def parse_segment_name(name: str) -> tuple[int, str, str] | None:
    """Base offset, suffix and further suffix ("" if none) of a file name; None if it is no such."""
    match = re.fullmatch(_OFFSET_NAME, name)
    if match is None:
        return None
    return int(match[1]), match[2], match[3] or ""


def parse_partition_dir(name: str) -> TopicPartition | None:
    """The partition that lives in a directory of this name; None if none can."""
    match = re.fullmatch(_PARTITION_DIR, name)
    if match is None or match[1] in (".", ".."):
        return None
    return TopicPartition(match[1], int(match[2]))


def deleted_dir_name(topic_partition: TopicPartition, unique: str) -> str:
    """The name that a partition's directory gets while it waits to be deleted."""
    return _passing_name(topic_partition, f"{unique}{DELETE_DIR_SUFFIX}")


def stray_dir_name(topic_partition: TopicPartition, unique: str) -> str:
    """The name of a directory whose topic is gone, and whose contents are nevertheless kept."""
    return _passing_name(topic_partition, f"{unique}{STRAY_DIR_SUFFIX}")


def future_dir_name(topic_partition: TopicPartition, unique: str) -> str:
    """The name of a partition's directory as long as the partition is only about to move there."""
    return _passing_name(topic_partition, f"{unique}{FUTURE_DIR_SUFFIX}")


def parse_future_dir(name: str) -> TopicPartition | None:
    """The partition that was about to move into a directory of this name; None if none was."""
    match = re.fullmatch(_FUTURE_DIR, name)
    return None if match is None else parse_partition_dir(match[1])


def _passing_name(topic_partition: TopicPartition, ending: str) -> str:
    """A long topic is cut so that a file system takes the name."""
    ending = f"-{topic_partition.partition}.{ending}"
    return topic_partition.topic[: MAX_NAME_BYTES - len(ending)] + ending


def validate_topic_name(name: str) -> None:
    """INVALID_TOPIC_EXCEPTION for a name that no topic, and so no directory, may have."""
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        reason = f"it has {len(name)} characters, {MAX_TOPIC_NAME_LENGTH} are allowed"
    elif name in (".", ".."):
        reason = "it would be a directory of its own"
    elif re.fullmatch(_TOPIC_NAME, name) is None:
        reason = "it must be made of ASCII letters, digits, '.', '_' and '-'"
    else:
        return
    shown = name if len(name) <= _SHOWN_LENGTH else name[:_SHOWN_LENGTH] + "..."
    raise KafkaError(
        ErrorCode.INVALID_TOPIC_EXCEPTION, f"{shown!r} cannot be a topic's name: {reason}"
    )


# The file `partition.metadata`: the id of the topic that a partition's directory belongs to.


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
    file = disk.open(path, create=True)
    try:
        file.pwrite(data, 0)
        file.truncate(len(data))
    finally:
        file.close()
