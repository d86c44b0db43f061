"""Micro-batches in transactions: each record once for read_committed readers, whatever dies.

Every attempt of a task writes in a transaction of its own and leaves it open. When Spark has one
complete attempt of each task, the driver decides: it records the batch's id and transactions in the
decision log, and then commits these. What is not decided never counts, and what is decided is
committed by whoever comes next. docs/spark-sink.md goes through the moments of a crash.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from ottla.clients.producer.prepared_transactions import PreparedTransaction, TransactionCompleter
from ottla.clients.producer.producer import Producer
from ottla.clients.producer.transaction_manager import FENCED
from ottla.errors import ErrorCode, KafkaError
from ottla.spark import connections
from ottla.spark.decisions import DECISION_TIMEOUT_MS, Decision, DecisionLog
from ottla.spark.row_writer import RowWriter
from ottla.spark.sink_options import SinkOptions
from ottla.spark.task_attempt import TaskAttempt

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

DECIDER = "driver"
OPEN = "Ongoing"
# A batch may take as long as brokers allow a transaction to take: transaction.max.timeout.ms.
TRANSACTION_TIMEOUT_MS = "900000"


class SinkError(Exception):
    """A micro-batch that cannot be committed; the text says what becomes of it."""


@dataclass(frozen=True)
class Prepared(WriterCommitMessage):
    """A task has written its rows. No transaction: there were none, or the batch counts already."""

    sink_id: str
    transaction: PreparedTransaction | None
    topic: str
    row_count: int


def sink_id_of(options: SinkOptions, query_id: str) -> str:
    """What a query's sink is called by brokers; it has to stay the same over restarts."""
    return f"{options.transactional_id_prefix}-{query_id}"


def write_prepared(
    options: SinkOptions, attempt: TaskAttempt, batches: Iterator[pa.RecordBatch]
) -> Prepared:
    """Write the rows of a task in a transaction that is left open; runs in the task."""
    sink_id = sink_id_of(options, attempt.query_id)
    newest = DecisionLog(sink_id, options.client).newest()
    if newest is not None and newest.batch_id >= attempt.batch_id:
        if newest.batch_id > attempt.batch_id:
            raise went_back(sink_id, attempt.batch_id, newest.batch_id)
        for _ in batches:
            pass  # a worker has to read what it is sent
        return Prepared(sink_id, None, "", 0)
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return Prepared(sink_id, None, "", 0)
    name = f"{sink_id}-{attempt.run_id[:8]}-{attempt.task}-{attempt.attempt}"
    with Producer(transactional_settings(options, name)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        writer = RowWriter(producer, options, attempt.task)
        writer.write(first)
        for batch in filled:
            writer.write(batch)
        writer.finish()
        return Prepared(sink_id, producer.prepare_transaction(), writer.topics[0], writer.row_count)


def transactional_settings(options: SinkOptions, transactional_id: str) -> dict[str, str]:
    """The settings of a task's producer."""
    return {
        "client.id": connections.CLIENT_ID,
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        **options.client,
        "transactional.id": transactional_id,
    }


def went_back(sink_id: str, batch_id: int, newest: int) -> SinkError:
    """A checkpoint was restored, or parts of it deleted."""
    return SinkError(
        f"batch {batch_id} of {sink_id}: batches up to {newest} are in the topic already, so the "
        "checkpoint is older than the topic; start with a new checkpoint from the offsets that "
        "are wanted"
    )


class BatchCommitter:
    """The driver's side of one sink; lives as long as the driver's process.

    `_newest` is known while `_producer` is the one that may decide: nobody else can change it.
    """

    def __init__(self, sink_id: str, settings: Mapping[str, str]) -> None:
        self._sink_id = sink_id
        self._settings = settings
        self._log = DecisionLog(sink_id, settings)
        self._producer: Producer | None = None
        self._newest: Decision | None = None

    def commit(self, batch_id: int, messages: Sequence[Prepared]) -> None:
        """Have the batch count, with what these tasks wrote unless it does already."""
        try:
            self._commit(batch_id, messages)
        except KafkaError as error:
            if error.error not in FENCED:
                raise
            # Spark has several processes for the commits of its driver, and another one made the
            # last; or a run before this one was not over yet. Ask again what counts.
            logger.info("%s: deciding anew for batch %d: %s", self._sink_id, batch_id, error)
            self._commit(batch_id, messages)

    def _commit(self, batch_id: int, messages: Sequence[Prepared]) -> None:
        prepared = [each.transaction for each in messages if each.transaction is not None]
        if not prepared:
            self._give_up()  # tasks may have found a decision that another driver has made
        newest = self._take_over()
        if newest is not None and newest.batch_id > batch_id:
            raise went_back(self._sink_id, batch_id, newest.batch_id)
        if newest is None or newest.batch_id < batch_id:
            if not prepared:
                return
            self._check_open(batch_id, prepared)
            newest = Decision(batch_id, prepared)
            self._decide(newest, min(each.topic for each in messages if each.topic))
        self._complete(newest)
        self._abort_leftovers()

    def abort(self, batch_id: int, messages: Sequence[Prepared | None]) -> None:
        """Undo what tasks have prepared, unless the batch counts by now."""
        self._give_up()
        newest = self._take_over()
        if newest is not None and newest.batch_id >= batch_id:
            return
        left = [each.transaction for each in messages if each is not None]
        with self._completer() as completer:
            completer.complete([each for each in left if each is not None], commit=False)

    def _take_over(self) -> Decision | None:
        """Become the only one who decides; what a driver before has half decided is settled."""
        if self._producer is None:
            settings = {
                "client.id": connections.CLIENT_ID,
                **self._settings,
                "transactional.id": f"{self._sink_id}-{DECIDER}",
                "transaction.timeout.ms": str(DECISION_TIMEOUT_MS),
            }
            producer = Producer(settings)
            try:
                producer.init_transactions()
                self._newest = self._log.newest()
            except BaseException:
                producer.close()
                raise
            self._producer = producer
        return self._newest

    def _decide(self, decision: Decision, topic: str) -> None:
        assert self._producer is not None, "not taken over"
        try:
            self._log.record(self._producer, decision, topic)
        except BaseException:
            self._give_up()
            raise
        self._newest = decision

    def _give_up(self) -> None:
        """Nothing is known for sure any more; the next call takes over again."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout=0)

    def _check_open(self, batch_id: int, prepared: Sequence[PreparedTransaction]) -> None:
        """Refuse to decide for transactions that cannot be committed, their time being over."""
        try:
            found = connections.admin(self._settings).describe_transactions(
                [each.transactional_id for each in prepared]
            )
        except KafkaError as error:
            if error.error is ErrorCode.UNSUPPORTED_VERSION:
                return  # a broker before Kafka 3.0
            raise
        for each in prepared:
            state = found[each.transactional_id]
            if (state.state, state.producer_id, state.producer_epoch) != (OPEN, *each[1:]):
                raise SinkError(
                    f"batch {batch_id}: transaction {each.transactional_id} is {state.state}, "
                    "and no longer open; nothing of the batch counts, and it is written again "
                    "when the query is started again"
                )

    def _complete(self, decision: Decision) -> None:
        with self._completer() as completer:
            errors = completer.complete(decision.transactions)
        for each, error in errors.items():
            if error.retriable:
                raise error
            raise SinkError(
                f"batch {decision.batch_id} counts, but transaction {each.transactional_id} could "
                f"not be committed any more: {error.message}; its records are missing"
            ) from error

    def _completer(self) -> TransactionCompleter:
        return TransactionCompleter({"client.id": connections.CLIENT_ID, **self._settings})

    def _abort_leftovers(self) -> None:
        """End what lost attempts and runs have left open, and readers would have to wait for."""
        admin = connections.admin(self._settings)
        try:
            left = [
                each.transactional_id
                for each in admin.list_transactions([OPEN])
                if each.transactional_id.startswith(f"{self._sink_id}-")
            ]
            if left:
                admin.fence_producers(left)
                logger.info("aborted what lost tasks have left open: %s", ", ".join(left))
        except KafkaError as error:
            logger.warning(
                "transactions of lost tasks stay open until their time is over: %s", error
            )


_committers: dict[tuple[str, connections.Key], BatchCommitter] = {}


def batch_committer(sink_id: str, settings: Mapping[str, str]) -> BatchCommitter:
    """The committer of a sink, which this process keeps."""
    key = (sink_id, connections.key_of(settings))
    if key not in _committers:
        _committers[key] = BatchCommitter(sink_id, settings)
    return _committers[key]
