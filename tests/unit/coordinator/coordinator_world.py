"""A transaction coordinator in virtual time, over a log in memory and leaders that can be down."""

from __future__ import annotations

from typing import Any

from group_world import MemoryOffsetsLog

from ottla.config.broker_config import BrokerConfig
from ottla.coordinator.transaction.transaction import (
    EPOCH_BUMP,
    Transaction,
    TransactionState,
)
from ottla.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from ottla.coordinator.transaction.transaction_metadata import TransactionMetadata
from ottla.coordinator.transaction.transaction_partitions import TransactionPartitions
from ottla.errors import ErrorCode
from ottla.structs import TopicPartition, TxnProducer
from ottla.testing import mock_runtime

TIMEOUT_MS = 60_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
S = TransactionState


class Leaders:
    """Keeps the markers. While `errors` are set the leaders answer so; while `hold`, not at all.

    A marker that has an epoch of its own is late where the producer writes in this epoch (`open`).
    """

    def __init__(self) -> None:
        self.open: dict[tuple[TopicPartition, int], int] = {}
        """By partition and producer id, the epoch of the batches of an open transaction."""
        self.deleted: set[TopicPartition] = set()
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.hold = False
        self.written: list[tuple[TopicPartition, int, int, bool]] = []
        self.versions: list[int] = []
        self.written_versions: list[int] = []
        """The transaction version of each marker in `written`."""
        self.attempts = 0

    def is_deleted(self, topic_partition):
        return topic_partition in self.deleted

    def write_markers(self, marker, partitions, on_written):
        self.attempts += 1
        self.versions.append(marker.transaction_version)
        if self.hold:
            return
        results = {tp: self.errors.get(tp, self._check(tp, marker)) for tp in partitions}
        for tp in sorted(tp for tp, error in results.items() if not error):
            self.open.pop((tp, marker.producer_id), None)
            self.written.append((tp, marker.producer_id, marker.producer_epoch, marker.is_commit))
            self.written_versions.append(marker.transaction_version)
        on_written(results)

    def _check(self, topic_partition, marker):
        is_late = (
            marker.transaction_version >= EPOCH_BUMP
            and self.open.get((topic_partition, marker.producer_id)) == marker.producer_epoch
        )
        return ErrorCode.INVALID_PRODUCER_EPOCH if is_late else ErrorCode.NONE


class Ids:
    """Producer ids from 100 on."""

    def __init__(self) -> None:
        self.next_id = 99

    async def generate_producer_id(self):
        self.next_id += 1
        return self.next_id


class TransactionWorld:
    """One coordinator and shorthands for its requests; the id is "x" unless named."""

    def __init__(self, **config: Any) -> None:
        self.runtime = mock_runtime()
        self.log = MemoryOffsetsLog()
        self.leaders = Leaders()
        self.ids = Ids()
        self.config = BrokerConfig.parse(
            {key.replace("_", "."): str(value) for key, value in config.items()}
        )
        self.start()

    def start(self) -> None:
        """A coordinator that has read what is in the log, as after the start of the broker."""
        self.coordinator = TransactionCoordinator(
            self.runtime, self.config, self.log, self.ids.generate_producer_id, self.leaders
        )
        self.coordinator.startup()
        self.coordinator.on_election(0)
        with self.log.replicated():
            self.runtime.scheduler.run_ready()

    def restart(self) -> None:
        self.coordinator.shutdown()
        self.start()

    def advance(self, ms: int) -> None:
        self.runtime.advance(ms)

    @property
    def metadata(self) -> TransactionMetadata:
        metadata = self.coordinator.manager.get("x")
        assert metadata is not None
        return metadata

    @property
    def state(self) -> TransactionState:
        return self.metadata.current.state

    def init(self, known: TxnProducer | None = None, timeout_ms: int = TIMEOUT_MS, **fields: Any):
        """Error, producer id and epoch; None while the request is open."""
        answers: list[tuple[ErrorCode, int, int]] = []
        sender = known or TxnProducer(**{"transactional_id": "x", **fields})
        self.runtime.scheduler.run(
            self.coordinator.init_producer_id(sender, timeout_ms, lambda *a: answers.append(a))
        )
        return answers[0] if answers else None

    def producer(self) -> TxnProducer:
        """A producer that has just begun."""
        answer = self.init()
        assert answer is not None
        assert not answer[0]
        return TxnProducer("x", *answer[1:])

    def ongoing(self, *partitions: TopicPartition) -> TxnProducer:
        """A producer with an open transaction."""
        producer = self.producer()
        assert self.add(producer, *(partitions or (T0,))) is ErrorCode.NONE
        return producer

    def add(self, producer: TxnProducer, *partitions: TopicPartition):
        """Add partitions, and write to them where that is granted."""
        answers: list[ErrorCode] = []

        def on_answer(error: ErrorCode) -> None:
            answers.append(error)
            if not error:
                for each in partitions:
                    self.leaders.open[each, producer.producer_id] = producer.producer_epoch

        self.coordinator.add_partitions(producer, partitions, on_answer)
        return answers[0] if answers else None

    def end(self, producer: TxnProducer, commit: bool = True):
        answers: list[ErrorCode] = []
        self.coordinator.end_transaction(producer, commit, answers.append)
        return answers[0] if answers else None

    def put(self, state: TransactionState, **fields: Any) -> TxnProducer:
        """The id in a state, as loaded from the log."""
        partitions, now_ms = TransactionPartitions.of({T0}), self.runtime.clock.now_ms()
        values = {"partitions": partitions, "updated_ms": now_ms}
        transaction = Transaction(7, 3, TIMEOUT_MS, state, **{**values, **fields})
        self.coordinator.manager.add(TransactionMetadata("x", transaction))
        return TxnProducer("x", 7, 3)
