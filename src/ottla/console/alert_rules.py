"""The rules of alerts: each is a function from what was seen to the subjects that it is true of.

| rule | true while | limit |
|---|---|---|
| `behind` | the next record of a group has waited for so long | seconds, 300 |
| `stuck` | a group has stood at one offset for so long, though records wait there | seconds, 240 |
| `partitions` | partitions of a topic have no leader, or replicas out of sync | - |
| `disk` | a log directory will be full within so long, as it has grown | hours, 24 |
| `dead-letters` | records have come into a topic of dead letters | quiet minutes, 10 |
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ottla.clients.dead_letter_headers import REDRIVE_GROUP
from ottla.console.group_pages import group_path
from ottla.console.lag_causes import count, duration
from ottla.console.overview import in_danger
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.clients.metadata import Cluster
    from ottla.console.lag_collector import GroupLag
    from ottla.console.lag_history import LagHistory, OffsetSample

LIMITS: Final[dict[str, int]] = {
    "behind": 300,
    "stuck": 240,
    "partitions": 0,
    "disk": 24,
    "dead-letters": 10,
}
"""The rules with their limits, in the units of the table above."""
MOST_FOUND: Final = 100
"""Subjects of a rule; there are as many alerts as a person can look at."""
OF_DEAD_LETTERS: Final = re.compile(r"(?:^|[._-])(?:dlq|dlt|dead[._-]?letters?)(?:$|[._-])", re.I)
FULL: Final = 0.95
"""A disk that is this full is in danger, however it grows."""
HOUR_MS: Final = 3_600_000
LEAST_GROWTH_MS: Final = 600_000
"""The growth of a disk is not known from less than ten minutes."""


class AlertFinding(NamedTuple):
    """Something that a rule is true of now: a sentence, and the page that shows it."""

    subject: str
    text: str
    path: str


class DiskSample(NamedTuple):
    """The volume of a log directory at a moment, in bytes."""

    time_ms: int
    usable: int
    total: int


def behind(groups: Iterable[GroupLag], limit_s: int) -> list[AlertFinding]:
    """Groups whose next record has waited for longer, those that wait longest first."""
    late = [each for each in groups if is_late(each, limit_s)]
    late.sort(key=lambda each: (-each.seconds, each.group))
    return [
        AlertFinding(
            each.group,
            f"group {each.group} is {duration(round(1000 * each.seconds))} behind, "
            f"by {count(each.total, 'record')}",
            group_path(each.group),
        )
        for each in late
    ]


def is_late(each: GroupLag, limit_s: int) -> bool:
    """Whether records wait for the group for so long.

    None wait for a group that remembers which letters of a queue were sent back: they go when
    somebody sends them.
    """
    is_redrive = [each.group] == [REDRIVE_GROUP + topic for topic in each.lag]
    return each.total > 0 and each.seconds >= limit_s and not is_redrive


def stuck(groups: Mapping[str, GroupLag], history: LagHistory, limit_s: int) -> list[AlertFinding]:
    """Groups that have committed one offset for longer, while records were there to read."""
    late = {name for name, each in groups.items() if is_late(each, limit_s)}
    found: dict[str, AlertFinding] = {}
    for group, partition, commits in history.commits_of(late):
        ends = history.ends(partition)
        if group not in found and ends and stands(commits, ends, limit_s):
            offset = commits[-1].offset
            found[group] = AlertFinding(
                group,
                f"group {group} stands at offset {offset:,} of {partition}, where "
                f"{count(ends[-1].offset - offset, 'record')} wait",
                group_path(group),
            )
    return sorted(found.values())


def stands(commits: Sequence[OffsetSample], ends: Sequence[OffsetSample], limit_s: int) -> bool:
    """Whether the newest offset was committed so long ago, and was behind the log's end then."""
    newest = commits[-1]
    since_ms = newest.time_ms
    for each in reversed(commits):
        if each.offset != newest.offset:
            break
        since_ms = each.time_ms
    if newest.time_ms - since_ms < 1000 * limit_s:
        return False
    then = [each for each in ends if each.time_ms <= since_ms] or ends[:1]
    return then[-1].offset > newest.offset


def partitions(known: Cluster) -> list[AlertFinding]:
    """Topics with partitions that have no leader or have lost replicas, the worst first."""
    wanted = [(info.name, each) for info in known.topics.values() for each in in_danger(info)]
    wanted.sort(key=lambda pair: (not pair[1].is_bad, pair[0]))
    found: dict[str, AlertFinding] = {}
    for name, each in wanted:
        found.setdefault(name, AlertFinding(name, each.text, each.path))
    return list(found.values())


def disk(
    volumes: Mapping[tuple[int, str], Sequence[DiskSample]], limit_h: int
) -> list[AlertFinding]:
    """Log directories that are nearly full, or will be within some hours."""
    found = []
    for (broker, path), samples in sorted(volumes.items()):
        newest = samples[-1]
        hours = hours_left(samples)
        is_full = newest.total > 0 and 1 - newest.usable / newest.total >= FULL
        if is_full or (hours is not None and hours <= limit_h):
            when = "is nearly full" if hours is None else f"will be full in {hours:.1f} h"
            text = f"broker {broker}: {path} {when}, {newest.usable:,} bytes are left"
            found.append(AlertFinding(f"broker {broker} {path}", text, f"/broker?id={broker}"))
    return found


def hours_left(samples: Sequence[DiskSample]) -> float | None:
    """When a volume is full if it grows as it has; None where it does not, or is not known."""
    first, last = samples[0], samples[-1]
    took_ms, grown = last.time_ms - first.time_ms, first.usable - last.usable
    if took_ms < LEAST_GROWTH_MS or grown <= 0:
        return None
    return last.usable / grown * took_ms / HOUR_MS


def dead_letters(
    arrived: Mapping[str, tuple[int, int]], now_ms: int, quiet_min: int
) -> list[AlertFinding]:
    """Topics of dead letters with the records that have come, until none comes for a while."""
    return [
        AlertFinding(
            topic, f"{count(came, 'dead letter')} came into {topic}", f"/t/{topic}/records"
        )
        for topic, (came, last_ms) in sorted(arrived.items())
        if came and now_ms - last_ms < 60_000 * quiet_min
    ]
