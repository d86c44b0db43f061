"""Making transaction indexes anew that a read has found damaged."""

from __future__ import annotations

import logging
from typing import Protocol

from ottla.errors import ErrorCode, KafkaError
from ottla.log.file_batches import read_batch
from ottla.log.indexes.index_file import CorruptIndexError
from ottla.log.log_dir import LogDir
from ottla.log.log_segment import LogSegment
from ottla.log.producers.producer_replay import restore_producers
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.segments import Segments
from ottla.record.record_batch import CorruptRecordError
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)


class RepairedLog(Protocol):
    """What a repair uses of a ReadableLog."""

    log_dir: LogDir
    dir: str
    topic_partition: TopicPartition
    segments: Segments
    producer_state_manager: ProducerStateManager


def rebuild_txn_indexes(log: RepairedLog, start_offset: int) -> None:
    """Make the damaged ones anew from the batches, of the segments from an offset on.

    KAFKA_STORAGE_ERROR if the batches cannot be read either: nobody may be shown a transaction
    that was aborted.
    """
    for segment in log.segments.since(start_offset):
        try:
            segment.txn_index.entries()
        except CorruptIndexError as error:
            logger.warning("Rebuilding %s: %s", segment.txn_index.path, error)
            try:
                _rebuild(log, segment)
            except CorruptRecordError as damage:
                raise KafkaError.of(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"{error}; {damage.message}"
                ) from damage
            except OSError as failure:
                raise log.log_dir.failed(failure, f"read of {log.topic_partition}") from failure


def _rebuild(log: RepairedLog, segment: LogSegment) -> None:
    """Replay the segment, beginning with the transactions that are open where it begins."""
    known = log.producer_state_manager
    manager = ProducerStateManager(
        log.log_dir.disk, log.topic_partition, log.dir, known.expiration_ms
    )
    manager.find_snapshots(
        [path.rpartition("/")[2] for path in map(known.snapshot_path, known.snapshot_offsets)]
    )
    restore_producers(manager, log.segments, segment.base_offset)
    found = []
    for position, header in segment.headers_from(segment.base_offset):
        batch = read_batch(segment.file, position, header) if header.is_control else header
        aborted = manager.replay(batch)
        if aborted is not None:
            found.append(aborted)
    segment.txn_index.reset()
    for aborted in found:
        segment.txn_index.append(aborted)
    segment.revision += 1
