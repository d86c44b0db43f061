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

from ottla.coordinator.transaction.transaction import NEXT_STATES, Transaction, TransactionState
from ottla.coordinator.transaction.transaction_records import encode_transaction, read_transaction
from ottla.errors import ErrorCode
from ottla.runtime.scheduler import at_once
from ottla.structs import NO_EPOCH, NO_SESSION


class TransactionMetadata:
    """A transactional id in memory: its state, and the one that is being written.

    Invariant: `current` is the state in the log; it changes when the log has the record of
    `pending`. (Only the epoch of a fence that could not be written is ahead of the log:
    `is_fence_raised`.) While something is pending nothing else may begin, except that a fence
    continues to an abort.
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
        """The state in the log, without the fields that are in memory only; None if nothing."""
        epoch = self.current.producer_epoch - self.is_fence_raised
        if epoch == NO_EPOCH:
            return None
        value = encode_transaction(self.current._replace(producer_epoch=epoch))
        return None if value is None else at_once(read_transaction(value))

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
