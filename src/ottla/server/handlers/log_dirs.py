"""The log directories of this broker: DescribeLogDirs (35), v0-4; AlterReplicaLogDirs (34), v1-2.

A directory that has failed is named with KAFKA_STORAGE_ERROR and without partitions. A replica that
is about to move is described twice: where it is, and as future where it will be.

Version notes: Describe: v2 flexible · v3 top-level error · v4 the size of the volume (KIP-827);
Alter: v2 flexible.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from ottla.errors import ErrorCode, KafkaError
from ottla.log.log import Log
from ottla.log.log_dir import LogDir, validate_topic_name
from ottla.log.log_manager import LogManager
from ottla.log.replica_moves import ReplicaMove, ReplicaMoves
from ottla.network.connection import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.replication.replica_manager import ReplicaManager
from ottla.server.apis import Handler
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)


class LogDirsHandler:
    """Answers from the logs as they are in memory; only the volume is asked of the disk."""

    def __init__(
        self, log_manager: LogManager, moves: ReplicaMoves, replica_manager: ReplicaManager
    ) -> None:
        self.log_manager = log_manager
        self.moves = moves
        self.replica_manager = replica_manager

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_LOG_DIRS: self.handle_describe_log_dirs,
            ApiKey.ALTER_REPLICA_LOG_DIRS: self.handle_alter_replica_log_dirs,
        }

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
        moves = [m for m in self.moves.into(log_dir) if is_wanted(m.topic_partition)]
        described = [_described(log) for log in logs] + [_described_future(move) for move in moves]
        for (topic, _), partition in sorted(described, key=lambda each: each[0]):
            if not result.topics or result.topics[-1].name != topic:
                result.topics.append(DescribeLogDirsTopic(name=topic))
            result.topics[-1].partitions.append(partition)
        return result

    def handle_alter_replica_log_dirs(
        self, context: RequestContext, body: AlterReplicaLogDirsRequest
    ) -> AlterReplicaLogDirsResponse:
        results: dict[str, AlterReplicaLogDirTopicResult] = {}
        wanted = [
            (TopicPartition(topic.name, index), each.path)
            for each in body.dirs
            for topic in each.topics
            for index in topic.partitions
        ]
        for topic_partition, path in wanted:
            error = self._alter(topic_partition, path)
            topic, index = topic_partition
            result = results.setdefault(topic, AlterReplicaLogDirTopicResult(topic_name=topic))
            result.partitions.append(
                AlterReplicaLogDirPartitionResult(partition_index=index, error_code=int(error))
            )
        return AlterReplicaLogDirsResponse(results=list(results.values()))

    def _alter(self, topic_partition: TopicPartition, path: str) -> ErrorCode:
        try:
            validate_topic_name(topic_partition.topic)
            if topic_partition in self.replica_manager.offline_partitions:
                return ErrorCode.KAFKA_STORAGE_ERROR
            self.moves.alter(topic_partition, path)
        except KafkaError as error:
            logger.info("%s is not moved to %s: %s", topic_partition, path, error)
            return error.error
        return ErrorCode.NONE


def _described(log: Log) -> tuple[TopicPartition, DescribeLogDirsPartition]:
    return log.topic_partition, DescribeLogDirsPartition(
        partition_index=log.topic_partition.partition,
        partition_size=log.size_in_bytes,
        offset_lag=max(0, log.high_watermark - log.log_end_offset),
    )


def _described_future(move: ReplicaMove) -> tuple[TopicPartition, DescribeLogDirsPartition]:
    return move.topic_partition, DescribeLogDirsPartition(
        partition_index=move.topic_partition.partition,
        partition_size=move.size_in_bytes,
        offset_lag=max(0, move.log.log_end_offset - move.end_offset),
        is_future_key=True,
    )
