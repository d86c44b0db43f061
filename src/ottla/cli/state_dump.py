"""The .snapshot, .txnindex and leader-epoch-checkpoint files of a partition: a line per entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.segment_file import base_offset
from ottla.log.index_file import CorruptIndexError
from ottla.log.leader_epoch_cache import LeaderEpochCache
from ottla.log.offset_checkpoint import CorruptCheckpointError
from ottla.log.producer_snapshot import CorruptSnapshotError, decode_snapshot
from ottla.log.producer_state_entry import ProducerStateEntry
from ottla.log.transaction_index import TRANSACTION_INDEX_VERSION, TransactionIndex
from ottla.runtime.local_disk import LocalDisk

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path

    from ottla.cli.terminal import Terminal


def dump_transaction_index(path: Path, _arguments: Namespace, terminal: Terminal) -> bool:
    """Print the aborted transactions of a segment."""
    try:
        entries = TransactionIndex(LocalDisk(), str(path), base_offset(path)).entries()
    except CorruptIndexError as error:
        terminal.note(str(error))
        return False
    for aborted in entries:
        terminal.print(
            f"version: {TRANSACTION_INDEX_VERSION} producerId: {aborted.producer_id} "
            f"firstOffset: {aborted.first_offset} lastOffset: {aborted.last_offset} "
            f"lastStableOffset: {aborted.last_stable_offset}"
        )
    return True


def dump_producer_snapshot(path: Path, _arguments: Namespace, terminal: Terminal) -> bool:
    """Print the producers that the partition remembered when the snapshot was made."""
    try:
        producers = decode_snapshot(str(path), path.read_bytes())
    except CorruptSnapshotError as error:
        terminal.note(str(error))
        return False
    for producer in producers.values():
        terminal.print(producer_line(producer))
    return True


def producer_line(producer: ProducerStateEntry) -> str:
    """The line of one producer, with its newest batch if it is remembered."""
    txn = producer.current_txn_first_offset
    line = (
        f"producerId: {producer.producer_id} producerEpoch: {producer.producer_epoch} "
        f"coordinatorEpoch: {producer.coordinator_epoch} "
        f"currentTxnFirstOffset: {'None' if txn < 0 else f'Some({txn})'} "
    )
    if not producer.batches:
        return line
    last = producer.batches[-1]
    return line + (
        f"firstSequence: {last.first_sequence} lastSequence: {last.last_sequence} "
        f"lastOffset: {last.last_offset} offsetDelta: {last.offset_delta} "
        f"timestamp: {last.timestamp_ms}"
    )


def dump_leader_epochs(path: Path, _arguments: Namespace, terminal: Terminal) -> bool:
    """Print which leader epochs wrote the log, and where each begins."""
    cache = LeaderEpochCache(LocalDisk(), str(path))
    try:
        if not cache.load():
            raise FileNotFoundError(2, "No such file or directory", str(path))
    except CorruptCheckpointError as error:
        terminal.note(str(error))
        return False
    for epoch, start_offset in cache.entries:
        terminal.print(f"epoch: {epoch} startOffset: {start_offset}")
    return True
