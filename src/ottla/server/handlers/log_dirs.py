"""The log directories of this broker: DescribeLogDirs (35), v0-4.

A directory that has failed is named with KAFKA_STORAGE_ERROR and without partitions. A replica that
is about to move is described twice: where it is, and as future where it will be.

Version notes: v2 flexible · v3 top-level error · v4 the size of the volume (KIP-827).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Final

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
from ottla.runtime import Slices
from ottla.runtime.scheduler import Work
from ottla.server.api import Answer, Handler, begin
from ottla.structs import TopicPartition

PartitionsByTopic = dict[str, list[DescribeLogDirsPartition]]
LOGS_IN_A_SLICE: Final = 500
"""Each sums up the sizes of its segments."""
TOPICS_IN_A_SLICE: Final = 1_000


class LogDirsHandler:
    """Answers from the logs as they are in memory; only the volume is asked of the disk."""

    def __init__(self, log_manager: LogManager, slices: Slices) -> None:
        self.log_manager = log_manager
        self.slices = slices

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {ApiKey.DESCRIBE_LOG_DIRS: self.handle_describe_log_dirs}

    def handle_describe_log_dirs(
        self, context: RequestContext, body: DescribeLogDirsRequest
    ) -> Answer:
        return begin(self.slices, context, self._describe_all(body))

    def _describe_all(self, body: DescribeLogDirsRequest) -> Work[DescribeLogDirsResponse]:
        wanted = None
        if body.topics is not None:
            wanted = {
                TopicPartition(topic.topic, partition)
                for topic in body.topics
                for partition in topic.partitions
            }

        def is_wanted(topic_partition: TopicPartition) -> bool:
            return wanted is None or topic_partition in wanted

        found: dict[str, PartitionsByTopic] = {each.path: {} for each in self.log_manager.dirs}
        for number, log in enumerate(self.log_manager.all_logs(), 1):
            topic_partition = log.topic_partition
            if is_wanted(topic_partition) and log.log_dir.path in found:
                topics = found[log.log_dir.path]
                topics.setdefault(topic_partition.topic, []).append(_described(log))
            if not number % LOGS_IN_A_SLICE:
                yield
        response = DescribeLogDirsResponse()
        for log_dir in self.log_manager.dirs:
            result = yield from self._describe(log_dir, found.get(log_dir.path, {}), is_wanted)
            response.results.append(result)
        return response

    def _describe(
        self,
        log_dir: LogDir,
        topics: PartitionsByTopic,
        is_wanted: Callable[[TopicPartition], bool],
    ) -> Work[DescribeLogDirsResult]:
        result = DescribeLogDirsResult(log_dir=log_dir.path)
        if not log_dir.is_offline:
            try:
                result.total_bytes, result.usable_bytes = log_dir.disk.usage(log_dir.path)
            except OSError as error:
                log_dir.refused(error, f"asking for the size of {log_dir.path}")
        if log_dir.is_offline:
            result.error_code = int(ErrorCode.KAFKA_STORAGE_ERROR)
            return result
        for attachment in self.log_manager.attached:
            for replica in attachment.replicas_into(log_dir):
                topic = replica.topic_partition.topic
                if is_wanted(replica.topic_partition):
                    topics.setdefault(topic, []).append(_described_future(replica))
        for number, topic in enumerate(sorted(topics), 1):
            partitions = sorted(topics[topic], key=attrgetter("partition_index"))
            result.topics.append(DescribeLogDirsTopic(name=topic, partitions=partitions))
            if not number % TOPICS_IN_A_SLICE:
                yield
        return result


def _described(log: Log) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=log.topic_partition.partition,
        partition_size=log.size_in_bytes,
        offset_lag=max(0, log.high_watermark - log.log_end_offset),
    )


def _described_future(replica: FutureReplica) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=replica.topic_partition.partition,
        partition_size=replica.size_in_bytes,
        offset_lag=replica.offset_lag,
        is_future_key=True,
    )
