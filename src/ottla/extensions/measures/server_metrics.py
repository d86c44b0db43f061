"""The broker as a whole, and its session at ZooKeeper, as metrics."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.extensions.measures.domains import SERVER
from ottla.metrics.metrics_registry import (
    NO_TAGS,
    Attributes,
    Family,
    FamilyName,
    Kind,
    MetricsRegistry,
    Series,
)
from ottla.metrics.sums import summed
from ottla.registry.tree import Registry, SessionState
from ottla.runtime import Disk
from ottla.version import __version__

if TYPE_CHECKING:
    from ottla.server.parts import Parts


def of_session(registry: MetricsRegistry, zookeeper: Registry) -> None:
    """The state of the session at ZooKeeper, and how fast that answers."""
    # Imported only here, where it has been made: kazoo takes its time to load.
    from ottla.registry.zookeeper import ZooKeeperRegistry

    counts = {"Disconnects": 0, "Expires": 0, "SyncConnects": 1}  # it is connected now

    def on_state(state: SessionState) -> None:
        if state is SessionState.SUSPENDED:
            counts["Disconnects"] += 1
        elif state is SessionState.EXPIRED:
            counts["Expires"] += 1
        else:
            counts["SyncConnects"] += 1

    state = "CONNECTED"

    def follow(now: SessionState) -> None:
        nonlocal state
        state = {SessionState.SUSPENDED: "CONNECTING", SessionState.EXPIRED: "EXPIRED"}.get(
            now, "CONNECTED"
        )
        on_state(now)

    zookeeper.watch_session(follow)
    registry.gauge(
        FamilyName(SERVER, "SessionExpireListener", "SessionState"),
        "CONNECTED, CONNECTING or EXPIRED.",
        lambda: state,
    )
    registry.gauge(
        FamilyName(SERVER, "SessionExpireListener", "IsConnected"),
        "Whether a server of ZooKeeper answers: SessionState as a number.",
        lambda: int(state == "CONNECTED"),
    )
    if isinstance(zookeeper, ZooKeeperRegistry):
        latencies = registry.histogram(
            FamilyName(SERVER, "ZooKeeperClientMetrics", "ZooKeeperRequestLatencyMs"),
            "How long requests to ZooKeeper took to be answered, in ms.",
        )
        zookeeper.session.on_latency = lambda ms: latencies.update(ms, registry.now_ms)
    for name in counts:
        registry.meter(
            FamilyName(SERVER, "SessionExpireListener", f"ZooKeeper{name}PerSec"),
            "Changes of the session at ZooKeeper.",
            partial(counts.__getitem__, name),
        )


def of_server(registry: MetricsRegistry, parts: Parts) -> None:
    """The broker as a whole."""
    registry.gauge(
        FamilyName(SERVER, "KafkaServer", "BrokerState"),
        "1 starting, 2 recovering logs, 3 running, 6 handing leaders over, 7 stopping.",
        lambda: int(parts.state),
    )
    registry.gauge(
        FamilyName(SERVER, "KafkaServer", "ClusterId"),
        "The id of the cluster.",
        lambda: parts.cache.cluster_id,
    )
    registry.register(
        Family(
            FamilyName(SERVER, "KafkaServer", "yammer-metrics-count"),
            Kind.GAUGE,
            "How many MBeans there are.",
            lambda: summed(registry.families.values(), partial(bean_count, registry), at_once=1),
        )
    )
    started_ms = parts.runtime.clock.now_ms()
    info: Attributes = {"version": __version__, "start-time-ms": started_ms}
    registry.register(
        Family(
            FamilyName(SERVER, "app-info"),
            Kind.KAFKA,
            "The version of the broker, and when it started.",
            lambda: (((("id", str(parts.controller.broker_id)),), info),),
        )
    )
    for name, field in (("read", "read_bytes"), ("write", "write_bytes")):
        read = partial(disk_bytes, parts.runtime.disk, field)
        if read() is not None:
            registry.register(
                Family(
                    FamilyName(SERVER, "KafkaServer", f"linux-disk-{name}-bytes"),
                    Kind.GAUGE,
                    "Bytes that the process has moved from or to its disks.",
                    partial(_disk_series, read),
                )
            )


def bean_count(registry: MetricsRegistry, family: Family) -> int:
    """How many MBeans of a family there are; of many for groups or topics, how many there were."""
    if family.kind is Kind.KAFKA or family.name.name.startswith("yammer"):
        return 0
    if family.unbounded:
        return registry.series_counts.get(family.name, 0)
    return _series_count(family.read())


def _series_count(found: Series) -> int:
    """How many series there are; where the reading pauses, it is of one sum."""
    count = 0
    for series in found:
        count += 1
        if series is None:
            break
    return count


def _disk_series(read: Callable[[], int | None]) -> Series:
    found = read()
    if found is not None:
        yield NO_TAGS, found


def disk_bytes(disk: Disk, field: str) -> int | None:
    """The process's input and output by /proc; None where there is no such file."""
    try:
        text = disk.read_bytes("/proc/self/io").decode()
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(": ")
        if name == field:
            return int(value)
    return None
