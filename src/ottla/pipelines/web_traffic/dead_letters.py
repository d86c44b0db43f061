"""The topic for records that could not be used, so that nothing is dropped silently.

A batch that is replayed publishes its dead letters again; the headers tell which record each one
was.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.clients.producer.producer import Producer


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The value of a record, where the record is, and why it could not be used."""

    value: bytes | None
    topic: str
    partition: int
    offset: int
    reason: str

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        return (
            ("source.topic", self.topic.encode()),
            ("source.partition", str(self.partition).encode()),
            ("source.offset", str(self.offset).encode()),
            ("reason", self.reason.encode()),
        )


def dead_letter_topic(topic: str) -> str:
    return f"{topic}.dead-letter"


def publish(bootstrap_servers: str, topic: str, letters: Iterable[DeadLetter]) -> int:
    """Send the letters and return how many were acknowledged; a failed one raises."""
    futures = []
    producer: Producer | None = None
    try:
        for letter in letters:
            if producer is None:
                producer = Producer(bootstrap_servers, acks="all", linger_ms=5)
            futures.append(producer.send(topic, letter.value, headers=letter.headers))
        if producer is not None:
            producer.flush()
    finally:
        if producer is not None:
            producer.close()
    for future in futures:
        future.result()
    return len(futures)
