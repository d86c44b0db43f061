"""All machines lose power at once, with no flush for each batch.

The unflushed end of a replica's log may be gone, and since any replica may lead afterwards, so may
be all that one of them had not flushed. All before that must stay, and be the same on every
replica.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from ottla.testing.simulation.invariants import partitions_of
from ottla.testing.simulation.story import TOPIC, Story

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from ottla.structs import TopicPartition
    from ottla.testing.simulation.cluster import Host

MAX_DARK_MS: Final = 5_000
POWER_LOSS_WEIGHT: Final = 4
"""How much likelier this is than another fault."""


class PowerStory(Story):
    """Writers only: a reader of records that are lost later would have to start over."""

    may_flush_each_batch: ClassVar[bool] = False
    settings: ClassVar[Mapping[str, str | int]] = {
        "log.flush.interval.ms": 1_000,
        "log.flush.scheduler.interval.ms": 500,
    }

    def _begin(self) -> None:
        self._make_topic(TOPIC)
        for number in range(2):
            self._start_writer(f"writer{number}", interval_ms=200)

    def _more_faults(self) -> list[Callable[[random.Random], str]]:
        return [self._lose_power_everywhere] * POWER_LOSS_WEIGHT

    def _lose_power_everywhere(self, chance: random.Random) -> str:
        kept = {tp: self._flushed_everywhere(tp) for tp in self.partitions}
        for host in self.cluster.hosts:
            host.lose_power(chance)
            self.world.loop.add_timer(chance.randint(100, MAX_DARK_MS), host.revive)
        for tp, offset in kept.items():
            self.history.admit_loss(tp, offset)
        self.watcher.admit_losses(kept)
        return f"every broker is without power; flushed everywhere {list(kept.values())}"

    def _flushed_everywhere(self, topic_partition: TopicPartition) -> int:
        return min(flushed(host, topic_partition) for host in self.cluster.hosts)


def flushed(host: Host, topic_partition: TopicPartition) -> int:
    """The recovery point of a replica, as its broker last knew it."""
    return next(
        (
            partition.log.recovery_point
            for partition in partitions_of(host)
            if partition.topic_partition == topic_partition
        ),
        0,
    )
