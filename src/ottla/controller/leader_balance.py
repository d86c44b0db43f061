"""Leaders are moved back to preferred replicas: by elections on request, and periodic ones."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from ottla.controller.controller_context import LOOKS_AT_ONCE
from ottla.controller.controller_core import ControllerCore
from ottla.controller.leader_election import elect_preferred, elect_unclean
from ottla.errors import ErrorCode, KafkaError
from ottla.registry import paths
from ottla.registry.tree import Delete
from ottla.registry.znodes import decode_preferred_elections
from ottla.structs import ElectionType, TopicPartition

logger = logging.getLogger(__name__)


class LeaderBalance:
    """Elects preferred leaders, and unclean ones where an operator asks for them."""

    def __init__(self, core: ControllerCore) -> None:
        self.core = core
        self.context = core.context

    async def elect(
        self, election: ElectionType, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect, and return each result; None means all partitions that need such an election."""
        context = self.context
        wanted = context.all_partitions() if partitions is None else partitions
        results: dict[TopicPartition, KafkaError | None] = {}
        async for partition in self.core.slices.over(wanted, LOOKS_AT_ONCE):
            error = self._why_not(election, partition)
            if partitions is not None or error is None:
                results[partition] = error
        needed = [partition for partition, error in results.items() if error is None]
        elect = elect_preferred if election is ElectionType.PREFERRED else elect_unclean
        failed = await self.core.partitions.bring_online(needed, elect)
        async for partition in self.core.slices.over(failed, LOOKS_AT_ONCE):
            results[partition] = _not_available(election, partition)
        return results

    def _why_not(self, election: ElectionType, partition: TopicPartition) -> KafkaError | None:
        context = self.context
        if not context.contains(partition) or context.is_to_be_deleted(partition):
            return KafkaError.of(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}"
            )
        state = context.state(partition)
        if state is None:
            return _not_available(election, partition)
        if election is ElectionType.PREFERRED:
            is_needed = state.leader != context.assignment(partition).replicas[0]
        else:
            is_needed = not context.has_live_leader(partition)
        if is_needed:
            return None
        return KafkaError.of(
            ErrorCode.ELECTION_NOT_NEEDED, f"{partition} is led by broker {state.leader} already"
        )

    async def read_node(self) -> None:
        """A tool has written /admin/preferred_replica_election: elect, and remove the node."""
        found = await self.core.fenced.read_wish(paths.PREFERRED_REPLICA_ELECTION)
        if found is None:
            return
        data, stat = found
        try:
            partitions = decode_preferred_elections(data)
        except KafkaError as error:
            logger.error("%s is removed: %s", paths.PREFERRED_REPLICA_ELECTION, error)
            partitions = []
        results = await self.elect(ElectionType.PREFERRED, partitions)
        for partition, refusal in results.items():
            if refusal is not None and refusal.error is not ErrorCode.ELECTION_NOT_NEEDED:
                logger.warning("%s gets no preferred leader: %s", partition, refusal)
        await self.core.fenced.write(Delete(paths.PREFERRED_REPLICA_ELECTION, stat.version))

    async def rebalance(self) -> None:
        """Elect the preferred leaders of brokers that lead too few of their partitions.

        That is, other brokers lead more than leader.imbalance.per.broker.percentage of those
        whose preferred leader it is.
        """
        context = self.context
        preferred: dict[int, list[TopicPartition]] = {}
        async for partition in self.core.slices.over(context.all_partitions(), LOOKS_AT_ONCE):
            if not context.is_to_be_deleted(partition) and context.state(partition) is not None:
                first = context.assignment(partition).replicas[0]
                preferred.setdefault(first, []).append(partition)
        for broker_id, partitions in sorted(preferred.items()):
            elsewhere = [
                partition
                async for partition in self.core.slices.over(partitions, LOOKS_AT_ONCE)
                if (state := context.state(partition)) is not None and state.leader != broker_id
            ]
            limit = self.core.config.leader_imbalance_per_broker_percentage
            if 100 * len(elsewhere) > limit * len(partitions):
                await self._lead_again(broker_id, elsewhere)

    async def _lead_again(self, broker_id: int, partitions: Collection[TopicPartition]) -> None:
        context = self.context
        possible = [
            partition
            async for partition in self.core.slices.over(partitions, LOOKS_AT_ONCE)
            if context.is_online(partition, broker_id)
            and not context.assignment(partition).is_being_reassigned
            and (state := context.state(partition)) is not None
            and broker_id in state.isr
        ]
        if possible:
            logger.info("broker %d shall lead %d partitions again", broker_id, len(possible))
            await self.core.partitions.bring_online(possible, elect_preferred)


def _not_available(election: ElectionType, partition: TopicPartition) -> KafkaError:
    if election is ElectionType.PREFERRED:
        return KafkaError.of(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"the preferred leader of {partition} does not live or is not in sync",
        )
    return KafkaError.of(
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {partition} lives"
    )
