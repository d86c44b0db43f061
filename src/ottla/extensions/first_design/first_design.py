"""Attaches Kafka's first design (0.7) to a broker: its logs, its protocol, its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.first_design_config import parse_copies
from ottla.extensions.first_design.broker_nodes import BrokerNodes
from ottla.extensions.first_design.byte_logs import ByteLogs
from ottla.extensions.first_design.first_design_listener import FirstDesignListener
from ottla.extensions.first_design.topic_copies import TopicCopies
from ottla.runtime.host_name import canonical_host_name
from ottla.server.extension import Extension

if TYPE_CHECKING:
    from ottla.server.parts import Parts


class FirstDesign(Extension):
    """A broker of 0.7 in the process of one of today; they share settings, disk and ZooKeeper."""

    nodes: BrokerNodes
    listener: FirstDesignListener

    def __init__(self, broker: Parts) -> None:
        super().__init__(broker)
        self.logs = ByteLogs(broker.runtime, broker.config)
        wanted = parse_copies(broker.config.first_design_copied_topics)
        self.copies = TopicCopies(broker, self.logs, wanted)
        self._listens = False

    async def after_logs(self) -> None:
        await self.logs.start()

    def begin(self) -> None:
        broker, config = self.broker, self.broker.config
        runtime, logs = broker.runtime, self.logs
        self.listener = FirstDesignListener(runtime, config, logs)
        chroot = config.first_design_zookeeper_chroot
        self.nodes = BrokerNodes(runtime, broker.registry, chroot, broker.broker_id)
        host, port = self.listener.start()
        self._listens = True
        logs.on_created = lambda name: self.nodes.add_topic(name, logs.partition_count(name))
        counts = {topic: logs.partition_count(topic) for topic in logs.topics}
        self.nodes.start(advertised(host), port, counts)
        self.copies.start()

    async def leave(self) -> None:
        """Serve nobody any longer, and force the logs to disk."""
        await self._stop_listening()
        await self.logs.stop()

    def stop(self) -> None:
        self.nodes.stop()

    async def close(self, *, is_killed: bool = False) -> None:
        """Let all go: after the above, or where the start has failed."""
        await self._stop_listening()
        self.logs.close()

    async def _stop_listening(self) -> None:
        self.copies.stop()
        if self._listens:
            self._listens = False
            await self.listener.stop()


def advertised(host: str) -> str:
    """The host that clients find in ZooKeeper: no address that stands for all."""
    return canonical_host_name() if host in ("0.0.0.0", "::") else host
