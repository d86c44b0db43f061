"""Invariants of a cluster, checked from outside after every step and at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from ottla.log.log_segment import LogSegment
from ottla.record.memory_records import batches
from ottla.record.record_batch import RecordBatch
from ottla.registry import paths
from ottla.registry.tree import NoNodeError
from ottla.registry.znodes import decode_partition_state
from ottla.replication.partition import Partition
from ottla.runtime import Disk
from ottla.structs import OFFSETS_TOPIC, LeaderAndIsr, TopicPartition
from ottla.testing.memory_disk import MemoryDisk
from ottla.testing.simulation.cluster import Host, SimulatedCluster

IDLE_S: Final = 5
MAX_IDLE_FETCHES: Final = 10
"""Limit for one connection in a second; a follower's fetch waits 500 ms, as a consumer's does."""

Lineage = tuple[TopicPartition, UUID]
"""A partition of one topic, by id: another topic may get its name later."""
Epoch = tuple[Lineage, int]


@dataclass(slots=True)
class History:
    """The records that brokers acknowledged to clients, and those that readers saw."""

    acknowledged: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    refused: set[bytes] = field(default_factory=set)
    sent: dict[TopicPartition, list[bytes]] = field(default_factory=dict)
    seen: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    unpromised: set[bytes] = field(default_factory=set)
    deleted: dict[TopicPartition, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    may_lose: bool = False
    """Whether acknowledged records may be lost, which are then noted as `losses`."""
    losses: list[str] = field(default_factory=list)
    commits: dict[tuple[str, TopicPartition, int], float] = field(default_factory=dict)
    """When the last commit of a group's offset ended: infinity if that is not known (yet)."""

    def note_acknowledged(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        if value in self.unpromised:
            return
        known = self.acknowledged.setdefault(partition, {})
        if known.setdefault(offset, value) != value:
            (self.losses if self.may_lose else self.violations).append(
                f"{partition}: offset {offset} was given to {known[offset]!r} and to {value!r}"
            )

    def note_seen(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        known = self.seen.setdefault(partition, {})
        if known.setdefault(offset, value) != value:
            self.violations.append(
                f"{partition}: at offset {offset} a reader saw {known[offset]!r}, then {value!r}"
            )

    def note_deleted(self, partition: TopicPartition, offset: int) -> None:
        """Note that a client asks for the deletion of the records before an offset."""
        self.deleted[partition] = max(offset, self.deleted.get(partition, 0))

    def admit_loss(self, partition: TopicPartition, offset: int) -> None:
        """Drop all promises from this offset on: other records may take its place.

        A response in flight may still acknowledge a lost record, so such responses do not count.
        """
        answered = self.refused.union(self.acknowledged.get(partition, {}).values())
        self.unpromised.update(set(self.sent.get(partition, ())) - answered)
        for known in (self.acknowledged, self.seen):
            kept = {at: value for at, value in known.get(partition, {}).items() if at < offset}
            known[partition] = kept


class Watcher:
    """Remembers leaders, epochs and high watermarks, and reports impossible changes.

    - No two brokers lead a partition in one epoch.
    - Each replica that the registry has in sync has all that the leader has committed (StrongIsr).
    - The committed offset of a group never falls.
    - The high watermark of a leader never falls while it leads.
    - A new leader has everything that any leader before it has committed.
    - No fetch waits longer than its request allows.
    """

    def __init__(self, cluster: SimulatedCluster, history: History) -> None:
        self.cluster = cluster
        self.history = history
        self.leaders: dict[Epoch, int] = {}
        self.first_end: dict[Epoch, int] = {}
        self.high_watermarks: dict[tuple[Epoch, Partition], int] = {}
        self.committed: dict[Lineage, dict[int, int]] = {}
        self.before_loss: dict[TopicPartition, int] = {}
        """How far a partition was committed when a loss of its end was admitted."""
        self.made_again: set[str] = set()
        """Topics of which a late commit may still be about the one that had the name before."""
        self.may_lose = False
        """Whether a replica that was not in sync may lead, and lose committed records."""
        self.flushes_late = False
        """Whether a replica in sync may lose its records, with the power of its machine."""
        self._offsets: dict[tuple[str, TopicPartition, UUID | None], tuple[int, int, int]] = {}
        """The offsets that groups have committed, each with the epoch of the coordinator."""
        self._seen: dict[Partition, tuple[int, UUID, int]] = {}
        """Each leader's state at the last look: if it has not changed, all is well."""

    def look(self) -> None:
        """Look at every partition of every broker that runs."""
        for host in self.cluster.hosts:
            if host.is_running:
                for partition in partitions_of(host):
                    if partition.is_leader:
                        self._look_at_leader(host, partition)
                for connection_id in host.forgotten:
                    self._complain(f"{host.name} has not answered a fetch of {connection_id}")

    def _look_at_leader(self, host: Host, partition: Partition) -> None:
        number, topic_id = partition.leader_epoch, partition.topic_id
        high_watermark = partition.high_watermark
        seen = number, topic_id, high_watermark
        if self._seen.get(partition) == seen:
            return
        self._seen[partition] = seen
        topic_partition = partition.topic_partition
        lineage = topic_partition, topic_id
        epoch = lineage, number
        known = self.leaders.get(epoch)
        if known is None:
            self._note_new_leader(host, partition, epoch)
        elif known != host.broker_id:
            self._complain(
                f"{topic_partition}: brokers {known} and {host.broker_id} lead in epoch {number}"
            )
        key = (epoch, partition)
        if high_watermark < self.high_watermarks.get(key, 0):
            self._complain(
                f"{topic_partition}: the high watermark of leader {host.broker_id} fell from "
                f"{self.high_watermarks[key]} to {high_watermark} in epoch {number}"
            )
        if high_watermark > self.high_watermarks.get(key, -1):
            self._note_committed(partition, key, high_watermark)
        # After an unclean election a leader may begin with a checkpoint of the high watermark, and
        # with records of its end, that are older than the loss: these are not committed again.
        is_its_own = high_watermark > self.first_end[epoch] or not self.may_lose
        if is_its_own and not self.flushes_late:
            self._check_in_sync(host, partition)
        if topic_partition.topic == OFFSETS_TOPIC:
            self._check_offsets(host, partition)

    def _note_committed(
        self, partition: Partition, key: tuple[Epoch, Partition], high_watermark: int
    ) -> None:
        """Note how far a leader has committed, unless that is older than a loss.

        A leader's first high watermark may be from such a checkpoint.
        """
        (lineage, number), is_first = key[0], key not in self.high_watermarks
        self.high_watermarks[key] = high_watermark
        if is_first and high_watermark <= self.before_loss.get(partition.topic_partition, 0):
            return
        if self.may_lose:
            return
        committed = self.committed.setdefault(lineage, {})
        committed[number] = max(high_watermark, committed.get(number, 0))
        self._check_successors(lineage, number, high_watermark)

    def _check_in_sync(self, host: Host, leader: Partition) -> None:
        """Compare a leader with the replicas that the registry has in sync with it."""
        topic_partition, committed = leader.topic_partition, leader.high_watermark
        try:
            state = stored_state(self.cluster, topic_partition)
        except NoNodeError:
            return  # it was deleted
        if (state.leader, state.leader_epoch) != (host.broker_id, leader.leader_epoch):
            return
        for other in self.cluster.hosts:
            replica = partition_at(other, topic_partition)
            if (
                other.broker_id in state.isr
                and other.is_running
                and replica is not None
                and replica.topic_id == leader.topic_id
                and replica.log.log_end_offset < committed
            ):
                self._complain(
                    f"{topic_partition}: broker {other.broker_id} is in sync in {state} and ends "
                    f"at {replica.log.log_end_offset}; {committed} are committed"
                )

    def _check_offsets(self, host: Host, partition: Partition) -> None:
        """Compare the commits of groups with those before, as their coordinator knows them."""
        coordinators = getattr(host.broker, "coordinators", None)
        if coordinators is None or "groups" not in vars(coordinators):
            return
        manager, epoch = coordinators.groups.manager, partition.leader_epoch
        index = partition.topic_partition.partition
        if manager.partitions.availability(index):
            return
        for group in manager.groups():
            if manager.log.partition_for(group.group_id) != index:
                continue
            for topic_partition, committed in group.offsets.all().items():
                if topic_partition.topic in self.made_again:
                    continue
                topic = coordinators.cache.topic(topic_partition.topic)
                key = group.group_id, topic_partition, None if topic is None else topic.topic_id
                offset, known_epoch, since_ms = self._offsets.get(key, (0, 0, 0))
                if epoch < known_epoch:
                    continue  # a broker that does not know of its successor
                # A commit that was not answered may count late: the next member has read before.
                commit = group.group_id, topic_partition, committed.offset
                is_asked_for = self.history.commits.get(commit, -1) >= since_ms
                if committed.offset < offset and not is_asked_for:
                    self._complain(
                        f"group {group.group_id} had committed {offset} of {topic_partition}, and "
                        f"has {committed.offset} at {host.name} in epoch {epoch}"
                    )
                if committed.offset != offset:
                    since_ms = self.cluster.world.now_ms
                self._offsets[key] = committed.offset, epoch, since_ms

    def _note_new_leader(self, host: Host, partition: Partition, epoch: Epoch) -> None:
        lineage, number = epoch
        self.leaders[epoch] = host.broker_id
        end = self.first_end[epoch] = partition.log.log_end_offset
        if self.may_lose:
            return
        for earlier, high_watermark in self.committed.get(lineage, {}).items():
            if earlier < number and high_watermark > end:
                self._complain(
                    f"{lineage[0]}: broker {host.broker_id} begins to lead in epoch {number} "
                    f"with {end} records; {high_watermark} were committed in epoch {earlier}"
                )

    def _check_successors(self, lineage: Lineage, number: int, high: int) -> None:
        for (other, later), end in self.first_end.items():
            if other == lineage and later > number and high > end:
                self._complain(
                    f"{lineage[0]}: epoch {number} committed up to {high} although epoch "
                    f"{later} had begun at {end}"
                )

    def admit_losses(self, kept: Mapping[TopicPartition, int]) -> None:
        """Allow the loss of everything that was committed from these offsets on."""
        for (topic_partition, _), committed in self.committed.items():
            limit = kept.get(topic_partition, 0)
            before = max(self.before_loss.get(topic_partition, 0), *committed.values())
            self.before_loss[topic_partition] = before
            for epoch in committed:
                committed[epoch] = min(committed[epoch], limit)

    def _complain(self, text: str) -> None:
        self.history.violations.append(f"{self.cluster.world.now_ms} ms: {text}")


def partitions_of(host: Host) -> Iterator[Partition]:
    """The partitions of a host's broker; none while it is too early in its start."""
    replica_manager = getattr(host.broker, "replica_manager", None)
    if replica_manager is not None:
        yield from replica_manager.partitions.values()


def partition_at(host: Host, topic_partition: TopicPartition) -> Partition | None:
    """A partition of a host's broker, if it has it."""
    replica_manager = getattr(host.broker, "replica_manager", None)
    if replica_manager is None:
        return None
    found: Partition | None = replica_manager.partitions.get(topic_partition)
    return found


def stored_state(cluster: SimulatedCluster, topic_partition: TopicPartition) -> LeaderAndIsr:
    """Leader and ISR of a partition in the registry; NoNodeError if it has none."""
    path = paths.partition_state(*topic_partition)
    node = cluster.zookeeper.tree.find(path)
    return decode_partition_state(path, node.data, node.version)[0]


def has_deposed_leader(cluster: SimulatedCluster, topic_partition: TopicPartition) -> bool:
    """Whether some broker leads the partition in an epoch that the registry has left behind."""
    epoch = stored_state(cluster, topic_partition).leader_epoch
    known = (partition_at(host, topic_partition) for host in cluster.hosts if host.is_alive)
    return any(each.is_leader and each.leader_epoch < epoch for each in known if each is not None)


def replicas_of(cluster: SimulatedCluster, topic_partition: TopicPartition) -> list[Partition]:
    """The partition on each broker that has it, according to the newest known replica list.

    A broker that was cut off when it lost its replica may believe that it still has one.
    """
    known = {
        host.broker_id: partition
        for host in cluster.hosts
        for partition in partitions_of(host)
        if partition.topic_partition == topic_partition
    }
    if not known:
        return []
    # The epochs of a recreated topic start from scratch, but the old one has no leader.
    newest = max(known.values(), key=lambda each: (each.is_leader, each.leader_epoch))
    return [known[broker_id] for broker_id in sorted(newest.replicas) if broker_id in known]


def records_of(partition: Partition, start: int, end: int) -> dict[int, bytes]:
    """The values in the log by offset, from one to another; control records and nulls left out."""
    return {
        record.offset: record.value or b""
        for batch in batches_of(partition, start, end)
        if not batch.is_control
        for record in batch.records()
        if record.offset >= start
    }


def batches_of(partition: Partition, start: int, end: int) -> Iterator[RecordBatch]:
    """The batches in the log from the one that holds `start` on; whole ones below `end`."""
    for segment in partition.log.segments.since(start):
        for batch in batches_in(segment, partition.log.log_dir.disk):
            if batch.next_offset > end:
                return
            if batch.next_offset > start:
                yield batch


def batches_in(segment: LogSegment, disk: Disk) -> Iterator[RecordBatch]:
    """The batches in the file of a segment, whatever else the disk fails at."""
    assert isinstance(disk, MemoryDisk)
    for batch in batches(disk.contents(segment.path)[: segment.size]):
        batch.verify()
        yield batch


def check_in_the_end(cluster: SimulatedCluster, history: History, topic: str) -> list[str]:
    """The errors of the logs, once all brokers are up and all replicas in sync."""
    wrong: list[str] = []
    names = {each.topic_partition for host in cluster.hosts for each in partitions_of(host)}
    for topic_partition in sorted(names):
        known = replicas_of(cluster, topic_partition)
        start = max(partition.log.log_start_offset for partition in known)
        end = min(partition.high_watermark for partition in known)
        if start > history.deleted.get(topic_partition, 0):
            wrong.append(f"{topic_partition}: it begins at {start}, and nobody has deleted that")
        if topic_partition.topic == topic:
            wrong += check_history(history, topic_partition, records_of(known[0], start, end))
    return wrong


def check_idle(cluster: SimulatedCluster) -> list[str]:
    """Let an idle cluster run for a while; returns which connections fetch without waiting."""
    before = [Counter(host.fetches) for host in cluster.hosts]
    cluster.world.run(IDLE_S * 1_000)
    return [
        f"{host.name}: {connection_id} fetches {count // IDLE_S} times a second, and all is idle"
        for host, known in zip(cluster.hosts, before, strict=True)
        for connection_id, count in (host.fetches - known).items()
        if count > IDLE_S * MAX_IDLE_FETCHES
    ]


def check_history(history: History, partition: TopicPartition, log: dict[int, bytes]) -> list[str]:
    """The missing and wrong records in the log of one partition, except for deleted ones."""
    start = history.deleted.get(partition, 0)
    wrong = [
        f"{partition}: {value!r} was acknowledged at offset {offset}; there is {log.get(offset)!r}"
        for offset, value in history.acknowledged.get(partition, {}).items()
        if offset >= start and log.get(offset) != value
    ]
    wrong += [
        f"{partition}: a reader saw {value!r} at offset {offset}; there is {log.get(offset)!r}"
        for offset, value in history.seen.get(partition, {}).items()
        if offset >= start and log.get(offset) != value
    ]
    values = list(log.values())
    strange = set(values).difference(history.sent.get(partition, ()))
    if strange:
        wrong.append(f"{partition}: nobody has sent {sorted(strange)[:5]}")
    if len(set(values)) != len(values):
        twice = sorted({value for value in values if values.count(value) > 1})
        wrong.append(f"{partition}: {twice[:5]} are there more than once")
    numbers: dict[bytes, int] = {}
    for value in values:
        writer, _, number = value.rpartition(b"-")
        if int(number) < numbers.get(writer, -1):
            wrong.append(f"{partition}: {value!r} comes after number {numbers[writer]}")
        numbers[writer] = int(number)
    return wrong
