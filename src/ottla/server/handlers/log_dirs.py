"""The log directories of this broker: DescribeLogDirs (35), v0-4.

A directory that has failed is named with KAFKA_STORAGE_ERROR and without partitions. A replica that
is about to move is described twice: where it is, and as future where it will be.

Version notes: v2 flexible · v3 top-level error · v4 the size of the volume (KIP-827).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.errors import ErrorCode
from ottla.log.log import Log
from ottla.log.log_dir import LogDir
from ottla.log.log_manager import FutureReplica, LogManager
from ottla.network.request_context import RequestContext
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

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {ApiKey.DESCRIBE_LOG_DIRS: self.handle_describe_log_dirs}

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

        def is_wanted(topic_partition: TopicPartition) -> bool:
            return wanted is None or topic_partition in wanted

        logs = [log for log in self.log_manager.all_logs() if is_wanted(log.topic_partition)]
        return DescribeLogDirsResponse(
            results=[
                self._describe(log_dir, [log for log in logs if log.log_dir is log_dir], is_wanted)
                for log_dir in self.log_manager.dirs
            ]
        )

    def _describe(
        self, log_dir: LogDir, logs: list[Log], is_wanted: Callable[[TopicPartition], bool]
    ) -> DescribeLogDirsResult:
        result = DescribeLogDirsResult(log_dir=log_dir.path)
        if not log_dir.is_offline:
            try:
                result.total_bytes, result.usable_bytes = log_dir.disk.usage(log_dir.path)
            except OSError as error:
                log_dir.refused(error, f"asking for the size of {log_dir.path}")
        if log_dir.is_offline:
            result.error_code = int(ErrorCode.KAFKA_STORAGE_ERROR)
            return result
        futures = [
            replica
            for attachment in self.log_manager.attached
            for replica in attachment.replicas_into(log_dir)
            if is_wanted(replica.topic_partition)
        ]
        described = [*map(_described, logs), *map(_described_future, futures)]
        for (topic, _), partition in sorted(described, key=lambda each: each[0]):
            if not result.topics or result.topics[-1].name != topic:
                result.topics.append(DescribeLogDirsTopic(name=topic))
            result.topics[-1].partitions.append(partition)
        return result


def _described(log: Log) -> tuple[TopicPartition, DescribeLogDirsPartition]:
    return log.topic_partition, DescribeLogDirsPartition(
        partition_index=log.topic_partition.partition,
        partition_size=log.size_in_bytes,
        offset_lag=max(0, log.high_watermark - log.log_end_offset),
    )


def _described_future(replica: FutureReplica) -> tuple[TopicPartition, DescribeLogDirsPartition]:
    return replica.topic_partition, DescribeLogDirsPartition(
        partition_index=replica.topic_partition.partition,
        partition_size=replica.size_in_bytes,
        offset_lag=replica.offset_lag,
        is_future_key=True,
    )
