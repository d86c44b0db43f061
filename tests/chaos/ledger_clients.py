"""Writers and readers of a ledger, by two client libraries, whatever befalls the brokers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

from chaos_load import LIMIT_S, PARTITIONS, REQUEST_S
from cluster_load import QUIET
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import Producer as ConfluentProducer
from ledger import CommittedView, Entry, Fate, Ledger
from worker import Worker

import ottla
from ottla.errors import KafkaTimeoutError

MOST_RECORDS = 6
ABORTS = 0.3
TRANSACTION_MS = 10_000
CALL_S = 5.0
WAIT_S = 0.2
ALL = range(PARTITIONS)


class LedgerWriter(Worker):
    """One transactional id, and transactions of a few records; some are aborted on purpose.

    A producer that can go on no more is followed by another one of the same id: what the first one
    has left undecided is then committed or aborted, and nobody says which.
    """

    def __init__(self, servers: str, topic: str, name: str, ledger: Ledger, seed: int) -> None:
        super().__init__()
        self.servers = servers
        self.topic = topic
        self.name = name
        self.ledger = ledger
        self._chance = random.Random(f"{seed}-{name}")
        self._numbers = itertools.count()
        self._transactions = itertools.count()
        self._has_producer = False

    def __str__(self) -> str:
        return f"the writer by {self.name}"

    def step(self) -> None:
        """One transaction."""
        if not self._has_producer and not self._has_producer_now():
            self.rest(WAIT_S)
            return
        transaction = next(self._transactions)
        self._note(transaction, Fate.OPEN)
        try:
            self.begin_transaction()
            for _ in range(self._chance.randint(1, MOST_RECORDS)):
                entry = Entry(self.name, transaction, next(self._numbers))
                partition = self._chance.choice(ALL)
                self.ledger.note_sent(partition, entry)
                self.send(partition, entry.value)
            self.rest(self._chance.choice([0, 0, 0, 0.1]))
            if self._chance.random() < ABORTS:
                self._abort(transaction)
            else:
                self._note(transaction, Fate.ENDING)
                self._commit(transaction)
        except self.errors:
            self._give_up(transaction)
        self.rest(0.005)

    def _note(self, transaction: int, fate: Fate) -> None:
        self.ledger.note(self.name, transaction, fate)

    def _has_producer_now(self) -> bool:
        try:
            self.make_producer()
            self._has_producer = True
        except self.errors:
            self.close_producer()
        return self._has_producer

    def _commit(self, transaction: int) -> None:
        try:
            self._call(self.commit)
        except self.errors:
            # The library says that it is not committed, if it can abort it.
            self._abort(transaction)
        else:
            self._note(transaction, Fate.COMMITTED)

    def _abort(self, transaction: int) -> None:
        self._call(self.abort)
        self._note(transaction, Fate.ABORTED)

    def _call(self, call: Callable[[], object]) -> None:
        """A call that may be made again while it takes too long."""
        while True:
            try:
                call()
                return
            except self.errors as error:
                if not self.may_try_again(error):
                    raise

    def _give_up(self, transaction: int) -> None:
        """A producer that comes to an end before it has asked for a commit leaves nothing."""
        was_asked = self.ledger.fates[self.name, transaction] is Fate.ENDING
        self._note(transaction, Fate.UNKNOWN if was_asked else Fate.ABORTED)
        self.close_producer()
        self._has_producer = False

    def close(self) -> None:
        if self._has_producer:
            self.close_producer()

    # Of each library

    errors: tuple[type[Exception], ...] = ()

    def make_producer(self) -> None:
        raise NotImplementedError

    def close_producer(self) -> None:
        raise NotImplementedError

    def begin_transaction(self) -> None:
        raise NotImplementedError

    def send(self, partition: int, value: bytes) -> None:
        raise NotImplementedError

    def commit(self) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        raise NotImplementedError

    def may_try_again(self, error: Exception) -> bool:
        raise NotImplementedError


class OttlaWriter(LedgerWriter):
    """By `ottla.Producer`."""

    errors = (ottla.KafkaError,)
    _producer: ottla.Producer | None = None

    def make_producer(self) -> None:
        self._producer = ottla.Producer(
            self.servers,
            transactional_id=self.name,
            transaction_timeout_ms=TRANSACTION_MS,
            max_block_ms=int(CALL_S * 1000),
            linger_ms=2,
        )
        self._producer.init_transactions(LIMIT_S)

    def close_producer(self) -> None:
        if self._producer is not None:
            self._producer.close(0)

    @property
    def producer(self) -> ottla.Producer:
        assert self._producer is not None
        return self._producer

    def begin_transaction(self) -> None:
        self.producer.begin_transaction()

    def send(self, partition: int, value: bytes) -> None:
        self.producer.send(self.topic, value, partition=partition)

    def commit(self) -> None:
        self.producer.commit_transaction(CALL_S)

    def abort(self) -> None:
        self.producer.abort_transaction(CALL_S)

    def may_try_again(self, error: Exception) -> bool:
        return isinstance(error, KafkaTimeoutError)


class ConfluentWriter(LedgerWriter):
    """By librdkafka."""

    errors = (KafkaException, BufferError)
    _producer: ConfluentProducer | None = None

    def make_producer(self) -> None:
        self._producer = ConfluentProducer(
            {
                "bootstrap.servers": self.servers,
                "transactional.id": self.name,
                "transaction.timeout.ms": TRANSACTION_MS,
                "linger.ms": 2,
                "topic.metadata.refresh.interval.ms": 1_000,
                "reconnect.backoff.max.ms": 200,
                "socket.timeout.ms": int(REQUEST_S * 1000) + 1000,
                "request.timeout.ms": int(REQUEST_S * 1000),
                **QUIET,
            }
        )
        self._call(lambda: self.producer.init_transactions(CALL_S))

    def close_producer(self) -> None:
        self._producer = None

    @property
    def producer(self) -> ConfluentProducer:
        assert self._producer is not None
        return self._producer

    def begin_transaction(self) -> None:
        self.producer.begin_transaction()

    def send(self, partition: int, value: bytes) -> None:
        self.producer.produce(self.topic, value, partition=partition)
        self.producer.poll(0)

    def commit(self) -> None:
        self.producer.commit_transaction(CALL_S)

    def abort(self) -> None:
        self.producer.abort_transaction(CALL_S)

    def may_try_again(self, error: Exception) -> bool:
        return isinstance(error, KafkaException) and error.args[0].retriable()


class LedgerReader(Worker):
    """Reads committed records all the time; it takes no other place by itself."""

    def __init__(self, servers: str, topic: str, name: str, ledger: Ledger) -> None:
        super().__init__()
        self.servers = servers
        self.topic = topic
        self.view = CommittedView(name, ledger, ALL)

    def __str__(self) -> str:
        return f"the reader by {self.view.name}"


class OttlaReader(LedgerReader):
    """By `ottla.Consumer`."""

    _consumer: ottla.Consumer | None = None

    def step(self) -> None:
        for record in self.consumer.poll(200):
            self.view.note(record.partition, record.offset, record.value)

    @property
    def consumer(self) -> ottla.Consumer:
        if self._consumer is None:
            self._consumer = ottla.Consumer(
                self.servers,
                isolation_level="read_committed",
                auto_offset_reset="none",
                metadata_max_age_ms=1_000,
                request_timeout_ms=int(REQUEST_S * 1000),
            )
            places = [ottla.TopicPartition(self.topic, each) for each in ALL]
            self._consumer.assign(places)
            for place in places:
                self._consumer.seek(place, 0)
        return self._consumer

    def close(self) -> None:
        self.consumer.close()


class ConfluentReader(LedgerReader):
    """By librdkafka."""

    _consumer: Consumer | None = None

    def step(self) -> None:
        for message in self.consumer.consume(1000, 0.2):
            if message.error() is None:
                self.view.note(message.partition(), message.offset(), message.value())
            else:
                self.problems.append(f"{self}: {message.error()}")

    @property
    def consumer(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(
                {
                    "bootstrap.servers": self.servers,
                    "group.id": "ledger reader",
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed",
                    "auto.offset.reset": "error",
                    "topic.metadata.refresh.interval.ms": 1_000,
                    "reconnect.backoff.max.ms": 200,
                    "socket.timeout.ms": int(REQUEST_S * 1000) + 1000,
                    **QUIET,
                }
            )
            self._consumer.assign([TopicPartition(self.topic, each, 0) for each in ALL])
        return self._consumer

    def close(self) -> None:
        self.consumer.close()
