"""Micro-batches in transactions: each record once for read_committed readers, despite crashes.

Every attempt of a task writes in a transaction of its own and leaves it open. When Spark has one
complete attempt of each task, the driver decides: it records the batch's id and transactions in the
decision log, and then commits these. An undecided batch never counts, and a decided one is
committed by the next driver at the latest. docs/use/spark-sink.md goes through the
moments of a crash.
"""

from __future__ import annotations

import logging
import pickle
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import BinaryType, StructField, StructType

from ottla.clients.producer.producer import Producer
from ottla.clients.producer.transaction_manager import FENCED, LOST
from ottla.errors import ErrorCode, KafkaError
from ottla.spark import connections, producers
from ottla.spark.decision_log import DECIDER, BatchDecision, DecisionLog
from ottla.spark.row_writer import RowWriter
from ottla.spark.sink_options import SinkOptions, check_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from ottla.clients.producer.transactions import PreparedTransaction

QUERY_ID: Final = "sql.streaming.queryId"
RUN_ID: Final = "spark.jobGroup.id"
"""Local properties of Spark, which groups the jobs of a query by the id of its run."""
DECISION_TIMEOUT_MS = 10_000
"""A driver that dies while it decides leaves a transaction open for no longer than this."""

logger = logging.getLogger(__name__)


class TaskAttempt(NamedTuple):
    """One run of one task of a micro-batch.

    A query keeps its id over restarts; every start of it is another run.
    """

    query_id: str
    run_id: str
    batch_id: int
    task: int
    attempt: int

    @classmethod
    def current(cls) -> TaskAttempt:
        """The attempt that this worker is running."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "not in a task"
        query_id = context.getLocalProperty(QUERY_ID)
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        assert query_id is not None, "not in a streaming query"
        assert batch_id is not None, "not in a micro-batch"
        run_id = context.getLocalProperty(RUN_ID) or f"task{context.taskAttemptId()}"
        return cls(query_id, run_id, int(batch_id), context.partitionId(), context.attemptNumber())


OPEN = "Ongoing"
# A batch may take as long as brokers allow a transaction to take: transaction.max.timeout.ms.
TRANSACTION_TIMEOUT_MS = "900000"


class SinkError(Exception):
    """A micro-batch that cannot be committed; the text names its fate."""


class NotOpenError(SinkError):
    """A transaction of a batch was ended before the decision: its time was over, or another
    instance has begun. Nothing of the batch counts, and it may be written again."""


class TakenOverError(SinkError):
    """Another instance of the application has taken over the query."""

    def __init__(self, sink_id: str) -> None:
        super().__init__(
            f"{sink_id}: another instance has taken over, or a decision could not be made; what "
            "counts is seen when the query is begun again"
        )


LEFT_TO_ANOTHER: Final = (
    TakenOverError.__name__,
    NotOpenError.__name__,
    *sorted(code.name for code in FENCED),
)


def is_left_to_another(error: BaseException) -> bool:
    """Whether a query ended because another instance has begun it, as far as is known.

    A query's error comes through the JVM, which keeps names and texts.
    """
    text = f"{type(error).__name__}: {error}"
    return any(name in text for name in LEFT_TO_ANOTHER)


@dataclass(frozen=True)
class Prepared(WriterCommitMessage):
    """A task has written its rows; no transaction if it had none, or the batch counts already."""

    sink_id: str
    transaction: PreparedTransaction | None
    topic: str
    row_count: int


def sink_id_of(options: SinkOptions, query_id: str) -> str:
    """The name of a query's sink in transactional ids and groups; the same over restarts."""
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
            pass  # a worker must read all that it is sent
        return Prepared(sink_id, None, "", 0)
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return Prepared(sink_id, None, "", 0)
    name = transactional_id_of(
        sink_id, attempt.run_id[:8], attempt.batch_id, f"{attempt.task}-{attempt.attempt}"
    )
    settings = transactional_settings(options)
    with producers.transactional_producer(settings, name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        writer = RowWriter(producer, options, attempt.task)
        writer.write(first)
        for batch in filled:
            writer.write(batch)
        writer.finish()
        return Prepared(sink_id, producer.prepare_transaction(), writer.topics[0], writer.row_count)


def transactional_id_of(sink_id: str, run: str, batch_id: int, writer: str) -> str:
    """The transactional id of one writer of a batch, such as `<task>-<attempt>`.

    Batches take turns with two ids, so that the newest decision can be carried out again although
    the next batch has begun: an id is used again only after the batch between has been decided.
    """
    return f"{sink_id}-{run}-{batch_id % 2}-{writer}"


def transactional_settings(options: SinkOptions) -> dict[str, str]:
    """The settings of a task's producer, without its transactional id."""
    return {
        "client.id": connections.CLIENT_ID,
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        **options.client,
    }


def went_back(sink_id: str, batch_id: int, newest: int) -> SinkError:
    """The error for a checkpoint that was restored, or deleted in part."""
    return SinkError(
        f"batch {batch_id} of {sink_id}: batches up to {newest} are in the topic already, so the "
        "checkpoint is older than the topic; start with a new checkpoint from the offsets that "
        "are wanted"
    )


class BatchCommitter:
    """The driver's side of one sink; lives as long as the driver's process.

    `_newest` is valid while `_producer` is the one that may decide: no other can change it.
    After `begin` this committer is exclusive: once another driver has begun it can decide no more.
    """

    def __init__(self, sink_id: str, settings: Mapping[str, str]) -> None:
        self._sink_id = sink_id
        self._settings = settings
        self._log = DecisionLog(sink_id, settings)
        self._producer: Producer | None = None
        self._newest: BatchDecision | None = None
        self._is_exclusive = False

    def begin(self) -> None:
        """Fence earlier drivers, carry out their newest decision, abort their open transactions.

        From here on no batch is decided by others, unless one of these begins.
        """
        self._give_up()
        self._is_exclusive = False
        newest = self._take_over()
        if newest is not None:
            self._complete(newest)
        self._abort_leftovers(f"{self._sink_id}-")
        self._is_exclusive = True

    def has_decided(self, batch_id: int) -> bool:
        """Whether a batch counts already, so that nothing more can be part of it."""
        newest = self._take_over()
        return newest is not None and newest.batch_id >= batch_id

    def assume_decided(self, batch_id: int, topic: str) -> None:
        """Record that a batch counts, where its decision is no longer kept. `topic` may be any."""
        if not self.has_decided(batch_id):
            self._decide(BatchDecision(batch_id, []), topic)

    def commit(self, batch_id: int, messages: Sequence[Prepared]) -> None:
        """Decide that the batch counts with these tasks' records, unless it counts already."""
        try:
            self._commit(batch_id, messages)
        except KafkaError as error:
            if error.error not in (FENCED if self._is_exclusive else LOST):
                raise
            if self._is_exclusive:
                raise TakenOverError(self._sink_id) from error
            # Spark has several processes for its driver's commits, and another one made the
            # last; or an earlier run was not over yet; or there was nothing to decide until the
            # transactional id expired. Read the newest decision again.
            logger.info("%s: deciding again for batch %d: %s", self._sink_id, batch_id, error)
            self._commit(batch_id, messages)

    def _commit(self, batch_id: int, messages: Sequence[Prepared]) -> None:
        prepared = [each.transaction for each in messages if each.transaction is not None]
        if not prepared and not self._is_exclusive:
            self._give_up()  # tasks may have found a decision of another driver
        newest = self._take_over()
        if newest is not None and newest.batch_id > batch_id:
            raise went_back(self._sink_id, batch_id, newest.batch_id)
        if newest is None or newest.batch_id < batch_id:
            if not prepared:
                return
            self._check_open(batch_id, prepared)
            newest = BatchDecision(batch_id, prepared)
            # That of the output, before a changelog: with a topic go the offsets for it.
            self._decide(newest, next(each.topic for each in messages if each.topic))
        self._complete(newest)
        for name in self._names_of_lost_attempts(prepared):
            self._abort_leftovers(name)

    def abort(self, batch_id: int, messages: Sequence[Prepared | None]) -> None:
        """Undo the prepared transactions of tasks, unless the batch counts by now."""
        left = [
            each.transaction
            for each in messages
            if each is not None and each.transaction is not None
        ]
        if self._is_exclusive:
            newest = self._log.newest()  # whoever may have taken over
        else:
            self._give_up()
            newest = self._take_over()
        if newest is not None and newest.batch_id >= batch_id:
            left = [each for each in left if each not in newest.transactions]
        producers.completer(self._settings).complete(left, commit=False)

    def abort_run(self, run_id: str) -> None:
        """Abort all transactions that tasks of a run have left open: their batch has failed."""
        self._abort_leftovers(f"{self._sink_id}-{run_id[:8]}-")

    def _take_over(self) -> BatchDecision | None:
        """Become the only decider: commits or aborts an earlier driver's open decision."""
        if self._producer is None:
            if self._is_exclusive:
                raise TakenOverError(self._sink_id)
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

    def _decide(self, decision: BatchDecision, topic: str) -> None:
        assert self._producer is not None, "not taken over"
        try:
            self._log.record(self._producer, decision, topic)
        except BaseException:
            self._give_up()
            raise
        self._newest = decision

    def _give_up(self) -> None:
        """Forget the newest decision, which may be outdated; the next call takes over again."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout=0)

    def _check_open(self, batch_id: int, prepared: Sequence[PreparedTransaction]) -> None:
        """Refuse to decide for transactions that have timed out and cannot be committed."""
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
                raise NotOpenError(
                    f"batch {batch_id}: transaction {each.transactional_id} is {state.state}, "
                    "and no longer open; nothing of the batch counts, and it is written again "
                    "when the query is started again"
                )

    def _complete(self, decision: BatchDecision) -> None:
        errors = producers.completer(self._settings).complete(decision.transactions)
        for each, error in errors.items():
            if error.retriable:
                raise error
            raise SinkError(
                f"batch {decision.batch_id} counts, but transaction {each.transactional_id} can "
                f"no longer be committed: {error.message}; its records are missing"
            ) from error

    def _names_of_lost_attempts(self, prepared: Sequence[PreparedTransaction]) -> set[str]:
        """How transactional ids of tasks that were lost begin: any run's, or those of this one."""
        if not self._is_exclusive:
            return {f"{self._sink_id}-"}
        # The next driver's transactions must be left alone, even by one that is late.
        return {each.transactional_id.rsplit("-", 3)[0] + "-" for each in prepared}

    def _abort_leftovers(self, beginning: str) -> None:
        """Abort open transactions of lost attempts and runs: readers would wait for them."""
        admin = connections.admin(self._settings)
        try:
            left = [
                each.transactional_id
                for each in admin.list_transactions([OPEN])
                if each.transactional_id.startswith(beginning)
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
    """The committer of a sink; this process keeps one for each."""
    key = (sink_id, connections.key_of(settings))
    if key not in _committers:
        _committers[key] = BatchCommitter(sink_id, settings)
    return _committers[key]


def into_topics(query: DataStreamWriter, mode: str, options: Mapping[str, str]) -> DataStreamWriter:
    """A query of any output mode with the sink `ottla` and its options, exactly once.

    Spark lets no Python sink take a query in mode `update`; such micro-batches come through
    `foreachBatch` and are written by the protocol of the sink for streams: tasks leave transactions
    open, the driver decides and commits.

    Rows are appended through the sink itself; those of mode `update`, or `complete`, batch by
    batch. Both are exactly once unless `exactlyOnce` is false.
    """
    if mode == "append":
        return query.format("ottla").options(**options)
    sink = SinkOptions.for_stream(options)
    if sink.exactly_once:
        return query.foreachBatch(ExactlyOnceBatches(sink).write)

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.format("ottla").options(**options).mode("append").save()

    return query.foreachBatch(write)


MESSAGE: Final = StructType([StructField("message", BinaryType())])


@dataclass(frozen=True)
class ExactlyOnceBatches:
    """The function for `foreachBatch`: `query.foreachBatch(ExactlyOnceBatches(options).write)`.

    A batch that is repeated after a crash is not written again. One query, one of these, and one
    checkpoint belong together, as with the sink.
    """

    options: SinkOptions

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write and commit a batch; runs in the driver."""
        check_schema(batch.schema, self.options)
        try:
            messages = self._in_tasks(batch).collect()
        except BaseException:
            self._abort_attempts(batch)
            raise
        prepared: list[Prepared] = [pickle.loads(bytes(row[0])) for row in messages]
        if prepared:  # a batch without tasks has no rows
            self._commit(batch_id, prepared)

    def _abort_attempts(self, batch: Any) -> None:
        """Abort the transactions of complete tasks, as Spark has it done for its own sinks.

        Readers of the topics would wait for them until a query that does not come is begun again.
        """
        if not hasattr(batch, "_jdf"):
            return  # a client of Spark Connect is told nothing of the run
        context = batch.sparkSession.sparkContext
        query_id, run_id = map(context.getLocalProperty, (QUERY_ID, RUN_ID))
        if query_id is not None and run_id is not None:
            sink_id = sink_id_of(self.options, query_id)
            batch_committer(sink_id, self.options.client).abort_run(run_id)

    def _in_tasks(self, batch: Any) -> Any:
        """As `batch.mapInArrow`, which would tell Spark of the same function for each batch."""
        if not hasattr(batch, "_jdf"):
            return batch.mapInArrow(partial(write_task, self.options), MESSAGE)
        function = self._function(*(batch[name] for name in batch.columns))
        return type(batch)(batch._jdf.mapInArrow(function._jc, False, None), batch.sparkSession)

    @cached_property
    def _function(self) -> Any:
        from pyspark.sql.pandas.functions import pandas_udf
        from pyspark.util import PythonEvalType

        declare: Any = pandas_udf
        write = partial(write_task, self.options)
        return declare(write, MESSAGE, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)

    def _commit(self, batch_id: int, prepared: list[Prepared]) -> None:
        committer = batch_committer(prepared[0].sink_id, self.options.client)
        commit_or_abort(committer, batch_id, prepared)


def commit_or_abort(committer: BatchCommitter, batch_id: int, prepared: list[Prepared]) -> None:
    """Commit a batch; after an error its prepared transactions are aborted, unless it counts."""
    try:
        committer.commit(batch_id, prepared)
    except BaseException:
        committer.abort(batch_id, prepared)
        raise


def write_task(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of the task that runs here; yields its pickled `Prepared`."""
    import pyarrow as pa

    done = write_prepared(options, TaskAttempt.current(), batches)
    yield pa.record_batch([pa.array([pickle.dumps(done)], pa.binary())], ["message"])
