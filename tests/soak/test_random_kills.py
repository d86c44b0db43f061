"""A load on one broker process that is killed again and again at any moment."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.processes import BrokerProcess

TOPIC = "soak"
GROUP = "soak-readers"
PARTITIONS = 4
IN_THE_AIR = 2000
BURST = 100
SECONDS_BETWEEN_BURSTS = 0.01
SECONDS_BETWEEN_KILLS = (1.0, 8.0)
LIMIT_SECONDS = 120
SETTINGS = {
    "log.segment.bytes": 5_000_000,
    "log.flush.offset.checkpoint.interval.ms": 2000,
    "group.initial.rebalance.delay.ms": 0,
}
CLIENT = {"log_level": 0, "retry.backoff.ms": 20, "reconnect.backoff.max.ms": 100}


class Load:
    """An idempotent producer with acks=all and a member of a group, each in a thread.

    Each partition gets the numbers 0, 1, 2, ... in this order.
    """

    def __init__(self, process: BrokerProcess) -> None:
        self.servers = {"bootstrap.servers": process.bootstrap_servers, **CLIENT}
        self.done = threading.Event()
        self.sent: Counter[int] = Counter()
        self.acknowledged: Counter[int] = Counter()
        self.consumed: Counter[int] = Counter()
        self.repeated = 0
        self.problems: list[str] = []
        self.threads = [
            threading.Thread(target=self.produce),
            threading.Thread(target=self.consume),
        ]
        for thread in self.threads:
            thread.start()

    def produce(self) -> None:
        producer = Producer({**self.servers, "enable.idempotence": True, "linger.ms": 2})
        while not self.done.is_set():
            if self.sent.total() - self.acknowledged.total() >= IN_THE_AIR:
                producer.poll(0.01)
                continue
            if self.sent.total() % BURST == 0:
                self.done.wait(SECONDS_BETWEEN_BURSTS)
            partition = random.randrange(PARTITIONS)
            value = b"%010d" % self.sent[partition]
            self.sent[partition] += 1
            producer.produce(TOPIC, value, partition=partition, on_delivery=self.on_delivery)
            producer.poll(0)
        producer.flush(LIMIT_SECONDS)

    def on_delivery(self, error, message) -> None:
        partition, number = message.partition(), int(message.value())
        if error is not None:
            self.problems.append(f"{partition}: {number} was refused: {error}")
        elif number != self.acknowledged[partition]:
            self.problems.append(f"{partition}: {number} was acknowledged out of order")
        self.acknowledged[partition] += 1

    def consume(self) -> None:
        """Read as a group, committing now and then, until everything sent has come."""
        consumer = Consumer({**self.servers, "group.id": GROUP, "auto.offset.reset": "earliest"})
        consumer.subscribe([TOPIC])
        idle = 0
        while idle < LIMIT_SECONDS and not (self.done.is_set() and self.has_read_all()):
            message = consumer.poll(1)
            idle = 0 if message is not None else idle + 1
            if message is not None and message.error() is None:
                self.note(message.partition(), message.offset(), int(message.value()))
        consumer.close()

    def note(self, partition: int, offset: int, number: int) -> None:
        """A record has come: what was not committed before a kill may come again."""
        if offset != number:
            self.problems.append(f"{partition}: {number} was read at offset {offset}")
        if offset > self.consumed[partition]:
            self.problems.append(f"{partition}: {offset} was read after {self.consumed[partition]}")
        self.repeated += offset < self.consumed[partition]
        self.consumed[partition] = max(self.consumed[partition], offset + 1)

    def has_read_all(self) -> bool:
        """Whether the reader has the last acknowledged number of each partition."""
        return not self.threads[0].is_alive() and self.consumed == self.acknowledged

    def finish(self) -> None:
        self.done.set()
        for thread in self.threads:
            thread.join(2 * LIMIT_SECONDS)
            assert not thread.is_alive(), "the load does not come to its end"


def count_held(process: BrokerProcess, partition: int) -> int:
    """How many numbers the log of a partition holds; each must be in its place."""
    consumer = Consumer(
        {
            "bootstrap.servers": process.bootstrap_servers,
            "group.id": "check",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    count = 0
    while True:
        message = consumer.poll(LIMIT_SECONDS)
        assert message is not None, "the reader waited in vain"
        if message.error() is not None:
            consumer.close()
            return count
        assert (message.offset(), int(message.value())) == (count, count)
        count += 1


def test_a_load_survives_random_kills(tmp_path, soak_seconds):
    """Whatever was acknowledged is there once and in order, and the group reads on where it was."""
    process = BrokerProcess(tmp_path / "data", **SETTINGS).start()
    admin = AdminClient({"bootstrap.servers": process.bootstrap_servers, **CLIENT})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
    load = Load(process)
    kills, stops = 0, 0
    end, pause = time.monotonic() + soak_seconds, threading.Event()
    while (left := end - time.monotonic()) > 0:  # starts of the broker included
        pause.wait(min(left, random.uniform(*SECONDS_BETWEEN_KILLS)))
        if random.random() < 0.1:
            assert process.stop() == 0
            stops += 1
        else:
            process.kill()
            kills += 1
        process.start()
    load.finish()
    held = Counter({index: count_held(process, index) for index in range(PARTITIONS)})
    process.stop()
    print(
        f"{kills} kills and {stops} clean stops in {soak_seconds} s: {load.sent.total()} sent, "
        f"{load.acknowledged.total()} acknowledged, {held.total()} held once and in order, "
        f"{load.consumed.total()} read by the group and {load.repeated} of them again"
    )

    assert load.problems == []
    assert load.acknowledged == load.sent == held == load.consumed
