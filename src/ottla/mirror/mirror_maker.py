"""MirrorMaker of the first design: embedded consumers of other clusters, and one producer here.

Each consumer has a thread that reads, hands every record to the producer, and commits what it has
read only after the producer's acknowledgement: a crash repeats records and loses none. A record is
written under its topic's name. With a key it goes where the key belongs; without one its number of
partition is kept (modulo the target's count), so that the order of each partition is kept as well.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, Final, NamedTuple

from ottla.clients.client_settings import ClosedOnExit
from ottla.clients.consumer.consumer import Consumer
from ottla.clients.consumer.subscription_state import RebalanceListener
from ottla.clients.legacy.consumer_connector import ConsumerConnector
from ottla.clients.legacy.kafka_stream import ConsumerTimeoutError
from ottla.clients.legacy.topic_filter import TopicFilter
from ottla.clients.producer.producer import Producer
from ottla.clients.producer.producer_interceptors import ProducerRecord
from ottla.config.config_type import CLASS, INT_MAX
from ottla.errors import ConfigError, KafkaError, KafkaTimeoutError
from ottla.record.consumer_record import ConsumerRecord, TimestampType
from ottla.runtime.clock import Clock
from ottla.runtime.io_thread import Event, Lock
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

WAIT_MS: Final = 200
FLUSH_S: Final = 1.0
END_LIMIT_MS: Final = 30_000
MESSAGES_AT_ONCE: Final = 500
CONSUMER_SETTINGS: Final = {"auto.offset.reset": "earliest"}
"""A topic that is found late is copied from its beginning; the property file may say otherwise."""
PRODUCER_SETTINGS: Final = {
    "acks": "all",
    "delivery.timeout.ms": str(INT_MAX),
    "max.block.ms": str(INT_MAX),
}
"""While the target is away the mirror waits. The property file may say otherwise."""
ZOOKEEPER_KEYS: Final = ("zk.connect", "zookeeper.connect")

Handler = Callable[[ConsumerRecord], Sequence[ProducerRecord]]
"""What is sent for a record that was read: any number of records, to topics of its choice."""


class MirrorMaker(ClosedOnExit):
    """All streams of a mirror and the producer that they share.

    `run` returns after `stop`, or raises the error of the stream that ended first. What was read
    is then sent, acknowledged and committed; after a record that could not be sent nothing is.
    """

    def __init__(
        self,
        sources: Sequence[MirrorSource],
        producer: Producer,
        clock: Clock,
        rules: MirrorMakerRules | None = None,
    ) -> None:
        self.copied = self.dropped = 0
        self.rules = rules or MirrorMakerRules()
        self.clock = clock
        self._producer = producer
        self._streams = [MirrorStream(source, self) for source in sources]
        self._failure: KafkaError | None = None
        self._is_over = Event()
        self._lock = Lock()
        self._counts: dict[str, int] = {}

    @property
    def is_over(self) -> bool:
        return self._is_over.is_set()

    def run(self) -> None:
        """Copy until `stop` is called or a stream fails, and that stops the others."""
        with ThreadPoolExecutor(len(self._streams), thread_name_prefix="ottla-mirror") as threads:
            running = [threads.submit(stream.run) for stream in self._streams]
            try:
                wait(running, return_when=FIRST_COMPLETED)
            finally:
                self.stop()
        _raise_first(running)

    def stop(self) -> None:
        """Have `run` end soon; callable from any thread."""
        self._is_over.set()

    def close(self) -> None:
        """Stop, and close the consumers and the producer."""
        self.stop()
        for stream in self._streams:
            stream.source.close()
        self._producer.close(0)

    def send(self, record: ConsumerRecord) -> None:
        """Queue what to write for one record; blocks while the producer is full."""
        handler = self.rules.handler
        if handler is None:
            self._send(self._as_it_is(record))
        else:
            for each in handler(record):
                self._send(each)

    def flush(self) -> None:
        """Wait until all that was queued is written; raises the error of a record that was not.

        While the target is away this waits, at most END_LIMIT_MS once the mirror is stopped.
        """
        until_ms: int | None = None
        while True:
            try:
                self._producer.flush(FLUSH_S)
                break
            except KafkaTimeoutError:
                now_ms = self.clock.monotonic_ms()
                if self.is_over:
                    until_ms = until_ms or now_ms + END_LIMIT_MS
                    if now_ms > until_ms:
                        raise
        self.check()

    def check(self) -> None:
        """Raise the error of a record that could not be sent, unless such records are dropped."""
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    def _as_it_is(self, record: ConsumerRecord) -> ProducerRecord:
        partition = None
        if record.key is None:
            partition = record.partition % self._partition_count(record.topic)
        timestamp_ms = record.timestamp_ms if record.timestamp_ms >= 0 else None
        return ProducerRecord(
            record.topic, record.value, record.key, record.headers, partition, timestamp_ms
        )

    def _partition_count(self, topic: str) -> int:
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = len(self._producer.partitions_for(topic))
        return count

    def _send(self, record: ProducerRecord) -> None:
        self.check()
        try:
            self._producer.send(**record._asdict(), on_delivery=self._told)
        except KafkaError as error:
            self._told(None, error)

    def _told(self, metadata: Any, error: KafkaError | None) -> None:
        with self._lock:
            if error is None:
                self.copied += 1
                return
            self.dropped += 1
            if self.rules.abort_on_send_failure and self._failure is None:
                self._failure = error
        logger.error("a record could not be sent: %s", error)


def message_handler(name: str | None, argument: str | None) -> Handler | None:
    """The handler that `package.module.Name` stands for: a function, or a class with `handle`.

    The class is made with the argument, if there is one.
    """
    if name is None:
        return None
    found = CLASS.parse("message.handler", name)
    if not isinstance(found, type):
        if argument is not None:
            raise ConfigError(f"message.handler.args={argument}: {name} is a function, not a class")
        return found  # type: ignore[no-any-return] # whatever the user's module has
    made = found() if argument is None else found(argument)
    if not hasattr(made, "handle"):
        raise ConfigError(f"message.handler={name}: the class must have a method handle(record)")
    return made.handle  # type: ignore[no-any-return] # whatever the user's module has


class MirrorSource(ClosedOnExit):
    """A consumer of one source cluster, as the mirror needs it; for one thread."""

    @abstractmethod
    def poll(self) -> list[ConsumerRecord]:
        """The next records; waits a moment where there are none."""

    @abstractmethod
    def commit(self) -> None:
        """Commit all that `poll` has returned."""


class GroupSource(MirrorSource, RebalanceListener):
    """A member of a consumer group of today, which the brokers coordinate.

    Before partitions go to another member `before_revoked` is called, to send and commit what was
    read of them.
    """

    def __init__(
        self, settings: Mapping[str, str], topics: TopicFilter, client_id: str | None = None
    ) -> None:
        own = {"enable.auto.commit": "false"}
        if client_id is not None:
            own["client.id"] = client_id
        self.before_revoked: Callable[[], object] | None = None
        self._consumer = Consumer({**CONSUMER_SETTINGS, **settings, **own})
        pattern = topics.regex if topics.accepts_matches else rf"(?!(?:{topics.regex})\Z).*"
        self._consumer.subscribe(pattern=pattern, listener=self)

    def poll(self) -> list[ConsumerRecord]:
        return self._consumer.poll(WAIT_MS)

    def commit(self) -> None:
        self._consumer.commit()

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        if self.before_revoked is not None:
            self.before_revoked()

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        logger.warning("other members have these by now: %s", ", ".join(map(str, partitions)))

    def close(self) -> None:
        self.before_revoked = None
        self._consumer.close()


class ConnectorSource(MirrorSource):
    """A consumer of the 0.7 design, whose group and offsets are in the source's ZooKeeper."""

    def __init__(self, settings: Mapping[str, str], topics: TopicFilter) -> None:
        own = {"autocommit.enable": "false", "consumer.timeout.ms": str(WAIT_MS)}
        theirs = {key: value for key, value in settings.items() if key != "auto.commit.enable"}
        self._connector = ConsumerConnector(theirs | own)
        try:
            (self._stream,) = self._connector.create_message_streams_by_filter(topics)
        except BaseException:
            self._connector.shutdown()
            raise

    def poll(self) -> list[ConsumerRecord]:
        found: list[ConsumerRecord] = []
        with suppress(ConsumerTimeoutError):
            for message in self._stream:
                payload, key, timestamp_ms = message.message
                place = (message.topic, message.partition, message.offset, timestamp_ms)
                found.append(ConsumerRecord(*place, TimestampType.CREATE_TIME, key, payload))
                if len(found) >= MESSAGES_AT_ONCE:
                    break
        return found

    def commit(self) -> None:
        self._connector.commit_offsets()

    def close(self) -> None:
        self._connector.shutdown()


def open_source(settings: Mapping[str, str], topics: TopicFilter, number: int) -> MirrorSource:
    """A source by what its property file names: bootstrap.servers, or ZooKeeper as in 0.7."""
    if not settings.get("bootstrap.servers") and any(settings.get(key) for key in ZOOKEEPER_KEYS):
        return ConnectorSource(settings, topics)
    if not settings.get("group.id"):
        raise ConfigError("group.id: must be set for a mirror's consumer, which commits offsets")
    client_id = settings.get("client.id", settings["group.id"])
    return GroupSource(settings, topics, f"{client_id}-{number}")


class MirrorMakerRules(NamedTuple):
    """How records are handed on."""

    commit_interval_ms: int = 60_000
    abort_on_send_failure: bool = True
    handler: Handler | None = None


class MirrorStream:
    """The loop of one consumer."""

    def __init__(self, source: MirrorSource, maker: MirrorMaker) -> None:
        self.source = source
        self.maker = maker
        self._is_dirty = False
        self._committed_ms = maker.clock.monotonic_ms()
        if isinstance(source, GroupSource):
            source.before_revoked = self.commit

    def run(self) -> None:
        """Copy until the mirror is over; then commit what was copied."""
        maker = self.maker
        while not maker.is_over:
            for record in self.source.poll():
                self._is_dirty = True
                maker.send(record)
            maker.check()
            since_ms = maker.clock.monotonic_ms() - self._committed_ms
            if since_ms >= maker.rules.commit_interval_ms:
                self.commit()
        self.commit()

    def commit(self) -> None:
        """Commit what was read, once it is written; a commit that fails is made again later."""
        if self._is_dirty:
            self.maker.flush()
            try:
                self.source.commit()
                self._is_dirty = False
            except KafkaError as error:
                logger.warning("the offsets of a source could not be committed: %s", error)
        self._committed_ms = self.maker.clock.monotonic_ms()


def _raise_first(running: Sequence[Future[None]]) -> None:
    """Raise the first stream's error that there is."""
    for future in running:
        future.result()
