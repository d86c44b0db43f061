"""Scenarios of a reset of committed offsets: what is looked up, and where the group goes."""

from __future__ import annotations

import pytest

from ottla.clients.admin.offset_reset import OffsetReset, ResetScenario, new_offsets, timestamps
from ottla.structs import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

T0 = TopicPartition("t", 0)
ENDS = (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
LOG = {EARLIEST_TIMESTAMP: {T0: 0}, LATEST_TIMESTAMP: {T0: 100}, 1000: {T0: 0}, 2000: {T0: -1}}
S = ResetScenario


@pytest.mark.parametrize(
    ("reset", "asked", "offset", "is_elsewhere"),
    [
        (OffsetReset(S.EARLIEST), (EARLIEST_TIMESTAMP,), 0, False),
        (OffsetReset(S.LATEST), (LATEST_TIMESTAMP,), 100, False),
        (OffsetReset(S.CURRENT), (LATEST_TIMESTAMP,), 40, False),
        (OffsetReset(S.SINCE, 1000), (1000, LATEST_TIMESTAMP), 0, False),
        (OffsetReset(S.SINCE, 2000), (2000, LATEST_TIMESTAMP), 100, True),
        (OffsetReset(S.OFFSET, 100), ENDS, 100, False),
        (OffsetReset(S.OFFSET, 101), ENDS, 100, True),
        (OffsetReset(S.SHIFT, 60), ENDS, 100, False),
        (OffsetReset(S.SHIFT, 61), ENDS, 100, True),
        (OffsetReset(S.SHIFT, -40), ENDS, 0, False),
        (OffsetReset(S.SHIFT, -41), ENDS, 0, True),
    ],
)
def test_offset_is_that_of_the_scenario(reset, asked, offset, is_elsewhere):
    """Within the log, and a note says where that is not what was requested."""
    notes: list[str] = []
    assert timestamps(reset) == asked
    found = {timestamp: LOG[timestamp] for timestamp in asked}

    assert new_offsets("g", reset, found, {T0: 40}, notes.append) == {T0: offset}
    assert len(notes) == is_elsewhere


@pytest.mark.parametrize(
    ("shift", "note"),
    [
        (61, "new offset 101 is higher than latest offset of partition t-0; it is set to 100"),
        (-41, "new offset -1 is lower than earliest offset of partition t-0; it is set to 0"),
    ],
)
def test_note_says_on_which_side_of_the_log_an_offset_was(shift, note):
    """And where the group goes instead."""
    notes: list[str] = []
    found = {timestamp: LOG[timestamp] for timestamp in ENDS}
    new_offsets("g", OffsetReset(S.SHIFT, shift), found, {T0: 40}, notes.append)

    assert notes == [note]


def test_group_without_an_offset_has_none_to_be_shifted():
    """It is at the end of the log, where it would begin."""
    with pytest.raises(ValueError, match="cannot shift the offset of t-0: group 'g' has none"):
        new_offsets("g", OffsetReset(S.SHIFT, 1), LOG, {}, print)
    assert new_offsets("g", OffsetReset(S.CURRENT), LOG, {}, print) == {T0: 100}
