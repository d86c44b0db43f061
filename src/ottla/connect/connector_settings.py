"""A connector's properties: checked, and described for people and for REST.

A property file of a connector has settings of several tables: those that every connector has, its
own (`Connector.Settings`), and those of its converters and transforms behind their prefixes.
`check` says all that is wrong at once, key by key; `validation_json` is Kafka's answer to
`/connector-plugins/<name>/config/validate`.

A value may stand elsewhere: `${file:/run/secrets/db.properties:password}`, with

    config.providers=file,env,dir
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider

in the worker's file. A connector's properties are kept and shown with such a reference in them;
only what runs sees the value. `file`, `dir` and `env` are Kafka's three providers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ottla.config.config_def import REQUIRED, ConfigKey, ConfigTable
from ottla.config.config_type import LIST
from ottla.config.connect_config import (
    ConnectorConfig,
    SinkConnectorConfig,
    SourceConnectorConfig,
    WorkerConfig,
)
from ottla.config.properties import parse_properties
from ottla.connect.connector import Connector
from ottla.connect.conversion import make_converter
from ottla.connect.plugins import Plugins
from ottla.connect.topic_creation import topic_groups
from ottla.connect.worker_clients import OVERRIDES, check_overrides
from ottla.errors import ConfigError, KafkaError

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
NOT_OWN: Final = frozenset({"task.class", *ConnectorConfig.unused})
COMMON: Final = "Common"
GROUPS: Final = {
    "transforms": "Transforms",
    "predicates": "Predicates",
    "topic.creation.": "Topic Creation",
    "errors.": "Error Handling",
    "exactly.once.": "Exactly Once Support",
    "transaction.boundary": "Exactly Once Support",
    "offsets.storage.topic": "offsets.topic",
}


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
    config = table.parse({key: value for key, value in properties.items() if key in table.keys})
    return config, connector_class.Settings.parse(own_properties(connector_class, properties))


@dataclass
class Checked:
    """The outcome of a check: for each setting its row, its value, and what is wrong with it."""

    name: str
    rows: dict[str, ConfigKey] = field(default_factory=dict)
    values: dict[str, str | None] = field(default_factory=dict)
    errors: dict[str, list[str]] = field(default_factory=dict)

    @property
    def error_count(self) -> int:
        return sum(map(len, self.errors.values()))

    def add(self, key: str, message: str) -> None:
        """Note an error, once."""
        found = self.errors.setdefault(key, [])
        if message not in found:
            found.append(message)

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
            self._rows(checked, ConnectorConfig, properties)
            checked.add("connector.class", error.message)
            return checked
        self._rows(checked, common_table(connector_class), properties)
        own = own_properties(connector_class, properties)
        self._rows(checked, connector_class.Settings, own)
        self._as_a_whole(checked, connector_class, properties)
        return checked

    def _rows(
        self, checked: Checked, table: type[ConfigTable], properties: Mapping[str, str]
    ) -> None:
        for name, row in table.keys.items():
            checked.rows[name] = row
            value = properties.get(name)
            if value is None:
                if row.default is REQUIRED:
                    checked.add(
                        name,
                        f'Missing required configuration "{name}" which has no default value.',
                    )
                default = None if row.default is REQUIRED else row.default
                checked.values[name] = row.format(default)
                continue
            checked.values[name] = str(value)
            try:
                row.parse(value)
            except KafkaError as error:
                checked.add(name, error.message)

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
        if isinstance(config, SourceConnectorConfig):
            try:
                topic_groups(properties, config)
            except KafkaError as error:
                checked.add("topic.creation.groups", error.message)
            if config.exactly_once_support == "required":
                self._exactly_once(checked, connector_class, settings)

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


def _key_of(error: KafkaError, checked: Checked, properties: Mapping[str, str]) -> str:
    """The setting that an error is about: its text begins with it."""
    name = error.message.partition("=")[0].partition(":")[0].partition(",")[0]
    return name if name in checked.rows or name in properties else "connector.class"


# As REST shows it.


def definition_json(row: ConfigKey, table: type[ConfigTable]) -> dict[str, Any]:
    """A row as Kafka describes a setting."""
    group = next((g for prefix, g in GROUPS.items() if row.name.startswith(prefix)), None)
    if group is None:
        is_common = row.name in SourceConnectorConfig.keys or row.name in SinkConnectorConfig.keys
        group = COMMON if is_common else None
    return {
        "name": row.name,
        "type": row.type.name,
        "required": row.default is REQUIRED,
        "default_value": None if row.default is REQUIRED else row.format(row.default),
        "importance": row.importance.name,
        "documentation": row.doc,
        "group": group,
        "order_in_group": list(table.keys).index(row.name) + 1 if row.name in table.keys else -1,
        "width": "NONE" if group is None else "MEDIUM",
        "display_name": row.name,
        "dependents": [],
    }


def definitions_json(plugin: Any) -> list[dict[str, Any]]:
    """All settings of a plug-in: GET /connector-plugins/<name>/config."""
    table: type[ConfigTable] = plugin.Settings
    return [definition_json(row, table) for row in table.keys.values()]


def validation_json(checked: Checked, table: type[ConfigTable]) -> dict[str, Any]:
    """The answer to PUT .../config/validate."""
    names = [*checked.rows, *(key for key in checked.errors if key not in checked.rows)]
    configs = []
    for name in names:
        row = checked.rows.get(name)
        definition = None if row is None else definition_json(row, table)
        value = {
            "name": name,
            "value": checked.values.get(name),
            "recommended_values": [],
            "errors": checked.errors.get(name, []),
            "visible": True,
        }
        configs.append({"definition": definition, "value": value})
    groups = dict.fromkeys(
        each["definition"]["group"] for each in configs if each["definition"] is not None
    )
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


REFERENCE: Final = re.compile(r"\$\{([^}:]+):(?:([^}:]*):)?([^}]*)\}")
_PACKAGE: Final = "org.apache.kafka.common.config.provider."
Provider = Callable[[str, str], str]


def _of_file(path: str, key: str) -> str:
    try:
        return parse_properties(Path(path).read_text(encoding="utf-8"))[key]
    except OSError as error:
        raise ConfigError(f"${{file:{path}:{key}}}: cannot be read: {error.strerror}") from error
    except KeyError:
        raise ConfigError(f"${{file:{path}:{key}}}: the file has no such key") from None


def _of_folder(path: str, key: str) -> str:
    try:
        return (Path(path) / key).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"${{dir:{path}:{key}}}: cannot be read: {error.strerror}") from error


def _of_environment(path: str, key: str) -> str:
    try:
        return os.environ[key]
    except KeyError:
        raise ConfigError(f"${{env:{key}}}: the environment has no such variable") from None


PROVIDERS: Final[Mapping[str, Provider]] = {
    f"{_PACKAGE}FileConfigProvider": _of_file,
    f"{_PACKAGE}DirectoryConfigProvider": _of_folder,
    f"{_PACKAGE}EnvVarConfigProvider": _of_environment,
}


def resolve(worker: Mapping[str, str], properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with the values that the worker's providers have for their references."""
    named = {
        name: _provider(name, worker)
        for name in LIST.parse("config.providers", worker.get("config.providers", ""))
    }
    if not named:
        return dict(properties)

    def value_of(match: re.Match[str]) -> str:
        provider = named.get(match[1])
        return match[0] if provider is None else provider(match[2] or "", match[3])

    return {key: REFERENCE.sub(value_of, str(value)) for key, value in properties.items()}


def _provider(name: str, worker: Mapping[str, str]) -> Provider:
    key = f"config.providers.{name}.class"
    found = PROVIDERS.get(worker.get(key, ""))
    if found is None:
        raise ConfigError(f"{key}={worker.get(key)}: must be one of {', '.join(PROVIDERS)}")
    return found
