"""Settings that change while the broker runs."""

from __future__ import annotations

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.controller.broker_registration import ensure_persistent_paths
from ottla.errors import KafkaError
from ottla.registry import paths
from ottla.registry.change_notifications import NOTIFICATION_RETENTION_MS
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.tree import SessionEndedError, SessionState
from ottla.runtime import Runtime
from ottla.server.dynamic_config import DynamicConfig
from ottla.structs import ClientEntity, replace
from ottla.testing import mock_runtime
from ottla.testing.virtual_loop import MockClock


class World:
    """A registry and the settings of broker 3 that follow it."""

    def __init__(self) -> None:
        self.runtime = mock_runtime()
        self.run = self.runtime.scheduler.run
        self.registry = EmbeddedRegistry(self.runtime, "/data/registry")
        self.run(self.registry.start())
        self.run(ensure_persistent_paths(self.registry))
        self.changed: list[object] = []
        self.start()

    def start(self, runtime: Runtime | None = None) -> None:
        config = BrokerConfig.parse({"log.segment.bytes": "100"})
        self.dynamic = DynamicConfig(runtime or self.runtime, self.registry, config, 3)
        self.dynamic.on_topic_change(self.changed.append)
        self.dynamic.on_client_change(self.changed.append)
        self.dynamic.on_broker_change(lambda: self.changed.append("broker"))
        self.run(self.dynamic.start())

    def remove(self, entity_type: str, name: str) -> None:
        self.run(self.registry.delete(paths.config(entity_type, name)))
        self.run(self.dynamic.entities.notify(entity_type, name))
        self.runtime.scheduler.run_ready()

    def write(self, entity_type: str, name: str, config: dict[str, str]) -> None:
        self.run(self.dynamic.entities.write(entity_type, name, config))
        self.runtime.scheduler.run_ready()

    def change(self, entity: ClientEntity, config: dict[str, str]) -> None:
        self.run(self.dynamic.entities.change_client(entity, lambda before: config))
        self.runtime.scheduler.run_ready()


@pytest.fixture
def world() -> World:
    """Nothing is overridden yet."""
    return World()


def test_override_of_a_topic_is_in_force_at_once(world):
    """An override is in force at once, and the listener can apply it to the topic's logs."""
    world.write("topics", "t", {"segment.bytes": "50"})

    assert world.dynamic.topic_config("t").segment_bytes == 50
    assert world.dynamic.topic_config("other").segment_bytes == 100
    assert world.dynamic.topic_overrides("t") == {"segment.bytes": "50"}
    assert world.changed == ["t"]


def test_partitions_of_a_topic_share_its_config_until_it_changes(world):
    """A topic may be made with thousands of them; overrides and defaults still count at once."""
    first = world.dynamic.topic_config("t")
    assert world.dynamic.topic_config("t") is first
    world.write("brokers", "3", {"log.retention.ms": "7"})
    assert world.dynamic.topic_config("t").retention_ms == 7
    world.write("topics", "t", {"retention.ms": "8"})
    assert world.dynamic.topic_config("t").retention_ms == 8
    assert world.dynamic.topic_config("other").retention_ms == 7


def test_removed_override_is_forgotten(world):
    """As when the topic is deleted."""
    world.write("topics", "t", {"segment.bytes": "50"})
    world.remove("topics", "t")

    assert world.dynamic.topic_config("t").segment_bytes == 100
    assert world.dynamic.topic_overrides("t") == {}
    assert world.changed == ["t", "t"]


def test_overrides_are_read_at_start(world):
    """Without a notification: those of before are old news."""
    world.write("topics", "t", {"segment.bytes": "50"})
    world.write("brokers", "3", {"log.retention.ms": "7"})
    world.dynamic.stop()
    world.changed.clear()
    world.start()

    assert world.dynamic.topic_config("t").segment_bytes == 50
    assert world.dynamic.topic_config("t").retention_ms == 7
    world.runtime.scheduler.run_ready()
    assert sorted(world.changed) == ["broker", "t"]


def test_broker_overrides_are_defaults_of_topics(world):
    """Its own before those of all brokers, both before the properties file."""
    world.write("brokers", "<default>", {"log.segment.bytes": "60", "log.retention.ms": "8"})
    world.write("brokers", "3", {"log.segment.bytes": "70"})
    world.write("brokers", "4", {"log.segment.bytes": "80"})
    config = world.dynamic.topic_config("t")

    assert (config.segment_bytes, config.retention_ms) == (70, 8)
    assert world.changed == ["broker", "broker"]


def test_override_that_only_kafka_has_does_no_harm(world, caplog):
    """A cluster shared with Kafka's brokers may have set it; the rest is in force."""
    overrides = {"sasl.enabled.mechanisms": "PLAIN", "foo.bar": "1", "log.retention.ms": "8"}
    world.write("brokers", "3", overrides)

    assert world.dynamic.topic_config("t").retention_ms == 8
    assert world.dynamic.broker_overrides("3") == {"foo.bar": "1", "log.retention.ms": "8"}
    assert "sasl.enabled.mechanisms: cannot be changed" in caplog.text


def test_value_that_breaks_a_rule_has_no_effect(world, caplog):
    """Somebody wrote it past the broker; the rest of the overrides counts."""
    world.write("topics", "t", {"segment.bytes": "-1", "retention.ms": "5"})

    assert world.dynamic.topic_config("t").segment_bytes == 100
    assert world.dynamic.topic_config("t").retention_ms == 5
    assert "segment.bytes=-1" in caplog.text


def test_unreadable_notification_is_passed_over(world, caplog):
    """The next one is followed."""
    path = "/config/changes/config_change_"
    world.run(world.registry.create(path, b"nonsense", sequential=True))
    world.write("topics", "t", {"segment.bytes": "50"})

    assert world.dynamic.topic_config("t").segment_bytes == 50
    assert "nonsense" in caplog.text


def test_change_that_makes_the_code_fail_is_passed_over(world, caplog):
    """Whoever follows it raised what nobody expects: those behind it are followed all the same."""

    def fail_with_one(topic):
        if topic == "poison":
            raise ValueError("planted")

    world.dynamic.on_topic_change(fail_with_one)
    world.write("topics", "poison", {"segment.bytes": "50"})
    world.write("topics", "t", {"segment.bytes": "60"})

    assert world.dynamic.topic_config("t").segment_bytes == 60
    assert "cannot follow the change" in caplog.text


def test_old_notifications_are_cleared_away(world):
    """After a quarter of an hour everybody has seen them."""
    world.write("topics", "t", {"segment.bytes": "50"})
    world.runtime.advance(NOTIFICATION_RETENTION_MS + 1)
    world.write("topics", "t", {"segment.bytes": "51"})

    assert world.run(world.registry.children("/config/changes")) == ["config_change_0000000001"]


def test_notifications_stay_though_the_clock_is_an_hour_ahead(world):
    """Others, whose clocks are right, have not read them: they once missed such changes."""
    ahead = MockClock(world.runtime.clock.now_ms() + 3_600_000)
    world.start(replace(world.runtime, clock=ahead))
    world.write("topics", "t", {"segment.bytes": "50"})
    world.write("topics", "t", {"segment.bytes": "51"})

    assert len(world.run(world.registry.children("/config/changes"))) == 2


def test_change_without_a_difference_tells_nobody(world):
    """The same overrides again."""
    for _ in range(2):
        world.write("topics", "t", {"segment.bytes": "50"})

    assert world.changed == ["t"]


def test_stopped_config_follows_nothing(world):
    """The broker is on its way down."""
    world.dynamic.stop()
    world.dynamic.stop()
    world.write("topics", "t", {"segment.bytes": "50"})

    assert world.changed == []


def test_settings_of_groups_are_read_at_start_and_followed(world):
    """What another program wrote, and breaks our rules, has no effect."""
    world.write("groups", "g", {"consumer.session.timeout.ms": "50000"})
    world.write("groups", "h", {"consumer.session.timeout.ms": "soon", "other": "1"})
    world.dynamic.stop()
    world.start()

    assert world.dynamic.group_config("g").consumer_session_timeout_ms == 50000
    assert world.dynamic.group_config("h").consumer_session_timeout_ms == 45000
    world.remove("groups", "g")
    world.runtime.scheduler.run_ready()
    assert world.dynamic.group_config("g").consumer_session_timeout_ms == 45000


@pytest.mark.parametrize(
    ("call", "path"), [("children", ""), ("get", ""), ("get", "/config/topics/t")]
)
def test_change_is_followed_though_the_session_ended_meanwhile(world, monkeypatch, call, path):
    """The broker kept the old settings until it was started again."""
    works, failures = getattr(world.registry, call), [SessionEndedError("over")] * 2

    async def fail_at_first(asked):
        if failures and path in ("", asked):
            raise failures.pop()
        return await works(asked)

    monkeypatch.setattr(world.registry, call, fail_at_first)
    world.write("topics", "t", {"segment.bytes": "50"})
    world.runtime.advance(60_000)

    assert not failures
    assert world.dynamic.topic_config("t").segment_bytes == 50


def test_changes_whose_notifications_are_gone_are_followed_in_a_new_session(world):
    """Others have cleared them away while this broker was cut off."""
    callbacks = []
    watch_session = world.registry.watch_session
    world.registry.watch_session = lambda callback: (
        callbacks.append(callback) or watch_session(callback)
    )
    world.write("topics", "u", {"segment.bytes": "60"})
    world.start()
    world.run(world.registry.delete("/config/topics/u"))
    world.run(world.registry.create("/config/topics/t", b'{"config":{"segment.bytes":"50"}}'))
    callbacks[0](SessionState.RENEWED)
    world.runtime.scheduler.run_ready()

    assert world.dynamic.topic_config("t").segment_bytes == 50
    assert world.dynamic.topic_config("u").segment_bytes == 100


def test_overrides_that_cannot_be_read_keep_no_broker_from_starting(world, caplog):
    """One node that somebody has spoilt, and none of the brokers could start any more."""
    world.write("topics", "u", {"segment.bytes": "60"})
    world.run(world.registry.create("/config/topics/t", b"{spoilt"))
    world.start()

    assert world.dynamic.topic_config("u").segment_bytes == 60
    assert "overrides of topics t have no effect" in caplog.text


def test_clients_are_followed_wherever_their_values_lie(world):
    """Users, client ids, both, and addresses, with the default of each."""
    entities = [
        ClientEntity("alice", "app"),
        ClientEntity(user=""),
        ClientEntity(client_id="app"),
        ClientEntity(ip="127.0.0.1"),
    ]
    for entity in entities:
        world.change(entity, {"producer_byte_rate": "1"})

    assert world.changed == entities
    assert set(world.dynamic.client_entities) == set(entities)
    assert world.dynamic.client_overrides(entities[0]) == {"producer_byte_rate": "1"}
    assert world.dynamic.client_overrides(ClientEntity("alice")) == {}

    world.dynamic.stop()
    world.changed.clear()
    world.start()
    assert set(world.changed) == set(entities)


def test_client_without_values_is_forgotten(world):
    """Its node may stay, as Kafka's tools leave it."""
    alice = ClientEntity("alice")
    world.change(alice, {"producer_byte_rate": "1"})
    world.change(alice, {})

    assert world.changed == [alice, alice]
    assert not world.dynamic.client_entities


def test_unreadable_values_of_a_client_leave_those_in_force(world, caplog):
    """Another program has written the node."""
    alice = ClientEntity("alice")
    world.change(alice, {"producer_byte_rate": "1"})
    world.run(world.registry.set("/config/users/alice", b"?"))
    world.run(
        world.registry.create(
            "/config/changes/config_change_",
            b'{"version":2,"entity_path":"users/alice"}',
            sequential=True,
        )
    )
    world.runtime.scheduler.run_ready()

    assert world.dynamic.client_overrides(alice) == {"producer_byte_rate": "1"}
    assert "settings of ClientEntity(user='alice'" in caplog.text


def test_subscription_to_metrics_of_clients_goes_with_its_settings(world):
    """A client pushes no longer what nobody wants."""
    world.write("client-metrics", "a", {"metrics": "x.", "interval.ms": "500"})
    assert world.dynamic.client_metrics["a"].interval_ms == 500
    world.write("client-metrics", "a", {})
    assert world.dynamic.client_metrics == {}
    world.write("client-metrics", "a", {"metrics": "x."})
    world.write("client-metrics", "a", {"interval.ms": "nothing"})

    assert world.dynamic.client_metrics == {}


def test_unclean_leaders_are_allowed_by_the_topic_itself(world):
    """What holds for all topics is looked at elsewhere."""
    key = "unclean.leader.election.enable"
    for value in ("true", "TRUE", "false"):
        world.write("topics", value, {key: value})

    found = [world.dynamic.allows_unclean_election(each) for each in ("true", "TRUE", "false", "x")]
    assert found == [True, True, False, False]


KEY_STORE = "listener.name.plaintext.ssl.keystore.location"


def test_files_of_keys_are_read_again_when_they_are_named_again(world):
    """Files are read again when named again: so an operator says that they have changed."""
    told = []
    world.dynamic.on_key_store_change(lambda: told.append(True))
    world.write("brokers", "3", {KEY_STORE: "/a.pem"})
    assert len(told) == 1
    world.write("brokers", "3", {KEY_STORE: "/a.pem"})
    assert len(told) == 2
    world.write("brokers", "3", {KEY_STORE: "/a.pem", "log.retention.ms": "7"})
    assert len(told) == 2
    world.write("brokers", "3", {"log.retention.ms": "7"})
    assert len(told) == 3
    world.write("brokers", "3", {"log.retention.ms": "8"})

    assert len(told) == 3


def test_overrides_of_listeners_that_do_not_fit_together_have_no_effect(world, caplog):
    """The others are in force; somebody else may have written the registry."""
    world.write(
        "brokers",
        "3",
        {"listeners": "NOWHERE://:9092", KEY_STORE: "/a.pem", "log.retention.ms": "7"},
    )

    assert "overrides of listeners have no effect" in caplog.text
    assert world.dynamic.broker_overrides("3") == {"log.retention.ms": "7"}
    assert world.dynamic.broker_config.log_retention_ms == 7


@pytest.mark.parametrize(
    ("overrides", "is_checked"),
    [
        ({KEY_STORE: "/a.pem"}, True),
        ({"listeners": "PLAINTEXT://localhost:9092"}, True),
        ({"log.retention.ms": "7"}, False),
    ],
)
def test_key_stores_are_tried_before_they_are_taken(world, overrides, is_checked):
    """Stores are tried first, also with new listeners; nothing else is a reason to read files."""
    checked = []
    world.dynamic.check_key_stores = checked.append
    world.dynamic.validate_broker("3", overrides)

    assert len(checked) == int(is_checked)


def test_files_are_read_once_what_stood_against_their_names_is_gone(world):
    """They were left out with the other settings of listeners."""
    told = []
    world.dynamic.on_key_store_change(lambda: told.append(True))
    world.write("brokers", "3", {KEY_STORE: "/a.pem", "listeners": "NOWHERE://:9092"})
    assert told == []
    world.write("brokers", "3", {KEY_STORE: "/a.pem"})
    assert told == [True]
    world.write("brokers", "<default>", {"log.retention.ms": "7"})

    assert told == [True]


@pytest.mark.parametrize(
    ("overrides", "is_checked"),
    [
        ({KEY_STORE: "/a.pem", "log.retention.ms": "7"}, True),
        ({KEY_STORE: "/a.pem", "log.retention.ms": "8"}, False),
        ({KEY_STORE: "/a.pem"}, False),
        ({KEY_STORE: "/b.pem", "log.retention.ms": "7"}, True),
        ({"log.retention.ms": "7"}, True),
    ],
    ids=["again", "another", "without another", "changed", "removed"],
)
def test_files_that_a_change_is_not_about_do_not_stand_against_it(world, overrides, is_checked):
    """Those of a renewal that is refused could not be used, and nothing else could be changed."""
    world.write("brokers", "3", {KEY_STORE: "/a.pem", "log.retention.ms": "7"})
    checked = []
    world.dynamic.check_key_stores = checked.append
    world.dynamic.validate_broker("3", overrides)

    assert len(checked) == int(is_checked)


@pytest.mark.parametrize(
    ("name", "is_hinted"),
    [
        ("ssl.keystore.location", True),
        ("ssl.client.auth", True),
        ("sasl.jaas.config", True),
        ("num.partitions", False),
    ],
)
def test_setting_that_cannot_change_says_how_it_can_where_it_can(world, name, is_hinted):
    """Those of listeners can, for a listener."""
    with pytest.raises(KafkaError, match="cannot be changed while the broker runs") as caught:
        world.dynamic.validate_broker("3", {name: "x"})

    assert (f"as listener.name.<name>.{name}" in caught.value.message) is is_hinted


def test_rules_of_a_login_are_fixed_while_their_listener_stays():
    """They may come with a listener that is added."""
    world = World()
    static = BrokerConfig.parse(
        {
            "listeners": "A://:9092,B://:9093",
            "listener.security.protocol.map": "A:PLAINTEXT,B:SASL_PLAINTEXT,C:SASL_PLAINTEXT",
            "inter.broker.listener.name": "A",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        }
    )
    dynamic = DynamicConfig(world.runtime, world.registry, static, 3)
    name = "listener.name.{}.sasl.enabled.mechanisms"
    with pytest.raises(KafkaError, match="cannot change while listener B is there"):
        dynamic.validate_broker("3", {name.format("b"): "SCRAM-SHA-512"})

    added = {"listeners": "A://:9092,B://:9093,C://:9094", name.format("c"): "SCRAM-SHA-512"}
    dynamic.validate_broker("3", added)


THREADS, MEMORY = "log.cleaner.threads", "log.cleaner.dedupe.buffer.size"
MIB = str(1 << 20)


@pytest.mark.parametrize("broker_threads", [None, "1", "2"])
@pytest.mark.parametrize("restarts", [False, True])
def test_overrides_that_do_not_fit_together_are_left_out_alone(
    world, caplog, broker_threads, restarts
):
    """All others count; and it counts itself as soon as nothing stands against it."""
    own = {"log.retention.ms": "7"} | ({} if broker_threads is None else {THREADS: broker_threads})
    world.write("brokers", "3", own)
    world.write("brokers", "<default>", {MEMORY: MIB, "num.replica.fetchers": "2"})
    if restarts:
        world.dynamic.stop()
        world.start()
    config = world.dynamic.broker_config

    assert config.log_retention_ms == 7
    assert config.num_replica_fetchers == 2
    has_both = broker_threads != "2"
    assert (config.log_cleaner_dedupe_buffer_size == 1 << 20) is (
        has_both or config.log_cleaner_threads == 1
    )
    assert ("have no effect" in caplog.text) is not has_both
    world.write("brokers", "3", {THREADS: "1"})
    assert world.dynamic.broker_config.log_cleaner_dedupe_buffer_size == 1 << 20


@pytest.mark.parametrize(
    "own", [{THREADS: "4", MEMORY: "8388608"}, {MEMORY: "8388608", THREADS: "4"}]
)
def test_override_that_fits_with_another_is_in_force_whichever_is_read_first(world, caplog, own):
    """Where a third one fits with none of them, they are tried one by one."""
    world.write("brokers", "<default>", {MEMORY: MIB})
    world.write("brokers", "3", {"listeners": "NOWHERE://:9092"} | own)
    config = world.dynamic.broker_config

    assert (config.log_cleaner_threads, config.log_cleaner_dedupe_buffer_size) == (4, 8 << 20)
    assert [each.message.partition(" have no effect")[0] for each in caplog.records] == [
        "broker 3: overrides of listeners"
    ]
