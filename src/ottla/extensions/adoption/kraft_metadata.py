"""A KRaft broker's metadata log, read for the topics whose partitions are on the same disk.

`__cluster_metadata-0/` holds a log of changes, and sometimes snapshots (`<end offset>-<epoch>.
checkpoint`) that replace the log before them. Both are read and never written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Final

from ottla.log.log_files import CLUSTER_METADATA_DIR, LOG_SUFFIX, parse_segment_name
from ottla.protocol.message import Message, decode
from ottla.protocol.metadata_records import (
    FRAME_VERSION,
    METADATA_RECORDS,
    ConfigRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.record.memory_records import batches
from ottla.runtime import Disk
from ottla.structs import NO_UUID, NamedTuple

logger = logging.getLogger(__name__)

CHECKPOINT_SUFFIX: Final = ".checkpoint"
OFFSET_DIGITS: Final = 20
TOPIC_RESOURCE: Final = 2
FRAME_BYTES: Final = 3


class KraftMetadata(NamedTuple):
    """The overrides of each topic, and the first producer id not yet given to a broker."""

    topic_configs: Mapping[str, Mapping[str, str]]
    next_producer_id: int


def read_kraft_metadata(disk: Disk, log_dir: str) -> KraftMetadata | None:
    """The content of the metadata log in a log directory; None if there is no such log."""
    directory = f"{log_dir}/{CLUSTER_METADATA_DIR}"
    if not disk.is_dir(directory):
        return None
    replay = _Replay()
    for record in _records(disk, directory):
        replay.apply(record)
    configs = {name: configs for name, configs in replay.configs.items() if configs}
    return KraftMetadata(configs, replay.next_producer_id)


class _Replay:
    """The state after the records so far."""

    def __init__(self) -> None:
        self.names = {NO_UUID: ""}
        self.configs: dict[str, dict[str, str]] = {}
        self.next_producer_id = 0

    def apply(self, record: Message) -> None:
        if isinstance(record, TopicRecord):
            self.names[record.topic_id] = record.name
        elif isinstance(record, RemoveTopicRecord):
            self.configs.pop(self.names.pop(record.topic_id, ""), None)
        elif isinstance(record, ProducerIdsRecord):
            self.next_producer_id = record.next_producer_id
        elif isinstance(record, ConfigRecord) and record.resource_type == TOPIC_RESOURCE:
            configs = self.configs.setdefault(record.resource_name, {})
            if record.value is None:
                configs.pop(record.name, None)
            else:
                configs[record.name] = record.value


def _records(disk: Disk, directory: str) -> Iterator[Message]:
    """The newest snapshot, then the log's records after it."""
    names = sorted(disk.list_dir(directory))
    snapshots = [name for name in names if name.endswith(CHECKPOINT_SUFFIX)]
    start_offset = 0
    if snapshots:
        start_offset = int(snapshots[-1][:OFFSET_DIGITS])
        yield from _records_of(disk, f"{directory}/{snapshots[-1]}", 0)
    for name in names:
        parsed = parse_segment_name(name)
        if parsed is not None and parsed[1:] == (LOG_SUFFIX, ""):
            yield from _records_of(disk, f"{directory}/{name}", start_offset)


def _records_of(disk: Disk, path: str, start_offset: int) -> Iterator[Message]:
    for batch in batches(disk.read_bytes(path)):
        if batch.is_control or batch.last_offset < start_offset:
            continue
        for record in batch.records():
            value = record.value or b""
            if record.offset < start_offset or len(value) < FRAME_BYTES:
                continue
            # The three varints of the frame are small numbers: one byte each.
            frame_version, key, version = value[:FRAME_BYTES]
            cls = METADATA_RECORDS.get(key)
            if frame_version != FRAME_VERSION or cls is None:
                continue
            if version > cls.max_version:
                logger.warning("%s: %s of version %d is passed over", path, cls.__name__, version)
                continue
            yield decode(cls, version, value, FRAME_BYTES)
