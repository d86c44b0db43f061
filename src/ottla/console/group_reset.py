"""The page that moves a group's offsets: a plan first, with the records at the new places."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.admin.descriptions import IDLE_STATES
from ottla.clients.admin.offset_reset import OffsetReset, ResetScenario, new_offsets, timestamps
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.console.group_look import log_states, result_of
from ottla.console.group_pages import existing, group_id_of, group_path
from ottla.console.lag_evidence import next_records
from ottla.console.page import ChangeOutcome, ConsoleChange, ConsolePage, Data, Visit
from ottla.console.refusals import REMADE, Refused
from ottla.structs import NamedTuple, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.console.group_look import GroupLook
    from ottla.console.lag_causes import WaitingRecord

SCENARIOS: Final = {each.value: each for each in ResetScenario}
WITH_VALUE: Final = {ResetScenario.SINCE, ResetScenario.SHIFT, ResetScenario.OFFSET}
LONGEST_PAIR: Final = len("2147483647:9223372036854775807")
MOST_PARTITIONS: Final = 1_000
"""The partitions of a topic whose offsets a page resets; the command line takes more."""


class ResetLine(NamedTuple):
    """A partition of the plan; `old` is None where nothing was committed."""

    partition: int
    old: int | None
    new: int
    end: int | None
    record: WaitingRecord | None
    """The record that is read next; None at the log end, and where records are not shown."""

    @property
    def again(self) -> int:
        """Records that are read once more; below 0: records that are skipped."""
        return 0 if self.old is None else self.old - self.new


class ResetPlan(NamedTuple):
    """The new offsets of a topic's partitions, and what differs from the request."""

    topic_id: str
    """The topic may be deleted and made again before the plan is carried out."""
    lines: list[ResetLine]
    notes: list[str]
    command: str

    @property
    def text(self) -> str:
        """The plan as the form carries it."""
        pairs = ",".join(f"{each.partition}:{each.new}" for each in self.lines)
        return f"{self.topic_id};{pairs}"


async def reset_form(visit: Visit) -> Data:
    """The form, and the plan once it is filled in; nothing is changed."""
    group_id = group_id_of(visit)
    look = await with_offsets(visit, group_id)
    topics = sorted({each.topic for each in {*look.committed, *look.logs}})
    topic = visit.query.get("topic", "") or (topics[0] if topics else "")
    scenario, value = visit.query.get("to", ""), visit.query.get("value", "").strip()
    plan = await _plan(visit, look, topic, scenario, value) if scenario else None
    lines = plan.lines if plan else []
    return {
        "group": group_id,
        "state": look.group.state,
        "members": [each.client_id for each in look.group.members],
        "allowed": look.group.state in IDLE_STATES,
        "topics": topics,
        "topic": topic,
        "to": scenario,
        "value": value,
        "scenarios": list(SCENARIOS),
        "lines": [{**each._asdict(), "again": each.again} for each in lines],
        "again": sum(max(0, each.again) for each in lines),
        "skipped": sum(max(0, -each.again) for each in lines),
        "notes": plan.notes if plan else [],
        "command": plan.command if plan else "",
        "plan": plan.text if plan else "",
        "shows_records": not visit.settings.hide_records and not visit.settings.masks,
    }


async def with_offsets(visit: Visit, group_id: str) -> GroupLook:
    """A group that commits offsets for its members alone; Refused for one of another kind."""
    look = await existing(visit, group_id)
    if look.other_type:
        raise Refused(
            f"{group_id} is a {look.other_type} group: its offsets are reset by "
            f"kafka-{look.other_type}-groups --reset-offsets"
        )
    return look


def reset_of(scenario: str, value: str) -> OffsetReset:
    """The reset that the form describes; Refused for a value that does not fit."""
    found = SCENARIOS.get(scenario)
    if found is None:
        raise Refused(f"to={scenario}: must be one of {', '.join(SCENARIOS)}")
    if found is ResetScenario.SINCE:
        return OffsetReset(found, _moment_ms(value))
    if found not in WITH_VALUE:
        return OffsetReset(found)
    try:
        return OffsetReset(found, int(value))
    except ValueError:
        raise Refused(f"value={value}: {scenario} takes a whole number") from None


def _moment_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(
            f"value={text}: a time is written 2026-03-02T08:00, with an optional zone"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


async def _plan(visit: Visit, look: GroupLook, topic: str, scenario: str, value: str) -> ResetPlan:
    """The plan of the Kafka-named tool: the same function makes both."""
    reset = reset_of(scenario, value)
    info = await visit.cluster.topic(topic)
    if len(info.partitions) > MOST_PARTITIONS:
        raise Refused(
            f"topic {topic} has more than {MOST_PARTITIONS:,} partitions: use the command"
        )
    wanted = [TopicPartition(topic, each) for each in sorted(info.partitions)]
    logs = await log_states(visit.cluster, wanted)
    led = [each for each in wanted if logs[each].end is not None]
    notes = [
        f"partition {each} has no leader; it is left out" for each in wanted if each not in led
    ]
    found = {each: await _offsets_at(visit, led, each) for each in timestamps(reset)}
    committed = {each: entry.offset for each, entry in look.committed.items()}
    group_id = look.group.group_id
    try:
        planned = new_offsets(group_id, reset, found, committed, notes.append)
    except ValueError as error:
        raise Refused(str(error)) from None
    ends = {each: logs[each].end for each in led}
    records = await _records(visit, planned, ends)
    lines = [
        ResetLine(each.partition, committed.get(each), offset, ends[each], records.get(each))
        for each, offset in sorted(planned.items())
    ]
    command = command_of(group_id, topic, scenario, value)
    return ResetPlan(str(info.topic_id or ""), lines, notes, command)


async def _offsets_at(
    visit: Visit, partitions: list[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    found = await visit.cluster.offsets_at(dict.fromkeys(partitions, timestamp))
    return {each: result_of(found, each).offset for each in found}


async def _records(
    visit: Visit, planned: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int | None]
) -> dict[TopicPartition, WaitingRecord]:
    """The records at the new places, where the console shows records."""
    if visit.settings.hide_records or visit.settings.masks:
        return {}
    places = {each: (offset, ends[each] or 0) for each, offset in planned.items()}
    return await next_records(visit.cluster, places)


def command_of(group_id: str, topic: str, scenario: str, value: str) -> str:
    """The command that makes the same plan; `--execute` behind it carries it out."""
    words = ["ottla", "consumer-groups", "--reset-offsets", "--group", group_id, "--topic", topic]
    words.append(f"--{scenario}")
    if SCENARIOS[scenario] in WITH_VALUE:
        words.append(value)
    return shlex.join(words)


async def reset(visit: Visit) -> ChangeOutcome:
    """Commit the offsets of the plan that was shown, if the group has no members."""
    group_id, topic = group_id_of(visit), visit.form.get("topic", "")
    look = await with_offsets(visit, group_id)
    if look.group.state not in IDLE_STATES:
        raise Refused(
            f"group {group_id} is {look.group.state}: offsets can be reset once its "
            f"{len(look.group.members)} members have stopped"
        )
    planned = await _checked(visit, topic, visit.form.get("plan", ""))
    offsets = {each: OffsetAndMetadata(offset) for each, offset in planned.items()}
    results = await visit.cluster.offsets.alter_group_offsets(group_id, offsets)
    failed = {each: error for each, error in results.items() if error is not None}
    if len(failed) == len(planned):
        raise next(iter(failed.values()))
    done = {each: offset for each, offset in planned.items() if each not in failed}
    problems = "".join(f" {each} is not: {error.message}." for each, error in failed.items())
    return ChangeOutcome(
        group_path(group_id),
        f"The offsets of {group_id} in {topic} are reset.{problems}",
        "consumer-groups --reset-offsets",
        group_id,
        {str(each): _committed(look, each) for each in done},
        {str(each): offset for each, offset in done.items()},
    )


async def _checked(visit: Visit, topic: str, text: str) -> dict[TopicPartition, int]:
    """The offsets of a plan that still fits the topic; nothing is changed by one that does not."""
    topic_id, _, pairs = text.partition(";")
    planned = planned_offsets(topic, pairs)
    await visit.cluster.changed()
    info = await visit.cluster.topic(topic)
    if topic_id != str(info.topic_id or ""):
        raise Refused(f"topic {topic} {REMADE}")
    for partition in planned:
        if partition.partition not in info.partitions:
            raise Refused(f"topic {topic} has no partition {partition.partition}")
    logs = await log_states(visit.cluster, planned)
    for partition, offset in planned.items():
        end = logs[partition].end
        if end is None:
            raise Refused(f"{partition} has no leader that knows where it ends")
        if offset > end:
            raise Refused(f"{partition} ends at {end}: offset {offset} is not there any more")
    return planned


def _committed(look: GroupLook, partition: TopicPartition) -> int | None:
    entry = look.committed.get(partition)
    return None if entry is None else entry.offset


def planned_offsets(topic: str, plan: str) -> dict[TopicPartition, int]:
    """The offsets of a plan as the form carries it, `0:71004,1:55`; Refused for anything else."""
    found: dict[TopicPartition, int] = {}
    for pair in plan.split(","):
        partition, _, offset = pair.partition(":")
        numbers = partition.isdecimal() and offset.isdecimal() and len(pair) <= LONGEST_PAIR
        if not (topic and numbers):
            raise Refused(f"plan={plan}: must have a partition and an offset each, as 0:71004")
        found[TopicPartition(topic, int(partition))] = int(offset)
    return found


RESET_PAGES: Final[tuple[Any, ...]] = (
    ConsolePage("/group/reset", reset_form, "group_reset.html", "Reset offsets", rail="Groups"),
)
RESET_CHANGES: Final = (ConsoleChange("/group/reset", reset),)
