"""A compacted topic as a table: read to its end, then followed; written with acknowledgement.

The topics in which a group of workers keeps connectors, offsets and statuses are such tables. One
thread reads; `on_record` is called in it, in the order of each partition, also for what this worker
wrote itself: nothing counts before it was read back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ottla.clients.admin.admin import Admin
from ottla.clients.admin.descriptions import ConfigResource, NewTopic
from ottla.clients.consumer.consumer import Consumer, WakeupError
from ottla.clients.consumer.polls import polls_up_to
from ottla.clients.producer.producer import Producer
from ottla.errors import ConfigError, ErrorCode, KafkaError, KafkaTimeoutError
from ottla.record.consumer_record import ConsumerRecord
from ottla.runtime.io_thread import Lock, run_in_thread
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

POLL_MS: Final = 500
START_LIMIT_S: Final = 120.0
SAFE: Final = {"acks": "all", "enable.idempotence": "true"}
CLEANUP_POLICY: Final = "cleanup.policy"
FENCED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,  # unused until it expired
        ErrorCode.OPERATION_NOT_ATTEMPTED,  # of what was sent after that
    }
)
"""What a transactional producer is told from which another one has taken over."""


class TableTopic(NamedTuple):
    """Which topic, and how it is created if it is not there."""

    setting: str
    """The setting that names it, for errors."""
    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]

    def prepare(self, admin: Admin) -> int:
        """Create it unless it is there, and check that it is compacted; the partitions it has."""
        if self.name not in admin.list_topics():
            configs = {**self.configs, CLEANUP_POLICY: "compact"}
            new = NewTopic(self.name, self.partitions, self.replication_factor, configs=configs)
            try:
                admin.create_topics([new])
                logger.info("Created topic %s for %s", self.name, self.setting)
            except KafkaError as error:
                if error.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise ConfigError(
                        f"{self.setting}={self.name}: cannot be created: {error.message}"
                    ) from error
        resource = ConfigResource.topic(self.name)
        policy = admin.describe_configs([resource])[resource][CLEANUP_POLICY].value
        if policy != "compact":
            raise ConfigError(
                f"{self.setting}={self.name}: must have {CLEANUP_POLICY}=compact, not {policy}, or "
                "what it holds is deleted after a while; set it by `ottla configs --alter "
                f"--entity-type topics --entity-name {self.name} --add-config "
                f"{CLEANUP_POLICY}=compact`"
            )
        return len(admin.describe_topics([self.name])[self.name].partitions)


class TopicTable:
    """Follows one topic; any thread may write and ask for its end."""

    def __init__(
        self,
        topic: TableTopic,
        settings: Mapping[str, Any],
        on_record: Callable[[ConsumerRecord], object],
        reading: Mapping[str, Any] = MappingProxyType({}),
        transactional_id: str | None = None,
    ) -> None:
        """`settings` are those of the clients, with bootstrap.servers; `reading` of the consumer.

        With a transactional id writes need a `claim` before, and are transactions. Returns at once.
        """
        self.topic = topic
        self._reading_settings = dict(reading)
        self._transactional_id = transactional_id
        self._writing = Lock()
        self._settings = dict(settings)
        self._on_record = on_record
        self._lock = Lock()
        self._waiting: list[Future[None]] = []
        self._is_closed = False
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None

    def start(self) -> None:
        """Prepare the topic, read it to its end, and follow it; ConfigError if it does not fit."""
        with Admin(self._settings) as admin:
            self.partitions = self.topic.prepare(admin)
        if self._transactional_id is None:
            self._producer = Producer(self._settings | SAFE)
        reading = {"auto.offset.reset": "earliest", "enable.auto.commit": "false"}
        reading["allow.auto.create.topics"] = "false"  # it would not be compacted
        self._consumer = Consumer(self._settings | reading | self._reading_settings)
        self._begin_to_read(self._consumer)
        at_end = self.refresh()
        self._reading = run_in_thread(self._read, f"connect-{self.topic.name}")
        at_end.result(START_LIMIT_S)

    def _begin_to_read(self, consumer: Consumer) -> None:
        places = [TopicPartition(self.topic.name, number) for number in range(self.partitions)]
        consumer.assign(places)
        for place, offset in consumer.beginning_offsets(places).items():
            consumer.seek(place, offset)

    def _make_again(self, consumer: Consumer) -> None:
        """Create the topic where it was deleted, and read what there is, which may be another."""
        logger.warning("%s was deleted", self.topic.name)
        with Admin(self._settings) as admin:
            try:
                self.topic.prepare(admin)
            except ConfigError as error:  # a broker has made it; what it holds counts for now
                logger.error("%s", error.message)
            found = admin.describe_topics([self.topic.name])[self.topic.name]
        self.partitions = len(found.partitions)
        self._begin_to_read(consumer)

    def refresh(self) -> Future[None]:
        """Done when everything that is in the topic now has been given to `on_record`."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()  # a caller that gives up does not stop the reader
        with self._lock:
            if self._is_closed:
                future.set_exception(KafkaTimeoutError(f"{self.topic.name} is not read any longer"))
            else:
                self._waiting.append(future)
        if self._consumer is not None:
            self._consumer.wakeup()
        return future

    def write(self, entries: Sequence[tuple[bytes, bytes | None]], timeout_ms: int) -> None:
        """Write records, in order; raises the error of the first that was not acknowledged.

        One of `FENCED` says that another one writes by now: until the next `claim` this does not.
        """
        with self._writing:
            producer = self._producer
            if producer is None:
                error = ErrorCode.OPERATION_NOT_ATTEMPTED
                raise KafkaError(error, f"{self.topic.name} is not open for writing")
            try:
                with nullcontext() if self._transactional_id is None else producer.transaction():
                    self._send(producer, entries, timeout_ms)
            except KafkaError as error:
                if self._transactional_id is not None and error.error in FENCED:
                    self._producer = None
                    producer.close(0)
                raise

    def write_unclaimed(
        self, entries: Sequence[tuple[bytes, bytes | None]], timeout_ms: int
    ) -> None:
        """Write records that need no claim, and end nobody's."""
        if self._transactional_id is None:
            self.write(entries, timeout_ms)
            return
        with Producer(self._settings | SAFE) as producer:
            self._send(producer, entries, timeout_ms)

    def _send(
        self, producer: Producer, entries: Sequence[tuple[bytes, bytes | None]], timeout_ms: int
    ) -> None:
        name = self.topic.name
        futures = [producer.send(name, value, key=key) for key, value in entries]
        producer.flush(timeout_ms / 1000)
        for future in futures:
            future.result(0)

    def claim(self) -> None:
        """Become the one that writes; the one that did before is fenced."""
        assert self._transactional_id is not None, "it has transactions"
        with self._writing:
            if self._producer is None:
                producer = Producer(
                    self._settings | SAFE | {"transactional.id": self._transactional_id}
                )
                try:
                    producer.init_transactions()
                except BaseException:
                    producer.close(0)
                    raise
                self._producer = producer

    def release(self) -> None:
        """Write no longer, where another one may; it waits for what is being written."""
        if self._transactional_id is not None:
            with self._writing:
                producer, self._producer = self._producer, None
            if producer is not None:
                producer.close(0)

    def close(self) -> None:
        """Read and write no longer."""
        with self._lock:
            self._is_closed = True
        if self._consumer is not None:
            self._consumer.wakeup()
            self._reading.result(START_LIMIT_S)
        if self._producer is not None:
            self._producer.close(1)

    def _read(self) -> None:
        consumer = self._consumer
        assert consumer is not None, "started"
        try:
            while not self._is_closed:
                try:
                    self._step(consumer)
                except WakeupError:
                    continue
                except KafkaError as error:
                    logger.warning("reading %s: %s", self.topic.name, error)
        finally:
            consumer.close()
            for future in self._take_waiting():
                future.set_exception(KafkaTimeoutError(f"{self.topic.name} is not read any longer"))

    def _step(self, consumer: Consumer) -> None:
        """Give on what has come; with somebody waiting, read up to the present end."""
        waiting = self._take_waiting()
        if not waiting:
            self._give(consumer.poll(POLL_MS))
            return
        try:
            self._read_up_to(consumer, consumer.end_offsets(consumer.assignment()))
        except KafkaError as error:
            for future in waiting:
                future.set_exception(error)
            if error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._make_again(consumer)
            return
        except BaseException:
            with self._lock:
                self._waiting = waiting + self._waiting
            raise
        for future in waiting:
            future.set_result(None)

    def _read_up_to(self, consumer: Consumer, ends: Mapping[TopicPartition, int]) -> None:
        while True:
            try:
                for records in polls_up_to(consumer, ends, POLL_MS):
                    self._give(records)
                return
            except WakeupError:  # somebody else waits, for what may come behind these ends
                if self._is_closed:
                    raise

    def _give(self, records: Sequence[ConsumerRecord]) -> None:
        for record in records:
            try:
                self._on_record(record)
            except Exception:
                logger.exception("record %d of %s is passed over", record.offset, self.topic.name)

    def _take_waiting(self) -> list[Future[None]]:
        with self._lock:
            found, self._waiting = self._waiting, []
        return found
