"""The stages of a record between a connector and a topic: transforms, and three converters.

A source's record is transformed, then made bytes; a sink's is made values, then transformed. An
error knows its stage, and goes to the task's `Tolerance`. Transforms are made of settings, in
order, each with its predicate:

    transforms=route,mask                       predicates=noisy
    transforms.route.type=...RegexRouter        predicates.noisy.type=...TopicNameMatches
    transforms.route.regex=...                  predicates.noisy.pattern=debug-.*
    transforms.route.predicate=noisy            transforms.route.negate=true

A transform is a class with `of(settings)` and `apply(record)`, which returns the record that goes
on, or None to drop it; a predicate has `of(settings)` and `test(record)`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ottla.config.config_type import BOOLEAN
from ottla.config.connect_config import ConnectorConfig, WorkerConfig
from ottla.connect.converters import Converter
from ottla.connect.data import Header, Schema, SinkRecord, SourceRecord
from ottla.connect.plugins import (
    CONVERTERS,
    HEADER_CONVERTERS,
    PREDICATES,
    TRANSFORMS,
    Plugins,
    name_of,
)
from ottla.connect.tolerance import Operation, Stage, Tolerance
from ottla.connect.worker_clients import with_prefix
from ottla.errors import ConfigError
from ottla.record.consumer_record import ConsumerRecord

Transform = Callable[[Any], Any]


@dataclass(slots=True, kw_only=True)
class ConsumedRecord(SinkRecord):
    """A record for a sink, with the one in the topic that it was made of."""

    original: ConsumerRecord | None = None


class Encoded(NamedTuple):
    """A record as a producer takes it."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    partition: int | None
    timestamp_ms: int | None


class Conversion:
    """The converters and transforms of one task; used in its thread alone."""

    def __init__(
        self,
        converters: tuple[Converter, Converter, Converter],
        transforms: Sequence[tuple[str, Transform]] = (),
    ) -> None:
        """`converters` for keys, values and headers; each transform with its class's name."""
        self._key, self._value, self._header = converters
        self._transforms = tuple(transforms)
        self._stage = Stage.TRANSFORMATION
        self._executing: Converter | str = ""

    def encode(self, record: SourceRecord, tolerance: Tolerance) -> Encoded | None:
        """The record for the producer; None if a transform drops it."""
        try:
            return self._encode(record)
        except Exception as error:
            return tolerance.retry(
                lambda: self._encode(record),
                error,
                lambda: self._operation(record),
            )

    def encode_values(
        self, topic: str, values: Sequence[Any], schema: Schema | None
    ) -> list[bytes | None] | None:
        """Values of records that have nothing else; None if each must be looked at alone."""
        if self._transforms:
            return None
        convert = self._value.from_connect_data
        try:
            if self._key.from_connect_data(topic, None, None) is not None:
                return None
            return [convert(topic, schema, value) for value in values]
        except Exception:
            return None  # `encode` finds which it is, and acts by the settings

    def decode(self, record: ConsumerRecord, tolerance: Tolerance) -> SinkRecord | None:
        """The record for the sink; None if a transform drops it."""
        try:
            return self._decode(record)
        except Exception as error:
            return tolerance.retry(
                lambda: self._decode(record),
                error,
                lambda: self._operation(record),
            )

    def close(self) -> None:
        for converter in (self._key, self._value, self._header):
            converter.close()

    def _encode(self, record: SourceRecord) -> Encoded | None:
        made = self._transformed(record) if self._transforms else record
        if made is None:
            return None
        topic = made.topic
        self._at(Stage.KEY_CONVERTER, self._key)
        key = self._key.from_connect_data(topic, made.key_schema, made.key)
        self._at(Stage.VALUE_CONVERTER, self._value)
        value = self._value.from_connect_data(topic, made.value_schema, made.value)
        headers: list[tuple[str, bytes | None]] = []
        if made.headers:
            self._at(Stage.HEADER_CONVERTER, self._header)
            for name, content, schema in map(_header, made.headers):
                headers.append((name, self._header.from_connect_data(topic, schema, content)))
        return Encoded(topic, key, value, headers, made.partition, made.timestamp_ms)

    def _decode(self, record: ConsumerRecord) -> SinkRecord | None:
        topic = record.topic
        self._at(Stage.KEY_CONVERTER, self._key)
        key_schema, key = self._key.to_connect_data(topic, record.key)
        self._at(Stage.VALUE_CONVERTER, self._value)
        value_schema, value = self._value.to_connect_data(topic, record.value)
        headers: list[Header] = []
        if record.headers:
            self._at(Stage.HEADER_CONVERTER, self._header)
            for name, content in record.headers:
                schema, made = self._header.to_connect_data(topic, content)
                headers.append(Header(name, made, schema))
        found = ConsumedRecord(
            topic=topic,
            partition=record.partition,
            key=key,
            key_schema=key_schema,
            value=value,
            value_schema=value_schema,
            timestamp_ms=record.timestamp_ms,
            headers=tuple(headers),
            offset=record.offset,
            timestamp_type=record.timestamp_type,
            original=record,
        )
        if not self._transforms:
            return found
        made = self._transformed(found)
        if made is None or isinstance(made, ConsumedRecord):
            return made
        return _at_place_of(record, made)

    def _transformed(self, record: Any) -> Any:
        self._stage = Stage.TRANSFORMATION
        for name, transform in self._transforms:
            self._executing = name
            record = transform(record)
            if record is None:
                return None
        return record

    def _operation(self, record: Any) -> Operation:
        """The operation that failed; a converter is called by Kafka's name."""
        executing = self._executing
        name = executing if isinstance(executing, str) else name_of(type(executing))
        return Operation(self._stage, name, record)

    def _at(self, stage: Stage, converter: Converter) -> None:
        self._stage = stage
        self._executing = converter


def _at_place_of(record: ConsumerRecord, made: SinkRecord) -> ConsumedRecord:
    """A record that a transform has built, with the one that it is of: offsets and dead letters
    are of that one."""
    values = {each.name: getattr(made, each.name) for each in dataclasses.fields(SinkRecord)}
    place = {"original_topic": record.topic, "original_partition": record.partition}
    return ConsumedRecord(**values | place | {"offset": record.offset, "original": record})


def _header(header: Header | tuple[str, Any]) -> Header:
    return header if isinstance(header, Header) else Header(*header)


def converter_words(config: ConnectorConfig | WorkerConfig) -> dict[str, str | None]:
    """The names of the converters in the settings."""
    return {
        "key": config.key_converter,
        "value": config.value_converter,
        "header": config.header_converter,
    }


def make_converter(
    plugins: Plugins,
    kind: str,
    worker: tuple[WorkerConfig, Mapping[str, str]],
    connector: tuple[ConnectorConfig, Mapping[str, str]],
) -> Converter:
    """The converter for `key`, `value` or `header`: the connector's own, else the worker's."""
    prefix = f"{kind}.converter."
    own, properties = converter_words(connector[0])[kind], connector[1]
    word = own
    if own is None:
        word, properties = converter_words(worker[0])[kind], worker[1]
    group = HEADER_CONVERTERS if kind == "header" else CONVERTERS
    found = plugins.find(group, word)
    settings: dict[str, Any] = with_prefix(properties, prefix)
    settings.pop(PART_VERSION, None)
    if "converter.type" in found.Settings.keys:
        settings["converter.type"] = kind
    converter: Converter = found.of(settings)
    return converter


PART_VERSION: Final = "plugin.version"
OF_CHAIN: Final = ("type", "predicate", "negate", PART_VERSION)


def make_transforms(
    plugins: Plugins, config: ConnectorConfig, properties: Mapping[str, str]
) -> list[tuple[str, Callable[[Any], Any]]]:
    """Each transform as a function, with the name of its class; ConfigError for a wrong one."""
    predicates = {
        name: _part(plugins, PREDICATES, f"predicates.{name}.", properties)
        for name in config.predicates
    }
    found = []
    for name in config.transforms:
        prefix = f"transforms.{name}."
        transform = _part(plugins, TRANSFORMS, prefix, properties)
        apply = transform.apply
        wanted = properties.get(f"{prefix}predicate")
        if wanted is not None:
            if wanted not in predicates:
                raise ConfigError(f"{prefix}predicate={wanted}: must be one of predicates")
            negate = BOOLEAN.parse(f"{prefix}negate", properties.get(f"{prefix}negate", "false"))
            apply = _where(predicates[wanted].test, negate, apply)
        found.append((type(transform).__name__, apply))
    return found


def _where(
    test: Callable[[Any], bool], negate: bool, apply: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """The transform for records for which the predicate holds; others pass as they are."""

    def apply_if(record: Any) -> Any:
        return apply(record) if test(record) != negate else record

    return apply_if


def _part(plugins: Plugins, group: str, prefix: str, properties: Mapping[str, str]) -> Any:
    word = properties.get(f"{prefix}type")
    if not word:
        raise ConfigError(f"{prefix}type: must be set")
    settings = with_prefix(properties, prefix)
    own = {key: value for key, value in settings.items() if key not in OF_CHAIN}
    try:
        return plugins.find(group, word).of(own)
    except ConfigError as error:
        raise ConfigError(f"{prefix}{error.message}") from error
