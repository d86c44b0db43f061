"""How often the brokers have removed a group, as the topic of groups and offsets tells."""

from __future__ import annotations

from ottla.protocol.message import encode_versioned
from ottla.protocol.offsets_topic import ConsumerGroupMetadataKey, GroupMetadataKey
from ottla.replication.partition import Partition
from ottla.structs import OFFSETS_TOPIC, TopicPartition
from ottla.testing.simulation.cluster import SimulatedCluster
from ottla.testing.simulation.invariants import batches_of, partitions_of


def count_removals(cluster: SimulatedCluster, group_id: str) -> int:
    """The batches that leave nothing of the group, in what is committed.

    A group that goes over to the consumer protocol loses the record of one kind as well, but gets
    one of the other kind in the same batch. One that goes back to the classic protocol is counted:
    if its coordinator dies before it has members again, its generations begin anew.
    """
    kinds = GroupMetadataKey(group=group_id), ConsumerGroupMetadataKey(group=group_id)
    keys = {encode_versioned(key, key.max_version) for key in kinds}
    logs: dict[TopicPartition, Partition] = {}
    for host in cluster.hosts:
        for partition in partitions_of(host) if host.is_running else ():
            name = partition.topic_partition
            if name.topic == OFFSETS_TOPIC:
                known = logs.setdefault(name, partition)
                logs[name] = max(known, partition, key=lambda each: each.high_watermark)
    count = 0
    for partition in logs.values():
        start, end = partition.log.log_start_offset, partition.high_watermark
        for batch in batches_of(partition, start, end):
            values = [record.value for record in batch.records() if record.key in keys]
            count += bool(values) and not any(values)
    return count
