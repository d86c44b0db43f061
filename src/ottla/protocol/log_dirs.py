"""The log directories of a broker (KIP-113): DescribeLogDirs (35), AlterReplicaLogDirs (34)."""

from __future__ import annotations

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Array, Boolean, Int16, Int32, Int64, String, field

UNKNOWN_BYTES = -1


class DescribableLogDirTopic(Struct):
    """The partitions of a topic that are asked about."""

    topic: str = field(String)
    partitions: list[int] = field(Array(Int32))


class DescribeLogDirsRequest(Request, api_key=35, flexible="2+"):
    """Ask a broker about its log directories (KIP-113); null topics ask for all. v2 flexible."""

    topics: list[DescribableLogDirTopic] | None = field(
        Array(DescribableLogDirTopic), nullable="0+"
    )


class DescribeLogDirsPartition(Struct):
    """A replica; `is_future_key` says that it is about to move into this directory."""

    partition_index: int = field(Int32)
    partition_size: int = field(Int64)
    offset_lag: int = field(Int64)
    is_future_key: bool = field(Boolean)


class DescribeLogDirsTopic(Struct):
    """The replicas of a topic in one directory."""

    name: str = field(String)
    partitions: list[DescribeLogDirsPartition] = field(Array(DescribeLogDirsPartition))


class DescribeLogDirsResult(Struct):
    """A directory, or why it cannot be used; and the volume that it is on (KIP-827)."""

    error_code: int = field(Int16)
    log_dir: str = field(String)
    topics: list[DescribeLogDirsTopic] = field(Array(DescribeLogDirsTopic))
    total_bytes: int = field(Int64, versions="4+", default=UNKNOWN_BYTES, ignorable=True)
    usable_bytes: int = field(Int64, versions="4+", default=UNKNOWN_BYTES, ignorable=True)


class DescribeLogDirsResponse(Response, api_key=35, flexible="2+"):
    """Every directory. v2 flexible · v3 an error of its own · v4 the size of the volume."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16, versions="3+", ignorable=True)
    results: list[DescribeLogDirsResult] = field(Array(DescribeLogDirsResult))


class AlterReplicaLogDirTopic(Struct):
    """Partitions of a topic that must be in a directory."""

    name: str = field(String)
    partitions: list[int] = field(Array(Int32))


class AlterReplicaLogDir(Struct):
    """A directory, and the partitions that must be in it."""

    path: str = field(String)
    topics: list[AlterReplicaLogDirTopic] = field(Array(AlterReplicaLogDirTopic))


class AlterReplicaLogDirsRequest(Request, api_key=34, flexible="2+"):
    """Have replicas of a broker move to other directories of it. v2 flexible."""

    dirs: list[AlterReplicaLogDir] = field(Array(AlterReplicaLogDir))


class AlterReplicaLogDirPartitionResult(Struct):
    """Whether the replica moves to the directory, or is in it already."""

    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class AlterReplicaLogDirTopicResult(Struct):
    """The replicas of a topic."""

    topic_name: str = field(String)
    partitions: list[AlterReplicaLogDirPartitionResult] = field(
        Array(AlterReplicaLogDirPartitionResult)
    )


class AlterReplicaLogDirsResponse(Response, api_key=34, flexible="2+"):
    """An answer for each replica; DescribeLogDirs shows when the move has ended."""

    throttle_time_ms: int = field(Int32)
    results: list[AlterReplicaLogDirTopicResult] = field(Array(AlterReplicaLogDirTopicResult))
