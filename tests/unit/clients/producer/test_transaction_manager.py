"""Sequence numbers: how many batches may follow an unanswered one, and what is renumbered."""

from __future__ import annotations

import pytest

from ottla.clients.producer.producer_batch import ProducerBatch
from ottla.clients.producer.transaction_manager import (
    MAX_BATCHES_IN_FLIGHT,
    TransactionManager,
)
from ottla.errors import ErrorCode
from ottla.structs import TopicPartition


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
