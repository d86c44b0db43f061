"""Sequence numbers: how many batches may follow an unanswered one, and what is renumbered."""

from __future__ import annotations

import pytest

from ottla.clients.producer.producer_batch import ProducerBatch
from ottla.clients.producer.transaction_manager import (
    MAX_BATCHES_IN_FLIGHT,
    TransactionManager,
)
from ottla.errors import ErrorCode
from ottla.structs import NO_PRODUCER_ID, TopicPartition


@pytest.fixture
def manager() -> TransactionManager:
    """An idempotent producer that has its id."""
    manager = TransactionManager()
    manager.set_producer_id(7, 0)
    return manager


def new_batch() -> ProducerBatch:
    batch = ProducerBatch(TopicPartition("t", 0), 0, 100)
    batch.records.append((0, None, b"value", ()))
    return batch


def sent(manager) -> ProducerBatch:
    batch = new_batch()
    manager.assign(batch)
    batch.is_in_flight = True
    return batch


def test_batch_without_an_answer_is_followed_by_no_more_than_a_broker_remembers(manager):
    """Those that were answered count, too: the first one may come again at another leader."""
    first = sent(manager)
    for _ in range(MAX_BATCHES_IN_FLIGHT - 1):
        assert manager.may_send(new_batch())
        manager.on_success(sent(manager))
    assert not manager.may_send(new_batch())

    manager.on_success(first)

    assert manager.may_send(new_batch())


def test_batch_that_may_have_been_appended_is_not_renumbered(manager):
    """Whoever refuses its number may have it already."""
    batch = sent(manager)
    batch.maybe_appended = True

    assert not manager.may_retry(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def test_batch_that_was_only_refused_goes_on_in_a_new_epoch(manager):
    """No broker has it, so that it can be counted anew."""
    batch = sent(manager)

    assert manager.may_retry(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    batch.is_in_flight = False
    manager.settle()

    assert (manager.producer_epoch, batch.sequence) == (1, 0)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(0, (7, 1)), (32_766, (7, 32_767)), (32_767, (NO_PRODUCER_ID, 32_767))],
)
def test_epoch_that_cannot_grow_needs_a_new_producer_id(epoch, expected):
    """It has 15 bits; the batch waits for the new id."""
    manager = TransactionManager()
    manager.set_producer_id(7, epoch)
    batch = sent(manager)
    manager.may_retry(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    batch.is_in_flight = False
    manager.settle()

    assert (manager.producer_id, manager.producer_epoch) == expected
    assert manager.may_send(batch) is manager.has_producer_id


def test_partition_that_waits_for_its_new_epoch_is_not_sent_to(manager):
    """A batch that is still on the wire has a number of the old one."""
    first, second = sent(manager), sent(manager)
    manager.on_success(first)
    assert manager.may_retry(second, ErrorCode.UNKNOWN_PRODUCER_ID)
    manager.settle()

    assert not manager.may_send(new_batch())
    assert not manager.may_send(second)


def test_error_about_numbers_is_final_for_a_batch_that_has_none(manager):
    """And one about anything else is not about these."""
    assert not manager.may_retry(new_batch(), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert not manager.may_retry(sent(manager), ErrorCode.MESSAGE_TOO_LARGE)


@pytest.mark.parametrize(
    "error", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID]
)
def test_transaction_does_not_count_anew(error):
    """Its first batch in flight cannot be appended any more; those behind it may come again."""
    manager = TransactionManager(is_transactional=True)
    manager.set_producer_id(7, 0)
    first, second = sent(manager), sent(manager)

    assert not manager.may_retry(first, error)
    assert manager.may_retry(second, error)
    assert not manager.may_retry(first, ErrorCode.PRODUCER_FENCED)
