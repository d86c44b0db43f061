"""Topics as commands with `--zookeeper` read and change them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.zookeeper_configs import stored_settings
from ottla.cli.zookeeper_session import child_names, node_data
from ottla.clients.admin.descriptions import TopicDescription, TopicPartitionInfo
from ottla.registry import paths
from ottla.registry.znodes import TopicNode, decode_partition_state

if TYPE_CHECKING:
    from kazoo.client import KazooClient


class ZooKeeperTopics:
    """Reads the nodes of topics; where there are none, no cluster has ever been here."""

    def __init__(self, client: KazooClient) -> None:
        self.client = client

    def list_topics(self) -> set[str]:
        """All topics, also those that are marked for deletion."""
        return set(child_names(self.client, paths.TOPICS))

    def marked_for_deletion(self) -> set[str]:
        """The topics that are deleted as soon as all brokers with replicas of them are live."""
        return set(child_names(self.client, paths.DELETE_TOPICS))

    def live_brokers(self) -> set[int]:
        return set(map(int, child_names(self.client, paths.BROKER_IDS)))

    def describe_topics(self, names: list[str]) -> dict[str, TopicDescription]:
        """Those of the topics that exist; the leader is -1 where there is none."""
        described = {}
        for name in names:
            data = node_data(self.client, paths.topic(name))
            if data is not None:
                replicas = sorted(TopicNode.decode(name, data).assignment.items())
                infos = [self._partition(name, index, ids) for index, ids in replicas]
                described[name] = TopicDescription(name, partitions=infos)
        return described

    def settings(self, name: str) -> dict[str, str]:
        """The settings of this topic's own, in the order in which they are stored."""
        return stored_settings(self.client, "topics", name) or {}

    def _partition(self, topic: str, index: int, replicas: tuple[int, ...]) -> TopicPartitionInfo:
        path = paths.partition_state(topic, index)
        data = node_data(self.client, path)
        if data is None:  # the controller has not begun with it yet
            return TopicPartitionInfo(index, -1, -1, replicas, ())
        state, _ = decode_partition_state(path, data, 0)
        return TopicPartitionInfo(index, state.leader, state.leader_epoch, replicas, state.isr)
