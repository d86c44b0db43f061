"""The log directories of brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.clients.admin.admin_client import AdminClient
from ottla.errors import ErrorCode, KafkaError
from ottla.network.timing import Deadline
from ottla.protocol.log_dirs import (
    UNKNOWN_BYTES,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.structs import TopicPartition


class ReplicaInfo(NamedTuple):
    """A replica in a log directory."""

    size_in_bytes: int
    offset_lag: int
    is_future: bool


class LogDirDescription(NamedTuple):
    """A log directory; one with an error cannot be used. Sizes are of its volume, -1: unknown."""

    error: ErrorCode
    replicas: dict[TopicPartition, ReplicaInfo]
    total_bytes: int = UNKNOWN_BYTES
    usable_bytes: int = UNKNOWN_BYTES


LogDirs = dict[str, LogDirDescription]


class LogDirAdmin:
    """Requests about log directories; each goes to the broker that has them."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def describe_log_dirs(self, broker_ids: Sequence[int]) -> dict[int, LogDirs | KafkaError]:
        admin = self._admin

        async def attempt(
            pending: list[int], deadline: Deadline
        ) -> dict[int, LogDirs | KafkaError]:
            if not set(pending) <= set(admin.client.node_ids):
                await admin.metadata.update(deadline)
            request = DescribeLogDirsRequest(topics=None)
            return {each: described(await admin.client.send(each, request)) for each in pending}

        return await admin.for_each(broker_ids, attempt)


def described(response: DescribeLogDirsResponse) -> LogDirs | KafkaError:
    """The directories by their paths."""
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
