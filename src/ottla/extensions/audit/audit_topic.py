"""The topic of audit records: a broker writes to a partition that it leads, or asks a leader.

The topic is made where it is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.produce import (
    FIRST_VERSION_WITH_IDS,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.record.batch_builder import build_batch_of_values
from ottla.replication.append_results import ACKS_ALL
from ottla.replication.replica_manager import ReplicaManager
from ottla.runtime import Runtime
from ottla.server.broker_connections import BrokerConnections, Purpose
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import TopicPartition

WRITE_TIMEOUT_MS: Final = 10_000


class AuditTopic:
    """Writes batches to the audit topic."""

    def __init__(
        self,
        name: str,
        runtime: Runtime,
        replica_manager: ReplicaManager,
        cache: MetadataCache,
        create_topic: Callable[[str], Awaitable[object]],
        connections: BrokerConnections | None,
    ) -> None:
        self.name = name
        self.runtime = runtime
        self.replica_manager = replica_manager
        self.cache = cache
        self.create_topic = create_topic
        self.connections = connections

    async def write(self, values: list[bytes]) -> None:
        """Have a batch on all in-sync replicas of some partition.

        Raises:
            KafkaError: it is not, or may not be.
        """
        try:
            if self.cache.topic(self.name) is None:
                await self.create_topic(self.name)
            leaders = self._leaders()
            batch = build_batch_of_values(values, self.runtime.clock.now_ms())
            own = [tp for tp in leaders if self._is_led_here(tp)]
            if own:
                await self._append(own[0], batch)
            elif leaders and self.connections is not None:
                await self._ask(*self.runtime.random.choice(list(leaders.items())), batch)
            else:
                raise KafkaError.of(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"no partition of {self.name} has a leader"
                )
        except OSError as error:
            raise KafkaError.of(ErrorCode.NETWORK_EXCEPTION, str(error)) from error

    def _leaders(self) -> dict[TopicPartition, int]:
        topic = self.cache.topic(self.name)
        partitions = () if topic is None else sorted(topic.partitions)
        found = {
            each: self.cache.leader(each)
            for each in (TopicPartition(self.name, index) for index in partitions)
        }
        return {partition: leader for partition, leader in found.items() if leader >= 0}

    def _is_led_here(self, topic_partition: TopicPartition) -> bool:
        known = self.replica_manager.partitions.get(topic_partition)
        return known is not None and known.is_leader

    async def _append(self, topic_partition: TopicPartition, batch: bytes) -> None:
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def respond(results: Mapping[TopicPartition, Any]) -> None:
            if not done.done():
                done.set_result(results[topic_partition].error)

        records = {topic_partition: memoryview(bytearray(batch))}
        self.replica_manager.append_records(WRITE_TIMEOUT_MS, ACKS_ALL, records, respond)
        self.replica_manager.complete_delayed()  # those that wait for records need not wait longer
        _check(await done, topic_partition)

    async def _ask(self, topic_partition: TopicPartition, leader: int, batch: bytes) -> None:
        assert self.connections is not None
        data = PartitionProduceData(index=topic_partition.partition, records=memoryview(batch))
        request = ProduceRequest(
            transactional_id=None,
            acks=ACKS_ALL,
            timeout_ms=WRITE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=self.name, partition_data=[data])],
        )
        node = self.connections.node(leader)
        response = await self.connections.ask(
            node, Purpose.AUDIT, request, high=FIRST_VERSION_WITH_IDS - 1
        )
        assert isinstance(response, ProduceResponse)
        (topic,) = response.responses
        (partition,) = topic.partition_responses
        _check(ErrorCode.of(partition.error_code), topic_partition)


def _check(error: ErrorCode, topic_partition: TopicPartition) -> None:
    if error is not ErrorCode.NONE:
        raise KafkaError.of(error, f"{topic_partition} did not take audit records")
