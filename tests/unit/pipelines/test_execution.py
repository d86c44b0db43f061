"""Where a run begins."""

from __future__ import annotations

import pytest

from ottla.pipelines.execution import Start


@pytest.mark.parametrize(
    ("text", "option", "value"),
    [
        ("earliest", "startingOffsets", "earliest"),
        ("latest", "startingOffsets", "latest"),
        ('{"a":{"0":5}}', "startingOffsets", '{"a":{"0":5}}'),
        ("1772438400000", "startingTimestamp", "1772438400000"),
        ("2026-03-02T08:00:00Z", "startingTimestamp", "1772438400000"),
        ("2026-03-02T09:00:00+01:00", "startingTimestamp", "1772438400000"),
    ],
)
def test_start_becomes_an_option_of_the_source(text, option, value):
    """A word, offsets, or a moment in either form."""
    assert Start.parse(text).options[option] == value


def test_time_that_no_record_has_reached_is_the_end():
    """A partition without a record that is young enough is read from its end."""
    assert Start.parse("1").options["startingOffsetsByTimestampStrategy"] == "latest"


@pytest.mark.parametrize("text", ["", "noon", "2026-03-02T08:00:00", "-5"])
def test_wrong_start_is_told(text):
    """A time needs its zone."""
    with pytest.raises(ValueError, match="is none of: earliest, latest, a time"):
        Start.parse(text)
