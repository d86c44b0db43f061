"""Values: what a dataclass does, they do as well."""

from __future__ import annotations

from typing import ClassVar

import pytest

from ottla.structs import Value, field, replace


class Reading(Value):
    """A value that changes."""

    unit: ClassVar[str] = "ms"

    name: str
    size: int = 0
    notes: list[str] = field(default_factory=list)
    seen: int = field(default=7, repr=False, compare=False)
    label: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.label = f"{self.name} in {self.unit}"


class Place(Value, frozen=True):
    """A value that does not."""

    topic: str
    offset: int = 0


class Nearer(Place, frozen=True):
    """One with a field more, and one of its own type."""

    offset: int
    epoch: int = -1


class Member(Value, eq=False, kw_only=True):
    """Something that is only equal to itself."""

    name: str
    size: int = 0


def test_a_value_is_made_of_places_keywords_and_defaults():
    """What is not given starts as the class says; what starts as something new is not shared."""
    first, second = Reading("a"), Reading("a", notes=["x"], size=2)
    first.notes.append("y")

    assert (first.name, first.size, first.notes, first.seen) == ("a", 0, ["y"], 7)
    assert (second.size, second.notes, Reading("b").notes) == (2, ["x"], [])
    assert first.label == "a in ms"


@pytest.mark.parametrize(
    ("values", "named", "error"),
    [
        ((), {}, r"Reading.__init__\(\) missing 1 required positional argument: 'name'"),
        (("a",), {"colour": 1}, "unexpected keyword argument 'colour'"),
        (("a",), {"label": "b"}, "unexpected keyword argument 'label'"),
    ],
)
def test_what_does_not_fit_is_refused(values, named, error):
    """As any function refuses it, and under the name of the class."""
    with pytest.raises(TypeError, match=error):
        Reading(*values, **named)


def test_there_are_no_other_attributes():
    """A misspelt field is an error, and an object is as small as can be."""
    with pytest.raises(AttributeError):
        Reading("a").sizes = 3
    assert not hasattr(Reading("a"), "__dict__")


def test_values_compare_by_what_is_compared():
    """Two of one class with the same values are equal, and cannot be hashed as they may change."""
    assert Reading("a", seen=1) == Reading("a", seen=2)
    assert Reading("a") != Reading("a", size=1)
    assert Reading("a") != "a"
    assert Place("a") != Nearer("a", 0)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Reading("a"))


def test_a_frozen_value_is_hashed_and_never_changes():
    """It can stand in a set; nobody sets or removes a field."""
    place = Place("a", 1)

    assert {place, Place("a", 1)} == {place}
    with pytest.raises(AttributeError, match="Place is frozen; offset cannot be set"):
        place.offset = 2
    with pytest.raises(AttributeError, match="frozen"):
        del place.offset


def test_fields_of_the_base_come_first():
    """A class that says another type for a field of its base has it once."""
    near = Nearer("a", 1, 5)

    assert (near.topic, near.offset, near.epoch) == ("a", 1, 5)
    assert repr(near) == "Nearer(topic='a', offset=1, epoch=5)"
    assert replace(near, epoch=6) == Nearer("a", 1, 6)


def test_a_value_with_identity_equals_itself_alone():
    """Two members with the same name are two members."""
    one = Member(name="a")

    assert one == one
    assert one != Member(name="a")
    assert one in {one}
    with pytest.raises(TypeError, match="positional"):
        Member("a")


def test_what_shall_not_be_shown_is_not():
    """A password in a value stays out of the log."""
    assert repr(Reading("a", 1, seen=9)) == "Reading(name='a', size=1, notes=[])"


def test_replace_makes_another_value():
    """The first one stays as it is, and what is derived is derived again."""
    first = Reading("a", 1)
    second = replace(first, name="b")

    assert (first.name, second.name, second.size, second.label) == ("a", "b", 1, "b in ms")
