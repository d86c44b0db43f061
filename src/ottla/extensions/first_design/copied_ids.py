"""Up to where logs of the first design are copied, for copies whose records are all deleted.

    0                                       version, and how many lines follow
    1
    pages 0 1250 B3x0Yw2ISKq0wBVxDoX7Dg 40  topic, partition, id; topic of today, offset

The headers of the copied records say the same, as long as retention leaves one of them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from uuid import UUID

from ottla.log.offset_checkpoint import CorruptCheckpointError, format_lines, parse_lines
from ottla.runtime import Disk
from ottla.structs import NO_UUID, NamedTuple, TopicPartition, decode_uuid, encode_uuid

logger = logging.getLogger(__name__)


class CopiedIds:
    """A file of such ids, replaced as a whole."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._last: bytes | None = None

    def read(self) -> dict[TopicPartition, CopiedId]:
        """What the file has: nothing where it is missing, or, as the log says, damaged."""
        try:
            lines = parse_lines(self._path, self._disk.read_bytes(self._path))
            return {
                TopicPartition(topic, int(number)): CopiedId(int(id_), *topic_of_today(*rest))
                for topic, number, id_, *rest in lines
            }
        except FileNotFoundError:
            return {}
        except (CorruptCheckpointError, TypeError, ValueError) as error:
            logger.warning("Leaving a damaged checkpoint out: %s: %s", self._path, error)
            return {}

    def write(self, copied: Mapping[TopicPartition, CopiedId]) -> None:
        """Replace the file, unless it holds just these already."""
        lines = (
            f"{topic} {number} {each.id} {encode_uuid(each.topic_id)} {each.offset}"
            for (topic, number), each in copied.items()
        )
        data = format_lines(lines)
        if data != self._last:
            self._disk.replace(self._path, data)
            self._last = data


class CopiedId(NamedTuple):
    """All messages before an id are in the records before an offset of one topic of today."""

    id: int
    topic_id: UUID
    offset: int


def topic_of_today(topic_id: str = "", offset: str = "1") -> tuple[UUID, int]:
    """The end of a line; the lines of Ottla 0.2 have none, and count where something is deleted."""
    return decode_uuid(topic_id) if topic_id else NO_UUID, int(offset)
