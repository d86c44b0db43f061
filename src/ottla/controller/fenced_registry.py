"""The registry as one controller writes it: a controller with a successor writes nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Final

from ottla.controller.controller_election import ControllerEpoch, refuse_zombie
from ottla.registry import paths
from ottla.registry.tree import (
    Check,
    NoNodeError,
    Operation,
    Registry,
    RegistryError,
    RegistryFailedError,
    Stat,
)

logger = logging.getLogger(__name__)


MAX_OPERATIONS: Final = 250
MAX_BYTES: Final = 400_000
"""What goes into one `multi`: ZooKeeper takes 1 MB at once, headers and paths included."""

Group = Sequence[Operation]
"""Operations that belong together: all of them are done or none."""
Outcome = list[Stat | None] | RegistryError


class FencedRegistry:
    """Every write checks the version of /controller_epoch in the same `multi` (KAFKA-6082).

    So a controller that was paused, and has a successor, gets ControllerMovedError.
    """

    def __init__(self, registry: Registry, epoch: ControllerEpoch) -> None:
        self.registry = registry
        self.epoch = epoch
        self._fence = Check(paths.CONTROLLER_EPOCH, epoch.version)

    async def read_wish(self, path: str) -> tuple[bytes, Stat] | None:
        """A node by which a tool asks for something; None if there is none, or it is forbidden.

        A node that an ACL hides is skipped: else one controller after the other would give up.
        """
        try:
            return await self.registry.get(path)
        except NoNodeError:
            return None
        except RegistryFailedError:
            raise
        except RegistryError as error:
            logger.error("%s is passed over: %s", path, error)
            return None

    async def write(self, *operations: Operation) -> list[Stat | None]:
        """Do all of it or nothing; returns the stats of set nodes, as `Registry.multi` does."""
        try:
            _, *stats = await self.registry.multi((self._fence, *operations))
        except RegistryFailedError:
            raise
        except RegistryError as error:
            await refuse_zombie(self.registry, self.epoch, error)
            raise
        return stats

    async def write_each(self, groups: Sequence[Group]) -> list[Outcome]:
        """Do each group or nothing of it, in as few requests as possible, all at once."""
        written = await asyncio.gather(*(self._write_batch(batch) for batch in batches(groups)))
        return [outcome for outcomes in written for outcome in outcomes]

    async def _write_batch(self, batch: Sequence[Group]) -> list[Outcome]:
        """Send one request; if it is refused, its halves, down to the group that is to blame."""
        try:
            stats = await self.write(*(operation for group in batch for operation in group))
        except RegistryFailedError:
            raise
        except RegistryError as error:
            if len(batch) == 1:
                return [error]
            middle = len(batch) // 2
            return [
                *await self._write_batch(batch[:middle]),
                *await self._write_batch(batch[middle:]),
            ]
        remaining = iter(stats)
        return [[next(remaining) for _ in group] for group in batch]


def batches(groups: Sequence[Group]) -> Iterator[Sequence[Group]]:
    """The groups in order, packed into as few requests as their limits allow."""
    batch: list[Group] = []
    count = size = 0
    for group in groups:
        group_size = sum(
            len(operation.path) + len(getattr(operation, "data", b"")) for operation in group
        )
        if batch and (count + len(group) > MAX_OPERATIONS or size + group_size > MAX_BYTES):
            yield batch
            batch, count, size = [], 0, 0
        batch.append(group)
        count += len(group)
        size += group_size
    if batch:
        yield batch
