"""A transaction's first batch in a partition waits for its coordinator's word (KIP-890)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.coordinator.transaction.transaction_verifier import (
    RETRY_LIMIT_MS,
    RETRY_MS,
    TransactionVerifier,
)
from ottla.errors import ErrorCode
from ottla.log.producer_state_manager import Verification
from ottla.structs import TopicPartition, TxnProducer
from ottla.testing import mock_runtime

FIRST, SECOND, OPEN, ELSEWHERE = (TopicPartition("t", number) for number in range(4))
PRODUCER = TxnProducer("till", 7, 3)


class HostedPartition:
    """A partition of this broker; in one where the transaction is open nothing is verified."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.is_open = is_open
        self.begun: list[tuple[int, int, int]] = []
        self.verification: Verification | None = None

    def begin_verification(self, *producer_and_sequence: int) -> Verification | None:
        self.begun.append(producer_and_sequence)
        if self.is_open:
            return None
        if self.verification is None:
            self.verification = Verification(*producer_and_sequence[1:])
        return self.verification

    def take_marker(self) -> None:
        """A transaction of the producer has ended here."""
        if self.verification is not None:
            self.verification.is_cancelled = True
        self.verification = None


class World:
    """A coordinator that answers with what `answers` has, in turn, after `delay_ms`."""

    def __init__(self) -> None:
        self.runtime = mock_runtime()
        self.hosted = {FIRST: HostedPartition(), SECOND: HostedPartition()}
        self.hosted[OPEN] = HostedPartition(is_open=True)
        manager: Any = SimpleNamespace(partitions=self.hosted)
        self.verifier = TransactionVerifier(self.runtime, manager, lambda: self.ask)
        self.asked: list[tuple[list[TopicPartition], bool]] = []
        self.answers: list[dict[TopicPartition, ErrorCode]] = []
        self.delay_ms = 5
        self.outcomes: list[dict[TopicPartition, ErrorCode]] = []

    def ask(self, producer: TxnProducer, partitions, on_answer, *, adds: bool) -> None:
        assert producer == PRODUCER
        self.asked.append((list(partitions), adds))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.runtime.scheduler.call_later(self.delay_ms, lambda: on_answer(answer))

    def verify(self, *partitions: TopicPartition, adds: bool = False) -> None:
        sequences = dict.fromkeys(partitions, 40)
        self.verifier.verify(PRODUCER, sequences, self.outcomes.append, adds=adds)

    def confirmed(self, partition: TopicPartition) -> bool:
        verification = self.hosted[partition].verification
        return verification is not None and verification.is_confirmed


@pytest.fixture
def world() -> World:
    return World()


def test_partition_that_the_coordinator_knows_is_confirmed(world: World) -> None:
    """The batch may be appended once the answer is there, and not before."""
    world.answers = [{FIRST: ErrorCode.NONE}]
    world.verify(FIRST)
    assert world.asked == [([FIRST], False)]
    assert (world.outcomes, world.confirmed(FIRST)) == ([], False)
    assert world.hosted[FIRST].begun == [(7, 3, 40)]

    world.runtime.scheduler.advance(world.delay_ms)
    assert (world.outcomes, world.confirmed(FIRST)) == ([{}], True)
    assert world.verifier.failure_count == 0


def test_partition_that_is_refused_has_its_error_and_the_others_go_on(world: World) -> None:
    """Only the refused one is counted, and not confirmed."""
    world.answers = [{FIRST: ErrorCode.INVALID_TXN_STATE, SECOND: ErrorCode.NONE}]
    world.verify(FIRST, SECOND)
    world.runtime.scheduler.advance(world.delay_ms)

    assert world.outcomes == [{FIRST: ErrorCode.INVALID_TXN_STATE}]
    assert (world.confirmed(FIRST), world.confirmed(SECOND)) == (False, True)
    assert world.verifier.failure_count == 1


@pytest.mark.parametrize("partitions", [(OPEN,), (ELSEWHERE,), (OPEN, ELSEWHERE), ()])
def test_nobody_is_asked_where_nothing_is_to_be_confirmed(world: World, partitions) -> None:
    """The transaction is open there already, or the partition is not on this broker."""
    world.verify(*partitions)

    assert (world.asked, world.outcomes) == ([], [{}])


def test_only_partitions_without_an_open_transaction_are_asked_about(world: World) -> None:
    """The others may be appended to at once, or are not here."""
    world.answers = [{SECOND: ErrorCode.NONE}]
    world.verify(OPEN, SECOND, ELSEWHERE)

    assert world.asked == [([SECOND], False)]


def test_transaction_that_adds_partitions_begins_at_sequence_0(world: World) -> None:
    """It has an epoch of its own, whatever sequence the first batch that arrives has."""
    world.answers = [{FIRST: ErrorCode.NONE}]
    world.verify(FIRST, adds=True)
    world.runtime.scheduler.advance(world.delay_ms)

    assert world.asked == [([FIRST], True)]
    assert set(world.hosted[FIRST].begun) == {(7, 3, 0)}
    assert (world.outcomes, world.confirmed(FIRST)) == ([{}], True)


def test_adding_waits_for_the_markers_of_the_transaction_before(world: World) -> None:
    """They are soon there, mostly: the producer need not come again."""
    early = {FIRST: ErrorCode.CONCURRENT_TRANSACTIONS}
    world.answers = [early, early, {FIRST: ErrorCode.NONE}]
    world.verify(FIRST, adds=True)
    world.runtime.scheduler.advance(3 * world.delay_ms + 2 * RETRY_MS)

    assert len(world.asked) == 3
    assert (world.outcomes, world.confirmed(FIRST)) == ([{}], True)
    assert world.verifier.failure_count == 0


@pytest.mark.parametrize("adds", [True, False])
def test_marker_that_comes_while_the_coordinator_is_asked_cancels_the_question(
    world: World, adds
) -> None:
    """With an epoch for each transaction it is the end of the one before: the question comes again.

    Where transactions share an epoch the batch may be late, and stays without a confirmation. The
    producer had to abort a transaction of which nothing was wrong.
    """
    world.answers = [{FIRST: ErrorCode.NONE, SECOND: ErrorCode.NONE}]
    world.verify(FIRST, SECOND, adds=adds)
    world.hosted[SECOND].take_marker()
    world.runtime.scheduler.advance(2 * world.delay_ms)

    assert world.asked == [([FIRST, SECOND], adds)] * (2 if adds else 1)
    assert world.outcomes == [{}]
    assert (world.confirmed(FIRST), world.confirmed(SECOND)) == (True, adds)
    assert world.verifier.failure_count == 0


def test_batch_that_came_while_the_coordinator_was_asked_opens_the_transaction(
    world: World,
) -> None:
    """Nothing is left to be confirmed for those that come behind it."""
    world.answers = [{FIRST: ErrorCode.NONE}]
    world.verify(FIRST, adds=True)
    world.hosted[FIRST] = HostedPartition(is_open=True)
    world.runtime.scheduler.advance(2 * world.delay_ms)

    assert (len(world.asked), world.outcomes) == (1, [{}])


def test_adding_is_given_up_after_a_while(world: World) -> None:
    """The producer tries again then."""
    early = {FIRST: ErrorCode.CONCURRENT_TRANSACTIONS}
    world.answers = [early]
    world.verify(FIRST, adds=True)
    world.runtime.scheduler.advance(RETRY_LIMIT_MS - 1)
    assert world.outcomes == []
    world.runtime.scheduler.advance(RETRY_MS + world.delay_ms + 1)

    assert world.outcomes == [early]
    assert world.verifier.failure_count == 1


def test_confirmation_of_what_was_added_before_is_not_repeated(world: World) -> None:
    """CONCURRENT_TRANSACTIONS is an error like others for a producer that adds nothing."""
    early = {FIRST: ErrorCode.CONCURRENT_TRANSACTIONS}
    world.answers = [early]
    world.verify(FIRST)
    world.runtime.scheduler.advance(RETRY_LIMIT_MS)

    assert (world.outcomes, len(world.asked)) == ([early], 1)


def test_time_until_the_answer_is_measured(world: World) -> None:
    """From the question to the answer, each time."""
    times: list[int] = []
    world.verifier.on_answer = times.append
    world.answers = [{FIRST: ErrorCode.NONE}]
    world.delay_ms = 17
    world.runtime.scheduler.advance(1000)
    world.verify(FIRST)
    world.runtime.scheduler.advance(17)

    assert times == [17]
