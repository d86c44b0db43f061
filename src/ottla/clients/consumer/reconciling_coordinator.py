"""A consumer in a consumer group (KIP-848): its partitions follow the coordinator's assignment."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.clients.consumer.consumer_coordinator import (
    METADATA_LIMIT_MS,
    ConsumerCoordinator,
    Offsets,
)
from ottla.clients.consumer.consumer_group_member import (
    ConsumerGroupMember,
    PartitionId,
    Partitions,
)
from ottla.clients.consumer.subscription_state import RebalanceKind
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.scheduler import pause
from ottla.runtime.timing import Deadline
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.clients.metadata import Cluster

logger = logging.getLogger(__name__)

STALE_EPOCH_RETRIES = 5


class ReconcilingCoordinator(ConsumerCoordinator):
    """Revokes and takes partitions as the coordinator assigns them, and commits with the epoch.

    `_unnamed` says that the target has partitions whose topic names are not known yet.
    """

    member: ConsumerGroupMember
    _unnamed = False

    def _new_member(self) -> ConsumerGroupMember:
        return ConsumerGroupMember(
            self._client, self.link, self._config, self._subscriptions, self._on_change
        )

    def on_metadata(self, cluster: Cluster) -> None:
        """A pattern may match other topics now, and the ids of some may have become known."""
        if self._unnamed:
            self.member.request_join()
        else:
            self.member.wake()

    async def _join(self) -> None:
        """One step of the reconciliation: join, revoke, report, take."""
        member = self.member
        if member.is_lost:
            await self._lose()
        is_new = not member.is_joined
        await member.join()
        member.needs_join = False  # until a later event sets it again
        assigned = await self._named(member.target)
        owned = set(self._subscriptions.assigned)
        # By id: a topic that was deleted and created again has other partitions of the same names.
        kept = sorted(each for each in owned & assigned.keys() if assigned[each] in member.owned)
        revoked = sorted(owned.difference(kept))
        if revoked:
            async with self._during_poll():
                await self._revoke(revoked)
                if member.is_joined:
                    self._subscriptions.replace(kept)
        if not member.is_joined:
            return  # the membership was lost meanwhile: start again
        added = sorted(assigned.keys() - set(kept))
        self._subscriptions.replace([*kept, *added])
        member.own(frozenset(assigned.values()))
        if is_new or added:
            await self._tell(RebalanceKind.ASSIGNED, added)

    async def _named(self, target: Partitions) -> dict[TopicPartition, PartitionId]:
        """The partitions by their topics' names; those without a known name are left out.

        A new metadata request is waited for only once: a name may be missing for long, and the
        next metadata that come are the reason to look again.
        """
        found = self._with_names(target)
        if len(found) < len(target) and not self._unnamed:
            try:
                await self._metadata.update(Deadline(self._runtime.clock, METADATA_LIMIT_MS))
            except KafkaError as error:
                logger.debug("the topics of group %s are not known: %s", self.link.group_id, error)
            found = self._with_names(target)
        self._unnamed = len(found) < len(target)
        if self._unnamed:
            self._metadata.request_update()
        return found

    def _with_names(self, target: Iterable[PartitionId]) -> dict[TopicPartition, PartitionId]:
        topics = self._metadata.cluster.topics.values()
        names = {topic.topic_id: topic.name for topic in topics}
        return {
            TopicPartition(names[each.topic_id], each.partition): each
            for each in target
            if each.topic_id in names
        }

    async def _commit_as(self, number: int, offsets: Offsets, deadline: Deadline) -> None:
        """Commit; if the epoch has just changed, try again with the new one."""
        for attempt in range(STALE_EPOCH_RETRIES):
            try:
                await super()._commit_as(number, offsets, deadline)
                return
            except KafkaError as error:
                if error.error is not ErrorCode.STALE_MEMBER_EPOCH or deadline.has_passed:
                    raise
                if attempt + 1 == STALE_EPOCH_RETRIES:
                    raise
            self.member.wake()
            await pause(self._runtime.scheduler, self._backoff.delay_ms(attempt + 1))
            offsets = self._not_overtaken(number, offsets)
            if not offsets:
                return
