"""A broker on a real ZooKeeper server: what it writes there, and how it outlives the server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from base64 import urlsafe_b64decode

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from ottla.testing import wait_until
from ottla.testing.processes import BrokerProcess

LIMIT_S = 60
SESSION_MS = 3000
TOPIC = "orders"


def create_topic(broker: BrokerProcess, name: str = TOPIC, partitions: int = 2, **config: str):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(LIMIT_S)


def produce(broker: BrokerProcess, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    for value in values:
        producer.produce(TOPIC, value, partition=0)
    assert producer.flush(LIMIT_S) == 0


def consume(broker: BrokerProcess) -> list[bytes]:
    """Every value of the topic's first partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values = []
    while (message := consumer.poll(LIMIT_S)) is not None and message.error() is None:
        values.append(message.value())
    consumer.close()
    return values


def refused(broker: BrokerProcess) -> str:
    """Starting the broker fails; the one line that it says."""
    with pytest.raises(RuntimeError):
        broker.start()
    (line,) = [line for line in broker.log.splitlines() if line.startswith("ottla broker: ")]
    return line


def test_znodes_look_like_kafkas(start_broker, znodes):
    """Every path and every JSON as Kafka has them, read with a client of its own."""
    broker = start_broker(zookeeper_connect=znodes.connect, broker_rack="r1")
    create_topic(broker, **{"retention.ms": "1000"})
    node = znodes.json("/brokers/ids/0")
    timestamp = node.pop("timestamp")

    assert timestamp.isdecimal()
    assert node == {
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "endpoints": [f"PLAINTEXT://127.0.0.1:{broker.port}"],
        "jmx_port": -1,
        "host": "127.0.0.1",
        "port": broker.port,
        "version": 4,
        "rack": "r1",
    }
    assert znodes.get("/brokers/ids/0")[1].ephemeralOwner
    assert znodes.get("/brokers/seqid")[0] is None
    assert set(znodes.names("/")) == {
        *("admin", "brokers", "cluster", "config", "consumers", "controller", "controller_epoch"),
        *("isr_change_notification", "log_dir_event_notification"),
    }
    assert set(znodes.names("/config")) == {
        *("brokers", "changes", "clients", "ips", "topics", "users"),
        "groups",  # Kafka has settings of groups without ZooKeeper alone
    }
    controller = znodes.json("/controller")
    assert controller.pop("timestamp").isdecimal()
    assert controller == {"version": 1, "brokerid": 0}
    assert znodes.get("/controller")[1].ephemeralOwner
    assert znodes.get("/controller_epoch")[0] == b"1"
    cluster_id = znodes.json("/cluster/id")
    assert cluster_id["version"] == "1"
    assert len(urlsafe_b64decode(cluster_id["id"] + "==")) == 16
    topic = znodes.json(f"/brokers/topics/{TOPIC}")
    assert len(urlsafe_b64decode(topic.pop("topic_id") + "==")) == 16
    assert topic == {
        "version": 3,
        "partitions": {"0": [0], "1": [0]},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    assert znodes.names(f"/brokers/topics/{TOPIC}/partitions") == ["0", "1"]
    state = f"/brokers/topics/{TOPIC}/partitions/0/state"
    assert znodes.json(state) == {
        "controller_epoch": 1,
        "leader": 0,
        "version": 1,
        "leader_epoch": 0,
        "isr": [0],
    }
    assert znodes.get(state)[1].ephemeralOwner == 0  # an article calls it ephemeral; it is not
    assert znodes.json(f"/config/topics/{TOPIC}") == {
        "version": 1,
        "config": {"retention.ms": "1000"},
    }
    (change,) = znodes.names("/config/changes")
    assert change.startswith("config_change_00000000")
    assert znodes.json(f"/config/changes/{change}") == {
        "version": 2,
        "entity_path": f"topics/{TOPIC}",
    }


def test_clean_stop_takes_the_broker_out_of_the_cluster(start_broker, znodes):
    """The next one registers at once, finds all topics, and is the controller of a new epoch."""
    broker = start_broker(zookeeper_connect=znodes.connect)
    create_topic(broker)
    produce(broker, b"1")
    assert broker.stop() == 0
    assert znodes.names("/brokers/ids") == []
    assert znodes.get("/controller") == (None, None)

    broker.start()
    assert consume(broker) == [b"1"]
    assert znodes.get("/controller_epoch")[0] == b"2"
    assert znodes.json(f"/brokers/topics/{TOPIC}/partitions/0/state")["leader_epoch"] == 1


def test_killed_broker_comes_back_when_its_session_has_expired(start_broker, znodes):
    """Its predecessor's node is in its way at first; it needs nobody's help."""
    broker = start_broker(zookeeper_connect=znodes.connect, zookeeper_session_timeout_ms=SESSION_MS)
    create_topic(broker)
    produce(broker, b"1")
    before = znodes.get("/brokers/ids/0")[1].czxid
    broker.kill()
    broker.start()

    assert znodes.get("/brokers/ids/0")[1].czxid > before
    assert consume(broker) == [b"1"]


def test_broker_waits_for_the_node_of_its_predecessor_to_go(start_broker, znodes):
    """However long that lives, within the time of a session: here the test has the node."""
    broker = start_broker(zookeeper_connect=znodes.connect)
    node, _ = znodes.get("/brokers/ids/0")
    broker.stop()
    znodes.client.create(znodes.chroot + "/brokers/ids/0", node, ephemeral=True)
    before = znodes.get("/brokers/ids/0")[1].czxid
    broker.launch()
    wait_until(lambda: "waiting for up to" in broker.log, "the broker waits")
    znodes.client.delete(znodes.chroot + "/brokers/ids/0")
    broker.wait_until_ready()

    assert znodes.get("/brokers/ids/0")[1].czxid > before


def test_taken_id_is_refused(start_broker, znodes, tmp_path):
    """One clear line; and the first broker of the id is not disturbed."""
    start_broker(zookeeper_connect=znodes.connect)
    before = znodes.get("/brokers/ids/0")[1].czxid
    same = BrokerProcess(tmp_path / "same", zookeeper_connect=znodes.connect)
    assert "broker.id=0: a broker of this id is registered already" in refused(same)

    assert znodes.get("/brokers/ids/0")[1].czxid == before


def test_broker_id_is_generated(start_broker, znodes):
    """Above reserved.broker.max.id, and the same after a restart."""
    broker = start_broker(zookeeper_connect=znodes.connect, broker_id=-1)
    assert znodes.names("/brokers/ids") == ["1001"]
    broker.stop()
    broker.start()

    assert znodes.names("/brokers/ids") == ["1001"]
    assert znodes.get("/brokers/seqid")[1].version == 1


def test_unreachable_zookeeper_is_one_line(tmp_path):
    """Address and time are named."""
    broker = BrokerProcess(
        tmp_path / "data",
        zookeeper_connect="127.0.0.1:1,127.0.0.1:2/kafka",
        zookeeper_connection_timeout_ms=300,
    )

    assert (
        "zookeeper.connect=127.0.0.1:1,127.0.0.1:2/kafka: no ZooKeeper server answered within "
        "300 ms" in refused(broker)
    )


def test_clients_are_served_while_zookeeper_is_away(start_broker, start_zookeeper):
    """kill -9 and a new start: the session lives on, and what was waiting is done."""
    zookeeper = start_zookeeper()
    broker = start_broker(zookeeper_connect=zookeeper.connect, zookeeper_session_timeout_ms=10_000)
    create_topic(broker)
    produce(broker, b"1")
    zookeeper.kill()
    wait_until(lambda: "is suspended" in broker.log, "the session is suspended")
    produce(broker, b"2")
    assert consume(broker) == [b"1", b"2"]

    zookeeper.start()
    wait_until(lambda: "is resumed" in broker.log, "the session is resumed")
    create_topic(broker, "later")
    view = KazooClient(zookeeper.connect)
    view.start(LIMIT_S)
    assert view.get_children("/brokers/ids") == ["0"]
    assert view.get("/controller_epoch")[0] == b"1"
    assert {"later", TOPIC} <= set(view.get_children("/brokers/topics"))
    view.stop()
    view.close()


def test_broker_stops_in_order_while_zookeeper_hangs(start_broker, start_zookeeper):
    """The logs are flushed and closed; the session is left to expire."""
    zookeeper = start_zookeeper()
    broker = start_broker(zookeeper_connect=zookeeper.connect)
    zookeeper.pause()

    assert broker.stop() == 0
    zookeeper.resume()


def test_broker_registers_again_after_its_session_expired(start_broker, znodes):
    """It was paused for too long: new node, new controller epoch, the same records."""
    broker = start_broker(zookeeper_connect=znodes.connect, zookeeper_session_timeout_ms=SESSION_MS)
    create_topic(broker)
    produce(broker, b"1")
    before = znodes.get("/brokers/ids/0")[1].czxid
    os.kill(broker.pid, signal.SIGSTOP)
    wait_until(lambda: znodes.names("/brokers/ids") == [], "no broker is registered")
    os.kill(broker.pid, signal.SIGCONT)
    wait_until(lambda: "is registered again" in broker.log, "the broker is back")
    wait_until(znodes.is_led, "there is a controller")

    assert znodes.get("/brokers/ids/0")[1].czxid > before
    assert znodes.json("/controller")["brokerid"] == 0
    assert znodes.get("/controller_epoch")[0] == b"2"
    produce(broker, b"2")
    assert consume(broker) == [b"1", b"2"]
    create_topic(broker, "later")
    assert {"later", TOPIC} <= set(znodes.names("/brokers/topics"))


def test_settings_are_followed_through_zookeeper(start_broker, znodes):
    """An override that the admin client sets is in the tree, and in force."""
    broker = start_broker(zookeeper_connect=znodes.connect)
    create_topic(broker)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    entry = ConfigEntry("max.message.bytes", "100", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    for result in admin.incremental_alter_configs([resource]).values():
        result.result(LIMIT_S)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    errors = []

    def is_refused() -> bool:
        producer.produce(TOPIC, b"x" * 200, on_delivery=lambda error, _: errors.append(error))
        producer.flush(LIMIT_S)
        return errors[-1] is not None

    # As in Kafka, the broker learns of it a moment after the admin client.
    wait_until(is_refused, "the broker has learned of it")

    assert errors[-1].name() == "MSG_SIZE_TOO_LARGE"
    assert znodes.json(f"/config/topics/{TOPIC}")["config"] == {"max.message.bytes": "100"}


def test_acls_keep_others_from_writing(start_broker, znodes):
    """Everybody may read; only who knows the password may write, over a restart, too."""
    broker = start_broker(
        zookeeper_connect=znodes.connect,
        zookeeper_set_acl="true",
        zookeeper_digest_username="ottla",
        zookeeper_digest_password="secret",
    )
    create_topic(broker)
    broker.stop()
    broker.start()
    create_topic(broker, "later")

    assert znodes.names("/brokers/topics") == ["later", TOPIC]
    with pytest.raises(NoAuthError):
        znodes.client.set(znodes.chroot + f"/brokers/topics/{TOPIC}", b"")
    with pytest.raises(NoAuthError):
        znodes.get("/config/users")
    assert "secret" not in broker.log
    assert broker.stop() == 0


def test_acl_without_a_user_is_refused():
    """The setting's error says what is missing."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "broker", "--override", "zookeeper.set.acl=true"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )

    assert done.returncode == 1
    assert "must come with zookeeper.sasl.username, zookeeper.digest.username or" in done.stderr
