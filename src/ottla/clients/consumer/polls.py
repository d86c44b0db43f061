"""Polls that end: up to the offsets at which a reader has found the ends of its partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from ottla.clients.consumer.consumer import Consumer
    from ottla.record.consumer_record import ConsumerRecord


def polls_up_to(
    consumer: Consumer, ends: Mapping[TopicPartition, int], poll_ms: int
) -> Iterator[list[ConsumerRecord]]:
    """The results of polls until the positions have reached these ends.

    After a poll without records the ends are asked for again: a topic that was created again, or
    cut by an unclean election, may never grow so long. KafkaError if a topic was deleted.
    """
    left = dict(ends)
    while left := {each: end for each, end in left.items() if consumer.position(each) < end}:
        records = consumer.poll(poll_ms)
        yield records
        if not records:
            now = consumer.end_offsets(list(left))
            left = {each: min(end, now[each]) for each, end in left.items()}
