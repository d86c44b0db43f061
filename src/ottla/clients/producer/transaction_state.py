"""The states of a transactional producer, and which calls of the application each one permits.

    UNINITIALIZED --> INITIALIZING        init_transactions: fences whoever had the id before
    INITIALIZING ---> READY               there is a producer id and an epoch
    READY ----------> IN_TRANSACTION      begin_transaction; only here may records be sent
    IN_TRANSACTION -> COMMITTING          commit_transaction
    IN_TRANSACTION -> ABORTING            abort_transaction
    IN_TRANSACTION -> ABORTABLE_ERROR     a record or an offset was not taken: commit is impossible
    COMMITTING -----> ABORTABLE_ERROR     the coordinator says so (KIP-890)
    IN_TRANSACTION -> PREPARED            prepare_transaction: whoever is told may end it
    ABORTABLE_ERROR > ABORTING            abort_transaction, the only thing left
    COMMITTING, ABORTING -> READY         the coordinator has decided
    all -----------> FATAL_ERROR          fenced, or refused for good: only close is left

INITIALIZING, COMMITTING and ABORTING stay as they are when the time of a call is over; the same
call goes on with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from ottla.errors import ErrorCode, KafkaError


class TransactionState(Enum):
    """Where a transactional producer stands."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    PREPARED = auto()
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE_ERROR = auto()
    FATAL_ERROR = auto()


S = TransactionState
NEXT_STATES: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
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
FATAL: Final = FENCED | {
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
"""What the coordinator may answer that no abort mends."""


class StateMachine:
    """The one place where a state follows another; `error` says why it is one of the last two."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.state = TransactionState.UNINITIALIZED
        self.error: KafkaError | None = None

    def become(self, state: TransactionState, what: str = "") -> None:
        """Go on to `state`; `what` is the call that wants it, if the application does."""
        if state not in NEXT_STATES[self.state]:
            raise self.refusal(what)
        self.state = state
        if state in (TransactionState.ABORTING, TransactionState.READY):
            self.error = None

    def require(self, state: TransactionState, what: str) -> None:
        """Refuse the call unless the producer is in that state."""
        if self.state is not state:
            raise self.refusal(what)

    def fail(self, error: KafkaError, *, is_fatal: bool) -> KafkaError:
        """What went wrong decides what is possible from now on; the error as it is to be raised."""
        state = TransactionState.FATAL_ERROR if is_fatal else TransactionState.ABORTABLE_ERROR
        if state in NEXT_STATES[self.state]:
            self.error = self._fenced(error) if error.error in FENCED else error
            self.become(state)
        return self.error or error

    def refusal(self, what: str) -> KafkaError:
        """Why a call is not possible in the present state."""
        if self.state is TransactionState.ABORTABLE_ERROR and self.error is not None:
            text = f"{what}: the transaction must be aborted: {self.error.message}"
            return KafkaError(self.error.error, text)
        if self.error is not None:
            return KafkaError(self.error.error, f"{what}: {self.error.message}")
        return KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"{what}: producer {self.transactional_id} is {self.state.name}",
        )

    def _fenced(self, error: KafkaError) -> KafkaError:
        return KafkaError(
            ErrorCode.PRODUCER_FENCED,
            f"another producer has taken over transactional.id={self.transactional_id}, or the "
            f"broker has aborted the transaction as its time was over ({error})",
        )
