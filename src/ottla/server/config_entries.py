"""The settings of topics, brokers and groups as DescribeConfigs shows them, with their sources."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ottla.config.broker_config import BrokerConfig
from ottla.config.config_def import ConfigKey
from ottla.config.config_type import ConfigType
from ottla.config.coordinator_config import ConsumerGroupConfig
from ottla.config.dynamic_keys import is_dynamic, is_of_listener, is_secret, key_of_listener
from ottla.config.known_keys import UNUSED_KEYS
from ottla.config.metrics_config import ClientMetricsConfig
from ottla.config.topic_config import TopicConfig
from ottla.registry import paths
from ottla.server.dynamic_config import DynamicConfig
from ottla.structs import ConfigSource, NamedTuple


class Synonym(NamedTuple):
    """A place that a value may come from, and the value there."""

    name: str
    value: str | None
    source: ConfigSource


class DescribedConfig(NamedTuple):
    """One setting. Of `synonyms` the first is in force; secrets have no value."""

    name: str
    value: str | None
    type: ConfigType | None
    documentation: str
    is_read_only: bool
    synonyms: list[Synonym]

    @property
    def source(self) -> ConfigSource:
        return self.synonyms[0].source if self.synonyms else ConfigSource.DEFAULT_CONFIG

    @property
    def is_sensitive(self) -> bool:
        """Whether to hide the value; an unknown setting may be a secret, as in Kafka."""
        return self.type is None or self.type is ConfigType.PASSWORD


def topic_entries(dynamic: DynamicConfig, overrides: Mapping[str, str]) -> list[DescribedConfig]:
    """All settings of a topic with these overrides."""
    in_force = TopicConfig.of(dynamic.broker_config, {})
    entries = []
    for name, row in TopicConfig.keys.items():
        synonyms = []
        if name in overrides:
            source = ConfigSource.DYNAMIC_TOPIC_CONFIG
            synonyms.append(Synonym(name, overrides[name], source))
        for broker_key in row.broker_keys:
            synonyms += broker_synonyms(dynamic, broker_key)
        coarser = row.broker_keys[1:]
        synonyms = [each for each in synonyms if not _is_default_of(each, coarser)]
        value = overrides.get(name, in_force.text_of(name))
        entries.append(_entry(row, value, synonyms, is_read_only=False))
    unused = [name for name in overrides if name not in TopicConfig.keys]
    return entries + [_unused_override(name, overrides[name]) for name in unused]


def group_entries(dynamic: DynamicConfig, overrides: Mapping[str, str]) -> list[DescribedConfig]:
    """All settings of a consumer group with these overrides."""
    defaults = ConsumerGroupConfig.of(dynamic.broker_config, {})
    entries = []
    for name, row in ConsumerGroupConfig.keys.items():
        synonyms = [s for key in row.broker_keys for s in broker_synonyms(dynamic, key)]
        value = overrides.get(name, defaults.text_of(name))
        if name in overrides:
            synonyms.insert(0, Synonym(name, value, ConfigSource.DYNAMIC_GROUP_CONFIG))
        entries.append(_entry(row, value, synonyms, is_read_only=False))
    return entries


def client_metrics_entries(overrides: Mapping[str, str]) -> list[DescribedConfig]:
    """All settings of a subscription to clients' metrics."""
    entries = []
    for name, row in ClientMetricsConfig.keys.items():
        value = overrides.get(name, row.format(row.default))
        synonyms = [Synonym(name, value, ConfigSource.DEFAULT_CONFIG)]
        if name in overrides:
            synonyms.insert(0, Synonym(name, value, ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG))
        entries.append(_entry(row, value, synonyms, is_read_only=False))
    return entries


def broker_entries(dynamic: DynamicConfig) -> list[DescribedConfig]:
    """All settings of this broker."""
    entries = []
    for name, row in BrokerConfig.keys.items():
        synonyms = broker_synonyms(dynamic, name)
        value = synonyms[0].value if synonyms else None
        entries.append(_entry(row, value, synonyms, not is_dynamic(name)))
    set_for = (dynamic.broker_name, paths.DEFAULT_ENTITY)
    others = {name for owner in set_for for name in dynamic.broker_overrides(owner)}
    return entries + [
        _override_without_row(name, broker_synonyms(dynamic, name))
        for name in sorted(others - BrokerConfig.keys.keys())
    ]


def default_broker_entries(dynamic: DynamicConfig) -> list[DescribedConfig]:
    """The settings of all brokers of the cluster that were set while they run."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    overrides = dynamic.broker_overrides(paths.DEFAULT_ENTITY)
    entries = []
    for name, value in overrides.items():
        synonyms = [Synonym(name, value, source)]
        row = BrokerConfig.keys.get(name)
        if row is not None:
            entries.append(_entry(row, value, synonyms, is_read_only=False))
        else:
            entries.append(_override_without_row(name, synonyms))
    return entries


def broker_synonyms(dynamic: DynamicConfig, name: str) -> list[Synonym]:
    """The places with a value for this setting, the one in force first."""
    synonyms = []
    for broker_name, source in (
        (dynamic.broker_name, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (paths.DEFAULT_ENTITY, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
    ):
        overrides = dynamic.broker_overrides(broker_name)
        if name in overrides:
            synonyms.append(Synonym(name, overrides[name], source))
    static, row = dynamic.static_config, BrokerConfig.keys.get(name)
    if row is None:
        return synonyms
    if static.is_given(name):
        source = ConfigSource.STATIC_BROKER_CONFIG
        synonyms.append(Synonym(name, static.text_of(name), source))
    if row.default is not None:
        default = row.format(row.default)
        synonyms.append(Synonym(name, default, ConfigSource.DEFAULT_CONFIG))
    return synonyms


def _is_default_of(synonym: Synonym, names: Collection[str]) -> bool:
    """A default in hours is not a default of the setting in milliseconds, as in Kafka."""
    return synonym.source is ConfigSource.DEFAULT_CONFIG and synonym.name in names


def _entry(
    row: ConfigKey, value: str | None, synonyms: list[Synonym], is_read_only: bool
) -> DescribedConfig:
    if row.type is ConfigType.PASSWORD:
        value = None
        synonyms = [synonym._replace(value=None) for synonym in synonyms]
    return DescribedConfig(row.name, value, row.type, row.doc, is_read_only, synonyms)


def _override_without_row(name: str, synonyms: list[Synonym]) -> DescribedConfig:
    """A setting of the broker that was made while it runs and that no file has a row for."""
    kind: ConfigType
    if name in UNUSED_KEYS:
        kind, about = UNUSED_KEYS[name]
    elif is_secret(name):
        kind, about = ConfigType.PASSWORD, "As the setting without listener.name.<name>."
        synonyms = [synonym._replace(value=None) for synonym in synonyms]
    elif is_of_listener(name):
        kind = BrokerConfig.keys[key_of_listener(name) or name].type
        about = "As the setting without listener.name.<name>."
    else:  # its value is shown to no client
        hidden = [synonym._replace(value=None) for synonym in synonyms]
        return DescribedConfig(name, None, None, "Not used by Ottla.", True, hidden)
    return DescribedConfig(name, synonyms[0].value, kind, about, False, synonyms)


def _unused_override(name: str, value: str) -> DescribedConfig:
    """An override that Kafka knows and Ottla does not act on: it is kept, and shown."""
    synonyms = [Synonym(name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG)]
    return DescribedConfig(name, value, ConfigType.STRING, "Not used by Ottla.", False, synonyms)
