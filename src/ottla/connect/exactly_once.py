"""A task of a source whose records and offsets are written in one transaction (KIP-618).

    fence       what tasks of before may still write is ended, by the leader
    check       the task is still this worker's, with the settings that it was started with
    init        the transactional id is taken over: a task of before cannot commit any longer
    check       once more, for a rebalance that came meanwhile
    read        the offsets, now that nobody else can write them

Then batches are sent. A transaction ends with each batch that the source returns, at intervals, or
where the source says so (`transaction.boundary`); its offsets are the last records in it, so that
readers of committed records see each one once, whatever dies when.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from ottla.clients.producer.producer import Producer
from ottla.config.client_config import ProducerConfig
from ottla.config.coordinator_config import TransactionConfig
from ottla.connect.connector import SourceBatch, TransactionContext
from ottla.connect.data import SourceRecord
from ottla.connect.offset_storage import SourceOffset
from ottla.connect.plugin_thread import TargetState
from ottla.connect.source_task import WRITTEN, SentRecord, WorkerSourceTask
from ottla.connect.topic_table import FENCED
from ottla.connect.worker_task import TaskParts
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.timing import Deadline

logger = logging.getLogger(__name__)

TRANSACTION_SIZE: Final = "transaction-size"
POLL: Final = "poll"
INTERVAL: Final = "interval"
CONNECTOR: Final = "connector"
ABORT_LIMIT_S: Final = 5.0
TIMEOUT_MS: Final[int] = ProducerConfig.keys["transaction.timeout.ms"].default
LONGEST_TIMEOUT_MS: Final[int] = TransactionConfig.keys["transaction.max.timeout.ms"].default
"""What brokers allow unless they are set otherwise; they refuse a producer that asks for more."""
AFTER_EXPIRY: Final = "the task goes on where it was once it is restarted"
HINT: Final = (
    "another task has the transactional id, or the transaction took longer than "
    "transaction.timeout.ms; then producer.override.transaction.timeout.ms must be greater, "
    "transaction.boundary.interval.ms smaller, or transaction.boundary poll"
)


class SourceBoundaries(TransactionContext):
    """What the source has asked for since its last batch was sent."""

    def __init__(self) -> None:
        self.wants_commit = False
        self.wants_abort = False

    def commit(self) -> None:
        self.wants_commit = True

    def abort(self) -> None:
        self.wants_abort = True

    def take(self) -> tuple[bool, bool]:
        """Whether to commit, and whether to abort first; asked once."""
        found = self.wants_commit or self.wants_abort, self.wants_abort
        self.wants_commit = self.wants_abort = False
        return found


class ExactlyOnceSourceTask(WorkerSourceTask):
    """Sends the records of a source, each once.

    Invariant: an offset is in the topic only with the records before it. What has failed is never
    committed: the task ends, and the transaction is aborted.
    """

    def __init__(self, parts: TaskParts, target: TargetState) -> None:
        super().__init__(parts, target)
        self._boundary = self.config.transaction_boundary
        self._asked = SourceBoundaries()
        self._is_open = False
        self._is_broken = False
        self._sent: list[SentRecord] = []
        self._committed_records: list[SentRecord] = []
        self._left: list[SourceOffset] = []
        """Offsets behind records that were aborted."""
        self._due = self._next_commit()

    # Begin and end

    def work(self) -> None:
        try:
            super().work()
        except BaseException:
            self._is_broken = True
            raise

    def open_producer(self) -> Producer:
        once = self.parts.exactly_once
        assert once is not None, "the worker supports it"
        once.fence()
        once.check()
        producer = self.parts.clients.producer(
            self.id,
            needed={"transaction.timeout.ms": self._timeout_ms},
            transactional_id=once.transactional_id,
        )
        self.producer = producer  # so that it can be closed if this hangs
        producer.init_transactions()
        once.check()
        return producer

    @property
    def _timeout_ms(self) -> int:
        """How long a transaction may be open: longer than until its end is due."""
        if self._boundary != INTERVAL:
            return TIMEOUT_MS
        return min(self._interval_ms + TIMEOUT_MS, LONGEST_TIMEOUT_MS)

    def transaction_context(self) -> TransactionContext | None:
        return self._asked if self._boundary == CONNECTOR else None

    def on_pause(self) -> None:
        if self._boundary != CONNECTOR:
            self._commit()

    def _finish_sending(self) -> None:
        """Commit complete records; the others come again from the stored offset."""
        if not self._is_open:
            return
        try:
            if not self._is_broken and self._boundary != CONNECTOR:
                self._commit()
                self.check_arrivals()
        except Exception as error:
            logger.warning("%s: the last transaction is not committed: %s", self.id, error)
        if self._is_open:
            assert self.producer is not None, "started"
            self._is_open = False
            try:
                self.producer.abort_transaction(ABORT_LIMIT_S)
            except KafkaError as error:
                logger.warning("%s: the broker has to abort what is open: %s", self.id, error)

    def commit_offsets(self) -> bool:
        """Offsets are committed with records, in the task's thread."""
        return True

    # Batches

    def send_all(self, records: Sequence[SourceRecord | SourceBatch]) -> None:
        """Send a whole batch, or break the transaction; end it where it is due."""
        for record in records:
            self._begin()
            if not self._send(record):
                self._is_broken = True
                return
        if self._boundary == POLL:
            self._commit()
        elif self._boundary == INTERVAL:
            self._commit_if_due()
        else:
            wants_end, wants_abort = self._asked.take()
            if wants_abort:
                self._abort()
            if wants_end:
                self._commit()

    def _commit_if_due(self) -> None:
        if self._due.has_passed:
            self._commit()
            self._due = self._next_commit()

    def note_arrivals(self) -> None:
        """What is not committed is not there yet: it is counted with its transaction."""

    def check_arrivals(self) -> None:
        """Tell the source what is committed; raise what has failed.

        A source that brings nothing more leaves no transaction open until the broker aborts it.
        """
        if self._boundary == INTERVAL and self._is_open and not self._is_broken:
            self._commit_if_due()
        self._sent += self.pending.take_arrived()
        self._raise_what_failed()
        if not self._has_committed:
            return
        self._has_committed = False
        source, committed = self._source, self._committed_records
        assert source is not None, "started"
        self._committed_records = []
        self.commit_records(source, committed)
        with self.calls.during("commit"):
            source.commit()

    def _raise_what_failed(self) -> None:
        failed = self.pending.first_error()
        if failed is not None:
            assert failed.error is not None, "it has failed"
            raise _explained(failed.error)

    @property
    def _interval_ms(self) -> int:
        limit_ms = self.config.transaction_boundary_interval_ms
        return self.parts.worker_config.offset_flush_interval_ms if limit_ms is None else limit_ms

    def _next_commit(self) -> Deadline:
        return Deadline(self.parts.runtime.clock, self._interval_ms)

    def _begin(self) -> None:
        if not self._is_open:
            assert self.producer is not None, "started"
            self.producer.begin_transaction()
            self._is_open = True

    def _delivered(self) -> list[SourceOffset]:
        """Wait for all that was sent; the offsets behind it. Raises the error of a record."""
        self.flush()
        self._sent += self.pending.take_arrived()
        self._raise_what_failed()
        name, offsets = self.id.connector, self.pending.committable()
        return [SourceOffset(name, place, offset) for place, offset in offsets.values()]

    def _commit(self) -> None:
        """End the transaction with the offsets of its records; nothing if there are none."""
        try:
            entries = self._left + self._delivered()
            if not entries and not self._is_open:
                return
            self._begin()
            assert self.producer is not None, "started"
            topic, records = self.parts.offsets.encode(entries)
            with self.measures.commit():
                for key, value in records:
                    self.producer.send(topic, value, key=key)
                self.producer.commit_transaction()
        except KafkaError as error:
            raise _explained(error) from error
        self._is_open = False
        self._left = []
        self.parts.offsets.note_committed(entries)
        ended = self.pending.counts_of(self._sent)
        self.active_count -= ended.records
        self.measures.add(WRITTEN, ended.written)
        self.measures.record(TRANSACTION_SIZE, ended.written)
        self._committed_records += self._sent
        self._sent = []
        self._has_committed = True

    def _abort(self) -> None:
        """Take the records back, but not their offsets: the source would bring them again."""
        assert self.producer is not None, "started"
        self._left += self._delivered()
        if self._is_open:
            self.producer.abort_transaction()
            self._is_open = False
        self.active_count -= self.pending.counts_of(self._sent).records
        self._sent = []


def _explained(error: KafkaError) -> KafkaError:
    """An error with what a person can do, where the producer was fenced."""
    hint = AFTER_EXPIRY if error.error is ErrorCode.INVALID_PRODUCER_ID_MAPPING else HINT
    if error.error not in FENCED or error.message.endswith(hint):
        return error
    return KafkaError(error.error, f"{error.message}; {hint}")
