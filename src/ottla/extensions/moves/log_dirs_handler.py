"""AlterReplicaLogDirs (34), v1-2: replicas move to other log directories of this broker.

Version notes: v2 flexible.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.moves.moves import Moves
from ottla.extensions.moves.replica_moves import ReplicaMoves
from ottla.network.request_context import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.protocol.topic_name import validate_topic_name
from ottla.replication.replica_manager import ReplicaManager
from ottla.server.api import Handler
from ottla.server.parts import Parts
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)


class AlterLogDirsHandler:
    """Brings the wishes of administrators to the moves of this broker."""

    def __init__(self, moves: ReplicaMoves, replica_manager: ReplicaManager) -> None:
        self.moves = moves
        self.replica_manager = replica_manager

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {ApiKey.ALTER_REPLICA_LOG_DIRS: self.handle_alter_replica_log_dirs}

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


def new_log_dirs_handler(broker: Parts) -> AlterLogDirsHandler:
    """The handler of moves between log directories."""
    moves = broker.find(Moves)
    assert moves is not None, "every broker has them, as their setting has a default"
    return AlterLogDirsHandler(moves.replica_moves, broker.replica_manager)
