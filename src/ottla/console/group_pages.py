"""The pages of groups: the list with their lag, and one group with the causes of its lag."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final, cast

from ottla.clients.admin.groups import DEAD
from ottla.console.frame import link
from ottla.console.group_look import OTHER_TYPES, look_at, observations_since
from ottla.console.lag_causes import count, duration, explain
from ottla.console.lag_collector import GroupLag, LagCollector
from ottla.console.lag_evidence import seconds_waited, with_evidence
from ottla.console.lag_history import LOOK_MS, SPANS, WINDOW_SLOTS
from ottla.console.overview import Attention
from ottla.console.page import ChangeOutcome, ConsoleChange, ConsolePage, Data, Visit
from ottla.console.refusals import NotFound, Refused
from ottla.console.row_window import WINDOW, RowWindow
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ottla.clients.admin.descriptions import GroupDescription
    from ottla.console.group_look import GroupLook
    from ottla.console.lag_causes import Cause
    from ottla.console.lag_history import LagHistory
    from ottla.structs import TopicPartition

SPARK_POINTS: Final = 120
TREND_POINTS: Final = 12
"""The trend is that of the last minute."""
LONGEST_GAP: Final = 36
"""Slots, three minutes: in a longer gap the console was not running."""
PLOT_POINTS: Final = 240
MATRIX_PARTITIONS: Final = 48
PARTITION_ROWS: Final = 300
ATTENTION_S: Final = 60
"""A group that is further behind wants attention."""
MOST_BEHIND: Final = 5


class GroupLine(NamedTuple):
    """A line of the list; None for a fact that is not known."""

    group: str
    state: str
    type: str
    protocol: str
    members: int | None
    topics: Sequence[str]
    lag: int | None
    """None for a share group, which commits no offsets."""
    unknown: int
    """The partitions whose lag is not known, and not in that."""
    seconds: float
    is_at_least: bool
    """Whether it has been behind since before the console looked."""
    trend_per_s: float | None
    lags: Sequence[float | None]
    """The lag of the last ten minutes."""


class PlotPoint(NamedTuple):
    """A moment of the plot: lag in records, and records that came in a second."""

    time_ms: int
    lag: float | None
    in_per_s: float | None


class PartitionLine(NamedTuple):
    """A partition that the group reads or has offsets of; None for a fact that is not known."""

    topic: str
    partition: int
    committed: int | None
    start: int | None
    end: int | None
    lag: int | None
    seconds: float | None
    member: str
    client: str
    host: str


class CauseLine(NamedTuple):
    """A cause of the lag, with the page that shows the place where it is."""

    rule: str
    sentence: str
    numbers: Mapping[str, object]
    command: str
    path: str


SORTS: Final[dict[str, Callable[[GroupLag], tuple[Any, ...]]]] = {
    "lag": lambda each: (-each.total, each.group),
    "name": lambda each: (each.group,),
    "seconds": lambda each: (-each.seconds, -each.total, each.group),
    "state": lambda each: (each.state, each.group),
}


async def groups(visit: Visit) -> Data:
    """The rows from `from` on, of groups whose ids have `q` in them."""
    window = RowWindow(visit, SORTS, "lag")
    collector = await looked(visit)
    every = list(collector.groups.values())
    found = sorted((each for each in every if window.has(each.group)), key=SORTS[window.sort])
    shown = found[window.first : window.first + WINDOW]
    described = await visit.cluster.groups.describe_groups([each.group for each in shown])
    rows = [group_line(collector.history, each, described[each.group]) for each in shown]
    return {**window.data(len(found), len(every)), "rows": rows, **staleness(collector)}


def staleness(collector: LagCollector) -> Data:
    """When the groups were looked at last, and why not since; empty where they were."""
    failure = collector.failure
    return {"looked_ms": collector.looked_ms, "failure": failure.message if failure else ""}


async def looked(visit: Visit) -> LagCollector:
    """The collector of the cluster, which has looked at least once."""
    collector = visit.cluster.part(LagCollector)
    if not collector.looked_ms:
        await collector.look()
    return collector


def group_line(
    history: LagHistory, seen: GroupLag, described: GroupDescription | KafkaError
) -> GroupLine:
    """A group as the last look, its history and its coordinator have it."""
    lags = history.newest_lags(seen.group, seen.lag, SPARK_POINTS + LONGEST_GAP)
    is_known = not isinstance(described, KafkaError) and seen.type not in OTHER_TYPES
    known = cast("GroupDescription", described) if is_known else None
    has_no_lag = not seen.lag and seen.type in OTHER_TYPES
    return GroupLine(
        seen.group,
        seen.state if known is None else known.state,
        seen.type or "",
        seen.protocol if known is None else known.protocol or seen.protocol,
        None if known is None else len(known.members),
        sorted(seen.lag),
        seen.total if seen.total or not (seen.unknown or has_no_lag) else None,
        seen.unknown,
        seen.seconds,
        seen.is_at_least,
        trend_per_s(lags),
        carried(lags)[-SPARK_POINTS:],
    )


def total_points(
    history: LagHistory, group: str, span: str, topics: Iterable[str] | None = None
) -> list[PlotPoint]:
    """The lag of all topics of a group, or of some, over a span; the slots in their order."""
    step_s = SPANS[span][0] / 1000
    totals: dict[int, list[float | None]] = {}
    for topic in history.topics_of(group) if topics is None else topics:
        for point in history.points(group, topic, span):
            lag, came = totals.setdefault(point.time_ms, [None, None])
            totals[point.time_ms] = [_sum(lag, point.lag), _sum(came, point.records_in)]
    return [
        PlotPoint(time_ms, lag, None if came is None else came / step_s)
        for time_ms, (lag, came) in sorted(totals.items())
    ]


def _sum(left: float | None, right: float | None) -> float | None:
    return right if left is None else left if right is None else left + right


def carried(lags: Sequence[float | None]) -> list[float | None]:
    """The lags with the last known one in short gaps: very many groups are not seen each 5 s."""
    filled: list[float | None] = []
    last, missing = None, 0
    for lag in lags:
        missing = 0 if lag is not None else missing + 1
        last = lag if lag is not None else last
        filled.append(last if missing < LONGEST_GAP else None)
    return filled


def trend_per_s(lags: Sequence[float | None]) -> float | None:
    """How fast the lag has grown within the last minute; None where that is not known."""
    known = [(index, lag) for index, lag in enumerate(lags) if lag is not None][-TREND_POINTS:]
    if len(known) < 2:
        return None
    (first, before), (last, after) = known[0], known[-1]
    return (after - before) / ((last - first) * LOOK_MS / 1000)


def thinned(points: Sequence[PlotPoint]) -> list[PlotPoint]:
    """At most 240 points for a plot and its table, from the first look on.

    Each has the highest numbers of those that it stands for.
    """
    first = next((at for at, each in enumerate(points) if each.lag is not None), len(points))
    points = points[first:]
    size = -(-len(points) // PLOT_POINTS) or 1
    return [
        PlotPoint(
            some[0].time_ms,
            max((each.lag for each in some if each.lag is not None), default=None),
            max((each.in_per_s for each in some if each.in_per_s is not None), default=None),
        )
        for some in (points[at : at + size] for at in range(0, len(points), size))
    ]


async def group(visit: Visit) -> Data:
    """One group: its lag and the causes of it, its members and partitions."""
    group_id, span = group_id_of(visit), visit.query.get("span", "1h")
    if span not in SPANS:
        raise Refused(f"span={span}: must be one of {', '.join(SPANS)}")
    collector = await looked(visit)
    look = await existing(visit, group_id)
    collector.note_membership(look.time_ms, group_id, look.membership)
    history, topic = collector.history, visit.query.get("topic", "")
    known: dict[TopicPartition, float | None] = {
        each: None if wait.is_at_least else wait.seconds
        for each, entry in look.committed.items()
        for wait in [history.wait(each, entry.offset, look.time_ms)]
    }
    seconds = await seconds_waited(visit.cluster, look, known)
    window_ms = WINDOW_SLOTS * LOOK_MS
    rebalances = collector.rebalances(group_id, look.time_ms - window_ms)
    seen = observations_since(history, look, rebalances)
    shows_records = visit.settings.shows_all_of_records
    seen = await with_evidence(visit.cluster, seen, shows_records=shows_records)
    points = total_points(history, group_id, span, [topic] if topic else None)
    lines = partition_lines(look, seconds)
    return {
        "group": group_id,
        "state": look.group.state,
        "type": type_of(look),
        "is_described": not look.other_type,
        "protocol": look.group.protocol,
        "coordinator": look.group.coordinator.id,
        "lag": seen.lag,
        "seconds": max((each for each in seconds.values() if each is not None), default=None),
        "trend_per_s": trend_per_s([each.lag for each in total_points(history, group_id, "1h")]),
        "causes": [cause_line(each) for each in explain(seen)],
        "watched_ms": seen.window_ms,
        "span": span,
        "topic": topic,
        "topics": sorted({each.topic for each in {*look.committed, *look.logs}}),
        "points": thinned(points),
        "rebalances": [each._asdict() for each in collector.rebalances(group_id, points[0].time_ms)]
        if points
        else [],
        "partitions": lines[:PARTITION_ROWS],
        "partition_count": len(lines),
        "members": member_lines(look),
        "matrix": sorted(look.logs)[:MATRIX_PARTITIONS],
    }


def type_of(look: GroupLook) -> str:
    """The type of a group, as Kafka's tools name it."""
    return look.other_type or ("classic" if look.group.group_epoch is None else "consumer")


def group_id_of(visit: Visit) -> str:
    """The group that the address names."""
    group_id = visit.query.get("id", "") or visit.form.get("id", "")
    if not group_id:
        raise Refused("id: the address must name a group, as in /group?id=billing")
    return group_id


async def existing(visit: Visit, group_id: str) -> GroupLook:
    """A look at a group; NotFound, with ids that are alike, where there is none."""
    look = await look_at(visit.cluster, group_id)
    if look.group.state == DEAD and not look.committed:
        from difflib import get_close_matches  # only where there is a mistake

        known = visit.cluster.part(LagCollector).groups.keys() - {group_id}
        near = get_close_matches(group_id, sorted(known), n=3)
        found = {group_path(each): each for each in near}
        raise NotFound(f"There is no group {group_id}.", found)
    return look


def group_path(group_id: str) -> str:
    """The path of the page of a group."""
    return link("/group", id=group_id)


def partition_lines(
    look: GroupLook, seconds: Mapping[TopicPartition, float | None]
) -> list[PartitionLine]:
    """The partitions of a group, in order."""
    readers, members = look.readers, {each.member_id: each for each in look.group.members}
    lines = []
    for each in sorted({*look.committed, *readers}):
        entry, log = look.committed.get(each), look.logs.get(each)
        member = members.get(readers.get(each, ""))
        lines.append(
            PartitionLine(
                each.topic,
                each.partition,
                None if entry is None else entry.offset,
                None if log is None else log.start,
                None if log is None else log.end,
                look.lag(each),
                seconds.get(each),
                "" if member is None else member.member_id,
                "" if member is None else member.client_id,
                "" if member is None else member.host.lstrip("/"),
            )
        )
    return lines


def member_lines(look: GroupLook) -> list[dict[str, Any]]:
    """The members with their partitions, and the lag of each of these: 0 none to 3 most."""
    lags = {each: look.lag(each) or 0 for each in look.logs}
    worst = max(lags.values(), default=0)
    return [
        {
            "member": each.member_id,
            "instance": each.instance_id,
            "client": each.client_id,
            "host": each.host.lstrip("/"),
            "lag": sum(lags.get(p, 0) for p in each.assignment),
            "partitions": len(each.assignment),
            "has": {
                str(p): {"lag": lags.get(p, 0), "heat": heat(lags.get(p, 0), worst)}
                for p in each.assignment
            },
        }
        for each in sorted(look.group.members, key=lambda m: (m.client_id, m.member_id))
    ]


def heat(lag: int, worst: int) -> int:
    """The lag of a partition against the worst: 0 for none, to 3."""
    return 0 if not lag else 1 + min(2, 3 * lag // max(1, worst))


def cause_line(cause: Cause) -> CauseLine:
    """A cause with its page: the record where a reader stands, else the topic's partitions."""
    path = ""
    if cause.partition is not None:
        topic, partition = cause.partition
        path = f"/t/{topic}/partitions"
        if cause.rule == "open_transaction":
            path = "/transactions"
        elif cause.rule == "stopped":
            path = f"/t/{topic}/{partition}/{cause.offset}"
    return CauseLine(cause.rule, cause.sentence, cause.numbers, cause.command, path)


async def delete_group(visit: Visit) -> ChangeOutcome:
    """Delete a group that has no members; its id is typed to be sure."""
    group_id = group_id_of(visit)
    if visit.form.get("name", "").strip() != group_id:
        raise Refused(f"The name that was typed is not that of the group, {group_id}.")
    look = await existing(visit, group_id)
    error = (await visit.cluster.groups.delete_groups([group_id]))[group_id]
    if error is not None and error.error is ErrorCode.NON_EMPTY_GROUP:
        raise Refused(f"Group {group_id} is not deleted: it still has members.", 409)
    if error is not None:
        raise error
    visit.cluster.part(LagCollector).groups.pop(group_id, None)
    old = {str(each): entry.offset for each, entry in sorted(look.committed.items())}
    return ChangeOutcome(
        "/groups",
        f"Group {group_id} is deleted, with its offsets.",
        "consumer-groups --delete",
        group_id,
        old,
    )


async def groups_behind(visit: Visit) -> list[Attention]:
    """The groups whose next record has waited for minutes, as the last look saw."""
    behind = [
        each
        for each in visit.cluster.part(LagCollector).groups.values()
        if each.total and each.seconds >= ATTENTION_S
    ]
    behind.sort(key=SORTS["seconds"])
    return [
        Attention(
            f"group {each.group} is {'over ' if each.is_at_least else ''}"
            f"{duration(round(1000 * each.seconds))} behind, by {count(each.total, 'record')}",
            group_path(each.group),
            is_bad=False,
            command=f"ottla lag {shlex.quote(each.group)} --explain",
        )
        for each in behind[:MOST_BEHIND]
    ]


GROUP_PAGES: Final = (
    ConsolePage(
        "/groups",
        groups,
        "groups.html",
        "Groups",
        rail="Groups",
        command="ottla lag",
        refresh_s=5,
        home=True,
        table="rows",
    ),
    ConsolePage(
        "/group",
        group,
        "group.html",
        "Group {id}",
        rail="Groups",
        command="ottla lag {id} --explain",
        refresh_s=5,
    ),
)
GROUP_CHANGES: Final = (ConsoleChange("/group/delete", delete_group),)
