"""Deletes topics: a topic goes when every replica has, those on dead brokers later.

marked -> brokers leave the topic out of their metadata -> every live replica is deleted
    -> all are gone: the topic's nodes are removed
    -> some are on dead brokers: the topic is ineligible until they are back
    -> a node may not be removed: the topic is ineligible until a client asks again
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping

from ottla.controller.broker_request_batch import BrokerRequestBatch
from ottla.controller.controller_context import ControllerContext, PartitionReplica
from ottla.controller.entity_configs import TOPICS, EntityConfigs
from ottla.controller.partition_state_machine import PartitionStateMachine
from ottla.controller.replica_state_machine import ReplicaStateMachine
from ottla.controller.statuses import PartitionStatus, ReplicaStatus
from ottla.controller.topic_store import TopicStore
from ottla.errors import ErrorCode, KafkaError
from ottla.registry.tree import RegistryError, RegistryFailedError
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)


class TopicDeletion:
    """Continues deletions as far as the live brokers allow.

    `ineligible` are the topics to be deleted that wait: for dead brokers, or, with the registry's
    error if it refused to remove one of their nodes, for another request or controller.
    """

    def __init__(
        self,
        context: ControllerContext,
        store: TopicStore,
        configs: EntityConfigs,
        partitions: PartitionStateMachine,
        replicas: ReplicaStateMachine,
        batch: BrokerRequestBatch,
    ) -> None:
        self.context = context
        self.store = store
        self.configs = configs
        self.partitions = partitions
        self.replicas = replicas
        self.batch = batch
        self.ineligible: dict[str, KafkaError | None] = {}
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    def mark(self, topics: Iterable[str]) -> None:
        """Mark these topics for deletion; the registry says so already."""
        self.context.topics_to_delete.update(dict.fromkeys(topics))

    def hold(self, topics: Iterable[str]) -> None:
        """Do not begin to delete these, or not again, before they are released."""
        for topic in topics:
            if topic in self.context.topics_to_delete:
                self.ineligible[topic] = None
                self._wake(topic)

    async def release(self, topics: Iterable[str]) -> None:
        """Continue with these: their event has happened, or a client asks again."""
        known = [topic for topic in topics if topic in self.context.topics_to_delete]
        if known:
            for topic in known:
                self.ineligible.pop(topic, None)
            await self.resume()

    def settled(self, topic: str) -> asyncio.Future[None]:
        """A future: done when the topic is gone or waits for a broker; it raises a refusal."""
        if self.batch.is_over:
            raise _abandoned()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if topic in self.context.topics_to_delete and topic not in self.ineligible:
            self._waiting.setdefault(topic, []).append(future)
        else:
            _settle(future, self.ineligible.get(topic))
        return future

    def abandon(self) -> None:
        """The controller has resigned: its successor continues; waiting callers get an error."""
        for futures in self._waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(_abandoned())
                    future.exception()  # the caller may be gone: mark the error as seen

    async def resume(self) -> None:
        """Finish the deletions that can be finished, and begin those that can begin."""
        for topic in list(self.context.topics_to_delete):
            if topic in self.ineligible:
                continue
            statuses = self._statuses(topic)
            if statuses <= {ReplicaStatus.DELETION_SUCCESSFUL}:
                await self._finish(topic)
            elif ReplicaStatus.DELETION_STARTED not in statuses:
                await self._begin(topic)

    async def on_answer(self, broker_id: int, answers: Mapping[TopicPartition, ErrorCode]) -> None:
        """A broker has answered which replicas it deleted, and which it could not."""
        deleted: list[PartitionReplica] = []
        failed: list[PartitionReplica] = []
        given_up: dict[str, None] = {}
        for topic_partition, error in answers.items():
            replica = PartitionReplica(topic_partition, broker_id)
            status = self.context.replica_statuses.get(replica)
            if status is ReplicaStatus.DELETION_STARTED:
                (deleted if error is ErrorCode.NONE else failed).append(replica)
            elif status is ReplicaStatus.DELETION_INELIGIBLE and error is ErrorCode.NONE:
                # An earlier answer, that its log is offline, was heard after the order.
                self.context.offline.get(broker_id, set()).discard(topic_partition)
                given_up[topic_partition.topic] = None
        self.replicas.end_deletion(deleted)
        await self.fail(failed)
        await self.release(given_up)
        await self.resume()

    async def fail(self, replicas: Collection[PartitionReplica]) -> None:
        """These cannot be deleted before their brokers are back."""
        if replicas:
            self.replicas.postpone_deletion(replicas)
            self.hold(dict.fromkeys(replica.topic_partition.topic for replica in replicas))

    async def on_replicas_lost(self, replicas: Collection[PartitionReplica]) -> None:
        """Replicas of topics to be deleted are on brokers that have died."""
        statuses = self.context.replica_statuses
        used = (ReplicaStatus.NEW, ReplicaStatus.ONLINE)
        await self.replicas.take_offline(each for each in replicas if statuses[each] in used)
        pending = (ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_STARTED)
        await self.fail([each for each in replicas if statuses[each] in pending])

    def _statuses(self, topic: str) -> set[ReplicaStatus]:
        context = self.context
        return {
            context.replica_statuses.get(replica, ReplicaStatus.DELETION_SUCCESSFUL)
            for replica in context.replicas_of(context.topics[topic].partitions)
        }

    async def _begin(self, topic: str) -> None:
        context = self.context
        partitions = context.topics[topic].partitions
        existing = [
            partition
            for partition in partitions
            if context.partition_statuses.get(partition) is not PartitionStatus.NON_EXISTENT
        ]
        self.partitions.take_offline(existing)
        self.partitions.forget(existing)
        self.batch.add_deleted_topic(topic)
        left = [
            replica
            for replica in context.replicas_of(partitions)
            if context.replica_statuses.get(replica) is not ReplicaStatus.DELETION_SUCCESSFUL
        ]
        live = [replica for replica in left if context.is_online(*replica)]
        dead = [replica for replica in left if not context.is_online(*replica)]
        await self.replicas.take_offline(left)
        self.replicas.start_deletion(live)
        await self.fail(dead)

    async def _finish(self, topic: str) -> None:
        """Remove the topic's nodes; where one is refused, as by an ACL, the topic has to wait."""
        try:
            await self._remove_nodes(topic)
        except RegistryFailedError:
            raise
        except RegistryError as error:
            logger.error(
                "topic %s has no records left, but it cannot be deleted: %s; "
                "delete it again once that is mended",
                topic,
                error,
            )
            self.ineligible[topic] = error
            self._wake(topic)
            return
        self.context.remove_topic(topic)
        self._wake(topic)
        logger.info("deleted topic %s", topic)

    async def _remove_nodes(self, topic: str) -> None:
        overrides = await self.configs.plan(TOPICS, topic, None)
        if overrides.operations:
            await self.store.fenced.write(*overrides.operations)
        if overrides.has_news:  # before the topic goes: a successor would repeat it
            await self.configs.notify(TOPICS, topic)
        await self.store.remove(topic)

    def _wake(self, topic: str) -> None:
        for future in self._waiting.pop(topic, ()):
            if not future.done():
                _settle(future, self.ineligible.get(topic))


def _settle(future: asyncio.Future[None], refusal: KafkaError | None) -> None:
    if refusal is None:
        future.set_result(None)
    else:
        future.set_exception(refusal)


def _abandoned() -> KafkaError:
    return KafkaError.of(ErrorCode.NOT_CONTROLLER, "another controller goes on with the deletion")
