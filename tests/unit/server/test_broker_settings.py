"""What a broker makes of its settings: those of its file, and those that change while it runs."""

from __future__ import annotations

import pytest
from broker_world import LISTENER, BrokerWorld

from ottla.config.broker_config import BrokerConfig
from ottla.controller.controller import Controller
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.log.log_manager import LogManager
from ottla.network.broker_tls import BrokerTls
from ottla.protocol.group import HeartbeatRequest
from ottla.protocol.metadata import MetadataRequest
from ottla.protocol.update_metadata import UpdateMetadataRequest
from ottla.registry.paths import DEFAULT_ENTITY
from ottla.security.principal import KafkaPrincipal
from ottla.server.broker import Broker
from ottla.server.membership import BrokerState, ClusterMembership
from ottla.structs import OFFSETS_TOPIC, TopicPartition

ME = __name__
AUTHORIZER = {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer"}
IN_CLUSTER = {"zookeeper_connect": "here:2181", "broker_id": 0}
TWO_LISTENERS = {
    "listeners": "PLAINTEXT://:9092,B://:9093",
    "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
    "inter_broker_listener_name": "B",
}
EVE, ROOT = KafkaPrincipal.user("eve"), KafkaPrincipal.user("root")
BROKERS, TOPICS = "brokers", "topics"


def log_of(world, topic="t"):
    return world.broker.replica_manager.partitions[TopicPartition(topic, 0)].log


# What changes while the broker runs


def test_logs_follow_the_settings_of_their_topic_and_of_the_broker():
    """At once, and after a restart as well."""
    world = BrokerWorld().start()
    world.create("t")
    world.create("own", segment_ms=7_000)
    world.change(BROKERS, DEFAULT_ENTITY, log_segment_bytes=5_000_000)
    assert log_of(world).config.segment_bytes == 5_000_000
    world.change(TOPICS, "t", segment_bytes=2_000_000)
    assert log_of(world).config.segment_bytes == 2_000_000
    world = world.again()

    assert log_of(world).config.segment_bytes == 2_000_000
    assert log_of(world, "own").config.segment_bytes == 5_000_000
    assert log_of(world, "own").config.segment_ms == 7_000


def test_logs_are_recovered_with_the_settings_from_before_the_start(monkeypatch):
    """So many threads at once, say."""
    world = BrokerWorld().start()
    world.change(BROKERS, DEFAULT_ENTITY, num_recovery_threads_per_data_dir=2)
    seen, startup = [], LogManager.startup

    def note(logs):
        seen.append(logs.config.num_recovery_threads_per_data_dir)
        return startup(logs)

    monkeypatch.setattr(LogManager, "startup", note)
    world.again()

    assert seen == [2]


def test_replication_and_the_controller_follow_the_settings_of_the_broker():
    """Replication and controller follow settings, also those made before the start."""
    world = BrokerWorld().start()
    updates = world.spy(world.broker.controller, "update_config")
    world.change(
        BROKERS, DEFAULT_ENTITY, leader_replication_throttled_rate=2_000, log_retention_ms=70_000
    )
    assert [config.log_retention_ms for (config,) in updates] == [70_000]
    assert world.broker.replica_manager.leader_quota.bytes_per_second == 2_000
    world = world.again()

    assert world.broker.replica_manager.leader_quota.bytes_per_second == 2_000
    assert world.broker.dynamic_config.broker_config.log_retention_ms == 70_000


def test_controller_begins_with_the_settings_from_before_the_start(monkeypatch):
    """Topics that are made first have them too."""
    world = BrokerWorld().start()
    world.change(BROKERS, DEFAULT_ENTITY, unclean_leader_election_enable="true")
    seen, made = [], Controller.update_config

    def update(controller, config):
        seen.append(config.unclean_leader_election_enable)
        made(controller, config)

    monkeypatch.setattr(Controller, "update_config", update)
    world.again()

    assert seen[0] is True


@pytest.mark.parametrize("is_active", [True, False])
@pytest.mark.parametrize("is_of_topic", [True, False])
def test_leaders_are_elected_where_unclean_ones_become_allowed(is_active, is_of_topic):
    """By the controller alone; another change elects nobody."""
    world = BrokerWorld().start()
    world.create("t")
    elected = world.spy(world.broker.controller, "on_unclean_election_allowed")
    if not is_active:
        world.broker.controller.resign()
    change = {"unclean_leader_election_enable": "true"}
    if is_of_topic:
        world.change(TOPICS, "t", retention_ms=5)
        assert elected == []
        world.change(TOPICS, "t", **change)
    else:
        world.change(BROKERS, DEFAULT_ENTITY, log_retention_ms=5_000)
        assert elected == []
        world.change(BROKERS, DEFAULT_ENTITY, **change)

    assert len(elected) == int(is_active)


def test_listeners_are_added_and_told_to_the_cluster(monkeypatch):
    """Until the broker is about to stop; it registers with those from before its start."""
    world = BrokerWorld(listeners="PLAINTEXT://:9092").start()
    own = str(world.broker.broker_id)
    told = world.spy(world.broker.membership, "tell_end_points")
    world.change(BROKERS, own, max_connections=50)
    assert told == []
    assert world.broker.processor.network.max_connections == 50
    protocols = "PLAINTEXT:PLAINTEXT,B:PLAINTEXT"
    both = {
        "listeners": "PLAINTEXT://:9092,B://:9093",
        "listener_security_protocol_map": protocols,
    }
    world.change(BROKERS, own, **both)
    assert len(told) == 1
    assert world.broker.processor.open == {"PLAINTEXT": 9092, "B": 9093}
    assert [each.listener_name for each in world.broker.end_points] == ["PLAINTEXT", "B"]
    world.broker.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
    world.change(BROKERS, own, max_connections=60, **both)
    assert world.broker.processor.network.max_connections != 60
    world.broker.state = BrokerState.RUNNING
    registered, join = [], ClusterMembership.join

    def note(membership):
        registered.extend(each.listener_name for each in membership.end_points)
        return join(membership)

    monkeypatch.setattr(ClusterMembership, "join", note)
    world = world.again(listeners="PLAINTEXT://:9092")

    assert registered == ["PLAINTEXT", "B"]
    assert world.broker.processor.open.keys() == {"PLAINTEXT", "B"}


def test_key_stores_are_read_when_the_registry_says_so(certificates, monkeypatch):
    """Key stores set before the start are read as well; the file's rules do not bind them."""
    updates, made = [], BrokerTls.update

    def update(tls, config, keeps_rules=True):
        updates.append(keeps_rules)
        made(tls, config, keeps_rules)

    monkeypatch.setattr(BrokerTls, "update", update)
    settings = {
        "listeners": "PLAINTEXT://:9092,SSL://:9093",
        "ssl_keystore_location": certificates.server,
    }
    world = BrokerWorld(**settings).start()
    own = str(world.broker.broker_id)
    key = "listener_name_ssl_ssl_keystore_location"
    assert updates == []
    world.change(BROKERS, own, **{key: certificates.server})
    assert updates == [True]
    world.again(**settings)

    assert updates[1:] == [False]


# Whom the broker serves, and what it tells of that


def test_apis_of_brokers_are_served_on_their_listener():
    """A frame is as long as its API allows, and metadata name the broker."""
    world = BrokerWorld(**TWO_LISTENERS, **IN_CLUSTER).start()
    body = UpdateMetadataRequest(controller_epoch=-1)
    refused = world.ask(body, 8, listener=LISTENER)
    served = world.ask(body, 8, listener="B")

    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert served.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    limit = world.broker.processor.max_frame_bytes
    assert limit == world.broker.apis.max_frame_bytes
    answer = world.ask(MetadataRequest(topics=None), 9)
    assert [each.node_id for each in answer.brokers] == [world.broker.broker_id]


def test_offsets_are_coordinated_from_the_start():
    """Groups that the broker had before are there again."""
    world = BrokerWorld(offsets_topic_num_partitions=1).start()
    world.run(world.broker.controller.auto_create_topic(OFFSETS_TOPIC))
    loaded = world.again(offsets_topic_num_partitions=1)
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")

    assert loaded.broker.coordinators.offsets_log.is_leader(0)
    assert loaded.ask(heartbeat, 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_settings_that_a_running_broker_may_not_take_are_refused(certificates):
    """Key stores that cannot be read, and what a feature refuses."""
    world = BrokerWorld(
        listeners="PLAINTEXT://:9092,SSL://:9093", ssl_keystore_location=certificates.server
    ).start()
    dynamic = world.broker.dynamic_config
    key_store = {"listener.name.ssl.ssl.keystore.location": "/nowhere"}
    with pytest.raises(KafkaError, match="/nowhere"):
        dynamic.validate_broker(dynamic.broker_name, key_store)

    def refuse(config):
        raise ConfigError(f"log.retention.ms={config.log_retention_ms}: not here")

    dynamic.checks.append(refuse)
    with pytest.raises(KafkaError, match=r"log\.retention\.ms=5: not here"):
        dynamic.validate_broker(dynamic.broker_name, {"log.retention.ms": "5"})


def test_registry_is_where_the_settings_say_unless_one_is_given():
    """A simulation brings its own."""
    world = BrokerWorld()
    assert world.broker.registry is world.registry
    own = Broker(BrokerConfig.parse({"log.dirs": "/logs"}), world.runtime)

    assert own.registry.directory == "/logs/registry"
