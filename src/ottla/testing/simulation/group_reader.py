"""A member of a group that reads, takes its time, and commits what it has done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.clients.consumer.consumer_core import ConsumerCore
from ottla.clients.consumer.consumer_record import ConsumerRecord
from ottla.clients.consumer.subscription_state import RebalanceListener
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.config.consumer_config import CONSUMER_PROTOCOL, ConsumerConfig
from ottla.errors import KafkaError
from ottla.network.timing import Deadline
from ottla.structs import TopicPartition
from ottla.testing.simulation.group_ledger import GroupLedger
from ottla.testing.simulation.workload import POLL_MS, SimulatedClient

if TYPE_CHECKING:
    from ottla.testing.simulation.cluster import SimulatedCluster

GROUP: Final = "readers"
COMMIT_TIMEOUT_MS: Final = 8_000
CLOSE_TIMEOUT_MS: Final = 1_000
SESSION_TIMEOUT_MS: Final = 6_000
MAX_WORK_MS: Final = 300
RESTART_MS: Final = 300


def group_settings(protocol: str) -> dict[str, object]:
    """What only members of the classic protocol are told by their own settings."""
    if protocol == CONSUMER_PROTOCOL:
        return {"group.protocol": protocol}
    return {
        "group.protocol": protocol,
        "session.timeout.ms": SESSION_TIMEOUT_MS,
        "heartbeat.interval.ms": 1_000,
    }


class GroupReader(SimulatedClient):
    """One life of a member; what is asked of it while it works waits until it has committed."""

    def __init__(
        self, cluster: SimulatedCluster, name: str, ledger: GroupLedger, topic: str, protocol: str
    ) -> None:
        super().__init__(cluster, name, ledger.history)
        self.name = name
        self.topic = topic
        self._ledger = ledger
        config = ConsumerConfig.parse(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "max.poll.interval.ms": 20_000,
                "request.timeout.ms": 5_000,
                **group_settings(protocol),
            }
        )
        self.core = ConsumerCore(self.process.runtime, config)

    async def run(self) -> None:
        self.core.subscribe([self.topic], RebalanceListener())
        while not self.is_told_to_stop:
            try:
                outcome = await self.core.poll(Deadline(self.process.clock, POLL_MS))
                if not isinstance(outcome, list):
                    self.core.acknowledge()
                elif outcome:
                    await self._work(outcome)
            except KafkaError:
                await self.pause(RESTART_MS)  # the next poll joins anew, if that is what it takes
        await self.core.close(Deadline(self.process.clock, CLOSE_TIMEOUT_MS))
        self.is_done = True

    async def _work(self, records: list[ConsumerRecord]) -> None:
        membership = (await self.core.group_metadata()).membership
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            self._ledger.note_given(partition, record.offset, membership)
            self.history.note_seen(partition, record.offset, record.value)
            offsets[partition] = OffsetAndMetadata(record.offset + 1)
        await self.pause(self.process.runtime.random.randint(1, MAX_WORK_MS))
        owners = {partition: self._ledger.owner_of(partition) for partition in offsets}
        await self.core.commit(offsets, Deadline(self.process.clock, COMMIT_TIMEOUT_MS))
        assert self.core.coordinator is not None
        for partition, owner in owners.items():
            self._ledger.note_committed(partition, owner, self.core.coordinator.member.membership)
