"""A steady load on a topic, and what must be true of it whatever befalls the brokers."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic, PartitionMetadata

from ottla.testing import wait_until

LIMIT_S = 60.0
"""For what hangs: on a busy machine a failover alone may take a quarter of a minute."""
SHORT_S = 5.0
TRIES = 3
SESSION_MS = 4000
"""Of brokers at ZooKeeper: one that lives and waits for a processor must not lose its own."""
PACE_S = 0.01
A_FEW, MANY = 2, 20
"""How many numbers come at once: 200 in a second are a load, what more are takes a core."""
ON_THEIR_WAY = 3
"""Batches of a partition at most. While one has more than librdkafka lets an idempotent producer
send, its threads spin: five, and fewer where batches were split."""
QUIET = {"log_level": 0}
LASTING = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 5,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.interval.ms": 1_000,
    "reconnect.backoff.max.ms": 200,
    **QUIET,
}
"""A producer that goes on soon after whatever befalls the brokers."""


class ClusterView:
    """The cluster as a client's metadata show it."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers, **QUIET})

    def create(self, topic: str, partitions: int = 3, replicas: int = 3, **config: str) -> None:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        new = NewTopic(topic, partitions, replicas, config=settings)
        wait_until(lambda: self.is_created(new), f"{topic} is created")
        wait_until(lambda: self.leaders(topic).get(0, -1) >= 0, f"{topic} has leaders")

    def is_created(self, topic: NewTopic) -> bool:
        """Whether the brokers are enough for its replicas.

        On a busy machine the session of one may expire that lives: it is not there for a moment.
        """
        try:
            self.admin.create_topics([topic])[topic.topic].result(LIMIT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
                raise
            return False
        return True

    def leaders(self, topic: str) -> dict[int, int]:
        """The leader of each partition; none for a topic that the broker asked knows not yet."""
        return {p.id: p.leader for p in self._partitions(topic)}

    def in_sync(self, topic: str) -> dict[int, list[int]]:
        """The in-sync replicas of each partition; none for a topic that is not known yet."""
        return {p.id: sorted(p.isrs) for p in self._partitions(topic)}

    def controller(self) -> int:
        """-1 where there is none, or where it is not known."""
        metadata = self._metadata()
        return -1 if metadata is None else metadata.controller_id

    def brokers(self) -> list[int]:
        """Those that are registered."""
        metadata = self._metadata()
        return [] if metadata is None else sorted(metadata.brokers)

    def is_whole(self, brokers: list[int]) -> bool:
        """Whether these brokers are there and each partition has a leader and all its replicas."""
        metadata = self._metadata()
        return (
            metadata is not None
            and sorted(metadata.brokers) == brokers
            and metadata.controller_id in brokers
            and all(
                p.leader >= 0 and sorted(p.isrs) == sorted(p.replicas)
                for topic in metadata.topics.values()
                for p in topic.partitions.values()
            )
        )

    def until_all_in_sync(self, topic: str, brokers: list[int]) -> None:
        def is_in_sync() -> bool:
            found = self.in_sync(topic).values()
            return bool(found) and all(isr == brokers for isr in found)

        wait_until(is_in_sync, f"all replicas of {topic} are in sync")

    def until_others_lead(self, topic: str, broker: int) -> None:
        """Wait until each partition is led by another one than this broker."""

        def has_moved() -> bool:
            found = self.leaders(topic).values()
            return bool(found) and not {-1, broker} & set(found)

        wait_until(has_moved, f"others than broker {broker} lead {topic}")

    def _partitions(self, topic: str) -> list[PartitionMetadata]:
        metadata = self._metadata()
        found = None if metadata is None else metadata.topics.get(topic)
        return [] if found is None else list(found.partitions.values())

    def _metadata(self) -> ClusterMetadata | None:
        """None where brokers were asked again and again that are gone: whoever waits goes on."""
        for _ in range(TRIES):
            try:
                return self.admin.list_topics(timeout=SHORT_S)
            except KafkaException:
                continue
        return None


class SteadyLoad:
    """Numbers, written to each partition in turn by an idempotent producer with acks=all.

    `acknowledged` has the numbers by partition; a number that failed may be there or not. Settings
    are those of its clients, as a login.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions: int = 3,
        *,
        at_once: int = A_FEW,
        **settings: str,
    ) -> None:
        self.topic = topic
        self.at_once = at_once
        self._settings = settings
        self.partitions = partitions
        self.acknowledged: dict[int, list[int]] = {index: [] for index in range(partitions)}
        self.failed: list[str] = []
        self.longest_gap_s = 0.0
        self._last_ack_s: dict[int, float] = {}
        self._in_flight = dict.fromkeys(range(partitions), 0)
        self._next = 0
        self._bootstrap_servers = bootstrap_servers
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "message.timeout.ms": 60_000,
                **LASTING,
                # librdkafka may ask a broker that hangs who leads, again and again, for that long.
                "socket.timeout.ms": int(SHORT_S * 1000),
                **settings,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> SteadyLoad:
        self._thread.start()
        self.until_more(1)
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()

    def end(self) -> None:
        """Write no more, and wait for what is on its way."""
        self._stop.set()
        self._thread.join(LIMIT_S)
        assert self._producer.flush(LIMIT_S) == 0, "records are still on their way"

    def until_more(self, count: int = 100) -> None:
        """Wait until each partition has acknowledged so many of those that are not sent yet.

        What was sent before may have been acknowledged before, and its callback still to come.
        """
        wanted = self._next + count

        def has_more() -> bool:
            return all(numbers and numbers[-1] >= wanted for numbers in self.acknowledged.values())

        wait_until(has_more, f"{count} more records in each partition")

    def _run(self) -> None:
        while not self._stop.is_set():
            self._send_some()
            self._producer.poll(0)
            self._stop.wait(PACE_S)

    def _send_some(self) -> None:
        """Some numbers to each partition that has not as much on its way as there can be."""
        most = ON_THEIR_WAY * self.at_once
        ready = [index for index, count in self._in_flight.items() if count < most]
        for _ in range(self.at_once):
            for partition in ready:
                self._in_flight[partition] += 1
                self._producer.produce(
                    self.topic,
                    str(self._next).encode(),
                    partition=partition,
                    on_delivery=self._on_delivery,
                )
            self._next += 1

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        self._in_flight[message.partition()] -= 1
        if error is not None:
            self.failed.append(str(error))
            return
        partition, now_s = message.partition(), time.monotonic()
        last_s = self._last_ack_s.get(partition, now_s)
        self.longest_gap_s = max(self.longest_gap_s, now_s - last_s)
        self._last_ack_s[partition] = now_s
        self.acknowledged[partition].append(int(message.value()))

    def check(self) -> None:
        """Read everything: nothing is lost, nothing is there twice, the order is the writer's."""
        assert not self.failed, self.failed[:3]
        for partition, numbers in self.acknowledged.items():
            read = read_numbers(
                self._bootstrap_servers, self.topic, partition, len(numbers), **self._settings
            )
            assert read == sorted(set(read)), f"partition {partition}: duplicated or reordered"
            assert read == numbers, f"partition {partition}: {len(read)} of {len(numbers)}"


def read_numbers(
    bootstrap_servers: str, topic: str, partition: int, count: int, **settings: object
) -> list[int]:
    """The numbers in a partition: `count` of them, and what comes after them at once."""
    found = read_places(bootstrap_servers, topic, partition, count, **settings)
    return [number for number, _ in found]


def read_places(
    bootstrap_servers: str,
    topic: str,
    partition: int,
    count: int = 0,
    *,
    limit_s: float = LIMIT_S,
    **settings: object,
) -> list[tuple[int, int]]:
    """The same numbers, each with its offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **QUIET,
            **settings,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    read: list[tuple[int, int]] = []

    def is_at_the_end() -> bool:
        for message in consumer.consume(1000, 0.2):
            error = message.error()
            if error is None:
                read.append((int(message.value()), message.offset()))
            elif error.code() == KafkaError._PARTITION_EOF and len(read) >= count:
                return True
        return False

    try:
        what = f"the end of {topic}-{partition}, behind {count} records"
        wait_until(is_at_the_end, what, limit_s, seen=lambda: f"{len(read)} records")
    finally:
        consumer.close()
    return read
