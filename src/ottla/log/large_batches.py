"""Produced batches that are too large to be checked on the loop, checked beside it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from ottla.errors import ErrorCode, KafkaError
from ottla.log.log_validator import LargeBatchError, Validated
from ottla.runtime import Background
from ottla.structs import NamedTuple

logger = logging.getLogger(__name__)

E = TypeVar("E", bound=BaseException)


class Waiting(NamedTuple):
    """A large batch, and the call on the loop that gets its outcome."""

    batch: LargeBatchError
    on_done: Callable[[Validated], object]


class LargeBatches:
    """Checks large batches on a background worker: one at a time, the requests in turns.

    So they occupy at most one worker, and the memory of one unpacked batch. A request with many
    batches waits behind itself only: after each of them the other requests have a turn.
    """

    __slots__ = ("_background", "_is_busy", "_is_closed", "_waiting")

    def __init__(self, background: Background) -> None:
        self._background = background
        self._waiting: deque[deque[Waiting]] = deque()
        """The batches of each request, in the order of the turns."""
        self._is_busy = self._is_closed = False

    def submit(self, batches: Iterable[Waiting]) -> None:
        """Have the batches of a request checked, in their order."""
        self._waiting.append(deque(batches))
        if self._is_closed:
            self.close()
        elif not self._is_busy:
            self._start_next()

    def close(self) -> None:
        """Refuse the waiting batches, all later ones, and the one under way once it is done."""
        self._is_closed = True
        while self._waiting:
            for waiting in self._waiting.popleft():
                waiting.on_done(self._stopping())

    def _start_next(self) -> None:
        request = self._waiting.popleft()
        batch, on_done = request.popleft()
        self._is_busy = True

        def finish(outcome: Validated) -> None:
            if request:
                self._waiting.append(request)
            self._finish(on_done, outcome)

        self._background.submit(batch.validate, finish, partial(self._fail, finish))

    def _fail(self, finish: Callable[[Validated], object], error: BaseException) -> None:
        if not isinstance(error, KafkaError):
            logger.error("A large batch could not be looked through", exc_info=error)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))
        finish(without_frames(error))

    def _finish(self, on_done: Callable[[Validated], object], outcome: Validated) -> None:
        self._is_busy = False
        if self._is_closed:
            self.close()
        elif self._waiting:
            self._start_next()
        on_done(self._stopping() if self._is_closed else outcome)

    @staticmethod
    def _stopping() -> KafkaError:
        return KafkaError.of(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is stopping")


def without_frames(error: E) -> E:
    """The error without the frames that it came through, and without their objects.

    The traceback of an error that waits keeps everything that was read and unpacked on the way.
    """
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
