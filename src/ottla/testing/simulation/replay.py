"""The memory of a broker agrees with its files: both are compared once all is quiet.

For each log: the leader epochs, the producers with their last batches, the transactions that are
open and those that were aborted. For each partition that a coordinator has loaded: the groups with
their offsets and members, and the transactional ids. Each is read once more from the batches.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager
from ottla.coordinator.transaction.transaction import IDLE
from ottla.coordinator.transaction.transaction_state_manager import TransactionStateManager
from ottla.log.leader_epoch_cache import EpochEntry
from ottla.log.log import Log
from ottla.log.producer_state_entry import ProducerStateEntry
from ottla.log.producer_state_manager import ProducerStateManager
from ottla.log.transaction_index import AbortedTxn
from ottla.record.record_batch import RecordBatch
from ottla.runtime.timing import NEVER_MS
from ottla.testing.simulation.cluster import Host
from ottla.testing.simulation.invariants import batches_in, partitions_of


def check_memory(host: Host) -> list[str]:
    """The differences between the memory of a host's broker and its files."""
    wrong = [
        f"{host.name}: {partition.topic_partition}: {text}"
        for partition in partitions_of(host)
        for text in LogReplay(
            partition.log, host.cluster.first_offsets.get(partition.topic_partition, 0)
        ).differences()
    ]
    return wrong + check_coordinators(host)


def check_coordinators(host: Host) -> list[str]:
    """The part of it that is about groups and transactions."""
    wrong: list[str] = []
    coordinators = getattr(host.broker, "coordinators", None)
    # Each is made when it is first needed.
    made = {} if coordinators is None else vars(coordinators)
    if "groups" in made:
        wrong += check_groups(made["groups"].manager)
    if "transactions" in made:
        wrong += check_transactions(made["transactions"].manager)
    return [f"{host.name}: {text}" for text in wrong]


def batches_on_disk(log: Log) -> Iterator[RecordBatch]:
    """Every batch in the files of a log, committed or not."""
    for segment in log.segments:
        yield from batches_in(segment, log.log_dir.disk)


class LogReplay:
    """All that the batches of a log say of it.

    Of a log that has lost its first batches they say less than is known, and of a
    compacted one something older.
    """

    def __init__(self, log: Log, first_offset: int) -> None:
        self.log = log
        self.is_compacted = is_compacted(log)
        self.is_whole = not self.is_compacted and log.log_start_offset == first_offset
        self.epochs: list[EpochEntry] = []
        self.aborted: list[AbortedTxn] = []
        self.producers = ProducerStateManager(
            log.log_dir.disk, log.topic_partition, log.dir, NEVER_MS
        )
        self.last_offset = -1
        self._wrong: list[str] = []
        for batch in batches_on_disk(log):
            self._take(batch)

    def _take(self, batch: RecordBatch) -> None:
        offset, epoch = batch.base_offset, batch.partition_leader_epoch
        if offset <= self.last_offset:
            self._wrong.append(f"a batch at {offset} follows offset {self.last_offset}")
        self.last_offset = batch.last_offset
        if batch.next_offset > self.log.log_start_offset:
            known = self.log.leader_epoch_cache.epoch_for(max(offset, self.log.log_start_offset))
            if known != epoch:
                self._wrong.append(f"offset {offset} is of epoch {epoch}; {known} is known")
            if not self.epochs or self.epochs[-1].epoch != epoch:
                start = max(offset, self.log.log_start_offset)
                self.epochs.append(EpochEntry(epoch, start))
        aborted = self.producers.replay(batch)
        if aborted is not None:
            self.aborted.append(aborted)

    def differences(self) -> list[str]:
        """The differences between the log in memory and its batches."""
        log, wrong = self.log, list(self._wrong)
        if self.last_offset >= log.log_end_offset:
            wrong.append(f"it ends at {log.log_end_offset}, and has offset {self.last_offset}")
        # The last epoch may not have written anything yet.
        entries = [e for e in log.leader_epoch_cache.entries if e.start_offset < log.log_end_offset]
        if not self.is_compacted and entries != self.epochs:
            wrong.append(f"leader epochs are {entries}, those of the batches {self.epochs}")
        known, live = self.producers, log.producer_state_manager
        if live.ongoing_txns != known.ongoing_txns:
            wrong.append(f"transactions {live.ongoing_txns} are open, not {known.ongoing_txns}")
        if list(live.ongoing_txns) != sorted(live.ongoing_txns):
            wrong.append(f"open transactions are not in order: {live.ongoing_txns}")
        if self.is_whole and live.producers.keys() - known.producers.keys():
            wrong.append(f"it knows producers that wrote nothing: {set(live.producers)}")
        for producer_id, producer in known.producers.items():
            wrong += self._compare(producer, live.producers.get(producer_id))
        return [*wrong, *self._compare_aborted()]

    def _compare(
        self, replayed: ProducerStateEntry, known: ProducerStateEntry | None
    ) -> Iterator[str]:
        name = f"producer {replayed.producer_id}"
        if known is None:
            yield f"{name} is not known"
            return
        if self.is_compacted:
            if replayed.producer_epoch > known.producer_epoch:
                yield f"{name} has epoch {known.producer_epoch}, not {replayed.producer_epoch}"
            return
        found, expected = (
            (each.producer_epoch, each.current_txn_first_offset, each.coordinator_epoch)
            for each in (known, replayed)
        )
        if found != expected:
            yield f"{name} has epoch, open transaction and coordinator {found}, not {expected}"
        mine, theirs = list(known.batches), list(replayed.batches)
        # A restart finds the last batches only, and the log may have lost earlier ones.
        count = min(len(mine), len(theirs))
        if theirs and (not count or mine[-count:] != theirs[-count:]):
            yield f"{name} has the batches {mine}, not {theirs}"

    def _compare_aborted(self) -> Iterator[str]:
        known = [each for segment in self.log.segments for each in segment.txn_index.entries()]
        if self.is_whole:
            if sorted(known) != sorted(self.aborted):
                yield f"aborted transactions are {known}, those of the batches {self.aborted}"
            return
        ends = {(each.producer_id, each.last_offset) for each in known}
        lacking = [e for e in self.aborted if (e.producer_id, e.last_offset) not in ends]
        if lacking:
            yield f"aborted transactions {lacking} are not in the index"


def is_compacted(log: Log) -> bool:
    """Whether the cleaner may have taken batches out of a log."""
    return "compact" in log.config.cleanup_policy


def loaded_partitions(manager: GroupMetadataManager | TransactionStateManager) -> Iterator[int]:
    """Those that this broker coordinates now."""
    for partition in range(manager.log.partition_count):
        if not manager.partitions.availability(partition) and manager.log.is_leader(partition):
            yield partition


def check_groups(manager: GroupMetadataManager) -> Iterator[str]:
    """Compare the groups of the loaded partitions with those that a load would find now."""
    for partition in loaded_partitions(manager):
        yield from manager.differences(partition)


def check_transactions(manager: TransactionStateManager) -> Iterator[str]:
    """Compare transactional ids with those that a load would find; none may be under way."""
    for partition in loaded_partitions(manager):
        yield from manager.differences(partition)
    for metadata in manager.all():
        if metadata.is_pending or metadata.current.state not in IDLE:
            yield f"transactional id {metadata.transactional_id} hangs: {metadata}"
