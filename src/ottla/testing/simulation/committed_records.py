"""The records that readers may get at each moment: every offset, as the logs have it.

Each poll of a reader is checked when it returns. It was shown every committed record between its
position and the next one, in order, and nothing of a transaction that is open or aborted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING

from ottla.record.control_record import end_of_transaction
from ottla.record.record_batch import RecordBatch
from ottla.structs import TopicPartition
from ottla.testing.simulation.invariants import batches_of, partition_at

if TYPE_CHECKING:
    from ottla.replication.partition import Partition
    from ottla.testing.simulation.cluster import SimulatedCluster


class RecordFate(Enum):
    """The outcome of the record at an offset."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "of an open transaction"
    CONTROL = "a control record"


class CommittedRecords:
    """The fates of the offsets of one partition, read from whichever broker knows most.

    Batches that are committed do not change, so each is read once.
    """

    def __init__(self, cluster: SimulatedCluster, topic_partition: TopicPartition) -> None:
        self.cluster = cluster
        self.topic_partition = topic_partition
        self.fates: dict[int, RecordFate] = {}
        self.end = 0
        """Before this offset everything was read."""
        self._open: defaultdict[int, list[int]] = defaultdict(list)
        self._unjudged: list[int] = []
        """Offsets that were shown when no broker was alive that could have their marker."""

    def update(self) -> None:
        """Read newly committed records."""
        replicas = list(self._replicas())
        if replicas:
            best = max(replicas, key=lambda each: each.high_watermark)
            for batch in batches_of(best, self.end, best.high_watermark):
                self._take(batch)
                self.end = batch.next_offset

    def _replicas(self) -> Iterator[Partition]:
        for host in self.cluster.hosts:
            partition = partition_at(host, self.topic_partition) if host.is_alive else None
            if partition is not None and not partition.log.log_dir.is_offline:
                yield partition

    def _take(self, batch: RecordBatch) -> None:
        offsets = range(batch.base_offset, batch.next_offset)
        if batch.is_control:
            marker = end_of_transaction(batch)
            if marker is not None:
                fate = RecordFate.COMMITTED if marker.is_commit else RecordFate.ABORTED
                self.fates.update(dict.fromkeys(self._open.pop(batch.producer_id, ()), fate))
            fate = RecordFate.CONTROL
        elif batch.is_transactional:
            fate = RecordFate.OPEN
            self._open[batch.producer_id] += offsets
        else:
            fate = RecordFate.COMMITTED
        self.fates.update(dict.fromkeys(offsets, fate))

    def check_poll(self, start: int, end: int, shown: Iterable[int]) -> Iterator[str]:
        """The errors of a poll that went from one position to another."""
        self.update()
        offsets = list(shown)
        if offsets != sorted(set(offsets)):
            yield f"{self.topic_partition}: a poll showed the offsets {offsets}"
        # A broker that has died may have known more than those that are left.
        known = min(end, self.end)
        judged = [*self._unjudged, *(offset for offset in offsets if offset < known)]
        self._unjudged = [] if any(self._replicas()) else judged
        for offset in () if self._unjudged else judged:
            if not self._may_be_shown(offset):
                fate = self.fates[offset]
                yield f"{self.topic_partition}: offset {offset} was shown; it is {fate.value}"
        missed = [
            offset
            for offset in range(max(start, self._first_offset()), known)
            if self.fates.get(offset) is RecordFate.COMMITTED and offset not in offsets
        ]
        if missed:
            yield f"{self.topic_partition}: a poll from {start} to {end} left out {missed[:5]}"

    def _may_be_shown(self, offset: int) -> bool:
        fate = self.fates[offset]
        return fate is RecordFate.COMMITTED or (fate is RecordFate.OPEN and self._is_ended(offset))

    def _is_ended(self, offset: int) -> bool:
        """Whether some broker has the marker that commits the record at an offset.

        A leader that has died knew of the marker's commit; all that were in sync have it.
        """
        producer_id = next(each for each, offsets in self._open.items() if offset in offsets)
        for replica in self._replicas():
            for batch in batches_of(replica, self.end, replica.log.log_end_offset):
                marker = end_of_transaction(batch) if batch.is_control else None
                if batch.producer_id == producer_id and marker is not None:
                    return marker.is_commit
        return False

    def _first_offset(self) -> int:
        return max((each.log.log_start_offset for each in self._replicas()), default=0)
