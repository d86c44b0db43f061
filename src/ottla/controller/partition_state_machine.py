"""The states of partitions: moved from one to the next, written first, then sent to brokers."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from ottla.config.broker_config import BrokerConfig
from ottla.controller.broker_request_batch import BrokerRequestBatch
from ottla.controller.controller_context import LOOKS_AT_ONCE, PARTITIONS_AT_ONCE, ControllerContext
from ottla.controller.entity_configs import TOPICS, EntityConfigs
from ottla.controller.leader_election import (
    Candidates,
    LeaderElection,
    elect_offline,
    elect_unclean,
    initial_state,
)
from ottla.controller.statuses import PARTITION_PREDECESSORS, PartitionStatus
from ottla.controller.stored_states import StoredStates
from ottla.errors import KafkaError
from ottla.registry.tree import RegistryFailedError
from ottla.runtime.scheduler import Slices
from ottla.structs import LeaderAndIsr, TopicPartition

logger = logging.getLogger(__name__)


UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"


class PartitionStateMachine:
    """The only class that changes the statuses of partitions and gives them leaders."""

    def __init__(
        self,
        context: ControllerContext,
        states: StoredStates,
        configs: EntityConfigs,
        config: BrokerConfig,
        batch: BrokerRequestBatch,
        slices: Slices,
    ) -> None:
        self.context = context
        self.states = states
        self.configs = configs
        self.config = config
        self.batch = batch
        self.slices = slices
        self.unclean_elections = 0
        """How many partitions got a leader that was not in sync."""

    async def load(self) -> None:
        """Set the statuses of all partitions, as a newly elected controller finds them."""
        context = self.context
        async for partition in self.slices.over(context.all_partitions(), LOOKS_AT_ONCE):
            if context.state(partition) is None:
                status = PartitionStatus.NEW
            elif context.has_live_leader(partition):
                status = PartitionStatus.ONLINE
            else:
                status = PartitionStatus.OFFLINE
            context.partition_statuses[partition] = status

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """They exist now, without a leader."""
        self._move(partitions, PartitionStatus.NEW)

    def take_offline(self, partitions: Iterable[TopicPartition]) -> None:
        """Their leaders are dead."""
        self._move(partitions, PartitionStatus.OFFLINE)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """They are being deleted."""
        self._move(partitions, PartitionStatus.NON_EXISTENT)

    async def bring_online(
        self, partitions: Iterable[TopicPartition], elect: LeaderElection
    ) -> list[TopicPartition]:
        """Give each a leader, the first one or the next; returns those that got none."""
        failed: list[TopicPartition] = []
        statuses = self.context.partition_statuses
        async for part in self.slices.parts(partitions, PARTITIONS_AT_ONCE):
            allowed = self._allowed(part, PartitionStatus.ONLINE)
            new = [each for each in allowed if statuses[each] is PartitionStatus.NEW]
            others = [each for each in allowed if statuses[each] is not PartitionStatus.NEW]
            failed += [*await self._start(new), *await self._elect(others, elect)]
        return failed

    async def bring_back_online(self) -> list[TopicPartition]:
        """Try every partition that has no leader: brokers may have come that can lead."""
        context = self.context
        return await self.bring_online(
            [
                partition
                async for partition, status in self.slices.over(
                    context.partition_statuses.items(), 10 * LOOKS_AT_ONCE
                )
                if status in (PartitionStatus.NEW, PartitionStatus.OFFLINE)
                and not context.is_to_be_deleted(partition)
            ],
            elect_offline,
        )

    async def _start(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Write first states, where a replica lives; the replicas learn that they are new."""
        context = self.context
        wanted = {}
        for partition in partitions:
            replicas = context.assignment(partition).replicas
            state = initial_state(replicas, context.live_replicas(partition))
            if state is not None:
                wanted[partition] = state
        if wanted:
            await self.states.create(wanted)
        for partition in wanted:
            if context.state(partition) is not None:
                self._lead(partition, is_new=True)
        return [partition for partition in partitions if partition not in wanted]

    async def _elect(
        self, partitions: list[TopicPartition], elect: LeaderElection
    ) -> list[TopicPartition]:
        failed: list[TopicPartition] = []
        unclean: dict[str, bool] = {}
        uncleanly: dict[TopicPartition, int] = {}
        for topic in sorted({each.topic for each in partitions if self._lacks_isr(each)}):
            unclean[topic] = elect is elect_offline and await self._unclean_allowed(topic)

        def choose(partition: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | None:
            candidates = self._candidates(partition, state)
            self.unclean_elections -= uncleanly.pop(partition, 0)  # it is chosen again
            elected = elect(candidates)
            allowed = elected is None and unclean.get(partition.topic)
            if allowed and (elected := elect_unclean(candidates)):
                logger.warning("%s: broker %d leads uncleanly", partition, elected.leader)
                uncleanly[partition] = 1
                self.unclean_elections += 1  # before it is written: of that we may not learn
            if elected is None:
                failed.append(partition)
            return elected

        for partition in await self.states.change(partitions, choose):
            self._lead(partition)
        return failed

    def _candidates(self, partition: TopicPartition, state: LeaderAndIsr) -> Candidates:
        assignment = self.context.assignment(partition)
        return Candidates(
            state,
            assignment.replicas,
            self.context.live_replicas(partition),
            sorted(self.context.shutting_down),
            assignment.target,
        )

    def _lacks_isr(self, partition: TopicPartition) -> bool:
        state = self.context.state(partition)
        live = self.context.live_replicas(partition)
        return state is not None and not any(replica in live for replica in state.isr)

    def _lead(self, partition: TopicPartition, is_new: bool = False) -> None:
        self.context.partition_statuses[partition] = PartitionStatus.ONLINE
        self.batch.add_leader_and_isr(self.context.reachable_replicas(partition), partition, is_new)

    async def _unclean_allowed(self, topic: str) -> bool:
        """The value of the topic's overrides, or else of the broker's settings.

        Overrides that cannot be read may forbid it: better no leader than records lost.
        """
        try:
            overrides = await self.configs.read(TOPICS, topic)
        except RegistryFailedError:
            raise
        except KafkaError as error:
            logger.error("there will be no unclean leader of %s: %s", topic, error)
            return False
        if UNCLEAN_ELECTION in overrides:
            return overrides[UNCLEAN_ELECTION].lower() == "true"
        return self.config.unclean_leader_election_enable

    def _move(self, partitions: Iterable[TopicPartition], target: PartitionStatus) -> None:
        for partition in self._allowed(partitions, target):
            self.context.partition_statuses[partition] = target

    def _allowed(
        self, partitions: Iterable[TopicPartition], target: PartitionStatus
    ) -> list[TopicPartition]:
        predecessors = PARTITION_PREDECESSORS[target]
        allowed = []
        for partition in partitions:
            status = self.context.partition_statuses.get(partition, PartitionStatus.NON_EXISTENT)
            if status in predecessors:
                allowed.append(partition)
            else:
                logger.error("%s is in %s and cannot go to %s", partition, status, target)
        return allowed
