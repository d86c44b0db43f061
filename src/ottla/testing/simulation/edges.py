"""Clusters whose numbers begin near an edge: offsets, leader epochs, producer ids.

The topic was made before the world began: with a registry that knows it, and a log on each broker
whose first offset is just below a power of two, as if all before had been deleted. Numbers that
begin with one in each run, and would never get to their end, have it sooner (`near_ends`).
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from ottla.clients.producer import transaction_manager
from ottla.coordinator.transaction import transaction, transaction_coordinator
from ottla.log.log_dir import write_topic_id
from ottla.log.log_files import LOG_SUFFIX, PARTITION_METADATA, segment_path
from ottla.registry import paths
from ottla.registry.tree import Create
from ottla.registry.znodes import ProducerIdBlock, TopicNode, encode_partition_state
from ottla.replication import follower_session
from ottla.server import fetch_session
from ottla.structs import NO_LEADER, LeaderAndIsr, TopicPartition

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from ottla.testing.memory_disk import MemoryDisk
    from ottla.testing.simulation.cluster import SimulatedCluster


class Edges(NamedTuple):
    """Where the numbers of a world begin."""

    offset: int
    leader_epoch: int
    producer_id: int

    @classmethod
    def drawn(cls, chance: random.Random) -> Edges:
        """Each just before a random edge."""

        def before(edges: tuple[int, ...]) -> int:
            return chance.choice(edges) - chance.randint(1, MAX_BEFORE)

        return cls(before(OFFSET_EDGES), before(EPOCH_EDGES), before(PRODUCER_ID_EDGES))

    def prepare(
        self, cluster: SimulatedCluster, topic: str, partition_count: int, replicas: tuple[int, ...]
    ) -> None:
        """Put a topic into a cluster that has not run yet, which `cluster.hosts` are to lead."""
        topic_id = UUID(int=cluster.world.random.getrandbits(127) | 1, version=4)
        self._register(cluster, topic, partition_count, replicas, topic_id)
        for index in range(partition_count):
            topic_partition = TopicPartition(topic, index)
            cluster.first_offsets[topic_partition] = self.offset
            for host in cluster.hosts:
                if host.broker_id in replicas:
                    directory = f"{cluster.log_dirs[0]}/{topic_partition}"
                    self._make_log(host.disk, directory, topic_id)

    def _register(
        self,
        cluster: SimulatedCluster,
        topic: str,
        partition_count: int,
        replicas: tuple[int, ...],
        topic_id: UUID,
    ) -> None:
        registry = cluster.zookeeper.shared
        node = TopicNode(dict.fromkeys(range(partition_count), replicas), topic_id)
        last_id = self.producer_id + IDS_OF_A_BLOCK - 1
        block = ProducerIdBlock(replicas[0], self.producer_id, last_id)
        state = LeaderAndIsr(NO_LEADER, self.leader_epoch, replicas)
        nodes = [
            Create("/brokers", b""),
            Create(paths.TOPICS, b""),
            Create(paths.PRODUCER_ID_BLOCK, block.encode()),
            Create(paths.topic(topic), node.encode()),
            Create(paths.topic_partitions(topic), b""),
        ]
        for index in range(partition_count):
            nodes += [
                Create(paths.partition(topic, index), b""),
                Create(paths.partition_state(topic, index), encode_partition_state(state, 0)),
            ]
        registry.write(nodes)

    def _make_log(self, disk: MemoryDisk, directory: str, topic_id: UUID) -> None:
        on_call, disk.on_call = disk.on_call, None
        disk.make_dirs(directory)
        disk.create(segment_path(directory, self.offset, LOG_SUFFIX))
        write_topic_id(disk, f"{directory}/{PARTITION_METADATA}", topic_id)
        disk.sync_all()
        disk.on_call = on_call


OFFSET_EDGES: Final = (2**31, 2**32, 2**53, 2**63 - 2**31)
EPOCH_EDGES: Final = (2**15, 2**16, 2**31 - 2**10)
PRODUCER_ID_EDGES: Final = (2**31, 2**32, 2**53, 2**62)
ENDS: Final = (
    (fetch_session, "MAX_EPOCH", 40),
    (follower_session, "MAX_EPOCH", 40),
    (transaction, "LAST_EPOCH", 9),
    (transaction_coordinator, "LAST_EPOCH", 9),
    (transaction_manager, "MAX_EPOCH", 3),
)
"""Where the epochs of fetch sessions, of transactional ids and of other producers end."""
MAX_BEFORE: Final = 60
"""How far before an edge something begins at most; a run goes past it."""
IDS_OF_A_BLOCK: Final = 1_000


@contextmanager
def near_ends() -> Iterator[None]:
    """Let the epochs of fetch sessions wrap, and those of producers run out, within a run."""
    with ExitStack() as stack:
        for module, name, end in ENDS:
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, end)
        yield
