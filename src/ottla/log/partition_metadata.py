"""The file `partition.metadata`: the id of the topic that a partition's directory belongs to."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID

from ottla.runtime import Disk
from ottla.structs import NO_UUID


def format_topic_id(topic_id: UUID) -> str:
    """A uuid as Kafka writes it: base64 for URLs, 22 characters."""
    return urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def read_topic_id(disk: Disk, path: str) -> UUID:
    """The topic id in a `partition.metadata`; NO_UUID where it is missing or damaged.

    A topic id that was lost in a crash is written again when the partition is next assigned.
    """
    if not disk.exists(path):
        return NO_UUID
    text = disk.read_bytes(path).decode("ascii", "replace")
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    try:
        return UUID(bytes=urlsafe_b64decode(fields.get("topic_id", "") + "=="))
    except ValueError:
        return NO_UUID


def write_topic_id(disk: Disk, path: str, topic_id: UUID) -> None:
    """Write the file; the first flush of the log syncs it."""
    data = f"version: 0\ntopic_id: {format_topic_id(topic_id)}\n".encode()
    file = disk.open(path, create=True)
    try:
        file.pwrite(data, 0)
        file.truncate(len(data))
    finally:
        file.close()
