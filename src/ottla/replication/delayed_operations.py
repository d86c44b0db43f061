"""All requests that wait for a partition: produces, fetches of consumers and followers, deletions.

A change of a partition is noted, and the operations that wait for it are served once per turn
of the event loop, after all requests of the turn were handled. So one answer to a long poll
carries all that arrived, and no handler runs inside another.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.runtime import DelayedOperationPurgatory, Scheduler
from ottla.structs import TopicPartition

Purgatory = DelayedOperationPurgatory[TopicPartition]

ENTRIES_AT_ONCE = 4000
"""Fetches that wait are tried until they have named so many partitions; the others come next."""


class DelayedOperations:
    """The purgatories of one replica manager, and the partitions that changed since the last check.

    `followers` are the brokers that copy a partition to which something was appended; `committed`
    are partitions whose high watermark has risen, or whose delayed operations can end for another
    reason. A follower's fetch is watched by broker id: it asks for all partitions that the broker
    copies from here.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.produces = Purgatory("Produce", scheduler)
        self.fetches = Purgatory("Fetch", scheduler)
        self.follower_fetches = DelayedOperationPurgatory[int]("FollowerFetch", scheduler)
        self.delete_records = Purgatory("DeleteRecords", scheduler)
        # Dicts, for their order: a simulation with the same seed must run the same way again.
        self.followers: dict[int, None] = {}
        self.committed: dict[TopicPartition, None] = {}
        self._scheduler = scheduler
        self._is_scheduled = False

    def note_progress(self, topic_partition: TopicPartition) -> None:
        """Note a high watermark that rose outside of a request; the requests that wait are served
        soon.

        This happens with every batch that a follower copies, and hardly ever does anything wait.
        """
        if topic_partition not in self.produces and topic_partition not in self.fetches:
            return
        self.committed[topic_partition] = None
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._scheduler.call_soon(self._complete_scheduled)

    def _complete_scheduled(self) -> None:
        self._is_scheduled = False
        self.complete_noted()
        if self.fetches.try_due(ENTRIES_AT_ONCE):
            self._schedule()

    def complete_noted(self) -> None:
        """Serve the requests that wait for partitions that were noted since the last call.

        Fetches of very many partitions are served some at a time.
        """
        if self.committed:
            committed, self.committed = self.committed, {}
            if self.produces.watched:
                self.produces.check(committed)
            if self.fetches.watched and self.fetches.check(committed, ENTRIES_AT_ONCE):
                self._schedule()
        if self.followers:
            followers, self.followers = self.followers, {}
            self.follower_fetches.check(followers)

    def check(self, partitions: Iterable[TopicPartition]) -> None:
        """Check the requests that wait for these partitions, which changed leader or are gone."""
        changed = list(partitions)
        self.produces.check(changed)
        self.fetches.check(changed)
        self.delete_records.check(changed)
        self.follower_fetches.check_all()

    def complete_all(self) -> None:
        """Answer every request that waits, with the records that are there."""
        self.produces.complete_all()
        self.fetches.complete_all()
        self.follower_fetches.complete_all()
        self.delete_records.complete_all()
