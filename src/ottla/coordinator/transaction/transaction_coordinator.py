"""The coordinator of transactions: which producer may write, and how a transaction ends.

A transaction is decided when its PrepareCommit or PrepareAbort is in the log; then each partition
gets a marker, and then the id is free for the next one. A producer without the id's present epoch
has been fenced, and changes nothing.

State x request, for the producer with the present epoch (KIP-98):

                    InitProducerId          AddPartitionsToTxn       EndTxn
    Empty           next epoch              Ongoing                  INVALID_TXN_STATE
    Ongoing         aborts, CONCURRENT      added                    Prepare...
    Prepare...      CONCURRENT              CONCURRENT               CONCURRENT, INVALID_TXN_STATE
    Complete...     next epoch              Ongoing                  NONE, INVALID_TXN_STATE
    pending         CONCURRENT              CONCURRENT               CONCURRENT

EndTxn gets the last answer of a line if it asks for the outcome that was not decided. From v5 on
(transaction.version 2, KIP-890) it raises the epoch, so that late requests of one transaction are
refused in the next. The epoch then distinguishes a repeated EndTxn from that of the next
transaction, which may be aborted though it is empty.

Producer ids are unique in the cluster: brokers claim them from the registry in blocks. The node
/latest_producer_id_block holds the block that was claimed last. Ids of a block that a broker did
not use before it stopped are never given out.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial

from ottla.config.broker_config import BrokerConfig
from ottla.coordinator.coordinator_log import CoordinatorLog
from ottla.coordinator.transaction.marker_sender import MarkerSender, MarkersToLeaders
from ottla.coordinator.transaction.transaction import (
    ENDING,
    LAST_EPOCH,
    Transaction,
    TransactionState,
)
from ottla.coordinator.transaction.transaction_metadata import TransactionMetadata
from ottla.coordinator.transaction.transaction_state_manager import (
    OnStored,
    TransactionStateManager,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime import Runtime
from ottla.runtime.periodic_work import PeriodicWork
from ottla.runtime.scheduler import Work
from ottla.structs import NO_EPOCH, NO_PRODUCER_ID, NO_SESSION, TopicPartition, TxnProducer

logger = logging.getLogger(__name__)


OnInitialized = Callable[[ErrorCode, int, int], object]


class TransactionCoordinator:
    """Answers for the ids whose partition of `__transaction_state` this broker leads."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        log: CoordinatorLog,
        new_producer_id: Callable[[], Awaitable[int]],
        leaders: MarkersToLeaders,
    ) -> None:
        self.manager = TransactionStateManager(runtime, log)
        self._runtime, self._clock = runtime, runtime.clock
        self._config = config
        self._new_producer_id = new_producer_id
        self.markers = MarkerSender(runtime, self.manager, leaders)
        self._timers: list[PeriodicWork] = []
        self._is_active = False

    def startup(self) -> None:
        """Begin to answer, to abort transactions that take too long, and to expire unused ids."""
        config, every = self._config, partial(PeriodicWork, self._runtime)
        self._is_active = True
        self._timers = [
            every(
                config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
                self.abort_timed_out,
                "the end of transactions whose time is over",
            ),
            every(
                config.transaction_remove_expired_transaction_cleanup_interval_ms,
                self.remove_expired,
                "the expiry of transactional ids",
            ),
        ]

    def shutdown(self) -> None:
        """Stop answering; decided transactions are completed when the ids are loaded again."""
        self._is_active = False
        for timer in self._timers:
            timer.cancel()
        for partition in range(self.manager.log.partition_count):
            self.manager.unload(partition)

    def on_election(self, partition: int) -> None:
        """This broker leads the partition now: read its ids, and complete decided transactions."""
        self.manager.load(partition, self._on_loaded)

    def on_resignation(self, partition: int) -> None:
        """Another broker leads the partition now."""
        self.manager.unload(partition)

    def partition_for(self, transactional_id: str) -> int:
        """The partition of the log whose leader coordinates the id."""
        return self.manager.log.partition_for(transactional_id)

    def availability(self, transactional_id: str) -> ErrorCode:
        """NONE if this broker can answer for the id now, else the error for the client."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        if not self._is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self.manager.availability(transactional_id)

    async def init_producer_id(
        self, producer: TxnProducer, timeout_ms: int, respond: OnInitialized
    ) -> None:
        """Give the sender the next epoch, which fences every other; first abort an open
        transaction.

        A producer id and epoch that the sender names must be the latest, or those before if the
        sender repeats its last request (KIP-360).
        """
        error = self.availability(producer.transactional_id)
        if not error and not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            error = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        if error:
            respond(error, NO_PRODUCER_ID, NO_EPOCH)
            return
        known = self.manager.get(producer.transactional_id)
        new_producer_id = NO_PRODUCER_ID
        if known is None or known.current.is_epoch_exhausted:
            new_producer_id = await self._new_producer_id()
        try:
            self._init_producer_id(producer, timeout_ms, new_producer_id, respond)
        except KafkaError as refusal:
            respond(refusal.error, NO_PRODUCER_ID, NO_EPOCH)

    def _init_producer_id(
        self, producer: TxnProducer, timeout_ms: int, new_producer_id: int, respond: OnInitialized
    ) -> None:
        error = self.availability(producer.transactional_id)
        if error:
            raise KafkaError(error)
        metadata = self.manager.get(producer.transactional_id)
        if metadata is None:
            first = Transaction(new_producer_id, NO_EPOCH, timeout_ms)
            metadata = self.manager.add(TransactionMetadata(producer.transactional_id, first))
        present = metadata.current
        _check_may_init(present, producer)
        if metadata.is_pending or present.state in ENDING:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if present.state is TransactionState.ONGOING:
            self._abort_and_fence(
                metadata,
                lambda error: respond(
                    error or ErrorCode.CONCURRENT_TRANSACTIONS, NO_PRODUCER_ID, NO_EPOCH
                ),
            )
            return
        following = self._next_producer(present, producer, timeout_ms, new_producer_id)
        # The epoch is new, so nothing late can have it; and the transaction may use another
        # connection, even an older one: aiokafka has one for this request and one for the rest.
        metadata.session = NO_SESSION

        def on_stored(error: ErrorCode) -> None:
            if error:
                respond(error, NO_PRODUCER_ID, NO_EPOCH)
            else:
                respond(error, following.producer_id, following.producer_epoch)

        self.manager.store(metadata, following, on_stored)

    def _next_producer(
        self, present: Transaction, sender: TxnProducer, timeout_ms: int, new_producer_id: int
    ) -> Transaction:
        now_ms = self._clock.now_ms()
        expected = None if sender.producer_id == NO_PRODUCER_ID else sender.producer_epoch
        if not present.is_epoch_exhausted or expected == present.last_producer_epoch != NO_EPOCH:
            return present.with_next_epoch(timeout_ms, expected, now_ms)
        named = sender.producer_id, sender.producer_epoch
        if expected is not None and named != (present.producer_id, present.producer_epoch):
            raise _fenced(sender, present)
        if new_producer_id == NO_PRODUCER_ID:  # the epochs ran out during an await
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return present.with_producer_id(new_producer_id, timeout_ms, expected, now_ms)

    def add_partitions(
        self,
        producer: TxnProducer,
        partitions: Collection[TopicPartition],
        respond: Callable[[ErrorCode], object],
    ) -> None:
        """Add partitions to the sender's transaction, which begins with the first ones."""
        error, metadata = self._find(producer)
        if metadata is None:
            respond(error)
            return
        present = metadata.current
        is_open = present.state is TransactionState.ONGOING
        if is_open and all(each in present.partitions for each in partitions):
            respond(ErrorCode.NONE)
            return
        following = present.with_partitions(partitions, self._clock.now_ms())
        self.manager.store(metadata, following, respond)

    def verify_partitions(
        self, producer: TxnProducer, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether partitions belong to the sender's open transaction (KIP-890).

        Changes that are on their way into the log are not waited for: a transaction keeps the
        partitions that it has, and after its marker the partition itself refuses the batch.
        """
        error, metadata = self._identify(producer)
        if metadata is None:
            return dict.fromkeys(partitions, error)
        if metadata.current.state in ENDING:
            return dict.fromkeys(partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
        known = metadata.current.partitions
        return {
            tp: ErrorCode.NONE if tp in known else ErrorCode.INVALID_TXN_STATE for tp in partitions
        }

    def _find(self, producer: TxnProducer) -> tuple[ErrorCode, TransactionMetadata | None]:
        """The sender's id, if it may begin or continue a transaction now."""
        error, metadata = self._identify(producer)
        if metadata is None:
            return error, None
        if metadata.is_pending or metadata.current.state in ENDING:
            return ErrorCode.CONCURRENT_TRANSACTIONS, None
        return ErrorCode.NONE, metadata

    def _identify(
        self, producer: TxnProducer, *, may_repeat: bool = False
    ) -> tuple[ErrorCode, TransactionMetadata | None]:
        """The sender's id, if the sender has its present producer id and epoch.

        With `may_repeat`, the epoch that ended the previous transaction is accepted too (a retry).

        A request of a connection that the producer has since replaced is late: it belongs to an
        earlier transaction, and is refused so that it does not affect the present one.
        """
        error = self.availability(producer.transactional_id)
        if error:
            return error, None
        metadata = self.manager.get(producer.transactional_id)
        if metadata is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, None
        present = metadata.current
        repeats = may_repeat and present.was_ended_by(*producer[1:3])
        if present.producer_id != producer.producer_id and not repeats:
            is_early = producer[1:3] == present.successor
            error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
            return ErrorCode.CONCURRENT_TRANSACTIONS if is_early else error, None
        is_present = present.producer_epoch == producer.producer_epoch <= LAST_EPOCH
        if not is_present and not repeats:
            return ErrorCode.PRODUCER_FENCED, None
        if producer.session != NO_SESSION:
            if producer.session < metadata.session:
                return ErrorCode.NOT_COORDINATOR, None
            metadata.session = producer.session
        return ErrorCode.NONE, metadata

    def end_transaction(
        self, producer: TxnProducer, commit: bool, respond: Callable[[ErrorCode], object]
    ) -> None:
        """Commit or abort; answered when that is in the log, before the markers are sent."""
        error, metadata = self._identify(producer)
        if metadata is None:
            respond(error)
            return
        state = metadata.current.state
        if metadata.is_pending:
            respond(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif state is TransactionState.ONGOING:
            ended = metadata.current.ended(commit=commit, now_ms=self._clock.now_ms())
            self._decide(metadata, ended, respond)
        elif state is TransactionState.EMPTY or metadata.current.is_commit is not commit:
            respond(ErrorCode.INVALID_TXN_STATE)
        elif state in ENDING:
            respond(ErrorCode.CONCURRENT_TRANSACTIONS)
        else:
            respond(ErrorCode.NONE)  # a retry: the first answer was lost

    async def end_with_bump(
        self, producer: TxnProducer, commit: bool, respond: OnInitialized
    ) -> None:
        """The same in transaction.version 2; the answer has the next producer id and epoch."""
        known = self.manager.get(producer.transactional_id)
        new_producer_id = NO_PRODUCER_ID
        if known is not None and known.current.is_epoch_exhausted:
            new_producer_id = await self._new_producer_id()
        try:
            self._end_with_bump(producer, commit, new_producer_id, respond)
        except KafkaError as refusal:
            respond(refusal.error, NO_PRODUCER_ID, NO_EPOCH)

    def _end_with_bump(
        self, producer: TxnProducer, commit: bool, new_producer_id: int, respond: OnInitialized
    ) -> None:
        error, metadata = self._identify(producer, may_repeat=True)
        if metadata is None:
            raise KafkaError(error)
        present = metadata.current
        if metadata.is_pending:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if present.was_ended_by(producer.producer_id, producer.producer_epoch):
            if present.is_commit is not commit:
                raise KafkaError(ErrorCode.INVALID_TXN_STATE)
            if present.state in ENDING:
                raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
            respond(ErrorCode.NONE, *present.successor)
            return
        if present.state in ENDING:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if present.state is not TransactionState.ONGOING and commit:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        if present.is_epoch_exhausted and new_producer_id == NO_PRODUCER_ID:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)  # not so before the await
        following = present.ended_with_bump(
            commit=commit,
            next_producer_id=new_producer_id if present.is_epoch_exhausted else NO_PRODUCER_ID,
            now_ms=self._clock.now_ms(),
        )
        self._decide(
            metadata,
            following,
            lambda error: respond(
                error, *((NO_PRODUCER_ID, NO_EPOCH) if error else following.successor)
            ),
        )

    def _decide(
        self, metadata: TransactionMetadata, ended: Transaction, on_decided: OnStored
    ) -> None:
        self.manager.store(metadata, ended, on_decided, lambda: self.markers.send(metadata))

    def _abort_and_fence(self, metadata: TransactionMetadata, on_decided: OnStored) -> None:
        """Abort on behalf of the broker, and fence the producer that had the epoch."""
        fenced = metadata.prepare(metadata.current.fenced(is_raised=metadata.is_fence_raised))

        def on_stored(error: ErrorCode) -> None:
            if error and metadata.current.state is TransactionState.ONGOING:
                # The old epoch is refused from now on, though the new one is not yet in the log.
                metadata.current = metadata.current._replace(producer_epoch=fenced.producer_epoch)
                metadata.is_fence_raised = True
            on_decided(error)

        self._decide(metadata, fenced.ended(commit=False, now_ms=self._clock.now_ms()), on_stored)

    def abort_timed_out(self) -> Work[int]:
        """Abort the transactions that have been open for longer than their producers asked for."""

        def abort(metadata: TransactionMetadata) -> None:
            logger.info("%s is aborted: its time is over", metadata)
            self._abort_and_fence(metadata, lambda error: None)

        clock = self._clock
        return self.manager.attend(lambda each: each.is_timed_out(clock.monotonic_ms()), abort)

    def remove_expired(self) -> Work[int]:
        """Forget the ids that were unused for transactional.id.expiration.ms."""
        count = yield from self.manager.expire(self._config.transactional_id_expiration_ms)
        if count:
            logger.info("%d transactional ids have expired", count)
        return count

    def _on_loaded(self, metadata: TransactionMetadata) -> None:
        if metadata.current.state in ENDING:
            logger.info("%s goes on from %s", metadata, metadata.current.state.title)
            self.markers.send(metadata)


def _check_may_init(present: Transaction, producer: TxnProducer) -> None:
    """Raise PRODUCER_FENCED if the sender names a producer id that the id neither has nor had.

    Nor may it have been fenced where a transaction is open: it would abort that of its successor.
    """
    producer_id, epoch = producer.producer_id, producer.producer_epoch
    if producer_id == NO_PRODUCER_ID or present.producer_epoch == NO_EPOCH:
        return
    is_former = producer_id == present.previous_producer_id and epoch >= LAST_EPOCH
    is_known = is_former or producer_id == present.producer_id
    is_open = present.state is TransactionState.ONGOING
    if (producer_id, epoch) != present.successor and (is_open or not is_known):
        raise _fenced(producer, present)


def _fenced(producer: TxnProducer, present: Transaction) -> KafkaError:
    return KafkaError(
        ErrorCode.PRODUCER_FENCED,
        f"{producer} is not the last producer of the id, which has producer id "
        f"{present.producer_id} and epoch {present.producer_epoch}",
    )
