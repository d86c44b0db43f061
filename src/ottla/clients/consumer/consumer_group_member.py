"""One member of a consumer group (KIP-848), which is assigned partitions by heartbeats.

The coordinator's response has the partitions that the member may read; the member's next heartbeat
has those that it reads now. It revokes partitions before it takes new ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast
from uuid import UUID

from ottla.clients.committed_offsets import GroupMembership
from ottla.clients.consumer.membership import Membership
from ottla.clients.consumer.subscription_state import SubscriptionState
from ottla.clients.group_coordination import CoordinatorLink
from ottla.clients.network_client import NetworkClient, RequestKind, connection_id, response_error
from ottla.config.client_config import ConsumerConfig
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError
from ottla.protocol.consumer_group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from ottla.runtime.scheduler import pause, within
from ottla.runtime.timing import Deadline
from ottla.structs import NO_GENERATION, NamedTuple, by_topic

logger = logging.getLogger(__name__)


LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
"""The group continues without this member, which owns nothing and has to join again."""


class PartitionId(NamedTuple):
    """A partition as the protocol names it: topics by their ids."""

    topic_id: UUID
    partition: int


Partitions = frozenset[PartitionId]


class ConsumerGroupMember(Membership):
    """The membership of one consumer.

    `target` is the last assignment of the coordinator, `owned` the partitions that are read;
    `needs_join` says that they differ, or that the member is not in the group. Invariant: while the
    epoch is 0 the member owns nothing that the group knows of. `_may_be_known` says that the
    coordinator may have this member, also where no answer has told its epoch yet.
    """

    def __init__(
        self,
        client: NetworkClient,
        link: CoordinatorLink,
        config: ConsumerConfig,
        subscriptions: SubscriptionState,
        on_change: Callable[[], object],
    ) -> None:
        super().__init__(client, link, config, on_change)
        self.member_id = self._new_member_id()
        self.epoch = JOIN_EPOCH
        self._may_be_known = False
        self.target: Partitions = frozenset()
        self.owned: Partitions = frozenset()
        self._subscriptions = subscriptions
        self._interval_ms: int  # as the coordinator's last response has it
        self._told_topics: frozenset[str] | None = None
        self._told_owned: Partitions | None = None
        self._woken: asyncio.Future[None] | None = None

    @property
    def is_joined(self) -> bool:
        return self.epoch > JOIN_EPOCH

    @property
    def is_joining(self) -> bool:
        """Never: a member gets new epochs by heartbeats, and keeps its partitions."""
        return False

    @property
    def membership(self) -> GroupMembership:
        """The membership with which this member commits."""
        generation = self.epoch if self.is_joined else NO_GENERATION
        return GroupMembership(generation, self.member_id, self._config.group_instance_id)

    def request_join(self) -> None:
        """Compare the subscription and the target again in the next step."""
        self.wake()
        super().request_join()

    def wake(self) -> None:
        """Send the next heartbeat now, as there is something new to report."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def own(self, owned: Partitions) -> None:
        """Set the partitions that the consumer reads now, and report a change at once."""
        if owned != self.owned:
            self.owned = owned
            self.wake()

    async def join(self) -> None:
        """Join unless joined, with retries; raises only errors that are not retriable."""
        failures = 0
        while not self.is_joined:
            try:
                await self._beat_once()
            except KafkaError as error:
                self._link.note(error)
                if error.error not in LOST and not error.retriable:
                    raise
                self._client.troubles.failed(self._task, error)
            if not self.is_joined:
                failures += 1
                await pause(self._runtime.scheduler, self._backoff.delay_ms(failures))
        self._client.troubles.worked(self._task)
        self.is_lost = False
        self._start_heart()

    async def leave(self, reason: str) -> None:
        """Leave at once; a static member announces that it will return (KIP-345)."""
        may_be_known = self._may_be_known
        self._stop_heart()
        self._forget()
        if may_be_known:
            logger.debug("leaving group %s: %s", self._link.group_id, reason)
            await self._send_leave(self.member_id)

    async def _beat(self) -> None:
        failures = 0
        while True:
            await self._rest()
            if not self.is_joined:
                continue
            if self.poll_watch.is_over():
                await self._drop_out()
                continue
            try:
                await self._beat_once()
                failures = 0
            except KafkaError as error:
                self._on_error(error)
                failures += 1
                await pause(self._runtime.scheduler, self._backoff.delay_ms(failures))

    async def _rest(self) -> None:
        self._woken = asyncio.get_running_loop().create_future()
        has_news = self.owned != self._told_owned or self._subscriptions.topics != self._told_topics
        limit_ms = 1 if has_news and self.is_joined else self._interval_ms
        try:
            await within(self._runtime.scheduler, limit_ms, self._woken, "")
        except KafkaTimeoutError:
            pass  # it is time for the next heartbeat

    async def _beat_once(self) -> None:
        deadline = Deadline(self._runtime.clock, self._config.request_timeout_ms)
        node_id = connection_id(await self._link.node_id(deadline), RequestKind.GROUP)
        request = self._request()
        owned, topics = self.owned, self._subscriptions.topics
        was_joined = self.is_joined
        self._may_be_known = True
        try:
            answer = cast(ConsumerGroupHeartbeatResponse, await self._client.send(node_id, request))
            error = response_error(
                answer.error_code, f"group {self._link.group_id}", answer.error_message
            )
            if error is not None:
                self._may_be_known = was_joined
                raise error
        except KafkaError:
            self._told_owned = self._told_topics = None  # the heartbeat may be lost
            raise
        if was_joined and not self.is_joined:
            return  # it belongs to a membership that has ended
        self._told_owned, self._told_topics = owned, topics
        self._take(answer)

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        """A heartbeat with all fields that the coordinator may not know, or only changed ones."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._link.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self._config.group_instance_id,
        )
        if self._told_topics is None:
            request.rebalance_timeout_ms = self._config.max_poll_interval_ms
            request.server_assignor = self._config.group_remote_assignor
        if self._told_topics != self._subscriptions.topics:
            request.subscribed_topic_names = sorted(self._subscriptions.topics)
        if self._told_owned != self.owned:
            request.topic_partitions = wire_partitions(self.owned)
        return request

    def _take(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        self.epoch = answer.member_epoch
        self._interval_ms = max(answer.heartbeat_interval_ms, self._config.retry_backoff_ms)
        if answer.assignment is None:
            return
        has_been_reached = self.target == self.owned
        self.target = frozenset(
            PartitionId(topic.topic_id, partition)
            for topic in answer.assignment.topic_partitions
            for partition in topic.partitions
        )
        if self.target != self.owned:
            self.needs_join = True
            self._on_change()
        elif not has_been_reached:
            # The coordinator waits until those that were never owned, as their topic was deleted,
            # are given up.
            self._told_owned = None

    def _on_error(self, error: KafkaError) -> None:
        self._link.note(error)
        if error.error in LOST:
            logger.info("group %s goes on without this member: %s", self._link.group_id, error)
            self._lose_membership()
        elif not error.retriable:
            self.error = error
            self._on_change()

    async def _drop_out(self) -> None:
        """Leave, as the application does not poll: others get its partitions (KIP-62)."""
        member_id, self.member_id = self.member_id, self._new_member_id()
        self._lose_membership()
        await self._send_leave(member_id)  # the next join may overlap: it has a new id

    def _lose_membership(self) -> None:
        self._forget()
        self.is_lost = True
        self.request_join()

    def _forget(self) -> None:
        self.epoch = JOIN_EPOCH
        self._may_be_known = False
        self.target = self.owned = frozenset()
        self._told_topics = self._told_owned = None
        self.needs_join = True

    def _new_member_id(self) -> str:
        return str(UUID(int=self._runtime.random.getrandbits(128), version=4))

    async def _send_leave(self, member_id: str) -> None:
        instance_id = self._config.group_instance_id
        deadline = Deadline(self._runtime.clock, self._config.request_timeout_ms)
        try:
            # Behind a heartbeat by which the member may be about to join.
            node_id = connection_id(await self._link.node_id(deadline), RequestKind.GROUP)
            request = ConsumerGroupHeartbeatRequest(
                group_id=self._link.group_id,
                member_id=member_id,
                member_epoch=LEAVE_EPOCH if instance_id is None else LEAVE_STATIC_EPOCH,
                instance_id=instance_id,
            )
            await self._client.send(node_id, request)
        except KafkaError as error:
            logger.info("group %s was not left in order: %s", self._link.group_id, error)


def wire_partitions(partitions: Partitions) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
    """The partitions in the form of a heartbeat."""
    return [
        ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in by_topic(sorted(partitions)).items()
    ]
