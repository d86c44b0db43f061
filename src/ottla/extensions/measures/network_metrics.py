"""Listeners, their certificates, and the loop that serves them, as metrics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from ottla.extensions.measures.domains import NETWORK, SERVER
from ottla.extensions.measures.login_metrics import LoginRates
from ottla.metrics.metrics_registry import (
    Attributes,
    Family,
    FamilyName,
    Kind,
    MetricsRegistry,
    Series,
    Tags,
)
from ottla.metrics.sensors import Counted
from ottla.network.processor import Processor
from ottla.network.traffic import Traffic
from ottla.runtime import Clock
from ottla.runtime.busy_time import BusyTime

PROCESSOR_TAGS: Final[Tags] = (("networkProcessor", "0"),)
"""A broker of Ottla has one processor."""


class ListenerTraffic:
    """The bytes and requests of each listener, as `socket-server-metrics` has it."""

    COUNTS: Final[Mapping[str, str]] = {
        "connection-creation": "created",
        "connection-close": "closed",
        "incoming-byte": "received_bytes",
        "outgoing-byte": "sent_bytes",
        "request": "request_count",
    }

    def __init__(self, registry: MetricsRegistry, processor: Processor) -> None:
        self._registry = registry
        self._processor = processor
        self._now: dict[str, Traffic] = {}
        self._connections: dict[str, int] = {}
        self._counted: dict[str, Counted] = {}
        self._logins = {
            name: LoginRates(listener.counts, registry.now_ms)
            for name, listener in processor.sasl.items()
        }
        registry.before_read(self._follow)

    def _follow(self) -> None:
        """Add up the bytes of closed connections and of those that are open."""
        now: dict[str, Traffic] = {}
        connections = {listener.name: 0 for listener in self._processor.listeners}
        for name, closed in self._processor.traffic.items():
            now[name] = closed.copy()
        for connection in self._processor.connections:
            now[connection.listener_name].add(connection)
            connections[connection.listener_name] += 1
        self._now, self._connections = now, connections
        for name in now.keys() - self._counted.keys():
            reads = {
                metric: partial(self._number, name, attribute)
                for metric, attribute in self.COUNTS.items()
            }
            self._counted[name] = Counted(self._registry.now_ms, **reads)

    def _number(self, listener: str, attribute: str) -> int:
        return int(getattr(self._now[listener], attribute))

    def read(self) -> Series:
        for name, count in self._connections.items():
            yield (("listener", name), *PROCESSOR_TAGS), self._attributes(name, count)

    def _attributes(self, listener: str, connection_count: int) -> Attributes:
        found: dict[str, float] = {"connection-count": connection_count}
        now_ms = self._registry.now_ms
        if listener in self._counted:
            found |= self._counted[listener].shown(now_ms)
        if listener in self._logins:
            found.update(self._logins[listener].attributes(now_ms))
        return found


def of_processor(registry: MetricsRegistry, processor: Processor) -> None:
    """Connections, and requests and answers that wait for the processor."""
    registry.register(
        Family(
            FamilyName(SERVER, "socket-server-metrics"),
            Kind.KAFKA,
            "What passes over a listener.",
            ListenerTraffic(registry, processor).read,
        )
    )
    registry.gauge(
        FamilyName(NETWORK, "RequestChannel", "RequestQueueSize"),
        "Connections whose requests wait for the processor.",
        lambda: sum(each.is_ready for each in processor.connections),
    )
    registry.gauge(
        FamilyName(NETWORK, "RequestChannel", "ResponseQueueSize"),
        "Connections whose answers wait to be sent.",
        lambda: sum(each.is_queued_to_send for each in processor.connections),
    )


def of_loop(registry: MetricsRegistry) -> None:
    """The share of its time in which the broker's one thread has nothing to do."""
    busy = BusyTime()
    now_ns = registry.runtime.clock.monotonic_ns
    began = (now_ns(), busy.read_ns())
    marks = [began] * 2
    share = 0.0

    def follow() -> None:
        nonlocal share
        marks.append((now_ns(), busy.read_ns()))
        (began_ns, before), _, (now, spent) = marks
        if now > began_ns:
            share = max(0.0, 1 - (spent - before) / (now - began_ns))
        del marks[0]

    def idle_seconds() -> float:
        began_ns, before = began
        return max(0.0, (now_ns() - began_ns) - (busy.read_ns() - before)) / 1e9

    registry.on_tick(follow)
    doc = "The share of time in which the broker's thread has nothing to do, from 0 to 1."
    registry.gauge(
        FamilyName(NETWORK, "SocketServer", "NetworkProcessorAvgIdlePercent"), doc, lambda: share
    )
    registry.register(
        Family(
            FamilyName(NETWORK, "Processor", "IdlePercent"),
            Kind.GAUGE,
            doc,
            lambda: ((PROCESSOR_TAGS, share),),
        )
    )
    # Kafka marks nanoseconds of idleness over the number of threads: the rate is a share.
    registry.meter(
        FamilyName(SERVER, "KafkaRequestHandlerPool", "RequestHandlerAvgIdlePercent"),
        doc,
        idle_seconds,
        "percent",
    )


def of_certificates(registry: MetricsRegistry, processor: Processor, clock: Clock) -> None:
    """How long certificates hold, and which changes of their files were refused."""

    def days() -> Series:
        for name, listener in processor.tls.items():
            yield (("listener", name),), listener.days_left(clock.now_ms())

    def rejected() -> Series:
        for name, listener in processor.tls.items():
            yield (("listener", name),), listener.rejected_count

    for name, doc, read in (
        ("DaysLeft", "Days until the certificate of a listener expires.", days),
        (
            "RejectedChanges",
            "Changed key stores and trust stores that could not be used.",
            rejected,
        ),
    ):
        registry.register(Family(FamilyName(SERVER, "Certificates", name), Kind.GAUGE, doc, read))
