"""Reacts to brokers that come, go, restart, shut down, or lose a log directory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from ottla.controller.active_feature import ActiveFeature
from ottla.controller.broker_registration import live_brokers
from ottla.controller.controller_context import LOOKS_AT_ONCE, PartitionReplica
from ottla.controller.controller_core import ControllerCore
from ottla.controller.leader_election import elect_for_shutdown, elect_offline
from ottla.controller.statuses import ReplicaStatus
from ottla.errors import ErrorCode, KafkaError
from ottla.registry import paths
from ottla.registry.tree import Delete, NoNodeError, Watch
from ottla.registry.znodes import decode_log_dir_event
from ottla.structs import NO_EPOCH, BrokerEndPoints, TopicPartition

logger = logging.getLogger(__name__)


class BrokerChanges:
    """Follows /brokers/ids: a broker lives if it is registered there, in that epoch."""

    def __init__(self, core: ControllerCore, features: Sequence[ActiveFeature]) -> None:
        self.core = core
        self.context = core.context
        self.features = features
        self._watches: dict[int, Watch] = {}

    async def load(self) -> None:
        """The brokers that live when the controller is elected."""
        for broker in (await live_brokers(self.core.fenced.registry)).values():
            self._add(broker)

    async def refresh(self) -> None:
        """Compare the registered brokers with those that are known."""
        registered = await live_brokers(self.core.fenced.registry)
        known = self.context.brokers
        dead = [broker for broker in known if broker not in registered]
        bounced = [
            broker.id
            for broker in registered.values()
            if broker.id in known and known[broker.id].epoch != broker.epoch
        ]
        new = [broker for broker in registered if broker not in known]
        self._follow_addresses(registered, bounced)
        if not (dead or bounced or new):
            return
        logger.info("brokers: new %s, dead %s, returned as new processes %s", new, dead, bounced)
        gone = sorted((*dead, *bounced))
        if gone:
            await self._on_failure(gone)
            await self.core.send()
        come = sorted((*new, *bounced))
        if come:
            await self._on_startup([registered[broker] for broker in come])

    def _follow_addresses(
        self, registered: Mapping[int, BrokerEndPoints], bounced: Collection[int]
    ) -> None:
        """Tell all brokers of one that has added or removed a listener."""
        known = self.context.brokers
        moved = [
            broker
            for broker in registered.values()
            if broker.id in known and broker.id not in bounced and known[broker.id] != broker
        ]
        for broker in moved:
            listeners = ", ".join(map(str, broker.endpoints))
            logger.info("broker %d has other listeners now: %s", broker.id, listeners)
            known[broker.id] = broker
        if moved:
            self.core.batch.add_metadata()

    def watch(self, on_change: Callable[[], object]) -> None:
        """Watch the nodes of the brokers that are known: they may change their listeners."""
        for broker_id in self._watches.keys() - self.context.brokers.keys():
            self._watches.pop(broker_id).cancel()
        for broker_id in self.context.brokers.keys() - self._watches.keys():
            path = paths.broker(broker_id)
            self._watches[broker_id] = self.core.fenced.registry.watch_data(path, on_change)

    def unwatch_all(self) -> None:
        for watch in self._watches.values():
            watch.cancel()
        self._watches.clear()

    def _add(self, broker: BrokerEndPoints) -> None:
        self.context.brokers[broker.id] = broker
        self.context.brokers = dict(sorted(self.context.brokers.items()))
        self.core.orders.add_broker(broker)

    async def _on_startup(self, brokers: Collection[BrokerEndPoints]) -> None:
        core, context = self.core, self.context
        ids = [broker.id for broker in brokers]
        for broker in brokers:
            self._add(broker)
        # As when a controller begins: all topics and brokers are known before the first order.
        core.batch.add_full_metadata(ids)
        core.batch.add_metadata()
        await core.send()
        partitions: dict[TopicPartition, None] = {}
        statuses, gone = context.replica_statuses, ReplicaStatus.DELETION_SUCCESSFUL
        found = await core.slices.do(context.replicas_on(ids))
        async for part in core.slices.parts(found, LOOKS_AT_ONCE):
            kept = [each for each in part if statuses.get(each) is not gone]
            core.replicas.bring_online(kept)
            partitions.update((each.topic_partition, None) for each in kept)
        await core.partitions.bring_back_online()
        for feature in self.features:
            await feature.on_replicas_online(partitions)
        if context.topics_to_delete:
            await core.deletion.release(dict.fromkeys(each.topic for each in partitions))

    async def _on_failure(self, brokers: Collection[int]) -> None:
        context = self.context
        for broker_id in brokers:
            del context.brokers[broker_id]
            context.shutting_down.discard(broker_id)
            context.offline.pop(broker_id, None)
            self.core.orders.remove_broker(broker_id)
        await self.on_replicas_lost(await self.core.slices.do(context.replicas_on(brokers)))

    async def on_replicas_lost(self, replicas: Collection[PartitionReplica]) -> None:
        """These can no longer be used: elect other leaders, and take them out of the ISRs."""
        core, context = self.core, self.context
        partitions = dict.fromkeys(replica.topic_partition for replica in replicas)
        leaderless = [
            partition
            async for partition in core.slices.over(partitions, LOOKS_AT_ONCE)
            if not context.is_to_be_deleted(partition)
            and context.state(partition) is not None
            and not context.has_live_leader(partition)
        ]
        async for part in core.slices.parts(leaderless, LOOKS_AT_ONCE):
            core.partitions.take_offline(part)
        await core.partitions.bring_online(leaderless, elect_offline)
        await core.replicas.take_offline(
            replica for replica in replicas if not context.is_to_be_deleted(replica.topic_partition)
        )
        if context.topics_to_delete:
            await core.deletion.on_replicas_lost(
                [each for each in replicas if context.is_to_be_deleted(each.topic_partition)]
            )

    async def shut_down(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leaders away from a broker that is about to stop; returns those that it still leads.

        Partitions without another replica are left out: nothing can be done about them.
        """
        core, context = self.core, self.context
        self.check_epoch(broker_id, broker_epoch)
        context.shutting_down.add(broker_id)
        replicas = await core.slices.do(context.replicas_on((broker_id,)))
        led: list[TopicPartition] = []
        followed: list[PartitionReplica] = []
        async for replica in core.slices.over(replicas, LOOKS_AT_ONCE):
            partition = replica.topic_partition
            is_shared = len(context.assignment(partition).replicas) > 1
            if not is_shared or context.is_to_be_deleted(partition):
                continue
            if self._leads(replica):
                led.append(partition)
            elif context.state(partition) is not None:
                followed.append(replica)
        await core.partitions.bring_online(led, elect_for_shutdown)
        await core.replicas.take_offline(followed)
        return [
            partition
            async for partition in core.slices.over(led, LOOKS_AT_ONCE)
            if self._leads(PartitionReplica(partition, broker_id))
        ]

    def _leads(self, replica: PartitionReplica) -> bool:
        state = self.context.state(replica.topic_partition)
        return state is not None and state.leader == replica.broker_id

    def check_epoch(self, broker_id: int, broker_epoch: int) -> None:
        """STALE_BROKER_EPOCH for a process that a newer one has replaced (KIP-380)."""
        broker = self.context.brokers.get(broker_id)
        if broker is None:
            raise KafkaError.of(
                ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered"
            )
        if broker_epoch not in (NO_EPOCH, broker.epoch):
            raise KafkaError.of(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker {broker_id} is registered in epoch {broker.epoch}, not {broker_epoch}",
            )

    async def read_log_dir_events(self) -> None:
        """Handle the notes of brokers whose log directories have failed, and remove the notes."""
        registry = self.core.fenced.registry
        names = await registry.children(paths.LOG_DIR_EVENTS)
        brokers = set()
        for name in names:
            try:
                data, _ = await registry.get(f"{paths.LOG_DIR_EVENTS}/{name}")
            except NoNodeError:
                continue  # a previous controller has read it meanwhile
            try:
                brokers.add(decode_log_dir_event(data))
            except KafkaError as error:
                logger.error("%s/%s is dropped: %s", paths.LOG_DIR_EVENTS, name, error)
        await self.on_log_dirs_failed(sorted(brokers))
        await self.core.fenced.write_each(
            [(Delete(f"{paths.LOG_DIR_EVENTS}/{name}"),) for name in names]
        )

    async def on_log_dirs_failed(self, brokers: Iterable[int]) -> None:
        """Send these brokers LeaderAndIsr again: their answers say which logs are offline.

        Deletions that wait for them are tried again, too: a log that a full disk had no room for
        is offline without a failed directory, and the broker can give it up.
        """
        live = [broker for broker in brokers if broker in self.context.brokers]
        await self._bring_online(await self.core.slices.do(self.context.replicas_on(live)))
        held_back = [each for each in self.context.held_back() if each.broker_id in live]
        for partition, broker_id in held_back:
            self.context.offline.get(broker_id, set()).discard(partition)
        await self.core.deletion.release(dict.fromkeys(each[0].topic for each in held_back))

    async def _bring_online(self, replicas: Iterable[PartitionReplica]) -> None:
        """Send LeaderAndIsr of those with which no deletion has begun."""
        used = (ReplicaStatus.ONLINE, ReplicaStatus.OFFLINE)
        statuses = self.context.replica_statuses
        known = (replica for replica in replicas if statuses.get(replica) in used)
        async for part in self.core.slices.parts(known, LOOKS_AT_ONCE):
            self.core.replicas.bring_online(part)

    async def on_answer(self, broker_id: int, answers: Mapping[TopicPartition, ErrorCode]) -> None:
        """A broker has answered LeaderAndIsr, and so said which of its logs are offline.

        What is back gets its order again: one to stop may have come behind the last one.
        """
        context = self.context
        if broker_id not in context.brokers:
            return
        before = context.offline.get(broker_id, set())
        failed = {
            partition
            for partition, error in answers.items()
            if error is ErrorCode.KAFKA_STORAGE_ERROR and context.contains(partition)
        }
        back = [each for each, error in answers.items() if each in before and not error]
        context.offline[broker_id] = before.difference(back) | failed
        new = failed - before
        if lost := [PartitionReplica(each, broker_id) for each in answers if each in new]:
            logger.error("broker %d: the logs of %d partitions are offline", broker_id, len(lost))
            await self.on_replicas_lost(lost)
        if back:
            await self._bring_online(PartitionReplica(each, broker_id) for each in back)
            await self.core.partitions.bring_back_online()
            await self.core.deletion.release(dict.fromkeys(each.topic for each in back))
