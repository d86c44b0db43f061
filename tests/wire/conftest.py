"""Messages filled at random, to be compared with other implementations of the protocol."""

from __future__ import annotations

import importlib
import random
import string
import warnings
from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.message import Message, Struct
from ottla.protocol.types import Array, Boolean, Bytes, Field, Fixed, Float64, Records, String, Uuid

with warnings.catch_warnings():
    # It reads its schemas by a deprecated call when it is first imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    importlib.import_module("kafka.protocol")

ALPHABET = string.ascii_letters + "._- é€𝄞日本\n\0"
MAX_MS = 10**12


class Filler:
    """Fills the fields that a version has; the same seed gives the same values.

    Error codes are ones that exist, and times are between 1970 and 2001, since one of the other
    implementations turns both into objects of its own.
    """

    def __init__(self, version: int, seed: str, longest: int) -> None:
        self.version = version
        self.random = random.Random(seed)
        self.longest = longest

    def struct(self, cls: type[Struct]) -> Any:
        filled = cls()
        for field in cls.fields:
            if self.version in field.versions and not self.stays_default(field):
                setattr(filled, field.name, self.field(field))
        return filled

    def stays_default(self, field: Field) -> bool:
        may_be_absent = field.tag is not None or self.version in field.nullable
        return may_be_absent and self.random.random() < 0.3

    def field(self, field: Field) -> Any:
        if self.version in field.nullable and self.random.random() < 0.2:
            return None
        if field.name.endswith("error_code"):
            return int(self.random.choice(list(ErrorCode)[:100]))
        if field.name.endswith(("_ms", "timestamp")):
            return self.random.randrange(MAX_MS if field.type.size == 8 else 2**31)
        return self.value(field.type)

    def sizes(self, longest: int) -> list[int]:
        return [0, 1, min(60, self.longest), min(longest, self.longest)]

    def value(self, type: Any) -> Any:
        draw = self.random
        if isinstance(type, Array):
            return [self.value(type.element) for _ in range(draw.choice([0, 1, 1, 2, 5]))]
        if type is String:
            return "".join(draw.choices(ALPHABET, k=draw.choice(self.sizes(200))))
        if type is Bytes or type is Records:
            return draw.randbytes(draw.choice(self.sizes(5000)))
        if type is Uuid:
            return UUID(int=draw.choice([0, 1, draw.getrandbits(128)]))
        if type is Boolean:
            return draw.random() < 0.5
        if type is Float64:
            return draw.choice([0.0, -1.5, 1e300, float(draw.randrange(1 << 50))])
        if isinstance(type, Fixed):
            limit = 1 << (8 * type.size - 1)
            return draw.choice([0, 1, -1, limit - 1, -limit, draw.randrange(-limit, limit)])
        return self.struct(type)


@pytest.fixture
def fill() -> Any:
    """`fill(cls, version, seed)`: a message of this class and version with random values."""

    def fill(cls: type[Message], version: int, seed: int, longest: int = 5000) -> Any:
        return Filler(version, f"{cls.__name__} {version} {seed}", longest).struct(cls)

    return fill
