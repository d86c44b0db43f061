"""Breaks things, as the seed says: processes, links, disks, sessions, clocks."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from ottla.registry import paths
from ottla.testing.simulation.cluster import Host, SimulatedCluster
from ottla.testing.simulation.world import SimulatedProcess
from ottla.testing.simulation.zookeeper import HOST as ZOOKEEPER_HOST

BROKERS: Final = "brokers"
NETWORK: Final = "network"
ZOOKEEPER: Final = "zookeeper"
CLOCKS: Final = "clocks"
KINDS: Final = (BROKERS, NETWORK, ZOOKEEPER, CLOCKS)
"""What a fault may strike."""

MIN_PAUSE_MS: Final = 500
MAX_PAUSE_MS: Final = 4_000
MAX_SESSION_MS: Final = 500
MAX_CLOCK_SKEW_MS: Final = 3_600_000
STROBES: Final = 10
STROBE_MS: Final = 200


class Nemesis:
    """Causes a fault now and then; each is repaired after a while, all of them by `stop`.

    Of its own faults it causes those of the given `kinds`.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        may_lose_power: bool,
        more_faults: Sequence[Callable[[random.Random], str]] = (),
        kinds: Collection[str] = KINDS,
    ) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.random = random.Random(cluster.world.random.getrandbits(64))
        self.may_lose_power = may_lose_power
        self.log: list[str] = []
        self.is_stopped = False
        faults: list[tuple[str, Callable[[], str]]] = [
            (BROKERS, self._kill),
            (BROKERS, self._kill),
            (BROKERS, self._kill_and_start_at_once),
            (BROKERS, self._kill_all),
            (BROKERS, self._stop),
            (BROKERS, self._pause),
            (NETWORK, self._cut_one_way),
            (NETWORK, self._cut_off),
            (ZOOKEEPER, self._cut_from_zookeeper),
            (NETWORK, self._reset_streams),
            (ZOOKEEPER, self._expire_session),
            (ZOOKEEPER, self._pause_zookeeper),
            (NETWORK, self.slow_network),
            (CLOCKS, self._skew_clock),
            (CLOCKS, self._strobe_clock),
        ]
        self._faults = [fault for kind, fault in faults if kind in kinds]
        self._faults += [partial(fault, self.random) for fault in more_faults]
        if may_lose_power:
            self._faults += [self._lose_power, self._lose_power_everywhere]

    def start(self) -> None:
        self._wait()

    def stop(self) -> None:
        """Repair everything, and cause no more faults."""
        self.is_stopped = True
        network = self.world.network
        network.heal_all()
        network.max_delay_ms = 5
        self.cluster.zookeeper.process.resume()
        for host in self.cluster.hosts:
            host.revive()

    def kill_for_a_while(self, host: Host, reason: str) -> None:
        """Kill a broker at a moment that the caller has chosen."""
        host.kill()
        delay_ms = self.later(host.revive, 12_000)
        self.log.append(f"{self.world.now_ms} ms: kill {host.name}, {reason}, for {delay_ms} ms")

    def end_session(self, host: Host) -> int:
        """End the session of a dead broker before its time limit; returns in how many ms."""
        zookeeper, path = self.cluster.zookeeper, paths.broker(host.broker_id)

        def end() -> None:
            for session in list(zookeeper.sessions.values()):
                if path in session.ephemerals and not host.is_running:
                    zookeeper.expire(session.id)

        delay_ms = self.random.randint(1, MAX_SESSION_MS)
        self.world.loop.add_timer(delay_ms, end)
        return delay_ms

    def slow_network(self) -> str:
        """Let all messages travel slowly for a while; returns what was done."""
        network = self.world.network
        network.max_delay_ms = self.random.randint(20, 300)

        def mend() -> None:
            network.max_delay_ms = 5

        return f"delays of up to {network.max_delay_ms} ms for {self.later(mend, 8_000)} ms"

    def _wait(self) -> None:
        delay_ms = self.random.randint(MIN_PAUSE_MS, MAX_PAUSE_MS)
        self.world.loop.add_timer(delay_ms, self._strike)

    def _strike(self) -> None:
        if self._faults and not self.is_stopped:
            fault = self.random.choice(self._faults)
            self.log.append(f"{self.world.now_ms} ms: {fault()}")
            self._wait()

    def later(self, mend: Callable[[], object], max_ms: int) -> int:
        """Repair something in up to `max_ms`, unless all is repaired then; returns the delay."""
        delay_ms = self.random.randint(100, max_ms)
        self.world.loop.add_timer(delay_ms, lambda: None if self.is_stopped else mend())
        return delay_ms

    def _host(self) -> Host:
        return self.random.choice(self.cluster.hosts)

    # The faults; each returns what it did.

    def _kill(self) -> str:
        host = self._host()
        host.kill()
        return f"kill {host.name} for {self.later(host.revive, 12_000)} ms"

    def _kill_and_start_at_once(self) -> str:
        host = self._host()
        host.kill()
        host.start()
        return f"kill {host.name} and start it again"

    def _kill_all(self) -> str:
        for host in self.cluster.hosts:
            host.kill()
            self.later(host.revive, 5_000)
        return "kill every broker"

    def _lose_power(self) -> str:
        host = self._host()
        host.lose_power(self.random)
        return f"{host.name} is without power for {self.later(host.revive, 9_000)}"

    def _lose_power_everywhere(self) -> str:
        for host in self.cluster.hosts:
            host.lose_power(self.random)
            self.later(host.revive, 5_000)
        return "every broker is without power"

    def _stop(self) -> str:
        host = self._host()
        host.stop()
        return f"stop {host.name} for {self.later(host.revive, 12_000)} ms"

    def _pause(self) -> str:
        host, process = self._host(), None
        process = host.process
        if process is None:
            return "pause nobody"
        process.pause()
        return f"pause {host.name} for {self.later(process.resume, 15_000)} ms"

    def _cut_one_way(self) -> str:
        one, other = self.random.sample(self.cluster.hosts, 2)
        return self.cut([(one.name, other.name)])

    def _cut_off(self) -> str:
        """Cut a broker off from the other brokers, not from ZooKeeper."""
        host = self._host()
        others = [other.name for other in self.cluster.hosts if other is not host]
        links = [(host.name, other) for other in others]
        return self.cut(links + [(other, host.name) for other in others])

    def _cut_from_zookeeper(self) -> str:
        host = self._host()
        links = [(host.name, ZOOKEEPER_HOST), (ZOOKEEPER_HOST, host.name)]
        return self.cut(self.random.choice([links, links[:1], links[1:]]))

    def cut(self, links: list[tuple[str, str]]) -> str:
        """Cut links, each from one host to another, for a while; returns what was done."""
        network = self.world.network
        for link in links:
            network.cut(*link)

        def mend() -> None:
            for link in links:
                network.heal(*link)

        return f"cut {links} for {self.later(mend, 15_000)} ms"

    def _reset_streams(self) -> str:
        self.world.network.reset_some(5)
        return "break some connections"

    def _expire_session(self) -> str:
        zookeeper = self.cluster.zookeeper
        if not zookeeper.sessions or not zookeeper.process.is_running:
            return "expire no session"
        session_id = self.random.choice(list(zookeeper.sessions))
        zookeeper.expire(session_id)
        return f"expire session {session_id}"

    def _pause_zookeeper(self) -> str:
        process = self.cluster.zookeeper.process
        process.pause()
        return f"pause ZooKeeper for {self.later(process.resume, 8_000)} ms"

    def _skew_clock(self) -> str:
        host = self._host()
        if host.process is None:
            return "skew no clock"
        return f"set the clock of {host.name} by {self._jump(host.process)} ms"

    def _strobe_clock(self) -> str:
        """Let a clock jump back and forth, faster than any time synchronisation."""
        host = self._host()
        process = host.process
        if process is None:
            return "strobe no clock"
        for number in range(STROBES):
            self.world.loop.add_timer(STROBE_MS * (number + 1), partial(self._jump, process))
        return f"let the clock of {host.name} jump {STROBES} times"

    def _jump(self, process: SimulatedProcess) -> int:
        skew_ms = self.random.randint(-MAX_CLOCK_SKEW_MS, MAX_CLOCK_SKEW_MS)
        process.clock.skew_ms = skew_ms
        return skew_ms
