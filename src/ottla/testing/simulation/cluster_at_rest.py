"""Rules of a cluster in which nothing is broken and nobody writes, besides the history.

- Replicas have the same batches, byte for byte, up to the lower high watermark; a compacted one has
  the same last value of each key. Batches of one offset and epoch are the same wherever they are.
- Nothing hangs: each replica is in sync and has all, committed records are stable, no transaction
  waits for its markers, and no topic or replica for its deletion or its move.
- The registry's topics, replicas, leaders and in-sync replicas are those in the controller's
  memory, in the metadata of each broker and in each partition, and the directories are there.
- The memory of a broker agrees with its files (`replay`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from uuid import UUID

from ottla.controller.controller_context import ControllerContext
from ottla.log.log import Log
from ottla.log.log_files import parse_future_dir, parse_partition_dir
from ottla.record.control_record import end_of_transaction
from ottla.record.record_batch import Record, RecordBatch
from ottla.registry import paths
from ottla.registry.znodes import TopicNode
from ottla.replication.partition import Partition
from ottla.structs import NO_LEADER, LeaderAndIsr, TopicPartition
from ottla.testing.memory_disk import MemoryDisk
from ottla.testing.simulation.cluster import Host, SimulatedCluster
from ottla.testing.simulation.invariants import partitions_of, replicas_of, stored_state
from ottla.testing.simulation.replay import batches_on_disk, check_memory, is_compacted

LastValues = dict[bytes | None, tuple[int, bytes | None]]


def check_rest(cluster: SimulatedCluster) -> list[str]:
    """The violations; some of them may only take a while."""
    wrong: list[str] = []
    for topic_partition in partition_names(cluster):
        known = replicas_of(cluster, topic_partition)
        if any(is_compacted(each.log) for each in known):
            found = check_last_values(known)
        else:
            found = check_batches(known)
        wrong += [f"{topic_partition}: {text}" for text in found]
        ends = {each.broker_id: (each.log.log_end_offset, each.high_watermark) for each in known}
        if len(set(ends.values())) > 1 or any(end != high for end, high in ends.values()):
            wrong.append(f"{topic_partition}: ends and high watermarks are {ends}")
        wrong += [
            f"{topic_partition}: at broker {each.broker_id} the last stable offset is "
            f"{each.last_stable_offset}, and {each.high_watermark} are committed"
            for each in known
            if each.last_stable_offset != each.high_watermark
        ]
    for host in cluster.hosts:
        wrong += check_memory(host)
    return [*wrong, *check_registry(cluster)]


def partition_names(cluster: SimulatedCluster) -> list[TopicPartition]:
    """Every partition that some broker has."""
    names = {each.topic_partition for host in cluster.hosts for each in partitions_of(host)}
    return sorted(names)


def partitions_without_logs(cluster: SimulatedCluster) -> list[TopicPartition]:
    """Those without a leader, as the only replica in sync must not lead: it may have lost a log."""
    states = stored_states(cluster)
    return [
        topic_partition
        for host in cluster.hosts
        if host.broker is not None
        for topic_partition in sorted(host.broker.replica_manager.lost_logs & states.keys())
        if states[topic_partition].leader == NO_LEADER
        and states[topic_partition].isr == (host.broker_id,)
    ]


def check_batches(replicas: Iterable[Partition]) -> Iterator[str]:
    """Compare the replicas of a partition that is not compacted, batch by batch."""
    replicas = list(replicas)
    start = max(each.log.log_start_offset for each in replicas)
    end = min(each.high_watermark for each in replicas)
    first: dict[int, bytes] | None = None
    for replica in replicas:
        found = {
            batch.base_offset: bytes(batch.view)
            for batch in batches_on_disk(replica.log)
            if batch.base_offset >= start and batch.next_offset <= end
        }
        first = found if first is None else first
        different = [
            at for at in sorted(first.keys() | found.keys()) if first.get(at) != found.get(at)
        ]
        if different:
            yield (
                f"the batches of brokers {replicas[0].broker_id} and {replica.broker_id} are not "
                f"the same at {different[:3]}"
            )


def check_log_matching(cluster: SimulatedCluster) -> Iterator[str]:
    """Compare the batches of replicas, committed or not: an offset and an epoch name one batch."""
    seen: dict[tuple[TopicPartition, UUID, int, int], bytes] = {}
    for host in cluster.hosts:
        for replica in partitions_of(host) if host.is_alive else ():
            if is_compacted(replica.log) or replica.log.log_dir.is_offline:
                continue
            lineage = replica.topic_partition, replica.topic_id
            for batch in batches_on_disk(replica.log):
                key = *lineage, batch.base_offset, batch.partition_leader_epoch
                if seen.setdefault(key, bytes(batch.view)) != batch.view:
                    yield (
                        f"{host.name}: {lineage[0]}: the batch at offset {key[2]} in epoch "
                        f"{key[3]} is not that of another broker"
                    )


class LogStarts:
    """The beginnings of logs: none ever falls, unless the log is cut off before it."""

    def __init__(self) -> None:
        self._seen: dict[Log, tuple[int, int]] = {}

    def check(self, cluster: SimulatedCluster) -> Iterator[str]:
        """Compare the logs of all brokers with their state at the last check."""
        for host in cluster.hosts:
            for partition in partitions_of(host) if host.is_alive else ():
                log = partition.log
                start, end = self._seen.get(log, (0, 0))
                if log.log_start_offset < start and log.log_end_offset >= end:
                    yield (
                        f"{host.name}: {partition.topic_partition} begins at "
                        f"{log.log_start_offset}; it had begun at {start}"
                    )
                self._seen[log] = log.log_start_offset, log.log_end_offset


def check_last_values(replicas: Iterable[Partition]) -> Iterator[str]:
    """Compare the last value of each key, among the records that are committed everywhere."""
    replicas = list(replicas)
    end = min(each.high_watermark for each in replicas)
    found = {each.broker_id: last_values(each, end) for each in replicas}
    first = found[replicas[0].broker_id]
    for broker_id, values in found.items():
        keys = [key for key in first.keys() | values.keys() if first.get(key) != values.get(key)]
        if keys:
            yield (
                f"the last values of {len(keys)} keys at broker {broker_id} are not those at "
                f"{replicas[0].broker_id}: {keys[0]!r} has {values.get(keys[0])} and "
                f"{first.get(keys[0])}"
            )


def last_values(replica: Partition, end: int) -> LastValues:
    """Each key's last value that is not null, with its offset; none of open transactions."""
    last: LastValues = {}
    waiting: defaultdict[int, list[Record]] = defaultdict(list)
    for batch in batches_on_disk(replica.log):
        if batch.next_offset > end:
            break
        for record in _decided(batch, waiting):
            if last.get(record.key, (-1, None))[0] < record.offset:
                last[record.key] = record.offset, record.value
    return {key: each for key, each in last.items() if each[1] is not None}


def _decided(batch: RecordBatch, waiting: defaultdict[int, list[Record]]) -> list[Record]:
    """The records that count with this batch: its own, or those that its marker commits."""
    if batch.is_control:
        marker, records = end_of_transaction(batch), waiting.pop(batch.producer_id, [])
        return records if marker is not None and marker.is_commit else []
    if batch.is_transactional:
        waiting[batch.producer_id] += batch.records()
        return []
    return list(batch.records())


def check_registry(cluster: SimulatedCluster) -> Iterator[str]:
    """Compare all that know of topics and leaders with the registry."""
    topics, states = stored_topics(cluster), stored_states(cluster)
    active = [
        host.broker.controller.context
        for host in cluster.hosts
        if host.is_running and host.broker is not None and host.broker.controller.is_active
    ]
    if len(active) != 1:
        yield f"there are {len(active)} controllers"
        return
    yield from _check_controller(active[0], topics, states)
    for host in cluster.hosts:
        for text in _check_broker(host, topics, states):
            yield f"{host.name}: {text}"
        for text in check_directories(host, topics):
            yield f"{host.name}: {text}"


def stored_topics(cluster: SimulatedCluster) -> dict[str, TopicNode]:
    """The topics in the registry."""
    nodes = cluster.zookeeper.tree.find(paths.TOPICS).children
    return {name: TopicNode.decode(name, node.data) for name, node in nodes.items()}


def stored_states(cluster: SimulatedCluster) -> dict[TopicPartition, LeaderAndIsr]:
    """Leader and ISR of each partition in the registry."""
    tree = cluster.zookeeper.tree
    return {
        TopicPartition(name, index): stored_state(cluster, TopicPartition(name, index))
        for name, topic in stored_topics(cluster).items()
        for index in topic.assignment
        if "partitions" in tree.find(paths.topic(name)).children
    }


def _check_controller(
    context: ControllerContext,
    topics: dict[str, TopicNode],
    states: dict[TopicPartition, LeaderAndIsr],
) -> Iterator[str]:
    known = {topic.name: topic.node() for topic in context.topics.values()}
    for name in topics.keys() | known.keys():
        if topics.get(name) != known.get(name):
            yield f"topic {name} is {topics.get(name)}, and the controller has {known.get(name)}"
        if name in topics and (topics[name].adding or topics[name].removing):
            yield f"topic {name} is still being reassigned: {topics[name]}"
    if context.topics_to_delete:
        yield f"topics {sorted(context.topics_to_delete)} are still being deleted"
    for topic_partition, state in states.items():
        in_memory = context.state(topic_partition)
        replicas = topics[topic_partition.topic].assignment[topic_partition.partition]
        if set(state.isr) != set(replicas):
            yield f"{topic_partition} has the replicas {replicas}; {state}"
        if in_memory != state:
            yield f"{topic_partition} has {state}, and the controller has {in_memory}"


def _check_broker(
    host: Host, topics: dict[str, TopicNode], states: dict[TopicPartition, LeaderAndIsr]
) -> Iterator[str]:
    """Check the metadata that a broker serves, and the states of its partitions."""
    if host.broker is None:
        return
    cached = {topic.name: topic for topic in host.broker.cache.topics()}
    if cached.keys() != topics.keys():
        yield f"it tells clients of {sorted(cached.keys() ^ topics.keys())}"
    for topic_partition, stored in states.items():
        topic = cached.get(topic_partition.topic)
        told = topic and topic.partitions.get(topic_partition.partition)
        if told is None or told.leader_and_isr[:3] != stored[:3]:
            yield f"it tells clients of {topic_partition} {told}; it is {stored}"
        elif told.topic_id != topics[topic_partition.topic].topic_id:
            yield f"it tells clients that {topic_partition} is of topic id {told.topic_id}"
    for partition in partitions_of(host):
        state = states.get(partition.topic_partition)
        own = partition.leader, partition.leader_epoch
        if state is not None and own != (state.leader, state.leader_epoch):
            yield f"{partition.topic_partition} goes by leader and epoch {own}; it is {state}"
        leadership = partition.leadership
        if state is None or leadership is None:
            continue
        in_sync = leadership.in_sync.committed
        if set(in_sync) != set(state.isr):
            yield f"{partition.topic_partition} goes by {in_sync} in sync; it is {state}"


def check_directories(host: Host, topics: dict[str, TopicNode]) -> Iterator[str]:
    """Check that each replica has one log, in one directory, and nothing else has any."""
    assigned = {
        TopicPartition(name, index)
        for name, topic in topics.items()
        for index, replicas in topic.assignment.items()
        if host.broker_id in replicas
    }
    names = [
        name for path in host.cluster.log_dirs for name in MemoryDisk.list_dir(host.disk, path)
    ]
    found = Counter(filter(None, map(parse_partition_dir, names)))
    if set(found) != assigned:
        strays, missing = sorted(set(found) - assigned), sorted(assigned - set(found))
        yield f"it has logs of {strays}, none of {missing}"
    yield from (f"it has {count} logs of {each}" for each, count in found.items() if count > 1)
    if host.broker is not None:
        logs = {log.topic_partition for log in host.broker.log_manager.all_logs()}
        if logs != assigned:
            yield f"it has open logs of {sorted(logs)}; {sorted(assigned)} are assigned to it"
    yield from (f"{name} has not ended its move" for name in names if parse_future_dir(name))
