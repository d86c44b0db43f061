"""The registry as one controller writes it: nothing is written after the next was elected."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ottla.errors import ErrorCode, KafkaError
from ottla.registry import paths
from ottla.registry.tree import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Operation,
    Registry,
    RegistryError,
    RegistryFailedError,
    Set,
    Stat,
)
from ottla.registry.znodes import decode_controller, decode_epoch, encode_controller, encode_epoch
from ottla.runtime import Runtime

logger = logging.getLogger(__name__)


# How a broker becomes the controller: it owns /controller, in an epoch that nobody else has.


class ControllerEpoch(NamedTuple):
    """A controller's epoch, and the version of /controller_epoch that every write checks."""

    epoch: int
    version: int


class ControllerMovedError(KafkaError):
    """Another controller was elected since: nothing of what this one wanted was done."""

    def __init__(self, epoch: int) -> None:
        super().__init__(
            ErrorCode.NOT_CONTROLLER, f"there is a controller after the one of epoch {epoch}"
        )


async def elect_controller(
    registry: Registry, broker_id: int, now_ms: int
) -> ControllerEpoch | None:
    """Take /controller if nobody has it, and raise the epoch that fences predecessors.

    Both or nothing: there is no controller whose epoch another one has, too (KAFKA-6082).
    None where another broker is the controller. The caller must not act as the controller.
    """
    await _withdraw_unanswered(registry, broker_id)
    try:
        data, stat = await registry.get(paths.CONTROLLER_EPOCH)
    except NoNodeError:
        try:
            await registry.create(paths.CONTROLLER_EPOCH, encode_epoch(0))
        except NodeExistsError:
            pass  # another broker of a new cluster was faster
        data, stat = await registry.get(paths.CONTROLLER_EPOCH)
    epoch = _last_epoch(data, stat) + 1
    try:
        _, written = await registry.multi(
            (
                Create(paths.CONTROLLER, encode_controller(broker_id, now_ms), ephemeral=True),
                Set(paths.CONTROLLER_EPOCH, encode_epoch(epoch), stat.version),
            )
        )
    except (NodeExistsError, BadVersionError):
        return None
    assert written is not None, "a registry says what a set has made of the node"
    return ControllerEpoch(epoch, written.version)


def _last_epoch(data: bytes, stat: Stat) -> int:
    """The epoch before the next one, also where the node was overwritten with something else."""
    try:
        return decode_epoch(data)
    except KafkaError as error:
        # Each election writes the node once: its version is no smaller than the last epoch.
        logger.error("%s: %s; epoch %d comes next", paths.CONTROLLER_EPOCH, error, stat.version + 1)
        return stat.version


async def _withdraw_unanswered(registry: Registry, broker_id: int) -> None:
    """A node of this session for which nobody acts: the election's answer was lost.

    Or somebody has written over it, so that nobody finds the controller by it.
    """
    try:
        data, stat = await registry.get(paths.CONTROLLER)
        named = _named(data)
        if stat.is_own and named in (broker_id, None):
            await registry.delete(paths.CONTROLLER, stat.version)
        elif named is None:
            logger.error("%s has to go before a controller can be elected", paths.CONTROLLER)
    except (NoNodeError, BadVersionError):
        pass  # there is no controller, or another one


async def give_up_control(registry: Registry, broker_id: int, epoch: ControllerEpoch) -> None:
    """Make room for another election, if this broker is still the controller of this epoch."""
    try:
        data, stat = await registry.get(paths.CONTROLLER)
        named = _named(data)
        if named == broker_id or (named is None and stat.is_own):
            await registry.multi(
                (
                    Check(paths.CONTROLLER_EPOCH, epoch.version),
                    Delete(paths.CONTROLLER, stat.version),
                )
            )
    except (NoNodeError, BadVersionError):
        pass  # somebody else is, or will be


async def current_controller(registry: Registry) -> int | None:
    """The broker that is the controller; None while there is none, or nobody can read which."""
    try:
        data, _ = await registry.get(paths.CONTROLLER)
    except NoNodeError:
        return None
    return _named(data)


def _named(data: bytes) -> int | None:
    """The broker that the node names; None where somebody else has spoilt it."""
    try:
        return decode_controller(data)
    except KafkaError as error:
        logger.error("%s: %s", paths.CONTROLLER, error)
        return None


async def refuse_zombie(registry: Registry, epoch: ControllerEpoch, error: RegistryError) -> None:
    """ControllerMovedError if a write was refused because another controller was elected."""
    if isinstance(error, BadVersionError):
        stat = await registry.exists(paths.CONTROLLER_EPOCH)
        if stat is None or stat.version != epoch.version:
            raise ControllerMovedError(epoch.epoch) from error


# The controller's one line: events and operations, each carried out to its end before the next.


T = TypeVar("T")

OnFailure = Callable[[str, Exception], object]


class _Turn(Generic[T]):
    """One entry of the line and whoever waits for its result, if anybody does."""

    __slots__ = ("done", "name", "operation")

    def __init__(
        self, name: str, operation: Callable[[], Awaitable[T]], done: asyncio.Future[T] | None
    ) -> None:
        self.name = name
        self.operation = operation
        self.done = done


class EventQueue:
    """A first-in-first-out line that one task works off; there is no task while it is empty.

    An operation awaits the registry several times, and the next must not begin before it has
    come to its end. What fails is told to whoever waits for it; where nobody does, or where it
    was no KafkaError of the operation's own, `on_failure` hears of it.
    """

    def __init__(self, runtime: Runtime, on_failure: OnFailure) -> None:
        self.runtime = runtime
        self._on_failure = on_failure
        self._turns: deque[_Turn[Any]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def is_idle(self) -> bool:
        return self._task is None

    def put(self, name: str, operation: Callable[[], Awaitable[object]]) -> None:
        """Do it in its turn."""
        self._append(_Turn(name, operation, None))

    def put_once(self, name: str, operation: Callable[[], Awaitable[object]]) -> None:
        """Do it in its turn. One of this name that has not begun yet does the work of both."""
        if not any(turn.done is None and turn.name == name for turn in self._turns):
            self.put(name, operation)

    async def submit(self, name: str, operation: Callable[[], Awaitable[T]]) -> T:
        """Do it in its turn; returns its result. It goes on if the caller is cancelled."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._append(_Turn(name, operation, done))
        return await asyncio.shield(done)

    def clear(self) -> None:
        """Drop whatever has not begun; whoever waits for it hears NOT_CONTROLLER."""
        turns, self._turns = self._turns, deque()
        for turn in turns:
            _refuse(turn)

    def close(self) -> None:
        """Drop everything and take nothing more."""
        self._is_closed = True
        self.clear()
        if self._task is not None:
            self._task.cancel()

    def _append(self, turn: _Turn[Any]) -> None:
        if self._is_closed:
            _refuse(turn)
            return
        self._turns.append(turn)
        if self._task is None:
            self._task = self.runtime.scheduler.spawn(self._work(), "controller")

    async def _work(self) -> None:
        try:
            while self._turns:
                await self._carry_out(self._turns.popleft())
        finally:
            self._task = None

    async def _carry_out(self, turn: _Turn[Any]) -> None:
        try:
            result = await turn.operation()
        except asyncio.CancelledError:
            _refuse(turn)
            raise
        except Exception as error:
            if turn.done is not None and not turn.done.done():
                turn.done.set_exception(error)
                turn.done.exception()  # whoever waited may have gone: then nobody looks at it
            if turn.done is None or not isinstance(error, KafkaError):
                self._on_failure(turn.name, error)
        else:
            if turn.done is not None and not turn.done.done():
                turn.done.set_result(result)


def _refuse(turn: _Turn[Any]) -> None:
    if turn.done is not None and not turn.done.done():
        turn.done.set_exception(
            KafkaError.of(ErrorCode.NOT_CONTROLLER, "this broker is not the controller any more")
        )
        turn.done.exception()


MAX_OPERATIONS: Final = 250
MAX_BYTES: Final = 400_000
"""What goes into one `multi`: ZooKeeper takes 1 MB at once, headers and paths included."""

Group = Sequence[Operation]
"""What belongs together: all of it is done or nothing."""
Outcome = list[Stat | None] | RegistryError


class FencedRegistry:
    """Every write checks the version of /controller_epoch in the same `multi` (KAFKA-6082).

    So a controller that was paused, and has a successor, gets ControllerMovedError.
    """

    def __init__(self, registry: Registry, epoch: ControllerEpoch) -> None:
        self.registry = registry
        self.epoch = epoch
        self._fence = Check(paths.CONTROLLER_EPOCH, epoch.version)

    async def read_wish(self, path: str) -> tuple[bytes, Stat] | None:
        """A node by which a tool asks for something; None where nobody does, or it is forbidden.

        What an ACL keeps to itself is for somebody else: controllers would give up in turn.
        """
        try:
            return await self.registry.get(path)
        except NoNodeError:
            return None
        except RegistryFailedError:
            raise
        except RegistryError as error:
            logger.error("%s is passed over: %s", path, error)
            return None

    async def write(self, *operations: Operation) -> list[Stat | None]:
        """Do all of it or nothing; the stats of what was set, as `Registry.multi` has them."""
        try:
            _, *stats = await self.registry.multi((self._fence, *operations))
        except RegistryFailedError:
            raise
        except RegistryError as error:
            await refuse_zombie(self.registry, self.epoch, error)
            raise
        return stats

    async def write_each(self, groups: Sequence[Group]) -> list[Outcome]:
        """Do each group or nothing of it; in as few requests as there can be, all at once."""
        written = await asyncio.gather(*(self._write_batch(batch) for batch in batches(groups)))
        return [outcome for outcomes in written for outcome in outcomes]

    async def _write_batch(self, batch: Sequence[Group]) -> list[Outcome]:
        """One request; if it is refused, its halves, down to the group that is to blame."""
        try:
            stats = await self.write(*(operation for group in batch for operation in group))
        except RegistryFailedError:
            raise
        except RegistryError as error:
            if len(batch) == 1:
                return [error]
            middle = len(batch) // 2
            return [
                *await self._write_batch(batch[:middle]),
                *await self._write_batch(batch[middle:]),
            ]
        remaining = iter(stats)
        return [[next(remaining) for _ in group] for group in batch]


def batches(groups: Sequence[Group]) -> Iterator[Sequence[Group]]:
    """The groups in order, as many together as one request takes."""
    batch: list[Group] = []
    count = size = 0
    for group in groups:
        group_size = sum(
            len(operation.path) + len(getattr(operation, "data", b"")) for operation in group
        )
        if batch and (count + len(group) > MAX_OPERATIONS or size + group_size > MAX_BYTES):
            yield batch
            batch, count, size = [], 0, 0
        batch.append(group)
        count += len(group)
        size += group_size
    if batch:
        yield batch
