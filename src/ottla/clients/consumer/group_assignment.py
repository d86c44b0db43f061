"""The consumer protocol of a group: what members say they want, and how the leader divides it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from ottla.clients.cluster import Cluster
from ottla.clients.consumer.assignors import Assignor, MemberSubscription
from ottla.clients.consumer.subscription_state import SubscriptionState
from ottla.clients.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla.clients.metadata import Metadata
from ottla.errors import ErrorCode, KafkaError
from ottla.network.timing import Deadline
from ottla.protocol.group import JoinGroupResponseMember
from ottla.runtime import Buffer
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

METADATA_LIMIT_MS = 10_000


class GroupAssignment:
    """Implements `GroupProtocol` for consumers.

    `owned` is what this member was given last, in `generation`. A leader remembers the partition
    counts that it divided by: when they change, the group has to rebalance.
    """

    def __init__(
        self,
        assignors: Sequence[Assignor],
        subscriptions: SubscriptionState,
        metadata: Metadata,
        new_deadline: Callable[[int], Deadline],
    ) -> None:
        self.owned: Sequence[TopicPartition] = ()
        self.generation = -1
        self.is_cooperative = all(assignor.cooperative for assignor in assignors)
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._subscriptions = subscriptions
        self._metadata = metadata
        self._new_deadline = new_deadline
        self._joined_with: frozenset[str] = frozenset()
        self._group_topics: frozenset[str] = frozenset()
        self._divided: Mapping[str, int] | None = None

    def metadata(self) -> list[tuple[str, bytes]]:
        """The subscription, for each assignor; called when the member joins."""
        self._joined_with = self._subscriptions.topics
        self._group_topics = frozenset()
        self._divided = None
        protocols = []
        for name, assignor in self._assignors.items():
            subscription = MemberSubscription(
                sorted(self._subscriptions.topics),
                # Under the eager protocol everything was revoked before joining.
                self.owned if self.is_cooperative else (),
                self.generation,
                user_data=assignor.user_data(self.owned, self.generation),
            )
            protocols.append((name, encode_subscription(subscription)))
        return protocols

    async def assign(
        self, name: str, members: Sequence[JoinGroupResponseMember]
    ) -> Mapping[str, bytes]:
        """Divide the partitions of all topics that any member wants."""
        assignor = self._assignors.get(name)
        if assignor is None:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"the coordinator chose the assignor {name!r}, which this member does not have",
            )
        subscriptions = {
            member.member_id: decode_subscription(member.metadata, member.group_instance_id)
            for member in members
        }
        topics = {topic for member in subscriptions.values() for topic in member.topics}
        await self._learn_of(topics)
        counts = self._metadata.cluster.partition_counts(sorted(topics))
        self._group_topics = frozenset(topics)
        self._divided = counts
        assignment = assignor.assign(counts, subscriptions)
        logger.info("as leader, divided %s by %s: %s", counts, name, assignment)
        return {member_id: encode_assignment(share) for member_id, share in assignment.items()}

    def read(self, assignment: Buffer) -> list[TopicPartition]:
        """The own share; a member that was given nothing may get no bytes at all."""
        return decode_assignment(assignment) if assignment else []

    def is_outdated(self, cluster: Cluster) -> bool:
        """Whether the group has to divide anew: topics came, went or grew."""
        if self._subscriptions.topics != self._joined_with:
            return True
        if self._divided is None:
            return False
        return cluster.partition_counts(sorted(self._group_topics)) != self._divided

    async def _learn_of(self, topics: set[str]) -> None:
        """Have metadata of topics that only other members want."""
        if not topics <= self._metadata.cluster.topics.keys():
            self._metadata.want(topics)
            await self._metadata.update(self._new_deadline(METADATA_LIMIT_MS))
