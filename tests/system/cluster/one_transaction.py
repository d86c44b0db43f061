"""A transaction that stays open while its coordinator dies."""

from __future__ import annotations

from cluster_load import LIMIT_S, QUIET, ClusterView
from confluent_kafka import Producer
from coordinator_places import TRANSACTIONS, coordinator

from ottla import Admin, NewTopic, TopicPartition
from ottla.testing import wait_until
from ottla.testing.processes import ClusterProcess

LATEST = -1


class OneTransaction:
    """A producer with number 1 in an open transaction in the one partition of a topic.

    The only replica of the partition is on another broker than the transaction's coordinator.
    """

    def __init__(
        self, cluster: ClusterProcess, view: ClusterView, name: str, **settings: object
    ) -> None:
        self.cluster, self.view, self.name = cluster, view, name
        self.producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "transactional.id": name,
                **QUIET,
                **settings,
            }
        )
        self.producer.init_transactions(LIMIT_S)
        self.first_coordinator = self.coordinator
        self.leader = next(id_ for id_ in cluster.brokers if id_ != self.first_coordinator)
        with Admin(cluster.bootstrap_servers) as admin:
            assignment, configs = {0: [self.leader]}, {"min.insync.replicas": "1"}
            admin.create_topics([NewTopic(name, replica_assignment=assignment, configs=configs)])
        self.producer.begin_transaction()
        self.producer.produce(name, b"1", partition=0)
        assert self.producer.flush(LIMIT_S) == 0

    @property
    def coordinator(self) -> int:
        return coordinator(self.view, TRANSACTIONS, self.name)

    @property
    def stable_offset(self) -> int:
        """Up to where readers of committed data see."""
        partition = TopicPartition(self.name, 0)
        with Admin(self.cluster.bootstrap_servers) as admin:
            return admin.list_offsets({partition: LATEST}, "read_committed")[partition].offset

    def kill_coordinator(self) -> None:
        """Returns when another one is there."""
        self.cluster.kill_broker(self.first_coordinator)
        gone = (self.first_coordinator, -1)
        wait_until(lambda: self.coordinator not in gone, "another coordinator")
