"""Copiers: each record of a topic gets into another exactly once, in transactions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.clients.admin.admin_client import AdminClient
from ottla.config.client_config import CONSUMER_PROTOCOL, AdminConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.runtime.timing import Deadline
from ottla.structs import TopicPartition
from ottla.testing.simulation.copier import GROUP, Copier
from ottla.testing.simulation.group_ledger import GroupLedger
from ottla.testing.simulation.group_story import count_removals
from ottla.testing.simulation.invariants import History
from ottla.testing.simulation.story import PARTITIONS, START_LIMIT_MS, TOPIC, Story
from ottla.testing.simulation.workload import Reader, SimulatedClient

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from ottla.testing.simulation.cluster import Host


class CopyStory(Story):
    """Copiers in a group copy the topic in transactions; they are killed and paused as well.

    Some speak the consumer protocol (KIP-848), and with some the end of each transaction raises
    its epoch (KIP-890).
    """

    def __init__(self, seed: int) -> None:
        self._copiers: list[SimulatedClient] = []
        self._zombies: list[SimulatedClient] = []
        self._awaits_decision = False
        super().__init__(seed)
        draw = self.world.random.random
        self._protocol = "classic"
        if draw() < SHARE_OF_CONSUMER_PROTOCOL:
            self._protocol = CONSUMER_PROTOCOL
        self._raises_epochs = draw() < SHARE_OF_RAISED_EPOCHS
        self._ledger = GroupLedger(self.history, partial(count_removals, self.cluster, GROUP))
        self._ledger.ends.update(self.cluster.first_offsets)
        self._copies = [TopicPartition(COPY, index) for index in range(PARTITIONS)]

    def _begin(self) -> None:
        if self._raises_epochs:
            self._raise_epochs()
        self._make_topic(TOPIC)
        self._make_topic(COPY)
        self._start_writer("writer0", interval_ms=600)
        for number in range(2):
            self._copiers.append(self._start_copier(f"copier{number}"))
        reader = Reader(self.cluster, "reader", self.history, "read_committed")
        reader.process.spawn(reader.run(self._copies), "read")
        self._watch_ends(self._copies, "read_committed")

    def _raise_epochs(self) -> None:
        raiser = FeatureRaiser(self.cluster, "raiser", self.history)
        raiser.process.spawn(raiser.run(), "raise the feature")
        if not self.world.run_until(lambda: raiser.is_done, START_LIMIT_MS):
            self.history.violations.append("transaction.version was not raised")

    def _start_copier(self, name: str) -> SimulatedClient:
        copier = Copier(self.cluster, name, self._ledger, TOPIC, COPY, self._protocol)
        copier.process.spawn(copier.run(), "copy")
        return copier

    def _more_faults(self) -> list[Callable[[random.Random], str]]:
        return [
            self._kill_copier,
            self._pause_copier,
            self._replace_copier,
            self._kill_between_decision_and_markers,
        ]

    def _kill_copier(self, chance: random.Random) -> str:
        index = chance.randrange(len(self._copiers))
        name = self._copiers[index].name
        self._copiers[index].process.kill()
        self._copiers[index] = self._start_copier(name)
        return f"kill {name} and start it again"

    def _pause_copier(self, chance: random.Random) -> str:
        copier = chance.choice(self._copiers)
        delay_ms = chance.randint(1_000, 12_000)
        copier.process.pause()
        self.world.loop.add_timer(delay_ms, copier.process.resume)
        return f"pause {copier.name} for {delay_ms} ms"

    def _replace_copier(self, chance: random.Random) -> str:
        """Pause a copier, and start another with the same transactional id meanwhile."""
        index = chance.randrange(len(self._copiers))
        zombie, delay_ms = self._copiers[index], chance.randint(1_000, 8_000)
        zombie.process.pause()
        self._copiers[index] = self._start_copier(zombie.name)
        self._zombies.append(zombie)
        self.world.loop.add_timer(delay_ms, zombie.process.resume)
        # The zombie may try for a while; then it is killed, as an operator would.
        self.world.loop.add_timer(delay_ms + ZOMBIE_MS, zombie.process.kill)
        return f"replace {zombie.name}, which wakes up after {delay_ms} ms"

    def _kill_between_decision_and_markers(self, chance: random.Random) -> str:
        """Kill the next coordinator that has decided a transaction, before all markers are out."""
        self._awaits_decision = True
        return "wait for a transaction that is decided, to kill its coordinator"

    def _look(self) -> None:
        super()._look()
        if self._awaits_decision and not self.nemesis.is_stopped:
            for host in self.cluster.hosts:
                if host.is_running and has_decided(host):
                    self._awaits_decision = False
                    self.nemesis.kill_for_a_while(host, "which has decided on a transaction")
                    return

    def _end(self) -> None:
        super()._end()
        if self.history.violations:
            return
        last = Reader(self.cluster, "last-committed-reader", History(), "read_committed")
        last.process.spawn(last.run(self._copies), "read every copy")

        def are_copied() -> bool:
            return all(
                len(last.history.seen.get(copy, {})) >= len(self.history.seen.get(tp, {}))
                for tp, copy in zip(self.partitions, self._copies, strict=True)
            )

        if not self._is_reached(are_copied):
            self.history.violations.append(f"not everything is copied: {self._state()}")
        for tp, copy in zip(self.partitions, self._copies, strict=True):
            self._compare(tp, copy, last.history.seen.get(copy, {}))
            self._compare_prefix(copy, last.history.seen.get(copy, {}))

    def _compare(
        self, source: TopicPartition, copy: TopicPartition, copied: dict[int, bytes]
    ) -> None:
        originals = [value for _, value in sorted(self.history.seen.get(source, {}).items())]
        copies = [value for _, value in sorted(copied.items())]
        if originals != copies:
            missing = sorted(set(originals) - set(copies))
            twice = sorted({value for value in copies if copies.count(value) > 1})
            self.history.violations.append(
                f"{copy}: the copies are not the originals; missing {missing[:5]}, "
                f"more than once {twice[:5]}"
            )

    def _compare_prefix(self, copy: TopicPartition, copied: dict[int, bytes]) -> None:
        """Check that records are still there that a read_committed reader saw during the faults."""
        self.history.violations += [
            f"{copy}: a reader saw {value!r} at offset {offset}; there is {copied.get(offset)!r}"
            for offset, value in self.history.seen.get(copy, {}).items()
            if copied.get(offset) != value
        ]


TIMEOUT_MS: Final = 10_000
FEATURE: Final = "transaction.version"
LEVEL: Final = 2


class FeatureRaiser(SimulatedClient):
    """Raises transaction.version, and retries until that is done."""

    async def run(self) -> None:
        config = AdminConfig.parse({"bootstrap.servers": self.cluster.bootstrap_servers})
        admin = AdminClient(self.process.runtime, config)
        update = FeatureUpdateKey(feature=FEATURE, max_version_level=LEVEL)
        while True:
            request = UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=[update])
            try:
                deadline = Deadline(self.process.runtime.clock, TIMEOUT_MS)
                answer = await admin.controller(request, deadline, low=1)
                if answer.error_code == ErrorCode.NONE:
                    break
            except KafkaError:
                pass  # asked again, until there is a controller
            admin.metadata.request_update(is_urgent=True)
            await self.pause(200)
        admin.close()
        self.is_done = True


COPY: Final = "copy"
DECIDED: Final = ("PrepareCommit", "PrepareAbort")
ZOMBIE_MS: Final = 2_000
SHARE_OF_CONSUMER_PROTOCOL: Final = 0.4
SHARE_OF_RAISED_EPOCHS: Final = 0.3


def has_decided(host: Host) -> bool:
    """Whether the broker has a transaction whose end is logged, but not all of its markers."""
    coordinators = getattr(host.broker, "coordinators", None)
    return coordinators is not None and any(
        metadata.current.state.title in DECIDED and not metadata.is_pending
        for metadata in coordinators.transactions.manager.all()
    )
