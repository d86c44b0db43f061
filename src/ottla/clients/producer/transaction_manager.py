"""Producer id, epoch and sequence numbers of each partition, which make retries harmless.

A broker appends a batch only if its sequence number is the next one of its producer (KIP-98). A
batch that is sent again keeps its number, so the broker recognises it. If numbers are lost, because
a batch failed for good or the broker forgot the producer, the epoch is raised and counting starts
again at 0 (KIP-360): an idempotent producer raises it by itself, a transactional one has its
coordinator do so after the abort of the transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import Enum, auto
from typing import Final
from uuid import UUID

from ottla.clients.producer.producer_batch import MAX_SEQUENCE, ProducerBatch
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import NO_EPOCH, NO_PRODUCER_ID, NO_UUID, TopicPartition, Value, field

logger = logging.getLogger(__name__)


class TransactionManager:
    """The identity of one idempotent producer; used in the I/O thread only.

    `needs_new_epoch`, only for a transactional producer: numbers are lost, so nothing more can be
    written in this epoch.
    """

    def __init__(self, *, is_transactional: bool = False) -> None:
        self.is_transactional = is_transactional
        self.needs_new_epoch = False
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_EPOCH
        self._partitions: dict[TopicPartition, PartitionSequences] = {}
        self._waiting: list[PartitionSequences] = []  # those with needs_new_epoch

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    def set_producer_id(self, producer_id: int, producer_epoch: int) -> None:
        """Take over the id and epoch that InitProducerId returned."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch

    def begin_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Count from 0 everywhere, while no batch has a number."""
        self._partitions = {
            where: PartitionSequences(known_as=sequences.known_as, known_in=sequences.known_in)
            for where, sequences in self._partitions.items()
            if sequences.known_as == producer_id
        }
        self.needs_new_epoch = False
        self.set_producer_id(producer_id, producer_epoch)

    def may_send(self, batch: ProducerBatch, topic_id: UUID = NO_UUID) -> bool:
        """Whether sending the batch now, to the topic with this id, keeps the partition's order."""
        sequences = self._of(batch)
        if batch.has_sequence:
            is_waiting = sequences.needs_new_epoch and not sequences.kept
            return sequences.in_flight[0] is batch and not is_waiting
        if sequences.needs_new_epoch or sequences.is_unresolved:
            return False
        if not sequences.in_flight:
            return True
        return sequences.has_room(topic_id) and self._is_current(sequences)

    def assign(self, batch: ProducerBatch) -> None:
        """Number a batch that is sent for the first time."""
        sequences = self._of(batch)
        if not self._is_current(sequences):
            sequences.begin(self.producer_id, self.producer_epoch)
        sequences.add(batch)

    def may_retry(self, batch: ProducerBatch, error: ErrorCode) -> bool:
        """Whether sending the batch again may resolve an error about sequence numbers."""
        if not batch.has_sequence:
            return False
        sequences = self._of(batch)
        if error in FENCED and not self.is_transactional:
            logger.warning("%s: %s; a new producer id is asked for", batch, error.name)
            self.producer_id = NO_PRODUCER_ID
            self._want_new_epoch(sequences)
            return True
        if error not in FORGOTTEN:
            return False
        if sequences.in_flight[0] is batch:
            # No batch is ahead of it, so the broker expects another number than we do.
            if self.is_transactional:
                return False
            if batch.maybe_appended and error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                # The broker may have appended it: under another number it would be duplicated.
                return False
            logger.info("%s: %s; a new epoch begins", batch, error.name)
            self._want_new_epoch(sequences)
        return True

    def on_success(self, batch: ProducerBatch) -> None:
        if batch.has_sequence:
            sequences = self._of(batch)
            sequences.remove(batch)
            sequences.last_acked = (batch.next_sequence - 1) % MAX_SEQUENCE
            sequences.known_as, sequences.known_in = batch.producer_id, batch.topic_id
            self._resolve(sequences)

    def on_failure(self, batch: ProducerBatch) -> None:
        """The batch failed for good: its numbers are missing, or may be."""
        if batch.has_sequence:
            sequences = self._of(batch)
            ahead = sequences.in_flight.index(batch)
            sequences.remove(batch)
            if self.is_transactional:
                self.needs_new_epoch = True
                return
            if batch.maybe_appended:
                sequences.is_unresolved = True
            else:
                self._want_new_epoch(sequences, ahead)
            self._resolve(sequences)

    def on_split(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """The parts replace the batch in flight: they have its numbers and its place."""
        if batch.has_sequence:
            self._of(batch).split(batch, parts)

    def settle(self) -> None:
        """Begin new epochs if possible, after batches failed or were answered."""
        if self._waiting:
            self._begin_new_epochs()

    def _resolve(self, sequences: PartitionSequences) -> None:
        if sequences.is_unresolved and not sequences.in_flight:
            sequences.is_unresolved = False
            if not sequences.is_complete:
                self._want_new_epoch(sequences)

    def _want_new_epoch(self, sequences: PartitionSequences, kept: int = 0) -> None:
        if not sequences.needs_new_epoch:
            sequences.needs_new_epoch, sequences.kept = True, kept
            self._waiting.append(sequences)
        sequences.kept = min(sequences.kept, kept)

    def _begin_new_epochs(self) -> None:
        """Begin a new epoch for each waiting partition that has no batch on the wire.

        Batches ahead of the missing number come first, under theirs: they may have been appended.
        """
        waiting, self._waiting = self._waiting, []
        for sequences in waiting:
            is_busy = sequences.kept or any(batch.is_in_flight for batch in sequences.in_flight)
            if is_busy or not self._has_fresh_epoch(sequences):
                self._waiting.append(sequences)
            else:
                sequences.begin(self.producer_id, self.producer_epoch)

    def _has_fresh_epoch(self, sequences: PartitionSequences) -> bool:
        """Make sure that the current epoch is one that the partition has not used yet."""
        if self.has_producer_id and self._is_current(sequences):
            if self.producer_epoch < MAX_EPOCH:
                self.producer_epoch += 1
            else:
                self.producer_id = NO_PRODUCER_ID  # a new one is asked for, with epoch 0
        return self.has_producer_id

    def _is_current(self, sequences: PartitionSequences) -> bool:
        mine = (self.producer_id, self.producer_epoch)
        return mine == (sequences.producer_id, sequences.producer_epoch)

    def _of(self, batch: ProducerBatch) -> PartitionSequences:
        return self._partitions.setdefault(batch.topic_partition, PartitionSequences())


class ProducerTransactionState(Enum):
    """The states of a transactional producer, and which calls of the application each one permits.

        UNINITIALIZED --> INITIALIZING        init_transactions: fences the previous producer
        INITIALIZING ---> READY               there is a producer id and an epoch
        READY ----------> IN_TRANSACTION      begin_transaction; only here may records be sent
        IN_TRANSACTION -> COMMITTING          commit_transaction
        IN_TRANSACTION -> ABORTING            abort_transaction
        IN_TRANSACTION -> ABORTABLE_ERROR     a record or an offset was refused: no commit
        COMMITTING -----> ABORTABLE_ERROR     a batch is lost, or the coordinator says so
        IN_TRANSACTION -> PREPARED            prepare_transaction: a TransactionCompleter ends it
        ABORTABLE_ERROR > ABORTING            abort_transaction, the only thing left
        COMMITTING, ABORTING -> READY         the coordinator has decided
        all -----------> FATAL_ERROR          fenced, or refused for good: only close is left

    INITIALIZING, COMMITTING and ABORTING remain when a call times out; making the same call again
    continues them.
    """

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    PREPARED = auto()
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE_ERROR = auto()
    FATAL_ERROR = auto()


S = ProducerTransactionState
NEXT_STATES: Final[Mapping[ProducerTransactionState, frozenset[ProducerTransactionState]]] = {
    S.UNINITIALIZED: frozenset({S.INITIALIZING, S.FATAL_ERROR}),
    S.INITIALIZING: frozenset({S.INITIALIZING, S.READY, S.FATAL_ERROR}),
    S.READY: frozenset({S.IN_TRANSACTION, S.FATAL_ERROR}),
    S.IN_TRANSACTION: frozenset(
        {S.COMMITTING, S.ABORTING, S.PREPARED, S.ABORTABLE_ERROR, S.FATAL_ERROR}
    ),
    S.PREPARED: frozenset(),
    S.COMMITTING: frozenset({S.COMMITTING, S.READY, S.ABORTABLE_ERROR, S.FATAL_ERROR}),
    S.ABORTING: frozenset({S.ABORTING, S.READY, S.FATAL_ERROR}),
    S.ABORTABLE_ERROR: frozenset({S.ABORTING, S.FATAL_ERROR}),
    S.FATAL_ERROR: frozenset(),
}

FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
LOST: Final = FENCED | {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
"""Another producer has the transactional id, or may have had it: it was unused until it expired."""
FATAL: Final = LOST | {
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
"""Errors of the coordinator after which an abort does not help."""


class StateMachine:
    """The only place that changes the state; `error` is the reason for one of the error states."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.state = ProducerTransactionState.UNINITIALIZED
        self.error: KafkaError | None = None

    def become(self, state: ProducerTransactionState, what: str = "") -> None:
        """Change to `state`; `what` names the application's call that asks for it, if any."""
        if state not in NEXT_STATES[self.state]:
            raise self.refusal(what)
        self.state = state
        if state in (ProducerTransactionState.ABORTING, ProducerTransactionState.READY):
            self.error = None

    def require(self, state: ProducerTransactionState, what: str) -> None:
        """Refuse the call unless the producer is in that state."""
        if self.state is not state:
            raise self.refusal(what)

    def fail(self, error: KafkaError, *, is_fatal: bool) -> KafkaError:
        """Change to the fatal or the abortable error state; returns the error to raise."""
        state = (
            ProducerTransactionState.FATAL_ERROR
            if is_fatal
            else ProducerTransactionState.ABORTABLE_ERROR
        )
        if state in NEXT_STATES[self.state]:
            self.error = self._lost(error) if error.error in LOST else error
            self.become(state)
        return self.error or error

    def refusal(self, what: str) -> KafkaError:
        """Why a call is not possible in the current state."""
        if self.state is ProducerTransactionState.ABORTABLE_ERROR and self.error is not None:
            text = f"{what}: the transaction must be aborted: {self.error.message}"
            return KafkaError(self.error.error, text)
        if self.error is not None:
            return KafkaError(self.error.error, f"{what}: {self.error.message}")
        return KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"{what}: producer {self.transactional_id} is {self.state.name}",
        )

    def _lost(self, error: KafkaError) -> KafkaError:
        if error.error not in FENCED:
            return KafkaError(
                error.error,
                f"transactional.id={self.transactional_id} was unused for longer than the brokers' "
                "transactional.id.expiration.ms, and is forgotten; another producer may have had "
                f"it since, so that only a new one can go on ({error})",
            )
        return KafkaError(
            ErrorCode.PRODUCER_FENCED,
            f"another producer has taken over transactional.id={self.transactional_id}, or the "
            f"broker has aborted the transaction as its time was over ({error})",
        )


MAX_EPOCH = 2**15 - 1
MAX_BATCHES_IN_FLIGHT = 5
"""How many batches a broker remembers for each producer and partition. A batch that was sent and
not answered must be among them when it is sent again, so no more may follow it, answered or not."""
NO_SEQUENCE_YET = -1

FORGOTTEN = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


class PartitionSequences(Value):
    """The sequence of one partition, in one epoch of one producer id.

    `in_flight` has the batches with a number that are not done yet, in order, whether on the wire
    or queued to be sent again; `places` has their positions among all batches that got a number.
    `is_unresolved`: a batch failed that may have been appended; the responses to the batches after
    it show whether its numbers are used up. `kept` of the batches in flight, where a new epoch is
    needed, are ahead of the number that is missing and keep theirs. `known_as` is the producer id
    of the last batch that was acknowledged, and `known_in` the id of its topic.
    """

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    next_sequence: int = 0
    last_acked: int = NO_SEQUENCE_YET
    in_flight: list[ProducerBatch] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    numbered: int = 0
    is_unresolved: bool = False
    needs_new_epoch: bool = False
    kept: int = 0
    known_as: int = NO_PRODUCER_ID
    known_in: UUID = NO_UUID

    def begin(self, producer_id: int, producer_epoch: int) -> None:
        """Count from 0 in a new epoch; batches that will be sent again are renumbered."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.next_sequence = 0
        self.last_acked = NO_SEQUENCE_YET
        self.is_unresolved = False
        self.needs_new_epoch = False
        for batch in self.in_flight:
            batch.maybe_appended = False  # it was behind a missing number, so it was not appended
            self._number(batch)

    def add(self, batch: ProducerBatch) -> None:
        self._number(batch)
        self.in_flight.append(batch)
        self.numbered += 1
        self.places.append(self.numbered)

    def remove(self, batch: ProducerBatch) -> None:
        index = self.in_flight.index(batch)
        del self.in_flight[index], self.places[index]
        self.kept -= index < self.kept

    def split(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        index = self.in_flight.index(batch)
        self.in_flight[index : index + 1] = parts
        self.places[index : index + 1] = [self.places[index]] * len(parts)
        if index < self.kept:
            self.kept += len(parts) - 1

    def has_room(self, topic_id: UUID) -> bool:
        """Whether the broker still remembers the oldest batch in flight if another one follows.

        Of a producer that it does not know it takes any number as the first one: were the first
        batch refused, as too large, the next one would be written before it; and so it would in a
        topic that was made again, while others are on their way to the one before.
        """
        ids = {self.known_in, *(batch.topic_id for batch in self.in_flight)}
        if self.known_as != self.producer_id or ids != {topic_id}:
            return False
        return self.numbered - self.places[0] + 1 < MAX_BATCHES_IN_FLIGHT

    def _number(self, batch: ProducerBatch) -> None:
        batch.set_sequence(self.producer_id, self.producer_epoch, self.next_sequence)
        self.next_sequence = batch.next_sequence

    @property
    def is_complete(self) -> bool:
        """Whether every number assigned so far was acknowledged."""
        return (self.last_acked + 1) % MAX_SEQUENCE == self.next_sequence
