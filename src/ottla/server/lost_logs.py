"""Logs that the disk of a broker has lost, of partitions for which it is in sync.

A disk was replaced, or a directory was left out of `log.dirs`, and the registry still names the
broker in sync. If it led such a partition, which it would if it were the first one to start, its
new and empty log would be the valid one, and the other replicas would cut theirs to it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from ottla.controller.broker_registration import id_taken
from ottla.controller.leader_election import in_next_epoch
from ottla.controller.topic_store import StoredState, TopicReader
from ottla.errors import KafkaError
from ottla.log.log_dir import META_PROPERTIES_FILE, LogDir
from ottla.registry import paths
from ottla.registry.tree import (
    REGISTRY_RETRY_MS,
    NoNodeError,
    RegistryError,
    RegistryFailedError,
    SessionEndedError,
)
from ottla.registry.znodes import encode_partition_state
from ottla.runtime.scheduler import gather_each, pause
from ottla.server.membership import EXPIRY_SLACK_MS
from ottla.server.parts import Parts
from ottla.structs import NO_LEADER, NO_UUID, TopicPartition

logger = logging.getLogger(__name__)

PATIENCE_MS: Final = 60_000
"""How long a start waits for other brokers in sync: they may have more to recover."""
YOUNG_MS: Final = 600_000
"""A partition this old has been made, unless all brokers were down nearly all the time since.

A younger one has been made where a log directory is younger still. The broker was there when the
partition was created, as it is in sync: it had another disk then.
"""
SHOWN: Final = 5

Lost = dict[TopicPartition, StoredState]
T = TypeVar("T")


class LostLogs:
    """Looks for them at a start, and gives the other replicas time to lead the partitions.

    Where a topic may be led by a replica that is not in sync, nothing is waited for.
    """

    def __init__(self, broker: Parts) -> None:
        self._broker = broker
        self._reader = TopicReader(broker.registry)
        self._made_before_ms = broker.runtime.clock.now_ms() - YOUNG_MS

    async def wait(self) -> set[TopicPartition]:
        """Wait until others lead what is lost here; returns what is lost, and must not be led.

        Where the state of a young partition was never written again, all brokers may have ended
        before they made its log: the wait is no longer than a session then, and it may be led.
        DUPLICATE_BROKER_REGISTRATION where a broker of this id outlives a session: it has the logs.
        """
        session_ms = self._broker.config.zookeeper_session_timeout_ms + EXPIRY_SLACK_MS
        missing = await self._answered(self._missing)
        if missing:
            self._made_before_ms = await self._answered(self._old_since)
        lost = await self._answered(partial(self._lost, missing))
        registry, node = self._broker.registry, paths.broker(self._broker.broker_id)
        waited_ms = 0  # between two answers: nobody leads anything while there is no registry
        while shared := {tp: each for tp, each in lost.items() if len(each.state.isr) > 1}:
            is_sure = any(map(self._was_made, shared.values()))
            limit_ms = PATIENCE_MS if is_sure else min(session_ms, PATIENCE_MS)
            is_over = waited_ms >= min(limit_ms, session_ms)
            if is_over and await self._answered(partial(registry.exists, node)) is not None:
                if waited_ms >= session_ms:
                    raise id_taken(self._broker.broker_id)
            elif waited_ms >= limit_ms:
                break
            if not waited_ms:
                logger.warning("%s: waiting for up to %d ms", self._told(shared), limit_ms)
            await pause(self._broker.runtime.scheduler, REGISTRY_RETRY_MS)
            waited_ms += REGISTRY_RETRY_MS
            lost = await self._answered(partial(self._lost, list(lost)))
        refused = {tp: each for tp, each in lost.items() if self._was_made(each)}
        if refused:
            await gather_each(self._give_up, refused.items())
            logger.error(
                "%s: they are not led by this broker, but by the others in sync once these come; "
                "where there are none, an unclean election gives them to another",
                self._told(refused),
            )
        return set(refused)

    async def _answered(self, question: Callable[[], Awaitable[T]]) -> T:
        """The answer of the registry, in the next session where one ends meanwhile."""
        while True:
            try:
                return await question()
            except SessionEndedError as error:
                logger.warning("the registry is asked again for lost logs: %s", error)
                await pause(self._broker.runtime.scheduler, REGISTRY_RETRY_MS)

    async def _give_up(self, one: tuple[TopicPartition, StoredState]) -> None:
        """Be out of sync, where others are in sync: a controller would drop them, as they are away.

        Not where the log may be in a directory that has failed, and can be repaired.
        """
        tp, (state, epoch, *_) = one
        own_id = self._broker.broker_id
        others = tuple(each for each in state.isr if each != own_id)
        if not others or self._broker.log_manager.may_be_on_disk(tp):
            return
        given_up = state._replace(isr=others)  # in the epoch of a leader that may live
        if state.leader == own_id:
            given_up = in_next_epoch(given_up)._replace(leader=NO_LEADER)
        data, path = encode_partition_state(given_up, epoch), paths.partition_state(*tp)
        try:
            await self._broker.registry.set(path, data, state.version)
        except RegistryError as error:  # it was written or deleted meanwhile
            logger.warning("%s is left as it is: %s", tp, error)

    def _told(self, lost: Lost) -> str:
        names = [str(each) for each in sorted(lost)]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        return (
            f"log.dirs has no log of {', '.join(names[:SHOWN])}{more}, and broker "
            f"{self._broker.broker_id} is in sync there: another replica must lead first, or "
            "records are lost"
        )

    async def _missing(self) -> list[TopicPartition]:
        """The partitions that this broker and others have, where it has no log."""
        reader = self._reader
        gone = set(await reader.marked_for_deletion())
        names = [name for name in await reader.names() if name not in gone]
        found = await gather_each(self._missing_of, names)
        return [tp for some in found for tp in some]

    async def _missing_of(self, topic: str) -> list[TopicPartition]:
        if self._broker.dynamic_config.topic_config(topic).unclean_leader_election_enable:
            return []
        try:
            node = await self._reader.read(topic)
        except NoNodeError:
            return []
        except RegistryFailedError:
            raise
        except KafkaError as error:
            logger.error("topic %s is left alone: %s", topic, error)
            return []
        return [
            TopicPartition(topic, index)
            for index, replicas in node.assignment.items()
            if len(replicas) > 1
            and self._broker.broker_id in replicas
            and not self._has_log(TopicPartition(topic, index), node.topic_id)
        ]

    def _has_log(self, tp: TopicPartition, topic_id: UUID) -> bool:
        """One of an older topic of that name is none: it is put away when it is led."""
        log = self._broker.log_manager.get_log(tp)
        return log is not None and (log.topic_id == topic_id or NO_UUID in (log.topic_id, topic_id))

    async def _lost(self, missing: Sequence[TopicPartition]) -> Lost:
        """Those for which the registry names this broker in sync."""
        states = await self._reader.read_states(missing)
        return {tp: each for tp, each in states.items() if self._broker.broker_id in each.state.isr}

    def _was_made(self, stored: StoredState) -> bool:
        """Whether a broker has had the partition."""
        return stored.state.version > 0 or stored.created_ms < self._made_before_ms

    async def _old_since(self) -> int:
        """Since when partitions are young, by the clock of the registry, which stamps its nodes.

        This broker's own may be wrong by any time: it tells only the ages of directories.
        """
        registry, now_ms = self._broker.registry, self._broker.runtime.clock.now_ms()
        ages_ms = [now_ms - self._made_ms(each) for each in self._broker.log_manager.live_dirs]
        try:
            registry_ms = (await registry.set(paths.BROKER_SEQUENCE, b"")).modified_ms
        except SessionEndedError:
            raise
        except RegistryError as error:
            logger.warning("the clock of the registry is not known: %s", error)
            registry_ms = now_ms
        return registry_ms - max(0, min([YOUNG_MS, *ages_ms]))

    def _made_ms(self, log_dir: LogDir) -> int:
        """When a broker took the directory over; that outlives a start that was cut off."""
        try:
            return log_dir.disk.modified_ms(log_dir.file(META_PROPERTIES_FILE))
        except OSError as error:
            log_dir.fail(error)
            return 0
