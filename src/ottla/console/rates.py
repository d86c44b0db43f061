"""How many records a second come into topics: the ends of logs, noted every 5 seconds.

A small cluster's topics are all watched from the start. Of a large one, those are watched that
somebody has looked at in the last minutes.
"""

from __future__ import annotations

import logging
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ottla.clients.metadata import Cluster
from ottla.console.pacing import pause_after
from ottla.errors import KafkaError
from ottla.runtime.scheduler import pause
from ottla.structs import NamedTuple, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from ottla.clients.topic_offsets import ListOffsetsResult
    from ottla.runtime import Runtime

    Ends = dict[TopicPartition, ListOffsetsResult | KafkaError]

logger = logging.getLogger(__name__)

SAMPLE_EVERY_MS: Final = 5_000
POINTS: Final = 120
"""Ten minutes, if the brokers answer quickly."""
MOST_PARTITIONS: Final = 2_000
LOOK_BACK_MS: Final = 30_000
MOST_LOOKED_UP: Final = 500
WATCHED_MS: Final = 180_000


class EndSample(NamedTuple):
    """The sum of the ends of a topic's logs at a moment of the monotonic clock."""

    at_ms: int
    end: int


class Rates:
    """The watched topics of a cluster, each with its last samples.

    `snapshot` asks for the metadata, `ask_ends` for the ends of partitions, and `ask_at` for the
    first offsets from moments on, by which the minutes before the start are looked up;
    `pause_ms` says how long to rest after a question that took so long.
    """

    def __init__(
        self,
        runtime: Runtime,
        snapshot: Callable[[], Awaitable[Cluster]],
        ask_ends: Callable[[list[TopicPartition]], Awaitable[Ends]],
        ask_at: Callable[[dict[TopicPartition, int]], Awaitable[Ends]],
        pause_ms: Callable[[int, int], int] = pause_after,
    ) -> None:
        self._runtime = runtime
        self._snapshot = snapshot
        self._ask_ends = ask_ends
        self._ask_at = ask_at
        self._pause_ms = pause_ms
        self._cluster = Cluster()
        self._is_whole = True
        self._samples: dict[str, deque[EndSample]] = {}
        self._looked_at_ms: dict[str, int] = {}

    def watch(self, topics: Iterable[str]) -> None:
        """Note that somebody looks at these topics."""
        now_ms = self._runtime.clock.monotonic_ms()
        self._looked_at_ms.update(dict.fromkeys(topics, now_ms))

    def series(self, topic: str) -> list[float]:
        """Records a second, a value for each 5 seconds, the newest last."""
        found: list[float] = []
        for before, after in pairwise(self._samples.get(topic, ())):
            took_ms = max(1, after.at_ms - before.at_ms)
            rate = max(0, after.end - before.end) * 1000 / took_ms
            found += [rate] * max(1, round(took_ms / SAMPLE_EVERY_MS))
        return found[-POINTS:]

    def now(self, topic: str) -> float | None:
        """The newest rate of a topic; None where it is not known."""
        samples = self._samples.get(topic)
        if samples is None or len(samples) < 2:
            return None
        before, after = samples[-2], samples[-1]
        return max(0, after.end - before.end) * 1000 / max(1, after.at_ms - before.at_ms)

    def total(self) -> list[float]:
        """The rates of all watched topics together, as far back as all of them are known."""
        every = [self.series(each) for each in self._samples]
        shortest = min(map(len, every), default=0)
        return [sum(each[-back] for each in every) for back in range(shortest, 0, -1)]

    @property
    def watched(self) -> list[str]:
        """The topics that have samples."""
        return list(self._samples)

    @property
    def is_whole(self) -> bool:
        """Whether all topics of the cluster are watched."""
        return self._is_whole

    async def run(self) -> None:
        """Look back once, then note the ends until the task is cancelled."""
        try:
            await self.look_back()
        except KafkaError as error:
            logger.debug("the last minutes are not known: %s", error)
        clock, scheduler = self._runtime.clock, self._runtime.scheduler
        while True:
            began_ms = clock.monotonic_ms()
            took_ms = 0
            try:
                await self.sample()
                took_ms = clock.monotonic_ms() - began_ms
            except KafkaError as error:
                logger.debug("the ends of logs are not known: %s", error)
            await pause(scheduler, self._pause_ms(took_ms, SAMPLE_EVERY_MS))

    async def look_back(self) -> None:
        """Look up where the logs ended in the last minutes, by the timestamps of their records.

        Nothing is asked of a cluster with many partitions: each moment is one look-up for each.
        """
        cluster = await self._snapshot()
        partitions = _partitions_of(cluster, cluster.topics)
        if len(partitions) > MOST_LOOKED_UP:
            return
        ends = await self._ask_ends(partitions)
        now_ms, wall_ms = self._runtime.clock.monotonic_ms(), self._runtime.clock.now_ms()
        for back_ms in range(POINTS * SAMPLE_EVERY_MS, 0, -LOOK_BACK_MS):
            found = await self._ask_at(dict.fromkeys(partitions, wall_ms - back_ms))
            for each, at in found.items():  # where no record is later, the log ended as it does now
                if not isinstance(at, KafkaError) and at.offset < 0:
                    found[each] = ends[each]
            self._note(found, now_ms - back_ms)

    async def sample(self) -> None:
        """Ask for the ends of the watched topics, once."""
        cluster = self._cluster = await self._snapshot()
        now_ms = self._runtime.clock.monotonic_ms()
        self._is_whole = _partition_count(cluster) <= MOST_PARTITIONS
        partitions = self._watched(cluster, now_ms)
        self._note(await self._ask_ends(partitions), now_ms)
        for topic in self._samples.keys() - {each.topic for each in partitions}:
            del self._samples[topic]

    def _note(self, ends: Ends, at_ms: int) -> None:
        """Add a sample of each topic of which all ends are known."""
        sums: dict[str, int] = {}
        unknown: set[str] = set()
        for each, found in ends.items():
            if isinstance(found, KafkaError):
                unknown.add(each.topic)
            else:
                sums[each.topic] = sums.get(each.topic, 0) + found.offset
        for topic, end in sums.items():
            if topic not in unknown:
                samples = self._samples.setdefault(topic, deque(maxlen=POINTS + 1))
                samples.append(EndSample(at_ms, end))

    def _watched(self, cluster: Cluster, now_ms: int) -> list[TopicPartition]:
        if self._is_whole:
            return _partitions_of(cluster, cluster.topics)
        self._looked_at_ms = {
            topic: at_ms
            for topic, at_ms in self._looked_at_ms.items()
            if now_ms - at_ms < WATCHED_MS and topic in cluster.topics
        }
        newest = sorted(self._looked_at_ms, key=self._looked_at_ms.__getitem__, reverse=True)
        return _partitions_of(cluster, newest)[:MOST_PARTITIONS]


def _partition_count(cluster: Cluster) -> int:
    return sum(len(each.partitions) for each in cluster.topics.values())


def _partitions_of(cluster: Cluster, topics: Iterable[str]) -> list[TopicPartition]:
    """The partitions that have a leader."""
    return [
        TopicPartition(name, each) for name in topics for each in cluster.topics[name].available
    ]
