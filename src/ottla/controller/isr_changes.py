"""Changes of in-sync replicas, as the leaders of partitions ask for them (KIP-497)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.controller.active_feature import ActiveFeature
from ottla.controller.broker_changes import BrokerChanges
from ottla.controller.controller_context import PARTITIONS_AT_ONCE
from ottla.controller.controller_core import ControllerCore
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import NO_EPOCH, LeaderAndIsr, TopicPartition

Outcomes = dict[TopicPartition, LeaderAndIsr | KafkaError]


class IsrChanges:
    """Takes the new ISR of a partition from its leader, if the leader knows the latest state."""

    def __init__(
        self, core: ControllerCore, brokers: BrokerChanges, features: Sequence[ActiveFeature]
    ) -> None:
        self.core = core
        self.context = core.context
        self.brokers = brokers
        self.features = features

    async def alter(
        self,
        broker_id: int,
        broker_epoch: int,
        changes: Mapping[TopicPartition, LeaderAndIsr],
        broker_epochs: Mapping[TopicPartition, Mapping[int, int]],
    ) -> Outcomes:
        """The new states, or why a change was refused."""
        self.brokers.check_epoch(broker_id, broker_epoch)
        outcomes: Outcomes = {}
        async for part in self.core.slices.parts(changes.items(), PARTITIONS_AT_ONCE):
            outcomes |= await self._alter(broker_id, dict(part), broker_epochs)
        return outcomes

    async def _alter(
        self,
        broker_id: int,
        changes: Mapping[TopicPartition, LeaderAndIsr],
        broker_epochs: Mapping[TopicPartition, Mapping[int, int]],
    ) -> Outcomes:
        outcomes: Outcomes = {}
        wanted = {}
        for partition, asked in changes.items():
            try:
                epochs = broker_epochs.get(partition, {})
                current = self._check(broker_id, partition, asked, epochs)
            except KafkaError as error:
                outcomes[partition] = error
                if error.error is ErrorCode.INVALID_UPDATE_VERSION:
                    # It missed a change, and would be refused until it is sent the current state.
                    self.core.batch.add_leader_and_isr((broker_id,), partition)
                continue
            outcomes[partition] = current
            if asked.isr != current.isr:
                wanted[partition] = current._replace(isr=asked.isr)
        written, refused = await self.core.store.write_states(wanted)
        for partition, state in written.items():
            self.context.set_state(partition, state)
            outcomes[partition] = state
        await self.core.states.read_again(refused)
        for partition in refused:
            outcomes[partition] = KafkaError.of(
                ErrorCode.INVALID_UPDATE_VERSION, f"the state of {partition} has been written since"
            )
        self.core.batch.add_metadata(written)
        for feature in self.features:
            await feature.on_isr_changes(written)
        return outcomes

    def _check(
        self,
        broker_id: int,
        partition: TopicPartition,
        asked: LeaderAndIsr,
        broker_epochs: Mapping[int, int],
    ) -> LeaderAndIsr:
        """The current state that the change is based on; KafkaError if the change is not valid."""
        current = self.context.state(partition)
        if current is None or self.context.is_to_be_deleted(partition):
            raise KafkaError.of(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}"
            )
        if asked.leader_epoch > current.leader_epoch or asked.version > current.version:
            raise KafkaError.of(
                ErrorCode.NOT_CONTROLLER, f"{partition} is known to be newer than it is here"
            )
        if asked.leader_epoch < current.leader_epoch:
            raise KafkaError.of(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{partition} is in leader epoch {current.leader_epoch}, not {asked.leader_epoch}",
            )
        if asked.isr == current.isr:  # done already, and the answer was lost
            return current
        if asked.version < current.version:
            raise KafkaError.of(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"{partition} has version {current.version}, not {asked.version}",
            )
        if broker_id != current.leader or broker_id not in asked.isr:
            raise KafkaError.of(
                ErrorCode.INVALID_REQUEST,
                f"{partition} is led by broker {current.leader}, which alone says who is in sync, "
                f"itself among them; broker {broker_id} asks for {list(asked.isr)}",
            )
        self._check_added(partition, current, asked, broker_epochs)
        return current

    def _check_added(
        self,
        partition: TopicPartition,
        current: LeaderAndIsr,
        asked: LeaderAndIsr,
        broker_epochs: Mapping[int, int],
    ) -> None:
        """INELIGIBLE_REPLICA for one that cannot be in sync, or was in sync as an older process.

        The epoch of the broker tells its processes apart (KIP-903).
        """
        context = self.context
        replicas = context.assignment(partition).replicas
        for replica in asked.isr:
            if replica in current.isr and replica in replicas:
                continue
            broker = context.brokers.get(replica)
            epoch = broker_epochs.get(replica, NO_EPOCH)
            if (
                replica not in replicas
                or broker is None
                or replica in context.shutting_down
                or epoch not in (NO_EPOCH, broker.epoch)
            ):
                raise KafkaError.of(
                    ErrorCode.INELIGIBLE_REPLICA,
                    f"{partition}: broker {replica} (epoch {epoch}) cannot be in sync: it has no "
                    "replica, does not live, is shutting down or is another process now",
                )
