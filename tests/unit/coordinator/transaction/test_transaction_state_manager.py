"""The ids of a partition: how they are written, read back, compared with the log, and forgotten."""

from __future__ import annotations

import asyncio
import logging

import pytest
from coordinator_world import T0, TIMEOUT_MS, S, TransactionWorld

from ottla.coordinator.transaction import transaction_state_manager
from ottla.coordinator.transaction.transaction_state_manager import TransactionStateManager
from ottla.errors import ErrorCode
from ottla.runtime.scheduler import at_once
from ottla.structs import TxnProducer

WEEK_MS = 7 * 86_400_000


@pytest.fixture
def world():
    return TransactionWorld()


@pytest.mark.parametrize(("waited_ms", "count"), [(WEEK_MS - 1, 0), (WEEK_MS, 1)])
def test_id_that_was_unused_for_long_is_forgotten(waited_ms, count):
    """In memory and in the log; one with an open transaction is not."""
    world = TransactionWorld(transaction_remove_expired_transaction_cleanup_interval_ms=2**31 - 1)
    world.producer()
    world.runtime.clock.advance(waited_ms)
    manager = world.coordinator.manager

    assert at_once(manager.expire(WEEK_MS)) == count
    assert (manager.get("x") is None) == bool(count)
    assert manager.differences(0) == []
    world.restart()
    assert (world.coordinator.manager.get("x") is None) == bool(count)


def test_open_transaction_is_never_too_old(world):
    """It is aborted in its time, and forgotten later."""
    world.ongoing(T0)
    world.runtime.clock.advance(100 * WEEK_MS)

    assert at_once(world.coordinator.manager.expire(WEEK_MS)) == 0


def test_differences_between_memory_and_log_are_named(world):
    """By the id; one that is being changed is not compared."""
    manager = world.coordinator.manager
    producer = world.producer()
    assert manager.differences(0) == []
    world.log.hold = True
    assert world.add(producer, T0) is None
    assert manager.differences(0) == []
    world.log.hold = False
    world.log.release()
    assert (world.state, manager.differences(0)) == (S.ONGOING, [])
    written = world.log.partitions[0].pop()
    (difference,) = manager.differences(0)
    assert difference.startswith("id x: in memory ")
    world.log.partitions[0].append(written)
    manager.unload(0)
    (difference,) = manager.differences(0)
    assert difference.startswith("id x: in memory None, in the log ")


def test_damaged_batch_is_no_state_of_an_id(world, caplog):
    """What stands before it counts."""
    producer = world.producer()
    world.add(producer, T0)
    damaged = bytearray(world.log.partitions[0][-1])
    damaged[-1] ^= 1
    world.log.partitions[0][-1] = bytes(damaged)
    world.restart()

    assert world.state is S.EMPTY
    assert "CRC" in caplog.text


def test_write_that_is_refused_again_after_a_good_one_is_logged_again(world, caplog):
    """A refusal after a good write is logged again, but once only while it is repeated."""
    caplog.set_level(logging.INFO)
    for count in (1, 2):
        world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
        for _ in range(3):
            assert world.init()[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert caplog.text.count("cannot be written") == count
        world.log.error = ErrorCode.NONE
        assert world.init()[0] is ErrorCode.NONE


def test_id_that_cannot_go_on_keeps_no_other_back(world, caplog):
    """What is wrong with it is in the log; all are known."""
    world.producer()
    world.init(transactional_id="y")
    manager = TransactionStateManager(world.runtime, world.log)
    went_on: list[str] = []

    def go_on(metadata):
        if metadata.transactional_id == "x":
            raise ValueError("a bug")
        went_on.append(metadata.transactional_id)

    manager.load(0, go_on)
    with world.log.replicated():
        world.runtime.scheduler.run_ready()

    assert went_on == ["y"]
    assert {each.transactional_id for each in manager.all()} == {"x", "y"}
    assert "a bug" in caplog.text


def test_ids_are_attended_in_slices(world, monkeypatch):
    """One that goes, or is used again, between two slices is left alone."""
    monkeypatch.setattr(transaction_state_manager, "STEPS_IN_A_SLICE", 42)
    for number in range(5):
        world.init(transactional_id=f"x{number}")
    manager, attended = world.coordinator.manager, []
    known = list(manager.all())
    gone = []
    work = manager.attend(lambda each: each not in gone, attended.append)
    next(work)
    assert attended == known[:2]
    gone.append(known[3])

    assert at_once(work) == 4
    assert attended == [*known[:3], known[4]]


def test_transaction_has_its_time_also_between_two_slices_of_a_load(world, monkeypatch):
    """Its time limit begins with its turn; what looks for those that are over may come before."""
    monkeypatch.setattr(transaction_state_manager, "IDS_IN_A_STEP", 2)
    names = [f"x{number}" for number in range(7)]
    for name in names:
        answer = world.init(transactional_id=name)
        assert world.add(TxnProducer(name, *answer[1:]), T0) is ErrorCode.NONE
    world.coordinator.on_resignation(0)
    world.coordinator.on_election(0)
    world.runtime.clock.advance(1000)
    manager, aborted = world.coordinator.manager, []

    async def abort_meanwhile() -> None:
        while manager.is_loading:
            aborted.append(at_once(world.coordinator.abort_timed_out()))
            await asyncio.sleep(0)

    with world.log.replicated():
        world.runtime.scheduler.run(abort_meanwhile())

    assert set(aborted) == {0}
    assert len(aborted) > len(names) // 2
    assert [manager.get(name).current.state for name in names] == 7 * [S.ONGOING]
    world.runtime.clock.advance(TIMEOUT_MS + 1)
    assert at_once(world.coordinator.abort_timed_out()) == 7
