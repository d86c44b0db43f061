"""Named tuples of ottla.named_tuple are those of typing, but for their annotations."""

from __future__ import annotations

import inspect
import pickle
from typing import Generic, TypeVar
from typing import NamedTuple as TypingNamedTuple

import pytest

from ottla.named_tuple import NamedTuple

T = TypeVar("T")


class Ours(NamedTuple):
    """A place."""

    host: str
    port: int = 9092
    racks: tuple[str, ...] = ()

    @property
    def is_default(self) -> bool:
        return self.port == 9092

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Theirs(TypingNamedTuple):
    """A place."""

    host: str
    port: int = 9092
    racks: tuple[str, ...] = ()

    @property
    def is_default(self) -> bool:
        return self.port == 9092

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Point(NamedTuple):
    x: int
    y: int
    z: int


class Found(NamedTuple, Generic[T]):
    value: T
    count: int = 0


CALLS = [
    lambda made: made("a"),
    lambda made: made("a", 1, ("r",)),
    lambda made: made(port=1, host="a")._replace(host="b"),
    lambda made: made._make(["a", 1, ()]),
]


@pytest.mark.parametrize("call", CALLS)
def test_values_are_those_of_typing(call):
    """Fields, order, texts, hashes and pickles are the same."""
    ours, theirs = call(Ours), call(Theirs)

    assert ours == theirs == tuple(ours)
    assert hash(ours) == hash(theirs)
    assert (str(ours), ours._asdict()) == (str(theirs), theirs._asdict())
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert ours.is_default == theirs.is_default
    assert ours.__replace__(host="c") == theirs._replace(host="c")
    again = pickle.loads(pickle.dumps(ours))
    assert (again, type(again)) == (ours, Ours)
    assert not hasattr(ours, "__dict__")


@pytest.mark.parametrize("name", ["_fields", "_field_defaults", "__match_args__", "__doc__"])
def test_classes_are_those_of_typing(name):
    """Code that asks a class for its fields finds the same."""
    assert getattr(Ours, name) == getattr(Theirs, name)
    assert list(Ours.__annotations__) == list(Theirs.__annotations__)
    assert (Ours.__module__, Ours.__qualname__) == (__name__, "Ours")


WRONG = [
    lambda made: made(),
    lambda made: made("a", 1, (), 2),
    lambda made: made("a", rack=()),
    lambda made: made._make(["a", 1]),
    lambda made: made("a")._replace(rack=()),
]


@pytest.mark.parametrize("call", WRONG)
def test_wrong_values_are_refused_as_by_typing(call):
    """A value too few, too many or of another name is an error of the caller, in the same words."""
    with pytest.raises((TypeError, ValueError)) as ours:
        call(Ours)
    with pytest.raises((TypeError, ValueError)) as theirs:
        call(Theirs)

    assert type(ours.value) is type(theirs.value)
    assert str(ours.value) == str(theirs.value).replace("Theirs", "Ours")


def test_constructors_are_told_apart():
    """Two classes of as many fields share compiled code, and neither names nor defaults."""
    same = Point(1, 2, 3)

    assert (same.x, same._asdict()) == (1, {"x": 1, "y": 2, "z": 3})
    assert Ours(host="a", port=2) == ("a", 2, ())
    assert str(inspect.signature(Ours)) == "(host, port=9092, racks=())"
    with pytest.raises(TypeError, match="'z'"):
        Point(1, 2)


def test_named_tuples_may_be_generic():
    """A second base stays one."""
    assert Found[int](3).value == 3
    assert Found("a", count=2) == ("a", 2)
