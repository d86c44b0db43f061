"""A transaction of a hundred thousand partitions is changed, ended and loaded in short steps."""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from coordinator_world import TIMEOUT_MS, TransactionWorld
from counted_calls import calls, worst_step

from ottla.coordinator.transaction.marker_sender import MARKERS_IN_A_STEP
from ottla.coordinator.transaction.transaction import TransactionState
from ottla.errors import ErrorCode
from ottla.runtime.scheduler import at_once
from ottla.structs import TopicPartition, TxnProducer

if TYPE_CHECKING:
    pass

MANY = 100_000
MOST_CALLS = 100_000
"""Of functions in one step, the built-in ones among them: some 20 ms."""
NEW = TopicPartition("new", 0)
S = TransactionState


@pytest.fixture(params=[1, 50, 20_000], ids="{} topics".format)
def world(request):
    """A coordinator with a transaction of so many topics, which is in its log."""
    world = TransactionWorld()
    topics = request.param
    world.ongoing(*(TopicPartition(f"t{n % topics}", n // topics) for n in range(MANY)))
    return world


def sender(world):
    """The producer of the transaction."""
    current = world.metadata.current
    return TxnProducer("x", current.producer_id, current.producer_epoch)


def test_addition_is_a_short_step(world):
    """All of them were sorted, copied and encoded: where a producer added one after the other,
    each took a tenth of a second."""
    producer, heard = sender(world), []
    count = calls(lambda: world.coordinator.add_partitions(producer, [NEW], heard.append))

    assert heard == [ErrorCode.NONE]
    assert len(world.metadata.current.partitions) == MANY + 1
    assert NEW in world.metadata.current.partitions
    assert count < MOST_CALLS
    assert world.coordinator.manager.differences(0) == []


@pytest.mark.parametrize("commit", [True, False])
def test_end_and_its_markers_are_short_steps(world, commit):
    """Each slice of the markers copied those that were left."""
    producer, heard = sender(world), []
    count = calls(lambda: world.coordinator.end_transaction(producer, commit, heard.append))

    assert heard == [ErrorCode.NONE]
    assert count < MOST_CALLS
    assert len(world.leaders.written) == MARKERS_IN_A_STEP
    assert worst_step(world.runtime.scheduler.run_ready) < MOST_CALLS
    assert len(world.leaders.written) == MANY
    assert len({tp for tp, *_ in world.leaders.written}) == MANY
    assert world.state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)


@pytest.mark.parametrize("is_decided", [False, True])
def test_load_is_done_in_short_steps(world, is_decided):
    """Of an open transaction, and of one that was decided when its coordinator stopped."""
    if is_decided:
        world.leaders.hold = True
        world.end(sender(world))
    world.coordinator.shutdown()
    world.leaders.hold = False

    assert worst_step(world.start) < MOST_CALLS
    assert world.state is (S.COMPLETE_COMMIT if is_decided else S.ONGOING)
    assert len(world.leaders.written) == (MANY if is_decided else 0)
    assert world.coordinator.manager.differences(0) == []


def test_end_of_its_time_is_a_short_step(world, caplog):
    """All of its partitions stood in a line of the log."""
    caplog.set_level(logging.INFO)
    world.runtime.clock.advance(TIMEOUT_MS + 1)

    assert calls(lambda: at_once(world.coordinator.abort_timed_out())) < MOST_CALLS
    assert "its time is over" in caplog.text
    assert len(caplog.text) < 2_000
    world.runtime.scheduler.run_ready()
    assert world.state is S.COMPLETE_ABORT
    assert len(world.leaders.written) == MANY


def test_transactions_that_were_decided_begin_again_in_turns():
    """A thousand of them had all of their first markers written in one step."""
    world = TransactionWorld()
    world.leaders.hold = True
    for number in range(500):
        producer = TxnProducer(f"x{number}", *world.init(transactional_id=f"x{number}")[1:])
        world.add(producer, *(TopicPartition("t", n) for n in range(20)))
        world.end(producer)
    world.coordinator.shutdown()
    world.leaders.hold = False

    assert worst_step(world.start) < MOST_CALLS
    assert len(world.leaders.written) == 500 * 20


def test_transactions_whose_time_is_over_end_in_turns():
    """A hundred and fifty of them had their markers written in one step."""
    world = TransactionWorld()
    for number in range(300):
        producer = TxnProducer(f"x{number}", *world.init(transactional_id=f"x{number}")[1:])
        world.add(producer, *(TopicPartition("t", n) for n in range(10)))
    world.runtime.clock.advance(TIMEOUT_MS + 1)
    work, left, steps = world.coordinator.abort_timed_out(), [True], []

    def step() -> None:
        left[:] = [True for _ in islice(work, 1)]

    while left:
        steps.append(calls(step))

    assert max(steps) < MOST_CALLS / 2
    assert len(world.leaders.written) == 300 * 10
