"""A transactional id: its present producer, and the state of its last transaction.

`NEXT_STATES` says which state may follow which, and `TransactionMetadata.prepare` is the only place
that checks it.

    Empty -----------> Ongoing            the first partition is added
    Ongoing ---------> Ongoing            another one is
    Ongoing ---------> PrepareCommit      EndTxn: from here on the outcome is decided
    Ongoing ---------> PrepareAbort       the same, or a newer producer, or the time is over
    Empty, Complete... > PrepareAbort     an empty transaction ends, to raise the epoch (KIP-890)
    Ongoing ---------> PrepareEpochFence  the broker itself aborts: first the producer is fenced
    PrepareEpochFence> PrepareAbort
    PrepareCommit ---> CompleteCommit     all partitions have their marker
    PrepareAbort ----> CompleteAbort
    Complete... -----> Ongoing, Empty     the next transaction; a new producer
    Empty, Complete... > Dead             the id was unused for too long
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.message import decode_versioned, encode_versioned
from ottla.protocol.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from ottla.record.batch_builder import build_batch
from ottla.structs import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_SESSION,
    NO_TIMESTAMP,
    TopicPartition,
    by_topic,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

# One below the largest int16: the last raise is left to the coordinator, which needs it to fence.
LAST_EPOCH: Final = 2**15 - 2
# With this transaction.version the end of each transaction raises the epoch (KIP-890).
EPOCH_BUMP: Final = 2


class TransactionState(IntEnum):
    """The states of a transactional id, with the numbers that the log keeps them under."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name that administrators see, such as PrepareCommit."""
        return self.name.title().replace("_", "")


S = TransactionState
NEXT_STATES: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    S.EMPTY: frozenset({S.EMPTY, S.ONGOING, S.PREPARE_ABORT, S.DEAD}),
    S.ONGOING: frozenset({S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT, S.PREPARE_EPOCH_FENCE}),
    S.PREPARE_COMMIT: frozenset({S.COMPLETE_COMMIT}),
    S.PREPARE_ABORT: frozenset({S.COMPLETE_ABORT}),
    S.COMPLETE_COMMIT: frozenset({S.EMPTY, S.ONGOING, S.PREPARE_ABORT, S.DEAD}),
    S.COMPLETE_ABORT: frozenset({S.EMPTY, S.ONGOING, S.PREPARE_ABORT, S.DEAD}),
    S.DEAD: frozenset(),
    S.PREPARE_EPOCH_FENCE: frozenset({S.PREPARE_ABORT}),
}
IDLE: Final = frozenset({S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT})
ENDING: Final = frozenset({S.PREPARE_COMMIT, S.PREPARE_ABORT})


class Transaction(NamedTuple):
    """The state of a transactional id, as it is kept in one record of the log."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    updated_ms: int = NO_TIMESTAMP
    last_producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_EPOCH

    @property
    def is_commit(self) -> bool:
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    def age_ms(self, now_ms: int) -> int:
        """How long it has been open; wall clocks may be set, so between 0 and the timeout."""
        return min(max(0, now_ms - self.start_ms), self.timeout_ms)

    def was_ended_by(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer had this id and epoch until it ended the transaction (KIP-890)."""
        if self.client_version < EPOCH_BUMP or self.state is TransactionState.ONGOING:
            return False
        if producer_id == self.producer_id:
            return producer_epoch == self.producer_epoch - 1
        is_last = producer_epoch >= LAST_EPOCH and self.producer_epoch == 0
        return is_last and producer_id == self.previous_producer_id

    @property
    def successor(self) -> tuple[int, int]:
        """The producer id and epoch to continue with once the transaction is completed."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def with_partitions(self, partitions: frozenset[TopicPartition], now_ms: int) -> Transaction:
        """Ongoing, with these partitions as well."""
        is_new = self.state is not TransactionState.ONGOING
        return self._replace(
            state=TransactionState.ONGOING,
            partitions=partitions if is_new else self.partitions | partitions,
            start_ms=now_ms if is_new else self.start_ms,
            updated_ms=now_ms,
        )

    def with_next_epoch(
        self, timeout_ms: int, expected_epoch: int | None, now_ms: int
    ) -> Transaction:
        """Empty, for a producer that begins: it alone may write from now on (KIP-360).

        A producer that names the epoch it has gets the next one; if it names the one before, it
        repeats a request whose answer it did not get. Any other has been fenced.
        """
        epoch, last_epoch = self.producer_epoch + 1, NO_EPOCH
        if expected_epoch is not None and self.producer_epoch != NO_EPOCH:
            if expected_epoch == self.producer_epoch:
                last_epoch = self.producer_epoch
            elif expected_epoch == self.last_producer_epoch:
                epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
            else:
                raise KafkaError(
                    ErrorCode.PRODUCER_FENCED,
                    f"the producer has epoch {expected_epoch}, the id {self.producer_epoch}",
                )
        return self._begun(self.producer_id, epoch, last_epoch, timeout_ms, now_ms)

    def with_producer_id(
        self, producer_id: int, timeout_ms: int, expected_epoch: int | None, now_ms: int
    ) -> Transaction:
        """The same when no epoch is left: it continues under another producer id."""
        last_epoch = NO_EPOCH if expected_epoch is None else self.producer_epoch
        begun = self._begun(producer_id, 0, last_epoch, timeout_ms, now_ms)
        return begun._replace(previous_producer_id=self.producer_id)

    def _begun(
        self, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> Transaction:
        return self._replace(
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
            updated_ms=now_ms,
            client_version=0,
        )

    def fenced(self, *, is_raised: bool) -> Transaction:
        """No producer may write, not even the one that has the present epoch.

        The epoch after the last one is given to no producer: there it need not be raised.
        """
        return self._replace(
            state=TransactionState.PREPARE_EPOCH_FENCE,
            producer_epoch=min(self.producer_epoch + (0 if is_raised else 1), LAST_EPOCH + 1),
            last_producer_epoch=NO_EPOCH,
            client_version=0,
        )

    def ended(self, *, commit: bool, now_ms: int) -> Transaction:
        """Decided; the markers have yet to be written."""
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        return self._replace(state=state, updated_ms=now_ms)

    def ended_with_bump(self, *, commit: bool, next_producer_id: int, now_ms: int) -> Transaction:
        """Decided; later requests of this transaction have an old epoch (KIP-890).

        The markers have the raised epoch. If it is the last one, a new producer id follows them.
        """
        return self.ended(commit=commit, now_ms=now_ms)._replace(
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=self.producer_epoch,
            next_producer_id=next_producer_id,
            client_version=EPOCH_BUMP,
        )

    def completed(self, now_ms: int) -> Transaction:
        """All markers are written."""
        commit = self.state is TransactionState.PREPARE_COMMIT
        state = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        done = self._replace(state=state, partitions=frozenset(), updated_ms=now_ms)
        if self.next_producer_id == NO_PRODUCER_ID:
            return done
        producer_id, epoch = self.successor
        return done._replace(
            producer_id=producer_id,
            producer_epoch=epoch,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )

    def dead(self, now_ms: int) -> Transaction:
        """Forgotten."""
        return self._replace(state=TransactionState.DEAD, updated_ms=now_ms)


class TransactionMetadata:
    """A transactional id in memory: its state, and the one that is being written.

    Invariant: `current` is what the log holds; it changes when the log has the record of `pending`.
    (Only the epoch of a fence that could not be written is ahead of the log: `is_fence_raised`.)
    While something is pending nothing else may begin, except that a fence continues to an abort.
    """

    __slots__ = (
        "current",
        "deadline_ms",
        "is_fence_raised",
        "pending",
        "refusal",
        "session",
        "transactional_id",
    )

    def __init__(self, transactional_id: str, current: Transaction) -> None:
        self.transactional_id = transactional_id
        self.current = current
        self.pending: Transaction | None = None
        # When the open transaction times out: monotonic, as the wall clock may be set.
        self.deadline_ms = 0
        # The epoch was raised for a fence that could not be written; it is not raised again.
        self.is_fence_raised = False
        # The last state that could not be written, and the error: it is logged once.
        self.refusal: tuple[TransactionState, ErrorCode] | None = None
        # The latest connection that has asked for something under this id and epoch.
        self.session = NO_SESSION

    def __repr__(self) -> str:
        return f"TransactionMetadata({self.transactional_id!r}, {self.current})"

    @property
    def is_pending(self) -> bool:
        return self.pending is not None

    @property
    def stored_state(self) -> Transaction | None:
        """What the log has of it, without the fields that are in memory only; None if nothing."""
        epoch = self.current.producer_epoch - self.is_fence_raised
        if epoch == NO_EPOCH:
            return None
        value = encode_transaction(self.current._replace(producer_epoch=epoch))
        return None if value is None else read_transaction(value)

    def prepare(self, following: Transaction) -> Transaction:
        """Begin to change to `following`; `NEXT_STATES` must allow it."""
        present = self.current if self.pending is None else self.pending
        is_allowed = self.pending is None or (
            self.pending.state is TransactionState.PREPARE_EPOCH_FENCE
        )
        assert is_allowed, f"{self.transactional_id} is to become {self.pending} already"
        assert following.state in NEXT_STATES[present.state], (
            f"{self.transactional_id} cannot go from {present} to {following}"
        )
        self.pending = following
        return following

    def complete(self, prepared: Transaction) -> None:
        """The log has the prepared state."""
        assert self.pending is prepared, f"{self.transactional_id} was to become {self.pending}"
        self.current, self.pending = prepared, None
        self.is_fence_raised = False

    def begin_time_limit(self, age_ms: int, monotonic_ms: int) -> None:
        """The transaction, open for `age_ms`, has the rest of its timeout from here on."""
        self.deadline_ms = monotonic_ms + self.current.timeout_ms - age_ms

    def is_timed_out(self, monotonic_ms: int) -> bool:
        """Whether a transaction is open, and has been for longer than its producer asked for."""
        return (
            self.pending is None
            and self.current.state is TransactionState.ONGOING
            and monotonic_ms > self.deadline_ms
        )

    def give_up(self, prepared: Transaction) -> None:
        """The write failed: everything stays as it was."""
        if self.pending is prepared:
            self.pending = None


# Transactional ids as records of `__transaction_state`, with Kafka's keys and values.
#
# Version 1, which has fields for a new producer id, is written for ids whose producers follow
# transaction.version 2; else version 0, as Kafka does up to transaction.version 0. A record without
# a value deletes its id.


KEY_VERSION: Final = 0
FIRST_VALUE_VERSION: Final = 0
VALUE_VERSION_WITH_BUMP: Final = 1


def transaction_batch(transactional_id: str, transaction: Transaction, now_ms: int) -> bytes:
    """The batch with the state of an id; a tombstone if it is dead."""
    key = encode_versioned(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)
    return build_batch([(now_ms, key, encode_transaction(transaction), ())])


def encode_transaction(transaction: Transaction) -> bytes | None:
    """The value of an id's record; None for one that is dead."""
    if transaction.state is TransactionState.DEAD:
        return None
    bumps = transaction.client_version >= EPOCH_BUMP
    version = VALUE_VERSION_WITH_BUMP if bumps else FIRST_VALUE_VERSION
    return encode_versioned(_stored(transaction), version)


def read_transactional_id(key: bytes) -> str | None:
    """The id that a record is about; None if its key is of a newer kind."""
    if int.from_bytes(key[:2], "big", signed=True) not in TransactionLogKey.versions:
        return None
    return decode_versioned(TransactionLogKey, key).transactional_id


def read_transaction(value: bytes) -> Transaction:
    """The state that a record has; CORRUPT_MESSAGE if no coordinator can have written it."""
    stored = decode_versioned(TransactionLogValue, value)
    try:
        state = TransactionState(stored.transaction_status)
    except ValueError:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"{stored.transaction_status} is no state of a transaction"
        ) from None
    return Transaction(
        producer_id=stored.producer_id,
        producer_epoch=stored.producer_epoch,
        timeout_ms=stored.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in stored.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        start_ms=stored.transaction_start_timestamp_ms,
        updated_ms=stored.transaction_last_update_timestamp_ms,
        previous_producer_id=stored.previous_producer_id,
        next_producer_id=stored.next_producer_id,
        client_version=stored.client_transaction_version,
    )


def _stored(transaction: Transaction) -> TransactionLogValue:
    # Kafka has null where no transaction can be open.
    is_empty = transaction.state is TransactionState.EMPTY
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        client_transaction_version=transaction.client_version,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=None
        if is_empty
        else [
            PartitionsSchema(topic=topic, partition_ids=partitions)
            for topic, partitions in by_topic(sorted(transaction.partitions)).items()
        ],
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
