"""The contract of delayed operations and of the purgatory that keeps them."""

from __future__ import annotations

import logging

import pytest

from ottla.runtime import DelayedOperation, DelayedOperationPurgatory
from ottla.testing import MockRuntime, mock_runtime


class Wait(DelayedOperation):
    """Waits until it is allowed to complete, and notes what happens to it."""

    def __init__(self, delay_ms: int = 100) -> None:
        super().__init__(delay_ms)
        self.can_complete = False
        self.events: list[str] = []

    def try_complete(self) -> bool:
        self.events.append("try")
        return self.can_complete and self.force_complete()

    def on_complete(self) -> None:
        self.events.append("complete")

    def on_expiration(self) -> None:
        self.events.append("expire")


@pytest.fixture
def runtime() -> MockRuntime:
    return mock_runtime()


@pytest.fixture
def purgatory(runtime: MockRuntime) -> DelayedOperationPurgatory[str]:
    return DelayedOperationPurgatory("test", runtime.scheduler, purge_interval=10)


def completed_by_check(purgatory: DelayedOperationPurgatory[str], key: str) -> int:
    """Check a key; how many operations fewer wait for anything afterwards."""
    waiting = purgatory.delayed
    purgatory.check([key])
    return waiting - purgatory.delayed


def test_operation_that_can_be_done_at_once_is_never_watched(
    purgatory: DelayedOperationPurgatory[str],
) -> None:
    """No timer and no watcher for what does not have to wait."""
    operation = Wait()
    operation.can_complete = True

    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.events == ["try", "complete"]
    assert (purgatory.watched, purgatory.delayed) == (0, 0)


def test_check_completes_the_operations_of_its_key_only(
    purgatory: DelayedOperationPurgatory[str],
) -> None:
    """What is watched under another key is not even tried."""
    first, second = Wait(), Wait()
    purgatory.try_complete_else_watch(first, ["a"])
    purgatory.try_complete_else_watch(second, ["b"])
    first.can_complete = second.can_complete = True

    assert completed_by_check(purgatory, "a") == 1
    assert first.events == ["try", "try", "complete"]
    assert second.events == ["try"]
    assert purgatory.delayed == 1


def test_operation_under_several_keys_completes_once(
    runtime: MockRuntime, purgatory: DelayedOperationPurgatory[str]
) -> None:
    """The check of one key completes it; the other key and the timer find it done."""
    operation = Wait()
    purgatory.try_complete_else_watch(operation, ["a", "b"])
    operation.can_complete = True

    assert completed_by_check(purgatory, "a") == 1
    assert completed_by_check(purgatory, "b") == 0
    runtime.advance(1000)
    assert operation.events.count("complete") == 1
    assert "expire" not in operation.events


def test_operation_completes_and_expires_when_its_time_is_up(
    runtime: MockRuntime, purgatory: DelayedOperationPurgatory[str]
) -> None:
    """Expiration completes first, and says so afterwards; not a millisecond early."""
    operation = Wait(delay_ms=100)
    purgatory.try_complete_else_watch(operation, ["a"])
    runtime.advance(99)
    assert not operation.is_completed
    runtime.advance(1)

    assert operation.events == ["try", "complete", "expire"]
    assert purgatory.delayed == 0
    assert completed_by_check(purgatory, "a") == 0


def test_force_complete_works_once(purgatory: DelayedOperationPurgatory[str]) -> None:
    """The second caller is told that it was too late."""
    operation = Wait()
    purgatory.try_complete_else_watch(operation, ["a"])

    assert operation.force_complete()
    assert not operation.force_complete()
    assert operation.events == ["try", "complete"]


def test_check_of_an_unknown_key_does_nothing(purgatory: DelayedOperationPurgatory[str]) -> None:
    """Most appends have nobody waiting for them."""
    assert completed_by_check(purgatory, "nobody") == 0


def test_operation_may_check_its_own_key_while_it_completes(
    purgatory: DelayedOperationPurgatory[str],
) -> None:
    """Completing one operation can make others possible, under the very same key."""

    class Chain(Wait):
        def on_complete(self) -> None:
            super().on_complete()
            purgatory.check(["a"])

    operations = [Chain(), Chain(), Chain()]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.can_complete = True
    purgatory.check(["a"])

    assert [operation.events.count("complete") for operation in operations] == [1, 1, 1]
    assert (purgatory.watched, purgatory.delayed) == (0, 0)


def test_operation_watched_during_a_check_stays_watched(
    purgatory: DelayedOperationPurgatory[str],
) -> None:
    """A client's next request may arrive while its last one is being answered."""
    newcomer = Wait()

    class Successor(Wait):
        def on_complete(self) -> None:
            purgatory.try_complete_else_watch(newcomer, ["a"])

    operation = Successor()
    purgatory.try_complete_else_watch(operation, ["a"])
    operation.can_complete = True
    purgatory.check(["a"])
    newcomer.can_complete = True

    assert completed_by_check(purgatory, "a") == 1
    assert newcomer.is_completed


def test_failing_operation_does_not_keep_the_others_waiting(
    purgatory: DelayedOperationPurgatory[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is logged; the operation behind it completes."""

    class Failing(Wait):
        def try_complete(self) -> bool:
            if self.can_complete:
                raise ValueError("cannot try")
            return False

    failing, other = Failing(), Wait()
    for operation in (failing, other):
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.can_complete = True
    with caplog.at_level(logging.ERROR):
        assert completed_by_check(purgatory, "a") == 1

    assert other.is_completed
    assert "cannot try" in caplog.text


def test_leftovers_under_other_keys_are_purged_after_the_interval(
    purgatory: DelayedOperationPurgatory[str],
) -> None:
    """Eleven operations leave an entry each under a key that nobody checks: more than ten."""
    for number in range(11):
        operation = Wait()
        purgatory.try_complete_else_watch(operation, ["quiet", f"busy-{number}"])
        operation.can_complete = True
        purgatory.check([f"busy-{number}"])

    assert purgatory.delayed == 0
    assert purgatory.watched < 11


def test_cancel_for_key_returns_what_still_waits(
    runtime: MockRuntime, purgatory: DelayedOperationPurgatory[str]
) -> None:
    """The caller decides what becomes of it; its time limit still holds."""
    done, waiting = Wait(), Wait(delay_ms=50)
    for operation in (done, waiting):
        purgatory.try_complete_else_watch(operation, ["a"])
    done.force_complete()

    assert purgatory.cancel_for_key("a") == [waiting]
    assert purgatory.watched == 0
    runtime.advance(50)
    assert waiting.events[-1] == "expire"


def test_complete_all_leaves_nobody_waiting(purgatory: DelayedOperationPurgatory[str]) -> None:
    """At shutdown everybody gets what there is."""
    operations = [Wait() for _ in range(3)]
    for number, operation in enumerate(operations):
        purgatory.try_complete_else_watch(operation, ["all", str(number)])
    purgatory.complete_all()

    assert all(operation.is_completed for operation in operations)
    assert (purgatory.watched, purgatory.delayed) == (0, 0)


def test_cancelled_operation_is_released_without_being_done(
    runtime: MockRuntime, purgatory: DelayedOperationPurgatory[str]
) -> None:
    """Its client has gone: neither a check nor its time limit completes it, and nothing is kept."""
    operation = Wait(delay_ms=100)
    purgatory.try_complete_else_watch(operation, ["a", "b"])
    operation.cancel()
    operation.cancel()
    operation.can_complete = True
    runtime.scheduler.advance(200)
    for key in ("a", "b"):
        assert completed_by_check(purgatory, key) == 0

    assert operation.events == ["try"]
    assert not operation.force_complete()
    assert (purgatory.watched, purgatory.delayed) == (0, 0)


def test_operation_is_tried_once_for_all_its_keys_that_changed(
    purgatory: DelayedOperationPurgatory[str],
) -> None:
    """To try one that waits for thousands of partitions is to look at all of them."""
    wide, narrow = Wait(), Wait()
    purgatory.watch(wide, "abc")
    purgatory.watch(narrow, "c")
    purgatory.check(["a", "b", "c", "unknown"])
    assert (wide.events, narrow.events) == (["try"], ["try"])

    wide.can_complete = True
    purgatory.check_all()
    assert (wide.events, narrow.events) == (["try", "try", "complete"], ["try", "try"])
    assert "a" not in purgatory, "what has ended is not watched any longer"
    assert purgatory.watched == 1


def test_operations_that_are_due_are_tried_some_at_a_time(
    purgatory: DelayedOperationPurgatory[str],
) -> None:
    """They count by their entries; those that end before their turn are passed over."""
    waits = [Wait() for _ in range(5)]
    for each in waits:
        purgatory.watch(each, "abc")
    assert purgatory.check("ab", 6)
    assert [each.events for each in waits] == [["try"], ["try"], [], [], []]
    waits[2].force_complete()
    assert not purgatory.check("c", 100)

    assert [len(each.events) for each in waits] == [2, 2, 1, 1, 1]


def test_many_leftovers_are_purged_when_they_are_half_and_in_steps(
    purgatory: DelayedOperationPurgatory[int], runtime: MockRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purging one by one would have each of many waits that end look at all other lists."""
    monkeypatch.setattr("ottla.runtime.purgatory.PURGED_AT_ONCE", 50)
    waits = [Wait() for _ in range(10)]
    for each in waits:
        purgatory.watch(each, range(20))
    for each in waits[:5]:
        each.cancel()
    assert purgatory.watched == 200
    waits[5].cancel()
    assert 140 <= purgatory.watched < 200
    runtime.scheduler.run_ready()

    assert purgatory.watched == 80
