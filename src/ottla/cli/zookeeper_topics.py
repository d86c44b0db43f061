"""Topics as their nodes in ZooKeeper say: for `ottla topics --zookeeper`.

Kafka 2.3's tool reads them there. So it also shows topics that are marked for deletion, which no
client hears of any more, and needs no broker that lives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clients.admin.descriptions import TopicDescription, TopicPartitionInfo
from ottla.registry import paths
from ottla.registry.znodes import TopicNode, decode_config, decode_partition_state

if TYPE_CHECKING:
    from kazoo.client import KazooClient


class ZooKeeperTopics:
    """Reads the nodes of topics; where there are none, no cluster has ever been here."""

    def __init__(self, client: KazooClient) -> None:
        self.client = client

    def list_topics(self) -> set[str]:
        """Also those that are marked for deletion."""
        return self._names(paths.TOPICS)

    def marked_for_deletion(self) -> set[str]:
        """The topics that go as soon as all brokers that have a part of them live."""
        return self._names(paths.DELETE_TOPICS)

    def live_brokers(self) -> set[int]:
        return set(map(int, self._names(paths.BROKER_IDS)))

    def describe_topics(self, names: list[str]) -> dict[str, TopicDescription]:
        """Those of them that are there, with the leader -1 where nobody leads."""
        described = {}
        for name in names:
            data = self._data(paths.topic(name))
            if data is not None:
                replicas = sorted(TopicNode.decode(name, data).assignment.items())
                infos = [self._partition(name, index, ids) for index, ids in replicas]
                described[name] = TopicDescription(name, partitions=infos)
        return described

    def settings(self, name: str) -> dict[str, str]:
        """What was set for this topic, in the order in which it is kept."""
        path = paths.config("topics", name)
        return decode_config(path, self._data(path) or b"")

    def _partition(self, topic: str, index: int, replicas: tuple[int, ...]) -> TopicPartitionInfo:
        path = paths.partition_state(topic, index)
        data = self._data(path)
        if data is None:  # the controller has not begun with it yet
            return TopicPartitionInfo(index, -1, -1, replicas, ())
        state, _ = decode_partition_state(path, data, 0)
        return TopicPartitionInfo(index, state.leader, state.leader_epoch, replicas, state.isr)

    def _data(self, path: str) -> bytes | None:
        from kazoo.exceptions import NoNodeError

        try:
            data: bytes | None = self.client.get(path)[0]
        except NoNodeError:
            return None
        return data or b""

    def _names(self, path: str) -> set[str]:
        from kazoo.exceptions import NoNodeError

        try:
            return set(self.client.get_children(path))
        except NoNodeError:
            return set()
