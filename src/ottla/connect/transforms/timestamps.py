"""Transforms of times: between their forms, and into the name of the topic."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime, time
from typing import Any, Final

from ottla.config.config_def import HIGH, LOW, REQUIRED, ConfigTable, config_key
from ottla.config.config_type import STRING, Rule, one_of
from ottla.connect.data import (
    DATE,
    DATE_NAME,
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
    timestamp_from_ms,
    timestamp_to_ms,
)
from ottla.connect.data import STRING as TEXT
from ottla.connect.java_dates import JavaDateFormat
from ottla.connect.transform import (
    PACKAGE,
    DefaultsSettings,
    PartTransform,
    Transform,
    for_key_and_value,
    struct_like,
)
from ottla.errors import ConfigError

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
        type=STRING,
        importance=HIGH,
        doc="The field with the time; empty if the whole key or value is one.",
    )
    target_type: str = config_key(
        default=REQUIRED,
        type=STRING,
        rule=one_of(*_SCHEMAS),
        importance=HIGH,
        doc="What the time is to be: text, a number (unix), or one of Connect's types.",
    )
    format: str = config_key(
        default="",
        type=STRING,
        doc="How text is written and read: a pattern of Java's SimpleDateFormat.",
    )
    unix_precision: str = config_key(
        default="milliseconds",
        type=STRING,
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
            found = {name: self.read(value, name, each) for name, each in schema.fields}
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
    """In which form values of a schema are times; DataError if in none."""
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
        type=STRING,
        importance=HIGH,
        doc="The new name, in which ${topic} and ${timestamp} stand for both.",
    )
    timestamp_format: str = config_key(
        default="yyyyMMdd",
        type=STRING,
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
