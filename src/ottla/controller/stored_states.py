"""The states of partitions in the registry: each changed there first, and then in the context."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ottla.controller.controller_context import ControllerContext
from ottla.controller.controller_election import ControllerMovedError
from ottla.controller.topic_store import TopicStore
from ottla.structs import LeaderAndIsr, TopicPartition

logger = logging.getLogger(__name__)

MAX_ATTEMPTS: Final = 5

Change = Callable[[TopicPartition, LeaderAndIsr], LeaderAndIsr | None]
"""Makes the next state of a partition of the present one; None for no change."""


class StoredStates:
    """Invariant: the context has the registry's states, with their versions."""

    def __init__(self, context: ControllerContext, store: TopicStore) -> None:
        self.context = context
        self.store = store

    async def create(self, states: Mapping[TopicPartition, LeaderAndIsr]) -> None:
        """Write first states. Where the registry has one already, that one is taken."""
        created = await self.store.create_states(states)
        for partition, state in created.items():
            self.context.set_state(partition, state)
        await self.read_again([partition for partition in states if partition not in created])

    async def change(
        self, partitions: Iterable[TopicPartition], change: Change
    ) -> list[TopicPartition]:
        """Change the states for which `change` returns a new one; returns those changed.

        A state that was written by others meanwhile is read again, and changed again.
        """
        done: list[TopicPartition] = []
        pending = list(partitions)
        for _ in range(MAX_ATTEMPTS):
            wanted = {}
            for partition in pending:
                state = self.context.state(partition)
                changed = None if state is None else change(partition, state)
                if changed is not None:
                    wanted[partition] = changed
            written, refused = await self.store.write_states(wanted)
            for partition, state in written.items():
                self.context.set_state(partition, state)
            done += written
            if not refused:
                return done
            await self.read_again(refused)
            pending = refused
        logger.error("%s: somebody else writes their states again and again", pending)
        return done

    async def read_again(self, partitions: Iterable[TopicPartition]) -> None:
        """Take the state of the registry; ControllerMovedError if a successor wrote it."""
        for partition, stored in (await self.store.read_states(partitions)).items():
            if stored.controller_epoch > self.context.epoch:
                raise ControllerMovedError(self.context.epoch)
            self.context.set_state(partition, stored.state)
