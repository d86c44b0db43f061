"""DescribeLogDirs (35), v0-4: the log directories of this broker and what they hold.

A directory that has failed is named with KAFKA_STORAGE_ERROR and without partitions.

Version notes: v2 flexible · v3 top-level error · v4 the size of the volume (KIP-827).
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.errors import ErrorCode
from ottla.log.log import Log
from ottla.log.log_dir import LogDir
from ottla.log.log_manager import LogManager
from ottla.network.request import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.server.apis import Handler
from ottla.structs import TopicPartition


class LogDirsHandler:
    """Answers from the logs as they are in memory; only the volume is asked of the disk."""

    def __init__(self, log_manager: LogManager) -> None:
        self.log_manager = log_manager

    def apis(self) -> Mapping[ApiKey, Handler | tuple[Handler, int, int]]:
        return {ApiKey.DESCRIBE_LOG_DIRS: (self.handle_describe_log_dirs, 0, 4)}

    def handle_describe_log_dirs(
        self, context: RequestContext, body: DescribeLogDirsRequest
    ) -> DescribeLogDirsResponse:
        wanted = None
        if body.topics is not None:
            wanted = {
                TopicPartition(topic.topic, partition)
                for topic in body.topics
                for partition in topic.partitions
            }
        logs = [
            log
            for log in self.log_manager.all_logs()
            if wanted is None or log.topic_partition in wanted
        ]
        return DescribeLogDirsResponse(
            results=[
                self._describe(log_dir, [log for log in logs if log.log_dir is log_dir])
                for log_dir in self.log_manager.dirs
            ]
        )

    def _describe(self, log_dir: LogDir, logs: list[Log]) -> DescribeLogDirsResult:
        result = DescribeLogDirsResult(log_dir=log_dir.path)
        if not log_dir.is_offline:
            try:
                result.total_bytes, result.usable_bytes = log_dir.disk.usage(log_dir.path)
            except OSError as error:
                log_dir.failed(error, f"asking for the size of {log_dir.path}")
        if log_dir.is_offline:
            result.error_code = int(ErrorCode.KAFKA_STORAGE_ERROR)
            return result
        for log in sorted(logs, key=lambda each: each.topic_partition):
            topic, partition = log.topic_partition
            if not result.topics or result.topics[-1].name != topic:
                result.topics.append(DescribeLogDirsTopic(name=topic))
            result.topics[-1].partitions.append(
                DescribeLogDirsPartition(
                    partition_index=partition,
                    partition_size=log.size_in_bytes,
                    offset_lag=max(0, log.high_watermark - log.log_end_offset),
                )
            )
        return result
