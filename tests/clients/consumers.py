"""Consumers and a topic for them to read, as several tests need them."""

from __future__ import annotations

from ottla import Admin, Consumer, NewTopic, Producer, RebalanceListener, TopicPartition
from ottla.testing import wait_until

LIMIT_SECONDS = 100
PARTITIONS = 3


def fill(broker, name) -> str:
    """Make a topic with three partitions of a hundred records, `partition number` each."""
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(100):
            for partition in range(PARTITIONS):
                producer.send(
                    name, f"{partition} {number}", partition=partition, timestamp_ms=1000 + number
                )
    return name


def consumer_of(broker, **settings) -> Consumer:
    settings.setdefault("auto_offset_reset", "earliest")
    settings.setdefault("enable_auto_commit", False)
    if "group_protocol" not in settings:
        settings.setdefault("heartbeat_interval_ms", 100)
    return Consumer(broker.bootstrap_servers, **settings)


def partitions_of(topic, *numbers) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers or range(PARTITIONS)]


def read(consumers, count) -> list:
    """Poll the consumers in turn until so many records have come."""
    consumers = consumers if isinstance(consumers, list) else [consumers]
    records = []

    def poll() -> None:
        for consumer in consumers:
            records.extend(consumer.poll(50))

    wait_until(
        lambda: len(records) >= count,
        f"{count} records",
        LIMIT_SECONDS,
        seen=lambda: len(records),
        meanwhile=poll,
    )
    return records


def poll_until(consumers, condition, what="another assignment") -> None:
    """Poll the consumers in turn until the condition holds."""
    wait_until(
        condition,
        what,
        LIMIT_SECONDS,
        seen=lambda: [sorted(map(str, consumer.assignment())) for consumer in consumers],
        meanwhile=lambda: [consumer.poll(50) for consumer in consumers],
    )


class Journal(RebalanceListener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.events: list = []

    def on_partitions_assigned(self, partitions):
        self.events.append(("assigned", len(partitions)))

    def on_partitions_revoked(self, partitions):
        self.events.append(("revoked", len(partitions)))
