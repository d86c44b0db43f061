"""Everything that waits for a partition: produces, fetches of consumers and followers, deletions.

What happens to a partition is noted, and whoever waits for it is served once a turn: after all
requests of the turn were handled, so that one answer to a long poll carries all that arrived, and
no handler runs inside another.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.runtime import DelayedOperationPurgatory, Scheduler
from ottla.structs import TopicPartition

Purgatory = DelayedOperationPurgatory[TopicPartition]


class DelayedOperations:
    """The purgatories of one replica manager, and what has happened since they were checked.

    `followers` are the brokers that copy a partition to which something was appended; `committed`
    are partitions whose high watermark has risen, or where waiting has come to its end otherwise.
    Fetches of followers are watched by broker: each is of all partitions that it copies from here.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.produces = Purgatory("Produce", scheduler)
        self.fetches = Purgatory("Fetch", scheduler)
        self.follower_fetches = DelayedOperationPurgatory[int]("FollowerFetch", scheduler)
        self.delete_records = Purgatory("DeleteRecords", scheduler)
        # Dicts, for their order: the same world must run the same way again.
        self.followers: dict[int, None] = {}
        self.committed: dict[TopicPartition, None] = {}
        self._scheduler = scheduler
        self._is_scheduled = False

    def note_progress(self, topic_partition: TopicPartition) -> None:
        """A high watermark has risen outside of any request: serve whoever waits in a moment.

        With every batch that a follower copies that happens, and hardly ever does anybody wait.
        """
        if topic_partition not in self.produces and topic_partition not in self.fetches:
            return
        self.committed[topic_partition] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            self._scheduler.call_soon(self._complete_scheduled)

    def _complete_scheduled(self) -> None:
        self._is_scheduled = False
        self.complete_noted()

    def complete_noted(self) -> None:
        """Serve what waits for the partitions that were noted since the last call."""
        if self.committed:
            committed, self.committed = self.committed, {}
            for topic_partition in committed:
                self.produces.check_and_complete(topic_partition)
                self.fetches.check_and_complete(topic_partition)
        if self.followers:
            followers, self.followers = self.followers, {}
            for broker_id in followers:
                self.follower_fetches.check_and_complete(broker_id)

    def check(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions have changed hands or are gone: tell everybody now."""
        for topic_partition in partitions:
            self.produces.check_and_complete(topic_partition)
            self.fetches.check_and_complete(topic_partition)
            self.delete_records.check_and_complete(topic_partition)
        self.follower_fetches.check_all()

    def complete_all(self) -> None:
        """Answer everything that waits, with what there is."""
        self.produces.complete_all()
        self.fetches.complete_all()
        self.follower_fetches.complete_all()
        self.delete_records.complete_all()
