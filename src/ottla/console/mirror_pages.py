"""The page of mirrors: flows between clusters, as the topics of MirrorMaker 2 on this one tell.

| topic here | tells |
|---|---|
| `heartbeats`, `SOURCE.heartbeats` | flows that end here, or further up, and when each was alive |
| `SOURCE.checkpoints.internal` | where groups of the source would continue here |
| `mm2-offset-syncs.TARGET.internal` | how far partitions of this cluster are copied to a target |

Ottla's mirror and Apache Kafka's write the same bytes. The newest 2,000 records of each partition
are read; bytes that are none of theirs are left out and counted.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ottla.clients.mirror_records import HEARTBEATS, Checkpoint, Heartbeat, OffsetSync
from ottla.console.decoding import beginning
from ottla.console.group_look import offset_of
from ottla.console.newest_records import newest_records
from ottla.console.page import ConsolePage, Data, Visit
from ottla.structs import NamedTuple, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ottla.clients.metadata import Cluster
    from ottla.console.console_cluster import ConsoleCluster

    Ends = Mapping[TopicPartition, int | None]

T = TypeVar("T")

CHECKPOINTS: Final = re.compile(r"(?P<source>.+)\.checkpoints\.internal")
SYNCS: Final = re.compile(r"mm2-offset-syncs\.(?P<target>.+)\.internal")
SILENT_MS: Final = 60_000
"""A flow without a heartbeat for so long has stopped, or its mirror has: one comes each second."""
MOST_LINES: Final = 200
MOST_TOPICS: Final = 50
"""Topics of a kind that are read."""


class FlowLine(NamedTuple):
    """A flow by its newest heartbeat; `silent_ms` since then."""

    source: str
    target: str
    topic: str
    alive_ms: int
    silent_ms: int
    is_silent: bool
    copied: int
    """Topics here whose names begin with the source's."""


class CheckpointLine(NamedTuple):
    """A group of a source, and where it would continue here; None where the log is not here."""

    source: str
    group: str
    topic: str
    partition: int
    upstream: int
    downstream: int
    end: int | None
    again: int | None
    """Records that it would read here from there on."""


class SyncLine(NamedTuple):
    """A partition of this cluster, and how far it is known to be copied to a target."""

    target: str
    topic: str
    partition: int
    upstream: int
    downstream: int
    end: int | None
    lag: int | None
    """Records behind the newest sync: not copied yet, or copied since."""


class Found(NamedTuple, Generic[T]):
    """The newest of each key in topics of one kind, with the part of the topic's name."""

    rows: list[tuple[str, str, T]]
    """The topic, the cluster in its name, and the value."""
    rubbish: int


async def mirrors(visit: Visit) -> Data:
    """The flows, the checkpoints and the syncs that the topics of this cluster have."""
    cluster = visit.cluster
    known = await cluster.snapshot()
    beats, checkpoints, syncs = await asyncio.gather(
        newest_of(cluster, heartbeat_topics(known), Heartbeat.of),
        newest_of(cluster, named(known, CHECKPOINTS), Checkpoint.of),
        newest_of(cluster, named(known, SYNCS), OffsetSync.of),
    )
    partitions = [value.partition for _, _, value in checkpoints.rows]
    partitions += [value.partition for _, _, value in syncs.rows]
    ends = await ends_of(cluster, known, partitions)
    flows = flow_lines(known, beats, cluster.runtime.clock.now_ms())
    groups = checkpoint_lines(checkpoints, ends)
    copies = sync_lines(syncs, ends)
    return {
        "flows": flows[:MOST_LINES],
        "flow_count": len(flows),
        "checkpoints": groups[:MOST_LINES],
        "checkpoint_count": len(groups),
        "syncs": copies[:MOST_LINES],
        "sync_count": len(copies),
        "rubbish": beats.rubbish + checkpoints.rubbish + syncs.rubbish,
    }


def heartbeat_topics(known: Cluster) -> list[tuple[str, str]]:
    """The topics of heartbeats, and the source that a copy of one has in its name."""
    suffix = f".{HEARTBEATS}"
    return [
        (name, name.removesuffix(HEARTBEATS).removesuffix("."))
        for name in sorted(known.topics)
        if name == HEARTBEATS or name.endswith(suffix)
    ][:MOST_TOPICS]


def named(known: Cluster, pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    """The topics of a pattern, and the cluster in the name of each."""
    found = ((name, pattern.fullmatch(name)) for name in sorted(known.topics))
    return [(name, match[1]) for name, match in found if match is not None][:MOST_TOPICS]


async def newest_of(
    cluster: ConsoleCluster,
    topics: Sequence[tuple[str, str]],
    decode: Callable[[bytes | None, bytes | None], T | None],
) -> Found[T]:
    """The newest value of each key; a tombstone removes it."""
    partitions = {
        TopicPartition(name, number): other
        for name, other in topics
        for number in cluster.all_topics.cluster.topics[name].available
    }
    found: dict[tuple[str, bytes], tuple[str, str, T]] = {}
    rubbish = 0
    for partition, record in await newest_records(cluster, list(partitions)):
        key = (partition.topic, bytes(record.key or b""))
        try:
            value = decode(record.key, record.value)
        except ValueError:
            rubbish += 1
            continue
        found.pop(key, None)
        if value is not None:
            found[key] = (partition.topic, partitions[partition], value)
    return Found(list(found.values()), rubbish)


async def ends_of(
    cluster: ConsoleCluster, known: Cluster, partitions: Iterable[TopicPartition]
) -> Ends:
    """The ends of the logs that are on this cluster."""
    led = {each for each in partitions if known.leader(each) in known.nodes}
    found = await cluster.ends(sorted(led)) if led else {}
    return {each: offset_of(result) for each, result in found.items()}


def flow_lines(known: Cluster, found: Found[Heartbeat], now_ms: int) -> list[FlowLine]:
    """The flows, those that are silent first."""
    lines = []
    for topic, _, value in found.rows:
        silent_ms = max(0, now_ms - value.timestamp_ms)
        copied = sum(name.startswith(f"{value.source}.") for name in known.topics)
        is_silent = silent_ms >= SILENT_MS
        alive_ms = value.timestamp_ms
        ends = (beginning(value.source), beginning(value.target), topic)
        lines.append(FlowLine(*ends, alive_ms, silent_ms, is_silent, copied))
    return sorted(lines, key=lambda each: (not each.is_silent, *each[:3]))


def checkpoint_lines(found: Found[Checkpoint], ends: Ends) -> list[CheckpointLine]:
    """The checkpoints, by source and group."""
    lines = []
    for _, source, value in found.rows:
        end, group = ends.get(value.partition), beginning(value.group)
        where = beginning(value.partition.topic), value.partition.partition
        again = None if end is None else max(0, end - value.downstream)
        up, down = value.upstream, value.downstream
        lines.append(CheckpointLine(source, group, *where, up, down, end, again))
    return sorted(lines, key=lambda each: each[:4])


def sync_lines(found: Found[OffsetSync], ends: Ends) -> list[SyncLine]:
    """The syncs, those with most lag first."""
    lines = []
    for _, target, value in found.rows:
        end = ends.get(value.partition)
        lag = None if end is None else max(0, end - 1 - value.upstream)
        up, down = value.upstream, value.downstream
        where = beginning(value.partition.topic), value.partition.partition
        lines.append(SyncLine(target, *where, up, down, end, lag))
    return sorted(lines, key=lambda each: (-(each.lag or 0), *each[:3]))


MIRROR_PAGES: Final = (
    ConsolePage(
        "/mirrors",
        mirrors,
        "mirrors.html",
        "Mirrors",
        rail="Mirrors",
        command="ottla tail heartbeats",
        refresh_s=10,
        home=True,
    ),
)
