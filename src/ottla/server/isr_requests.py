"""AlterPartition from this broker, which leads partitions, to the controller (KIP-497)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.controller_requests import (
    AlterPartitionPartitionData,
    AlterPartitionPartitionResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicData,
    BrokerState,
)
from ottla.replication.in_sync_replicas import OnIsrChanged
from ottla.runtime.scheduler import pause
from ottla.server.ask_controller import AskController, error_of
from ottla.structs import NO_EPOCH, LeaderAndIsr, NamedTuple, TopicPartition

if TYPE_CHECKING:
    import asyncio
    from uuid import UUID

    from ottla.runtime import Runtime

logger = logging.getLogger(__name__)

RETRY_MS: Final = 50
MAX_DOUBLINGS: Final = 3
VERSION_WITH_BROKER_EPOCHS: Final = 3


class IsrChange(NamedTuple):
    """The ISR that a leader asks for, and the callback for the outcome."""

    topic_id: UUID
    state: LeaderAndIsr
    broker_epochs: Mapping[int, int]
    on_done: OnIsrChanged


class IsrRequests:
    """Sends one request at a time, with all changes that came while the last one was under way.

    A change is sent again until the controller has decided. A newer one for the same partition
    replaces one that has not been sent yet.
    """

    def __init__(
        self,
        runtime: Runtime,
        ask_controller: AskController,
        broker_id: int,
        broker_epoch: Callable[[], int],
        timeout_ms: int,
    ) -> None:
        self._runtime = runtime
        self._ask_controller = ask_controller
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
        """Ask for the in-sync replicas of `state`; see `AlterIsr`."""
        self._waiting[topic_partition] = IsrChange(topic_id, state, broker_epochs, on_done)
        if self._task is None and not self._is_closed:
            self._task = self._runtime.scheduler.spawn(self._run(), "alter partitions")

    def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        failures, told = 0, ""
        try:
            while self._waiting:
                asked, self._waiting = self._waiting, {}
                try:
                    results = await self._ask(asked)
                except (KafkaError, OSError) as error:
                    level = logging.DEBUG if str(error) == told else logging.INFO
                    told = str(error)
                    logger.log(level, "in-sync replicas of %d partitions: %s", len(asked), error)
                    # Changes that came meanwhile are newer, and take precedence.
                    self._waiting = asked | self._waiting
                    await pause(self._runtime.scheduler, RETRY_MS << failures)
                    failures = min(failures + 1, MAX_DOUBLINGS)
                    continue
                except Exception:
                    logger.exception("in-sync replicas of %s cannot be asked for", list(asked))
                    await self._give_up(asked)
                    continue
                failures, told = 0, ""
                if not self._tell(asked, results):
                    await pause(self._runtime.scheduler, RETRY_MS)
        finally:
            self._task = None

    async def _ask(
        self, asked: Mapping[TopicPartition, IsrChange]
    ) -> dict[TopicPartition, AlterPartitionPartitionResult]:
        request = alter_partition_request(self._broker_id, self._broker_epoch(), asked)
        response = await self._ask_controller(
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
        """Pass the outcomes on; returns whether all changes were decided. Others are sent again."""
        undecided = 0
        for topic_partition, change in asked.items():
            result = results.get(topic_partition)
            if result is None or result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
                self._waiting.setdefault(topic_partition, change)
                undecided += 1
            else:
                error = ErrorCode.of(result.error_code)
                self._end(topic_partition, change, error or state_of(result))
        return not undecided

    async def _give_up(self, asked: Mapping[TopicPartition, IsrChange]) -> None:
        """Ask for each change by itself; the leader of the wrong one gets the error."""
        for topic_partition, change in asked.items():
            alone = {topic_partition: change}
            try:
                if len(asked) > 1:
                    self._tell(alone, await self._ask(alone))
                    continue
            except (KafkaError, OSError):
                self._waiting.setdefault(topic_partition, change)
                continue
            except Exception:
                logger.exception("the in-sync replicas of %s cannot be asked for", topic_partition)
            self._end(topic_partition, change, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _end(
        self, topic_partition: TopicPartition, change: IsrChange, outcome: LeaderAndIsr | ErrorCode
    ) -> None:
        try:
            change.on_done(outcome)
        except Exception:
            logger.exception("the in-sync replicas of %s cannot be taken over", topic_partition)


def _partition_data(index: int, change: IsrChange) -> AlterPartitionPartitionData:
    isr = [
        BrokerState(broker_id=replica, broker_epoch=change.broker_epochs.get(replica, NO_EPOCH))
        for replica in change.state.isr
    ]
    return AlterPartitionPartitionData(
        partition_index=index,
        leader_epoch=change.state.leader_epoch,
        new_isr_with_epochs=isr,
        partition_epoch=change.state.version,
    )


def alter_partition_request(
    broker_id: int, broker_epoch: int, changes: Mapping[TopicPartition, IsrChange]
) -> AlterPartitionRequest:
    """One request for all changes."""
    topics: dict[UUID, AlterPartitionTopicData] = {}
    for topic_partition, change in changes.items():
        topic = topics.setdefault(
            change.topic_id, AlterPartitionTopicData(topic_id=change.topic_id)
        )
        topic.partitions.append(_partition_data(topic_partition.partition, change))
    return AlterPartitionRequest(
        broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values())
    )


def state_of(result: AlterPartitionPartitionResult) -> LeaderAndIsr:
    """The partition's state according to the controller."""
    return LeaderAndIsr(
        result.leader_id, result.leader_epoch, tuple(result.isr), result.partition_epoch
    )
