"""The types that a field can have on the wire, and the `field` declarations made of them.

A type knows its layout only. Which of the two length encodings it uses (fixed-width, or the
compact varint of flexible versions, KIP-482) is decided by the version of the message.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, dataclass_transform

from ottla.structs import NO_UUID, NamedTuple

if TYPE_CHECKING:
    from ottla.runtime import FileRegion

Buffer: TypeAlias = bytes | bytearray | memoryview
Part: TypeAlias = "Buffer | FileRegion"
# Decoding gives a memoryview into the frame (or None). Encoding takes anything bytes-like, a
# FileRegion or a list of these. Python cannot type an attribute by direction, hence Any.
RecordsData: TypeAlias = Any

BYTES_LIKE: Final = (bytes, bytearray, memoryview)
MAX_STRING_BYTES: Final = 0x7FFF
UNLIMITED: Final = 1 << 62
"""The elements of all arrays of a message together, where nobody says how many it may have."""


class Versions(NamedTuple):
    """An inclusive range of versions; `NONE` contains no version."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        if self.first > self.last:
            return "none"
        return f"{self.first}-{self.last}" if self.last < NEWEST else f"{self.first}+"

    @classmethod
    @cache  # few of them stand in thousands of fields
    def parse(cls, text: str) -> Versions:
        """The range written as Kafka writes it: `3`, `0-7`, `9+` or `none`."""
        if text == "none":
            return NONE
        match = re.fullmatch(r"(\d+)(?:-(\d+)|(\+))?", text)
        if match is None:
            raise ValueError(f"'{text}' is not a range of versions such as 3, 0-7, 9+ or none")
        first = int(match[1])
        last = NEWEST if match[3] else int(match[2] or first)
        return cls(first, last)


NEWEST: Final = 0x7FFF
NONE: Final = Versions(1, 0)


class Fixed(NamedTuple):
    """A value of fixed width: `code` is its letter in the formats of the `struct` module."""

    name: str
    code: str
    size: int
    default: object


class Sized(NamedTuple):
    """Bytes with a length in front: text, opaque bytes, or record batches."""

    name: str
    length_code: str
    default: object


class Array:
    """A count followed by as many elements of one type (a wire type or a `Struct` class)."""

    __slots__ = ("element",)

    def __init__(self, element: Any) -> None:
        self.element = element


Boolean = Fixed("Boolean", "?", 1, False)
Int8 = Fixed("Int8", "b", 1, 0)
Int16 = Fixed("Int16", "h", 2, 0)
Int32 = Fixed("Int32", "i", 4, 0)
Int64 = Fixed("Int64", "q", 8, 0)
Float64 = Fixed("Float64", "d", 8, 0.0)
Uuid = Fixed("Uuid", "16s", 16, NO_UUID)
String = Sized("String", "h", "")
Bytes = Sized("Bytes", "i", b"")
Records = Sized("Records", "i", None)

UNSET: Final = object()


class Field(NamedTuple):
    """A field as its message class declares it.

    `default` is the decoded value in a version without the field. When `ignorable`, encoding such a
    version drops the value; otherwise a value other than the default is refused there.
    """

    type: Any
    versions: Versions
    nullable: Versions
    tag: int | None
    default: Any
    ignorable: bool
    name: str = ""

    def named(self, name: str) -> Field:
        return self._replace(name=name)

    @property
    def is_list(self) -> bool:
        """Whether the default is an empty list; each message then needs its own."""
        return self.default is UNSET

    @property
    def is_struct(self) -> bool:
        return isinstance(self.type, type)


def field(
    type: Any,
    *,
    versions: str = "0+",
    nullable: str = "none",
    default: Any = UNSET,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a field of a message; with a `tag` it lives in the tagged section (KIP-482).

    Without a default it starts as null if it may be null in all of its versions, as null if it is
    a struct (an absent one), and else as the empty value of its type.
    """
    exists = Versions.parse(versions)
    may_be_null = Versions.parse(nullable)
    if default is UNSET:
        always_nullable = may_be_null.first <= exists.first and may_be_null.last >= exists.last
        if always_nullable or not isinstance(type, Fixed | Sized | Array):
            default = None
        elif not isinstance(type, Array):
            default = type.default
    return Field(type, exists, may_be_null, tag, default, ignorable)


@dataclass_transform(kw_only_default=True)
class StructType(type):
    """The class of message classes: the `field(...)` declarations of a body become slots.

    The codecs are generated from `fields` and the options of the message. A part of messages is
    flexible where the message around it is. The fields of a base, of which there are no objects,
    stand before its own.
    """

    fields: tuple[Field, ...]
    holds_records: bool
    flexible: Versions
    ignores_rest: bool

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> StructType:
        declared = {key: value for key, value in namespace.items() if isinstance(value, Field)}
        for key in declared:
            del namespace[key]
        namespace["__slots__"] = tuple(declared)
        inherited = [field for base in bases for field in getattr(base, "fields", ())]
        own = [field.named(key) for key, field in declared.items()]
        namespace["fields"] = fields = (*inherited, *own)
        namespace["holds_records"] = any(_holds_records(f.type) for f in fields)
        return super().__new__(mcs, name, bases, namespace, **options)


def _holds_records(type: Any) -> bool:
    if isinstance(type, Array):
        return _holds_records(type.element)
    return type is Records or getattr(type, "holds_records", False)
