"""The pages of brokers: disks, leaders and moves; one broker's settings and replicas; versions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from ottla.clients.admin.descriptions import ConfigResource
from ottla.console.group_look import result_of
from ottla.console.page import ConsolePage, Data, Visit
from ottla.console.refusals import NotFound, Refused
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.structs import NO_LEADER, ConfigSource, NamedTuple, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.clients.admin.descriptions import ConfigEntry, ConfigSynonym
    from ottla.clients.admin.log_dirs import LogDirs
    from ottla.clients.admin.topics import PartitionReassignment
    from ottla.clients.metadata import Cluster
    from ottla.structs import Node

    Dirs = Mapping[int, LogDirs | KafkaError]

LARGEST: Final = 50
MOST_MOVES: Final = 100
PARTS: Final = ("settings", "replicas")


class DirLine(NamedTuple):
    """A log directory; sizes in bytes, None where the broker does not tell them."""

    path: str
    error: str
    replicas: int
    used: int
    usable: int | None
    total: int | None


class BrokerLine(NamedTuple):
    """A broker: its replicas by role, and its disks."""

    id: int
    address: str
    rack: str
    is_controller: bool
    leaders: int
    replicas: int
    out_of_sync: int
    dirs: Sequence[DirLine]
    trouble: str
    """The reason why its directories are not known; else empty."""


class MoveLine(NamedTuple):
    """A partition whose replicas move; `done` is a share from 0 to 1, None if it is not known."""

    partition: str
    topic: str
    replicas: Sequence[int]
    adding: Sequence[int]
    removing: Sequence[int]
    bytes_left: int | None
    done: float | None


class ReplicaLine(NamedTuple):
    """A replica on a broker's disk."""

    topic: str
    partition: int
    path: str
    size: int
    offset_lag: int
    is_future: bool
    role: str


class BrokerSetting(NamedTuple):
    """A setting with its origin, and the values that it would have without."""

    name: str
    value: str
    source: str
    is_default: bool
    is_read_only: bool
    documentation: str
    synonyms: Sequence[str]


async def brokers(visit: Visit) -> Data:
    """All brokers, with their disks; and the moves of partitions that are in progress."""
    known = await visit.cluster.snapshot()
    dirs, (moves, no_moves), is_kraft = await asyncio.gather(
        visit.cluster.log_dirs.describe_log_dirs(sorted(known.nodes)),
        moving(visit),
        visit.cluster.is_kraft(),
    )
    controller = None if is_kraft else known.controller_id
    return {
        "cluster_id": known.cluster_id,
        "controller": controller,
        "brokers": broker_lines(known, dirs, controller),
        "moves": [move_line(each, move, dirs) for each, move in sorted(moves.items())[:MOST_MOVES]],
        "move_count": len(moves),
        "no_moves": no_moves,
    }


async def moving(visit: Visit) -> tuple[dict[TopicPartition, PartitionReassignment], str]:
    """The reassignments in progress, and the sentence why they are not known, else empty.

    Brokers that do not list them have none.
    """
    try:
        return await visit.cluster.reassignments.list_partition_reassignments(None), ""
    except KafkaError as error:
        if error.error is ErrorCode.UNSUPPORTED_VERSION:
            return {}, ""
        if error.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return {}, error.message
        raise


def broker_lines(known: Cluster, dirs: Dirs, controller: int | None) -> list[BrokerLine]:
    """The live brokers, by id."""
    every = [p for topic in known.topics.values() for p in topic.partitions.values()]
    lines = []
    for node in sorted(known.nodes.values()):
        found = dirs.get(node.id, {})
        lines.append(
            BrokerLine(
                node.id,
                f"{node.host}:{node.port}",
                node.rack or "",
                node.id == controller,
                sum(each.leader == node.id for each in every),
                sum(node.id in each.replicas for each in every),
                sum(node.id in each.replicas and node.id not in each.isr for each in every),
                [] if isinstance(found, KafkaError) else dir_lines(found),
                found.message if isinstance(found, KafkaError) else "",
            )
        )
    return lines


def dir_lines(found: LogDirs) -> list[DirLine]:
    """The log directories of a broker, by path."""
    return [
        DirLine(
            path,
            "" if each.error is ErrorCode.NONE else each.error.sentence,
            len(each.replicas),
            sum(replica.size_in_bytes for replica in each.replicas.values()),
            each.usable_bytes if each.usable_bytes >= 0 else None,
            each.total_bytes if each.total_bytes >= 0 else None,
        )
        for path, each in sorted(found.items())
    ]


def move_line(partition: TopicPartition, move: PartitionReassignment, dirs: Dirs) -> MoveLine:
    """A move, and how much of it is done: the sizes of new replicas against the largest one."""
    sizes = {broker: _size(dirs.get(broker), partition) for broker in move.replicas}
    whole = max((size for size in sizes.values() if size is not None), default=0)
    added = [sizes.get(broker) or 0 for broker in move.adding_replicas]
    left = sum(max(0, whole - size) for size in added)
    is_known = bool(whole and added)
    return MoveLine(
        str(partition),
        partition.topic,
        move.replicas,
        move.adding_replicas,
        move.removing_replicas,
        left if is_known else None,
        1 - left / (whole * len(added)) if is_known else None,
    )


def _size(found: LogDirs | KafkaError | None, partition: TopicPartition) -> int | None:
    if found is None or isinstance(found, KafkaError):
        return None
    sizes = [d.replicas[partition].size_in_bytes for d in found.values() if partition in d.replicas]
    return max(sizes, default=None)


async def broker(visit: Visit) -> Data:
    """One broker: its settings with their origins, or its largest replicas."""
    node, known = await node_of(visit)
    part = visit.query.get("part", PARTS[0])
    if part not in PARTS:
        raise Refused(f"part={part}: must be one of {', '.join(PARTS)}")
    wanted, shows_all = visit.query.get("q", ""), visit.query.get("all") == "1"
    data: Data = {
        "id": node.id,
        "address": f"{node.host}:{node.port}",
        "rack": node.rack or "",
        "is_controller": node.id == known.controller_id and not await visit.cluster.is_kraft(),
        "part": part,
        "q": wanted,
        "all": shows_all,
        "settings": [],
        "total": 0,
        "replicas": [],
        "missing": "",
    }
    try:
        if part == "replicas":
            return data | await replicas(visit, node.id, known)
        every = await settings_of(visit, node.id)
    except KafkaError as error:
        if error.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return data | {"missing": error.message}
        raise
    shown = [
        each
        for each in every
        if wanted.lower() in each.name and (shows_all or wanted or not each.is_default)
    ]
    return data | {"settings": shown, "total": len(every)}


async def settings_of(visit: Visit, broker_id: int) -> list[BrokerSetting]:
    """All settings of a broker, those that are no defaults first."""
    resource = ConfigResource.broker(broker_id)
    found = await visit.cluster.configs.describe_configs([resource], True, True)
    every = [setting_line(each) for each in result_of(found, resource).values()]
    return sorted(every, key=lambda line: (line.is_default, line.name))


async def node_of(visit: Visit) -> tuple[Node, Cluster]:
    """The broker that the address names; NotFound, with the live ones, where there is none."""
    known = await visit.cluster.snapshot()
    broker_id = visit.number("id", NO_LEADER, 0, 2**31 - 1)
    node = known.nodes.get(broker_id)
    if node is None:
        near = {f"/broker?id={each}": f"broker {each}" for each in sorted(known.nodes)[:5]}
        raise NotFound(f"There is no live broker {visit.query.get('id', '')}.", near)
    return node, known


async def replicas(visit: Visit, broker_id: int, known: Cluster) -> Data:
    """The largest replicas of a broker, over all of its directories."""
    found = result_of(await visit.cluster.log_dirs.describe_log_dirs([broker_id]), broker_id)
    lines = [
        ReplicaLine(
            each.topic,
            each.partition,
            path,
            replica.size_in_bytes,
            replica.offset_lag,
            replica.is_future,
            "leader" if known.leader(each) == broker_id else "follower",
        )
        for path, directory in found.items()
        for each, replica in directory.replicas.items()
    ]
    lines.sort(key=lambda each: (-each.size, each.topic, each.partition))
    return {"replicas": lines[:LARGEST], "total": len(lines), "dirs": dir_lines(found)}


def setting_line(entry: ConfigEntry) -> BrokerSetting:
    """A setting; the value of a sensitive one is never sent by brokers."""
    return BrokerSetting(
        entry.name,
        "(hidden)" if entry.is_sensitive else entry.value or "",
        source_text(entry.source),
        entry.is_default or entry.source is ConfigSource.DEFAULT_CONFIG,
        entry.is_read_only,
        entry.documentation or "",
        [_synonym_text(entry, each) for each in entry.synonyms],
    )


def source_text(source: ConfigSource) -> str:
    """`static broker`, `dynamic default broker`, `default`."""
    return source.name.removesuffix("_CONFIG").lower().replace("_", " ")


def _synonym_text(entry: ConfigEntry, synonym: ConfigSynonym) -> str:
    value = "(hidden)" if entry.is_sensitive else synonym.value or '""'
    name = "" if synonym.name == entry.name else f"{synonym.name}="
    return f"{name}{value} ({source_text(synonym.source)})"


async def versions(visit: Visit) -> Data:
    """The versions of each API that each broker serves; APIs where brokers differ come first."""
    known = await visit.cluster.snapshot()
    nodes = sorted(known.nodes)
    served = await asyncio.gather(*(_versions_of(visit, each) for each in nodes))
    rows = version_rows(dict(zip(nodes, served, strict=True)))
    return {"brokers": nodes, "rows": rows, "differ": sum(each["differs"] for each in rows)}


async def _versions_of(visit: Visit, node_id: int) -> Mapping[int, tuple[int, int]]:
    try:
        return (await visit.cluster.client.ready(node_id)).versions
    except KafkaError:
        return {}


def version_rows(served: Mapping[int, Mapping[int, tuple[int, int]]]) -> list[dict[str, Any]]:
    """A row for each API: its name, and the lowest and highest version of each broker."""
    keys: Iterable[int] = sorted({int(key) for each in served.values() for key in each})
    rows = [
        {
            "key": key,
            "api": _api_name(key),
            "versions": {str(node): each.get(key) for node, each in served.items()},
            "differs": len({each.get(key) for each in served.values()}) > 1,
        }
        for key in keys
    ]
    return sorted(rows, key=lambda row: (not row["differs"], cast("int", row["key"])))


def _api_name(key: int) -> str:
    """`ListOffsets` of the protocol's table; a number for an API that it does not have."""
    try:
        return "".join(word.title() for word in ApiKey(key).name.split("_"))
    except ValueError:
        return f"API {key}"


BROKER_PAGES: Final = (
    ConsolePage(
        "/brokers",
        brokers,
        "brokers.html",
        "Brokers",
        rail="Brokers",
        command="ottla log-dirs --describe",
        refresh_s=15,
        home=True,
        table="brokers",
    ),
    ConsolePage(
        "/broker",
        broker,
        "broker.html",
        "Broker {id}",
        rail="Brokers",
        command="ottla configs --describe --entity-type brokers --entity-name {id} --all",
    ),
    ConsolePage(
        "/brokers/versions",
        versions,
        "broker_versions.html",
        "API versions",
        rail="Brokers",
        command="ottla broker-api-versions",
        table="rows",
    ),
)
