"""Writes of one controller: in batches, fenced, and the node that names it given back."""

from __future__ import annotations

import pytest

from ottla.controller.controller_election import (
    ControllerEpoch,
    ControllerMovedError,
    elect_controller,
    give_up_control,
)
from ottla.controller.fenced_registry import MAX_BYTES, MAX_OPERATIONS, FencedRegistry, batches
from ottla.registry import paths
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.tree import BadVersionError, Create, Set
from ottla.registry.znodes import encode_controller, encode_epoch
from ottla.testing import mock_runtime


class Elected:
    """A registry in which broker 1 is the controller."""

    def __init__(self) -> None:
        self.runtime = mock_runtime()
        self.registry = EmbeddedRegistry(self.runtime, "/data/registry")
        self.epoch = self.run(self._elect())

    def run(self, coroutine):
        return self.runtime.scheduler.run(coroutine)

    async def _elect(self) -> ControllerEpoch:
        await self.registry.start()
        epoch = await elect_controller(self.registry, 1, 0)
        assert epoch is not None
        return epoch

    def overwrite(self, path: str, data: bytes) -> None:
        self.run(self.registry.set(path, data, -1))

    @property
    def has_controller(self) -> bool:
        return self.run(self.registry.exists(paths.CONTROLLER)) is not None

    def give_up(self, broker_id: int = 1) -> None:
        self.run(give_up_control(self.registry, broker_id, self.epoch))


@pytest.fixture
def elected() -> Elected:
    return Elected()


def group(count: int, size: int) -> list[Set]:
    """Some operations that belong together, of so many bytes each."""
    return [Set("/p", b"x" * (size - 2), -1)] * count


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([], []),
        ([group(MAX_OPERATIONS, 2)], [1]),
        ([group(MAX_OPERATIONS - 1, 2), group(1, 2)], [2]),
        ([group(MAX_OPERATIONS - 1, 2), group(2, 2)], [1, 1]),
        ([group(1, MAX_BYTES - 9), group(1, 9)], [2]),
        ([group(1, MAX_BYTES - 9), group(1, 10)], [1, 1]),
        ([group(1, 2 * MAX_BYTES), group(1, 2)], [1, 1]),
        ([group(100, 2)] * 5, [2, 2, 1]),
        ([group(1, 2)] * 3, [3]),
    ],
)
def test_requests_are_as_few_as_their_limits_allow(groups, expected):
    """A group is never divided, also where it alone is beyond a limit."""
    packed = list(batches(groups))

    assert [len(batch) for batch in packed] == expected
    assert [each for batch in packed for each in batch] == groups


def test_write_that_only_a_version_refuses_is_no_end_of_the_epoch(elected):
    """Somebody else has written the node; the controller is the controller still."""
    elected.run(elected.registry.create("/p", b""))
    fenced = FencedRegistry(elected.registry, elected.epoch)

    with pytest.raises(BadVersionError):
        elected.run(fenced.write(Set("/p", b"mine", 7)))


def test_write_after_another_election_is_the_end_of_the_epoch(elected):
    """Nothing of it is done."""
    elected.overwrite(paths.CONTROLLER_EPOCH, encode_epoch(9))
    fenced = FencedRegistry(elected.registry, elected.epoch)

    with pytest.raises(ControllerMovedError):
        elected.run(fenced.write(Create("/p", b"")))
    assert elected.run(elected.registry.exists("/p")) is None


def test_only_the_group_that_is_to_blame_is_refused(elected):
    """The others of its request are written."""
    fenced = FencedRegistry(elected.registry, elected.epoch)
    wishes = [[Create(f"/{name}", b"")] for name in "abc"]
    elected.run(elected.registry.create("/b", b""))

    outcomes = elected.run(fenced.write_each(wishes))

    assert [isinstance(outcome, list) for outcome in outcomes] == [True, False, True]
    assert set(elected.run(elected.registry.children("/"))) >= {"a", "b", "c"}


@pytest.mark.parametrize(
    ("data", "remains"),
    [
        (encode_controller(1, 0), False),
        (encode_controller(2, 0), True),
        (b"{spoilt", False),
    ],
)
def test_controller_that_gives_up_removes_only_its_own_node(elected, data, remains):
    """An unreadable one of its own session goes, too: nobody else could remove it."""
    elected.overwrite(paths.CONTROLLER, data)
    elected.give_up()

    assert elected.has_controller is remains


def test_unreadable_node_of_another_session_stays(elected):
    """It may be a successor's."""

    async def replace() -> None:
        await elected.registry.delete(paths.CONTROLLER)
        await elected.registry.create(paths.CONTROLLER, b"{spoilt")

    elected.run(replace())
    elected.give_up()

    assert elected.has_controller


def test_controller_whose_epoch_is_over_removes_nothing(elected):
    """The node may be that of its own next election."""
    elected.overwrite(paths.CONTROLLER_EPOCH, encode_epoch(9))
    elected.give_up()

    assert elected.has_controller


def test_epoch_that_was_overwritten_is_taken_from_the_number_of_elections(elected, caplog):
    """Each election writes the node once, so that no two controllers get the same."""
    elected.overwrite(paths.CONTROLLER_EPOCH, b"spoilt")
    version = elected.run(elected.registry.get(paths.CONTROLLER_EPOCH))[1].version
    elected.give_up()
    elected.run(elected.registry.delete(paths.CONTROLLER))

    epoch = elected.run(elect_controller(elected.registry, 2, 0))

    assert epoch.epoch == version + 1
    assert f"epoch {version + 1} comes next" in caplog.text
