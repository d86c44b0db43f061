"""Transforms that change what a value is: its type, its schema's name, or all that it says.

Among them those of times: between their forms, and into the name of the topic.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from ottla.config.config_def import HIGH, LOW, REQUIRED, ConfigTable, config_key
from ottla.config.rule import Rule, not_empty, one_of
from ottla.connect.data import (
    DATE,
    DATE_NAME,
    DECIMAL_NAME,
    FLOAT64,
    INT64,
    TIME,
    TIME_NAME,
    TIMESTAMP,
    TIMESTAMP_NAME,
    ConnectRecord,
    DataError,
    MisfitError,
    Schema,
    SchemaType,
    bounded,
    infer_schema,
    shown,
    timestamp_from_ms,
    timestamp_to_ms,
    to_base,
)
from ottla.connect.data import STRING as TEXT
from ottla.connect.java_dates import JavaDateFormat
from ottla.connect.transform import (
    HAS_ITEMS,
    PACKAGE,
    DefaultsSettings,
    PartTransform,
    Transform,
    for_key_and_value,
    struct_like,
)
from ottla.connect.value_text import float32, simple_text
from ottla.errors import ConfigError

CAST_TYPES: Final = tuple(SchemaType)[:8]
"""What can be cast to: numbers, boolean and string."""
_INTEGERS: Final = CAST_TYPES[:4]
LONGEST: Final = 4000
"""Python makes no number of more digits than a few thousand."""
_WHOLE: Final = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER: Final = re.compile(r"\s*[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|NaN|Infinity)\s*", re.ASCII)


class CastSettings(DefaultsSettings):
    """The settings of Cast."""

    spec: tuple[str, ...] = config_key(
        default=REQUIRED,
        importance=HIGH,
        doc=f"field:type,field:type, or one type for the whole key or value. Types: "
        f"{', '.join(CAST_TYPES)}.",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        spec = values["spec"]
        rule = f"must be pairs of field:type, or one type, of {', '.join(CAST_TYPES)}"
        pairs = [item.rpartition(":") for item in spec]
        is_whole = any(not colon for _, colon, _ in pairs)
        kinds = {kind.strip().lower() for _, _, kind in pairs}
        if not spec or (is_whole and len(spec) > 1) or not kinds <= set(CAST_TYPES):
            raise ConfigError(f"spec={','.join(spec)}: {rule}")


class Cast(PartTransform):
    """Casts fields, or the whole key or value, to other types.

    A number with digits behind the point loses these on the way to a whole number. What does not
    fit into its new type is an error, where Kafka would keep the lowest bits of it.
    """

    Settings = CastSettings

    def __init__(self, settings: ConfigTable) -> None:
        super().__init__(settings)
        self._whole: SchemaType | None = None
        self._casts: dict[str, SchemaType] = {}
        for item in self.settings.spec:
            name, colon, kind = item.rpartition(":")
            found = SchemaType(kind.strip().lower())
            if colon:
                self._casts[name.strip()] = found
            else:
                self._whole = found

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        value = self.value_of(record)
        if value is None:
            return record
        schema = self.schema_of(record)
        made = self.made_schema(schema, self._made_of) if schema is not None else None
        if self._whole is not None:
            return self.changed(record, made, cast(value, schema, self._whole))
        return self.changed(record, made, self._cast_fields(*self.fields_of(record)))

    def _cast_fields(self, schema: Schema | None, value: Mapping[str, Any]) -> dict[str, Any]:
        schemas: Mapping[str, Schema | None]
        if schema is None:
            found = {**value, **{name: value.get(name) for name in self._casts}}
            schemas = dict.fromkeys(found)
        else:
            found = self.read_all(value, schema)
            schemas = schema.by_name
        for name in self._casts.keys() & found.keys():
            try:
                found[name] = cast(found[name], schemas[name], self._casts[name])
            except MisfitError as error:
                raise error.inside(f".{name}") from None
        return found

    def _made_of(self, schema: Schema) -> Schema:
        if self._whole is not None:
            default = cast(schema.default, schema, self._whole)
            if schema.logical is not None:  # with its name a number or a text would still be a time
                return Schema(
                    self._whole, optional=schema.optional, default=default, doc=schema.doc
                )
            return schema.replace(
                type=self._whole,
                default=default,
                fields=(),
                key_schema=None,
                value_schema=None,
            )
        fields = [(name, self._made_field(name, field)) for name, field in schema.fields]
        default = schema.default and self._cast_fields(schema, schema.default)
        return struct_like(schema, fields, optional=schema.optional, default=default)

    def _made_field(self, name: str, field: Schema) -> Schema:
        kind = self._casts.get(name)
        if kind is None:
            return field
        return Schema(kind, optional=field.optional, default=cast(field.default, field, kind))


def cast(value: Any, schema: Schema | None, kind: SchemaType) -> Any:
    """A value in another type; MisfitError if it has no form there."""
    if value is None:
        return None
    if isinstance(value, list | tuple | dict):
        raise MisfitError(value, f"must not be a {type(value).__name__} to be cast to {kind}")
    if kind is SchemaType.STRING:
        return _cast_to_text(value, schema)
    if schema is not None and schema.logical is not None and schema.name != DECIMAL_NAME:
        value = to_base(schema, value)
    elif isinstance(value, date | time):
        value = to_base(infer_schema(value) or INT64, value)
    if isinstance(value, bytes | bytearray | memoryview):
        raise MisfitError(value, f"must not be bytes to be cast to {kind}; only to string")
    if kind is SchemaType.BOOLEAN:
        return value.lower() == "true" if isinstance(value, str) else _truncated(value, kind) != 0
    if kind in _INTEGERS:
        number: Any = _whole_number(value, kind)
    else:
        number = _float_number(value, kind)
    return number


def _cast_to_text(value: Any, schema: Schema | None) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return b64encode(value).decode()
    return simple_text(value, schema)


def _whole_number(value: Any, kind: SchemaType) -> int:
    if isinstance(value, str):
        if not _WHOLE.fullmatch(value):
            raise MisfitError(value, f"must be a whole number to be cast to {kind}")
        number = int(value) if len(value) <= LONGEST else None
    else:
        number = _truncated(value, kind)
    if number is None or not _fits(number, kind):
        raise MisfitError(value, f"must fit into {kind} to be cast to it")
    return number


def _fits(number: int, kind: SchemaType) -> bool:
    try:
        Schema(kind).validate(number)
    except MisfitError:
        return False
    return True


def _truncated(value: Any, kind: SchemaType) -> int:
    try:
        return int(bounded(value) if isinstance(value, Decimal) else value)
    except (ValueError, OverflowError):
        raise MisfitError(value, f"must be a finite number to be cast to {kind}") from None


def _float_number(value: Any, kind: SchemaType) -> float:
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        raise MisfitError(value, f"must be a number to be cast to {kind}")
    try:
        return float32(float(value)) if kind is SchemaType.FLOAT32 else float(value)
    except OverflowError:
        raise MisfitError(value, f"must fit into {kind} to be cast to it") from None


class SetSchemaMetadataSettings(DefaultsSettings):
    """The settings of SetSchemaMetadata."""

    schema_name: str | None = config_key(
        default=None, importance=HIGH, doc="The schema's new name."
    )
    schema_version: int | None = config_key(
        default=None, importance=HIGH, doc="The schema's new version."
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        if values["schema_name"] is None and values["schema_version"] is None:
            raise ConfigError("schema.name or schema.version must be set")


class SetSchemaMetadata(PartTransform):
    """Gives the schema another name, version or both."""

    Settings = SetSchemaMetadataSettings

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        schema, value = self.schema_of(record), self.value_of(record)
        if schema is None:
            if value is None:
                return record
            raise DataError(f"{self.part}={shown(value)}: must have a schema to be named")
        if schema.type is SchemaType.STRUCT and value is not None:
            value = self.read_all(value, schema)
        return self.changed(record, self.made_schema(schema, self._made_of), value)

    def _made_of(self, schema: Schema) -> Schema:
        name, version = self.settings.schema_name, self.settings.schema_version
        return schema.replace(
            name=schema.name if name is None else name,
            version=schema.version if version is None else version,
        )


class MaskFieldSettings(DefaultsSettings):
    """The settings of MaskField."""

    fields: tuple[str, ...] = config_key(
        default=REQUIRED, rule=HAS_ITEMS, importance=HIGH, doc="The fields to mask."
    )
    replacement: str | None = config_key(
        default=None,
        rule=Rule("not be empty", lambda text: text is None or not_empty().holds(text)),
        importance=LOW,
        doc="What numbers and texts become, where 0 and nothing are not wanted.",
    )


class MaskField(PartTransform):
    """Puts 0, false, empty text, or a replacement in the place of fields. Null stays null."""

    Settings = MaskFieldSettings

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        if self.value_of(record) is None:
            return record
        schema, value = self.fields_of(record)
        found = dict(value)
        if schema is not None:
            found = self.read_all(value, schema)
        for name in self.settings.fields:
            field = schema.by_name.get(name) if schema is not None else None
            if schema is not None and field is None:
                continue
            try:
                found[name] = self._masked(found.get(name), field)
            except MisfitError as error:
                raise error.inside(f".{name}") from None
        return self.changed(record, schema, found)

    def _masked(self, value: Any, schema: Schema | None) -> Any:
        if value is None:
            return None
        if self.settings.replacement is None:
            return _nothing_of(value, schema)
        if isinstance(value, str):
            return self.settings.replacement
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise MisfitError(value, "must be a number or text to be replaced")
        return _as_number(self.settings.replacement, value, schema)


_NOTHING: Final[Mapping[type, Any]] = {
    bool: False,
    int: 0,
    float: 0.0,
    str: "",
    Decimal: Decimal(0),
    datetime: datetime(1970, 1, 1, tzinfo=UTC),
    date: date(1970, 1, 1),
    time: time(),
    list: [],
    dict: {},
}


def _nothing_of(value: Any, schema: Schema | None) -> Any:
    """What says nothing, in the type of the value."""
    is_struct = schema is not None and schema.type is SchemaType.STRUCT
    if type(value) not in _NOTHING or is_struct:
        kind = "struct" if is_struct else type(value).__name__
        raise MisfitError(value, f"a {kind} must not be masked: nothing stands for none of it")
    found = _NOTHING[type(value)]
    return found.copy() if isinstance(found, list | dict) else found


def _as_number(replacement: str, value: Any, schema: Schema | None) -> Any:
    """The replacement in the type of the number that it replaces."""
    try:
        number = Decimal(replacement)
    except InvalidOperation:
        rule = "must be a number to replace one"
        raise MisfitError(replacement, rule, (".replacement",)) from None
    if isinstance(value, Decimal):
        return number
    inferred = FLOAT64 if isinstance(value, float) else INT64
    return cast(number, TEXT, (schema or inferred).type)


CastKey, CastValue = for_key_and_value(Cast)
SetSchemaMetadataKey, SetSchemaMetadataValue = for_key_and_value(SetSchemaMetadata)
MaskFieldKey, MaskFieldValue = for_key_and_value(MaskField)


TEXT_FORM: Final = "string"
UNIX_FORM: Final = "unix"
DATE_FORM: Final = "Date"
TIME_FORM: Final = "Time"
TIMESTAMP_FORM: Final = "Timestamp"
_SCHEMAS: Final = {
    TEXT_FORM: TEXT,
    UNIX_FORM: INT64,
    DATE_FORM: DATE,
    TIME_FORM: TIME,
    TIMESTAMP_FORM: TIMESTAMP,
}
_FORMS: Final = {DATE_NAME: DATE_FORM, TIME_NAME: TIME_FORM, TIMESTAMP_NAME: TIMESTAMP_FORM}
_CLASSES: Final[Mapping[str, type]] = {
    TEXT_FORM: str,
    UNIX_FORM: int,
    TIMESTAMP_FORM: datetime,
    DATE_FORM: date,
    TIME_FORM: time,
}
SECONDS: Final = "seconds"
_PER_MS: Final = {"milliseconds": 1, "microseconds": 1000, "nanoseconds": 1_000_000}


def date_format(key: str, pattern: str) -> JavaDateFormat:
    """The format that a setting has; ConfigError names it."""
    try:
        return JavaDateFormat(pattern)
    except ValueError as error:
        raise ConfigError(f"{key}={pattern}: must {error}") from None


class TimestampConverterSettings(DefaultsSettings):
    """The settings of TimestampConverter."""

    field: str = config_key(
        default="",
        importance=HIGH,
        doc="The field with the time; empty if the whole key or value is one.",
    )
    target_type: str = config_key(
        default=REQUIRED,
        rule=one_of(*_SCHEMAS),
        importance=HIGH,
        doc="What the time is to be: text, a number (unix), or one of Connect's types.",
    )
    format: str = config_key(
        default="",
        doc="How text is written and read: a pattern of Java's SimpleDateFormat.",
    )
    unix_precision: str = config_key(
        default="milliseconds",
        rule=one_of(SECONDS, *_PER_MS),
        importance=LOW,
        doc="What numbers count; all that is finer than milliseconds is lost.",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        if values["format"]:
            date_format("format", values["format"])
        elif values["target_type"] == TEXT_FORM:
            raise ConfigError("format=: must be set with target.type=string")


class TimestampConverter(PartTransform):
    """Converts times between text, numbers, and Connect's Date, Time and Timestamp, in UTC."""

    Settings = TimestampConverterSettings

    def __init__(self, settings: ConfigTable) -> None:
        super().__init__(settings)
        pattern = self.settings.format
        self._format = JavaDateFormat(pattern) if pattern else None
        self._target = self.settings.target_type

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        schema, field = self.schema_of(record), self.settings.field
        if not field:
            made = self._target_schema(schema) if schema is not None else None
            form = form_of(schema) if schema is not None else None
            return self.changed(record, made, self._converted(self.value_of(record), form))
        made = self.made_schema(schema, self._made_of) if schema is not None else None
        if self.value_of(record) is None:
            return self.changed(record, made, None)
        return self.changed(record, made, self._with_field(*self.fields_of(record)))

    def _with_field(self, schema: Schema | None, value: Mapping[str, Any]) -> dict[str, Any]:
        field, form = self.settings.field, None
        found = dict(value)
        if schema is not None:
            found = self.read_all(value, schema)
            if field not in found:
                return found
            form = form_of(schema.by_name[field])
        try:
            found[field] = self._converted(found.get(field), form)
        except MisfitError as error:
            raise error.inside(f".{field}") from None
        return found

    def _made_of(self, schema: Schema) -> Schema:
        fields = [
            (name, self._target_schema(each) if name == self.settings.field else each)
            for name, each in schema.fields
        ]
        default = schema.default and self._with_field(schema, schema.default)
        return struct_like(schema, fields, optional=schema.optional, default=default)

    def _target_schema(self, schema: Schema) -> Schema:
        target = _SCHEMAS[self._target]
        return target.as_optional() if schema.optional else target

    def _converted(self, value: Any, form: str | None) -> Any:
        if value is None:
            return None
        if form is None:
            form = next((name for name, kind in _CLASSES.items() if isinstance(value, kind)), None)
        if form is None or not isinstance(value, _CLASSES[form]) or isinstance(value, bool):
            raise MisfitError(value, f"must be a time: {form or 'text, a number, or of datetime'}")
        try:
            return self._written(self._read(value, form))
        except ValueError as error:
            raise MisfitError(value, f"must {error}") from None
        except OverflowError:  # of a time with a zone
            raise MisfitError(value, "must be in the years 1 to 9999 in UTC") from None

    def _read(self, value: Any, form: str) -> datetime:
        if form == TEXT_FORM:
            if self._format is None:
                raise ConfigError("format=: must be set to read times that are text")
            return self._format.parse(value)
        if form == UNIX_FORM:
            return timestamp_from_ms(self._to_ms(value))
        if form == TIME_FORM:
            return datetime.combine(date(1970, 1, 1), value, UTC)
        if isinstance(value, datetime):
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return datetime.combine(value, time(), UTC)

    def _written(self, moment: datetime) -> Any:
        if self._target == TEXT_FORM and self._format is not None:
            return self._format.format(moment)
        if self._target == UNIX_FORM:
            return self._from_ms(timestamp_to_ms(moment))
        if self._target == DATE_FORM:
            return moment.date()
        if self._target == TIME_FORM:
            return moment.time()
        return moment

    def _to_ms(self, number: int) -> int:
        """Milliseconds of a number; what is finer is cut off, towards zero as in Java."""
        if self.settings.unix_precision == SECONDS:
            return number * 1000
        return _cut(number, _PER_MS[self.settings.unix_precision])

    def _from_ms(self, ms: int) -> int:
        if self.settings.unix_precision == SECONDS:
            return _cut(ms, 1000)
        return ms * _PER_MS[self.settings.unix_precision]


def _cut(number: int, divisor: int) -> int:
    return number // divisor if number >= 0 else -(-number // divisor)


def form_of(schema: Schema) -> str:
    """The form in which values of a schema are times; DataError if in none."""
    if schema.name in _FORMS:
        return _FORMS[schema.name]
    if schema.type is SchemaType.STRING:
        return TEXT_FORM
    if schema.type is SchemaType.INT64:
        return UNIX_FORM
    raise DataError(f"schema {schema}: must be string, int64, Date, Time or Timestamp")


def _is_format(pattern: str) -> bool:
    try:
        JavaDateFormat(pattern)
    except ValueError:
        return False
    return True


class TimestampRouterSettings(ConfigTable):
    """The settings of TimestampRouter."""

    topic_format: str = config_key(
        default="${topic}-${timestamp}",
        importance=HIGH,
        doc="The new name, in which ${topic} and ${timestamp} stand for both.",
    )
    timestamp_format: str = config_key(
        default="yyyyMMdd",
        rule=Rule("be a pattern of Java's SimpleDateFormat", _is_format),
        importance=HIGH,
        doc="How the timestamp is written: a pattern of Java's SimpleDateFormat, in UTC.",
    )


class TimestampRouter(Transform):
    """Names the topic after the time of the record."""

    Settings = TimestampRouterSettings
    kafka_class = f"{PACKAGE}.TimestampRouter"

    def __init__(self, settings: ConfigTable) -> None:
        super().__init__(settings)
        self._format = JavaDateFormat(self.settings.timestamp_format)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        if record.timestamp_ms is None:
            raise DataError(f"timestamp=None: a record for {record.topic} must have one")
        try:
            text = self._format.format(timestamp_from_ms(record.timestamp_ms))
        except ValueError as error:
            raise DataError(f"timestamp={record.timestamp_ms}: must {error}") from None
        topic = self.settings.topic_format.replace("${timestamp}", text)
        return record.replace(topic=topic.replace("${topic}", record.topic))


TimestampConverterKey, TimestampConverterValue = for_key_and_value(TimestampConverter)
