"""Serdes: how the bytes of a record become a typed column, or a Python object, and bytes again.

A serde knows three forms of a value: bytes, as Kafka's own serdes write them; a column of
`type` in Spark; and an object, which Python functions see. Values go to Python functions
and back as bytes. A dataclass is read and written by the names of its fields, and may hold others,
lists and dicts.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
    _parse_datatype_string,
)

if TYPE_CHECKING:
    from pyspark.sql import Column


SCALARS: dict[Any, DataType] = {
    str: StringType(),
    int: LongType(),
    float: DoubleType(),
    bool: BooleanType(),
}


class Serdes:
    """The serdes there are, under the names of Kafka's factory."""

    @staticmethod
    def bytes() -> Serde:
        """Bytes as they are."""
        return BytesSerde()

    @staticmethod
    def string() -> Serde:
        """Text in UTF-8."""
        return StringSerde()

    @staticmethod
    def int() -> Serde:
        """A whole number in 4 bytes."""
        return IntegerSerde(4)

    @staticmethod
    def long() -> Serde:
        """A whole number in 8 bytes."""
        return IntegerSerde(8)

    @staticmethod
    def json(schema: str | DataType | type) -> Serde:
        """JSON of a dataclass, of a schema as SQL (`id long, name string`), or of a type."""
        if isinstance(schema, type):
            return JsonSerde(spark_type(schema), schema)
        return JsonSerde(schema)


def spark_type(annotation: Any) -> DataType:
    """The type of a column that holds objects of an annotated type."""
    if annotation in SCALARS:
        return SCALARS[annotation]
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        hints = typing.get_type_hints(annotation)
        names = [field.name for field in dataclasses.fields(annotation)]
        return StructType([StructField(name, spark_type(hints[name])) for name in names])
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is list:
        return ArrayType(spark_type(arguments[0]))
    if origin is dict and arguments[0] is str:
        return MapType(StringType(), spark_type(arguments[1]))
    inner = optional_of(annotation)
    if inner is not None:
        return spark_type(inner)
    raise TypeError(
        f"{annotation}: a field may be str, int, float, bool, a dataclass, list[...], "
        "dict[str, ...], or one of these or None"
    )


def optional_of(annotation: Any) -> Any:
    """X for `X | None`; None for everything else."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return None
    some = [each for each in typing.get_args(annotation) if each is not types.NoneType]
    return some[0] if len(some) == 1 else None


def constructed(annotation: Any, data: Any) -> Any:
    """Parsed JSON as an object of this type; fields that it lacks are None."""
    if data is None:
        return None
    annotation = optional_of(annotation) or annotation
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        hints = typing.get_type_hints(annotation)
        fields = [field.name for field in dataclasses.fields(annotation)]
        return annotation(**{name: constructed(hints[name], data.get(name)) for name in fields})
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is list:
        return [constructed(arguments[0], each) for each in data]
    if origin is dict:
        return {name: constructed(arguments[1], each) for name, each in data.items()}
    return data


def plain(thing: Any) -> Any:
    """Dataclasses as dicts, at any depth, so that they can be written as JSON."""
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return dataclasses.asdict(thing)
    if isinstance(thing, Mapping):
        return {name: plain(each) for name, each in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [plain(each) for each in thing]
    return thing


class Carried(ABC):
    """A kind of value that a Python function may return: how it gets back into a column."""

    @property
    @abstractmethod
    def carrier(self) -> DataType:
        """The type of the column that comes from Python."""

    @abstractmethod
    def from_object(self, thing: Any) -> Any:
        """The value of the carrier column for this object."""

    @abstractmethod
    def incoming(self, column: Column) -> Column:
        """The typed column for a carrier column."""


class Serde(Carried):
    """The format of keys or values of one kind. Serdes are immutable, and are sent to workers."""

    name = "serde"

    @property
    @abstractmethod
    def type(self) -> DataType:
        """The type of the column."""

    @abstractmethod
    def decode(self, column: Column) -> Column:
        """The typed column for a column of bytes; null where the bytes are not valid."""

    @abstractmethod
    def encode(self, column: Column) -> Column:
        """The bytes for a typed column."""

    @abstractmethod
    def to_bytes(self, thing: Any) -> bytes | None:
        """The bytes for an object."""

    @abstractmethod
    def from_bytes(self, data: bytes | None) -> Any:
        """The object for bytes."""

    @property
    def carrier(self) -> DataType:
        return BinaryType()

    def from_object(self, thing: Any) -> Any:
        return self.to_bytes(thing)

    def incoming(self, column: Column) -> Column:
        typed = self.decode(column)
        problem = F.raise_error(F.concat(F.lit(f"no {self.name}: "), column.cast("string")))
        return F.when(column.isNotNull() & typed.isNull(), problem).otherwise(typed)


class BytesSerde(Serde):
    """Bytes as they are."""

    name = "bytes"
    type = BinaryType()

    def decode(self, column: Column) -> Column:
        return column

    def encode(self, column: Column) -> Column:
        return column

    def to_bytes(self, thing: Any) -> bytes | None:
        return None if thing is None else bytes(thing)

    def from_bytes(self, data: bytes | None) -> Any:
        return data


class StringSerde(Serde):
    """Text in UTF-8; invalid bytes become U+FFFD, as in Java."""

    name = "string"
    type = StringType()

    def decode(self, column: Column) -> Column:
        return F.make_valid_utf8(column.cast("string"))

    def encode(self, column: Column) -> Column:
        return column.cast("binary")

    def to_bytes(self, thing: Any) -> bytes | None:
        return None if thing is None else str(thing).encode()

    def from_bytes(self, data: bytes | None) -> Any:
        return None if data is None else data.decode(errors="replace")


class IntegerSerde(Serde):
    """Whole numbers of 4 or 8 bytes, the most significant first, as Kafka's serdes write them."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.name = "long" if size == 8 else "int"

    @property
    def type(self) -> DataType:
        return LongType() if self._size == 8 else IntegerType()

    def decode(self, column: Column) -> Column:
        unused = 64 - 8 * self._size
        # To base -10, all 64 bits are a signed number; moved up and down, 32 of them are too.
        bits = F.conv(F.hex(column), 16, -10).cast("long")
        number = F.shiftright(F.shiftleft(bits, unused), unused).cast(self.type)
        return F.when(F.octet_length(column) == self._size, number)

    def encode(self, column: Column) -> Column:
        digits = F.lpad(F.hex(column.cast("long")), 16, "0")
        return F.unhex(F.substring(digits, 17 - 2 * self._size, 2 * self._size))

    def to_bytes(self, thing: Any) -> bytes | None:
        return None if thing is None else int(thing).to_bytes(self._size, "big", signed=True)

    def from_bytes(self, data: bytes | None) -> Any:
        if data is None:
            return None
        if len(data) != self._size:
            raise ValueError(f"{data!r} has {len(data)} bytes; a {self.name} has {self._size}")
        return int.from_bytes(data, "big", signed=True)


class JsonSerde(Serde):
    """JSON of a known type: objects, lists, numbers, true and false.

    Python functions see an instance of the dataclass, or the result of `json.loads`.
    """

    name = "json"

    def __init__(self, schema: DataType | str, dataclass: type | None = None) -> None:
        self._schema = schema
        self._dataclass = dataclass

    @property
    def type(self) -> DataType:
        if isinstance(self._schema, str):
            self._schema = _parse_datatype_string(self._schema)  # parsing needs a session
        if isinstance(self._schema, (StringType, BinaryType)):
            raise TypeError(f"json of {self._schema.simpleString()}: use Serdes.string()")
        return self._schema

    @property
    def _is_scalar(self) -> bool:
        return isinstance(self.type, (NumericType, BooleanType))

    def decode(self, column: Column) -> Column:
        text = F.make_valid_utf8(column.cast("string"))
        if self._is_scalar:
            return text.try_cast(self.type)
        if not isinstance(self.type, StructType):
            # from_json takes maps as well; its annotation says structs and arrays only.
            return F.from_json(text, self.type)  # type: ignore[arg-type]
        # Text that is no object gives a struct of nulls, unless there is a column for such text.
        problem = "_problem"
        asked = StructType(list(self.type.fields)).add(problem, StringType())
        text = F.when(F.length(F.trim(text)) > 0, text).otherwise("?")
        parsed = F.from_json(text, asked, {"columnNameOfCorruptRecord": problem})
        # The variable of the function stands for the parsed value, so that it is parsed once.
        return F.transform(
            F.array(parsed),
            lambda found: F.when(
                column.isNotNull() & found[problem].isNull(), found.dropFields(problem)
            ),
        )[0]

    def encode(self, column: Column) -> Column:
        if self._is_scalar:
            return column.cast("string").cast("binary")
        return F.to_json(column, {"ignoreNullFields": "false"}).cast("binary")

    def to_bytes(self, thing: Any) -> bytes | None:
        return None if thing is None else json.dumps(plain(thing), ensure_ascii=False).encode()

    def from_bytes(self, data: bytes | None) -> Any:
        if data is None:
            return None
        found = json.loads(data)
        return found if self._dataclass is None else constructed(self._dataclass, found)


def serde_for(found: DataType) -> Serde:
    """The serde for a column with a known type."""
    simple: dict[DataType, Serde] = {
        BinaryType(): BytesSerde(),
        StringType(): StringSerde(),
        IntegerType(): IntegerSerde(4),
        LongType(): IntegerSerde(8),
    }
    return simple.get(found) or JsonSerde(found)


def serde_of(annotation: Any) -> Serde | None:
    """The serde for a return annotation; None where that decides nothing."""
    simple: dict[Any, Serde] = {bytes: BytesSerde(), str: StringSerde(), int: IntegerSerde(8)}
    if annotation in simple:
        return simple[annotation]
    try:
        schema = spark_type(annotation)
    except TypeError:
        return None
    return JsonSerde(schema, annotation)
