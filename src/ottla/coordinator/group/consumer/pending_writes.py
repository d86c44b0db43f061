"""The changes of a group that are on their way into the log, and the answers that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ottla.errors import ErrorCode
from ottla.record.batch_builder import build_batch

MOST_UNSAVED_BYTES: Final = 1024 * 1024
Records = dict[bytes, bytes | None]
OnStored = Callable[[ErrorCode], object]
Append = Callable[[Mapping[bytes, bytes | None], OnStored], object]


def batch_of(records: Mapping[bytes, bytes | None], now_ms: int) -> bytes:
    """One batch of records by their keys."""
    return build_batch([(now_ms, key, value, ()) for key, value in records.items()])


def _size(records: Mapping[bytes, bytes | None]) -> int:
    return sum(len(key) + len(value or b"") for key, value in records.items())


class PendingWrites:
    """Writes of one group, in order.

    A group changes in memory at once. A client hears of a change when that and all before it are in
    the log; records that could not be written are written again with the next change.
    """

    def __init__(self) -> None:
        self.unsaved: Records = {}
        self.count = 0
        """How many batches were written: one more with each change of the group."""
        self._batches: dict[int, Mapping[bytes, bytes | None]] = {}
        self._newest: dict[bytes, int] = {}
        self._waiting: list[OnStored] = []
        self.has_failed = False
        """Whether the newest answer of the log was an error."""
        self.next_try_ms = 0
        """When a large batch that the log has refused is tried again for those who would join."""

    @property
    def keys(self) -> dict[bytes, None]:
        """The keys of open and failed writes: the log has or may get them, the group may not."""
        return dict.fromkeys([*self.unsaved, *self._newest])

    @property
    def is_idle(self) -> bool:
        """Whether the log has all that was written."""
        return not self.unsaved and not self._batches

    @property
    def are_too_many(self) -> bool:
        """Whether MOST_UNSAVED_BYTES wait for a log whose newest answer was an error.

        Each new member adds records that wait, of which none can be left out later: a write that
        has failed may be in the log.
        """
        if not self.has_failed:
            return False
        waiting = (self.unsaved, *self._batches.values())
        return sum(map(_size, waiting)) > MOST_UNSAVED_BYTES

    def write(self, records: Records, append: Append, on_stored: OnStored) -> None:
        """Write the records, with those that could not be written before."""
        batch = {**self.unsaved, **records}
        if not batch:
            self._wait(on_stored)
            return
        self.unsaved = {}
        self.count += 1
        sequence = self.count
        self._batches[sequence] = batch
        self._newest.update(dict.fromkeys(batch, sequence))

        def on_done(error: ErrorCode) -> None:
            if sequence in self._batches:
                self._complete(sequence, error)
            on_stored(error)

        append(batch, on_done)

    def abandon(self, error: ErrorCode) -> None:
        """This broker no longer coordinates the group: waiting callers get the error."""
        self._batches.clear()
        self._newest.clear()
        self.unsaved = {}
        waiting, self._waiting = self._waiting, []
        for on_stored in waiting:
            on_stored(error)

    def _wait(self, on_stored: OnStored) -> None:
        if self._batches:
            self._waiting.append(on_stored)
        else:
            on_stored(ErrorCode.NONE)

    def _complete(self, sequence: int, error: ErrorCode) -> None:
        batch = self._batches.pop(sequence)
        self.has_failed = bool(error)
        if error:
            # A key that was written again since keeps its later value.
            lost = {key: batch[key] for key in batch if self._newest.get(key) == sequence}
            self.unsaved = {**lost, **self.unsaved}
        if self._batches:
            return
        self._newest.clear()
        waiting, self._waiting = self._waiting, []
        result = ErrorCode.COORDINATOR_NOT_AVAILABLE if self.unsaved else ErrorCode.NONE
        for on_stored in waiting:
            on_stored(result)
