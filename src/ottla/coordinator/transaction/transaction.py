"""A transactional id at one moment: its producer, its state and its partitions, as a value."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from ottla.coordinator.transaction.transaction_partitions import (
    NO_PARTITIONS,
    TransactionPartitions,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import NO_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, NamedTuple, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


LAST_EPOCH: Final = 2**15 - 2
"""One below the largest int16: the last raise is left to the coordinator, which needs it to
fence."""
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
    partitions: TransactionPartitions = NO_PARTITIONS
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

    def with_partitions(self, partitions: Iterable[TopicPartition], now_ms: int) -> Transaction:
        """Ongoing, with these partitions as well."""
        is_new = self.state is not TransactionState.ONGOING
        before = NO_PARTITIONS if is_new else self.partitions
        return self._replace(
            state=TransactionState.ONGOING,
            partitions=before.with_added(partitions),
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
            partitions=NO_PARTITIONS,
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
        """Decided; the markers have yet to be written.

        They have the epoch of the transaction's own batches, in any version that its producer had.
        """
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        return self._replace(state=state, updated_ms=now_ms, client_version=0)

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
        done = self._replace(state=state, partitions=NO_PARTITIONS, updated_ms=now_ms)
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
