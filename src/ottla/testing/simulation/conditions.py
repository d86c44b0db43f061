"""The conditions of a world besides its story, drawn from the seed: sizes, cleaning, numbers.

Each is there in a part of the seeds, next to all others, so that every pair of them meets in some.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple
from uuid import UUID

from ottla.clients.producer import transaction_manager
from ottla.coordinator.transaction import transaction_coordinator, transaction_metadata
from ottla.log.log_dir import LOG_SUFFIX, PARTITION_METADATA, segment_path, write_topic_id
from ottla.registry import paths
from ottla.registry.tree import Create
from ottla.registry.znodes import ProducerIdBlock, TopicNode, encode_partition_state
from ottla.replication import follower_partition
from ottla.server import fetch_session
from ottla.structs import NO_LEADER, LeaderAndIsr, TopicPartition
from ottla.testing.memory_disk import MemoryDisk
from ottla.testing.simulation.cluster import SimulatedCluster
from ottla.testing.simulation.nemesis import CLOCKS, KINDS, MORE_KINDS

Settings = Mapping[str, str | int]

CALLS_PER_FAULT: Final = (1_500, 5_000, 20_000)
"""How seldom a call of a disk fails, besides the faults of the nemesis."""

SHARE_AT_EDGES: Final = 0.4

TINY: Final[Settings] = {
    "log.segment.bytes": 500,
    "log.index.interval.bytes": 1,
    "log.index.size.max.bytes": 48,
    "log.segment.delete.delay.ms": 500,
    "offsets.topic.segment.bytes": 2_000,
    "transaction.state.log.segment.bytes": 2_000,
    "replica.fetch.max.bytes": 300,
    "replica.fetch.response.max.bytes": 700,
    "num.replica.fetchers": 2,
    "fetch.max.bytes": 2_000,
}
"""Many segments with full indexes, and fetches that hold a batch or two."""
COMPACTED: Final[Settings] = {
    "offsets.topic.segment.bytes": 2_048,
    "transaction.state.log.segment.bytes": 2_048,
    "log.cleaner.backoff.ms": 300,
    "log.cleaner.min.cleanable.ratio": "0.01",
    # Longer than any replica is away: one that has missed a tombstone may keep the key (KIP-354).
    "log.cleaner.delete.retention.ms": 100_000,
    "log.segment.delete.delay.ms": 1_000,
}
"""The cleaner is at work on the topics of the coordinators, whose maps are read back from them."""
TWO_DIRS: Final[Settings] = {"log.dirs": "/data,/data2"}
RETAINED: Final[Settings] = {
    "log.segment.bytes": 1_000,
    "log.retention.bytes": 4_000,
    "log.retention.check.interval.ms": 500,
    "log.segment.delete.delay.ms": 300,
}
"""Old records go while things break."""


# Clusters whose numbers begin near an edge: offsets, leader epochs, producer ids.
#
# The topic was made before the world began: with a registry that knows it, and a log on each broker
# whose first offset is just below a power of two, as if all before had been deleted. Numbers that
# begin with one in each run, and would never get to their end, have it sooner (`near_ends`).


OFFSET_EDGES: Final = (2**31, 2**32, 2**53, 2**63 - 2**31)
EPOCH_EDGES: Final = (2**15, 2**16, 2**31 - 2**10)
PRODUCER_ID_EDGES: Final = (2**31, 2**32, 2**53, 2**62)
ENDS: Final = (
    (fetch_session, "MAX_EPOCH", 40),
    (follower_partition, "MAX_EPOCH", 40),
    (transaction_metadata, "LAST_EPOCH", 9),
    (transaction_coordinator, "LAST_EPOCH", 9),
    (transaction_manager, "MAX_EPOCH", 3),
)
"""Where the epochs of fetch sessions, of transactional ids and of other producers end."""
MAX_BEFORE: Final = 60
"""How far before an edge something begins at most; a run goes past it."""
IDS_OF_A_BLOCK: Final = 1_000


class Conditions(NamedTuple):
    """What a world is like."""

    settings: Settings
    kinds: tuple[str, ...]
    """What faults strike."""
    calls_per_fault: int
    is_retained: bool = False
    """Whether records go for the size of their log."""
    edges: Edges | None = None

    @classmethod
    def drawn(cls, seed: int, may_retain: bool) -> Conditions:
        """The conditions of a seed; in half of them nothing is special but the disks."""
        chance = random.Random(f"conditions {seed}")
        calls_per_fault = chance.choice(CALLS_PER_FAULT)
        is_tiny, is_compacted, has_two_dirs, is_retained = (
            chance.random() < share for share in (0.2, 0.25, 0.25, 0.3)
        )
        settings: dict[str, str | int] = {}
        for is_there, drawn in (
            (is_tiny, TINY),
            (is_compacted, COMPACTED),
            (has_two_dirs, TWO_DIRS),
            (is_retained and may_retain, RETAINED),
        ):
            settings |= drawn if is_there else {}
        # A clock that is wrong by an hour lets tombstones go while a replica still lacks them.
        kinds = tuple(kind for kind in KINDS if not (is_compacted and kind == CLOCKS))
        edges = Edges.drawn(chance) if chance.random() < SHARE_AT_EDGES else None
        return cls(
            settings, (*kinds, *MORE_KINDS), calls_per_fault, is_retained and may_retain, edges
        )


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


@contextmanager
def near_ends() -> Iterator[None]:
    """Let the epochs of fetch sessions wrap, and those of producers run out, within a run."""
    with ExitStack() as stack:
        for module, name, end in ENDS:
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, end)
        yield
