"""What a reader of a partition sees first."""

from __future__ import annotations

from ottla import Consumer, TopicPartition

LIMIT_SECONDS = 90


def first_values(
    servers: str, partition: TopicPartition, count: int, isolation: str = "read_committed"
) -> list[bytes]:
    """The first values that a reader of this isolation level comes to see; waits for them."""
    with Consumer(servers, isolation_level=isolation, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        values: list[bytes] = []
        while len(values) < count:
            records = consumer.poll(LIMIT_SECONDS * 1000)
            assert records, f"only {values} came"
            values += [record.value for record in records]
        return values
