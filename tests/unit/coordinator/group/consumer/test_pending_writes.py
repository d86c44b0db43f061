"""Writes of one group: in order, made up for after a failure, and waited for."""

from __future__ import annotations

from ottla.coordinator.group.consumer.pending_writes import MOST_UNSAVED_BYTES, PendingWrites
from ottla.errors import ErrorCode

NONE, FAILED = ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS


class Log:
    """Keeps batches and their callbacks."""

    def __init__(self) -> None:
        self.batches: list = []
        self.callbacks: list = []

    def append(self, batch, on_done) -> None:
        self.batches.append(dict(batch))
        self.callbacks.append(on_done)


def test_write_of_nothing_waits_for_what_is_under_way():
    """Its answer could tell of it."""
    writes, log, told = PendingWrites(), Log(), []

    writes.write({}, log.append, told.append)
    assert told == [NONE]
    writes.write({b"k": b"1"}, log.append, told.append)
    writes.write({}, log.append, told.append)
    assert told == [NONE]
    log.callbacks[0](NONE)

    assert told == [NONE, NONE, NONE]
    assert len(log.batches) == 1


def test_failed_write_goes_into_the_next_one():
    """A key that was written since keeps its later value."""
    writes, log, told = PendingWrites(), Log(), []
    writes.write({b"k": b"1", b"l": b"1"}, log.append, told.append)
    writes.write({b"k": b"2"}, log.append, told.append)
    log.callbacks[0](FAILED)
    log.callbacks[1](NONE)

    writes.write({}, log.append, told.append)

    assert log.batches[2] == {b"l": b"1"}
    assert told == [FAILED, NONE]


def test_those_who_wait_learn_of_a_failure():
    """They are to try again."""
    writes, log, told = PendingWrites(), Log(), []
    writes.write({b"k": b"1"}, log.append, lambda error: None)
    writes.write({}, log.append, told.append)

    log.callbacks[0](FAILED)

    assert told == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_group_that_is_given_up_answers_those_who_wait():
    """Waiting members are answered, and writes under way end without a trace."""
    writes, log, told = PendingWrites(), Log(), []
    writes.write({b"k": b"1"}, log.append, told.append)
    writes.write({}, log.append, told.append)

    writes.abandon(ErrorCode.NOT_COORDINATOR)
    log.callbacks[0](FAILED)

    assert told == [ErrorCode.NOT_COORDINATOR, FAILED]
    assert not writes.unsaved


def test_writes_are_idle_when_the_log_has_all_of_them():
    """Neither under way nor still to be made up for."""
    writes, log = PendingWrites(), Log()
    assert writes.is_idle
    writes.write({b"k": b"1"}, log.append, lambda error: None)
    assert not writes.is_idle
    log.callbacks[0](FAILED)
    assert not writes.is_idle
    writes.write({}, log.append, lambda error: None)
    assert not writes.is_idle
    log.callbacks[1](NONE)

    assert writes.is_idle


def test_nothing_of_a_group_that_was_given_up_is_written_later():
    """Another coordinator has read the log since."""
    writes, log, told = PendingWrites(), Log(), []
    writes.write({b"k": b"1"}, log.append, told.append)
    log.callbacks[0](FAILED)
    writes.write({b"l": b"1"}, log.append, told.append)
    writes.abandon(ErrorCode.NOT_COORDINATOR)
    assert (writes.is_idle, writes.keys) == (True, {})
    failed = PendingWrites()
    failed.write({b"k": b"1"}, log.append, told.append)
    log.callbacks.pop()(FAILED)
    log.batches.pop()
    failed.abandon(ErrorCode.NOT_COORDINATOR)
    assert (failed.is_idle, failed.keys) == (True, {})

    writes.write({b"m": b"1"}, log.append, told.append)
    assert log.batches[2] == {b"m": b"1"}
    log.callbacks[2](FAILED)
    assert writes.unsaved == {b"m": b"1"}


def test_writes_are_too_many_until_the_log_takes_one():
    """Also while the next attempt is under way; not where the log has had no trouble."""
    writes, log = PendingWrites(), Log()
    large = {b"k": b"1" * (MOST_UNSAVED_BYTES + 1)}
    writes.write(large, log.append, lambda error: None)
    assert not writes.are_too_many
    log.callbacks[0](FAILED)
    assert writes.are_too_many

    writes.write({}, log.append, lambda error: None)
    assert writes.are_too_many
    log.callbacks[1](NONE)
    assert not writes.are_too_many

    writes.write({b"k": b"2"}, log.append, lambda error: None)
    log.callbacks[2](FAILED)
    assert not writes.are_too_many
