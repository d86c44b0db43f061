"""The logs of a log directory, found and loaded at the start of a broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.log.loading_progress import LoadingProgress
from ottla.log.log import Log
from ottla.log.log_dir import LogDir, read_topic_id
from ottla.log.log_files import (
    CLUSTER_METADATA_DIR,
    DELETE_DIR_SUFFIX,
    PARTITION_METADATA,
    parse_future_dir,
    parse_partition_dir,
)
from ottla.log.recovery import LoadedLog, LogSource, load_log, sync_recovered
from ottla.runtime import Runtime
from ottla.structs import TopicPartition, Value, field

logger = logging.getLogger(__name__)

SYNCS_AT_ONCE: Final = 16
"""A disk does many syncs at once in the time of one; one after another, three thousand logs that a
kill has left took half a minute."""

T = TypeVar("T")
R = TypeVar("R")

OTHER_DIRECTORIES: Final = frozenset({"registry", "lost+found", CLUSTER_METADATA_DIR})
"""The embedded registry keeps its journal beside the logs, a KRaft broker its metadata."""

Loaded = tuple[LogSource, LoadedLog | KafkaError]


class DirContents(Value):
    """The content of a log directory.

    `unusable` are logs that cannot be read, `futures` the copies of replicas that were moving in
    (by their paths), `deleted` the paths that a deletion has left behind.
    """

    log_dir: LogDir
    logs: list[Log] = field(default_factory=list)
    unusable: dict[TopicPartition, KafkaError] = field(default_factory=dict)
    futures: dict[str, TopicPartition] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    was_clean: bool = True


class LogLoader:
    """Loads logs with the settings of their topics and the checkpoints of their directories."""

    def __init__(
        self, runtime: Runtime, config: BrokerConfig, topic_configs: Callable[[str], TopicConfig]
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._topic_configs = topic_configs

    def update_config(self, config: BrokerConfig, logs: Iterable[Log]) -> None:
        """Follow changed settings, in logs that are loaded as well."""
        self._config = config
        for log in logs:
            log.producer_state_manager.expiration_ms = config.producer_id_expiration_ms

    def source(self, log_dir: LogDir, topic_partition: TopicPartition, is_clean: bool) -> LogSource:
        """Where the log of a partition is, or will be; nothing is known of its contents."""
        return LogSource(
            self._runtime.disk,
            log_dir.file(str(topic_partition)),
            topic_partition,
            self._topic_configs(topic_partition.topic),
            self._runtime.clock.now_ms(),
            self._config.producer_id_expiration_ms,
            is_clean,
        )

    async def load(self, log_dir: LogDir) -> DirContents:
        """Load all logs of a directory; after an OSError it is offline, and nothing is found."""
        try:
            return await self._load(log_dir)
        except OSError as error:
            log_dir.fail(error)
            return DirContents(log_dir)

    async def _load(self, log_dir: LogDir) -> DirContents:
        contents = DirContents(log_dir, was_clean=log_dir.is_clean)
        sources = self._find_logs(contents)
        high_watermarks = log_dir.read_offsets(log_dir.high_watermarks) or {}
        progress = LoadingProgress(self._runtime, log_dir.path, sources)
        try:
            scanning = self._config.num_recovery_threads_per_data_dir
            loaded = await self._in_threads(scanning, _load_logs, sources)
            logs = [result for _, result in loaded if isinstance(result, LoadedLog)]
            await self._in_threads(SYNCS_AT_ONCE, _sync_logs, logs)
        finally:
            progress.end()
        if not contents.was_clean:
            self._runtime.disk.fsync_dir(log_dir.path)  # the names of the logs' directories
        log_dir.mark_in_use()
        for source, result in loaded:
            self._add(contents, source, result, high_watermarks)
        log_dir.keep_offsets(contents.unusable)
        return contents

    async def _in_threads(
        self, count: int, job: Callable[[Sequence[T]], Sequence[R]], items: Sequence[T]
    ) -> list[R]:
        """Do a job in the background, for equal shares of the items at the same time."""
        shares = [list(items[index::count]) for index in range(min(count, len(items)))]
        jobs = [partial(job, share) for share in shares]
        work = asyncio.ensure_future(self._runtime.background.run_at_once(jobs))
        try:
            return [result for share in await asyncio.shield(work) for result in share]
        finally:
            for share in shares:
                share.clear()  # of a start that is cut off, nothing more is done
            await asyncio.wait((work,))

    def _find_logs(self, contents: DirContents) -> list[LogSource]:
        log_dir, disk = contents.log_dir, self._runtime.disk
        points = log_dir.read_offsets(log_dir.recovery_points)
        start_offsets = log_dir.read_offsets(log_dir.log_start_offsets) or {}
        cleaned_offsets = log_dir.read_offsets(log_dir.cleaned_offsets) or {}
        sources: list[LogSource] = []
        for name in disk.list_dir(log_dir.path):
            path = log_dir.file(name)
            topic_partition = parse_partition_dir(name)
            try:
                if not disk.is_dir(path) or name[0] == "." or name in OTHER_DIRECTORIES:
                    continue
            except OSError as error:  # of what others put here: a link into a folder of theirs
                if topic_partition is not None:
                    raise
                logger.warning("%s is left alone: %s", path, error)
                continue
            future = parse_future_dir(name)
            if topic_partition is not None:
                source = self.source(log_dir, topic_partition, contents.was_clean)
                source.recovery_point = None if points is None else points.get(topic_partition, 0)
                source.log_start_offset = start_offsets.get(topic_partition, 0)
                source.cleaned_offset = cleaned_offsets.get(topic_partition, 0)
                sources.append(source)
            elif future is not None:
                contents.futures[path] = future
            elif name.endswith(DELETE_DIR_SUFFIX):
                contents.deleted.append(path)
            else:
                logger.warning("%s is not the directory of a partition; it is left alone", path)
        if points is None and not sources:
            log_dir.recovery_points.write({})  # from now on it is lost if it is not there
        return sources

    def _add(
        self,
        contents: DirContents,
        source: LogSource,
        result: LoadedLog | KafkaError,
        high_watermarks: dict[TopicPartition, int],
    ) -> None:
        topic_partition = source.topic_partition
        if isinstance(result, KafkaError):
            logger.error("Cannot load %s: %s", source.directory, result)
            contents.unusable[topic_partition] = result
            return
        if result.repairs:
            logger.warning("Recovered %s: %s", source.directory, "; ".join(result.repairs))
        topic_id = read_topic_id(self._runtime.disk, f"{source.directory}/{PARTITION_METADATA}")
        high_watermark = high_watermarks.get(topic_partition, 0)
        contents.logs.append(Log(self._runtime, contents.log_dir, result, topic_id, high_watermark))


def _load_logs(sources: Sequence[LogSource]) -> list[Loaded]:
    """Load some logs; one that cannot be read does not stop the others."""
    loaded: list[Loaded] = []
    for source in sources:
        try:
            log = load_log(source)
            source.is_loaded = not log.waits_for_disk
            loaded.append((source, log))
        except KafkaError as error:
            loaded.append((source, error))
        except OSError:
            raise
        except Exception as error:
            logger.exception("Loading %s has failed", source.directory)
            loaded.append((source, KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, repr(error))))
    return loaded


def _sync_logs(logs: Sequence[LoadedLog]) -> Sequence[LoadedLog]:
    for loaded in logs:
        sync_recovered(loaded)
    return logs
