"""Sequence numbers: how many batches may follow an unanswered one, and what is renumbered."""

from __future__ import annotations

import pytest

from ottla.clients.producer.producer_batch import MAX_SEQUENCE, ProducerBatch
from ottla.clients.producer.record_accumulator import EncodedBatch
from ottla.clients.producer.transaction_manager import (
    FENCED,
    MAX_BATCHES_IN_FLIGHT,
    TransactionManager,
)
from ottla.errors import ErrorCode
from ottla.record.rows import EncodedRecords
from ottla.structs import NO_EPOCH, NO_PRODUCER_ID, TopicPartition

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.fixture
def manager() -> TransactionManager:
    """An idempotent producer that has its id."""
    manager = TransactionManager()
    manager.set_producer_id(7, 0)
    return manager


def new_batch(count: int = 1, partition: int = 0) -> ProducerBatch:
    batch = ProducerBatch(TopicPartition("t", partition), 0, 100)
    batch.records += [(0, None, b"value", ())] * count
    return batch


def sent(manager, count: int = 1, partition: int = 0) -> ProducerBatch:
    batch = new_batch(count, partition)
    manager.assign(batch)
    batch.is_in_flight = True
    return batch


def identity(batch: ProducerBatch) -> tuple[int, int, int]:
    """The producer's id and epoch under which a batch is sent, and its number."""
    return batch.producer_id, batch.producer_epoch, batch.sequence


def lose(manager, batch: ProducerBatch) -> None:
    """Give up a batch that was sent; whether a broker has it is not known."""
    batch.is_in_flight, batch.maybe_appended = False, True
    manager.on_failure(batch)
    manager.settle()


def answered(manager, batch: ProducerBatch) -> None:
    """Note that a broker has appended the batch."""
    batch.is_in_flight = False
    manager.on_success(batch)
    manager.settle()


def test_manager_without_an_id_has_no_epoch_either():
    """Both are asked for together."""
    manager = TransactionManager()

    assert (manager.has_producer_id, manager.producer_epoch) == (False, NO_EPOCH)
    assert not manager.needs_new_epoch


def test_numbers_of_a_lost_batch_are_used_up_where_the_next_one_is_appended(manager):
    """Until that is known no other batch follows, and then all goes on as before."""
    answered(manager, sent(manager, 4))
    lost, behind = sent(manager, 2), sent(manager, 3)
    lose(manager, lost)
    assert not manager.may_send(new_batch())
    answered(manager, behind)

    assert manager.may_send(new_batch())
    assert identity(sent(manager)) == (7, 0, 9)


def test_numbers_of_a_lost_batch_wrap_around(manager):
    """The number after the largest one is 0, and the epoch stays the same."""
    content = EncodedRecords(0, MAX_SEQUENCE - 2, b"", 0, 0, None)
    near = EncodedBatch(TopicPartition("t", 0), 0, content)
    manager.assign(near)
    answered(manager, near)
    lost, behind = sent(manager), sent(manager)
    lose(manager, lost)
    answered(manager, behind)

    assert manager.may_send(new_batch())
    assert identity(sent(manager, 3)) == (7, 0, 0)
    assert identity(sent(manager)) == (7, 0, 3)


@pytest.mark.parametrize("answers", [0, 1, 2])
def test_epoch_ends_where_nothing_shows_whether_the_lost_numbers_are_used_up(manager, answers):
    """Whether anything was appended before does not matter."""
    for _ in range(answers):
        answered(manager, sent(manager, 3))
    lose(manager, sent(manager, 2))

    assert manager.may_send(new_batch())
    assert identity(sent(manager)) == (7, 1, 0)


def test_answers_of_an_earlier_epoch_say_nothing_about_lost_numbers(manager):
    """In the new epoch nothing was acknowledged yet."""
    answered(manager, sent(manager, 2))
    lose(manager, sent(manager))
    first, second = sent(manager), sent(manager)
    lose(manager, first)
    lose(manager, second)

    assert identity(sent(manager)) == (7, 2, 0)


def test_new_epoch_settles_what_became_of_a_lost_batch(manager):
    """The batches behind it are numbered anew, and others follow at once."""
    answered(manager, sent(manager))
    lost, behind = sent(manager, 2), sent(manager, 3)
    lose(manager, lost)
    assert manager.may_retry(behind, OUT_OF_ORDER)
    behind.is_in_flight = False
    manager.settle()

    assert identity(behind) == (7, 1, 0)
    assert manager.may_send(new_batch())
    assert identity(sent(manager)) == (7, 1, 3)


def test_batch_that_was_numbered_anew_may_be_refused_again(manager):
    """A broker that does not know the producer has not appended it."""
    batch = sent(manager)
    batch.maybe_appended = True
    for epoch in (1, 2):
        assert manager.may_retry(
            batch, ErrorCode.UNKNOWN_PRODUCER_ID if epoch == 1 else OUT_OF_ORDER
        )
        batch.is_in_flight = False
        manager.settle()
        assert identity(batch) == (7, epoch, 0)


@pytest.mark.parametrize("error", sorted(FENCED))
def test_fenced_producer_goes_on_under_another_id(manager, error):
    """The batch of an idempotent producer is numbered anew as soon as the new id is there."""
    answered(manager, sent(manager))
    batch = sent(manager)
    assert manager.may_retry(batch, error)
    batch.is_in_flight = False
    manager.settle()
    assert not manager.has_producer_id
    manager.set_producer_id(8, 0)
    manager.settle()

    assert identity(batch) == (8, 0, 0)
    assert manager.may_send(batch)


def test_partitions_share_a_new_epoch(manager):
    """One that fails later, or has batches on the wire, takes the epoch that is there by then."""
    batches = [sent(manager, partition=partition) for partition in range(3)]
    for batch in batches:
        assert manager.may_retry(batch, OUT_OF_ORDER)
    for batch in batches:
        batch.is_in_flight = False
        manager.settle()

    assert [identity(batch) for batch in batches] == [(7, 1, 0)] * 3
    assert identity(sent(manager, partition=4)) == (7, 1, 0)


def test_parts_have_the_numbers_and_the_place_of_their_batch(manager):
    """They are sent one after the other; in a new epoch those that are left are numbered anew."""
    batch, behind = sent(manager, 3), sent(manager)
    parts = batch.split(1, 0)
    manager.on_split(batch, parts)
    assert [part.sequence for part in parts] == [0, 1, 2]
    assert [manager.may_send(each) for each in (*parts, behind)] == [True, False, False, False]
    manager.on_success(parts[0])
    assert manager.may_send(parts[1])
    assert manager.may_retry(parts[1], OUT_OF_ORDER)
    behind.is_in_flight = False
    manager.settle()

    assert [identity(each) for each in (*parts[1:], behind)] == [(7, 1, 0), (7, 1, 1), (7, 1, 2)]


def test_parts_count_as_the_batch_that_a_broker_remembers(manager):
    """As many more may follow as before, until the last part is answered."""
    answered(manager, sent(manager))
    batch = sent(manager, 2)
    parts = batch.split(1, 0)
    manager.on_split(batch, parts)
    for _ in range(MAX_BATCHES_IN_FLIGHT - 1):
        assert manager.may_send(new_batch())
        manager.on_success(sent(manager))
    manager.on_success(parts[0])
    assert not manager.may_send(new_batch())
    manager.on_success(parts[1])
    assert manager.may_send(new_batch())


def test_transaction_whose_numbers_are_lost_needs_an_epoch_from_the_coordinator():
    """Then everything counts from 0, even if the coordinator gave the same epoch again."""
    manager = TransactionManager(is_transactional=True)
    manager.begin_epoch(7, 0)
    answered(manager, sent(manager))
    assert not manager.needs_new_epoch
    lose(manager, sent(manager))
    assert manager.needs_new_epoch
    manager.begin_epoch(7, 0)

    assert not manager.needs_new_epoch
    assert identity(sent(manager)) == (7, 0, 0)


def test_first_batch_of_a_producer_is_answered_before_another_follows(manager):
    """A broker that does not know the producer would take the second one, whatever its number."""
    first = sent(manager)
    assert not manager.may_send(new_batch())
    assert manager.may_send(new_batch(partition=1))
    answered(manager, first)
    second = sent(manager)
    assert manager.may_send(new_batch())
    manager.set_producer_id(8, 0)
    assert not manager.may_send(new_batch())
    answered(manager, second)
    sent(manager)
    assert not manager.may_send(new_batch())


@pytest.mark.parametrize(("producer_id", "expected"), [(7, True), (8, False)])
def test_next_transaction_of_a_known_producer_does_not_wait(producer_id, expected):
    """The broker has its earlier epoch, and then takes 0 alone as the first number."""
    manager = TransactionManager(is_transactional=True)
    manager.begin_epoch(7, 0)
    answered(manager, sent(manager))
    manager.begin_epoch(producer_id, 1)
    sent(manager)
    assert manager.may_send(new_batch()) is expected


def test_batch_without_an_answer_is_followed_by_no_more_than_a_broker_remembers(manager):
    """Those that were answered count, too: the first one may come again at another leader."""
    answered(manager, sent(manager))
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

    assert not manager.may_retry(batch, OUT_OF_ORDER)


def test_batch_that_was_only_refused_goes_on_in_a_new_epoch(manager):
    """No broker has it, so that it can be counted anew."""
    batch = sent(manager)

    assert manager.may_retry(batch, OUT_OF_ORDER)
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
    manager.may_retry(batch, OUT_OF_ORDER)
    batch.is_in_flight = False
    manager.settle()

    assert (manager.producer_id, manager.producer_epoch) == expected
    assert manager.may_send(batch) is manager.has_producer_id
    if not manager.has_producer_id:
        manager.set_producer_id(8, 0)
        manager.settle()
        assert identity(batch) == (8, 0, 0)
        assert manager.may_send(batch)


@pytest.mark.parametrize("is_split", [False, True])
def test_batches_ahead_of_one_that_was_refused_for_good_keep_their_numbers(manager, is_split):
    """They may have been appended: in a new epoch a broker would not know them again."""
    answered(manager, sent(manager))
    ahead, refused, behind = sent(manager, 2), sent(manager), sent(manager)
    for batch in (ahead, refused, behind):
        batch.is_in_flight = False
    ahead.maybe_appended = True
    manager.on_failure(refused)
    left = ahead.split(1, 0) if is_split else [ahead]
    if is_split:
        manager.on_split(ahead, left)
    for batch in left:
        manager.settle()
        assert batch.producer_epoch == 0
        assert [manager.may_send(each) for each in (batch, behind, new_batch())] == [1, 0, 0]
        manager.on_success(batch)
    manager.settle()

    assert [batch.sequence for batch in left] == ([1, 2] if is_split else [1])
    assert identity(behind) == (7, 1, 0)
    assert manager.may_send(behind)


def test_new_epoch_does_not_wait_for_a_batch_ahead_that_is_given_up(manager):
    """Nor for those between two that were refused for good."""
    answered(manager, sent(manager))
    ahead, first, between, second = (sent(manager) for _ in range(4))
    for batch in (ahead, first, between, second):
        batch.is_in_flight = False
    manager.on_failure(second)
    manager.on_failure(first)
    lose(manager, ahead)

    assert identity(between) == (7, 1, 0)
    assert manager.may_send(between)


def test_partition_that_waits_for_its_new_epoch_is_not_sent_to(manager):
    """A batch that is still on the wire has a number of the old one."""
    first, second = sent(manager), sent(manager)
    manager.on_success(first)
    assert manager.may_retry(second, ErrorCode.UNKNOWN_PRODUCER_ID)
    manager.settle()

    assert not manager.may_send(new_batch())
    assert not manager.may_send(second)


def test_error_about_numbers_is_final_for_a_batch_that_has_none(manager):
    """An error about anything else is not about sequence numbers."""
    assert not manager.may_retry(new_batch(), OUT_OF_ORDER)
    assert not manager.may_retry(sent(manager), ErrorCode.MESSAGE_TOO_LARGE)


@pytest.mark.parametrize("error", [OUT_OF_ORDER, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_transaction_does_not_count_anew(error):
    """Its first batch in flight cannot be appended any more; those behind it may come again."""
    manager = TransactionManager(is_transactional=True)
    manager.set_producer_id(7, 0)
    first, second = sent(manager), sent(manager)

    assert not manager.may_retry(first, error)
    assert manager.may_retry(second, error)
    assert not manager.may_retry(first, ErrorCode.PRODUCER_FENCED)
