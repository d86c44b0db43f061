"""Looks for alerts again and again, by what other collectors know and a few requests of its own."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from ottla.console import alert_rules as rules
from ottla.console.alert_book import AlertBook, Webhook
from ottla.console.group_look import known_ends
from ottla.console.lag_collector import LagCollector
from ottla.errors import KafkaError
from ottla.runtime.scheduler import pause
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.console.alert_book import Alert
    from ottla.console.alert_rules import AlertFinding, DiskSample
    from ottla.console.console_cluster import ConsoleCluster

logger = logging.getLogger(__name__)

ALERT_LOOK_MS: Final = 10_000
DISK_MS: Final = 300_000
DISK_SAMPLES: Final = 72
"""Six hours."""
MOST_VOLUMES: Final = 1_000
MOST_LETTER_PARTITIONS: Final = 500


class AlertWatch:
    """The alerts of a cluster; a collector of the console.

    Of the browsers of one user the first alone writes them to the log and sends them.
    """

    def __init__(self, cluster: ConsoleCluster) -> None:
        self._cluster = cluster
        self.book = AlertBook()
        self.failures: dict[str, str] = {}
        """The rules that could not be looked at, with the reason."""
        self._volumes: dict[tuple[int, str], deque[DiskSample]] = {}
        self._disk_ms: int | None = None
        self._letter_ends: dict[TopicPartition, int] = {}
        self._letters: dict[str, tuple[int, int]] = {}
        self._looks: dict[str, Callable[[int], Awaitable[list[AlertFinding]]]] = {
            "behind": self._behind,
            "stuck": self._stuck,
            "partitions": self._partitions,
            "disk": self._disk,
            "dead-letters": self._dead_letters,
        }

    @property
    def limits(self) -> dict[str, int]:
        """The rules that are on, with their limits."""
        given = self._cluster.settings.alerts
        return {rule: given.get(rule, limit) for rule, limit in rules.LIMITS.items()}

    async def run(self) -> None:
        """Look until it is cancelled."""
        runtime = self._cluster.runtime
        while True:
            began_ms = runtime.clock.monotonic_ms()
            await self.look()
            took_ms = runtime.clock.monotonic_ms() - began_ms
            await pause(runtime.scheduler, self._cluster.pause_ms(took_ms, ALERT_LOOK_MS))

    async def look(self) -> None:
        """One look by all rules; a rule that fails leaves its alerts as they are."""
        changed: list[Alert] = []
        now_ms = self._cluster.runtime.clock.now_ms()
        for rule, limit in self.limits.items():
            if limit < 0:
                continue
            try:
                found = await self._looks[rule](limit)
            except KafkaError as error:
                self.failures[rule] = error.message
                continue
            self.failures.pop(rule, None)
            changed += self.book.update(rule, found, now_ms)
        if not self._cluster.reports:
            return
        for each in changed:
            state = "fires" if each.ended_ms is None else "has ended"
            logger.warning("alert %s %s: %s", each.rule, state, each.text)
        self._cluster.part(Webhook).put(changed, now_ms)

    async def _behind(self, limit: int) -> list[AlertFinding]:
        return rules.behind(self._collector().groups.values(), limit)

    async def _stuck(self, limit: int) -> list[AlertFinding]:
        collector = self._collector()
        return rules.stuck(collector.groups, collector.history, limit)

    def _collector(self) -> LagCollector:
        """The collector of lag; raises the error of its newest look, if that has failed."""
        collector = self._cluster.part(LagCollector)
        if collector.failure is not None:
            raise collector.failure
        return collector

    async def _partitions(self, _limit: int) -> list[AlertFinding]:
        return rules.partitions(await self._cluster.snapshot())

    async def _disk(self, limit: int) -> list[AlertFinding]:
        now_ms = self._cluster.runtime.clock.monotonic_ms()
        if self._disk_ms is None or now_ms - self._disk_ms >= DISK_MS:
            self._disk_ms = now_ms
            await self._sample_disks(now_ms)
        return rules.disk(self._volumes, limit)

    async def _sample_disks(self, now_ms: int) -> None:
        known = await self._cluster.snapshot()
        found = await self._cluster.log_dirs.describe_log_dirs(sorted(known.nodes))
        volumes: dict[tuple[int, str], deque[DiskSample]] = {}
        for broker, dirs in found.items():
            if isinstance(dirs, KafkaError):
                continue
            for path, each in dirs.items():
                if each.usable_bytes >= 0 and each.total_bytes > 0 and len(volumes) < MOST_VOLUMES:
                    kept = self._volumes.get((broker, path), deque(maxlen=DISK_SAMPLES))
                    kept.append(rules.DiskSample(now_ms, each.usable_bytes, each.total_bytes))
                    volumes[broker, path] = kept
        self._volumes = volumes

    async def _dead_letters(self, limit: int) -> list[AlertFinding]:
        known, now_ms = await self._cluster.snapshot(), self._cluster.runtime.clock.now_ms()
        led = [
            TopicPartition(info.name, each)
            for info in known.topics.values()
            if rules.OF_DEAD_LETTERS.search(info.name)
            for each in info.available
        ][:MOST_LETTER_PARTITIONS]
        ends = await known_ends(self._cluster, led)
        for each, end in ends.items():
            before = self._letter_ends.get(each)
            if before is not None and end > before:
                came, last_ms = self._letters.get(each.topic, (0, now_ms))
                is_old = now_ms - last_ms >= 60_000 * limit
                self._letters[each.topic] = ((0 if is_old else came) + end - before, now_ms)
        self._letter_ends = ends
        topics = {each.topic for each in led}
        self._letters = {name: each for name, each in self._letters.items() if name in topics}
        return rules.dead_letters(self._letters, now_ms, limit)
