"""The records that connectors, transforms and converters hand on, and the schemas of their values.

Values are plain Python, with a schema or without one:

    person = struct_of("Person", id=INT64, name=STRING, born=DATE.as_optional())
    SourceRecord(topic="people", value=person.struct(id=7, name="Ann"), value_schema=person)
    SourceRecord(topic="people", value={"id": 7, "name": "Ann"})

    int8 int16 int32 int64      int, in the range of the type
    float32 float64             float, or int
    boolean string bytes        bool, str, bytes
    array map                   list, dict
    struct                      dict with the names of the fields; an absent one is None
    Decimal Date Time           decimal.Decimal, datetime.date, datetime.time (milliseconds, UTC)
    Timestamp                   datetime.datetime (milliseconds); without a zone it is UTC

Types, names, versions and logical types are those of org.apache.kafka.connect.data. A value that
breaks its schema is a DataError that names the field, the value and the rule.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

from ottla.errors import ErrorCode, KafkaError
from ottla.record.consumer_record import TimestampType

SHOWN_CHARACTERS: Final = 80
"""How much of a wrong value an error shows."""


class DataError(KafkaError):
    """A value, or bytes, that do not fit; the text names the field, the value and the rule."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class MisfitError(DataError):
    """A value that breaks its schema: `path` leads to it, from the outside in."""

    def __init__(self, value: Any, rule: str, path: tuple[str, ...] = ()) -> None:
        self.value, self.rule, self.path = value, rule, path
        place = "".join(path).removeprefix(".") or "value"
        super().__init__(f"{place}={shown(value)}: {rule}")

    def inside(self, step: str) -> MisfitError:
        """The same, seen from the value around it; a step is `.field` or `[key]`."""
        return MisfitError(self.value, self.rule, (step, *self.path))


def shown(value: Any) -> str:
    """A value as an error shows it: one line, and not all of a long one."""
    try:
        text = repr(value)
    except Exception:  # too deep, or a class of a plug-in that cannot say it
        text = f"a {type(value).__name__}"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


class SchemaType(StrEnum):
    """The types of values; the names are Kafka's."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"


BITS: Final = {
    SchemaType.INT8: 8,
    SchemaType.INT16: 16,
    SchemaType.INT32: 32,
    SchemaType.INT64: 64,
}

DECIMAL_NAME: Final = "org.apache.kafka.connect.data.Decimal"
DATE_NAME: Final = "org.apache.kafka.connect.data.Date"
TIME_NAME: Final = "org.apache.kafka.connect.data.Time"
TIMESTAMP_NAME: Final = "org.apache.kafka.connect.data.Timestamp"
SCALE_PARAMETER: Final = "scale"
"""The parameter of a Decimal that says how many of its digits stand behind the point."""
MOST_DIGITS: Final = 200_000
"""Of a decimal that is written out; PostgreSQL has up to 131,072 before the point."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY: Final = EPOCH.toordinal()
MS_PER_DAY: Final = 86_400_000
IN_RANGE: Final = "be in the years 1 to 9999"
_MS: Final = timedelta(milliseconds=1)


class SchemaField(NamedTuple):
    """A field of a struct."""

    name: str
    schema: Schema


@dataclass(frozen=True, eq=False)
class Schema:
    """The type of a value, whether it may be None, and its name. Never changes.

    `fields` are those of a struct; `value_schema` is that of the items of an array and of the
    values of a map, `key_schema` that of the keys of a map. Two schemas are equal if all is equal.
    """

    type: SchemaType
    optional: bool = False
    default: Any = None
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fields: tuple[SchemaField, ...] = ()
    key_schema: Schema | None = None
    value_schema: Schema | None = None

    def __post_init__(self) -> None:
        fields = tuple(SchemaField(*field) for field in self.fields)
        object.__setattr__(self, "fields", fields)  # pairs are taken too
        if self.type in (SchemaType.ARRAY, SchemaType.MAP) and self.value_schema is None:
            raise DataError(f"schema {self}: must have the schema of its values")
        if self.type is SchemaType.MAP and self.key_schema is None:
            raise DataError(f"schema {self}: must have the schema of its keys")
        if len(self.by_name) < len(self.fields):
            names = [field.name for field in self.fields]
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"schema {self}: field {twice} must stand once")
        if self.default is not None:
            try:
                self.validate(self.default)
            except MisfitError as error:
                raise error.inside("default") from None

    @cached_property
    def _identity(self) -> tuple[Any, ...]:
        """All that makes two schemas equal; the parts that cannot be hashed as text."""
        parameters = tuple(sorted(self.parameters.items()))
        nested = (self.fields, self.key_schema, self.value_schema)
        named = (self.name, self.version, self.doc, parameters)
        return (self.type, self.optional, repr(self.default), *named, *nested)

    @cached_property
    def _hash(self) -> int:
        return hash(self._identity)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Schema)
            and self._hash == other._hash
            and self._identity == other._identity
        )

    def __str__(self) -> str:
        """The type, with its name where it has one: `struct Person`."""
        return f"{self.type} {self.name}" if self.name else str(self.type)

    @cached_property
    def by_name(self) -> Mapping[str, Schema]:
        """The schemas of the fields of a struct."""
        return {field.name: field.schema for field in self.fields}

    @cached_property
    def logical(self) -> Logical | None:
        """The logical type that the name stands for, if its base is the type."""
        found = LOGICAL_TYPES.get(self.name or "")
        return found if found is not None and found.base is self.type else None

    @cached_property
    def scale(self) -> int:
        """The digits behind the point of a Decimal."""
        text = self.parameters.get(SCALE_PARAMETER, "")
        try:
            return int(text)
        except ValueError:
            raise DataError(
                f"schema {self}: parameter {SCALE_PARAMETER}={text or None} must be a number"
            ) from None

    def replace(self, **changes: Any) -> Self:
        """The same schema but for `changes`."""
        return dataclasses.replace(self, **changes)

    def as_optional(self, default: Any = None) -> Self:
        """The same schema, whose value may be None."""
        return self.replace(optional=True, default=default)

    def struct(self, **values: Any) -> dict[str, Any]:
        """A value of this struct: absent fields get their default; DataError if it does not fit."""
        unknown = values.keys() - self.by_name.keys()
        if unknown:
            raise DataError(f"{self}: has no field {', '.join(sorted(unknown))}")
        filled = {name: values.get(name, schema.default) for name, schema in self.by_name.items()}
        self.validate(filled)
        return filled

    def validate(self, value: Any) -> None:
        """MisfitError, which leads to the place, if `value` does not fit."""
        if value is None:
            if not self.optional and self.default is None:
                raise MisfitError(None, f"must be {self}, which is required")
        elif self.logical is not None:
            to_base(self, value)
        elif not _FITS[self.type](value):
            raise wrong(value, self)
        elif self.type is SchemaType.STRUCT:
            self._validate_fields(value)
        elif self.type in (SchemaType.ARRAY, SchemaType.MAP):
            self._validate_items(value)

    def _validate_fields(self, value: Mapping[str, Any]) -> None:
        name = ""
        try:
            for name, schema in self.by_name.items():
                schema.validate(value.get(name))
        except MisfitError as error:
            raise error.inside(f".{name}") from None
        self.refuse_unknown_fields(value)

    def refuse_unknown_fields(self, value: Mapping[str, Any]) -> None:
        """MisfitError if the value has a key that is no field."""
        if not value.keys() <= self.by_name.keys():
            name = next(name for name in value if name not in self.by_name)
            raise MisfitError(value[name], f"{self} has no such field", (f".{name}",))

    def _validate_items(self, value: Any) -> None:
        pairs = enumerate(value) if self.type is SchemaType.ARRAY else value.items()
        for key, item in pairs:
            try:
                self.items.validate(item)
            except MisfitError as error:
                raise error.inside(f"[{shown(key)}]") from None
        if self.type is SchemaType.MAP:
            for key in value:
                self.keys.validate(key)

    @property
    def items(self) -> Schema:
        """The schema of the items of an array or the values of a map."""
        if self.value_schema is None:
            raise DataError(f"schema {self}: has no items")
        return self.value_schema

    @property
    def keys(self) -> Schema:
        """The schema of the keys of a map."""
        if self.key_schema is None:
            raise DataError(f"schema {self}: has no keys")
        return self.key_schema


def wrong(value: Any, schema: Schema) -> MisfitError:
    """The error for a value that is not of the type of its schema."""
    rule = _RULES.get(schema.logical.python if schema.logical else schema.type)
    return MisfitError(value, f"must be {schema} ({rule})" if rule else f"must be {schema}")


def _is_integer(bits: int) -> Any:
    limit = 1 << bits - 1
    return lambda value: type(value) is int and -limit <= value < limit


_FITS: Final = {
    **{kind: _is_integer(bits) for kind, bits in BITS.items()},
    SchemaType.FLOAT32: lambda value: type(value) in (float, int),
    SchemaType.FLOAT64: lambda value: type(value) in (float, int),
    SchemaType.BOOLEAN: lambda value: type(value) is bool,
    SchemaType.STRING: lambda value: isinstance(value, str),
    SchemaType.BYTES: lambda value: isinstance(value, bytes | bytearray | memoryview),
    SchemaType.ARRAY: lambda value: isinstance(value, list | tuple),
    SchemaType.MAP: lambda value: isinstance(value, dict),
    SchemaType.STRUCT: lambda value: isinstance(value, dict),
}

_RULES: Final[dict[object, str]] = {
    **{kind: f"a whole number of {bits} bits" for kind, bits in BITS.items()},
    SchemaType.STRUCT: "a dict",
    SchemaType.MAP: "a dict",
    SchemaType.ARRAY: "a list",
    Decimal: "a decimal.Decimal",
    date: "a datetime.date",
    time: "a datetime.time",
    datetime: "a datetime.datetime",
}


class Logical(NamedTuple):
    """A logical type: the type below it, the class of its values, and the ways between these.

    Both ways take the schema and a value, and raise ValueError with the rule that is broken.
    """

    base: SchemaType
    python: type
    to_base: Callable[[Schema, Any], Any]
    from_base: Callable[[Schema, Any], Any]


def to_base(schema: Schema, value: Any) -> Any:
    """The value of a logical type in the type below it."""
    logical = _logical(schema)
    fits = isinstance(value, logical.python)
    if not fits or (logical.python is date and isinstance(value, datetime)):
        raise wrong(value, schema)
    try:
        return logical.to_base(schema, value)
    except ValueError as error:
        raise MisfitError(value, f"must {error}") from None


def from_base(schema: Schema, value: Any) -> Any:
    """The value of a logical type, from that in the type below it."""
    try:
        return _logical(schema).from_base(schema, value)
    except ValueError as error:
        raise MisfitError(value, f"must {error}") from None


def _logical(schema: Schema) -> Logical:
    if schema.logical is None:
        raise DataError(f"schema {schema}: must be a logical type")
    return schema.logical


def bounded(value: Decimal) -> Decimal:
    """The number itself; ValueError where it is written with more than MOST_DIGITS digits.

    A dozen bytes such as 1e999999999 would be a gigabyte as a whole number or as text.
    """
    if value.is_finite() and abs(value.adjusted()) > MOST_DIGITS:
        raise ValueError(f"be a number of at most {MOST_DIGITS:,} digits")
    return value


def _decimal_to_bytes(schema: Schema, value: Decimal) -> bytes:
    """The unscaled number, big-endian in as few bytes as hold its sign (Java's BigInteger)."""
    sign, digits, exponent = bounded(value).as_tuple()
    if not value.is_finite():
        raise ValueError("be a finite number")
    unscaled, shift = int(Decimal((0, digits, 0))), schema.scale + int(exponent)
    power = int(10 ** abs(shift))
    unscaled, rest = (unscaled * power, 0) if shift >= 0 else divmod(unscaled, power)
    if rest:
        raise ValueError(f"be a number with {schema.scale} digits behind the point")
    if sign:
        unscaled = -unscaled
    bits = unscaled.bit_length() if unscaled >= 0 else (unscaled + 1).bit_length()
    return unscaled.to_bytes(bits // 8 + 1, "big", signed=True)


def _decimal_from_bytes(schema: Schema, value: bytes) -> Decimal:
    unscaled = int.from_bytes(value, "big", signed=True)
    digits = Decimal(abs(unscaled)).as_tuple().digits
    return bounded(Decimal((int(unscaled < 0), digits, -schema.scale)))


def _date_to_days(schema: Schema, value: date) -> int:
    return value.toordinal() - EPOCH_DAY


def _date_from_days(schema: Schema, value: int) -> date:
    if not 0 < value + EPOCH_DAY <= date.max.toordinal():
        raise ValueError(IN_RANGE)
    return date.fromordinal(value + EPOCH_DAY)


def _time_to_ms(schema: Schema, value: time) -> int:
    """Milliseconds since midnight; a finer part is cut off."""
    if value.tzinfo is not None and value.tzinfo is not UTC:
        raise ValueError("be a time in UTC")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1000 + value.microsecond // 1000


def _time_from_ms(schema: Schema, value: int) -> time:
    if not 0 <= value < MS_PER_DAY:
        raise ValueError(f"be from 0 to {MS_PER_DAY - 1}, the milliseconds of a day")
    return (EPOCH + value * _MS).time()


def timestamp_to_ms(value: datetime) -> int:
    """Milliseconds since 1970; a finer part is cut off, and a time without a zone is UTC."""
    aware = value.replace(tzinfo=UTC) if value.tzinfo is None else value
    return (aware - EPOCH) // _MS


def timestamp_from_ms(value: int) -> datetime:
    """The moment in UTC; ValueError outside the years 1 to 9999."""
    try:
        return EPOCH + value * _MS
    except OverflowError:
        raise ValueError(IN_RANGE) from None


LOGICAL_TYPES: Final = {
    DECIMAL_NAME: Logical(SchemaType.BYTES, Decimal, _decimal_to_bytes, _decimal_from_bytes),
    DATE_NAME: Logical(SchemaType.INT32, date, _date_to_days, _date_from_days),
    TIME_NAME: Logical(SchemaType.INT32, time, _time_to_ms, _time_from_ms),
    TIMESTAMP_NAME: Logical(
        SchemaType.INT64,
        datetime,
        lambda schema, value: timestamp_to_ms(value),
        lambda schema, value: timestamp_from_ms(value),
    ),
}

INT8: Final = Schema(SchemaType.INT8)
INT16: Final = Schema(SchemaType.INT16)
INT32: Final = Schema(SchemaType.INT32)
INT64: Final = Schema(SchemaType.INT64)
FLOAT32: Final = Schema(SchemaType.FLOAT32)
FLOAT64: Final = Schema(SchemaType.FLOAT64)
BOOLEAN: Final = Schema(SchemaType.BOOLEAN)
STRING: Final = Schema(SchemaType.STRING)
BYTES: Final = Schema(SchemaType.BYTES)
DATE: Final = Schema(SchemaType.INT32, name=DATE_NAME, version=1)
TIME: Final = Schema(SchemaType.INT32, name=TIME_NAME, version=1)
TIMESTAMP: Final = Schema(SchemaType.INT64, name=TIMESTAMP_NAME, version=1)


def decimal_of(scale: int) -> Schema:
    """Decimals with `scale` digits behind the point."""
    parameters = {SCALE_PARAMETER: str(scale)}
    return Schema(SchemaType.BYTES, name=DECIMAL_NAME, version=1, parameters=parameters)


def array_of(items: Schema) -> Schema:
    """Lists of `items`."""
    return Schema(SchemaType.ARRAY, value_schema=items)


def map_of(keys: Schema, values: Schema) -> Schema:
    """Dicts from `keys` to `values`."""
    return Schema(SchemaType.MAP, key_schema=keys, value_schema=values)


def struct_of(
    schema_name: str | None = None,
    fields: Mapping[str, Schema] | Iterable[tuple[str, Schema]] = (),
    /,
    **more: Schema,
) -> Schema:
    """A struct of these fields, in this order."""
    given = (dict(fields) | more).items()
    listed = tuple(SchemaField(name, schema) for name, schema in given)
    return Schema(SchemaType.STRUCT, name=schema_name, fields=listed)


_OF_CLASSES: Final[dict[type, Schema]] = {
    bool: BOOLEAN,
    int: INT64,
    float: FLOAT64,
    str: STRING,
    bytes: BYTES,
    bytearray: BYTES,
    date: DATE,
    time: TIME,
    datetime: TIMESTAMP,
}


def infer_schema(value: Any) -> Schema | None:
    """The schema of a plain value; None where there is none: None, mixed or empty collections."""
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        return decimal_of(max(0, -exponent)) if isinstance(exponent, int) else None
    if isinstance(value, list | tuple):
        items = _common_schema(value)
        return array_of(items) if items else None
    if isinstance(value, dict):
        keys, values = _common_schema(value), _common_schema(value.values())
        return map_of(keys, values) if keys and values else None
    return _OF_CLASSES.get(type(value))


def _common_schema(values: Iterable[Any]) -> Schema | None:
    """The one schema of all values that are not None, optional if there are some that are."""
    listed = list(values)
    found = {infer_schema(value) for value in listed if value is not None}
    if len(found) != 1:
        return None
    schema = found.pop()
    return schema.as_optional() if schema and None in listed else schema


def schema_for(kind: Any) -> Schema:
    """The schema of a Python type: `int`, `list[str]`, `date | None`, or a dataclass."""
    if isinstance(kind, Schema):
        return kind
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        fields = {field.name: schema_for(hints[field.name]) for field in dataclasses.fields(kind)}
        return struct_of(kind.__name__, fields)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union) and type(None) in arguments:
        (only, *more) = [argument for argument in arguments if argument is not type(None)]
        if not more:
            return schema_for(only).as_optional()
    if origin is list:
        return array_of(schema_for(arguments[0]))
    if origin is dict:
        return map_of(schema_for(arguments[0]), schema_for(arguments[1]))
    if kind in _OF_CLASSES:
        return _OF_CLASSES[kind]
    raise DataError(
        f"type {getattr(kind, '__name__', kind)}: must be one with a schema: "
        "bool, int, float, str, bytes, date, time, datetime, list[], dict[], a dataclass, or | None"
    )


class Header(NamedTuple):
    """A header of a record: a name that may stand several times, and a value with its schema."""

    key: str
    value: Any
    schema: Schema | None = None


class SchemaAndValue(NamedTuple):
    """The result of a converter: a value, and its schema if it has one."""

    schema: Schema | None
    value: Any


@dataclass(slots=True, kw_only=True)
class ConnectRecord:
    """The base of source and sink records. A transform makes a new one by `replace`.

    The partition of a source record is None where the producer is to choose. `headers` may be given
    as pairs; they are kept as Header.
    """

    topic: str
    partition: int | None = None
    key: Any = None
    key_schema: Schema | None = None
    value: Any = None
    value_schema: Schema | None = None
    timestamp_ms: int | None = None
    headers: tuple[Header, ...] = ()

    def __post_init__(self) -> None:
        if self.headers:
            self.headers = tuple(Header(*header) for header in self.headers)

    def replace(self, **changes: Any) -> Self:
        """The same record but for `changes`."""
        return dataclasses.replace(self, **changes)

    def header(self, key: str) -> Header | None:
        """The last header of this name."""
        return next((header for header in reversed(self.headers) if header.key == key), None)


@dataclass(slots=True, kw_only=True)
class SourceRecord(ConnectRecord):
    """A record for Kafka, and where it came from.

    `source_partition` names a stream of the source, such as a file; `source_offset` says where in
    it the reader goes on after this record. Both are dicts of plain values with strings as keys.

    `error` is set where the source has found something that it cannot read: the record stands for
    its place. It is reported as errors.tolerance says, is never sent, and its offset counts.
    """

    source_partition: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    source_offset: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    error: BaseException | None = None


@dataclass(slots=True, kw_only=True)
class SinkRecord(ConnectRecord):
    """A record of Kafka, at its place.

    `original_topic` and `original_partition` are where it stands in Kafka even if a transform has
    renamed it: offsets are committed for those (KIP-793).
    """

    offset: int
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    original_topic: str = ""
    original_partition: int = -1

    def __post_init__(self) -> None:
        ConnectRecord.__post_init__(self)
        self.original_topic = self.original_topic or self.topic
        if self.original_partition < 0 and self.partition is not None:
            self.original_partition = self.partition
