"""A partition that this broker follows: where its log has to be cut, and where it continues.

TRUNCATING     ask the leader where the last epoch of our log ends in its log, cut there; again
               with an older epoch, until both have the epoch (KIP-101, KIP-279)
FETCHING       append the leader's batches; it notices if the logs part after all (KIP-595)
OUT_OF_RANGE   the leader does not have our end: ask it for its own end, and for its start
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.errors import KafkaError
from ottla.log.follower_append import UnexpectedAppendOffsetError, append_as_follower
from ottla.log.leader_epoch_cache import EpochEntry
from ottla.record.memory_records import in_pieces
from ottla.record.record_batch import CorruptRecordError
from ottla.replication.follower_session import PartitionFetchState
from ottla.structs import NO_EPOCH, NO_OFFSET, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.log.log_manager import LogManager
    from ottla.protocol.types import RecordsData
    from ottla.replication.partition import Partition

logger = logging.getLogger(__name__)

BATCHES_IN_A_PIECE: Final = 1_000
"""To check and index so many takes some 20 ms."""


class FollowerPartition:
    """One partition that a fetcher copies, for one leader epoch.

    Invariant: once `is_current` is False the log is no longer touched.
    """

    __slots__ = (
        "_is_given_up",
        "_log_manager",
        "failure_count",
        "leader_epoch",
        "leader_high_watermark",
        "log",
        "partition",
        "phase",
        "retry_at_ms",
    )

    def __init__(self, partition: Partition, log_manager: LogManager) -> None:
        self.partition = partition
        self.log = partition.log
        self.leader_epoch = partition.leader_epoch
        self.phase = FollowerPhase.TRUNCATING
        self.failure_count = 0
        self.retry_at_ms = 0
        self.leader_high_watermark = -1
        self._log_manager = log_manager
        self._is_given_up = False

    def __repr__(self) -> str:
        return f"FollowerPartition({self.topic_partition}, {self.phase.value}, {self.log!r})"

    @property
    def topic_partition(self) -> TopicPartition:
        return self.partition.topic_partition

    @property
    def is_current(self) -> bool:
        """Whether this broker still follows the leader of this epoch."""
        partition = self.partition
        return (
            not self._is_given_up
            and partition.leader_epoch == self.leader_epoch
            and not partition.is_leader
        )

    def give_up(self) -> None:
        """Stop touching the log: it is led here, or another fetcher copies it."""
        self._is_given_up = True

    @property
    def last_epoch(self) -> int:
        """The epoch of the last batch; -1 if the log is empty or its batches have no epochs."""
        return self.log.leader_epoch_cache.latest_epoch

    @property
    def lag(self) -> int | None:
        """Records up to the leader's high watermark; None while that is unknown."""
        if self.leader_high_watermark < 0:
            return None
        return max(0, self.leader_high_watermark - self.log.log_end_offset)

    @property
    def is_behind(self) -> bool:
        """Whether the leader has committed records that are missing here; True while unknown."""
        return self.leader_high_watermark < 0 or (
            self.log.log_end_offset < self.leader_high_watermark
        )

    @property
    def awaits_flush(self) -> bool:
        """Whether something that was copied is on its way to disk, because that was asked for."""
        log = self.log
        return self.is_current and log.is_available and log.safe_end_offset < log.log_end_offset

    async def truncate_without_epochs(self) -> None:
        """Keep the records that are surely committed: batches without an epoch say nothing more."""
        await self._truncate(self.log.high_watermark)
        self._fetch_next()

    async def take_epoch_end(self, end: EpochEntry) -> None:
        """Truncate the log, given the leader's last epoch up to ours and its end there."""
        if end.start_offset == NO_OFFSET:
            await self.truncate_without_epochs()
            return
        log = self.log
        ours = log.leader_epoch_cache.end_offset_for(end.epoch, log.log_end_offset)
        if end.epoch == NO_EPOCH or ours.epoch == NO_EPOCH:
            await self._truncate(end.start_offset)
        elif ours.epoch == end.epoch:
            await self._truncate(min(ours.start_offset, end.start_offset))
        else:
            await self._truncate(ours.start_offset)
            if self.last_epoch != NO_EPOCH:
                self.phase = FollowerPhase.TRUNCATING
                return
        self._fetch_next()

    async def take_leader_end(self, offset: int) -> bool:
        """Cut off records that the leader lacks; False if its log does not end before ours."""
        if offset >= self.log.log_end_offset:
            return False
        await self._truncate(offset)
        self._fetch_next()
        return True

    async def take_leader_start(self, offset: int) -> None:
        """Start again where the leader's log begins, if it no longer has anything older."""
        if offset > self.log.log_end_offset:
            await self._log_manager.truncate_fully_and_start_at(
                self.log, offset, lambda: self.is_current
            )
        self.phase = FollowerPhase.TRUNCATING
        if self.last_epoch == NO_EPOCH:
            self._fetch_next()

    async def _truncate(self, offset: int) -> None:
        await self._log_manager.truncate(self.log, offset, lambda: self.is_current)
        if self.is_current:
            # An epoch that we led without writing would make the logs diverge forever.
            end_offset = min(offset, self.log.log_end_offset)
            self.log.leader_epoch_cache.truncate_from_end(end_offset)

    def _fetch_next(self) -> None:
        self.phase = FollowerPhase.FETCHING

    def wanted(self, max_bytes: int) -> PartitionFetchState:
        """The fetch of this partition from its leader."""
        log = self.log
        return PartitionFetchState(
            log.topic_id,
            log.log_end_offset,
            self.leader_epoch,
            self.last_epoch,
            log.log_start_offset,
            max_bytes,
        )

    async def append(
        self, records: RecordsData | None, now_ms: int, after_piece: Callable[[], Awaitable[object]]
    ) -> int:
        """Append the leader's batches; returns their size. KafkaError if it cannot be taken.

        A megabyte of them may be ten thousand: `after_piece` may pause after some of these.
        """
        size = 0
        for piece in in_pieces(records or b"", BATCHES_IN_A_PIECE):
            size += await self._append(piece, now_ms)
            await after_piece()
            if not self.is_current:
                break
        return size

    async def _append(self, records: memoryview, now_ms: int) -> int:
        """Append some of them, behind a cut where they begin before our end."""
        try:
            return append_as_follower(self.log, records, self.leader_epoch, now_ms)
        except UnexpectedAppendOffsetError as error:
            # Our end, or where the leader's log begins, lies within its batch: it is kept whole.
            logger.info("%s; cutting back to %d", error, error.base_offset)
            await self._truncate(error.base_offset)
            if not self.is_current:
                return 0
            # At once: the leader may have nothing from there that could be fetched.
            return append_as_follower(self.log, records, self.leader_epoch, now_ms)

    def note_leader(self, high_watermark: int, log_start_offset: int) -> bool:
        """Take over how far the leader has committed and what it has deleted.

        True if more is committed here than before. Records committed under an earlier leader stay
        so: every replica that could be elected has them.
        """
        log = self.log
        self.leader_high_watermark = high_watermark
        before = log.high_watermark
        if high_watermark > before:
            log.update_high_watermark(high_watermark)
        if log.log_start_offset < log_start_offset <= log.high_watermark:
            log.maybe_increment_log_start_offset(log_start_offset)
        return log.high_watermark > before


class FollowerPhase(Enum):
    """The next question to the leader."""

    TRUNCATING = "truncating"
    FETCHING = "fetching"
    OUT_OF_RANGE = "out of range"


def is_damage(error: KafkaError) -> bool:
    """Whether the data that the leader sent is wrong, and not this broker's disk."""
    return isinstance(error, CorruptRecordError)
