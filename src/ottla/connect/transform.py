"""The contracts of transforms and predicates.

A transform gets a record and returns the one that goes on, or None to drop it. It changes no
record: it makes another by `replace`. A predicate says for which records a transform is meant. Both
are made by `of` from their settings, without the prefix (`transforms.<alias>.`), which a table
checks.

Most transforms work on the key or on the value, and come twice: `ExtractFieldKey` is Kafka's
ExtractField$Key, `ExtractFieldValue` its ExtractField$Value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, Final, TypeVar

from ottla.config.config_def import ConfigTable, config_key
from ottla.config.java_regex import is_java_pattern
from ottla.config.rule import Rule
from ottla.connect.data import ConnectRecord, DataError, Schema, SchemaType, shown

PACKAGE: Final = "org.apache.kafka.connect.transforms"
KEY: Final = "key"
VALUE: Final = "value"
CACHED_SCHEMAS: Final = 16
"""The schemas for which a transform keeps what it has made of them."""


def _is_set(names: Collection[str]) -> bool:
    return len(names) > 0 and len(set(names)) == len(names)


IS_REGEX: Final = Rule("be a regular expression", is_java_pattern)
HAS_ITEMS: Final = Rule("have at least one item, and none twice", _is_set)


class _Configured:
    """What is made from settings."""

    Settings: ClassVar[type[ConfigTable]] = ConfigTable
    """Its settings: types, rules, defaults and documentation."""
    kafka_class: ClassVar[str] = ""
    """The class of Java that it stands for."""
    version: ClassVar[str] = ""
    """Left empty it is that of the package which it comes from."""

    def __init__(self, settings: ConfigTable) -> None:
        self.settings: Any = settings

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Any:
        """One with these settings; ConfigError if a value breaks its rule."""
        return cls(cls.Settings.parse(properties))

    def close(self) -> None:
        """Release what it holds; most hold nothing."""


class Transform(_Configured, ABC):
    """Makes of a record another one, or none."""

    @abstractmethod
    def apply(self, record: Any) -> Any:
        """The record to pass on, or None; DataError for one that it cannot work on."""


class Predicate(_Configured, ABC):
    """Says for which records a transform is meant."""

    @abstractmethod
    def test(self, record: Any) -> bool:
        """Whether the record is one of those."""


class DefaultsSettings(ConfigTable, group=True):
    """The setting of all transforms that read fields."""

    replace_null_with_default: bool = config_key(
        default=True,
        doc="Read a field that is null as its default, if it has one.",
    )


class PartTransform(Transform):
    """A transform of one part of a record: its key or its value."""

    part: ClassVar[str] = VALUE

    def schema_of(self, record: ConnectRecord) -> Schema | None:
        return record.key_schema if self.part == KEY else record.value_schema

    def value_of(self, record: ConnectRecord) -> Any:
        return record.key if self.part == KEY else record.value

    def changed(
        self, record: ConnectRecord, schema: Schema | None, value: Any, **more: Any
    ) -> ConnectRecord:
        """The record with another schema and value in the place of the part."""
        if self.part == KEY:
            return record.replace(key_schema=schema, key=value, **more)
        return record.replace(value_schema=schema, value=value, **more)

    def fields_of(self, record: ConnectRecord) -> tuple[Schema | None, dict[str, Any]]:
        """The schema, if there is one, and the fields; DataError if there are no fields."""
        schema, value = self.schema_of(record), self.value_of(record)
        if not isinstance(value, dict) or (
            schema is not None and schema.type is not SchemaType.STRUCT
        ):
            kind = f"schema {schema}" if schema is not None else "no schema"
            raise DataError(
                f"{self.part}={shown(value)} with {kind}: must be a struct or a dict for "
                f"{type(self).__name__}"
            )
        return schema, value

    def __init__(self, settings: ConfigTable) -> None:
        super().__init__(settings)
        self._made: dict[Schema, Schema] = {}

    def made_schema(self, schema: Schema, make: Callable[[Schema], Schema]) -> Schema:
        """What `make` makes of a schema; it is asked once for each of the last few."""
        found = self._made.get(schema)
        if found is None:
            if len(self._made) >= CACHED_SCHEMAS:
                del self._made[next(iter(self._made))]
            found = self._made[schema] = make(schema)
        return found

    def read(self, value: Mapping[str, Any], name: str, schema: Schema) -> Any:
        """A field: its default where it is null, as replace.null.with.default has it."""
        found = value.get(name)
        if found is None and self.settings.replace_null_with_default:
            return schema.default
        return found

    def read_all(self, value: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
        """The fields that a schema has."""
        return {name: self.read(value, name, field) for name, field in schema.fields}


def struct_like(schema: Schema, fields: Collection[tuple[str, Schema]], **more: Any) -> Schema:
    """A required struct with the name, version, doc and parameters of another."""
    return schema.replace(
        type=SchemaType.STRUCT,
        optional=False,
        default=None,
        fields=tuple(fields),
        key_schema=None,
        value_schema=None,
    ).replace(**more)


PartTransformType = TypeVar("PartTransformType", bound=type[PartTransform])


def for_key_and_value(base: PartTransformType) -> tuple[PartTransformType, PartTransformType]:
    """The two classes of a transform: of keys, and of values."""

    def made(part: str) -> Any:
        kind = part.capitalize()
        names = {
            "part": part,
            "kafka_class": f"{PACKAGE}.{base.__name__}${kind}",
            "__module__": base.__module__,
            "__doc__": base.__doc__,
        }
        return type(f"{base.__name__}{kind}", (base,), names)

    return made(KEY), made(VALUE)
