"""The log of one partition as Kafka 0.7 kept it: messages, found by the position of their bytes.

    my_topic_0/                     a partition is the topic's name, a line, and its number
        00000000000.kafka           segments are called after the position of their first message
        00000536871.kafka           and each begins where the one before ends
            length 4 · message      an entry; `record.legacy_positional` has the message

The id of a message is its position in the stream of the partition, so that the next id is
4 + N further. Nothing else is stored: no index, no offsets, no time but that of the file.

Messages are appended to the last file only. They count as written when the file is forced to
disk, and only then are they shown to readers: an id that was seen does not become another message
by a crash. Readers take a list of segments that is never changed, only replaced.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from ottla.errors import ErrorCode, KafkaError
from ottla.log.flush_job import FlushJob
from ottla.record.legacy_positional import LENGTH, positional_messages
from ottla.record.record import CorruptRecordError
from ottla.runtime import Buffer, Disk, File, FileRegion
from ottla.structs import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

logger = logging.getLogger(__name__)

SUFFIX: Final = ".kafka"
_SEGMENT_NAME: Final = re.compile(r"(0?[0-9]{1,19})\.kafka")
_DIRECTORY_NAME: Final = re.compile(r"([a-zA-Z0-9._-]+)_(0|[1-9][0-9]{0,9})")
SCAN_BYTES: Final = 1024 * 1024


def segment_name(start: int) -> str:
    """`00000000000.kafka` is the first; later ones have as many digits as they need.

    Brokers of 0.7 wrote 20 digits, not 11 as its design says: both are read.
    """
    return f"{start:011d}{SUFFIX}"


def directory_name(topic_partition: TopicPartition) -> str:
    """`my_topic_0`; today's directories have a dash in the place of the last line."""
    return f"{topic_partition.topic}_{topic_partition.partition}"


def parse_directory(name: str) -> TopicPartition | None:
    """The partition that a directory of this name holds; None if it holds none."""
    match = _DIRECTORY_NAME.fullmatch(name)
    return None if match is None else TopicPartition(match[1], int(match[2]))


class ByteSegment:
    """One file of a log; `size` is how many bytes of it belong to the log."""

    __slots__ = (
        "_file",
        "begun_ms",
        "disk",
        "last_used_ms",
        "modified_ms",
        "path",
        "size",
        "start",
    )

    def __init__(self, disk: Disk, directory: str, start: int, size: int, now_ms: int) -> None:
        self.disk = disk
        self.path = f"{directory}/{segment_name(start)}"
        self.start = start
        self.size = size
        self.modified_ms = self.last_used_ms = now_ms
        self.begun_ms: int | None = None
        """When its first message was appended, as far as this process has seen it."""
        self._file: File | None = None

    @property
    def end(self) -> int:
        """The position behind its last message."""
        return self.start + self.size

    def file(self, now_ms: int, *, is_new: bool = False) -> File:
        """The open file; it stays open while it is used."""
        self.last_used_ms = now_ms
        if self._file is None:
            self._file = self.disk.open(self.path, create=is_new)
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class ByteLog:
    """One partition. Invariant: segments adjoin, and `flushed` is the end of some append.

    The part before `flushed` survives a crash, and is all that readers see.
    """

    def __init__(
        self,
        disk: Disk,
        topic_partition: TopicPartition,
        directory: str,
        segments: Sequence[ByteSegment],
    ) -> None:
        self.disk = disk
        self.topic_partition = topic_partition
        self.directory = directory
        self.segments = tuple(segments)
        self.flushed = self.segments[-1].end
        self.unflushed_count = 0
        self.is_flushing = False
        self.is_new = False
        """Whether this process has made it: what is known of a log of its name is of another."""
        self.has_new_names = False
        """Whether a name of the directory, or its own, may not be on the disk yet."""

    @property
    def start(self) -> int:
        """The position of the oldest message."""
        return self.segments[0].start

    @property
    def end(self) -> int:
        """The position that the next message gets."""
        return self.segments[-1].end

    @property
    def size(self) -> int:
        return self.end - self.start

    # Appending

    def append(self, messages: Buffer, count: int, now_ms: int) -> None:
        """Write a message set, whose entries were checked, behind the last one.

        Raises:
            OSError: nothing was written, or the written part is cut off again.
            TornAppendError: something was written, and could not be cut off.
        """
        active = self.segments[-1]
        file = active.file(now_ms)
        try:
            file.pwrite(messages, active.size)
        except OSError as error:
            cut_back(file, active.size, error)
            raise
        active.size += len(messages)
        active.modified_ms = now_ms
        if active.begun_ms is None:
            active.begun_ms = now_ms
        self.unflushed_count += count

    def must_roll(self, max_bytes: int, max_age_ms: int, now_ms: int) -> bool:
        """Whether the last file has exceeded its size, or its age since its first message."""
        active = self.segments[-1]
        if not active.size:
            return False
        is_old = active.begun_ms is not None and now_ms - active.begun_ms > max_age_ms
        return is_old or active.size > max_bytes

    def roll(self, now_ms: int) -> None:
        """Begin a new file, called after the position that the next message gets."""
        segment = ByteSegment(self.disk, self.directory, self.end, 0, now_ms)
        segment.file(now_ms, is_new=True).truncate(0)  # a roll that failed may have left it
        self.segments = (*self.segments, segment)
        self.has_new_names = True

    # Forcing to disk

    def flush_job(self, root: str, now_ms: int) -> FlushJob:
        """Forces all to disk that is not, or may not be."""
        files = [each.file(now_ms) for each in self.segments if each.end > self.flushed]
        directories = [self.directory, root] if self.has_new_names else []
        self.has_new_names = False
        return FlushJob(self.disk, [], files, [], directories)

    def note_flushed(self, up_to: int, count: int) -> None:
        """All before a position is on disk, with so many messages of those that were not."""
        self.flushed = max(self.flushed, up_to)
        self.unflushed_count -= count

    # Reading

    def read(self, position: int, max_bytes: int, now_ms: int) -> FileRegion | None:
        """Bytes from a position on, up to the end of the file that has it; None at the end.

        The last message may be cut off, and a position in the middle of a message is not noticed.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE, or INVALID_FETCH_SIZE for less than no bytes.
            OSError: the file cannot be opened.
        """
        if max_bytes < 0:
            raise KafkaError.of(ErrorCode.INVALID_FETCH_SIZE, f"{max_bytes} bytes")
        if not self.start <= position <= self.flushed:
            raise KafkaError.of(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{directory_name(self.topic_partition)} has {self.start} to {self.flushed}, "
                f"and {position} is asked for",
            )
        segment = self._segment_of(position)
        size = min(max_bytes, min(segment.end, self.flushed) - position)
        if size <= 0:
            return None
        return FileRegion(segment.file(now_ms), position - segment.start, size)

    def _segment_of(self, position: int) -> ByteSegment:
        segments = self.segments
        return segments[bisect_right(segments, position, key=lambda each: each.start) - 1]

    def offsets_before(self, time_ms: int, max_count: int, now_ms: int) -> list[int]:
        """Where segments begin that were last written to by a time, the newest first.

        -1 is all of them behind the log's end, -2 the first of them.
        """
        places = [(each.start, each.modified_ms) for each in self.segments]
        if self.flushed > places[-1][0]:
            places.append((self.flushed, now_ms))
        places = [place for place in places if place[0] <= self.flushed]
        if time_ms == EARLIEST_TIMESTAMP:
            count = 1
        elif time_ms == LATEST_TIMESTAMP:
            count = len(places)
        else:
            count = max((n for n, (_, last) in enumerate(places, 1) if last <= time_ms), default=0)
        return [position for position, _ in reversed(places[:count])][: max(0, max_count)]

    # Deleting

    def breached(self, max_age_ms: int, max_bytes: int, now_ms: int) -> list[ByteSegment]:
        """The oldest segments that are too old, or that the size allows to be without.

        A limit below 0 is none. All of it must be on disk, and a last file without messages stays.
        """
        excess = self.size - max_bytes
        found: list[ByteSegment] = []
        for segment in self.segments:
            if segment.end > self.flushed or not segment.size:
                break
            excess -= segment.size
            is_old = max_age_ms >= 0 and now_ms - segment.modified_ms > max_age_ms
            if not is_old and (max_bytes < 0 or excess < 0):
                break
            found.append(segment)
        return found

    def drop(self, gone: Sequence[ByteSegment]) -> None:
        """Show the oldest segments to no reader any longer; their files are the caller's."""
        self.segments = self.segments[len(gone) :]

    def close_unused(self, since_ms: int) -> None:
        """Close files that were not used since a time; they are opened again by the next use."""
        for segment in self.segments:
            if segment.last_used_ms < since_ms and segment.end <= self.flushed:
                segment.close()

    def close(self) -> None:
        for segment in self.segments:
            segment.close()


class TornAppendError(Exception):
    """A part of an append is in the file, and cannot be cut off: the disk does not work."""


def cut_back(file: File, size: int, error: OSError) -> None:
    """Cut off the remains of a failed write."""
    try:
        file.truncate(size)
    except OSError as another:
        raise TornAppendError(f"{error}, and then {another}") from error


def load_log(
    disk: Disk,
    topic_partition: TopicPartition,
    directory: str,
    now_ms: int,
    recovery_point: int | None,
) -> ByteLog:
    """The log of a directory, cut off behind the last message that is valid, and all of it on disk.

    Messages before `recovery_point` are known to be on disk; after a clean stop it is None, and
    nothing is read. For a background thread: nothing else may use the directory.
    """
    disk.make_dirs(directory)
    segments = after_last_gap(find_segments(disk, directory, now_ms), recovery_point)
    if recovery_point is not None and segments:
        segments = recover(segments, recovery_point, now_ms)
        unsure = [each.file(now_ms) for each in segments if each.end >= recovery_point]
        FlushJob(disk, [], unsure, [], [directory])()
    is_new = not segments
    if is_new:
        segments = [ByteSegment(disk, directory, 0, 0, now_ms)]
        segments[0].file(now_ms, is_new=True)
    log = ByteLog(disk, topic_partition, directory, segments)
    log.is_new = log.has_new_names = is_new
    return log


def after_last_gap(
    segments: Sequence[ByteSegment], recovery_point: int | None
) -> list[ByteSegment]:
    """The segments that adjoin: without those before a file that is missing.

    Before the recovery point no crash has lost it. The files before it are left where they are.
    """
    first = 0
    for index in range(1, len(segments)):
        before, segment = segments[index - 1 : index + 1]
        is_known = recovery_point is None or segment.start <= recovery_point
        if is_known and before.end != segment.start:
            logger.error("%s: the file before it is missing; it is now the first", segment.path)
            first = index
    return list(segments[first:])


def find_segments(disk: Disk, directory: str, now_ms: int) -> list[ByteSegment]:
    """The segments of a directory, the oldest first; other files are left alone."""
    starts: dict[int, str] = {}
    for name in disk.list_dir(directory):
        match = _SEGMENT_NAME.fullmatch(name)
        if match is not None:
            starts[int(match[1])] = f"{directory}/{name}"
    segments = []
    for start, path in sorted(starts.items()):
        segment = ByteSegment(disk, directory, start, disk.file_size(path), now_ms)
        segment.path = path
        segment.modified_ms = disk.modified_ms(path)
        segments.append(segment)
    return segments


def recover(segments: Sequence[ByteSegment], recovery_point: int, now_ms: int) -> list[ByteSegment]:
    """The segments up to the last valid message; the bytes behind it are cut off, or deleted."""
    kept: list[ByteSegment] = []
    for index, segment in enumerate(segments):
        if kept and kept[-1].end != segment.start:
            logger.warning("%s does not begin where the file before ends", segment.path)
            remove(segments[index:])
            break
        kept.append(segment)
        if segment.end <= recovery_point:
            continue
        end = valid_end(segment, max(0, recovery_point - segment.start), now_ms)
        if end < segment.size:
            logger.warning("%s: cut off %d bytes", segment.path, segment.size - end)
            segment.file(now_ms).truncate(end)
            segment.size = end
            remove(segments[index + 1 :])
            break
    return kept


def remove(segments: Iterable[ByteSegment]) -> None:
    """Delete files of messages that no longer count, the last first."""
    for segment in [*segments][::-1]:
        logger.warning("%s is deleted", segment.path)
        segment.close()
        segment.disk.unlink(segment.path)


def valid_end(segment: ByteSegment, position: int, now_ms: int) -> int:
    """Where the valid messages of a file end, from the position of one on."""
    file = segment.file(now_ms)
    wanted = SCAN_BYTES
    while position < segment.size:
        data = file.pread(wanted, position)
        before = position
        try:
            for message in positional_messages(data, position):
                position = message.next_position
        except CorruptRecordError as error:
            logger.warning("%s: %s", segment.path, error.message)
            return position
        if position == before:  # the message is longer than the read, or ends behind the file
            if len(data) < LENGTH.size:
                return position
            wanted = LENGTH.size + LENGTH.unpack_from(data)[0]
            if position + wanted > segment.size:
                return position
        else:
            wanted = SCAN_BYTES
    return position
