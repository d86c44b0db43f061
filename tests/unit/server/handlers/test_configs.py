"""The APIs of settings: described and changed, resource by resource."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from uuid import UUID

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.config.dynamic_keys import DYNAMIC_BROKER_KEYS
from ottla.controller.broker_registration import ensure_persistent_paths
from ottla.errors import ErrorCode
from ottla.protocol.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from ottla.protocol.message import encode
from ottla.registry.embedded import EmbeddedRegistry
from ottla.server.dynamic_config import DynamicConfig
from ottla.server.handlers import configs
from ottla.server.handlers.configs import ConfigsHandler
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import ConfigSource, LeaderAndIsr, PartitionState, TopicPartition
from ottla.testing import mock_runtime

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
PROTOCOLS = "listener.security.protocol.map"


class World:
    """A handler on broker 3, which has the topic `t`."""

    def __init__(self, **settings: str) -> None:
        self.runtime = mock_runtime()
        self.registry = EmbeddedRegistry(self.runtime, "/data/registry")
        cache = MetadataCache("cluster")
        state = PartitionState(
            TopicPartition("t", 0), UUID(int=9), 1, LeaderAndIsr(3, 0, (3,)), (3,)
        )
        cache.update([state], [])
        self.dynamic = DynamicConfig(self.runtime, self.registry, BrokerConfig(**settings), 3)
        self.handler = ConfigsHandler(self.dynamic, cache)
        self.runtime.scheduler.run(self._start())

    async def _start(self) -> None:
        await self.registry.start()
        await ensure_persistent_paths(self.registry)
        await self.dynamic.start()

    def ask(self, verb: str, body, api_version: int):
        """The response, which must be one that can be sent."""
        context = SimpleNamespace(api_version=api_version)
        handle = getattr(self.handler, f"handle_{verb}")
        response = self.runtime.scheduler.run(handle(context, body))
        self.runtime.scheduler.run_ready()
        assert encode(response, api_version)
        return response

    def describe(self, type: int, name: str, keys=None, api_version: int = 4, **options):
        resource = DescribeConfigsResource(
            resource_type=type, resource_name=name, configuration_keys=keys
        )
        body = DescribeConfigsRequest(resources=[resource], **options)
        return self.ask("describe_configs", body, api_version).results[0]

    def alter(self, type: int, name: str, config: dict[str, str | None], **options):
        configs = [AlterableConfig(name=key, value=value) for key, value in config.items()]
        resource = AlterConfigsResource(resource_type=type, resource_name=name, configs=configs)
        body = AlterConfigsRequest(resources=[resource], **options)
        return self.ask("alter_configs", body, 2).responses[0]

    def change(self, *changes: tuple[int, str, str | None], type=TOPIC, name="t", **options):
        configs = [
            IncrementalAlterableConfig(config_operation=operation, name=key, value=value)
            for operation, key, value in changes
        ]
        resource = IncrementalAlterConfigsResource(
            resource_type=type, resource_name=name, configs=configs
        )
        body = IncrementalAlterConfigsRequest(resources=[resource], **options)
        return self.ask("incremental_alter_configs", body, 1).responses[0]

    def overrides(self) -> dict[str, str]:
        return self.runtime.scheduler.run(self.dynamic.entities.read("topics", "t"))


@pytest.fixture
def world() -> World:
    """Nothing is overridden yet."""
    return World()


@pytest.mark.parametrize("api_version", range(5))
def test_topic_is_described_in_every_version(world, api_version):
    """All of its settings."""
    world.alter(TOPIC, "t", {"retention.ms": "5"})
    result = world.describe(TOPIC, "t", api_version=api_version)
    settings = {config.name: config for config in result.configs}

    assert settings["retention.ms"].value == "5"
    assert not settings["retention.ms"].is_default
    assert settings["segment.bytes"].is_default


def test_description_has_what_was_asked_for(world):
    """One key, with its synonyms and its sentence."""
    world.alter(TOPIC, "t", {"retention.ms": "5"})
    options = {"include_synonyms": True, "include_documentation": True}
    result = world.describe(TOPIC, "t", ["retention.ms", "no.such"], **options)
    [setting] = result.configs

    assert (setting.config_source, setting.config_type) == (1, 5)
    assert [(synonym.name, synonym.source) for synonym in setting.synonyms] == [
        ("retention.ms", 1),
    ]
    assert setting.documentation.endswith(".")


def test_synonyms_and_documentation_are_left_out_unless_wanted(world):
    """Most clients do not look at them."""
    setting = world.describe(TOPIC, "t", ["retention.ms"]).configs[0]

    assert setting.synonyms == []
    assert setting.documentation is None


def test_broker_is_described_under_its_own_id_only(world):
    """Its static settings are read-only."""
    settings = {config.name: config for config in world.describe(BROKER, "3").configs}

    assert settings["num.partitions"].read_only
    assert not settings["log.segment.bytes"].read_only
    assert world.describe(BROKER, "4").error_code == ErrorCode.INVALID_REQUEST
    assert world.describe(BROKER, "").configs == []


@pytest.mark.parametrize(
    ("type", "name", "error"),
    [
        (TOPIC, "no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "../t", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "x" * 5000, ErrorCode.INVALID_REQUEST),
        (LOGGER, "4", ErrorCode.INVALID_REQUEST),
        (99, "t", ErrorCode.INVALID_REQUEST),
    ],
)
def test_resource_that_is_not_here_is_refused(world, type, name, error):
    """In all three APIs alike, with a message."""
    answers = [
        world.describe(type, name),
        world.alter(type, name, {}),
        world.change(type=type, name=name),
    ]

    assert {answer.error_code for answer in answers} == {error}
    assert all(answer.error_message for answer in answers)


def test_loggers_of_the_broker_are_a_resource(world):
    """Shown and changed while the broker runs; nothing is stored, and AlterConfigs cannot."""
    name = "ottla.server.broker"
    before = logging.getLogger(name).level
    try:
        answer = world.change((SET, name, "ERROR"), type=LOGGER, name="3")
        (shown,) = world.describe(LOGGER, "3", [name]).configs
    finally:
        logging.getLogger(name).setLevel(before)

    assert answer.error_code == ErrorCode.NONE
    assert (shown.value, shown.config_source, shown.read_only) == ("ERROR", 6, False)
    assert world.alter(LOGGER, "3", {name: "INFO"}).error_code == ErrorCode.INVALID_REQUEST


def test_alter_takes_the_place_of_all_overrides(world):
    """What is not named loses its value."""
    world.alter(TOPIC, "t", {"retention.ms": "5", "segment.bytes": "50"})
    world.alter(TOPIC, "t", {"segment.bytes": "60"})

    assert world.overrides() == {"segment.bytes": "60"}
    assert world.dynamic.topic_config("t").segment_bytes == 60


def test_incremental_changes_leave_the_others_alone(world):
    """Set, delete, append and subtract."""
    world.alter(TOPIC, "t", {"retention.ms": "5", "segment.bytes": "50"})
    answer = world.change(
        (DELETE, "retention.ms", None),
        (SET, "flush.ms", "9"),
        (APPEND, "cleanup.policy", "compact"),
    )

    assert answer.error_code == 0
    assert world.overrides() == {
        "segment.bytes": "50",
        "flush.ms": "9",
        "cleanup.policy": "delete,compact",
    }
    world.change((SUBTRACT, "cleanup.policy", "delete,other"))
    world.change((APPEND, "cleanup.policy", "compact"))
    assert world.overrides()["cleanup.policy"] == "compact"


class Item(str):
    """An item of a list that counts how often one is compared."""

    __slots__ = ()
    __hash__ = str.__hash__
    compared = 0

    def __eq__(self, other):
        Item.compared += 1
        return str.__eq__(self, other)


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_lists_are_changed_by_look_ups(monkeypatch, operation):
    """Each item was compared with each other one: two long lists held the broker for seconds."""
    type_ = SimpleNamespace(parse=lambda name, text: [Item(each) for each in text.split(",")])
    monkeypatch.setattr(configs, "ConfigType", SimpleNamespace(LIST=type_))
    row = SimpleNamespace(name="names", type=type_, default=(), format=",".join)
    first, second = ([f"{part}{n}" for n in range(1_000)] for part in "ab")
    change = IncrementalAlterableConfig(
        name="names", config_operation=operation, value=",".join([*second, *second, "a7"])
    )
    Item.compared = 0
    found = configs.changed(
        {"names": ",".join(first)}, [change], SimpleNamespace(keys={"names": row})
    )

    wanted = [*first, *second] if operation == APPEND else [each for each in first if each != "a7"]
    assert found == {"names": ",".join(wanted)}
    assert Item.compared < 5_000


def test_list_does_not_grow_beyond_what_clients_can_be_told(world):
    """No one could describe the settings any more, nor others that are asked for beside them."""
    key = "leader.replication.throttled.replicas"
    world.alter(TOPIC, "t", {key: ",".join(f"{n}:{n}" for n in range(3_000))})
    before = world.overrides()
    answer = world.change((APPEND, key, ",".join(f"{n}:{n}" for n in range(3_000, 5_000))))

    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert f"{key}: would have " in answer.error_message
    assert world.overrides() == before


@pytest.mark.parametrize(
    "change", [(SUBTRACT, "cleanup.policy", "delete"), (SET, "cleanup.policy", "")]
)
def test_last_cleanup_policy_can_be_taken_away(world, change):
    """As in Kafka: the topic has an override that is empty, and other changes are made with it."""
    answer = world.change(change, (SET, "retention.ms", "5"))

    assert answer.error_code == 0
    assert world.overrides() == {"cleanup.policy": "", "retention.ms": "5"}
    assert world.dynamic.topic_config("t").cleanup_policy == ()
    world.change((APPEND, "cleanup.policy", "compact"))
    assert world.overrides()["cleanup.policy"] == "compact"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ([(SET, "retention.ms", "-5")], ErrorCode.INVALID_CONFIG),
        ([(SET, "no.such", "5")], ErrorCode.INVALID_CONFIG),
        ([(SET, "retention.ms", None)], ErrorCode.INVALID_REQUEST),
        ([(APPEND, "retention.ms", "5")], ErrorCode.INVALID_CONFIG),
        ([(APPEND, "no.such", "5")], ErrorCode.INVALID_CONFIG),
        ([(SUBTRACT, "compression.type", "producer")], ErrorCode.INVALID_CONFIG),
        ([(7, "retention.ms", "5")], ErrorCode.INVALID_REQUEST),
        ([(SET, "flush.ms", "5"), (DELETE, "flush.ms", None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_change_changes_nothing(world, changes, error):
    """All of a resource's changes are made, or none."""
    answer = world.change((SET, "segment.bytes", "50"), *changes)

    assert answer.error_code == error
    assert world.overrides() == {}


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ({"retention.ms": "x"}, ErrorCode.INVALID_CONFIG),
        ({"no.such": "x"}, ErrorCode.INVALID_CONFIG),
        ({"retention.ms": None}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_replacement_changes_nothing(world, config, error):
    """The overrides of before are still in force."""
    world.alter(TOPIC, "t", {"segment.bytes": "50"})

    assert world.alter(TOPIC, "t", config).error_code == error
    assert world.overrides() == {"segment.bytes": "50"}


def test_validation_alone_changes_nothing(world):
    """The answer is the same as if it had."""
    assert world.alter(TOPIC, "t", {"flush.ms": "5"}, validate_only=True).error_code == 0
    assert world.change((SET, "flush.ms", "5"), validate_only=True).error_code == 0
    assert world.change((SET, "flush.ms", "x"), validate_only=True).error_code != 0
    assert world.overrides() == {}


def test_setting_that_is_there_twice_is_refused(world):
    """It is not clear which of them counts, of a topic as well as of a logger."""
    twice = [AlterableConfig(name="retention.ms", value=value) for value in "56"]
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=twice)
    body = AlterConfigsRequest(resources=[resource])
    answers = [
        world.ask("alter_configs", body, 2).responses[0],
        world.change((0, "retention.ms", "5"), (0, "retention.ms", "6")),
        world.change((0, "root", "INFO"), (0, "root", "INFO"), type=LOGGER, name="3"),
    ]

    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_REQUEST] * 3
    assert world.overrides() == {}


def test_resource_that_is_there_twice_is_not_touched(world):
    """Which of the two would count?"""
    resource = AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="t",
        configs=[AlterableConfig(name="flush.ms", value="5")],
    )
    body = AlterConfigsRequest(resources=[resource, resource])
    response = world.ask("alter_configs", body, 2)

    assert [answer.error_code for answer in response.responses] == [42, 42]
    assert world.overrides() == {}


@pytest.mark.parametrize("name", ["3", ""])
def test_broker_can_change_the_defaults_of_topics(world, name):
    """Its own, or those of all brokers."""
    answer = world.change((SET, "log.segment.bytes", "50"), type=BROKER, name=name)

    assert answer.error_code == 0
    assert world.dynamic.topic_config("t").segment_bytes == 50
    settings = {config.name: config for config in world.describe(BROKER, name).configs}
    assert settings["log.segment.bytes"].value == "50"


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("num.partitions", "5", ErrorCode.INVALID_REQUEST),
        ("queued.max.requests", "5", ErrorCode.INVALID_REQUEST),
        ("max.connection.creation.rate", "0", ErrorCode.INVALID_REQUEST),
        ("ssl.keystore.location", "/k", ErrorCode.INVALID_REQUEST),
        ("listener.name.ssl.ssl.keystore.password", "p", ErrorCode.INVALID_REQUEST),
        ("listener.name.ssl.sasl.enabled.mechanisms", "PLAIN", ErrorCode.INVALID_REQUEST),
        ("listener.name.plaintext.ssl.client.auth", "none", ErrorCode.INVALID_REQUEST),
        ("log.preallocate", "x", ErrorCode.INVALID_REQUEST),
        ("listeners", "PLAINTEXT://h", ErrorCode.INVALID_REQUEST),
        ("sasl.jaas.config", "x", ErrorCode.INVALID_REQUEST),
        ("node.id", "5", ErrorCode.INVALID_REQUEST),
        ("log.segment.bytes", "1", ErrorCode.INVALID_REQUEST),
        ("log.retention.ms", "0", ErrorCode.INVALID_REQUEST),
        ("num.io.threads", "x", ErrorCode.INVALID_REQUEST),
        ("num.io.threads", "17", ErrorCode.INVALID_REQUEST),
        ("num.replica.fetchers", "3", ErrorCode.INVALID_REQUEST),
        ("log.cleaner.threads", "0", ErrorCode.INVALID_REQUEST),
        ("max.connections.per.ip.overrides", "host", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_the_broker_cannot_change_is_refused(world, key, value, error):
    """Settings that are fixed at start, and values that break a rule: all by Kafka's code."""
    assert world.change((SET, key, value), type=BROKER, name="3").error_code == error


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("log.cleaner.threads", "2"),
        ("log.cleaner.io.max.bytes.per.second", "1000"),
        ("log.cleaner.backoff.ms", "10"),
        ("num.replica.fetchers", "2"),
        ("num.recovery.threads.per.data.dir", "3"),
        ("max.connections", "5"),
        ("max.connections.per.ip", "5"),
        ("max.connections.per.ip.overrides", "127.0.0.1:5"),
        ("producer.id.expiration.ms", "5"),
        ("background.threads", "5"),
        ("num.io.threads", "16"),
        ("num.network.threads", "2"),
    ],
)
@pytest.mark.parametrize("name", ["3", ""], ids=["one broker", "all brokers"])
def test_what_kafka_changes_can_be_changed(world, key, value, name):
    """It is shown with its source, and not as read-only."""
    assert world.change((SET, key, value), type=BROKER, name=name).error_code == 0
    [setting] = world.describe(BROKER, "3", [key]).configs

    assert (setting.value, setting.read_only) == (value, False)
    assert setting.config_source == (2 if name else 3)


OF_TOPICS = {
    "log.cleaner.delete.retention.ms": "7",
    "log.cleaner.max.compaction.lag.ms": "7",
    "log.cleaner.min.cleanable.ratio": "0.25",
    "log.cleaner.min.compaction.lag.ms": "7",
    "log.cleanup.policy": "compact",
    "log.flush.interval.messages": "7",
    "log.flush.interval.ms": "7",
    "log.index.interval.bytes": "7",
    "log.index.size.max.bytes": "700",
    "log.message.downconversion.enable": "false",
    "log.message.timestamp.difference.max.ms": "7",
    "log.message.timestamp.type": "LogAppendTime",
    "log.retention.bytes": "7",
    "log.retention.ms": "7",
    "log.roll.jitter.ms": "7",
    "log.roll.ms": "7",
    "log.segment.bytes": "700",
    "log.segment.delete.delay.ms": "7",
    "message.max.bytes": "700",
    "min.insync.replicas": "2",
    "compression.type": "gzip",
    "unclean.leader.election.enable": "true",
    "compression.gzip.level": "7",
    "compression.lz4.level": "7",
    "compression.zstd.level": "7",
    "log.message.timestamp.after.max.ms": "7",
    "log.message.timestamp.before.max.ms": "7",
}
"""Of Kafka's list (DynamicBrokerConfig), here and below: the defaults of topics."""

OF_THE_BROKER = {
    "log.cleaner.backoff.ms": "7",
    "log.cleaner.dedupe.buffer.size": "7000000",
    "log.cleaner.io.buffer.load.factor": "0.5",
    "log.cleaner.io.buffer.size": "7000",
    "log.cleaner.io.max.bytes.per.second": "7.0",
    "log.cleaner.threads": "2",
    "max.connection.creation.rate": "7",
    "max.connections": "7",
    "max.connections.per.ip": "7",
    "max.connections.per.ip.overrides": "127.0.0.1:7",
    "num.recovery.threads.per.data.dir": "3",
    "num.replica.fetchers": "2",
    "leader.replication.throttled.rate": "7",
    "follower.replication.throttled.rate": "7",
    "replica.alter.log.dirs.io.max.bytes.per.second": "7",
    "metric.reporters": "module:Reporter",
    "producer.id.expiration.ms": "7",
    "request.log.apis": "Fetch",
    "request.log.client.ids": "seven",
    "request.log.principals": "User:seven",
    "request.log.slower.than.ms": "7",
}
OF_ONE_BROKER = {
    "listeners": "PLAINTEXT://localhost:9092,EXTRA://:9093",
    "advertised.listeners": "PLAINTEXT://h:9092",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT",
    "listener.name.new.ssl.keystore.type": "PEM",
    "listener.name.new.ssl.keystore.location": "/k",
    "listener.name.new.ssl.keystore.password": "p",
    "listener.name.new.ssl.key.password": "p",
    "listener.name.new.ssl.truststore.type": "PEM",
    "listener.name.new.ssl.truststore.location": "/t",
    "listener.name.new.ssl.truststore.password": "p",
    "listener.name.new.ssl.cipher.suites": "ECDHE-RSA-AES128-GCM-SHA256",
    "listener.name.new.ssl.enabled.protocols": "TLSv1.2",
    "listener.name.new.ssl.endpoint.identification.algorithm": "",
    "listener.name.new.ssl.client.auth": "required",
}
NEEDED = {
    "listeners": {PROTOCOLS: OF_ONE_BROKER[PROTOCOLS]},
    "advertised.listeners": {"listeners": "PLAINTEXT://localhost:9092"},
    "listener.name.new.ssl.keystore.password": {"listener.name.new.ssl.keystore.type": "PKCS12"},
    "listener.name.new.ssl.truststore.password": {
        "listener.name.new.ssl.truststore.type": "PKCS12"
    },
}
"""What must come with a setting."""

WITHOUT_EFFECT = {
    "background.threads": "7",
    "log.preallocate": "true",
    "num.io.threads": "7",
    "num.network.threads": "2",
    "sasl.kerberos.kinit.cmd": "/usr/bin/kinit",
    "sasl.kerberos.min.time.before.relogin": "58000",
    "sasl.kerberos.ticket.renew.jitter": "0.1",
    "sasl.kerberos.ticket.renew.window.factor": "0.7",
    "sasl.login.refresh.buffer.seconds": "200",
    "sasl.login.refresh.min.period.seconds": "50",
    "sasl.login.refresh.window.factor": "0.7",
    "sasl.login.refresh.window.jitter": "0.1",
}
REFUSED = {
    "principal.builder.class": "a class of Java",
    "ssl.provider": "OpenSSL is the only one",
    "ssl.protocol": "ssl.enabled.protocols says it",
    "ssl.keymanager.algorithm": "Java's",
    "ssl.trustmanager.algorithm": "Java's",
    "ssl.secure.random.implementation": "Java's",
    "sasl.mechanism.inter.broker.protocol": "brokers would lose each other",
    "sasl.kerberos.service.name": "as above",
    "sasl.kerberos.principal.to.local.rules": "read once",
}
"""Settings of listeners that Kafka lets a broker have, for listeners that are added later."""


def in_force(world, key):
    """The text of a setting as the broker follows it, or as it is kept."""
    if key in BrokerConfig.keys:
        return world.dynamic.broker_config.text_of(key)
    return world.dynamic.broker_overrides("3").get(key)


def test_each_key_of_the_table_is_tried():
    """No change of a setting is accepted that no test has seen in force."""
    assert (OF_TOPICS | OF_THE_BROKER | OF_ONE_BROKER).keys() >= DYNAMIC_BROKER_KEYS


@pytest.mark.parametrize(
    ("key", "value"), (OF_TOPICS | OF_THE_BROKER | OF_ONE_BROKER | WITHOUT_EFFECT).items()
)
def test_each_setting_that_kafka_changes_is_in_force_at_once(key, value):
    """Each setting is in force at once, and so is the old value; one without effect says so."""
    world = World(password_encoder_secret="sesame")
    before = in_force(world, key)
    changes = [(SET, name, text) for name, text in (NEEDED.get(key, {}) | {key: value}).items()]
    answer = world.change(*changes, type=BROKER, name="3")
    assert not answer.error_code, answer.error_message
    [shown] = world.describe(BROKER, "3", [key], include_documentation=True).configs

    assert in_force(world, key) == value != before
    assert shown.read_only is False
    assert ("without effect" in shown.documentation) == (key in WITHOUT_EFFECT)
    assert shown.value == (None if key.endswith("password") else value)
    assert world.change((DELETE, key, None), type=BROKER, name="3").error_code == 0
    assert in_force(world, key) == before


@pytest.mark.parametrize("key", OF_ONE_BROKER)
def test_setting_of_one_broker_is_refused_for_all(world, key):
    """Two brokers cannot listen at the same address."""
    answer = world.change((SET, key, OF_ONE_BROKER[key]), type=BROKER, name="")
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "must be set for a single broker" in answer.error_message


@pytest.mark.parametrize("key", REFUSED)
@pytest.mark.parametrize("prefix", ["", "listener.name.new."])
def test_setting_that_only_java_follows_is_refused(world, key, prefix):
    """Rather than kept, as if it were in force."""
    answer = world.change((SET, prefix + key, "1"), type=BROKER, name="3")
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "cannot be changed while the broker runs" in answer.error_message


def test_name_that_kafka_does_not_have_is_kept_and_hidden(world):
    """As in Kafka, where a class of the user may read it: it may be a secret."""
    assert world.change((SET, "foo.bar", "SESAME"), type=BROKER, name="3").error_code == 0
    [setting] = world.describe(BROKER, "3", ["foo.bar"], include_synonyms=True).configs

    assert (setting.value, setting.is_sensitive, setting.config_type) == (None, True, 0)
    assert [synonym.value for synonym in setting.synonyms] == [None]
    assert world.change((DELETE, "foo.bar", None), type=BROKER, name="3").error_code == 0
    assert world.describe(BROKER, "3", ["foo.bar"]).configs == []


def test_key_store_is_one_brokers_own(world):
    """Not that of all brokers, as in Kafka."""
    key = "listener.name.ssl.ssl.keystore.location"
    answer = world.change((SET, key, "/k"), type=BROKER, name="")

    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "single broker" in answer.error_message


PASSWORD = "listener.name.ssl.ssl.key.password"


def stored(world) -> dict[str, str]:
    """What the registry has for broker 3."""
    return world.runtime.scheduler.run(world.dynamic.entities.read("brokers", "3"))


def test_password_needs_a_secret_by_which_it_is_encrypted(world):
    """Kafka's rule: it would lie in the registry in the clear."""
    answer = world.change((SET, PASSWORD, "sesame"), type=BROKER, name="3")

    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message == (
        f"{PASSWORD}: needs password.encoder.secret in the broker's file, by which it is encrypted"
    )


def test_password_is_stored_encrypted_and_shown_to_nobody():
    """The listener has it in the clear; a change of another setting leaves it as it was."""
    world = World(password_encoder_secret="SECRET")
    assert world.change((SET, PASSWORD, "sesame"), type=BROKER, name="3").error_code == 0
    assert world.change((SET, "max.connections", "5"), type=BROKER, name="3").error_code == 0
    [setting] = world.describe(BROKER, "3", [PASSWORD], include_synonyms=True).configs

    assert (setting.value, setting.is_sensitive, setting.read_only) == (None, True, False)
    assert [synonym.value for synonym in setting.synonyms] == [None]
    assert "encryptedPassword:" in stored(world)[PASSWORD]
    assert "sesame" not in str(stored(world))
    assert world.dynamic.broker_config.ssl_of("SSL").ssl_key_password.value == "sesame"


def test_password_of_another_secret_has_no_effect(caplog):
    """It is named in the log, and keeps the broker from nothing; the old secret still reads it."""
    world = World(password_encoder_secret="SECRET")
    world.change((SET, PASSWORD, "sesame"), type=BROKER, name="3")
    for settings, password in (
        ({"password_encoder_secret": "OTHER"}, None),
        ({"password_encoder_secret": "OTHER", "password_encoder_old_secret": "SECRET"}, "sesame"),
        ({}, None),
    ):
        later = DynamicConfig(world.runtime, world.registry, BrokerConfig(**settings), 3)
        world.runtime.scheduler.run(later.start())
        in_force = later.broker_config.ssl_of("SSL").ssl_key_password
        assert (in_force and in_force.value) == password

    assert f"{PASSWORD}: the password cannot be decoded with password.encoder" in caplog.text
    assert f"{PASSWORD}: needs password.encoder.secret" in caplog.text
    assert "sesame" not in caplog.text


def test_success_has_an_empty_message(world):
    """Kafka's description says "", not null."""
    assert world.describe(TOPIC, "t").error_message == ""


def test_group_has_time_limits_of_its_own(world):
    """Whether it exists or not; what it does not set is the broker's."""
    key = "consumer.session.timeout.ms"
    assert not world.change((SET, key, "50000"), type=GROUP, name="g").error_code
    settings = {each.name: each for each in world.describe(GROUP, "g").configs}

    assert {name: each.value for name, each in settings.items()} == {
        key: "50000",
        "consumer.heartbeat.interval.ms": "5000",
    }
    assert settings[key].config_source == ConfigSource.DYNAMIC_GROUP_CONFIG
    assert settings["consumer.heartbeat.interval.ms"].is_default
    assert world.dynamic.group_config("g").consumer_session_timeout_ms == 50000
    assert world.dynamic.group_config("other").consumer_session_timeout_ms == 45000

    world.change((DELETE, key, None), type=GROUP, name="g")
    assert world.dynamic.group_config("g").consumer_session_timeout_ms == 45000


@pytest.mark.parametrize(
    ("name", "key", "value", "part"),
    [
        ("g", "consumer.session.timeout.ms", "60001", "group.consumer.max.session.timeout.ms"),
        ("g", "consumer.heartbeat.interval.ms", "4999", "group.consumer.min.heartbeat"),
        ("g", "consumer.heartbeat.interval.ms", "x", "consumer.heartbeat.interval.ms"),
        ("g", "retention.ms", "1", "retention.ms"),
        ("", "consumer.session.timeout.ms", "50000", "a group must be named"),
    ],
)
def test_setting_that_the_broker_does_not_let_a_group_have_is_refused(
    world, name, key, value, part
):
    """The setting is refused by a message that names the limit, and nothing is stored."""
    outcome = world.change((SET, key, value), type=GROUP, name=name)

    assert outcome.error_code
    assert part in outcome.error_message
    assert world.dynamic.group_config("g").consumer_session_timeout_ms == 45000
