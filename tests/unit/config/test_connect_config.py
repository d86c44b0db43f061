"""Settings of workers and of every connector."""

from __future__ import annotations

import pytest

from ottla.config.connect_config import (
    DistributedConfig,
    SinkConnectorConfig,
    SourceConnectorConfig,
    StandaloneConfig,
    parse_listener,
)
from ottla.errors import ConfigError

WORKER = {
    "bootstrap.servers": "localhost:9092",
    "key.converter": "JsonConverter",
    "value.converter": "JsonConverter",
    "offset.storage.file.filename": "/tmp/connect.offsets",
}
SINK = {"name": "s", "connector.class": "C", "topics": "t"}


def test_defaults_of_a_worker():
    """Kafka's, but for the listener, which is on loopback."""
    config = StandaloneConfig.parse(WORKER)

    assert config.offset_flush_interval_ms == 60000
    assert config.task_shutdown_graceful_timeout_ms == 5000
    assert config.listeners == ("http://127.0.0.1:8083",)


@pytest.mark.parametrize("missing", WORKER)
def test_worker_needs_these(missing):
    """The error names the setting."""
    with pytest.raises(ConfigError, match=f"{missing}: must be set"):
        StandaloneConfig.parse({key: value for key, value in WORKER.items() if key != missing})


def test_settings_of_others_are_handed_on(caplog):
    """Prefixes of clients and converters are no unknown settings."""
    handed_on = {"producer.linger.ms": "5", "key.converter.schemas.enable": "false"}
    StandaloneConfig.parse(WORKER | handed_on)

    assert not caplog.records


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("http://:8083", ("http", "", 8083)),
        ("https://[::1]:0", ("https", "::1", 0)),
        ("http://host:1/", ("http", "host", 1)),
    ],
)
def test_listeners(text, found):
    """Scheme, host and port."""
    assert parse_listener(text) == found


@pytest.mark.parametrize("text", ["8083", "ftp://h:1", "http://h", "http://h:99999"])
def test_wrong_listeners(text):
    """The form is in the sentence."""
    with pytest.raises(ConfigError, match="must be http://host:port or https://host:port"):
        parse_listener(text)


def test_user_needs_a_password():
    """One without the other would lock nobody out."""
    with pytest.raises(ConfigError, match="must be set together"):
        StandaloneConfig.parse(WORKER | {"rest.basic.auth.username": "ann"})


def test_sink_reads_topics_or_a_pattern():
    """Exactly one of the two, and no dead letters that come back."""
    assert SinkConnectorConfig.parse(SINK).topics == ("t",)
    for wrong in ({"topics": ""}, {"topics.regex": "t"}):
        with pytest.raises(ConfigError, match="exactly one of them must be set"):
            SinkConnectorConfig.parse(SINK | wrong)
    queue = {"errors.deadletterqueue.topic.name": "t"}
    pattern = {"topics": "", "topics.regex": "."}
    for wrong in (queue, queue | pattern):
        with pytest.raises(ConfigError, match="must not be a topic that the sink reads"):
            SinkConnectorConfig.parse(SINK | wrong)
    with pytest.raises(ConfigError, match="must be a regular expression"):
        SinkConnectorConfig.parse(SINK | {"topics": "", "topics.regex": "("})


def test_names_of_connectors():
    """No control characters, not empty."""
    for name in ("", " ", "a\nb"):
        with pytest.raises(ConfigError, match="must have no control characters"):
            SourceConnectorConfig.parse({"name": name, "connector.class": "C"})


GROUP = {
    "bootstrap.servers": "localhost:9092",
    "key.converter": "JsonConverter",
    "value.converter": "JsonConverter",
    "group.id": "connect-cluster",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
}


def test_defaults_of_a_worker_of_a_group():
    """The defaults are Kafka's."""
    config = DistributedConfig.parse(GROUP)

    assert (config.session_timeout_ms, config.heartbeat_interval_ms) == (10000, 3000)
    assert (config.offset_storage_partitions, config.status_storage_partitions) == (25, 5)
    assert config.scheduled_rebalance_max_delay_ms == 300000
    assert config.connect_protocol == "sessioned"


def test_topics_of_a_group_are_three():
    """One for two purposes would lose both."""
    with pytest.raises(ConfigError, match="must be three topics"):
        DistributedConfig.parse(GROUP | {"offset.storage.topic": "connect-configs"})
    with pytest.raises(ConfigError, match="must be less than session"):
        DistributedConfig.parse(GROUP | {"heartbeat.interval.ms": "10000"})
