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


def test_offsets_go_to_the_source_of_their_topic():
    """A source refuses those of other topics; a pipeline has a source for each input."""
    start = Start.parse('{"sales": {"0": 5, "1": -1}, "shipments": {"0": 7}}')

    assert start.of("sales") == {"startingOffsets": '{"sales": {"0": 5, "1": -1}}'}
    assert start.of("shipments") == {"startingOffsets": '{"shipments": {"0": 7}}'}
    assert start.of("reorders") == {"startingOffsets": "earliest"}
    assert Start.parse("latest").of("sales") == {"startingOffsets": "latest"}


@pytest.mark.parametrize("text", ["{", "{}]", '{"a": 5}', '{"a": {"x": 5}}', '{"a": {"0": -3}}'])
def test_offsets_that_are_none_are_told(text):
    """With the form that they have."""
    with pytest.raises(ValueError, match="is no JSON like ") as error:
        Start.parse(text)
    assert text in str(error.value)


def test_time_that_no_record_has_reached_is_the_end():
    """A partition without a record that is young enough is read from its end."""
    assert Start.parse("1").options["startingOffsetsByTimestampStrategy"] == "latest"


@pytest.mark.parametrize("text", ["", "noon", "2026-03-02T08:00:00", "-5"])
def test_wrong_start_is_told(text):
    """A time needs its zone."""
    with pytest.raises(ValueError, match="is none of: earliest, latest, a time"):
        Start.parse(text)
