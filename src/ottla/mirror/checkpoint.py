"""Checkpoints and heartbeats, and the groups of the source at the target.

A checkpoint says where a group of the source would continue at the target: what the group has
committed, translated by the offset syncs that the flow has written. It goes to the checkpoints
topic and, if `sync.group.offsets.enabled`, into the group at the target, as long as nobody reads
there. Records have Kafka's bytes (KIP-382).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import Final, TypeVar

from ottla.clients.admin.admin import Admin
from ottla.clients.admin.descriptions import IDLE_STATES
from ottla.clients.mirror_records import Checkpoint, OffsetSync
from ottla.clients.producer.producer import Producer
from ottla.clients.topic_offsets import OffsetAndMetadata, OffsetSpec
from ottla.errors import KafkaError
from ottla.metrics.metrics_registry import BeanKind, Beans, FamilyName, Tags
from ottla.mirror.copied_offsets import LatestRecordsReader
from ottla.mirror.flow import MBEANS, Flow, MirrorCluster
from ottla.mirror.offset_sync import OffsetSyncStore
from ottla.record.consumer_record import ConsumerRecord
from ottla.runtime.clock import Clock
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")

LATENCY: Final = "checkpoint-latency-ms"
BEAN: Final = BeanKind(
    FamilyName(MBEANS, "MirrorCheckpointConnector"),
    "A partition of a group that a mirror translates.",
    values=(LATENCY,),
)
Decode = Callable[[bytes | None, bytes | None], T | None]


class GroupCheckpoints:
    """The newest checkpoints of groups, as they were emitted."""

    def __init__(self) -> None:
        self.emitted: dict[str, dict[TopicPartition, Checkpoint]] = {}
        self._emitted_ms: dict[tuple[str, TopicPartition], int] = {}

    def add(self, checkpoint: Checkpoint, emitted_ms: int = 0) -> None:
        """Take one that was read from the topic, or emitted."""
        self.emitted.setdefault(checkpoint.group, {})[checkpoint.partition] = checkpoint
        self._emitted_ms[checkpoint.group, checkpoint.partition] = emitted_ms

    def forget(self, partition: TopicPartition, until_ms: int | None = None) -> None:
        """The copy was made again: places in the former one are none in this.

        With a time those are meant that were emitted before.
        """
        for group, emitted in self.emitted.items():
            emitted_ms = self._emitted_ms.get((group, partition), 0)
            if until_ms is None or emitted_ms <= until_ms:
                emitted.pop(partition, None)

    def next(
        self,
        group: str,
        committed: Mapping[TopicPartition, tuple[int, str]],
        remote: Mapping[TopicPartition, TopicPartition],
        store: OffsetSyncStore,
    ) -> list[Checkpoint]:
        """The checkpoints to emit for what a group has committed, offset and metadata.

        `remote` has the target's name of each partition of the source; others are passed over.
        """
        found = []
        known = self.emitted.get(group, {})
        for partition, (upstream, metadata) in committed.items():
            target = remote.get(partition)
            downstream = None if target is None else store.translate(partition, upstream)
            if target is None or downstream is None or downstream < 0:
                continue
            checkpoint = Checkpoint(group, target, upstream, downstream, metadata)
            before = known.get(target)
            is_false = before is not None and store.contradicts(
                partition, before.upstream, before.downstream
            )
            if is_false or checkpoint.is_newer_than(before):
                found.append(checkpoint)
        return found

    def offsets(self, group: str) -> dict[TopicPartition, int]:
        """Where a group continues at the target."""
        return {p: each.downstream for p, each in self.emitted.get(group, {}).items()}


def offsets_to_sync(
    translated: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offsets to commit for a group at the target: only forward, partition by partition."""
    return {
        partition: offset
        for partition, offset in translated.items()
        if offset > committed.get(partition, -1)
    }


def decoded(records: Iterable[ConsumerRecord], decode: Decode[T], what: str) -> list[T]:
    """The values of records; what cannot be read is said and passed over."""
    found = []
    for record in records:
        try:
            value = decode(record.key, record.value)
        except ValueError as error:
            logger.warning("offset %d of %s is no %s: %s", record.offset, record.topic, what, error)
            continue
        if value is not None:
            found.append(value)
    return found


def read_checkpoints(cluster: MirrorCluster, topic: str, clock: Clock) -> GroupCheckpoints:
    """The newest checkpoint of each group and partition, as the topic has them now."""
    with closing(LatestRecordsReader(cluster, topic, clock)) as reader:
        groups = GroupCheckpoints()
        for record in reader.read_to_end():
            for checkpoint in decoded([record], Checkpoint.of, "checkpoint"):
                groups.add(checkpoint, record.timestamp_ms)
        return groups


class GroupSync:
    """The groups of one flow. Its admin clients are the caller's; it is used by one thread."""

    def __init__(self, flow: Flow, source: Admin, target: Admin, beans: Beans) -> None:
        """`beans` gets an MBean of each partition of a group with a checkpoint, until `close`."""
        self.flow = flow
        self.groups: list[str] = []
        self.is_waiting = False
        """Whether a group has committed for a topic, and has no checkpoint of it yet."""
        self._beans = beans
        self._shown: set[Tags] = set()
        clock = beans.clock
        self._source = source
        self._target = target
        self.checkpoints = read_checkpoints(flow.target, flow.checkpoints_topic, clock)
        self._store = OffsetSyncStore(keeps_history=True)
        self._syncs = LatestRecordsReader(flow.sync_cluster, flow.syncs_topic, clock)
        try:
            self._take(self._syncs.read_to_end())
            self._store.finish_loading()
            self._producer = Producer({"acks": "all", **flow.target.settings("producer")})
        except BaseException:
            self._syncs.close()
            raise

    def refresh_groups(self) -> None:
        """Find the groups to translate."""
        wanted = self.flow.group_filter()
        self.groups = sorted(
            each.group_id for each in self._source.list_groups() if wanted.takes(each.group_id)
        )

    def read_syncs(self) -> None:
        """Take the syncs that have come."""
        while records := self._syncs.poll():
            self._take(records)

    def emit(self, topics: Iterable[str]) -> int:
        """Translate what the groups have committed for these topics; the checkpoints written."""
        self.read_syncs()
        names = {name: self.flow.remote(name) for name in topics}
        emitted: list[Checkpoint] = []
        waiting: set[tuple[str, TopicPartition]] = set()
        since_ms: dict[str, int] = {}
        for group in self.groups:
            since_ms[group] = self._beans.clock.monotonic_ms()
            committed = {
                partition: (each.offset, each.metadata or "")
                for partition, each in offsets_of_group(self._source, group).items()
                if partition.topic in names
            }
            remote = {p: TopicPartition(names[p.topic], p.partition) for p in committed}
            emitted += self.checkpoints.next(group, committed, remote, self._store)
            waiting |= {(group, each) for each in remote.values()}
        sent = [
            self._producer.send(
                self.flow.checkpoints_topic, each.value(), key=each.key(), partition=0
            )
            for each in emitted
        ]
        self._producer.flush()
        for future, checkpoint in zip(sent, emitted, strict=True):
            future.result(0)
            self.checkpoints.add(checkpoint)
            self._note_written(checkpoint, since_ms[checkpoint.group])
        known = self.checkpoints.emitted
        self.is_waiting = any(place not in known.get(group, {}) for group, place in waiting)
        return len(emitted)

    @property
    def translated_count(self) -> int:
        """How many groups have a checkpoint."""
        return sum(1 for group in self.groups if group in self.checkpoints.emitted)

    def _note_written(self, checkpoint: Checkpoint, since_ms: int) -> None:
        """A checkpoint is acknowledged: how long ago the group was asked where it is."""
        topic, partition = checkpoint.partition
        place = ("topic", topic), ("partition", str(partition))
        tags = (*self.flow.tags, ("group", checkpoint.group), *place)
        self._shown.add(tags)
        latency_ms = self._beans.clock.monotonic_ms() - since_ms
        self._beans.measures(BEAN, tags).record(LATENCY, (latency_ms,))

    def sync_offsets(self) -> dict[str, dict[TopicPartition, int]]:
        """Commit at the target what the checkpoints say; returns what was committed."""
        self.read_syncs()  # a copy may have been made again since they were emitted
        return commit_translated(self._target, self.checkpoints, self.groups)

    def close(self) -> None:
        for tags in self._shown:
            self._beans.drop(BEAN, tags)
        self._syncs.close()
        self._producer.close(0)

    def _take(self, records: Iterable[ConsumerRecord]) -> None:
        for record in records:
            for sync in decoded([record], OffsetSync.of, "offset sync"):
                if self._store.add(sync):
                    copy = sync.partition._replace(topic=self.flow.remote(sync.partition.topic))
                    self.checkpoints.forget(
                        copy, None if self._store.is_loaded else record.timestamp_ms
                    )


def commit_translated(
    target: Admin, checkpoints: GroupCheckpoints, groups: Iterable[str]
) -> dict[str, dict[TopicPartition, int]]:
    """Move groups without members forward to their checkpoints; returns what was committed."""
    return move_groups(target, {group: checkpoints.offsets(group) for group in groups})


def move_groups(
    admin: Admin, wanted: Mapping[str, Mapping[TopicPartition, int]]
) -> dict[str, dict[TopicPartition, int]]:
    """Move groups without members forward to these offsets; returns what was committed."""
    done: dict[str, dict[TopicPartition, int]] = {}
    states = {each.group_id: each.state for each in admin.list_groups()}
    there = admin.list_topics()
    for group, translated in wanted.items():
        if not translated or states.get(group, "Dead") not in IDLE_STATES:
            continue
        try:
            offsets = missing_offsets(admin, group, translated)
            # What is behind the end was translated for a copy that was deleted since.
            ends = ends_of(admin, (p for p in offsets if p.topic in there), OffsetSpec.LATEST)
            offsets = {p: offset for p, offset in offsets.items() if offset <= ends.get(p, -1)}
            if offsets:
                admin.alter_group_offsets(group, offsets)
                done[group] = offsets
        except KafkaError as error:  # a member may have come just now
            logger.warning("the offsets of group %s were not moved: %s", group, error)
    return done


def ends_of(
    admin: Admin, partitions: Iterable[TopicPartition], spec: OffsetSpec
) -> dict[TopicPartition, int]:
    """Where the logs of these begin, or end."""
    wanted = dict.fromkeys(partitions, int(spec))
    found = admin.list_offsets(wanted) if wanted else {}
    return {partition: each.offset for partition, each in found.items()}


def offsets_of_group(admin: Admin, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets that a group has committed; none, with a warning, where they may not be read.

    One group that is refused holds up no other, as in Kafka's mirror.
    """
    try:
        return admin.list_group_offsets(group)
    except KafkaError as error:
        if error.retriable:
            raise
        logger.warning("group %s is not translated: %s", group, error)
        return {}


def missing_offsets(
    admin: Admin, group: str, translated: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """What a group has yet to commit to be where it was translated to."""
    committed = {p: each.offset for p, each in admin.list_group_offsets(group).items()}
    return offsets_to_sync(translated, committed)
