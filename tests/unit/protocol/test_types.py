"""Version ranges and field declarations."""

from __future__ import annotations

import pytest

from ottla.protocol.produce import LeaderIdAndEpoch
from ottla.protocol.types import NONE, Array, Int32, String, Uuid, Versions, field
from ottla.structs import NO_UUID


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3", [3], [2, 4]), ("0-7", [0, 7], [8, -1]), ("9+", [9, 30000], [8]), ("none", [], [0, 1])],
)
def test_versions_are_read_as_kafka_writes_them(
    text: str, inside: list[int], outside: list[int]
) -> None:
    """One version, a range, an open range or none."""
    versions = Versions.parse(text)

    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)


@pytest.mark.parametrize("text", ["", "a", "3-", "-3", "1-2-3", "3 +"])
def test_versions_of_another_form_are_refused(text: str) -> None:
    """The error quotes what was written."""
    with pytest.raises(ValueError, match="is not a range of versions"):
        Versions.parse(text)


@pytest.mark.parametrize(
    ("text", "shown"), [("0-7", "0-7"), ("9+", "9+"), ("none", "none"), ("3", "3-3")]
)
def test_versions_show_their_range(text: str, shown: str) -> None:
    """The text can be read back."""
    assert str(Versions.parse(text)) == shown
    assert Versions.parse(shown) == Versions.parse(text)


def test_versions_are_numbers() -> None:
    """They are in a range of them, and none is in NONE; a text is no version."""
    assert 0 in Versions.parse("0+")
    assert 0 not in NONE
    assert "0" not in Versions.parse("0+")


@pytest.mark.parametrize(
    ("declared", "default"),
    [
        (field(Int32), 0),
        (field(Int32, default=-1), -1),
        (field(String), ""),
        (field(String, nullable="0+"), None),
        (field(String, versions="7+", nullable="7+"), None),
        (field(String, nullable="7+"), ""),
        (field(String, versions="1-3", nullable="1-3"), None),
        (field(Uuid), NO_UUID),
        (field(Array(Int32), nullable="0+"), None),
        (field(LeaderIdAndEpoch, tag=0), None),
    ],
)
def test_field_starts_as_null_or_empty(declared: object, default: object) -> None:
    """Null only where null is legal in all versions of the field, or for an absent struct."""
    assert declared.default == default


def test_array_that_may_not_be_null_starts_as_an_empty_list() -> None:
    """Each message gets a list of its own, so the declaration has none."""
    assert field(Array(Int32)).is_list
    assert field(Array(Int32), nullable="2+").is_list
    assert not field(Array(Int32), nullable="0+").is_list
