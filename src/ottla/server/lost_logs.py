"""Logs that the disk of a broker has lost, of partitions for which it is in sync.

A disk was replaced, or a directory was left out of `log.dirs`, and the registry still names the
broker in sync. If it led such a partition, which it would if it were the first one to start, its
new and empty log would be the valid one, and the other replicas would cut theirs to it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from ottla.controller.topic_store import StoredState, TopicReader
from ottla.errors import KafkaError
from ottla.registry.tree import REGISTRY_RETRY_MS, NoNodeError, SessionEndedError
from ottla.runtime.scheduler import gather_each, pause
from ottla.server.membership import EXPIRY_SLACK_MS
from ottla.server.parts import Parts
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

PATIENCE_MS: Final = 60_000
"""How long a start waits for other brokers in sync: they may have more to recover."""
YOUNG_MS: Final = 600_000
"""A partition this old has been made, unless all brokers were down nearly all the time since."""
SHOWN: Final = 5

Lost = dict[TopicPartition, StoredState]


class LostLogs:
    """Looks for them at a start, and gives the other replicas time to lead the partitions.

    Where a topic may be led by a replica that is not in sync, nothing is waited for.
    """

    def __init__(self, broker: Parts) -> None:
        self._broker = broker
        self._reader = TopicReader(broker.registry)

    async def wait(self) -> set[TopicPartition]:
        """Wait until others lead what is lost here; returns what is lost, and must not be led.

        Where the state of a young partition was never written again, all brokers may have ended
        before they made its log: the wait is no longer than a session then, and it may be led.
        """
        session_ms = self._broker.config.zookeeper_session_timeout_ms + EXPIRY_SLACK_MS
        runtime = self._broker.runtime
        missing = await self._missing()
        lost = await self._lost(missing)
        began_ms = runtime.clock.monotonic_ms()
        is_told = False
        while shared := {tp: each for tp, each in lost.items() if len(each.state.isr) > 1}:
            is_sure = any(map(self._was_made, shared.values()))
            limit_ms = PATIENCE_MS if is_sure else min(session_ms, PATIENCE_MS)
            if runtime.clock.monotonic_ms() - began_ms >= limit_ms:
                break
            if not is_told:
                logger.warning("%s: waiting for up to %d ms", self._told(shared), limit_ms)
                is_told = True
            await pause(runtime.scheduler, REGISTRY_RETRY_MS)
            with suppress(SessionEndedError):  # the next session answers
                lost = await self._lost(list(lost))
        refused = {tp: each for tp, each in lost.items() if self._was_made(each)}
        if refused:
            logger.error(
                "%s: they are not led by this broker; an unclean election gives them to another",
                self._told(refused),
            )
        return set(refused)

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
        found = await gather_each(self._replicated_here, names)
        logs = self._broker.log_manager
        return [tp for some in found for tp in some if logs.get_log(tp) is None]

    async def _replicated_here(self, topic: str) -> list[TopicPartition]:
        if self._broker.dynamic_config.topic_config(topic).unclean_leader_election_enable:
            return []
        try:
            node = await self._reader.read(topic)
        except NoNodeError:
            return []
        except KafkaError as error:
            logger.error("topic %s is left alone: %s", topic, error)
            return []
        return [
            TopicPartition(topic, index)
            for index, replicas in node.assignment.items()
            if len(replicas) > 1 and self._broker.broker_id in replicas
        ]

    async def _lost(self, missing: Sequence[TopicPartition]) -> Lost:
        """Those for which the registry names this broker in sync."""
        states = await self._reader.read_states(missing)
        return {tp: each for tp, each in states.items() if self._broker.broker_id in each.state.isr}

    def _was_made(self, stored: StoredState) -> bool:
        """Whether a broker has had the partition."""
        age_ms = self._broker.runtime.clock.now_ms() - stored.created_ms
        return stored.state.version > 0 or age_ms > YOUNG_MS
