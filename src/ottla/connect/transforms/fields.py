"""Transforms that add, drop, rename and nest the fields of a key or value."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ottla.config.config_def import HIGH, REQUIRED, ConfigTable, config_key
from ottla.config.rule import Rule
from ottla.connect.data import (
    INT32,
    INT64,
    TIMESTAMP,
    ConnectRecord,
    DataError,
    Schema,
    SchemaType,
    SinkRecord,
    shown,
    struct_of,
    timestamp_from_ms,
)
from ottla.connect.data import STRING as TEXT
from ottla.connect.field_path import PathSettings, path_of
from ottla.connect.transform import (
    HAS_ITEMS,
    PACKAGE,
    DefaultsSettings,
    PartTransform,
    for_key_and_value,
    struct_like,
)
from ottla.errors import ConfigError

_OPTIONALITY: Final = "With ! behind it the field is required, with ? (or nothing) it is optional."


class InsertFieldSettings(DefaultsSettings):
    """The settings of InsertField."""

    topic_field: str | None = config_key(
        default=None, doc=f"The field for the topic. {_OPTIONALITY}"
    )
    partition_field: str | None = config_key(
        default=None, doc=f"The field for the partition. {_OPTIONALITY}"
    )
    offset_field: str | None = config_key(
        default=None, doc=f"The field for the offset, of sinks only. {_OPTIONALITY}"
    )
    timestamp_field: str | None = config_key(
        default=None, doc=f"The field for the record's timestamp. {_OPTIONALITY}"
    )
    static_field: str | None = config_key(
        default=None, doc=f"The field for static.value. {_OPTIONALITY}"
    )
    static_value: str | None = config_key(
        default=None, doc="What stands in static.field, in all records."
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        names = [name for name in values if name.endswith("_field")]
        if all(values[name] is None for name in names):
            keys = ", ".join(name.replace("_", ".") for name in names)
            raise ConfigError(f"one of {keys} must be set")
        if values["static_field"] is not None and values["static_value"] is None:
            raise ConfigError("static.value=None: must be set where static.field is")


class _Insertion(NamedTuple):
    """A field to insert: where it comes from, its name, and its schema."""

    source: str
    name: str
    schema: Schema


class InsertField(PartTransform):
    """Adds fields: topic, partition, offset and timestamp of the record, or a constant."""

    Settings = InsertFieldSettings

    def __init__(self, settings: ConfigTable) -> None:
        super().__init__(settings)
        schemas = {
            "topic": TEXT,
            "partition": INT32,
            "offset": INT64,
            "timestamp": TIMESTAMP,
            "static": TEXT,
        }
        self._insertions = [
            _Insertion(
                source, name.rstrip("!?"), schema if name.endswith("!") else schema.as_optional()
            )
            for source, schema in schemas.items()
            if (name := getattr(self.settings, f"{source}_field")) is not None
        ]

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        if self.value_of(record) is None:
            return record
        schema, value = self.fields_of(record)
        inserted = self._inserted(record, has_schema=schema is not None)
        if schema is None:
            return self.changed(record, None, value | inserted)
        filled = self.read_all(value, schema)
        return self.changed(record, self.made_schema(schema, self._made_of), filled | inserted)

    def _inserted(self, record: ConnectRecord, has_schema: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for source, name, _ in self._insertions:
            content = self._content(source, record)
            if content is not None and source == "timestamp" and has_schema:
                content = timestamp_from_ms(content)
            if content is not None:
                found[name] = content
        return found

    def _content(self, source: str, record: ConnectRecord) -> Any:
        match source:
            case "topic":
                return record.topic
            case "partition":
                return record.partition
            case "timestamp":
                return record.timestamp_ms
            case "static":
                return self.settings.static_value
        if not isinstance(record, SinkRecord):
            raise DataError("offset.field: records of a source have no offset yet")
        return record.offset

    def _made_of(self, schema: Schema) -> Schema:
        return struct_like(schema, [*schema.fields, *((each[1:]) for each in self._insertions)])


def _is_pairs(items: Collection[str]) -> bool:
    return all(len(item.split(":")) == 2 for item in items)


class ReplaceFieldSettings(DefaultsSettings):
    """The settings of ReplaceField; the older names of the lists are taken as well."""

    exclude: tuple[str, ...] = config_key(
        default=(), doc="Fields to drop, also if include has them."
    )
    include: tuple[str, ...] = config_key(
        default=(), doc="The only fields to keep; empty keeps all."
    )
    renames: tuple[str, ...] = config_key(
        default=(),
        rule=Rule("be pairs of old:new", _is_pairs),
        doc="Fields to rename, as old:new,old:new.",
    )
    blacklist: tuple[str, ...] = config_key(default=(), doc="The name of exclude before Kafka 2.6.")
    whitelist: tuple[str, ...] = config_key(default=(), doc="The name of include before Kafka 2.6.")

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        values["exclude"] = values["exclude"] or values["blacklist"]
        values["include"] = values["include"] or values["whitelist"]


def fields_once(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Fields by their names; DataError for one that stands twice, as one would be lost."""
    found: dict[str, Any] = {}
    for name, value in fields:
        if name in found:
            raise DataError(f"value={shown(found)}: field {name} must stand once")
        found[name] = value
    return found


class ReplaceField(PartTransform):
    """Drops fields, keeps only some, and renames them."""

    Settings = ReplaceFieldSettings

    def __init__(self, settings: ConfigTable) -> None:
        super().__init__(settings)
        self._excluded = frozenset(self.settings.exclude)
        self._included = frozenset(self.settings.include)
        self._renames = dict(pair.split(":") for pair in self.settings.renames)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        if self.value_of(record) is None:
            return record
        schema, value = self.fields_of(record)
        if schema is None:
            kept = fields_once((new, value[old]) for old, new in self._renamed(value))
            return self.changed(record, None, kept)
        fields = schema.by_name
        kept = {new: self.read(value, old, fields[old]) for old, new in self._renamed(fields)}
        return self.changed(record, self.made_schema(schema, self._made_of), kept)

    def _renamed(self, names: Collection[str]) -> Iterator[tuple[str, str]]:
        """Old and new name of each field that stays."""
        for name in names:
            if name not in self._excluded and (not self._included or name in self._included):
                yield name, self._renames.get(name, name)

    def _made_of(self, schema: Schema) -> Schema:
        fields = schema.by_name
        return struct_like(schema, [(new, fields[old]) for old, new in self._renamed(fields)])


class ValueToKeySettings(DefaultsSettings):
    """The settings of ValueToKey."""

    fields: tuple[str, ...] = config_key(
        default=REQUIRED,
        rule=HAS_ITEMS,
        importance=HIGH,
        doc="Fields of the value that the key is made of.",
    )


class ValueToKey(PartTransform):
    """Makes the key of fields of the value."""

    Settings = ValueToKeySettings
    kafka_class = f"{PACKAGE}.ValueToKey"

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        schema, value = self.fields_of(record)
        names = self.settings.fields
        if schema is None:
            return record.replace(key_schema=None, key={name: value.get(name) for name in names})
        made = self.made_schema(schema, self._made_of)
        key = self.read_all(value, made)
        return record.replace(key_schema=made, key=key)

    def _made_of(self, schema: Schema) -> Schema:
        missing = [name for name in self.settings.fields if name not in schema.by_name]
        if missing:
            raise DataError(f"{schema}: has no field {', '.join(missing)} for the key")
        return struct_of(None, [(name, schema.by_name[name]) for name in self.settings.fields])


class HoistFieldSettings(ConfigTable):
    """The settings of HoistField."""

    field: str = config_key(default=REQUIRED, doc="The field that holds it then.")


class HoistField(PartTransform):
    """Makes the whole key or value the one field of a struct."""

    Settings = HoistFieldSettings

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        schema, name = self.schema_of(record), self.settings.field
        made = None
        if schema is not None:
            made = self.made_schema(schema, lambda inner: struct_of(None, [(name, inner)]))
        return self.changed(record, made, {name: self.value_of(record)})


class ExtractFieldSettings(DefaultsSettings, PathSettings):
    """The settings of ExtractField."""

    field: str = config_key(default=REQUIRED, doc="The field to take.")


class ExtractField(PartTransform):
    """Puts one field in the place of the whole key or value. Null stays null."""

    Settings = ExtractFieldSettings

    def __init__(self, settings: ConfigTable) -> None:
        super().__init__(settings)
        self._path = path_of(self.settings.field, self.settings.field_syntax_version)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        schema = self.schema_of(record)
        field = self._field_of(schema) if schema is not None else None
        if self.value_of(record) is None:
            return self.changed(record, field, None)
        schema, value = self.fields_of(record)
        return self.changed(record, field, self._field_at_path(schema, value))

    def _field_of(self, schema: Schema) -> Schema:
        for name in self._path:
            if schema.type is not SchemaType.STRUCT or name not in schema.by_name:
                raise DataError(f"field={self.settings.field}: {schema} has no such field")
            schema = schema.by_name[name]
        return schema

    def _field_at_path(self, schema: Schema | None, value: Any) -> Any:
        for name in self._path:
            if value is None:
                return None
            if not isinstance(value, dict):
                raise DataError(f"{self.part}={shown(value)}: must be a dict to have {name}")
            if schema is None:
                value = value.get(name)
            else:
                schema = schema.by_name[name]
                value = self.read(value, name, schema)
        return value


class FlattenSettings(ConfigTable):
    """The settings of Flatten."""

    delimiter: str = config_key(
        default=".", doc="What stands between the names in the name of a field."
    )


class Flatten(PartTransform):
    """Makes of nested fields fields of one level: `{"a": {"b": 1}}` becomes `{"a.b": 1}`.

    Arrays stay as they are; a map in a struct is an error, as its keys are no fields.
    """

    Settings = FlattenSettings

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        if self.value_of(record) is None:
            return record
        schema, value = self.fields_of(record)
        if schema is None:
            return self.changed(record, None, fields_once(self._flat(value, "")))
        flat: dict[str, Any] = {}
        self._fill(flat, schema, value, "")
        return self.changed(record, self.made_schema(schema, self._made_of), flat)

    def _name(self, prefix: str, name: str) -> str:
        return f"{prefix}{self.settings.delimiter}{name}" if prefix else name

    def _flat(self, value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, item in value.items():
            if isinstance(item, dict):
                yield from self._flat(item, self._name(prefix, name))
            else:
                yield self._name(prefix, name), item

    def _fill(
        self, flat: dict[str, Any], schema: Schema, value: Mapping[str, Any] | None, prefix: str
    ) -> None:
        for name, field in schema.fields:
            item = None if value is None else value.get(name)
            if item is None and value is not None:
                item = field.default
            if field.type is SchemaType.STRUCT:
                self._fill(flat, field, item, self._name(prefix, name))
            else:
                flat[self._name(prefix, name)] = item

    def _made_of(self, schema: Schema) -> Schema:
        return struct_like(schema, list(self._leaves(schema, "", schema.optional, schema.default)))

    def _leaves(
        self, schema: Schema, prefix: str, optional: bool, default: Mapping[str, Any] | None
    ) -> Iterator[tuple[str, Schema]]:
        """The fields below a struct; those of an optional one are optional."""
        for name, field in schema.fields:
            full, may_be_null = self._name(prefix, name), optional or field.optional
            own_default = field.default
            if own_default is None and default is not None:
                own_default = default.get(name)
            if field.type is SchemaType.STRUCT:
                yield from self._leaves(field, full, may_be_null, own_default)
            elif field.type is SchemaType.MAP:
                raise DataError(f"{full}: a map in a struct must not be flattened")
            else:
                yield full, field.replace(optional=may_be_null, default=own_default)


InsertFieldKey, InsertFieldValue = for_key_and_value(InsertField)
ReplaceFieldKey, ReplaceFieldValue = for_key_and_value(ReplaceField)
HoistFieldKey, HoistFieldValue = for_key_and_value(HoistField)
ExtractFieldKey, ExtractFieldValue = for_key_and_value(ExtractField)
FlattenKey, FlattenValue = for_key_and_value(Flatten)
