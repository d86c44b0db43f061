"""Compacts the logs of a broker in the background, a few at a time.

The loop chooses a log and hands over its files and positions as values. The work is done in steps
of about a megabyte, each a job of its own: between two steps the loop sees whether the log is still
there and lets I/O be throttled, and no worker thread is held for long. A log whose records cannot
be read is marked as uncleanable; it is tried again later, each time after a longer while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.config.broker_config import BrokerConfig
from ottla.extensions.cleaner.log_to_clean import (
    CleaningAbortedError,
    LogToClean,
    candidates,
    filthiest,
)
from ottla.log.flush_job import FlushJob, FsyncError
from ottla.log.log import Log
from ottla.log.log_loader import DirContents
from ottla.log.log_manager import LogAttachment, LogManager
from ottla.log.throttler import Throttler
from ottla.runtime import Timer
from ottla.structs import NamedTuple, TopicPartition

if TYPE_CHECKING:
    from ottla.extensions.cleaner.cleaning import Cleaning, Steps
    from ottla.extensions.cleaner.segment_swap import SegmentSwap

logger = logging.getLogger(__name__)


class LastRound(NamedTuple):
    """The figures of the round of compaction that ended last."""

    took_ms: int = 0
    recopied: float = 0.0
    """The share of the bytes read that were written again, from 0 to 1."""
    delay_ms: int = 0
    """How late the round began, counted from max.compaction.lag.ms on."""


FIRST_RETRY_MS: Final = 60_000
MAX_RETRY_MS: Final = 3_600_000


class Attempts(NamedTuple):
    """How often a log could not be cleaned, and when that is tried again."""

    failures: int
    next_ms: int


class LogCleaner(LogAttachment):
    """The rounds of compaction that are under way, and those to come."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._runtime = logs.runtime
        self._config = logs.config
        self.throttler = Throttler(self._runtime, self._config.log_cleaner_io_max_bytes_per_second)
        self._under_way: dict[TopicPartition, asyncio.Task[bool]] = {}
        self._horizons: dict[Log, int] = {}
        self._timer: Timer | None = None
        self._is_stopping = False
        self._paused: set[TopicPartition] = set()
        self.uncleanable: dict[Log, str] = {}
        """Why the last round of a log has failed, until another one goes well."""
        self._attempts: dict[Log, Attempts] = {}
        self.last_round = LastRound()
        self.looked_ms = self._runtime.clock.monotonic_ms()
        """When it has last looked for logs to clean."""
        self.max_dirty_ratio = 0.0
        """The largest share of a log that was dirty then."""

    def on_loaded(self, contents: Sequence[DirContents]) -> None:
        """Look for logs to compact, from now on every log.cleaner.backoff.ms."""
        self._start_timer()

    def _start_timer(self) -> None:
        self._timer = self._runtime.scheduler.call_every(
            self._config.log_cleaner_backoff_ms, self.clean_filthiest
        )

    def update_config(self, config: BrokerConfig) -> None:
        """Follow changed settings; a round that is under way ends with its own memory."""
        before, self._config = self._config, config
        rate = config.log_cleaner_io_max_bytes_per_second
        if rate != before.log_cleaner_io_max_bytes_per_second:
            self.throttler.change(rate)
        if config.log_cleaner_backoff_ms != before.log_cleaner_backoff_ms and self._timer:
            self._timer.cancel()
            self._start_timer()
        if config.log_cleaner_threads > before.log_cleaner_threads:
            self.clean_filthiest()

    async def finish(self) -> None:
        """Wait until no round is under way."""
        while self._under_way:
            await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def shutdown(self) -> None:
        """Begin no round, and give up those under way; their logs stay as they are."""
        if self._timer is not None:
            self._timer.cancel()
        self._is_stopping = True
        self.throttler.wake()
        await self.finish()

    async def pause(self, topic_partition: TopicPartition) -> None:
        """Begin no round of a log until `resume`, and end the one that is under way."""
        self._paused.add(topic_partition)
        round_under_way = self._under_way.get(topic_partition)
        if round_under_way is not None:
            await asyncio.wait([round_under_way])

    def resume(self, topic_partition: TopicPartition) -> None:
        self._paused.discard(topic_partition)

    def clean_filthiest(self) -> None:
        """Begin as many rounds as may run at a time, if there are logs that should be compacted."""
        logs = list(self._logs.all_logs())
        self._forget_gone(logs)
        self.looked_ms = self._runtime.clock.monotonic_ms()
        free = self._config.log_cleaner_threads - len(self._under_way)
        if free <= 0 or self._is_stopping:
            return
        busy = self._under_way.keys() | self._paused
        logs = [log for log in logs if log.topic_partition not in busy]
        waiting = {log for log, each in self._attempts.items() if each.next_ms > self.looked_ms}
        found = candidates(logs, waiting, self._runtime.clock.now_ms(), self._horizons)
        self.max_dirty_ratio = max((each.dirty_ratio for each in found), default=0.0)
        while found and free:
            to_clean = filthiest(found)
            if to_clean is None:
                return
            found.remove(to_clean)
            free -= 1
            self._begin(to_clean)

    def _forget_gone(self, logs: list[Log]) -> None:
        present = set(logs)
        known: dict[Log, int] | dict[Log, str] | dict[Log, Attempts]
        for known in (self._horizons, self.uncleanable, self._attempts):
            for log in [log for log in known if log not in present]:
                del known[log]

    def _begin(self, to_clean: LogToClean) -> None:
        topic_partition = to_clean.log.topic_partition
        task = self._runtime.scheduler.spawn(self._clean(to_clean), f"cleaning {topic_partition}")
        self._under_way[topic_partition] = task
        task.add_done_callback(partial(self._ended, topic_partition))

    def _ended(self, topic_partition: TopicPartition, task: asyncio.Task[bool]) -> None:
        """Look for more to do after a round that went well; otherwise leave that to the timer."""
        del self._under_way[topic_partition]
        if not task.cancelled() and task.result():
            self.clean_filthiest()

    async def _clean(self, to_clean: LogToClean) -> bool:
        """Run a round, and say whether it went well."""
        log = to_clean.log
        try:
            await self._run_round(to_clean)
            self._attempts.pop(log, None)
            self.uncleanable.pop(log, None)
            return True
        except CleaningAbortedError as error:
            logger.info("Compaction was given up: %s", error)
        except FsyncError as error:
            log.log_dir.fail(error)
        except OSError as error:
            if log.is_available:
                logger.warning(
                    "%s", log.log_dir.refused(error, f"compaction of {log.topic_partition}")
                )
        except Exception as error:
            self._mark_uncleanable(log, error)
        return False

    def _mark_uncleanable(self, log: Log, error: Exception) -> None:
        failures = self._attempts[log].failures if log in self._attempts else 0
        delay_ms = min(FIRST_RETRY_MS << min(failures, 16), MAX_RETRY_MS)
        logger.error(
            "%s cannot be compacted; it is passed over for %d s: %s",
            log.topic_partition,
            delay_ms // 1000,
            error,
            exc_info=error if not failures else None,
        )
        self.uncleanable[log] = str(error)
        now_ms = self._runtime.clock.monotonic_ms()
        self._attempts[log] = Attempts(failures + 1, now_ms + delay_ms)

    async def _run_round(self, to_clean: LogToClean) -> None:
        # Imported only here: many brokers have nothing to compact.
        from ottla.extensions.cleaner.cleaning import Cleaning, plan_of
        from ottla.extensions.cleaner.segment_swap import SegmentSwap

        log, runtime = to_clean.log, self._runtime
        began_ms = runtime.clock.monotonic_ms()
        await self._flush(log)
        cleaning = Cleaning(plan_of(to_clean, self._config, runtime))
        await self._note_recovery_point(log, cleaning.plan.end_offset)
        self._check_going_on(log)
        swap = SegmentSwap(runtime, log, to_clean.segments)
        steps = cleaning.steps()
        try:
            while (step := await runtime.background.run(partial(next, steps, None))) is not None:
                if isinstance(step, int):
                    await self.throttler.throttle(step)
                    self._check_going_on(log)
                else:
                    await swap.run(step, cleaning.stats.end_offset)
        except BaseException:
            await self._leave(steps, swap)
            raise
        self._horizons[log] = cleaning.stats.next_horizon_ms
        self._logs.checkpoints.write_cleaned_offsets()
        took_ms, stats = runtime.clock.monotonic_ms() - began_ms, cleaning.stats
        copied = stats.bytes_written / max(1, stats.bytes_read - stats.bytes_mapped)
        self.last_round = LastRound(took_ms, copied, to_clean.compaction_delay_ms)
        _report(log, cleaning, took_ms)

    async def _flush(self, log: Log) -> None:
        """Flush all of the log: a marker must not be lost after its transaction was cleaned."""
        segments = log.segments.since(log.recovery_point)
        files = [segment.file for segment in segments]
        paths = [segment.txn_index.path for segment in segments]
        job = FlushJob(self._runtime.disk, [], files, paths, [log.dir])
        await self._runtime.background.run(job)

    async def _note_recovery_point(self, log: Log, end_offset: int) -> None:
        """Have a recovery point on disk that is not before the end of the cleanable part.

        A cleaned segment may end long before the next one begins. Recovery takes such a gap for
        lost records, except before the recovery point.
        """
        recovery_points = log.log_dir.recovery_points
        if recovery_points.written(log.topic_partition) >= end_offset:
            return
        self._logs.checkpoints.write_recovery_points()
        await self._logs.checkpoints.written()
        if recovery_points.written(log.topic_partition) < end_offset:
            raise CleaningAbortedError(f"{recovery_points.path} could not be written")

    async def _leave(self, steps: Steps, swap: SegmentSwap) -> None:
        """Remove the files of the round; CleaningAbortedError if the log has changed meanwhile."""
        with suppress(OSError):
            await self._runtime.background.run(steps.close)
        swap.check()

    def _check_going_on(self, log: Log) -> None:
        if self._is_stopping:
            raise CleaningAbortedError("the broker stops")
        if log.topic_partition in self._paused:
            raise CleaningAbortedError(f"{log.topic_partition} moves to another directory")
        if not log.is_available:
            raise CleaningAbortedError(f"{log.topic_partition} is gone")


def _report(log: Log, cleaning: Cleaning, took_ms: int) -> None:
    plan, stats = cleaning.plan, cleaning.stats
    logger.info(
        "Compacted %s up to offset %d: %d bytes became %d in %d ms, %d records are left",
        log.topic_partition,
        stats.end_offset,
        stats.bytes_read - stats.bytes_mapped,
        stats.bytes_written,
        took_ms,
        stats.record_count,
    )
    if stats.null_key_count:
        logger.warning(
            "%s: %d records without a key were removed by compaction",
            log.topic_partition,
            stats.null_key_count,
        )
    if stats.end_offset < plan.end_offset:
        logger.info(
            "%s: its new keys did not fit into log.cleaner.dedupe.buffer.size=%d; offsets from %d "
            "on are left for another round",
            log.topic_partition,
            plan.dedupe_bytes,
            stats.end_offset,
        )
