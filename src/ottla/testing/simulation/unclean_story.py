"""Replicas lead that were not in sync: acknowledged records may be lost, and are reported then."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from ottla.testing.simulation.invariants import check_history, records_of, replicas_of
from ottla.testing.simulation.power_story import MAX_DARK_MS
from ottla.testing.simulation.story import TOPIC, Story

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from ottla.structs import TopicPartition

UNCLEAN_WEIGHT: Final = 5


class UncleanStory(Story):
    """Writers, and unclean elections: records are lost, and replicas are the same in the end."""

    settings: ClassVar[Mapping[str, str | int]] = {
        "unclean.leader.election.enable": "true",
        "min.insync.replicas": 1,
        "replica.lag.time.max.ms": 1_000,
    }

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.watcher.may_lose = self.history.may_lose = True
        self._unclean: dict[int, int] = {}
        """How many unclean elections each controller has held, by its id as an object."""

    def _begin(self) -> None:
        self._make_topic(TOPIC)
        self._start_writers()

    def _more_faults(self) -> list[Callable[[random.Random], str]]:
        return [self._lead_uncleanly] * UNCLEAN_WEIGHT

    def _lead_uncleanly(self, chance: random.Random) -> str:
        """Cut a broker off until it is out of sync; then the others die, and it alone is left."""
        host = chance.choice(self.cluster.hosts)
        others = [each for each in self.cluster.hosts if each is not host]
        links = [(host.name, each.name) for each in others]
        text = self.nemesis.cut(links + [(target, source) for source, target in links])

        def kill() -> None:
            for other in others:
                if not self.nemesis.is_stopped:
                    self.nemesis.kill_for_a_while(other, f"{host.name} shall lead")
                    self.nemesis.end_session(other)

        delay_ms = chance.randint(1_000, MAX_DARK_MS)
        self.world.loop.add_timer(delay_ms, kill)
        return f"{text}; the others die in {delay_ms} ms"

    def _look(self) -> None:
        super()._look()
        for host in self.cluster.hosts:
            controller = getattr(host.broker, "controller", None)
            if controller is not None and controller.unclean_elections:
                self._unclean[id(controller)] = controller.unclean_elections

    def _end(self) -> None:
        for writer in self._writers:
            writer.is_told_to_stop = True
        if not self._is_at_peace():
            return
        lost = self.history.losses + [text for tp in self.partitions for text in self._lost(tp)]
        if lost and not self._unclean:
            self.history.violations += ["no unclean election was reported, and records are lost"]
            self.history.violations += lost

    def _lost(self, topic_partition: TopicPartition) -> list[str]:
        partition = replicas_of(self.cluster, topic_partition)[0]
        log = records_of(partition, 0, partition.high_watermark)
        return check_history(self.history, topic_partition, log)
