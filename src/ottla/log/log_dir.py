"""One of the broker's log directories: who may use it, what it remembers, whether it works.

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
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.log.offset_checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CorruptCheckpointError,
    OffsetCheckpoint,
)
from ottla.runtime import Disk, DiskLock
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

LOCK_FILE: Final = ".lock"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
META_PROPERTIES_FILE: Final = "meta.properties"

# The disk is full, or we have too many files open: that may pass, and nothing is broken.
PASSING_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})


class MetaProperties(NamedTuple):
    """Whom a log directory belongs to."""

    broker_id: int
    cluster_id: str


class LogDir:
    """A log directory. Once it is offline it stays so until the broker is started again.

    `log_count` is how many partitions have their log in it, as the log manager counts them.
    A failed fsync is never tried again and believed: the kernel may have dropped the data.
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
        self._lock: DiskLock | None = None
        self.recovery_points = self._checkpoint(RECOVERY_POINT_CHECKPOINT)
        self.log_start_offsets = self._checkpoint(LOG_START_OFFSET_CHECKPOINT)
        self.high_watermarks = self._checkpoint(REPLICATION_OFFSET_CHECKPOINT)
        self.cleaned_offsets = self._checkpoint(CLEANER_OFFSET_CHECKPOINT)

    def __repr__(self) -> str:
        return f"LogDir({self.path!r}{', offline' if self.is_offline else ''})"

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    # -- failing

    def fail(self, error: BaseException) -> None:
        """Take the directory out of service."""
        if not self.is_offline:
            self.is_offline = True
            logger.error("Log directory %s is offline: %s", self.path, error)
            if self._on_failure is not None:
                self._on_failure(self)

    def failed(self, error: OSError, what: str) -> KafkaError:
        """What to tell the caller whose call met an OSError, which may be the directory's end."""
        if error.errno not in PASSING_ERRORS:
            self.fail(error)
        return KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, f"{what}: {error}")

    def offline_error(self) -> KafkaError:
        return KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {self.path} is offline")

    # -- starting and stopping

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
        """From now on the directory is only clean after `mark_clean`."""
        if self.is_clean:
            self.disk.unlink(self.file(CLEAN_SHUTDOWN_FILE))
            self.disk.fsync_dir(self.path)

    def mark_clean(self) -> None:
        self.disk.replace(self.file(CLEAN_SHUTDOWN_FILE), b"")

    def read_offsets(self, checkpoint: OffsetCheckpoint) -> dict[TopicPartition, int]:
        """A checkpoint's offsets; a damaged one is as good as none, since logs can be scanned."""
        try:
            return checkpoint.read()
        except CorruptCheckpointError as error:
            logger.warning("Leaving a damaged checkpoint out: %s", error)
            return {}

    # -- meta.properties

    def read_meta_properties(self) -> MetaProperties | None:
        """Whom the directory belongs to; None if it is new. ConfigError if it does not say."""
        path = self.file(META_PROPERTIES_FILE)
        if not self.disk.exists(path):
            return None
        text = self.disk.read_bytes(path).decode("utf-8", "replace")
        lines = (line.strip() for line in text.splitlines())
        fields = dict(line.split("=", 1) for line in lines if "=" in line and line[0] not in "#!")
        try:
            # Version 1, which KRaft wrote, has node.id in the place of broker.id.
            broker_id = int(fields.get("broker.id", fields.get("node.id", "")))
            return MetaProperties(broker_id, fields["cluster.id"])
        except (ValueError, KeyError):
            raise ConfigError(f"{path}: it has no broker.id or no cluster.id") from None

    def write_meta_properties(self, properties: MetaProperties) -> None:
        text = f"version=0\nbroker.id={properties.broker_id}\ncluster.id={properties.cluster_id}\n"
        self.disk.replace(self.file(META_PROPERTIES_FILE), text.encode())

    def _checkpoint(self, name: str) -> OffsetCheckpoint:
        return OffsetCheckpoint(self.disk, self.file(name))


def with_fewest_logs(live_dirs: Sequence[LogDir]) -> LogDir:
    """Where a new partition goes; KAFKA_STORAGE_ERROR if no directory is left."""
    if not live_dirs:
        raise KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, "every log directory is offline")
    return min(live_dirs, key=lambda log_dir: log_dir.log_count)
