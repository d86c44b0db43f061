"""Plans of new offsets for a group: the scenarios of `--reset-offsets` (KIP-122).

A plan is a pure function of offsets that were looked up before: `timestamps` names those that a
scenario needs, `new_offsets` makes the plan of them. So tools that block and pages that must not
plan alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from ottla.config.config_type import LONG_MAX
from ottla.structs import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NamedTuple, TopicPartition

Offsets = Mapping[TopicPartition, int]


class ResetScenario(Enum):
    """Where offsets are moved to; the value is the name of the option of Kafka's tool."""

    EARLIEST = "to-earliest"
    LATEST = "to-latest"
    CURRENT = "to-current"
    SINCE = "to-datetime"
    SHIFT = "shift-by"
    OFFSET = "to-offset"


class OffsetReset(NamedTuple):
    """A scenario with its moment (ms since 1970), shift or offset; 0 for one that takes none."""

    scenario: ResetScenario
    value: int = 0

    @property
    def moment(self) -> int:
        """The timestamp to look up: those below 0 are the protocol's numbers for named times."""
        return min(max(0, self.value), LONG_MAX)


def timestamps(reset: OffsetReset) -> tuple[int, ...]:
    """The timestamps by which the offsets of all partitions are looked up, for ListOffsets."""
    scenario = reset.scenario
    if scenario is ResetScenario.EARLIEST:
        return (EARLIEST_TIMESTAMP,)
    if scenario is ResetScenario.SINCE:
        return (reset.moment, LATEST_TIMESTAMP)
    if scenario in (ResetScenario.SHIFT, ResetScenario.OFFSET):
        return (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
    return (LATEST_TIMESTAMP,)


def new_offsets(
    group_id: str,
    reset: OffsetReset,
    found: Mapping[int, Offsets],
    committed: Offsets,
    note: Callable[[str], object],
) -> dict[TopicPartition, int]:
    """The new offset of each partition that was looked up.

    `found` has offsets by the timestamps that were looked up, -1 where no record is as new.
    `note` gets a sentence for each partition that goes elsewhere than requested. Raises ValueError
    for a shift of a partition without a committed offset.
    """
    scenario = reset.scenario
    if scenario is ResetScenario.EARLIEST:
        return dict(found[EARLIEST_TIMESTAMP])
    ends = found[LATEST_TIMESTAMP]
    if scenario is ResetScenario.LATEST:
        return dict(ends)
    if scenario is ResetScenario.CURRENT:
        return {partition: committed.get(partition, end) for partition, end in ends.items()}
    if scenario is ResetScenario.SINCE:
        return _since(found[reset.moment], ends, note)
    if scenario is ResetScenario.OFFSET:
        return within_log(dict.fromkeys(ends, reset.value), found, note)
    for partition in ends:
        if partition not in committed:
            raise ValueError(f"cannot shift the offset of {partition}: group '{group_id}' has none")
    shifted = {partition: committed[partition] + reset.value for partition in ends}
    return within_log(shifted, found, note)


def within_log(
    wanted: Offsets, found: Mapping[int, Offsets], note: Callable[[str], object]
) -> dict[TopicPartition, int]:
    """Offsets moved into the range that the log has, with a note for each that was not."""
    starts, ends = found[EARLIEST_TIMESTAMP], found[LATEST_TIMESTAMP]
    clamped = {}
    for partition, offset in wanted.items():
        nearest = min(max(offset, starts[partition]), ends[partition])
        if nearest != offset:
            side = "higher than latest" if offset > nearest else "lower than earliest"
            note(
                f"new offset {offset} is {side} offset of partition {partition}; "
                f"it is set to {nearest}"
            )
        clamped[partition] = nearest
    return clamped


def _since(
    found: Offsets, ends: Offsets, note: Callable[[str], object]
) -> dict[TopicPartition, int]:
    """The first offset since the moment; the log end where no record is as new."""
    for partition, offset in found.items():
        if offset < 0:
            note(
                f"partition {partition} has no record with such a timestamp or a newer one; "
                "it is reset to the log end"
            )
    return {each: offset if offset >= 0 else ends[each] for each, offset in found.items()}
