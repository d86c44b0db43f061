"""Sends what a dead letter queue holds back to the topics that it is from.

Each record goes to the topic in its header `__connect.errors.topic`, without the headers that say
what failed; another counts how often it was sent back. How far this has got is the offset of the
group `connect-redrive-<queue>`: a record is sent once, or again after a crash before the commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.clients.consumer.consumer import Consumer
from ottla.clients.consumer.consumer_record import ConsumerRecord
from ottla.clients.producer.producer import Producer
from ottla.connect.tolerance import HEADER_PREFIX
from ottla.structs import TopicPartition

PASSES: Final = "__connect.redriven"
STEP_MS: Final = 500


class Redriven(NamedTuple):
    """How many records were sent back, and how many partitions stopped at one without a topic."""

    sent: int
    unknown: int


def group_of(queue: str) -> str:
    """The group whose offset says what was sent back."""
    return f"connect-redrive-{queue}"


def redrive(
    consumer: Consumer,
    producer: Producer,
    queue: str,
    topic: str | None = None,
    on_record: Callable[[ConsumerRecord, str], object] = lambda record, topic: None,
) -> Redriven:
    """Send back all that the queue holds now and that was not sent before.

    `topic` is for records without the header; with none, such a record stops its partition.
    Offsets are committed once all that was sent has arrived.
    """
    partitions = [TopicPartition(queue, e.partition) for e in consumer.partitions_for(queue)]
    consumer.assign(partitions)
    committed = consumer.committed(partitions)
    for place in partitions:
        if place in committed:
            consumer.seek(place, committed[place])
    ends = {place: end for place, end in consumer.end_offsets(partitions).items() if end}
    done = {place: consumer.position(place) for place in ends}
    sent = unknown = 0
    while any(consumer.position(place) < end for place, end in ends.items()):
        for record in consumer.poll(STEP_MS):
            place = TopicPartition(record.topic, record.partition)
            if record.offset >= ends.get(place, 0):
                continue  # it has come since, or a letter before it waits
            target = target_of(record) or topic
            if target is None:
                unknown += 1
                del ends[place]
                continue
            on_record(record, target)
            producer.send(target, record.value, key=record.key, headers=headers_of(record))
            done[place] = record.offset + 1
            sent += 1
    producer.flush()
    if done:
        consumer.commit(done)
    return Redriven(sent, unknown)


def target_of(record: ConsumerRecord) -> str | None:
    """The topic that a dead letter is from, if its headers say so."""
    for name, value in record.headers:
        if name == f"{HEADER_PREFIX}topic" and value is not None:
            return value.decode()
    return None


def headers_of(record: ConsumerRecord) -> list[tuple[str, bytes | None]]:
    """The headers that the record had, and how often it was sent back."""
    kept = [(n, v) for n, v in record.headers if not n.startswith(HEADER_PREFIX) and n != PASSES]
    passes = [int(value or b"0") for name, value in record.headers if name == PASSES]
    return [*kept, (PASSES, str(max(passes, default=0) + 1).encode())]
