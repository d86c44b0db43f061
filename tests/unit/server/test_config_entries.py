"""What DescribeConfigs shows: values, sources and synonyms."""

from __future__ import annotations

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.config.config_type import LIST
from ottla.controller.broker_registration import ensure_persistent_paths
from ottla.registry.embedded import EmbeddedRegistry
from ottla.server.config_entries import (
    Synonym,
    broker_entries,
    client_metrics_entries,
    default_broker_entries,
    topic_entries,
)
from ottla.server.dynamic_config import DynamicConfig
from ottla.structs import ConfigSource
from ottla.testing import mock_runtime

TOPIC, BROKER, ALL_BROKERS, FILE, DEFAULT = (ConfigSource(number) for number in range(1, 6))


@pytest.fixture
def dynamic() -> DynamicConfig:
    """Broker 0 with settings in its file, overrides of its own and of all brokers."""
    runtime = mock_runtime()
    registry = EmbeddedRegistry(runtime, "/data/registry")
    config = BrokerConfig.parse({"log.retention.hours": "1", "broker.rack": "r", "port": "1"})
    dynamic = DynamicConfig(runtime, registry, config, 0)

    async def start() -> None:
        await registry.start()
        await ensure_persistent_paths(registry)
        await dynamic.entities.write("brokers", "0", {"log.segment.bytes": "70"})
        await dynamic.entities.write("brokers", "<default>", {"log.segment.bytes": "60"})
        await dynamic.start()

    runtime.scheduler.run(start())
    return dynamic


def by_name(entries):
    """The entries in a dictionary."""
    return {entry.name: entry for entry in entries}


def test_override_of_the_topic_is_before_all_others(dynamic):
    """Every layer that has a value is a synonym, in order."""
    entry = by_name(topic_entries(dynamic, {"segment.bytes": "50"}))["segment.bytes"]

    assert (entry.value, entry.source) == ("50", TOPIC)
    assert entry.synonyms == [
        Synonym("segment.bytes", "50", TOPIC),
        Synonym("log.segment.bytes", "70", BROKER),
        Synonym("log.segment.bytes", "60", ALL_BROKERS),
        Synonym("log.segment.bytes", "1073741824", DEFAULT),
    ]


def test_coarser_setting_of_the_file_is_a_synonym_too(dynamic):
    """Hours in the file make the milliseconds of the topic."""
    entry = by_name(topic_entries(dynamic, {}))["retention.ms"]

    assert (entry.value, entry.source) == ("3600000", FILE)
    assert entry.synonyms[0] == Synonym("log.retention.hours", "1", FILE)


def test_default_is_called_so(dynamic):
    """With its type and its sentence."""
    entry = by_name(topic_entries(dynamic, {}))["cleanup.policy"]

    assert (entry.value, entry.source, entry.type) == ("delete", DEFAULT, LIST)
    assert entry.documentation.endswith(".")
    assert not entry.is_read_only


def test_unused_override_is_shown(dynamic):
    """A tool that has set it wants to see it."""
    entry = by_name(topic_entries(dynamic, {"delete.retention.ms": "9"}))["delete.retention.ms"]

    assert (entry.value, entry.source) == ("9", TOPIC)


def test_broker_shows_what_is_in_force_and_what_can_change(dynamic):
    """Settings of the file that topics have as defaults are not read-only."""
    entries = by_name(broker_entries(dynamic))

    assert entries["log.segment.bytes"].value == "70"
    assert not entries["log.segment.bytes"].is_read_only
    assert (entries["broker.rack"].value, entries["broker.rack"].source) == ("r", FILE)
    assert entries["broker.rack"].is_read_only
    assert entries["log.dirs"].value is None


def test_all_brokers_have_what_was_set_for_them(dynamic):
    """All brokers have the settings that were set for them, and nothing else."""
    entries = default_broker_entries(dynamic)

    assert [(entry.name, entry.value, entry.source) for entry in entries] == [
        ("log.segment.bytes", "60", ALL_BROKERS)
    ]


def test_all_brokers_have_settings_that_no_file_has_too():
    """Those that Kafka can change and that do nothing here are shown, as they were set."""
    runtime = mock_runtime()
    registry = EmbeddedRegistry(runtime, "/data/registry")
    dynamic = DynamicConfig(runtime, registry, BrokerConfig.parse({}), 0)

    async def start() -> None:
        await registry.start()
        await ensure_persistent_paths(registry)
        unused = {"num.io.threads": "9", "log.retention.ms": "5"}
        await dynamic.entities.write("brokers", "<default>", unused)
        await dynamic.start()

    runtime.scheduler.run(start())
    entries = by_name(default_broker_entries(dynamic))

    assert {name: entry.value for name, entry in entries.items()} == {
        "num.io.threads": "9",
        "log.retention.ms": "5",
    }


def test_subscription_to_clients_metrics_shows_what_was_set():
    """Before the default, which it hides."""
    entries = {each.name: each for each in client_metrics_entries({"interval.ms": "5000"})}
    interval, metrics = entries["interval.ms"], entries["metrics"]

    assert (interval.value, len(interval.synonyms)) == ("5000", 2)
    assert interval.synonyms[0].source is ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG
    assert [each.source for each in metrics.synonyms] == [DEFAULT]
