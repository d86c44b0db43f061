"""Pairs of offsets: one of the source, and its copy's at the target.

A flow writes a sync now and then (`OffsetSyncQueue` decides when); a translator of a group's
offsets reads them all into an `OffsetSyncStore`. Kafka's bytes and Kafka's rules (KIP-382, 656).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from typing import Final

from ottla.clients.mirror_records import OffsetSync
from ottla.clients.producer.producer import Producer
from ottla.clients.producer.producer_batch import RecordFuture
from ottla.errors import KafkaTimeoutError
from ottla.mirror.flow import Flow
from ottla.runtime.clock import Clock
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

CONNECTOR: Final = "MirrorSourceConnector"
SLOTS: Final = 64
NO_SYNC: Final = -1
IN_FLIGHT: Final = 10
"""Syncs that are sent and not acknowledged; further ones wait."""
LACKING_MS: Final = 5000
"""After which the topic may be gone that something is written to."""
DUE_AT_MOST: Final = 64
"""Syncs of a partition that wait; with more of them every other one is left out."""


class OffsetSyncStore:
    """Translates offsets by the syncs that it was given in order, 64 for each partition at most.

    Slot 0 has the newest sync, and slot i one that is at most 2^i offsets behind: older offsets are
    known less exactly. For slots i < j with syncs a and b there always hold

        B:  a.upstream <= b.upstream + 2^j - 2^i
        C:  a is b, or a.upstream >= b.upstream + 2^max(i - 2, 0)

    A translation is never above the true offset: records behind it were not read by the group. It
    may be below, and then the group reads up to a sync's distance again.
    """

    def __init__(self, *, keeps_history: bool = True) -> None:
        """Without `keeps_history` only each partition's newest sync of the time before
        `finish_loading` counts.

        It must be so where checkpoints that were emitted before are not known: an older sync could
        take a group back behind one of these (KAFKA-15905).
        """
        self.is_loaded = False
        self._keeps_history = keeps_history
        self._slots: dict[TopicPartition, list[OffsetSync]] = {}

    def finish_loading(self) -> None:
        """The topic was read to its end once: translations may begin."""
        self.is_loaded = True

    def add(self, sync: OffsetSync) -> bool:
        """Take the next sync of the topic; whether the copy was made again before it."""
        slots = self._slots.get(sync.partition)
        forgets = not self.is_loaded and not self._keeps_history
        is_remade = slots is not None and sync.downstream < slots[0].downstream
        began_again = is_remade or (slots is not None and sync.upstream < slots[0].upstream)
        if slots is None or forgets or began_again:
            # Of a partition that began again, at either end, no older sync is true now.
            self._slots[sync.partition] = [sync] * SLOTS
        else:
            shift_in(slots, sync)
        return is_remade

    def translate(self, partition: TopicPartition, upstream: int) -> int | None:
        """The offset on the target for an offset of the source, at most the true one.

        -1 if all that is known is above, None if nothing is known (yet).
        """
        slots = self._slots.get(partition)
        if not self.is_loaded or slots is None:
            return None
        sync = next((each for each in slots if each.upstream <= upstream), None)
        if sync is None:
            return NO_SYNC
        return sync.downstream + (upstream > sync.upstream)

    def contradicts(self, partition: TopicPartition, upstream: int, downstream: int) -> bool:
        """Whether a translation of before is above the true one, as the copy was made again."""
        slots = self._slots.get(partition, ())
        above = [each for each in slots if each.upstream >= upstream]
        if above:
            return downstream > above[-1].downstream
        newest = slots[0] if slots else None
        is_next = newest is not None and upstream == newest.upstream + 1
        return newest is not None and is_next and downstream > newest.downstream + 1

    def syncs(self, partition: TopicPartition) -> list[OffsetSync]:
        """The distinct syncs that are kept of a partition, newest first."""
        return list(dict.fromkeys(self._slots.get(partition, ())))


def shift_in(slots: list[OffsetSync], sync: OffsetSync) -> None:
    """Put a newer sync into slot 0, and move others on as far as their distances demand it.

    A slot whose sync is too far behind now gets the newest of the earlier ones that keeps its
    distance on both sides, so that as many distinct ones as possible stay.
    """
    earlier = list(slots)
    tried = 0  # those before it are in a slot, or too near to fit into any later one
    replacement = slots[0] = sync
    for current in range(1, SLOTS):
        previous = current - 1
        is_over = False
        while not is_over:
            candidate = earlier[tried]
            is_far = is_apart(slots[previous], candidate, previous)
            fits_after = current + 1 >= SLOTS or is_apart(candidate, slots[current + 1], current)
            fits = is_far and fits_after and is_near(slots[previous], candidate, previous, current)
            if fits:
                replacement = candidate
            is_repeated = tried + 1 < SLOTS and earlier[tried + 1] is candidate
            is_useless = is_repeated or not is_far
            tried += fits or is_useless
            is_over = tried >= current or not is_useless
        if is_near(slots[previous], slots[current], previous, current):
            return  # it holds for this slot, and so for all later ones
        slots[current] = replacement


def is_near(newer: OffsetSync, older: OffsetSync, i: int, j: int) -> bool:
    """Invariant B between slots i < j."""
    return newer.upstream <= older.upstream + (1 << j) - (1 << i)


def is_apart(newer: OffsetSync, older: OffsetSync, i: int) -> bool:
    """Invariant C between slot i and the one after it."""
    return newer is older or newer.upstream >= older.upstream + (1 << max(i - 2, 0))


class SyncedPartition:
    """When a partition of a flow needs a sync: its last sync, and its last copy."""

    __slots__ = ("downstream", "max_lag", "synced_downstream", "upstream")

    def __init__(self, max_lag: int) -> None:
        self.max_lag = max_lag
        self.upstream = self.downstream = -1
        self.synced_downstream = NO_SYNC

    def advance(self, upstream: int, downstream: int, count: int) -> list[int]:
        """Note a run of `count` records that follow each other on both sides.

        Returns the indexes of the records that need a sync at once: the first one of all, one
        behind a gap or a truncation, and each that is offset.lag.max behind the one before.
        """
        due: list[int] = []
        has_gap = upstream != self.upstream + 1 or downstream < self.downstream
        if self.synced_downstream == NO_SYNC or has_gap:
            due, self.synced_downstream = [0], downstream
        # A translation ends one behind the last sync.
        step = self.max_lag + 1
        last = downstream + count - 1
        behind = range(max(self.synced_downstream + step, downstream), last + 1, step)
        if behind:
            self.synced_downstream = behind[-1]
            due += [each - downstream for each in behind]
        self.upstream, self.downstream = upstream + count - 1, last
        return due


class OffsetSyncQueue:
    """The syncs of a flow that wait: at once, or with the next commit.

    Each partition's are taken in their order. Where more wait than can be sent, every other one is
    left out, but never the first or the last.
    """

    def __init__(self, max_lag: int) -> None:
        self._max_lag = max_lag
        self._partitions: dict[TopicPartition, SyncedPartition] = {}
        self._due: dict[TopicPartition, list[OffsetSync]] = {}
        self._later: dict[TopicPartition, OffsetSync] = {}

    def on_copied(
        self, partition: TopicPartition, upstream: int, downstream: int, count: int
    ) -> None:
        """A run of records was acknowledged: `count` offsets from these two on."""
        state = self._partitions.get(partition)
        if state is None:
            state = self._partitions[partition] = SyncedPartition(self._max_lag)
        indexes = state.advance(upstream, downstream, count)
        if indexes:
            self._later.pop(partition, None)
            due = self._due.setdefault(partition, [])
            due += [OffsetSync(partition, upstream + n, downstream + n) for n in indexes]
            while len(due) > DUE_AT_MOST:
                due[:] = [*due[:-1:2], due[-1]]
        last = count - 1
        if last not in indexes[-1:]:
            self._later[partition] = OffsetSync(partition, upstream + last, downstream + last)

    def on_commit(self) -> None:
        """All that has waited is due now."""
        for partition, sync in self._later.items():
            self._due.setdefault(partition, []).append(sync)
        self._later.clear()

    def take(self, limit: int = IN_FLIGHT) -> list[OffsetSync]:
        """The syncs to send now, at most so many; the rest is taken later."""
        taken: list[OffsetSync] = []
        for partition in list(self._due):
            due = self._due[partition]
            room = limit - len(taken)
            taken += due[:room]
            del due[:room]
            if due:
                break
            del self._due[partition]
        return taken

    def forget(self, partitions: Mapping[TopicPartition, object]) -> None:
        """These partitions began again: earlier syncs do not count."""
        for partition in partitions:
            for known in (self._partitions, self._due, self._later):
                known.pop(partition, None)


class OffsetSyncWriter:
    """Writes the syncs of a flow as they are due; a lost one is made up for by the next."""

    def __init__(self, flow: Flow, producer: Producer, clock: Clock) -> None:
        self.producer = producer
        self._flow = flow
        self._clock = clock
        self._futures: deque[RecordFuture] = deque()
        self._written_ms = clock.monotonic_ms()
        self._is_lacking = False

    def take_lack(self) -> bool:
        """Whether their topic took nothing since the last time: it may be gone."""
        found, self._is_lacking = self._is_lacking, False
        return found

    def send(self, queue: OffsetSyncQueue) -> None:
        """Send those that are due, as many as may be under way."""
        now_ms = self._clock.monotonic_ms()
        if not self._futures or self._futures[0].done():
            self._written_ms = now_ms
        self._is_lacking |= now_ms - self._written_ms > LACKING_MS
        while self._futures and self._futures[0].done():
            error = self._futures.popleft().exception(0)
            if error is not None:
                logger.warning("%s: an offset sync was not written: %s", self._flow.name, error)
        room = IN_FLIGHT - len(self._futures)
        for sync in queue.take(room) if room > 0 else ():
            try:
                future = self.producer.send(
                    self._flow.syncs_topic, sync.value(), key=sync.key(), partition=0
                )
            except KafkaTimeoutError as error:
                logger.warning("%s: offset syncs wait: %s", self._flow.name, error)
                self._is_lacking = True
                break
            self._futures.append(future)
