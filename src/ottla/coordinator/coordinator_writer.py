"""The writes of a coordinator: clients are answered in time, memory follows the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.coordinator.coordinator_log import CoordinatorLog
from ottla.errors import ErrorCode
from ottla.runtime import Runtime
from ottla.structs import NO_OFFSET

SETTLE_MS: Final = 100
WRITE_AGAIN_MS: Final = 1000
"""When a batch that is owed to the log is written again after it was refused."""


class CoordinatorWriter:
    """Appends batches to a coordinator's log, and says of each whether it counts.

    A batch that its replicas did not have in time is not lost: it counts when they have it, which
    is looked for until this broker no longer leads the partition.
    """

    def __init__(self, runtime: Runtime, log: CoordinatorLog) -> None:
        self._scheduler = runtime.scheduler
        self._log = log

    def append(
        self,
        partition: int,
        batch: bytes,
        on_settled: Callable[[int], object],
        on_answer: Callable[[ErrorCode], object],
    ) -> None:
        """`on_answer` is called once, with the answer for the client.

        `on_settled` is called before that if possible: with the offset of the batch, or with
        NO_OFFSET if the log does not have it. It is not called if the partition is given up first.
        """

        def on_done(error: ErrorCode, offset: int) -> None:
            if error is ErrorCode.REQUEST_TIMED_OUT and offset != NO_OFFSET:
                self._settle(partition, offset, on_settled)
            else:
                is_written = not error or error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
                on_settled(offset if is_written else NO_OFFSET)
            on_answer(error)

        self._log.append(partition, batch, on_done)

    def _settle(self, partition: int, offset: int, on_settled: Callable[[int], object]) -> None:
        if not self._log.is_leader(partition):
            return
        if self._log.is_committed(partition, offset):
            on_settled(offset)
            return
        self._scheduler.call_later(SETTLE_MS, lambda: self._settle(partition, offset, on_settled))
