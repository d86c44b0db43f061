"""The broker's settings as people write them."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from ottla.config import config_def
from ottla.config.broker_config import BrokerConfig
from ottla.config.properties import parse_properties
from ottla.errors import ConfigError

DOCS = Path(__file__).parents[3] / "docs"
KAFKA_SAMPLE = """
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kafka-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=6000
group.initial.rebalance.delay.ms=0
"""

PRODUCTION_SAMPLE = """
zookeeper.connect=zk-1:2181,zk-2:2181
num.partitions=8
default.replication.factor=3
log.dir=/data/kafka
broker.id=5
listeners=PLAINTEXT://:9092
auto.create.topics.enable=false
min.insync.replicas=2
queued.max.requests=1000
"""


@pytest.mark.parametrize("text", [KAFKA_SAMPLE, PRODUCTION_SAMPLE])
def test_samples_of_kafka_are_accepted(text, caplog):
    """The shipped server.properties and the production advice; no key is a riddle."""
    with caplog.at_level(logging.WARNING):
        config = BrokerConfig.parse(parse_properties(text))

    assert config.broker_id in (0, 5)
    assert "not a setting that is known" not in caplog.text


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"broker.id": "1001"}, "reserved.broker.max.id"),
        ({"broker.id": "-2"}, "at least -1"),
        ({"broker.id.generation.enable": "false"}, "must be set"),
    ],
)
def test_broker_id_keeps_out_of_the_generated_ones(settings, reason):
    """An id by hand and a generated one must never meet."""
    with pytest.raises(ConfigError, match=reason):
        BrokerConfig.parse(settings)


def test_large_broker_id_is_fine_without_generation():
    """Then there is nothing to meet."""
    settings = {"broker.id": "5000", "broker.id.generation.enable": "false"}

    assert BrokerConfig.parse(settings).broker_id == 5000


def test_names_are_known_exactly_and_not_by_their_family(caplog):
    """A key that begins like Kafka's is not called known to Kafka."""
    with caplog.at_level(logging.WARNING):
        BrokerConfig.parse({"queued.max.request.bytes": "8", "zookeeper.whatever": "1"})

    said = [record.message for record in caplog.records]
    assert any(
        "queued.max.request.bytes: has no effect in Ottla: a connection" in line for line in said
    )
    assert "zookeeper.whatever: not a setting that is known (BrokerConfig)" in said


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("zookeeper.conect", "zookeeper.connect"),
        ("zookeeper_connect", "zookeeper.connect"),
        ("Log.Dirs", "log.dirs"),
        ("log.dri", "log.dir"),
        ("authorizer.class.nme", "authorizer.class.name"),
        ("listener.name.ssl.ssl.client.aut", "ssl.client.auth"),
        ("listener.name.ssl.max.conections", "listener.name.ssl.max.connections"),
        ("sas.jaas.config", "sasl.jaas.config"),
    ],
)
def test_misspelt_setting_stops_the_start(name, meant):
    """zookeeper.conect must not start a cluster of its own."""
    expected = re.escape(name) + r"=.*did you mean " + re.escape(meant)
    with pytest.raises(ConfigError, match=expected):
        BrokerConfig.parse({name: "value"})


def test_value_of_a_misspelt_secret_is_not_shown():
    """The error must not put a password into a log."""
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.parse({"ssl.keystore.pasword": "SESAME"})

    assert "did you mean ssl.keystore.password?" in caught.value.message
    assert "SESAME" not in caught.value.message


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("super.users", "User:admin", "without authorizer.class.name"),
        ("authorizer.mode", "log", "without authorizer.class.name"),
        ("sasl.enabled.mechanisms", "PLAIN", "uses SASL"),
        ("sasl.mechanism.inter.broker.protocol", "SCRAM-SHA-512", "uses SASL"),
        ("sasl.a.new.one", "1", "not be used"),
        ("listener.name.client.sasl.enabled.mechanisms", "PLAIN", "uses SASL"),
        ("listener.name.client.plain.connections.max.reauth.ms", "1000", "uses SASL"),
        ("connections.max.reauth.ms", "3600000", "uses SASL"),
        ("sasl.server.callback.handler.class", "com.example.Check", "not be used"),
        ("listener.name.client.plain.sasl.login.class", "com.example.Login", "not be used"),
        ("listener.name.client.principal.builder.class", "com.example.Names", "listener's name"),
        ("zookeeper.ssl.crl.enable", "true", "not be used"),
        ("zookeeper.ssl.context.supplier.class", "com.example.Tls", "not be used"),
        ("ssl.engine.factory.class", "com.example.Engine", "OpenSSL"),
        ("create.topic.policy.class.name", "com.example.Policy", "would be done"),
    ],
)
def test_security_that_would_not_be_there_stops_the_start(name, value, reason):
    """Key, value and rule are named; nobody gets an open broker with a warning in its log."""
    expected = re.escape(f"{name}={value}: must not be set; ") + f".*{reason}"
    with pytest.raises(ConfigError, match=expected):
        BrokerConfig.parse({name: value})


@pytest.mark.parametrize(
    "name",
    [
        "sasl.jaas.config",
        "listener.name.client.scram-sha-256.sasl.jaas.config",
        "zookeeper.ssl.keystore.passwordPath",
    ],
)
def test_refused_secret_is_not_shown(name):
    """The key is named, the password is not."""
    with pytest.raises(ConfigError, match=re.escape(f"{name}=[hidden]: must not be set")) as caught:
        BrokerConfig.parse({name: "SESAME"})

    assert "SESAME" not in caught.value.message


def test_kafkas_defaults_ask_for_nothing():
    """A file that spells Kafka's defaults out starts."""
    BrokerConfig.parse(
        {
            "authorizer.class.name": "",
            "super.users": "",
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.ticket.renew.window.factor": "0.8",
            "listener.name.plaintext.connections.max.reauth.ms": "0",
            "principal.builder.class": "org.apache.kafka.common.security.authenticator."
            "DefaultKafkaPrincipalBuilder",
            "zookeeper.ssl.client.enable": "FALSE",
            "node.id": "-1",
            "process.roles": "",
        }
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"process.roles": "broker,controller", "node.id": "3"},
        {"node.id": "3"},
        {"controller.quorum.voters": "3@localhost:9093"},
        {"controller.quorum.bootstrap.servers": "localhost:9093", "broker.id": "3"},
    ],
    ids=["whole file", "id", "voters", "bootstrap servers"],
)
def test_file_for_kraft_is_refused_with_what_to_do(settings):
    """Before anything else in it is: the sentence says what to take out and what to set."""
    with pytest.raises(ConfigError, match=r"KRaft mode.*take .* out.*set broker\.id=\d") as caught:
        BrokerConfig.parse({**settings, "sasl.enabled.mechanisms": "PLAIN"})

    assert f"{next(iter(settings))}={next(iter(settings.values()))}" in caught.value.message


def test_table_and_list_of_unused_names_do_not_overlap():
    """A key that is acted on is not called unused."""
    assert not set(BrokerConfig.keys) & set(BrokerConfig.unused)


def test_every_cleaner_needs_a_megabyte_for_keys():
    """log.cleaner.dedupe.buffer.size is shared by the log.cleaner.threads."""
    settings = {"log.cleaner.threads": "3", "log.cleaner.dedupe.buffer.size": str(2 << 20)}
    with pytest.raises(ConfigError, match="for each of the 3"):
        BrokerConfig.parse(settings)


@pytest.mark.parametrize(
    ("settings", "delay_ms"),
    [
        ({}, 0),
        ({"zookeeper.connect": "zk:2181"}, 3000),
        ({"group.initial.rebalance.delay.ms": "200"}, 200),
    ],
)
def test_lone_broker_has_nobody_to_wait_for(settings, delay_ms):
    """The first reader of a group took three seconds to begin."""
    assert BrokerConfig.parse(settings).group_initial_rebalance_delay_ms == delay_ms


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"authorizer.class.name": "com.example.Own"}, "authorizer.class.name=com.example.Own"),
        ({"super.users": "User:a;bob"}, "'bob' must be type:name"),
        ({"authorizer.mode": "lax"}, "authorizer.mode=lax"),
    ],
)
def test_authorizer_that_is_not_known_stops_the_start(settings, reason):
    """A class of one's own cannot be run here, and what it forbids would be done."""
    authorizer = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
    BrokerConfig.parse(authorizer)
    with pytest.raises(ConfigError, match=re.escape(reason)):
        BrokerConfig.parse(authorizer | settings)


@pytest.mark.parametrize("name", ["__audit", "a b", "..", "x" * 250])
def test_audit_topic_must_be_the_name_of_a_topic(name):
    """Internal topics are not for it."""
    with pytest.raises(ConfigError, match=re.escape(f"ottla.audit.topic={name}: must be")):
        BrokerConfig.parse({"ottla.audit.topic": name})

    assert BrokerConfig.parse({"ottla.audit.topic": " audit "}).ottla_audit_topic == "audit"


def test_threads_of_the_network_are_told_to_be_one(monkeypatch, caplog):
    """A line at the start names the page that has the numbers of threads that were tried."""
    monkeypatch.setattr(config_def, "_warned", set())
    BrokerConfig.parse({"num.network.threads": "8"})

    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith("num.network.threads: has no effect in Ottla: one thread serves all")
    assert "docs/operate/operations.md" in line
    assert "### One thread for the network" in (DOCS / "operate" / "operations.md").read_text()
