"""The transactional calls of `ottla.Producer`."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ottla.clients.client_settings import limit_in_ms
from ottla.clients.producer.transactions import PreparedTransaction, Transactions, group_metadata_of
from ottla.clients.topic_offsets import OffsetAndMetadata, with_metadata
from ottla.errors import ConfigError, KafkaError
from ottla.runtime.timing import Deadline
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from ottla.clients.committed_offsets import ConsumerGroupMetadata
    from ottla.config.client_config import ProducerConfig
    from ottla.runtime.io_thread import IoThread

logger = logging.getLogger(__name__)

CLOSE_MARGIN_MS = 5000
Work = Callable[[Transactions, Deadline], Coroutine[Any, Any, None]]


class TransactionalCalls:
    """Transactions of a producer that has a `transactional_id`.

        producer.init_transactions()
        with producer.transaction():
            producer.send("pages", b"/index.html")

    Each call takes at most `timeout` seconds, by default max.block.ms. After KafkaTimeoutError the
    same call may be made again, and continues. After any other KafkaError the transaction can only
    be aborted; if another producer has the id by now (PRODUCER_FENCED), this one only closed.
    """

    _config: ProducerConfig
    _io: IoThread
    _is_closed: bool
    _transactions: Transactions | None

    def init_transactions(self, timeout: float | None = None) -> None:
        """Take over the transactional id, once, before the first transaction.

        The open transaction of another producer of this id is aborted, and that producer is fenced.
        """
        self._run_in_transaction(lambda transactions, limit: transactions.init(limit), timeout)

    def begin_transaction(self) -> None:
        """Begin a transaction: all records belong to it until it ends."""
        self._run_in_transaction(lambda transactions, limit: transactions.begin(), None)

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Commit a group's offsets with the transaction, or not at all.

        `offsets` are those of the next records to read; `group` is `consumer.group_metadata()`,
        so that a consumer which has lost its partitions is refused, or the name of the group.
        """
        wanted, member = with_metadata(offsets), group_metadata_of(group)
        self._run_in_transaction(
            lambda transactions, limit: transactions.send_offsets(wanted, member, limit), timeout
        )

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Deliver the records sent so far, and commit the transaction.

        Raises the error of a record that was not delivered. After KafkaTimeoutError only the same
        call can tell whether the transaction was committed.
        """
        self._transactions_of_this()
        self.flush(timeout)
        self._run_in_transaction(lambda transactions, limit: transactions.commit(limit), timeout)

    def prepare_transaction(self, timeout: float | None = None) -> PreparedTransaction:
        """Deliver the records and leave the transaction open, for a TransactionCompleter to end.

        After that this producer can only take another id, or be closed, and neither ends the
        transaction. Raises the error of a record that was not delivered.
        """
        transactions = self._transactions_of_this()
        self.flush(timeout)
        limit_ms = self._config.request_timeout_ms
        deadline = Deadline(self._io.runtime.clock, limit_ms)
        identity = self._io.run(transactions.prepare(deadline), limit_ms + CLOSE_MARGIN_MS)
        return PreparedTransaction(transactions.requests.transactional_id, *identity)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction; records that are still queued fail."""
        self._run_in_transaction(lambda transactions, limit: transactions.abort(limit), timeout)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction around the block: committed at its end, aborted if it raises."""
        self.begin_transaction()
        try:
            yield
            self.commit_transaction()
        except BaseException:
            if self._transactions_of_this().is_open and not self._is_closed:
                self._abort_after_error()
            raise

    @abstractmethod
    def flush(self, timeout: float | None = None) -> None:
        """Send the queued records now and wait until all of them are delivered or have failed."""

    def _abort_after_error(self) -> None:
        try:
            self.abort_transaction()
        except KafkaError as error:
            logger.warning("the transaction could not be aborted: %s", error)

    def _transactions_of_this(self) -> Transactions:
        if self._transactions is None:
            raise ConfigError("transactional.id: must be set for a producer with transactions")
        return self._transactions

    def _run_in_transaction(self, work: Work, timeout: float | None) -> None:
        transactions = self._transactions_of_this()
        if self._is_closed:
            raise RuntimeError("the producer is closed")
        limit_ms = self._config.max_block_ms
        if timeout is not None:
            limit_ms = limit_in_ms(timeout * 1000)
        deadline = Deadline(self._io.runtime.clock, limit_ms)
        # The call keeps its own deadline, except while it waits for batches on the wire.
        margin_ms = self._config.request_timeout_ms + CLOSE_MARGIN_MS
        self._io.run(work(transactions, deadline), limit_ms + margin_ms)
