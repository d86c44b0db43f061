"""Transforms that change what a value is: its type, its schema's name, or all that it says."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from ottla.config.config_def import HIGH, LOW, REQUIRED, ConfigTable, config_key
from ottla.config.config_type import INT, LIST, STRING, Rule, not_empty
from ottla.connect.data import (
    DECIMAL_NAME,
    FLOAT64,
    INT64,
    ConnectRecord,
    DataError,
    MisfitError,
    Schema,
    SchemaType,
    infer_schema,
    shown,
    to_base,
)
from ottla.connect.data import STRING as TEXT
from ottla.connect.transform import (
    HAS_ITEMS,
    DefaultsSettings,
    PartTransform,
    for_key_and_value,
    struct_like,
)
from ottla.connect.value_text import float32, simple_text
from ottla.errors import ConfigError

CAST_TYPES: Final = tuple(SchemaType)[:8]
"""What can be cast to: numbers, boolean and string."""
_INTEGERS: Final = CAST_TYPES[:4]
_WHOLE: Final = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER: Final = re.compile(r"\s*[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|NaN|Infinity)\s*", re.ASCII)


# Cast


class CastSettings(DefaultsSettings):
    """The settings of Cast."""

    spec: tuple[str, ...] = config_key(
        default=REQUIRED,
        type=LIST,
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
            found = {name: self.read(value, name, field) for name, field in schema.fields}
            schemas = schema.by_name
        for name in self._casts.keys() & found.keys():
            try:
                found[name] = cast(found[name], schemas[name], self._casts[name])
            except MisfitError as error:
                raise error.inside(f".{name}") from None
        return found

    def _made_of(self, schema: Schema) -> Schema:
        if self._whole is not None:
            return schema.replace(
                type=self._whole,
                default=cast(schema.default, schema, self._whole),
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
        number = int(value)
    else:
        number = _truncated(value, kind)
    if not _fits(number, kind):
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
        return int(value)
    except (ValueError, OverflowError):
        raise MisfitError(value, f"must be a finite number to be cast to {kind}") from None


def _float_number(value: Any, kind: SchemaType) -> float:
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        raise MisfitError(value, f"must be a number to be cast to {kind}")
    try:
        return float32(float(value)) if kind is SchemaType.FLOAT32 else float(value)
    except OverflowError:
        raise MisfitError(value, f"must fit into {kind} to be cast to it") from None


# SetSchemaMetadata


class SetSchemaMetadataSettings(DefaultsSettings):
    """The settings of SetSchemaMetadata."""

    schema_name: str | None = config_key(
        default=None, type=STRING, importance=HIGH, doc="The schema's new name."
    )
    schema_version: int | None = config_key(
        default=None, type=INT, importance=HIGH, doc="The schema's new version."
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
            value = {name: self.read(value, name, field) for name, field in schema.fields}
        return self.changed(record, self.made_schema(schema, self._made_of), value)

    def _made_of(self, schema: Schema) -> Schema:
        name, version = self.settings.schema_name, self.settings.schema_version
        return schema.replace(
            name=schema.name if name is None else name,
            version=schema.version if version is None else version,
        )


# MaskField


class MaskFieldSettings(DefaultsSettings):
    """The settings of MaskField."""

    fields: tuple[str, ...] = config_key(
        default=REQUIRED, type=LIST, rule=HAS_ITEMS, importance=HIGH, doc="The fields to mask."
    )
    replacement: str | None = config_key(
        default=None,
        type=STRING,
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
            found = {name: self.read(value, name, field) for name, field in schema.fields}
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
