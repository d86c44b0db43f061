"""AlterPartition from this broker, which leads partitions, to the controller (KIP-497)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.network.timing import pause
from ottla.protocol.controller_requests import (
    AlterPartitionPartitionData,
    AlterPartitionPartitionResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicData,
    BrokerState,
)
from ottla.protocol.message import Response
from ottla.replication.partition_leader import OnIsrChanged
from ottla.runtime import Runtime
from ottla.server.controller_channel import ControllerChannel
from ottla.structs import NO_EPOCH, LeaderAndIsr, TopicPartition

logger = logging.getLogger(__name__)

RETRY_MS: Final = 50
VERSION_WITH_BROKER_EPOCHS: Final = 3


class IsrChange(NamedTuple):
    """What a leader asks for, and who wants to hear what came of it."""

    topic_id: UUID
    state: LeaderAndIsr
    broker_epochs: Mapping[int, int]
    on_done: OnIsrChanged


class IsrRequests:
    """One request at a time, with everything that was asked for while the last one was under way.

    A change is asked for until the controller has decided. A newer one for the same partition
    takes the place of one that has not been sent yet.
    """

    def __init__(
        self,
        runtime: Runtime,
        controller: ControllerChannel,
        broker_id: int,
        broker_epoch: Callable[[], int],
        timeout_ms: int,
    ) -> None:
        self._runtime = runtime
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._timeout_ms = timeout_ms
        self._waiting: dict[TopicPartition, IsrChange] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def alter_isr(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        state: LeaderAndIsr,
        broker_epochs: Mapping[int, int],
        on_done: OnIsrChanged,
    ) -> None:
        """Ask for the in-sync replicas of `state`; see `IsrChannel`."""
        self._waiting[topic_partition] = IsrChange(topic_id, state, broker_epochs, on_done)
        if self._task is None and not self._is_closed:
            self._task = self._runtime.scheduler.spawn(self._run(), "alter partitions")

    def close(self) -> None:
        """Ask for nothing any more."""
        self._is_closed = True
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        try:
            while self._waiting:
                asked, self._waiting = self._waiting, {}
                try:
                    results = await self._ask(asked)
                except (KafkaError, OSError) as error:
                    logger.info("in-sync replicas of %d partitions: %s", len(asked), error)
                    # Not over what was asked for meanwhile, which is newer.
                    self._waiting = asked | self._waiting
                    await pause(self._runtime.scheduler, RETRY_MS)
                    continue
                if not self._tell(asked, results):
                    await pause(self._runtime.scheduler, RETRY_MS)
        finally:
            self._task = None

    async def _ask(
        self, asked: Mapping[TopicPartition, IsrChange]
    ) -> dict[TopicPartition, AlterPartitionPartitionResult]:
        request = alter_partition_request(self._broker_id, self._broker_epoch(), asked)
        response = await self._controller.ask(
            request, self._timeout_ms, low=VERSION_WITH_BROKER_EPOCHS, error_of=error_of
        )
        assert isinstance(response, AlterPartitionResponse)
        if response.error_code:
            raise KafkaError.of(response.error_code, "AlterPartition was refused")
        names = {change.topic_id: tp.topic for tp, change in asked.items()}
        return {
            TopicPartition(names[topic.topic_id], result.partition_index): result
            for topic in response.topics
            for result in topic.partitions
        }

    def _tell(
        self,
        asked: Mapping[TopicPartition, IsrChange],
        results: Mapping[TopicPartition, AlterPartitionPartitionResult],
    ) -> bool:
        """Whether all of it was decided; what was not is asked for again."""
        undecided = 0
        for topic_partition, change in asked.items():
            result = results.get(topic_partition)
            if result is None or result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
                self._waiting.setdefault(topic_partition, change)
                undecided += 1
            elif result.error_code:
                change.on_done(ErrorCode.of(result.error_code))
            else:
                change.on_done(state_of(result))
        return not undecided


def error_of(response: Response) -> int:
    """NOT_CONTROLLER also where only some partitions are known to be newer than they are there.

    Then there is a controller after the one that was asked. What this one has done already, the
    other will find done.
    """
    assert isinstance(response, AlterPartitionResponse)
    for topic in response.topics:
        for result in topic.partitions:
            if result.error_code == ErrorCode.NOT_CONTROLLER:
                return result.error_code
    return response.error_code


def alter_partition_request(
    broker_id: int, broker_epoch: int, changes: Mapping[TopicPartition, IsrChange]
) -> AlterPartitionRequest:
    """One request for all changes."""
    topics: dict[UUID, AlterPartitionTopicData] = {}
    for topic_partition, change in changes.items():
        topic = topics.setdefault(
            change.topic_id, AlterPartitionTopicData(topic_id=change.topic_id)
        )
        topic.partitions.append(
            AlterPartitionPartitionData(
                partition_index=topic_partition.partition,
                leader_epoch=change.state.leader_epoch,
                new_isr_with_epochs=[
                    BrokerState(
                        broker_id=replica, broker_epoch=change.broker_epochs.get(replica, NO_EPOCH)
                    )
                    for replica in change.state.isr
                ],
                partition_epoch=change.state.version,
            )
        )
    return AlterPartitionRequest(
        broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values())
    )


def state_of(result: AlterPartitionPartitionResult) -> LeaderAndIsr:
    """The state that is in force."""
    return LeaderAndIsr(
        result.leader_id, result.leader_epoch, tuple(result.isr), result.partition_epoch
    )
