"""The reads ahead, in the background, of file parts that a fetch wants and the page cache lacks.

`sendfile` of such bytes would make the broker's one thread wait for the disk, and with it every
client. So the parts of a file region are looked for in the page cache before they are sent, which
costs a microsecond; where they are not, a worker thread reads them first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ottla.network.outgoing import Outgoing
from ottla.runtime import Background

# More would keep the other jobs of the background, flushes before all, from their workers.
MAX_JOBS: Final = 2


class ReadAhead:
    """Fills the page cache for answers that wait for it, first come first served.

    Invariant: at most `max_jobs` jobs are under way, and at most one for an answer.
    """

    __slots__ = ("_background", "_job_count", "_max_jobs", "_waiting")

    def __init__(self, background: Background, max_jobs: int = MAX_JOBS) -> None:
        self._background = background
        self._max_jobs = max_jobs
        self._job_count = 0
        self._waiting: deque[tuple[Outgoing, Callable[[], object]]] = deque()

    def request(self, outgoing: Outgoing, on_done: Callable[[], object]) -> None:
        """Have the next part of `outgoing` read; `on_done` is called when it can be sent."""
        if outgoing.is_reading:
            return
        outgoing.is_reading = True
        self._waiting.append((outgoing, on_done))
        self._begin_next()

    def _begin_next(self) -> None:
        while self._waiting and self._job_count < self._max_jobs:
            outgoing, on_done = self._waiting.popleft()
            wanted = outgoing.next_in_file()
            if wanted is None:  # the client has gone meanwhile
                outgoing.is_reading = False
                continue
            self._begin(outgoing, on_done, wanted.file.read_ahead, wanted.position, wanted.size)

    def _begin(
        self,
        outgoing: Outgoing,
        on_done: Callable[[], object],
        read: Callable[[int, int], None],
        position: int,
        length: int,
    ) -> None:
        self._job_count += 1

        def end(_: object) -> None:
            # Had reading failed, sending would fail in the same way, and close the connection.
            self._job_count -= 1
            outgoing.note_cached(length)
            on_done()
            self._begin_next()

        self._background.submit(lambda: read(length, position), end, end)
