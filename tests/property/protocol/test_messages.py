"""What holds for every value that a message can have: it survives the wire, whatever it is."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from breadth import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import RemoteProtocolError
from ottla.protocol.__main__ import messages
from ottla.protocol.message import Message, Struct, decode, encode, encode_parts, join
from ottla.protocol.types import Array, Boolean, Bytes, Field, Fixed, Float64, Records, String, Uuid

VERSIONED = [
    (cls, version)
    for cls in messages().values()
    for version in range(cls.min_version, cls.max_version + 1)
]
common = settings(derandomize=True, max_examples=examples(250), deadline=None, database=None)


def values(type: Any, version: int) -> st.SearchStrategy[Any]:
    """Every value that a field of this type can have."""
    if isinstance(type, Array):
        return st.lists(values(type.element, version), max_size=3)
    if type is String:
        return st.text(st.characters(codec="utf-8"), max_size=300)
    if type is Bytes or type is Records:
        return st.binary(max_size=300)
    if type is Uuid:
        return st.builds(UUID, int=st.integers(0, 2**128 - 1))
    if type is Boolean:
        return st.booleans()
    if type is Float64:
        return st.floats(allow_nan=False)
    if isinstance(type, Fixed):
        limit = 1 << (8 * type.size - 1)
        return st.integers(-limit, limit - 1)
    return structs(type, version)


def fields(field: Field, version: int) -> st.SearchStrategy[Any]:
    """Every value of a field, null and the default among them."""
    strategy = values(field.type, version)
    if version in field.nullable:
        strategy = st.none() | strategy
    if field.tag is not None and not field.is_list:
        # A tagged field that has its default is not written, and a struct of defaults comes back
        # as an absent one.
        strategy = st.just(field.default) | strategy.filter(lambda value: not is_default(value))
    return strategy


def is_default(value: Any) -> bool:
    return isinstance(value, Struct) and value == type(value)()


def structs(cls: type[Struct], version: int) -> st.SearchStrategy[Any]:
    """Every value of a struct that a version can express."""
    present = {f.name: fields(f, version) for f in cls.fields if version in f.versions}
    return st.fixed_dictionaries(present).map(lambda values: cls(**values))


@st.composite
def versioned_messages(draw: Any) -> tuple[Any, int]:
    cls, version = draw(st.sampled_from(VERSIONED))
    return draw(structs(cls, version)), version


@common
@given(versioned_messages())
def test_message_is_equal_after_the_wire(case: tuple[Any, int]) -> None:
    """What one side encodes is what the other decodes, also from parts that are sent in order."""
    message, version = case
    data = encode(message, version)

    assert decode(type(message), version, data) == message
    assert join(encode_parts(message, version, bytearray(b"before"))) == b"before" + data


@common
@given(st.sampled_from(VERSIONED), st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(case: tuple[type[Message], int], data: bytes) -> None:
    """No bytes raise anything but RemoteProtocolError, and what is read can be written."""
    cls, version = case
    try:
        message = decode(cls, version, data)
    except RemoteProtocolError:
        return

    encode(message, version)
