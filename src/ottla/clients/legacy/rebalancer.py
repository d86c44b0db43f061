"""The rebalance of the 0.7 design: each consumer finds its own partitions, without a coordinator.

All members of the group compute the same owners from the same nodes. A consumer first releases the
partitions that are no longer its own, then takes the new ones; the owner nodes are ephemeral, and
creating one that exists fails, so that a partition never has two owners.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, Protocol

from ottla.clients.legacy.group_nodes import (
    ConsumerNodes,
    ConsumerThreadId,
    decide,
    live_brokers,
    names_below,
    replicas_of,
    subscribed_topics,
)
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError
from ottla.registry import paths
from ottla.registry.tree import NodeExistsError, RegistryError, SessionState, Watch
from ottla.registry.znodes import STATIC, ConsumerRegistration
from ottla.runtime import Runtime
from ottla.runtime.scheduler import within
from ottla.structs import Node, TopicPartition

logger = logging.getLogger(__name__)

SUSPENSION_SHARE: Final = 3
"""A silent server is noticed after 2/3 of the session timeout; this share (1/3) is left then."""


class ConsumerRebalanceFailedError(KafkaError):
    """A consumer could not take its partitions, in spite of all retries."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REBALANCE_IN_PROGRESS, message)


class RebalanceLimits(NamedTuple):
    """How often, and how long, a consumer waits for partitions that others have not released."""

    max_retries: int = 4
    backoff_ms: int = 2000
    session_timeout_ms: int = 6000
    exclude_internal_topics: bool = True


class RebalanceOutcome(Enum):
    """How a rebalance ended: done, partitions still owned by other consumers, or an error."""

    DONE = "done"
    TAKEN = "taken"
    FAILED = "failed"


class PartitionReceiver(Protocol):
    """Reads the owned partitions; it must return no records of any others."""

    async def release(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading these, and commit how far they were read."""
        ...

    def take(
        self,
        owners: Mapping[TopicPartition, ConsumerThreadId],
        offsets: Mapping[TopicPartition, int],
        brokers: Mapping[int, Node],
    ) -> None:
        """Read these as well, from their committed offsets if they have one."""
        ...

    def on_brokers(self, brokers: Mapping[int, Node]) -> None:
        """Take over the current brokers."""
        ...

    def drop_all(self) -> None:
        """Stop reading at once: other consumers may own these partitions by now."""
        ...


class ZooKeeperRebalancer:
    """Keeps one consumer in its group, and gives it the partitions that it owns.

    Invariant: `owned` are the partitions whose owner nodes this consumer has created in the current
    session, and the receiver reads no others.
    """

    def __init__(
        self,
        runtime: Runtime,
        nodes: ConsumerNodes,
        registration: ConsumerRegistration,
        receiver: PartitionReceiver,
        limits: RebalanceLimits,
    ) -> None:
        self.owned: dict[TopicPartition, ConsumerThreadId] = {}
        self._runtime = runtime
        self._nodes = nodes
        self._registry = nodes.registry
        self._registration = registration
        self._receiver = receiver
        self._limits = limits
        self._is_registered = False
        self._must_release_all = False
        self._session_changes = 0
        self._wanted = asyncio.Event()
        self._watches: list[Watch] = []
        self._topic_watches: dict[str, Watch] = {}
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Join the group and take partitions; may raise ConsumerRebalanceFailedError."""
        await self._register()
        registry = self._registry
        self._watches = [
            registry.watch_session(self._on_session),
            registry.watch_children(paths.consumer_ids(self._nodes.group), self.request),
            registry.watch_children(paths.BROKER_IDS, self.request),
        ]
        if self._registration.pattern != STATIC:
            self._watches.append(registry.watch_children(paths.TOPICS, self.request))
        self.request()
        name = f"rebalance of {self._nodes.consumer}"
        self._task = self._runtime.scheduler.spawn(self._run(), name)
        await asyncio.wait([self._first, self._task], return_when=asyncio.FIRST_COMPLETED)
        if self._first.done():
            self._first.result()
        else:
            self._task.result()  # raises: the task ends only with an error

    def request(self) -> None:
        """Ask for a rebalance: something has changed in the group or in the cluster."""
        self._wanted.set()

    async def close(self) -> None:
        """Release all partitions and leave the group."""
        for watch in [*self._watches, *self._topic_watches.values()]:
            watch.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if not self._first.done():
            self._first.cancel()
        try:
            if self.owned:
                await self._release(list(self.owned))
            if self._is_registered:
                await self._nodes.leave()
        except KafkaError as error:
            logger.warning("%s could not leave its group: %s", self._nodes.consumer, error)

    # Rebalances

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            failures = 0
            while (outcome := await self._try_to_rebalance()) is not RebalanceOutcome.DONE:
                failures += not await self._wait(outcome)
                if failures > self._limits.max_retries:
                    self._report_failure()
                    failures = 0
            if not self._first.done():
                self._first.set_result(None)

    def _report_failure(self) -> None:
        """Report to a waiting application; retries continue, as no other consumer takes over."""
        text = (
            f"{self._nodes.consumer} cannot take its partitions after "
            f"{self._limits.max_retries} retries"
        )
        if self._first.done():
            logger.error("%s; it goes on trying", text)
        else:
            self._first.set_exception(ConsumerRebalanceFailedError(text))

    async def _try_to_rebalance(self) -> RebalanceOutcome:
        self._wanted.clear()
        try:
            await self._rebalance()
        except NodeExistsError:
            return RebalanceOutcome.TAKEN
        except KafkaError as error:
            logger.info("%s could not rebalance: %s", self._nodes.consumer, error)
            return RebalanceOutcome.FAILED
        return RebalanceOutcome.DONE

    async def _rebalance(self) -> None:
        if not self._is_registered:
            await self._register()
        brokers = await live_brokers(self._registry)
        self._receiver.on_brokers(brokers)
        mine = await self._find_own()
        lost = [p for p, thread in self.owned.items() if mine.get(p) != thread]
        if self._must_release_all:
            lost = list(self.owned)
        self._must_release_all = False
        if lost:
            await self._release(lost)
        new = {p: thread for p, thread in mine.items() if p not in self.owned}
        # Without a broker nothing can be read; the watch reports when there is one.
        if new and brokers:
            await self._take(new, brokers)

    async def _find_own(self) -> dict[TopicPartition, ConsumerThreadId]:
        """The partitions that this consumer should own, given the registrations and topics."""
        exclude_internal = self._limits.exclude_internal_topics
        topics: list[str] = []
        if self._registration.pattern != STATIC:
            topics = await names_below(self._registry, paths.TOPICS)
        subscribed = subscribed_topics(
            self._registration, topics, exclude_internal=exclude_internal
        )
        self._watch_topics(subscribed)
        replicas = await replicas_of(self._registry, subscribed)
        registrations = await self._nodes.registrations()
        # Other consumers' filters are applied only to the topics that matter here.
        owners = decide(
            registrations, replicas, list(subscribed), exclude_internal=exclude_internal
        )
        me = self._nodes.consumer
        return {p: thread for p, thread in owners.items() if thread.consumer == me}

    def _watch_topics(self, topics: Collection[str]) -> None:
        """Watch for new topics and new partitions."""
        for topic in self._topic_watches.keys() - set(topics):
            self._topic_watches.pop(topic).cancel()
        for topic in set(topics) - self._topic_watches.keys():
            watch = self._registry.watch_data(paths.topic(topic), self.request)
            self._topic_watches[topic] = watch

    async def _release(self, partitions: Collection[TopicPartition]) -> None:
        try:
            await self._receiver.release(partitions)
            gone = [partition for partition in partitions if partition in self.owned]
            await self._nodes.give_up(gone)
        except KafkaError:
            self._must_release_all = True  # they are no longer read, but may still be owned
            raise
        for partition in gone:
            self.owned.pop(partition, None)

    async def _take(
        self, new: Mapping[TopicPartition, ConsumerThreadId], brokers: Mapping[int, Node]
    ) -> None:
        await self._nodes.take({p: str(thread) for p, thread in new.items()})
        changes = self._session_changes
        self.owned.update(new)
        try:
            offsets = await self._nodes.offsets(new)
        except KafkaError:
            self._must_release_all = True  # they are owned, but not read
            raise
        if changes == self._session_changes:
            self._receiver.take(new, offsets, brokers)
        else:  # other consumers may own them by now
            self._must_release_all = True
            self.request()

    async def _register(self) -> None:
        """Join the group, waiting for the end of an earlier session with the same name."""
        limit_ms = self._limits.session_timeout_ms + self._limits.backoff_ms
        gone = asyncio.Event()
        path = paths.consumer_id(self._nodes.group, self._nodes.consumer)
        watch = self._registry.watch_data(path, gone.set)
        try:
            while True:
                gone.clear()
                try:
                    await self._nodes.register(self._registration)
                    self._is_registered = True
                    return
                except NodeExistsError:
                    what = f"there is another consumer {path}, and it did not leave"
                    await within(self._runtime.scheduler, limit_ms, gone.wait(), what)
        finally:
            watch.cancel()

    async def _wait(self, outcome: RebalanceOutcome) -> bool:
        """Wait for a limited time until a partition is released or the group changes."""
        released = asyncio.Event()
        watches: list[Watch] = []
        try:
            if outcome is RebalanceOutcome.TAKEN:
                await self._watch_owners(released, watches)
            pause_ms = self._limits.backoff_ms
            await within(self._runtime.scheduler, pause_ms, self._either(released), "")
        except KafkaTimeoutError:
            return False
        finally:
            for watch in watches:
                watch.cancel()
        return True

    async def _watch_owners(self, released: asyncio.Event, watches: list[Watch]) -> None:
        """Watch the owners of partitions to take; `released` is set if there are none already."""
        try:
            mine = await self._find_own()
            new = [partition for partition in mine if partition not in self.owned]
            for path in self._nodes.owner_paths(new):
                watches.append(self._registry.watch_data(path, released.set))
            if not await self._nodes.are_any_owned(new):
                released.set()
        except RegistryError as error:
            logger.info("%s cannot see who owns its partitions: %s", self._nodes.consumer, error)

    async def _either(self, changed: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (changed, self._wanted)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    # The session

    def _on_session(self, state: SessionState) -> None:
        self._session_changes += 1
        if state is SessionState.SUSPENDED:
            end = partial(self._on_long_suspension, self._session_changes)
            self._runtime.scheduler.call_later(
                self._limits.session_timeout_ms // SUSPENSION_SHARE, end
            )
        elif state is SessionState.EXPIRED:
            self._is_registered = False
            self.owned.clear()
            self._receiver.drop_all()
        else:
            self.request()

    def _on_long_suspension(self, changes: int) -> None:
        """Stop reading: ZooKeeper was silent for so long that the session may have ended."""
        if changes == self._session_changes:
            self._must_release_all = True
            self._receiver.drop_all()
