"""What a transform and a predicate are, and the predicates that come with Kafka.

A transform gets a record and returns the one that goes on, or None to drop it. It changes no
record: it makes another by `replace`. A predicate says for which records a transform is meant. Both
are made by `of` from their settings, without the prefix (`transforms.<alias>.`), which a table
checks.

Most transforms work on the key or on the value, and come twice: `ExtractFieldKey` is Kafka's
ExtractField$Key, `ExtractFieldValue` its ExtractField$Value.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, Final, TypeVar

from ottla.config.config_def import HIGH, REQUIRED, ConfigTable, config_key
from ottla.config.config_type import BOOLEAN, STRING
from ottla.config.java_regex import is_java_pattern, java_pattern
from ottla.config.rule import Rule, not_empty
from ottla.connect.data import ConnectRecord, DataError, Schema, SchemaType, shown
from ottla.errors import ConfigError

PACKAGE: Final = "org.apache.kafka.connect.transforms"
KEY: Final = "key"
VALUE: Final = "value"
CACHED_SCHEMAS: Final = 16
"""Of how many schemas a transform keeps what it makes of them."""


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


# Transforms of the key or the value


class DefaultsSettings(ConfigTable, group=True):
    """The setting of all transforms that read fields."""

    replace_null_with_default: bool = config_key(
        default=True,
        type=BOOLEAN,
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


# Predicates, and the transform that makes sense with one only


class TopicNameSettings(ConfigTable):
    """The settings of TopicNameMatches."""

    pattern: str = config_key(
        default=REQUIRED,
        type=STRING,
        rule=Rule(
            "be a regular expression that is not empty",
            lambda text: bool(text) and is_java_pattern(text),
        ),
        doc="A regular expression for the whole name of the topic.",
    )


class TopicNameMatches(Predicate):
    """Records of topics whose whole name matches a regular expression."""

    Settings = TopicNameSettings
    kafka_class = f"{PACKAGE}.predicates.TopicNameMatches"

    def __init__(self, settings: ConfigTable) -> None:
        super().__init__(settings)
        self._matches = java_pattern(self.settings.pattern).fullmatch

    def test(self, record: ConnectRecord) -> bool:
        return self._matches(record.topic) is not None


class HeaderKeySettings(ConfigTable):
    """The settings of HasHeaderKey."""

    name: str = config_key(
        default=REQUIRED, type=STRING, rule=not_empty(), doc="The name of the header."
    )


class HasHeaderKey(Predicate):
    """Records that have a header of a name."""

    Settings = HeaderKeySettings
    kafka_class = f"{PACKAGE}.predicates.HasHeaderKey"

    def test(self, record: ConnectRecord) -> bool:
        return record.header(self.settings.name) is not None


class RecordIsTombstone(Predicate):
    """Records without a value."""

    kafka_class = f"{PACKAGE}.predicates.RecordIsTombstone"

    def test(self, record: ConnectRecord) -> bool:
        return record.value is None


class Filter(Transform):
    """Drops records: all of them, or with a predicate those for which it holds."""

    kafka_class = f"{PACKAGE}.Filter"

    def apply(self, record: ConnectRecord) -> None:
        return None


# Paths to fields (KIP-821)


V1: Final = "V1"
V2: Final = "V2"


class PathSettings(ConfigTable, group=True):
    """How a field is named."""

    field_syntax_version: str = config_key(
        default=V1,
        type=STRING,
        rule=Rule("be V1 or V2", lambda text: text.upper() in (V1, V2)),
        importance=HIGH,
        doc="V1: the name of a field at the top. V2: a path with dots to a field further in; a "
        "name with dots stands between backticks (KIP-821).",
    )


_STEP: Final = re.compile(r"`((?:\\`|`(?!\.|\Z)|[^`])*)`(?:\.|\Z)|([^`.][^.]*|)(?:\.|\Z)")


def path_of(text: str, syntax: str) -> tuple[str, ...]:
    """The names on the way to a field; ConfigError for a backtick without its other."""
    if syntax.upper() == V1:
        return (text,)
    steps, at = [], 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise ConfigError(
                f"field={text}: must have a backtick at the end of the name that begins at "
                f"character {at} with one"
            )
        steps.append(match[2] if match[1] is None else match[1].replace("\\`", "`"))
        at = match.end()
    if text.endswith("."):
        steps.append("")
    return tuple(steps)
