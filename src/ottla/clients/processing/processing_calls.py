"""The calls of `ottla.Consumer` by which records are processed, many at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Hashable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.clients.processing.process_options import ProcessOptions

if TYPE_CHECKING:
    from ottla.clients.consumer.consumer_core import ConsumerCore
    from ottla.clients.consumer.subscription_state import RebalanceEvent
    from ottla.clients.processing.processing import Processing
    from ottla.record.consumer_record import ConsumerRecord
    from ottla.runtime.io_thread import IoThread

T = TypeVar("T")


class ProcessingCalls(ABC):
    """`process`, which waits in the thread that calls it, and `stop`, from any thread."""

    _core: ConsumerCore
    _given: dict[str, Any]
    _io: IoThread

    @abstractmethod
    def _alone(self, *, polls: bool = False) -> AbstractContextManager[None]:
        """Let in one thread at a time, and no listener that `polls`."""

    @abstractmethod
    def _tell(self, event: RebalanceEvent | None) -> None:
        """Tell the listener of an event, if there is one."""

    @abstractmethod
    def _run(self, call: Coroutine[Any, Any, T], timeout_ms: int | None = None) -> T:
        """Run a coroutine of the core on its loop, and wait."""

    @abstractmethod
    def _call(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a plain function of the core on its loop, and wait."""

    def process(
        self,
        handler: Callable[[ConsumerRecord], object],
        *,
        workers: int = 8,
        by: str | Callable[[ConsumerRecord], Hashable] = "key",
        retries: int | None = 3,
        retry_pause: float = 0.1,
        dead_letters: str | None = None,
        max_in_flight: int = 1000,
    ) -> None:
        """Call `handler` with each record, in so many threads at once, until `stop`.

        Records of the same key (`by="partition"`: of the same partition; or of what a function
        `by` returns for them) are handled one after the other, in order; those without a key in no
        order. Offsets are committed up to the first unfinished record of each partition, every
        auto.commit.interval.ms and at the end: each is handled at least once. Handlers hold up no
        poll and no rebalance. A coroutine function is awaited, in tasks of the I/O thread's loop.

        A handler that raises is called again `retries` times (None: without end) after pauses that
        double from `retry_pause` seconds to a minute; other keys need not wait. Then the record
        is written to the topic `dead_letters`, with the headers of Kafka Connect; without one,
        `process` ends with HandlerFailedError. At most `max_in_flight` records are in memory
        unfinished.
        """
        options = ProcessOptions(
            handler, workers, by, retries, retry_pause, dead_letters, max_in_flight
        )
        options.check(self._core.subscriptions)
        with self._alone(polls=True):
            self._process(options)

    def stop(self) -> None:
        """End `process`, or the next one, from any thread: no more records are begun.

        It returns when those that handlers work on are finished and committed, or have taken half
        of max.poll.interval.ms.
        """
        self._io.post(self._core.stop_processing)

    def _process(self, options: ProcessOptions) -> None:
        core = self._core
        processing = self._io.run(self._begin_processing(options))
        try:
            while (event := self._io.run(processing.run())) is not None:
                try:
                    self._tell(event)
                finally:
                    self._call(core.acknowledge)
        finally:
            self._run(processing.end())
        processing.check()

    async def _begin_processing(self, options: ProcessOptions) -> Processing:
        from ottla.clients.processing.processing import Processing

        return Processing(self._core, options, self._given)
