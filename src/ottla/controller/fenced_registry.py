"""The registry as one controller writes it: a controller with a successor writes nothing."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ottla.config.config_type import INT_MAX
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


# How a broker becomes the controller: it owns /controller, in an epoch that no other broker has.


class ControllerEpoch(NamedTuple):
    """A controller's epoch, and the version of /controller_epoch that every write checks."""

    epoch: int
    version: int


class ControllerMovedError(KafkaError):
    """Another controller was elected since: nothing of the write was done."""

    def __init__(self, epoch: int) -> None:
        super().__init__(
            ErrorCode.NOT_CONTROLLER, f"there is a controller after the one of epoch {epoch}"
        )


async def elect_controller(
    registry: Registry, broker_id: int, now_ms: int
) -> ControllerEpoch | None:
    """Take /controller if no broker has it, and raise the epoch that fences predecessors.

    Both happen or neither: no two controllers have the same epoch (KAFKA-6082).
    None where another broker is the controller. The caller must not be the controller already.
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
    if epoch > INT_MAX:
        raise KafkaError.of(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"{paths.CONTROLLER_EPOCH}: no epoch is left"
        )
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
    """Delete a /controller of this session that no controller stands for.

    The election's answer was lost, or the node was overwritten and no longer names a broker.
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
        pass  # another broker is the controller, or will be


async def current_controller(registry: Registry) -> int | None:
    """The broker that is the controller; None if there is none, or the node is unreadable."""
    try:
        data, _ = await registry.get(paths.CONTROLLER)
    except NoNodeError:
        return None
    return _named(data)


def _named(data: bytes) -> int | None:
    """The broker that the node names; None if its content is not valid."""
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


# The controller's event queue: each event runs to its end before the next begins.


T = TypeVar("T")

OnFailure = Callable[[str, Exception], object]
OnEvent = Callable[[str, int, int], object]
"""Gets the name of an event that has ended, how long it waited, and how long it took, in ms."""


class _Event(Generic[T]):
    """One event of the queue, and the future of the caller that waits for its result, if any."""

    __slots__ = ("done", "name", "operation", "queued_ms")

    def __init__(
        self,
        name: str,
        operation: Callable[[], Awaitable[T]],
        done: asyncio.Future[T] | None,
        queued_ms: int,
    ) -> None:
        self.name = name
        self.operation = operation
        self.done = done
        self.queued_ms = queued_ms


class EventQueue:
    """A first-in-first-out queue that one task works off; there is no task while it is empty.

    An operation awaits the registry several times, and the next must not begin before it has
    ended. An error is passed to the caller that waits for the result; `on_failure` gets it where
    no caller waits, or where it is not a KafkaError.
    """

    def __init__(self, runtime: Runtime, on_failure: OnFailure) -> None:
        self.runtime = runtime
        self._on_failure = on_failure
        self._events: deque[_Event[Any]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self.on_event: OnEvent | None = None
        self.under_way = ""
        """The name of the event that is being worked on; empty while there is none."""

    def __len__(self) -> int:
        """How many events wait."""
        return len(self._events)

    @property
    def is_idle(self) -> bool:
        return self._task is None

    def put(self, name: str, operation: Callable[[], Awaitable[object]]) -> None:
        """Queue it."""
        self._append(_Event(name, operation, None, self._now_ms()))

    def put_once(self, name: str, operation: Callable[[], Awaitable[object]]) -> None:
        """Queue it, unless an event of this name waits already: that one does the work of both."""
        if not any(event.done is None and event.name == name for event in self._events):
            self.put(name, operation)

    async def submit(self, name: str, operation: Callable[[], Awaitable[T]]) -> T:
        """Queue it and return its result. It continues if the caller is cancelled."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._append(_Event(name, operation, done, self._now_ms()))
        return await asyncio.shield(done)

    def clear(self) -> None:
        """Drop all events that have not begun; their callers get NOT_CONTROLLER."""
        events, self._events = self._events, deque()
        for event in events:
            _refuse(event)

    def close(self) -> None:
        """Drop everything, cancel the event under way, and accept no more."""
        self._is_closed = True
        self.clear()
        if self._task is not None:
            self._task.cancel()

    def _append(self, event: _Event[Any]) -> None:
        if self._is_closed:
            _refuse(event)
            return
        self._events.append(event)
        if self._task is None:
            self._task = self.runtime.scheduler.spawn(self._work(), "controller")

    def _now_ms(self) -> int:
        return self.runtime.clock.monotonic_ms()

    async def _work(self) -> None:
        try:
            while self._events:
                event = self._events.popleft()
                began_ms, self.under_way = self._now_ms(), event.name
                await self._carry_out(event)
                self._note_end(event, began_ms)
        finally:
            self._task, self.under_way = None, ""

    def _note_end(self, event: _Event[Any], began_ms: int) -> None:
        """Report the event to the metrics; an error there does not end the queue."""
        if self.on_event is None:
            return
        took_ms = self._now_ms() - began_ms
        try:
            self.on_event(event.name, began_ms - event.queued_ms, took_ms)
        except Exception:
            logger.exception("the end of the event %r cannot be noted", event.name)

    async def _carry_out(self, event: _Event[Any]) -> None:
        try:
            result = await event.operation()
        except asyncio.CancelledError:
            _refuse(event)
            raise
        except Exception as error:
            if event.done is not None and not event.done.done():
                event.done.set_exception(error)
                event.done.exception()  # the caller may be gone: mark the error as seen
            if event.done is None or not isinstance(error, KafkaError):
                self._on_failure(event.name, error)
        else:
            if event.done is not None and not event.done.done():
                event.done.set_result(result)


def _refuse(event: _Event[Any]) -> None:
    if event.done is not None and not event.done.done():
        event.done.set_exception(
            KafkaError.of(ErrorCode.NOT_CONTROLLER, "this broker is no longer the controller")
        )
        event.done.exception()


MAX_OPERATIONS: Final = 250
MAX_BYTES: Final = 400_000
"""What goes into one `multi`: ZooKeeper takes 1 MB at once, headers and paths included."""

Group = Sequence[Operation]
"""Operations that belong together: all of them are done or none."""
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
        """A node by which a tool asks for something; None if there is none, or it is forbidden.

        A node that an ACL hides is skipped: else one controller after the other would give up.
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
        """Do all of it or nothing; returns the stats of what was set, as `Registry.multi` does."""
        try:
            _, *stats = await self.registry.multi((self._fence, *operations))
        except RegistryFailedError:
            raise
        except RegistryError as error:
            await refuse_zombie(self.registry, self.epoch, error)
            raise
        return stats

    async def write_each(self, groups: Sequence[Group]) -> list[Outcome]:
        """Do each group or nothing of it, in as few requests as possible, all at once."""
        written = await asyncio.gather(*(self._write_batch(batch) for batch in batches(groups)))
        return [outcome for outcomes in written for outcome in outcomes]

    async def _write_batch(self, batch: Sequence[Group]) -> list[Outcome]:
        """Send one request; if it is refused, its halves, down to the group that is to blame."""
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
    """The groups in order, packed into as few requests as their limits allow."""
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
