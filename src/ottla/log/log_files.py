"""The names of the files and directories of a log, which are Kafka's.

A partition lives in `<topic>-<partition>/`. Each segment has files named by its base offset in 20
digits; a suffix behind that says that the file is on its way in or out.
"""

from __future__ import annotations

import re
from typing import Final

from ottla.structs import MAX_TOPIC_NAME_LENGTH, TopicPartition

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
TEMPORARY_SUFFIX: Final = ".tmp"
DELETE_DIR_SUFFIX: Final = "-delete"
FUTURE_DIR_SUFFIX: Final = "-future"
STRAY_DIR_SUFFIX: Final = "-stray"

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
MOVE_MARK: Final = "replica-move"
"""Marks a directory that was copied from another log directory, until the original is gone."""

CLUSTER_METADATA_DIR: Final = "__cluster_metadata-0"
"""Where a KRaft broker keeps its metadata log: no partition, though it looks like one."""

MAX_NAME_BYTES: Final = 255
_PARTITION_DIR: Final = rf"([a-zA-Z0-9._-]{{1,{MAX_TOPIC_NAME_LENGTH}}})-(0|[1-9][0-9]{{0,9}})"
_FUTURE_DIR: Final = rf"(.+)\.[0-9a-f]{{32}}{FUTURE_DIR_SUFFIX}"
_OFFSET_NAME: Final = r"([0-9]{20})(\.[a-z]+)(\.[a-z]+)?"


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    """Where a file of the segment is: `<directory>/<20 digits><suffix>`."""
    return f"{directory}/{base_offset:020d}{suffix}"


def parse_segment_name(name: str) -> tuple[int, str, str] | None:
    """Base offset, suffix and further suffix ("" if none) of a file name; None if it is no such."""
    match = re.fullmatch(_OFFSET_NAME, name)
    if match is None:
        return None
    return int(match[1]), match[2], match[3] or ""


def parse_partition_dir(name: str) -> TopicPartition | None:
    """The partition that lives in a directory of this name; None if none can."""
    match = re.fullmatch(_PARTITION_DIR, name)
    if match is None or match[1] in (".", ".."):
        return None
    return TopicPartition(match[1], int(match[2]))


def deleted_dir_name(topic_partition: TopicPartition, unique: str) -> str:
    """The name that a partition's directory gets while it waits to be deleted."""
    return _passing_name(topic_partition, f"{unique}{DELETE_DIR_SUFFIX}")


def stray_dir_name(topic_partition: TopicPartition, unique: str) -> str:
    """The name of a directory whose topic is gone, and whose contents are nevertheless kept."""
    return _passing_name(topic_partition, f"{unique}{STRAY_DIR_SUFFIX}")


def future_dir_name(topic_partition: TopicPartition, unique: str) -> str:
    """The name of a partition's directory as long as the partition is only about to move there."""
    return _passing_name(topic_partition, f"{unique}{FUTURE_DIR_SUFFIX}")


def parse_future_dir(name: str) -> TopicPartition | None:
    """The partition that was about to move into a directory of this name; None if none was."""
    match = re.fullmatch(_FUTURE_DIR, name)
    return None if match is None else parse_partition_dir(match[1])


def _passing_name(topic_partition: TopicPartition, ending: str) -> str:
    """A long topic is cut so that a file system takes the name."""
    ending = f"-{topic_partition.partition}.{ending}"
    return topic_partition.topic[: MAX_NAME_BYTES - len(ending)] + ending


def parent_of(path: str) -> str:
    """The directory that a path is in; of a name alone it is the working directory."""
    head, slash, _ = path.rpartition("/")
    return head or slash or "."
