"""A reset plan as CSV: `topic,partition,offset`, or with the group in front of each line."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from io import StringIO
from pathlib import Path

from ottla.cli.command_error import CommandError
from ottla.structs import TopicPartition

ResetPlan = dict[str, dict[TopicPartition, int]]


def plan_as_csv(plan: ResetPlan, *, with_group: bool) -> str:
    """The lines that --export prints."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for group, offsets in plan.items():
        for (topic, partition), offset in sorted(offsets.items()):
            writer.writerow([group, topic, partition, offset][0 if with_group else 1 :])
    return text.getvalue()


def read_plan(path: str, *, only_group: str | None) -> ResetPlan:
    """The plan in a file; lines without a group belong to `only_group`."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
    plan: ResetPlan = {}
    for number, row in enumerate(csv.reader(text.splitlines()), 1):
        if not row:
            continue
        try:
            group, partition, offset = _parse_row(row, only_group)
        except ValueError:
            expected = "topic,partition,offset" if only_group else "group,topic,partition,offset"
            raise CommandError(
                f"{path}, line {number}: expected {expected}, found '{','.join(row)}'"
            ) from None
        plan.setdefault(group, {})[partition] = offset
    return plan


def _parse_row(row: Iterable[str], only_group: str | None) -> tuple[str, TopicPartition, int]:
    *group, topic, partition, offset = (field.strip() for field in row)
    if len(group) > 1 or not (group or only_group):
        raise ValueError(row)
    owner = group[0] if group else str(only_group)
    return owner, TopicPartition(topic, int(partition)), int(offset)
