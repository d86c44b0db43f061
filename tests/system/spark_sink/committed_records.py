"""What counts in a topic: the view of read_committed readers."""

from __future__ import annotations

import ottla


def committed_values(servers, topic, partitions=2):
    """Every value that counts, sorted; there is nothing that readers must wait for."""
    return sorted(value.decode() for _, value in committed_pairs(servers, topic, partitions))


def committed_pairs(servers, topic, partitions=1):
    """Keys and values that count, in the order of their offsets; nothing is open."""
    places = [ottla.TopicPartition(topic, p) for p in range(partitions)]
    asked = dict.fromkeys(places, -1)
    with ottla.Admin(servers) as admin:
        ends = {each: found.offset for each, found in admin.list_offsets(asked).items()}
        stable = admin.list_offsets(asked, "read_committed")
    assert {each: found.offset for each, found in stable.items()} == ends, "something is open"
    settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    with ottla.Consumer(servers, enable_auto_commit=False, **settings) as consumer:
        consumer.assign(places)
        found = []
        while any(consumer.position(each) < ends[each] for each in places):
            found += [(record.key, record.value) for record in consumer.poll(1)]
    return found
