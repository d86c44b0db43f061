"""The log directories of brokers, and the replicas in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ottla.clients.network_client import response_error
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.log_dirs import (
    UNKNOWN_BYTES,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.runtime.scheduler import gather_each
from ottla.structs import NamedTuple, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ottla.clients.admin.admin_client import AdminClient
    from ottla.protocol.message import Request
    from ottla.runtime.timing import Deadline

T = TypeVar("T")


class ReplicaInfo(NamedTuple):
    """A replica in a log directory."""

    size_in_bytes: int
    offset_lag: int
    is_future: bool


class LogDirDescription(NamedTuple):
    """A log directory; unusable if it has an error. Sizes are of its volume, -1: unknown."""

    error: ErrorCode
    replicas: dict[TopicPartition, ReplicaInfo]
    total_bytes: int = UNKNOWN_BYTES
    usable_bytes: int = UNKNOWN_BYTES


LogDirs = dict[str, LogDirDescription]


class TopicPartitionReplica(NamedTuple):
    """The replica of a partition that a broker has, written `topic-3-1`."""

    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.broker_id}"


Outcomes = dict[TopicPartitionReplica, KafkaError | None]


class LogDirAdmin:
    """Requests about log directories; each is sent to the broker that has them."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def describe_log_dirs(self, broker_ids: Sequence[int]) -> dict[int, LogDirs | KafkaError]:
        request = DescribeLogDirsRequest(topics=None)
        return await self._of_each(broker_ids, lambda _: request, lambda _, got: described(got))

    async def alter_replica_log_dirs(
        self, targets: Mapping[TopicPartitionReplica, str]
    ) -> Outcomes:
        mine: dict[int, dict[TopicPartitionReplica, str]] = {}
        for replica, path in targets.items():
            mine.setdefault(replica.broker_id, {})[replica] = path
        answers = await self._of_each(
            sorted(mine), lambda broker: alteration(mine[broker]), outcomes_of
        )
        outcomes: Outcomes = {}
        for broker, answer in answers.items():
            if isinstance(answer, KafkaError):
                answer = dict.fromkeys(mine[broker], answer)
            outcomes |= answer
        return outcomes

    async def _of_each(
        self,
        broker_ids: Iterable[int],
        request_to: Callable[[int], Request],
        taken: Callable[[int, Any], T | KafkaError],
    ) -> dict[int, T | KafkaError]:
        """The answer of each broker, or its error: one that hangs keeps back no other's."""
        admin = self._admin

        async def ask(broker: int) -> T | KafkaError:
            try:
                return taken(broker, await admin.client.send(broker, request_to(broker)))
            except KafkaError as error:
                return error

        async def attempt(pending: list[int], deadline: Deadline) -> dict[int, T | KafkaError]:
            if not set(pending) <= set(admin.client.node_ids):
                await admin.metadata.update(deadline)
            return dict(zip(pending, await gather_each(ask, pending), strict=True))

        return await admin.for_each(broker_ids, attempt)


def alteration(targets: Mapping[TopicPartitionReplica, str]) -> AlterReplicaLogDirsRequest:
    """The request to the broker that has these replicas."""
    dirs: dict[str, dict[str, list[int]]] = {}
    for (topic, partition, _), path in targets.items():
        dirs.setdefault(path, {}).setdefault(topic, []).append(partition)
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=name, partitions=partitions)
                    for name, partitions in topics.items()
                ],
            )
            for path, topics in dirs.items()
        ]
    )


def outcomes_of(broker_id: int, response: AlterReplicaLogDirsResponse) -> Outcomes:
    """The errors of the broker's replicas, None for success."""
    return {
        (replica := TopicPartitionReplica(topic.topic_name, row.partition_index, broker_id)): (
            response_error(row.error_code, str(replica))
        )
        for topic in response.results
        for row in topic.partitions
    }


def described(response: DescribeLogDirsResponse) -> LogDirs | KafkaError:
    """The directories of a response by their paths."""
    if response.error_code:
        return KafkaError(ErrorCode.of(response.error_code))
    return {
        result.log_dir: LogDirDescription(
            ErrorCode.of(result.error_code),
            {
                TopicPartition(topic.name, replica.partition_index): ReplicaInfo(
                    replica.partition_size, replica.offset_lag, replica.is_future_key
                )
                for topic in result.topics
                for replica in topic.partitions
            },
            result.total_bytes,
            result.usable_bytes,
        )
        for result in response.results
    }
