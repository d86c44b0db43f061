"""A whole cluster that stops, ZooKeeper with it, and starts again on what it has written."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.testing import wait_until
from ottla.testing.processes import ClusterProcess

LIMIT_S = 120
RECORDS = 600
SETTINGS = {"retention.ms": "86400000", "min.insync.replicas": "2"}
LASTING = ("/brokers/topics", "/cluster/id", "/config/brokers", "/config/topics")


class Cluster(ClusterProcess):
    """Three brokers and a ZooKeeper of their own."""

    def stop_all(self) -> None:
        """As SIGTERM does it, one after the other, and ZooKeeper last."""
        for broker_id in self.live_brokers:
            self.stop_broker(broker_id)
        self.zookeeper.stop()

    def kill_all(self) -> None:
        """All at the same time, as by the loss of power, but for what the page cache has."""
        for broker_id in self.live_brokers:
            self.kill_broker(broker_id)
        self.zookeeper.kill()

    def start_again(self) -> None:
        self.zookeeper.start()
        self.start_brokers()

    def restart_each(self) -> None:
        """A rolling restart, ZooKeeper in the middle of it."""
        for broker_id in self.live_brokers:
            self.stop_broker(broker_id)
            if broker_id == 2:
                self.zookeeper.stop()
                self.zookeeper.start()
            self.start_broker(broker_id)

    def nodes(self) -> dict[str, bytes]:
        """All that the cluster keeps: but for the states of partitions, which go on."""
        client = KazooClient(self.zookeeper.connect)
        client.start(timeout=LIMIT_S)
        try:
            found = {}
            waiting = list(LASTING)
            while waiting:
                path = waiting.pop()
                waiting += [f"{path}/{name}" for name in client.get_children(path)]
                if not path.endswith("/state"):
                    found[path], _ = client.get(path)
            return found
        finally:
            client.stop()
            client.close()

    def controller_epoch(self) -> int:
        client = KazooClient(self.zookeeper.connect)
        client.start(timeout=LIMIT_S)
        try:
            return int(client.get("/controller_epoch")[0])
        finally:
            client.stop()
            client.close()


@pytest.fixture
def cluster(java, tmp_path):
    """Running, and nothing in it yet."""
    cluster = Cluster(tmp_path, **{"auto.leader.rebalance.enable": "false"})
    cluster.start()
    yield cluster
    cluster.stop()


def fill(cluster: Cluster) -> None:
    """Records in two topics, one of them with settings; a group has read a third of the one."""
    servers = cluster.bootstrap_servers
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("kept", 6, 3, configs=SETTINGS), NewTopic("bare", 2, 2)])
    with Producer(servers, acks="all", enable_idempotence=True) as producer:
        for number in range(RECORDS):
            producer.send("kept", b"%d" % number, partition=number % 6)
            producer.send("bare", b"%d" % number, partition=number % 2)
        producer.flush()
    with Consumer(servers, group_id="readers", enable_auto_commit=False) as consumer:
        partitions = [TopicPartition("kept", index) for index in range(6)]
        consumer.assign(partitions)
        consumer.commit(dict.fromkeys(partitions, RECORDS // 18))


def committed(cluster: Cluster) -> list[int]:
    with Consumer(cluster.bootstrap_servers, group_id="readers") as consumer:
        partitions = [TopicPartition("kept", index) for index in range(6)]
        found = consumer.committed(partitions)
        return [found[partition].offset for partition in partitions]


def values(cluster: Cluster, topic: str) -> list[int]:
    """All that can be read, in the order of the numbers."""
    found: list[int] = []
    with Consumer(cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(
            [TopicPartition(topic, p.partition) for p in consumer.partitions_for(topic)]
        )
        wait_until(
            lambda: len(found) >= RECORDS,
            f"{RECORDS} records of {topic}",
            LIMIT_S,
            seen=lambda: len(found),
            meanwhile=lambda: found.extend(int(r.value) for r in consumer.poll(timeout_ms=1000)),
        )
    return sorted(found)


@pytest.mark.parametrize("how", ["stopped", "killed", "restarted one by one"])
def test_cluster_is_the_same_after_everything_was_started_again(cluster, how):
    """Topics, ids, settings, the cluster's id, records and offsets; only epochs have grown."""
    fill(cluster)
    nodes, epoch = cluster.nodes(), cluster.controller_epoch()
    offsets = committed(cluster)
    if how == "restarted one by one":
        cluster.restart_each()
    else:
        (cluster.stop_all if how == "stopped" else cluster.kill_all)()
        cluster.start_again()

    assert cluster.nodes() == nodes
    assert cluster.controller_epoch() > epoch
    assert committed(cluster) == offsets == [RECORDS // 18] * 6
    for topic in ("kept", "bare"):
        assert values(cluster, topic) == list(range(RECORDS))
    with Producer(cluster.bootstrap_servers, acks="all") as producer:
        producer.send("kept", b"more", partition=0).result()
