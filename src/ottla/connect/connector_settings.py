"""A connector's properties: checked, and described for people and for REST.

A property file of a connector has settings of several tables: those that every connector has, its
own (`Connector.Settings`), and those of its converters and transforms behind their prefixes.
`check` says all that is wrong at once, key by key; `validation_json` is Kafka's answer to
`/connector-plugins/<name>/config/validate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ottla.config.config_def import HIGH, LOW, MEDIUM, REQUIRED, ConfigKey, ConfigTable, config_key
from ottla.config.config_type import LIST, STRING
from ottla.config.connect_config import (
    ConnectorConfig,
    SinkConnectorConfig,
    SourceConnectorConfig,
    WorkerConfig,
)
from ottla.connect.connector import Connector, SourceConnector
from ottla.connect.conversion import PART_VERSION, converter_words, make_converter, make_transforms
from ottla.connect.plugins import (
    CONVERTERS,
    HEADER_CONVERTERS,
    PREDICATES,
    TRANSFORMS,
    Plugins,
    version_of,
)
from ottla.connect.topic_creation import topic_groups
from ottla.connect.worker_clients import OVERRIDES, check_overrides
from ottla.errors import ConfigError, KafkaError
from ottla.structs import is_topic_name, replace

OF_PARTS: Final = (
    "key.converter.",
    "value.converter.",
    "header.converter.",
    "transforms.",
    "predicates.",
    "topic.creation.",
    *OVERRIDES,
)
"""Prefixes behind which the settings of a connector's parts stand."""
NOT_OWN: Final = frozenset({"task.class"})
COMMON: Final = "Common"
TRANSFORMS_GROUP: Final = "Transforms"
PREDICATES_GROUP: Final = "Predicates"
ERRORS: Final = "Error Handling"
EXACTLY_ONCE: Final = "Exactly Once Support"


class ShownSetting(NamedTuple):
    """How Kafka's answers, and the forms that are drawn of them, show a setting."""

    group: str | None
    order: int
    width: str
    name: str


SHOWN: Final[Mapping[str, ShownSetting]] = {
    "name": ShownSetting(COMMON, 1, "MEDIUM", "Connector name"),
    "connector.class": ShownSetting(COMMON, 2, "LONG", "Connector class"),
    "connector.plugin.version": ShownSetting(COMMON, 3, "MEDIUM", "Connector version"),
    "tasks.max": ShownSetting(COMMON, 4, "SHORT", "Tasks max"),
    "tasks.max.enforce": ShownSetting(COMMON, 5, "SHORT", "Enforce tasks max"),
    "key.converter": ShownSetting(COMMON, 6, "SHORT", "Key converter class"),
    "key.converter.plugin.version": ShownSetting(COMMON, 7, "SHORT", "Key converter version"),
    "value.converter": ShownSetting(COMMON, 8, "SHORT", "Value converter class"),
    "value.converter.plugin.version": ShownSetting(COMMON, 9, "SHORT", "Value converter version"),
    "header.converter": ShownSetting(COMMON, 10, "SHORT", "Header converter class"),
    "header.converter.plugin.version": ShownSetting(
        COMMON, 11, "SHORT", "Header converter version"
    ),
    "transforms": ShownSetting(TRANSFORMS_GROUP, 12, "LONG", "Transforms"),
    "predicates": ShownSetting(PREDICATES_GROUP, 13, "LONG", "Predicates"),
    "config.action.reload": ShownSetting(COMMON, 14, "MEDIUM", "Reload Action"),
    "errors.retry.timeout": ShownSetting(ERRORS, 1, "MEDIUM", "Retry Timeout for Errors"),
    "errors.retry.delay.max.ms": ShownSetting(
        ERRORS, 2, "MEDIUM", "Maximum Delay Between Retries for Errors"
    ),
    "errors.tolerance": ShownSetting(ERRORS, 3, "SHORT", "Error Tolerance"),
    "errors.log.enable": ShownSetting(ERRORS, 4, "SHORT", "Log Errors"),
    "errors.log.include.messages": ShownSetting(ERRORS, 5, "SHORT", "Log Error Details"),
    "topic.creation.groups": ShownSetting("Topic Creation", 1, "LONG", "Topic Creation Groups"),
    "exactly.once.support": ShownSetting(EXACTLY_ONCE, 2, "SHORT", "Exactly once support"),
    "transaction.boundary": ShownSetting(EXACTLY_ONCE, 3, "SHORT", "Transaction Boundary"),
    "transaction.boundary.interval.ms": ShownSetting(
        EXACTLY_ONCE, 4, "SHORT", "Transaction boundary interval"
    ),
    "offsets.storage.topic": ShownSetting("offsets.topic", 1, "LONG", "Offsets topic"),
    "topics": ShownSetting(COMMON, 4, "LONG", "Topics"),
    "topics.regex": ShownSetting(COMMON, 4, "LONG", "Topics regex"),
    "errors.deadletterqueue.topic.name": ShownSetting(
        ERRORS, 6, "MEDIUM", "Dead Letter Queue Topic Name"
    ),
    "errors.deadletterqueue.topic.replication.factor": ShownSetting(
        ERRORS, 7, "MEDIUM", "Dead Letter Queue Topic Replication Factor"
    ),
    "errors.deadletterqueue.context.headers.enable": ShownSetting(
        ERRORS, 8, "MEDIUM", "Enable Error Context Headers"
    ),
}
SHOWN_OF_CONVERTERS: Final[Mapping[str, ShownSetting]] = {
    "converter.encoding": ShownSetting(None, -1, "MEDIUM", "Encoding"),
    "schemas.enable": ShownSetting("Schemas", 0, "MEDIUM", "Enable Schemas"),
    "schemas.cache.size": ShownSetting("Schemas", 1, "MEDIUM", "Schema Cache Size"),
    "decimal.format": ShownSetting("Serialization", 0, "MEDIUM", "Decimal Format"),
    "replace.null.with.default": ShownSetting(
        "Serialization", 1, "MEDIUM", "Replace null with default"
    ),
}
CLASS: Final = "CLASS"
CLASSES: Final = frozenset({"key.converter", "value.converter", "header.converter"})
INHERITED: Final = ("replace.null.with.default", "field.syntax.version")
CONVERTER_TYPE: Final = "converter.type"
IMPORTANCES: Final = (HIGH, MEDIUM, LOW)


class _OfTransforms(ConfigTable):
    """The settings of each transform beside its own."""

    predicate: str | None = config_key(
        default=None, doc="The predicate that says for which records."
    )
    negate: bool = config_key(
        default=False, doc="Whether it is for those for which that does not hold."
    )


OF_TRANSFORMS: Final = _OfTransforms.keys


def common_table(connector_class: type[Connector]) -> type[ConnectorConfig]:
    """The settings that every connector of its kind has."""
    return SourceConnectorConfig if connector_class.kind == "source" else SinkConnectorConfig


def own_properties(
    connector_class: type[Connector], properties: Mapping[str, str]
) -> dict[str, str]:
    """The properties that are for the connector's own table."""
    own, common = connector_class.Settings.keys, common_table(connector_class).keys
    return {
        key: value
        for key, value in properties.items()
        if key in own or not (key in common or key in NOT_OWN or _is_of_part(key))
    }


def _is_of_part(key: str) -> bool:
    return key.startswith(OF_PARTS)


def parse_connector(
    connector_class: type[Connector], properties: Mapping[str, str]
) -> tuple[ConnectorConfig, ConfigTable]:
    """The common and the own settings; ConfigError for the first that is wrong."""
    table = common_table(connector_class)
    config = table.parse(table.known_of(properties))
    return config, connector_class.Settings.parse(own_properties(connector_class, properties))


@dataclass
class Checked:
    """The outcome of a check: the description of each setting, its value, its faults."""

    name: str
    definitions: dict[str, dict[str, Any]] = field(default_factory=dict)
    values: dict[str, str | None] = field(default_factory=dict)
    recommended: dict[str, list[str]] = field(default_factory=dict)
    errors: dict[str, list[str]] = field(default_factory=dict)

    @property
    def error_count(self) -> int:
        return sum(map(len, self.errors.values()))

    def add(self, key: str, message: str) -> None:
        """Note an error, once."""
        found = self.errors.setdefault(key, [])
        if message not in found:
            found.append(message)

    def take(self, definition: dict[str, Any], row: ConfigKey, value: Any) -> None:
        """Note a setting and the value that was given, None for none; check it by itself."""
        name = definition["name"]
        self.definitions[name] = definition
        if value is None:
            if definition["required"]:
                self.add(
                    name, f'Missing required configuration "{name}" which has no default value.'
                )
            self.values[name] = definition["default_value"]
            return
        try:
            self.values[name] = row.format(row.type.parse(name, value))
            replace(row, name=name).parse(value)
        except KafkaError as error:
            self.values.setdefault(name, None)
            self.add(name, error.message)

    def text(self) -> str:
        """All errors in the words in which Kafka refuses a connector."""
        lines = [message for messages in self.errors.values() for message in messages]
        count = len(lines)
        return (
            f"Connector configuration is invalid and contains the following {count} error(s):\n"
            + "\n".join(lines)
            + "\nYou can also find the above list of errors at the endpoint "
            "`/connector-plugins/{connectorType}/config/validate`"
        )


class Checker:
    """Checks the properties of connectors for one worker. `check` runs code of plug-ins."""

    def __init__(
        self, plugins: Plugins, config: WorkerConfig, properties: Mapping[str, str]
    ) -> None:
        self._plugins = plugins
        self._worker = (config, properties)

    def check(self, properties: Mapping[str, str]) -> Checked:
        """Everything that is wrong; nothing is raised for it."""
        checked = Checked(str(properties.get("connector.class", "")))
        try:
            connector_class = self._plugins.connector(checked.name)
        except KafkaError as error:
            self._common(checked, ConnectorConfig, properties, None)
            checked.add("connector.class", error.message)
            return checked
        self._common(checked, common_table(connector_class), properties, connector_class)
        self._parts(checked, properties, "transforms", TRANSFORMS, "Transformation")
        self._parts(checked, properties, "predicates", PREDICATES, "Predicate")
        own = own_properties(connector_class, properties)
        for name, row in connector_class.Settings.keys.items():
            checked.take(_definition(name, row), row, own.get(name))
        self._converters(checked, properties)
        self._as_a_whole(checked, connector_class, properties)
        return checked

    def _common(
        self,
        checked: Checked,
        table: type[ConfigTable],
        properties: Mapping[str, str],
        connector_class: type[Connector] | None,
    ) -> None:
        """The settings of every connector; where it says none, the worker's count."""
        defaults: dict[str, str] = {}
        if connector_class is not None:
            self._recommend_version(checked, "connector", connector_class, defaults)
        for kind in ("key", "value", "header"):
            of_worker = defaults[f"{kind}.converter"] = str(converter_words(self._worker[0])[kind])
            word = properties.get(f"{kind}.converter", of_worker)
            group = HEADER_CONVERTERS if kind == "header" else CONVERTERS
            checked.recommended[f"{kind}.converter"] = self._names(group)
            try:
                converter = self._plugins.find(group, word)
            except KafkaError as error:
                checked.add(f"{kind}.converter", error.message)
            else:
                self._recommend_version(checked, f"{kind}.converter", converter, defaults)
        for name, row in table.keys.items():
            definition = _definition(name, row, SHOWN.get(name))
            definition["default_value"] = defaults.get(name, definition["default_value"])
            checked.take(definition, row, properties.get(name))
        topics = ("topics", "topics.regex")
        is_sink = issubclass(table, SinkConnectorConfig)
        if is_sink and len([name for name in topics if properties.get(name)]) != 1:
            for name in topics:
                checked.add(name, "topics, topics.regex: exactly one of them must be set")

    def _names(self, group: str) -> list[str]:
        return [plugin.name for plugin in self._plugins.list(group)]

    def _recommend_version(
        self, checked: Checked, prefix: str, plugin: Any, defaults: dict[str, str]
    ) -> None:
        """Recommend the version that the package of a plug-in has: one is installed (KIP-891)."""
        name = f"{prefix}.{PART_VERSION}"
        defaults[name] = version_of(plugin)
        checked.recommended[name] = [defaults[name]]

    def _parts(
        self, checked: Checked, properties: Mapping[str, str], kind: str, group: str, title: str
    ) -> None:
        """The settings of each transform, or of each predicate."""
        known = LIST.parse("predicates", properties.get("predicates", ""))
        for alias in LIST.parse(kind, properties.get(kind, "")):
            prefix, shown = f"{kind}.{alias}.", f"{title} {{}} for {alias}"
            word = properties.get(f"{prefix}type")
            kind_row = ConfigKey(REQUIRED, STRING, None, HIGH, f"What {alias} is.", (), None)
            place = ShownSetting(f"{kind.capitalize()}: {alias}", 0, "LONG", shown.format("type"))
            definition = _definition(f"{prefix}type", kind_row, place) | {"type": CLASS}
            checked.take(definition, kind_row, word)
            checked.recommended[f"{prefix}type"] = self._names(group)
            try:
                plugin = self._plugins.find(group, word) if word else None
            except KafkaError as error:
                checked.add(f"{prefix}type", error.message)
                checked.values[f"{prefix}type"] = None
                plugin = None
            version = None if plugin is None else version_of(plugin)
            row = ConfigKey(version, STRING, None, HIGH, "The version installed.", (), None)
            place = place._replace(order=1, name=shown.format("version"))
            name = f"{prefix}{PART_VERSION}"
            checked.take(_definition(name, row, place), row, properties.get(name))
            checked.recommended[name] = [] if version is None else [version]
            if plugin is None:
                continue
            rows = dict(getattr(plugin, "Settings", ConfigTable).keys)
            rows |= OF_TRANSFORMS if group == TRANSFORMS else {}
            self._own_rows(checked, properties, (prefix, rows, place))
            predicate = properties.get(f"{prefix}predicate")
            if group == TRANSFORMS and predicate is not None and predicate not in known:
                checked.add(
                    f"{prefix}predicate",
                    f"{prefix}predicate={predicate}: must be one of predicates",
                )

    def _own_rows(
        self,
        checked: Checked,
        properties: Mapping[str, str],
        part: tuple[str, Mapping[str, ConfigKey], ShownSetting],
    ) -> None:
        """Those of one part, in Kafka's order: needed, important, then by name."""
        prefix, rows, place = part

        def rank(row: ConfigKey) -> tuple[bool, int, str]:
            return row.default is not REQUIRED, IMPORTANCES.index(row.importance), row.name

        for order, row in enumerate(sorted(rows.values(), key=rank), place.order + 1):
            name = prefix + row.name
            shown = ShownSetting(place.group, order, "NONE", row.name)
            checked.take(_definition(name, row, shown), row, properties.get(name))

    def _converters(self, checked: Checked, properties: Mapping[str, str]) -> None:
        """The settings of the converters that the connector has of its own."""
        for kind in ("key", "value", "header"):
            name = f"{kind}.converter"
            if name not in properties or name in checked.errors:
                continue
            group = HEADER_CONVERTERS if kind == "header" else CONVERTERS
            table = getattr(self._plugins.find(group, properties[name]), "Settings", ConfigTable)
            for row in table.keys.values():
                key = f"{name}.{row.name}"
                value = kind if row.name == CONVERTER_TYPE else properties.get(key)
                shown = SHOWN_OF_CONVERTERS.get(row.name)
                checked.take(_definition(key, row, shown), row, value)

    def _as_a_whole(
        self, checked: Checked, connector_class: type[Connector], properties: Mapping[str, str]
    ) -> None:
        """The rules that need several settings, and those of parts."""
        if checked.errors:
            return
        try:
            config, settings = parse_connector(connector_class, properties)
        except KafkaError as error:
            checked.add(_key_of(error, checked, properties), error.message)
            return
        for key, message in connector_class.validate(settings).items():
            checked.add(key, message)
        for key, message in check_overrides(self._worker[0], properties).items():
            checked.add(key, message)
        for kind in ("key", "value", "header"):
            try:
                make_converter(self._plugins, kind, self._worker, (config, properties))
            except KafkaError as error:
                checked.add(f"{kind}.converter", error.message)
        try:
            make_transforms(self._plugins, config, properties)
        except KafkaError as error:
            checked.add(_key_of(error, checked, properties), error.message)
        if isinstance(config, SourceConnectorConfig):
            try:
                topic_groups(properties, config)
            except KafkaError as error:
                checked.add("topic.creation.groups", error.message)
            if not config.transforms and issubclass(connector_class, SourceConnector):
                _check_topics(checked, connector_class.topics(settings))
            if config.exactly_once_support == "required":
                self._exactly_once(checked, connector_class, settings)
            is_own = config.transaction_boundary == "connector"
            if is_own and not _sets_boundaries(connector_class, settings):
                checked.add(
                    "transaction.boundary",
                    "transaction.boundary=connector: the connector sets no boundaries of "
                    "transactions with these settings",
                )

    def _exactly_once(self, checked: Checked, connector_class: Any, settings: ConfigTable) -> None:
        if self._worker[0].exactly_once_source_support != "enabled":
            checked.add(
                "exactly.once.support",
                "exactly.once.support=required: the worker must have "
                "exactly.once.source.support=enabled",
            )
        elif not connector_class.is_exactly_once(settings):
            checked.add(
                "exactly.once.support",
                "exactly.once.support=required: the connector is not exactly once with these "
                "settings",
            )


def _check_topics(checked: Checked, topics: Mapping[str, str]) -> None:
    """Refuse topics that cannot be made; with a transform their names are not known."""
    for topic, setting in topics.items():
        if not is_topic_name(topic):
            checked.add(
                setting.partition("=")[0],
                f"{setting}: {topic!r} must be the name of a topic, of 1 to 249 ASCII letters, "
                "digits, '.', '_' and '-'; the transform RegexRouter gives another one",
            )


def _sets_boundaries(connector_class: Any, settings: ConfigTable) -> bool:
    return bool(connector_class.sets_boundaries(settings))


def _key_of(error: KafkaError, checked: Checked, properties: Mapping[str, str]) -> str:
    """The setting that an error is about: its text begins with it."""
    name = error.message.partition("=")[0].partition(":")[0].partition(",")[0]
    return name if name in checked.definitions or name in properties else "connector.class"


def _definition(name: str, row: ConfigKey, shown: ShownSetting | None = None) -> dict[str, Any]:
    """A row as Kafka describes a setting."""
    shown = shown or ShownSetting(None, -1, "NONE", row.name)
    return {
        "name": name,
        "type": CLASS if name in CLASSES else row.type.name,
        "required": row.default is REQUIRED,
        "default_value": None if row.default is REQUIRED else row.format(row.default),
        "importance": row.importance.name,
        "documentation": row.doc,
        "group": shown.group,
        "width": shown.width,
        "display_name": shown.name,
        "dependents": [],
        "order": shown.order,
    }


def definitions_json(table: type[ConfigTable]) -> list[dict[str, Any]]:
    """All settings of a table, those that it has inherited last: GET .../<name>/config."""
    shown: Mapping[str, ShownSetting] = {}
    if issubclass(table, ConnectorConfig):
        shown = SHOWN
    elif CONVERTER_TYPE in table.keys:
        shown = SHOWN_OF_CONVERTERS
    own = [name for name in table.keys if shown or name not in INHERITED]
    names = [*own, *(name for name in INHERITED if name in table.keys and name not in own)]
    return [_definition(name, table.keys[name], shown.get(name)) for name in names]


def validation_json(checked: Checked) -> dict[str, Any]:
    """The answer to PUT .../config/validate."""
    names = [*checked.definitions, *(e for e in checked.errors if e not in checked.definitions)]
    configs = [
        {
            "definition": checked.definitions.get(name),
            "value": {
                "name": name,
                "value": checked.values.get(name),
                "recommended_values": checked.recommended.get(name, []),
                "errors": checked.errors.get(name, []),
                "visible": True,
            },
        }
        for name in names
    ]
    groups = dict.fromkeys(each["group"] for each in checked.definitions.values())
    return {
        "name": checked.name,
        "error_count": checked.error_count,
        "groups": [group for group in groups if group is not None],
        "configs": configs,
    }


def required_name(name: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with the connector's name in them; ConfigError if they have another."""
    found = properties.get("name", name)
    if found != name:
        raise ConfigError(
            f"Connector name configuration ({found}) doesn't match connector name in the URL "
            f"({name})"
        )
    return {**properties, "name": name}
