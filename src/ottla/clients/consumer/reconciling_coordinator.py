"""A consumer as a member of a consumer group (KIP-848): its partitions follow the coordinator's."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ottla.clients.cluster import Cluster
from ottla.clients.consumer.consumer_coordinator import (
    REVOKE_COMMIT_LIMIT_MS,
    ConsumerCoordinator,
    Offsets,
)
from ottla.clients.consumer.consumer_group_member import (
    ConsumerGroupMember,
    PartitionId,
    Partitions,
)
from ottla.clients.consumer.rebalance import RebalanceKind
from ottla.errors import ErrorCode, KafkaError
from ottla.network.timing import Deadline, pause
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

METADATA_LIMIT_MS = 10_000
STALE_EPOCH_RETRIES = 5


class ReconcilingCoordinator(ConsumerCoordinator):
    """Gives up what the coordinator wants back, takes what it gives, and commits in the epoch.

    `_unnamed` says that there are partitions among the target whose topics are not known yet.
    """

    member: ConsumerGroupMember
    _unnamed = False

    def _new_member(self) -> ConsumerGroupMember:
        return ConsumerGroupMember(
            self._client, self.link, self._config, self._subscriptions, self._on_change
        )

    def on_metadata(self, cluster: Cluster) -> None:
        """A pattern may stand for other topics now, and the ids of some may have become known."""
        if self._unnamed:
            self.member.request_join()
        else:
            self.member.wake()

    async def _join(self) -> None:
        """One step of the reconciliation: be in the group, let go, tell, take."""
        member = self.member
        if member.is_lost:
            await self._lose()
        is_new = not member.is_joined
        await member.join()
        member.needs_join = False  # until someone says otherwise from here on
        assigned = await self._named(member.target)
        owned = set(self._subscriptions.assigned)
        kept = sorted(owned & assigned.keys())
        revoked = sorted(owned - assigned.keys())
        if revoked:
            await self.auto_commit(self.positions(), REVOKE_COMMIT_LIMIT_MS)
            await self._tell(RebalanceKind.REVOKED, revoked)
        if not member.is_joined:
            return  # it was put out meanwhile, and begins anew
        added = sorted(assigned.keys() - owned)
        self._subscriptions.replace([*kept, *added])
        member.own(frozenset(assigned.values()))
        if is_new or added:
            await self._tell(RebalanceKind.ASSIGNED, added)

    async def _named(self, target: Partitions) -> dict[TopicPartition, PartitionId]:
        """The partitions by the names of their topics; those without a name have to wait."""
        found = self._with_names(target)
        if len(found) < len(target):
            await self._metadata.update(Deadline(self._runtime.clock, METADATA_LIMIT_MS))
            found = self._with_names(target)
        self._unnamed = len(found) < len(target)
        return found

    def _with_names(self, target: Iterable[PartitionId]) -> dict[TopicPartition, PartitionId]:
        topics = self._metadata.cluster.topics.values()
        names = {topic.topic_id: topic.name for topic in topics}
        return {
            TopicPartition(names[each.topic_id], each.partition): each
            for each in target
            if each.topic_id in names
        }

    async def commit_once(self, offsets: Offsets, deadline: Deadline) -> None:
        """Commit; where the epoch has just changed, once more in the new one."""
        for attempt in range(STALE_EPOCH_RETRIES):
            try:
                await super().commit_once(offsets, deadline)
                return
            except KafkaError as error:
                if error.error is not ErrorCode.STALE_MEMBER_EPOCH or deadline.has_passed:
                    raise
                if attempt + 1 == STALE_EPOCH_RETRIES:
                    raise
            self.member.wake()
            await pause(self._runtime.scheduler, self._backoff.delay_ms(attempt + 1))
