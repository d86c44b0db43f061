"""Transforms of what stands around key and value: the topic and the headers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from ottla.config.config_def import HIGH, REQUIRED, ConfigTable, config_key
from ottla.config.java_regex import java_pattern, java_replacement
from ottla.config.rule import Rule, one_of
from ottla.connect.data import ConnectRecord, DataError, Header, Schema
from ottla.connect.transform import (
    HAS_ITEMS,
    IS_REGEX,
    PACKAGE,
    DefaultsSettings,
    PartTransform,
    Transform,
    for_key_and_value,
    struct_like,
)
from ottla.connect.value_text import from_text
from ottla.errors import ConfigError

MOVE: Final = "move"
COPY: Final = "copy"


class RegexRouterSettings(ConfigTable):
    """The settings of RegexRouter."""

    regex: str = config_key(
        default=REQUIRED,
        rule=IS_REGEX,
        importance=HIGH,
        doc="What the whole name of a topic must match.",
    )
    replacement: str = config_key(
        default=REQUIRED,
        importance=HIGH,
        doc="The topic that such records go to: text, with $1 or ${name} for a group.",
    )


class RegexRouter(Transform):
    """Renames the topic of records whose topic matches."""

    Settings = RegexRouterSettings
    kafka_class = f"{PACKAGE}.RegexRouter"

    def __init__(self, settings: ConfigTable) -> None:
        super().__init__(settings)
        self._pattern = java_pattern(self.settings.regex)
        try:
            self._expand = java_replacement(self.settings.replacement, self._pattern)
        except ValueError as error:
            raise ConfigError(f"replacement={self.settings.replacement}: {error}") from None

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        if not self._pattern.fullmatch(record.topic):
            return record
        # The first place that matches is replaced, as Java's replaceFirst does.
        return record.replace(topic=self._pattern.sub(self._expand, record.topic, count=1))


class InsertHeaderSettings(ConfigTable):
    """The settings of InsertHeader."""

    header: str = config_key(default=REQUIRED, importance=HIGH, doc="The name of the header.")
    value_literal: str = config_key(
        default=REQUIRED,
        importance=HIGH,
        doc="Its value, whose type is guessed as that of a header in a topic is.",
    )


class InsertHeader(Transform):
    """Adds a header with a constant value."""

    Settings = InsertHeaderSettings
    kafka_class = f"{PACKAGE}.InsertHeader"

    def __init__(self, settings: ConfigTable) -> None:
        super().__init__(settings)
        schema, value = from_text(self.settings.value_literal)
        self._header = Header(self.settings.header, value, schema)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        return record.replace(headers=(*record.headers, self._header))


class DropHeadersSettings(ConfigTable):
    """The settings of DropHeaders."""

    headers: tuple[str, ...] = config_key(
        default=REQUIRED,
        rule=HAS_ITEMS,
        importance=HIGH,
        doc="The names of the headers to drop.",
    )


class DropHeaders(Transform):
    """Drops all headers of some names."""

    Settings = DropHeadersSettings
    kafka_class = f"{PACKAGE}.DropHeaders"

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        names = self.settings.headers
        return record.replace(
            headers=tuple(header for header in record.headers if header.key not in names)
        )


class HeaderFromSettings(DefaultsSettings):
    """The settings of HeaderFrom."""

    fields: tuple[str, ...] = config_key(
        default=REQUIRED,
        rule=Rule("not be empty", bool),
        importance=HIGH,
        doc="The fields that become headers.",
    )
    headers: tuple[str, ...] = config_key(
        default=REQUIRED,
        rule=Rule("not be empty", bool),
        importance=HIGH,
        doc="The names of the headers, in the order of fields.",
    )
    operation: str = config_key(
        default=REQUIRED,
        rule=one_of(MOVE, COPY),
        importance=HIGH,
        doc="Whether the fields leave the key or value (move) or stay there as well (copy).",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        if len(values["fields"]) != len(values["headers"]):
            raise ConfigError(
                f"headers={','.join(values['headers'])}: must have one name for each of fields"
            )


class HeaderFrom(PartTransform):
    """Moves or copies fields into headers."""

    Settings = HeaderFromSettings

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        schema, value = self.fields_of(record)
        pairs = zip(self.settings.fields, self.settings.headers, strict=True)
        added = [self._header(name, header, schema, value) for name, header in pairs]
        headers = (*record.headers, *added)
        if self.settings.operation == COPY:
            return record.replace(headers=headers)
        if schema is None:
            kept = {name: value[name] for name in value if name not in self.settings.fields}
            return self.changed(record, None, kept, headers=headers)
        made = self.made_schema(schema, self._made_of)
        kept = self.read_all(value, made)
        return self.changed(record, made, kept, headers=headers)

    def _header(
        self, name: str, header: str, schema: Schema | None, value: dict[str, Any]
    ) -> Header:
        if schema is None:
            return Header(header, value.get(name))
        if name not in schema.by_name:
            raise DataError(f"{schema}: has no field {name} for the header {header}")
        field = schema.by_name[name]
        return Header(header, self.read(value, name, field), field)

    def _made_of(self, schema: Schema) -> Schema:
        names = self.settings.fields
        return struct_like(schema, [field for field in schema.fields if field.name not in names])


HeaderFromKey, HeaderFromValue = for_key_and_value(HeaderFrom)
