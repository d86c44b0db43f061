"""A load of numbers, somebody who reads it all the time, and what became of the numbers."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise

from broker_requests import STRANGER
from cluster_load import LASTING, QUIET
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from ottla.testing import wait_until

RATE = 1500
TICK_S = 0.01
PARTITIONS = 3
AT_ONCE = int(RATE * TICK_S / PARTITIONS)
IN_THE_AIR, A_FEW_IN_THE_AIR = 60_000, PARTITIONS * AT_ONCE
"""How many numbers may be on their way. While the answers of a leader wait for its followers,
librdkafka's threads spin if an idempotent producer has more than a batch for each partition."""
REQUEST_S = 3.0
"""How long the producer takes to notice a leader that hangs, or that is none any more."""
LIMIT_S = 120.0
"""How long anything may take that is not said to be quick: a busy machine takes long."""


@dataclass(slots=True)
class History:
    """What was acknowledged and what is there, by partition, in order.

    `acked` has the offset that each number was given; librdkafka does not know that of one which
    was there already when it was sent again. `places` has the offset where it is. `seen` is what a
    reader saw meanwhile: the number at each offset.
    """

    acked: dict[int, dict[int, int]]
    seen: dict[int, dict[int, int]]
    read: dict[int, list[int]] = field(default_factory=dict)
    places: dict[int, dict[int, int]] = field(default_factory=dict)
    strangers: list[int] = field(default_factory=list)
    """The offsets of what came past the load, to partition 0."""

    def add(self, partition: int, found: list[tuple[int, int]]) -> None:
        """What is there in the end: numbers, each with its offset."""
        own = [(number, offset) for number, offset in found if number != STRANGER]
        self.read[partition] = [number for number, _ in own]
        self.places[partition] = dict(own)
        self.strangers += [offset for number, offset in found if number == STRANGER]

    @property
    def lost(self) -> int:
        return sum(len(set(self.acked[p]) - set(self.read[p])) for p in self.acked)

    @property
    def duplicated(self) -> int:
        return sum(len(numbers) - len(set(numbers)) for numbers in self.read.values())

    @property
    def moved(self) -> int:
        """How many are not where the acknowledgement said."""
        return sum(
            offset >= 0 and self.places[partition].get(number, offset) != offset
            for partition, numbers in self.acked.items()
            for number, offset in numbers.items()
        )

    @property
    def reordered(self) -> int:
        return sum(
            later < earlier
            for numbers in self.read.values()
            for earlier, later in pairwise(numbers)
        )

    @property
    def gone(self) -> int:
        """How many somebody has read that are not there any more."""
        return sum(
            offset not in self.strangers if number == STRANGER else places.get(number) != offset
            for places, seen in ((self.places[p], self.seen[p]) for p in self.seen)
            for offset, number in seen.items()
        )


class ChaosLoad:
    """Numbers 0, 1, 2, ... into each partition, at a rate, with acks=all."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        in_the_air: int = IN_THE_AIR,
        **settings: object,
    ) -> None:
        self.topic = topic
        self.in_the_air = in_the_air
        self.acked: dict[int, dict[int, int]] = {index: {} for index in range(PARTITIONS)}
        self.acked_ends = [0] * PARTITIONS
        """Behind the last acknowledged record of each partition, as far as its offset is known."""
        self.problems: list[str] = []
        self.latencies_s: list[float] = []
        self.longest_gap_s = 0.0
        self.longest_gap = ""
        """Where it was, and until when."""
        self.late_s = 0.0
        """How much later than asked for the machine let the load go on, at the worst."""
        self.rate = 0.0
        """Acknowledged records a second, faults and all; known at the end."""
        self._sent = [0] * PARTITIONS
        self._last_ack_s: dict[int, float] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "message.timeout.ms": 120_000,
                **LASTING,
                "request.timeout.ms": int(REQUEST_S * 1000),
                "socket.timeout.ms": int(REQUEST_S * 1000) + 1000,
                "error_cb": self._on_error,
                **settings,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._began_s = time.monotonic()
        self._thread.start()

    @property
    def count(self) -> int:
        """How many were acknowledged so far."""
        return sum(map(len, self.acked.values()))

    @property
    def p99_ms(self) -> float:
        """How long 99 of 100 waited for their acknowledgement at most."""
        return 1000 * sorted(self.latencies_s)[len(self.latencies_s) * 99 // 100]

    def until_more(self, count: int = 100, limit_s: float = LIMIT_S) -> None:
        """Wait until each partition has acknowledged so many more."""
        before = {index: len(numbers) for index, numbers in self.acked.items()}
        wait_until(
            lambda: all(len(self.acked[p]) >= before[p] + count for p in self.acked),
            f"{count} more records in each partition",
            limit_s,
            seen=lambda: self.problems[-1:],
        )

    def end(self) -> None:
        """Write no more, and wait for what is on its way."""
        self._stop.set()
        self._thread.join(LIMIT_S)
        left = self._producer.flush(LIMIT_S)
        assert left == 0, f"{left} records are still on their way"
        self.rate = self.count / (time.monotonic() - self._began_s)

    def _run(self) -> None:
        number, due = 0, time.monotonic()
        while not self._stop.is_set():
            due += TICK_S
            on_their_way = [self._sent[p] - len(self.acked[p]) for p in range(PARTITIONS)]
            room = (self.in_the_air - sum(on_their_way)) // AT_ONCE
            if room > 0:
                first_those_with_few = sorted(range(PARTITIONS), key=on_their_way.__getitem__)
                for _ in range(AT_ONCE):
                    for partition in first_those_with_few[:room]:
                        self._sent[partition] += 1
                        self._producer.produce(
                            self.topic,
                            str(number).encode(),
                            partition=partition,
                            on_delivery=self._on_delivery,
                        )
                    number += 1
            self._producer.poll(0)
            self._rest(due)
            due = max(due, time.monotonic() - 1)

    def _rest(self, until_s: float) -> None:
        until_s = max(until_s, time.monotonic() + 0.001)
        self._stop.wait(until_s - time.monotonic())
        self.late_s = max(self.late_s, time.monotonic() - until_s)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.problems.append(f"fatal: {error}")

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.problems.append(str(error))
            return
        partition, now_s = message.partition(), time.monotonic()
        gap_s = now_s - self._last_ack_s.get(partition, now_s)
        if gap_s > self.longest_gap_s:
            self.longest_gap_s = gap_s
            self.longest_gap = f"in partition {partition}, until {time.strftime('%X')}"
        self._last_ack_s[partition] = now_s
        self.latencies_s.append(message.latency())
        self.acked[partition][int(message.value())] = message.offset()
        self.acked_ends[partition] = max(self.acked_ends[partition], message.offset() + 1)


class ConstantReader:
    """Reads the load all the time, up to the high watermark, and keeps what it saw where.

    It takes no other place by itself: where it is told that its place is gone, it stops.
    """

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.seen: dict[int, dict[int, int]] = {index: {} for index in range(PARTITIONS)}
        self.problems: list[str] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "constant reader",
                "enable.auto.commit": False,
                "isolation.level": "read_uncommitted",
                "auto.offset.reset": "error",
                "topic.metadata.refresh.interval.ms": 1_000,
                "reconnect.backoff.max.ms": 200,
                # A minute by default: so long it waits for an answer that was lost on its way.
                "socket.timeout.ms": int(REQUEST_S * 1000) + 1000,
                **QUIET,
            }
        )
        self._consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def until_at(self, ends: dict[int, int], limit_s: float = LIMIT_S) -> None:
        """Wait until it has seen all that is before these offsets."""
        wait_until(
            lambda: all(len(self.seen[p]) >= ends[p] for p in ends) or self.problems,
            f"the constant reader is at {ends}",
            limit_s,
            seen=lambda: ({p: len(self.seen[p]) for p in ends}, self.problems),
        )

    def close(self) -> None:
        self._stop.set()
        self._thread.join(LIMIT_S)
        # In a thread, since librdkafka's own can wait for each other for ever while it is closed.
        closing = threading.Thread(target=self._consumer.close, daemon=True)
        closing.start()
        closing.join(LIMIT_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(1000, 0.2):
                if message.error() is None:
                    self._note(message)
                else:
                    self.problems.append(str(message.error()))

    def _note(self, message: Message) -> None:
        seen, offset = self.seen[message.partition()], message.offset()
        if offset != len(seen):
            self.problems.append(f"offset {offset} came after {len(seen)} records")
        seen[offset] = int(message.value())
