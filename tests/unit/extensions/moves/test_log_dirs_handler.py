"""AlterReplicaLogDirs: which replicas move to another log directory of the broker."""

from __future__ import annotations

from types import SimpleNamespace

from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.moves.log_dirs_handler import AlterLogDirsHandler
from ottla.protocol.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.structs import TopicPartition


class Moves:
    """Notes the moves that are asked for; one directory is not there."""

    def __init__(self):
        self.asked = []

    def alter(self, topic_partition, path):
        if path == "/nowhere":
            raise KafkaError.of(ErrorCode.LOG_DIR_NOT_FOUND, path)
        self.asked.append((topic_partition, path))


def alter(moves, path, *partitions):
    """The topics of the answer, with the error codes of their partitions."""
    replicas = SimpleNamespace(offline_partitions={TopicPartition("offline", 0)})
    topics = [AlterReplicaLogDirTopic(name=name, partitions=list(p)) for name, p in partitions]
    body = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
    answer = AlterLogDirsHandler(moves, replicas).handle_alter_replica_log_dirs(None, body)
    return {
        each.topic_name: [(p.partition_index, p.error_code) for p in each.partitions]
        for each in answer.results
    }


def test_each_partition_is_moved_or_refused_alone():
    """No file outside of a log directory can be named, and a failed log cannot be moved."""
    moves = Moves()
    assert alter(moves, "/b", ("t", [0, 1]), ("offline", [0, 1]), ("../x", [0])) == {
        "t": [(0, 0), (1, 0)],
        "offline": [(0, ErrorCode.KAFKA_STORAGE_ERROR), (1, 0)],
        "../x": [(0, ErrorCode.INVALID_TOPIC_EXCEPTION)],
    }
    assert moves.asked == [
        (TopicPartition("t", 0), "/b"),
        (TopicPartition("t", 1), "/b"),
        (TopicPartition("offline", 1), "/b"),
    ]
    assert alter(moves, "/nowhere", ("t", [0])) == {"t": [(0, ErrorCode.LOG_DIR_NOT_FOUND)]}
