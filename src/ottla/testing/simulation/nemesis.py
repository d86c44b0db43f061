"""Breaks things, as the seed says: processes, links, disks, sessions, clocks."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from ottla.errors import KafkaError
from ottla.registry import paths
from ottla.structs import TopicPartition
from ottla.testing.simulation.cluster import Host, SimulatedCluster, is_controller
from ottla.testing.simulation.flaky_disk import ERRORS
from ottla.testing.simulation.world import SimulatedProcess
from ottla.testing.simulation.zookeeper import HOST as ZOOKEEPER_HOST

BROKERS: Final = "brokers"
NETWORK: Final = "network"
ZOOKEEPER: Final = "zookeeper"
CLOCKS: Final = "clocks"
DISKS: Final = "disks"
CONTROL: Final = "control"
KINDS: Final = (BROKERS, NETWORK, ZOOKEEPER, CLOCKS)
"""The targets of a fault."""
DIRECTORIES: Final = "directories"
MORE_KINDS: Final = (DISKS, CONTROL, DIRECTORIES)
"""Only on demand: the disks, the controller's requests to the brokers, and moves of
replicas between log directories, where there are several."""

MIN_PAUSE_MS: Final = 500
MAX_PAUSE_MS: Final = 4_000
MAX_SESSION_MS: Final = 500
MAX_CLOCK_SKEW_MS: Final = 3_600_000
STROBES: Final = 10
STROBE_MS: Final = 200
ROOMS: Final = (0, 0, 100, 1_000, 5_000)
MAX_REFUSED: Final = 3
MAX_MOVED: Final = 2
CONTROL_DELAYS_MS: Final = (300, 1_500, 4_000)
SLOW_MS: Final = (800, 3_000, 8_000)


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
            (CONTROL, self._slow_control),
            (CONTROL, self._slow_control_and_kill_controller),
            (CLOCKS, self._skew_clock),
            (CLOCKS, self._strobe_clock),
            (DIRECTORIES, self._move_replicas),
            (DIRECTORIES, self._move_replicas),
            (DIRECTORIES, self._move_replicas),
            (DISKS, self._fill_disk),
            (DISKS, self._refuse_calls),
            (DISKS, self._slow_disk),
            (DISKS, self._slow_disk),
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
            host.replace_disk()
            host.control_delay_ms = 0
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
        """Let all messages travel slowly for a while; returns a description."""
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

    # The faults; each returns its own description.

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
        """Cut links, each from one host to another, for a while; returns a description."""
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

    def _slow_control(self) -> str:
        """Let a broker be late with the orders of the controller; the next ones wait behind."""
        host, host_delay_ms = self._host(), self.random.choice(CONTROL_DELAYS_MS)
        host.control_delay_ms = host_delay_ms

        def mend() -> None:
            host.control_delay_ms = 0

        delay_ms = self.later(mend, 15_000)
        return f"{host.name} takes each order {host_delay_ms} ms late, for {delay_ms} ms"

    def _slow_control_and_kill_controller(self) -> str:
        """The same, and the controller dies with requests that it has not sent yet."""
        text = self._slow_control()
        active = next((host for host in self.cluster.hosts if is_controller(host)), None)
        if active is None:
            return text

        def kill() -> None:
            if not self.is_stopped:
                self.kill_for_a_while(active, "the controller, which has orders to send")
                self.end_session(active)

        delay_ms = self.random.randint(1, CONTROL_DELAYS_MS[-1])
        self.world.loop.add_timer(delay_ms, kill)
        return f"{text}; {active.name} dies in {delay_ms} ms"

    def _move_replicas(self) -> str:
        """Have some replicas of a broker move from one of its log directories to another."""
        host = self._host()
        if host.broker is None or not host.is_serving or len(self.cluster.log_dirs) < 2:
            return "move no replica"
        logs = list(host.broker.log_manager.all_logs())
        moved = self.random.sample(logs, min(MAX_MOVED, len(logs)))
        for log in moved:
            target = next(path for path in self.cluster.log_dirs if path != log.log_dir.path)
            move = partial(
                _move, host.broker.named("Moves").replica_moves, log.topic_partition, target
            )
            assert host.process is not None
            host.process.loop.call_soon(move)
        return f"move {[str(log.topic_partition) for log in moved]} of {host.name}"

    def _fill_disk(self) -> str:
        host, room = self._host(), self.random.choice(ROOMS)
        host.disk.fill(room)

        def mend() -> None:
            host.disk.capacity_in_bytes = None

        return f"{host.name} has {room} bytes of room for {self.later(mend, 8_000)} ms"

    def _refuse_calls(self) -> str:
        host, operation = self._host(), self.random.choice(list(ERRORS))
        times = self.random.randint(1, MAX_REFUSED)
        host.disk.refuse(operation, times)
        return f"let {host.name} fail at its next {times} of {operation}"

    def _slow_disk(self) -> str:
        host, slow_ms = self._host(), self.random.choice(SLOW_MS)
        host.disk.slow_ms = slow_ms

        def mend() -> None:
            host.disk.slow_ms = 0

        return f"jobs of {host.name} take {slow_ms} ms at most for {self.later(mend, 20_000)} ms"

    def _jump(self, process: SimulatedProcess) -> int:
        skew_ms = self.random.randint(-MAX_CLOCK_SKEW_MS, MAX_CLOCK_SKEW_MS)
        process.clock.skew_ms = skew_ms
        return skew_ms


def _move(moves: Any, topic_partition: TopicPartition, path: str) -> None:
    with suppress(KafkaError):  # the replica or a directory is gone
        moves.alter(topic_partition, path)
