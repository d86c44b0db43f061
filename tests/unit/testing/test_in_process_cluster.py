"""Three brokers in the test's own process: what is replicated, and what happens when one ends."""

from __future__ import annotations

import gc
import os
import threading

import pytest

from ottla import Consumer, KafkaError, Producer
from ottla.errors import ErrorCode
from ottla.testing import InProcessCluster, NeverHappenedError, wait_until

NAMED = {
    "listener_security_protocol_map": "CLIENTS:PLAINTEXT",
    "inter_broker_listener_name": "CLIENTS",
}
IMPATIENT = {"delivery_timeout_ms": 500, "request_timeout_ms": 400, "linger_ms": 0}


def send(cluster: InProcessCluster, topic: str, *values: bytes, **settings: str | int) -> None:
    """Send values with acks=all and wait until they are committed."""
    with Producer(cluster.bootstrap_servers, acks="all", **settings) as producer:
        for future in [producer.send(topic, value) for value in values]:
            future.result()


def values(cluster: InProcessCluster, topic: str, **how: str) -> list[bytes]:
    """The values of the topic's records."""
    return [record.value for record in cluster.records(topic, **how)]


@pytest.fixture
def cluster(ottla_fresh_cluster) -> InProcessCluster:
    """Three brokers and an empty topic t with three replicas."""
    ottla_fresh_cluster.create_topic("t")
    return ottla_fresh_cluster


def test_nothing_is_left_behind():
    """No thread and no descriptor, with a broker that was killed and one that was stopped."""
    gc.collect()
    gc.freeze()  # what is left is not looked at again
    threads, count = set(threading.enumerate()), len(os.listdir("/proc/self/fd"))
    with InProcessCluster() as cluster:
        send(cluster, "t", b"1")
        cluster.kill_broker(1)
        cluster.stop_broker(2)
    gc.collect()

    assert set(threading.enumerate()) <= threads  # of earlier tests some may have ended
    # Clients of earlier tests may be about to connect or to give up.
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= count, "no descriptor is left")


def test_broker_comes_back_where_it_was():
    """A broker keeps its address, on a listener of its own too; clients that know it find it."""
    with InProcessCluster(1, listeners="CLIENTS://127.0.0.1:0", **NAMED) as cluster:
        servers = cluster.bootstrap_servers
        send(cluster, "t", b"1")
        cluster.stop_broker(1)
        cluster.start_broker(1)
        assert cluster.bootstrap_servers == servers
        send(cluster, "t", b"2")
        assert values(cluster, "t") == [b"1", b"2"]


def test_records_outlive_their_leader(cluster):
    """Another replica leads when it is killed; the old one comes back as a follower."""
    send(cluster, "t", b"1")
    cluster.wait_until_in_sync("t")
    killed = cluster.leader("t")
    cluster.kill_broker(killed)
    assert cluster.leader("t") != killed
    send(cluster, "t", b"2")
    assert killed not in cluster.live_brokers
    cluster.wait_until_in_sync("t", replicas=2)
    cluster.start_broker(killed)
    cluster.wait_until_in_sync("t")

    assert cluster.leader("t") != killed
    assert values(cluster, "t") == [b"1", b"2"]


def test_a_broker_that_stops_hands_its_leaders_over(cluster):
    """There is another leader when the stop returns."""
    cluster.wait_until_in_sync("t")
    stopped = cluster.leader("t")
    cluster.stop_broker(stopped)

    assert cluster.leader("t", limit=0) != stopped
    with pytest.raises(RuntimeError, match=f"broker {stopped} is not running"):
        cluster.kill_broker(stopped)


def test_too_few_replicas_refuse_records(cluster):
    """A produce with acks=all is refused at one of three in sync; the wait names the one left."""
    cluster.wait_until_in_sync("t")
    leader = cluster.leader("t")
    for other in {1, 2, 3} - {leader}:
        cluster.kill_broker(other)
    cluster.wait_until_in_sync("t", replicas=1)
    with pytest.raises(NeverHappenedError, match=r"2 replicas of t in sync; .*\{0: \(\d,\)\}"):
        cluster.wait_until_in_sync("t", replicas=2, limit=0.01)
    with pytest.raises(KafkaError) as refused:
        send(cluster, "t", b"1", **IMPATIENT)

    assert refused.value.error in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT)


def test_a_session_that_expires_moves_the_controller(cluster):
    """The broker lives, registers again, and its replicas get in sync again."""
    cluster.wait_until_in_sync("t")
    controller = cluster.controller_id()
    cluster.expire_session(controller)
    send(cluster, "t", b"1")
    cluster.wait_until_in_sync("t")

    assert cluster.controller_id() in (1, 2, 3)
    assert cluster.live_brokers == [1, 2, 3]


def test_a_group_goes_on_with_another_coordinator(cluster):
    """Its members, its offsets and its reading survive the end of the coordinator's broker."""
    send(cluster, "t", b"1")
    reading = {"group_id": "g", "topics": ["t"], "auto_offset_reset": "earliest"}
    with Consumer(cluster.bootstrap_servers, **reading) as consumer:
        while not consumer.poll(timeout_ms=100):
            pass
        consumer.commit()
        cluster.wait_for_group("g", members=1)
        cluster.wait_until_in_sync("__consumer_offsets")
        cluster.kill_broker(cluster.coordinator("g"))
        send(cluster, "t", b"2")
        while not consumer.poll(timeout_ms=100):
            pass
        consumer.commit()
        cluster.wait_until_consumed("g", "t")
        cluster.wait_for_group("g", members=1)

    assert sum(cluster.committed("g").values()) == 2


def test_transactions_across_brokers():
    """Aborted records are hidden from readers of committed ones, wherever the leaders are."""
    with InProcessCluster() as cluster:
        cluster.create_topic("t", partitions=3)
        with Producer(cluster.bootstrap_servers, transactional_id="x") as producer:
            producer.init_transactions()
            for word, end in ((b"no", producer.abort_transaction), (b"yes", None)):
                producer.begin_transaction()
                for partition in range(3):
                    producer.send("t", word, partition=partition)
                producer.flush()
                (end or producer.commit_transaction)()

        assert values(cluster, "t").count(b"no") == 3
        # A commit is decided before each partition has its marker.
        wait_until(
            lambda: values(cluster, "t", isolation_level="read_committed") == [b"yes"] * 3,
            "all partitions have the marker",
        )


def test_a_cluster_on_disk_starts_again(tmp_path):
    """Topics and records are there, although all brokers were killed at once."""
    with InProcessCluster(2, tmp_path) as cluster:
        send(cluster, "t", b"1", b"2")
        cluster.stop()
        with pytest.raises(RuntimeError, match="not running"):
            cluster.topics()
        cluster.start()
        cluster.leader("t")

        assert values(cluster, "t") == [b"1", b"2"]
        assert {path.name for path in tmp_path.iterdir()} == {"broker-1", "broker-2"}
