"""A consumer as a member of its group: rebalances, step by step, and commits."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from typing import cast

from ottla.clients.client_settings import retry_backoff
from ottla.clients.committed_offsets import (
    NO_MEMBERSHIP,
    GroupMembership,
    commit_offsets,
    fetch_offsets,
)
from ottla.clients.consumer.assignors import Assignor, MemberSubscription, assignors_of
from ottla.clients.consumer.group_member import GroupMember
from ottla.clients.consumer.membership import Membership
from ottla.clients.consumer.subscription_state import (
    RebalanceEvent,
    RebalanceKind,
    SubscriptionState,
)
from ottla.clients.group_coordination import CoordinatorLink
from ottla.clients.metadata import Cluster, Metadata
from ottla.clients.network_client import NetworkClient, check_code
from ottla.clients.retrying import Retrying, ended_by, may_pass
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.config.client_config import ConsumerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    partitions_of,
)
from ottla.protocol.group import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    JoinGroupResponseMember,
)
from ottla.runtime import Buffer
from ottla.runtime.scheduler import pause
from ottla.runtime.timing import Deadline
from ottla.structs import NO_GENERATION, NO_UUID, IsolationLevel, TopicPartition

logger = logging.getLogger(__name__)


METADATA_LIMIT_MS = 10_000


class ConsumerCoordinator:
    """Runs the rebalances of one consumer, each as a task, and commits for it.

    A rebalance stops at each event until the application has handled it (`acknowledge`); a poll
    gets the events from `step`. It takes partitions away, and commits for the application, only
    during a poll, which returns no records while `is_revoking`: the records of earlier polls have
    been handled by then. Else a record would be committed before it is handled, or handled twice.
    """

    def __init__(
        self,
        client: NetworkClient,
        metadata: Metadata,
        subscriptions: SubscriptionState,
        config: ConsumerConfig,
        on_change: Callable[[], object],
    ) -> None:
        assert config.group_id is not None, "there is no group"
        self._runtime = client.runtime
        self._client = client
        self._metadata = metadata
        self._subscriptions = subscriptions
        self._config = config
        self._on_change = on_change
        self.link = CoordinatorLink(metadata, client, config.group_id)
        self._assignment = GroupAssignment(
            assignors_of(config.partition_assignment_strategy),
            subscriptions,
            metadata,
            lambda limit_ms: Deadline(self._runtime.clock, limit_ms),
        )
        self.member: Membership = self._new_member()
        self.member.on_lost = self._lose
        self.positions: Callable[[], Offsets] = dict
        self.is_revoking = False
        self.commit_error: KafkaError | None = None
        """That of the last commit, if it failed."""
        self.commits_automatically = config.enable_auto_commit
        self.before_revoke: BeforeRevoke = _nothing_to_finish
        """Awaited, in a poll, before the positions of partitions that go are committed."""
        self._commits = self._commits_under_way = 0
        self._committed: dict[TopicPartition, int] = {}
        """The number of the latest commit of each partition, while any commit is under way."""
        self._unanswered: set[int] = set()
        self._answered = asyncio.Event()
        self._rebalance: asyncio.Task[None] | None = None
        self._next_poll: asyncio.Future[None] | None = None
        self._events: deque[tuple[RebalanceEvent, asyncio.Future[None]]] = deque()
        self._backoff = retry_backoff(config, self._runtime)

    def _new_member(self) -> Membership:
        member = GroupMember(
            self._client,
            self.link,
            self._config,
            self._assignment.metadata,
            self._assignment.assign,
            self._on_change,
        )
        member.resume = self._resume
        return member

    async def _resume(self, members: Sequence[JoinGroupResponseMember]) -> None:
        """Lead again after a restart: topics may have changed while no leader looked at them."""
        try:
            limit = Deadline(self._runtime.clock, self._config.request_timeout_ms)
            request = DescribeGroupsRequest(groups=[self.link.group_id])
            answer = await self._client.send(await self.link.node_id(limit), request)
            (group,) = cast(DescribeGroupsResponse, answer).groups
            check_code(group.error_code, f"group {self.link.group_id}")
            shares = [self._assignment.read(each.member_assignment) for each in group.members]
        except (KafkaError, ValueError) as error:
            logger.info("group %s: its assignment is not known: %s", self.link.group_id, error)
            shares = None
        await self._assignment.resume(members, shares)

    # Rebalancing

    @property
    def is_settled(self) -> bool:
        """Whether the group currently requires nothing of this member."""
        return self._rebalance is None and not self.member.needs_join and self.member.error is None

    def step(self) -> RebalanceEvent | None:
        """Begin or continue a rebalance, if any; returns the event to tell the application of.

        Raises errors that are not retriable.
        """
        if self.member.error is not None:
            error, self.member.error = self.member.error, None
            raise error
        if self._rebalance is not None and self._rebalance.done():
            task, self._rebalance = self._rebalance, None
            if task.cancelled():  # by the application, as one of all its tasks
                self.member.needs_join = True
            else:
                task.result()
        if self._rebalance is None and self.member.needs_join:
            name = f"rebalance of group {self.link.group_id}"
            self._rebalance = asyncio.get_running_loop().create_task(self._join(), name=name)
            self._rebalance.add_done_callback(self._on_rebalanced)
        if self._next_poll is not None and not self._next_poll.done():
            self._next_poll.set_result(None)
            self.is_revoking = True
        return self._events[0][0] if self._events else None

    def acknowledge(self) -> None:
        """The application has handled the event that `step` returned."""
        if self._events:
            _, told = self._events.popleft()
            if not told.done():
                told.set_result(None)

    def on_metadata(self, cluster: Cluster) -> None:
        """Topics may have been created, deleted or have grown."""
        if self._assignment.is_outdated(cluster):
            self.member.request_join()

    async def leave(self, reason: str) -> None:
        """Cancel a rebalance in progress and leave the group."""
        if self._rebalance is not None:
            self._rebalance.cancel()
            self._rebalance = None
        self._events.clear()
        await self.member.leave(reason)
        self._own((), NO_GENERATION)

    def _on_rebalanced(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # `step` raises it, unless the client is closed
        self._on_change()

    async def _join(self) -> None:
        """One rebalance: give up partitions, join, take the new assignment."""
        assert isinstance(self.member, GroupMember)
        await self._prepare()
        joined = await self.member.join()
        assigned = self._assignment.read(joined.assignment)
        owned = set(self._subscriptions.assigned)
        revoked = sorted(owned - set(assigned))
        if revoked:  # only under the cooperative protocol: else nothing is owned here
            async with self._during_poll():
                await self._revoke(revoked)
            # They can be assigned to others in the next round (KIP-429).
            self.member.needs_join = True
        self._subscriptions.replace(assigned)
        self._own(assigned, self.member.generation)
        await self._tell(RebalanceKind.ASSIGNED, sorted(set(assigned) - owned))
        if self._assignment.is_outdated(self._metadata.cluster):
            # Metadata that came since the division were too early for `on_metadata`.
            self.member.needs_join = True

    async def _prepare(self) -> None:
        assigned = sorted(self._subscriptions.assigned)
        if self.member.is_lost:
            await self._lose()
        elif assigned:
            async with self._during_poll():
                if self._assignment.is_cooperative:
                    await self.auto_commit(self.positions(), REVOKE_COMMIT_LIMIT_MS)
                else:
                    await self._revoke(assigned)
                    self._subscriptions.replace(())

    async def _lose(self) -> None:
        """Drop partitions that others may have by now, so that positions are looked up again."""
        if self._subscriptions.assigned:
            async with self._during_poll():
                await self._tell(RebalanceKind.LOST, sorted(self._subscriptions.assigned))
                self._subscriptions.replace(())
        self._own((), NO_GENERATION)

    @asynccontextmanager
    async def _during_poll(self) -> AsyncIterator[None]:
        """Wait for the next poll, and have polls return no records until the block ends."""
        self._next_poll = asyncio.get_running_loop().create_future()
        self._on_change()
        try:
            await self._next_poll
            yield
        finally:
            self.is_revoking = False
            self._on_change()

    async def _revoke(self, partitions: list[TopicPartition]) -> None:
        """Commit for the application, and let it commit, while the partitions are still its own."""
        await self.before_revoke(partitions)
        await self.auto_commit(self.positions(), REVOKE_COMMIT_LIMIT_MS)
        await self._tell(RebalanceKind.REVOKED, partitions)

    def _own(self, partitions: Iterable[TopicPartition], generation: int) -> None:
        self._assignment.owned = sorted(partitions)
        self._assignment.generation = generation

    async def _tell(self, kind: RebalanceKind, partitions: list[TopicPartition]) -> None:
        """Queue an event for the application, and wait until the application has handled it."""
        if not partitions and kind is not RebalanceKind.ASSIGNED:
            return
        if self._subscriptions.listener is None:
            return
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._events.append((RebalanceEvent(kind, tuple(partitions)), told))
        self._on_change()
        await told

    # Committing

    async def commit(
        self, offsets: Offsets, deadline: Deadline, *, are_positions: bool = False
    ) -> Offsets:
        """Commit, trying again until it succeeds, is refused or the deadline has passed.

        Later attempts leave out what a later commit has committed meanwhile, and end with an error
        where partitions were given up: they would take the readers of these back. Positions in
        topics that turn out to be deleted are left out; other offsets in them are refused. Returns
        what was not left out.
        """
        owned = self._subscriptions.assigned.keys() & offsets.keys()
        failures = 0
        with self._numbered() as number:
            while offsets:
                before = self.member.membership
                try:
                    commit = self._commit_as(number, offsets, deadline)
                    scheduler = self._runtime.scheduler
                    await ended_by(deadline, scheduler, commit, "the commit was not answered")
                    break
                except KafkaError as error:
                    # A topic that does not exist may be created meanwhile: as another one.
                    may_succeed = may_pass(error) or self._joins_again(error, before)
                    if error.error is ErrorCode.UNKNOWN_TOPIC_ID:
                        left = await self._in_present_topics(offsets, deadline)
                        may_succeed = are_positions or len(left) == len(offsets)
                        offsets = left
                    if not may_succeed or deadline.has_passed:
                        raise
                failures += 1
                delay_ms = min(self._backoff.delay_ms(failures), deadline.left_ms)
                await pause(self._runtime.scheduler, delay_ms)
                offsets = self._not_overtaken(number, offsets)
                if owned & offsets.keys() - self._subscriptions.assigned.keys():
                    raise commit_failed()
            else:
                self.commit_error = None  # nothing is left that could be refused
        return offsets

    async def _in_present_topics(self, offsets: Offsets, deadline: Deadline) -> Offsets:
        """The offsets without those in topics that were deleted, as newer metadata say.

        A coordinator may also refuse a new topic, of which it has not heard.
        """
        await self._metadata.update(deadline)
        cluster = self._metadata.cluster
        return {
            partition: offset
            for partition, offset in offsets.items()
            if offset.topic_id in (NO_UUID, cluster.topic_id(partition.topic))
        }

    @contextmanager
    def _numbered(self) -> Iterator[int]:
        """Number a commit, in the order in which commits begin, until it is over."""
        self._commits += 1
        self._commits_under_way += 1
        try:
            yield self._commits
        finally:
            self._commits_under_way -= 1
            if not self._commits_under_way:
                self._committed.clear()

    def _not_overtaken(self, number: int, offsets: Offsets) -> Offsets:
        """The offsets of partitions for which no later commit has succeeded."""
        latest = self._committed
        return {each: place for each, place in offsets.items() if latest.get(each, 0) <= number}

    def _joins_again(self, error: KafkaError, before: GroupMembership) -> bool:
        """Whether a commit was refused only because this member has joined again meanwhile.

        Under the cooperative protocol it continues to read its partitions. These stay its
        own until a poll revokes them, so that it may commit them in the next generation as well.
        """
        if error.error not in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            return False
        now = self.member.membership
        return now.generation != NO_GENERATION and (self.member.is_joining or now != before)

    async def commit_once(self, offsets: Offsets, deadline: Deadline) -> None:
        """Commit once; raises the error of the first partition that was refused."""
        with self._numbered() as number:
            await self._commit_as(number, offsets, deadline)

    async def _commit_as(self, number: int, offsets: Offsets, deadline: Deadline) -> None:
        self._check_membership()
        try:
            coordinator = await self.link.node_id(deadline)
            await self._later_ones(number)
            offsets = self._not_overtaken(number, offsets)
            results = await self._sent(number, offsets, coordinator) if offsets else {}
        except KafkaError as cause:
            self.link.note(cause)
            self.commit_error = cause
            raise
        for partition, refusal in results.items():
            if refusal is None:
                self._committed[partition] = max(number, self._committed.get(partition, 0))
        for error in filter(None, results.values()):
            self.link.note(error)
            self.commit_error = error
            if error.error is ErrorCode.UNKNOWN_TOPIC_ID:
                self._metadata.request_update()
            if error.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
                raise commit_failed() from error
            raise error
        self.commit_error = None

    def _check_membership(self) -> GroupMembership:
        """The membership to commit with; raises if the group has none for this member."""
        if not self._subscriptions.is_by_group:
            return NO_MEMBERSHIP
        if self.member.membership.generation == NO_GENERATION:
            raise commit_failed()
        return self.member.membership

    async def _later_ones(self, number: int) -> None:
        """Wait for the answers to later commits, which this one must not follow."""
        while max(self._unanswered, default=0) > number:
            self._answered.clear()
            await self._answered.wait()

    async def _sent(
        self, number: int, offsets: Offsets, coordinator: int
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Send a commit once; the outcome of each partition."""
        membership, group_id = self._check_membership(), self.link.group_id
        self._unanswered.add(number)
        try:
            return await commit_offsets(self._client, coordinator, group_id, offsets, membership)
        finally:
            self._unanswered.discard(number)
            self._answered.set()

    async def committed(
        self, partitions: Collection[TopicPartition], retrying: Retrying, deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets that the group has committed; partitions without one are left out."""
        group_id = self.link.group_id
        is_stable = IsolationLevel.of(self._config.isolation_level) is IsolationLevel.READ_COMMITTED

        async def attempt(
            pending: list[str], limit: Deadline
        ) -> dict[str, dict[TopicPartition, OffsetAndMetadata] | KafkaError]:
            try:
                node_id = await self.link.node_id(limit)
                found = await fetch_offsets(
                    self._client, node_id, group_id, list(partitions), require_stable=is_stable
                )
            except KafkaError as error:
                self.link.note(error)
                raise
            return dict.fromkeys(pending, found)

        result = (await retrying.for_each([group_id], attempt, deadline))[group_id]
        if isinstance(result, KafkaError):
            raise result
        return result

    async def auto_commit(self, offsets: Offsets, limit_ms: int) -> None:
        """Commit if enable.auto.commit is set; a failure is logged."""
        if not self.commits_automatically:
            return
        try:
            limit = Deadline(self._runtime.clock, limit_ms)
            await self.commit(offsets, limit, are_positions=True)
        except KafkaError as error:
            logger.warning("automatic commit of group %s failed: %s", self.link.group_id, error)


class GroupAssignment:
    """The consumer protocol of a group: the members' subscriptions, and how the leader assigns.

    The broker does not look into these bytes.
    `owned` is the last assignment of this member, of `generation`. A leader remembers the partition
    counts of its assignment: when they change, the group has to rebalance.
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
        self._divided = None
        protocols = []
        for name, assignor in self._assignors.items():
            metadata = encode_subscription(
                self._subscriptions.topics,
                # Under the eager protocol everything was revoked before joining.
                self.owned if self.is_cooperative else (),
                self.generation,
                assignor.user_data(self.owned, self.generation),
            )
            protocols.append((name, metadata))
        return protocols

    async def assign(
        self, name: str, members: Sequence[JoinGroupResponseMember]
    ) -> Mapping[str, bytes]:
        """Assign the partitions of all topics that any member wants."""
        assignor = self._assignors.get(name)
        if assignor is None:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"the coordinator chose the assignor {name!r}, which this member does not have",
            )
        subscriptions = {member.member_id: read_subscription(member) for member in members}
        topics = {topic for member in subscriptions.values() for topic in member.topics}
        await self._learn_of(topics)
        counts = self._metadata.cluster.partition_counts(sorted(topics))
        self._group_topics = frozenset(topics)
        self._divided = counts
        assignment = assignor.assign(counts, subscriptions)
        logger.info("as leader, divided %s by %s: %s", counts, name, assignment)
        return {member_id: encode_assignment(share) for member_id, share in assignment.items()}

    async def resume(
        self,
        members: Sequence[JoinGroupResponseMember],
        shares: Sequence[Sequence[TopicPartition]] | None,
    ) -> None:
        """Lead a group whose partitions were divided before; its `shares` are None if unknown."""
        topics = {topic for member in members for topic in read_subscription(member).topics}
        await self._learn_of(topics)
        self._group_topics = frozenset(topics)
        self._divided = self._metadata.cluster.partition_counts(sorted(topics))
        if shares is not None:
            divided = {partition for share in shares for partition in share}
            self._divided = Counter(partition.topic for partition in divided)

    def read(self, assignment: Buffer) -> list[TopicPartition]:
        """This member's partitions; the bytes may be empty if there are none."""
        if not assignment:
            return []
        return partitions_of(decode_assignment(assignment).assigned_partitions)

    def is_outdated(self, cluster: Cluster) -> bool:
        """Whether the group has to rebalance: topics were created, deleted or have grown."""
        if self._subscriptions.topics != self._joined_with:
            return True
        if self._divided is None:
            return False
        return cluster.partition_counts(sorted(self._group_topics)) != self._divided

    async def _learn_of(self, topics: set[str]) -> None:
        """Fetch metadata of topics that only other members want."""
        if not topics <= self._metadata.cluster.topics.keys():
            self._metadata.want(topics)
            await self._metadata.update(self._new_deadline(METADATA_LIMIT_MS))


def read_subscription(member: JoinGroupResponseMember) -> MemberSubscription:
    """The subscription and the partitions of a member, as its leader reads them."""
    stored = decode_subscription(member.metadata)
    return MemberSubscription(
        stored.topics,
        partitions_of(stored.owned_partitions),
        stored.generation_id,
        member.group_instance_id,
        stored.user_data,
    )


Offsets = Mapping[TopicPartition, OffsetAndMetadata]
BeforeRevoke = Callable[[Collection[TopicPartition]], Awaitable[None]]


async def _nothing_to_finish(partitions: Collection[TopicPartition]) -> None:
    """The default: the application has handled all records when it polls again."""


REVOKE_COMMIT_LIMIT_MS = 10_000


def commit_failed() -> KafkaError:
    """The error when the group has reassigned the partitions before the commit."""
    return KafkaError(
        ErrorCode.ILLEGAL_GENERATION,
        "the commit was refused: the group has rebalanced and given the partitions to others, "
        "mostly because poll was called too rarely; raise max.poll.interval.ms or lower "
        "max.poll.records",
    )
