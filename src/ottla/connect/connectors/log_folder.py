"""LogFolderSource: the log files of many hosts, in folders, as records of one topic.

    connector.class=LogFolderSource
    path=/logs/*/*.log
    host.pattern=/logs/([^/]+)/
    topic=logs

Each line is a record: its key is the host, which a group of `host.pattern` finds in the path, its
value the line, and its header `file` the path. New files are found while it runs, also by a
restarted task, and the lines of one log keep their order. Tasks share the logs by their names.

A log is a file and those that it was rotated to: `app.log`, `app.log.1`, `app.log-20200203`. A file
is known by its number on the disk and by two samples of the part that was read: its beginning and
its last line. So a file that was renamed is read on where its reading ended, a copy of it too, once
the original was emptied (logrotate's copytruncate), and a new file that got the number of a deleted
one is read from its start. All of this holds for changes while the task was down as well, as
long as the files are in their folder and uncompressed.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from stat import S_ISREG
from typing import Any, BinaryIO, Final, NamedTuple
from zlib import crc32

from ottla.config.client_config import ProducerConfig
from ottla.config.config_def import HIGH, LOW, REQUIRED, ConfigTable, config_key
from ottla.config.config_type import LONG
from ottla.config.java_regex import is_java_pattern, java_pattern
from ottla.config.rule import Rule, at_least, not_empty
from ottla.connect.connector import Place, SourceConnector
from ottla.connect.connectors.log_listing import (
    COMPRESSED,
    LogListing,
    log_name,
    paths_of,
    readable,
)
from ottla.connect.data import STRING as STRING_SCHEMA
from ottla.connect.data import Header, SourceRecord, shown
from ottla.errors import ConfigError

logger = logging.getLogger(__name__)

FILE_HEADER: Final = "file"
KEY_SCHEMA: Final = STRING_SCHEMA.as_optional()
FILE: Final = "filename"
BLOCK: Final = 1 << 18
MOST_AT_ONCE: Final = 1 << 22
"""So many characters of lines are returned by one poll, and no more than a block above that."""
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
NUL: Final = b"\0"
BEGINNING_BYTES: Final = 1024
LAST_BYTES: Final = 256
ENVELOPE_BYTES: Final = 1 << 14
"""What a record has beside its line: key, path, schema, and the producer's own bytes."""
REQUEST_BYTES: Final[int] = ProducerConfig.keys["max.request.size"].default
REQUEST_OVERRIDE: Final = "producer.override.max.request.size"
MOST_ESCAPED: Final = 6
"""So many bytes become of one as JSON, at most: a control character is \\u001B."""
MOST_LOOKS: Final = 10
"""So many times a file that changes is looked at before it is taken for no copy."""
OPEN_FILES: Final = 2
"""So many of the newest files of a log stay open, as they may be deleted before they are read."""


Stored = tuple[Place, Place]
"""A partition of the source, and the offset that is stored of it."""


class LogFolderSettings(ConfigTable):
    """The settings of LogFolderSource."""

    path: str = config_key(
        default=REQUIRED,
        rule=not_empty(),
        importance=HIGH,
        doc="The files: a path with *, ? and ** (any folders).",
    )
    topic: str = config_key(
        default=REQUIRED,
        rule=not_empty(),
        importance=HIGH,
        doc="The topic for all lines.",
    )
    host_pattern: str = config_key(
        default=r".*/([^/]+)/[^/]*",
        rule=Rule(
            "be a regular expression with a group",
            lambda text: is_java_pattern(text) and java_pattern(text).groups > 0,
        ),
        doc="Finds the host in the path, by its first group; without set, the file's folder.",
    )
    scan_interval_ms: int = config_key(
        default=1000, type=LONG, rule=at_least(1), importance=LOW, doc="How often it looks anew."
    )
    max_line_bytes: int = config_key(
        default=REQUEST_BYTES - ENVELOPE_BYTES,
        rule=at_least(1),
        importance=LOW,
        doc="A longer line is cut into several records, so that none fills the memory, or is "
        "refused: one that would be above the producer's max.request.size as JSON is cut as well.",
    )
    task_number: int = config_key(
        default=0, importance=LOW, doc="Which task it is; the connector sets it."
    )
    task_count: int = config_key(
        default=1, importance=LOW, doc="How many tasks share the files; set as well."
    )


class LogFolderSource(SourceConnector):
    """Follows all files that a path with wildcards fits."""

    Settings = LogFolderSettings
    settings: LogFolderSettings

    def tasks(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [
            {"task.number": str(number), "task.count": str(max_tasks)}
            for number in range(max_tasks)
        ]

    def start(self) -> None:
        self._host = java_pattern(self.settings.host_pattern)
        self._logs: dict[str, RotatedLog] = {}
        self._elsewhere: dict[int | None, list[Reached]] = {}
        self._left_out: set[str] = set()
        self._turn = 0
        self._limits = self._limits_of_lines()
        self.idle_s = self.settings.scan_interval_ms / 1000
        self._take_stored()

    def stop(self) -> None:
        for log in self._logs.values():
            log.close()

    def poll(self) -> Sequence[SourceRecord]:
        """A block of lines of each file that has some; after a wait, if none has."""
        self._find_files()
        found: list[SourceRecord] = []
        logs = list(self._logs.values())
        first = self._turn % max(1, len(logs))
        taken = 0
        self._turn = 0
        for number, log in enumerate(logs[first:] + logs[:first], 1):
            for record in self._records(log):
                found.append(record)
                taken += len(record.value)
            if taken >= MOST_AT_ONCE:
                self._turn = first + number  # the others come first next time
                break
        if not found:
            self.context.wait(self.idle_s)
        return found

    def _limits_of_lines(self) -> tuple[int, int]:
        """How many bytes a piece of a line has at most, and how many as JSON."""
        given = self.context.properties.get(REQUEST_OVERRIDE)
        request = REQUEST_BYTES if given is None else int(given)
        room = max(1, request - ENVELOPE_BYTES)
        most = self.settings.max_line_bytes
        if most > room:
            logger.warning(
                "%s: lines are cut after %d bytes, not %d (max.line.bytes), as a record must not "
                "be larger than %s=%d",
                self.context.name,
                room,
                most,
                REQUEST_OVERRIDE,
                request,
            )
        return min(most, room), room

    def _take_stored(self) -> None:
        """Logs that were followed before; a file of theirs may have another name by now."""
        stored: dict[str, list[Stored]] = {}
        for partition, offset in self.context.offsets():
            if FILE in partition:
                stored.setdefault(log_name(partition[FILE]), []).append((partition, offset))
        for name, places in stored.items():
            if self._is_own(name):
                self._logs[name] = RotatedLog(name, self._limits, places)
                continue
            for _, stored_offset in places:
                for reached in Reached.all_of(stored_offset):
                    self._elsewhere.setdefault(reached.inode, []).append(reached)

    def _find_files(self) -> None:
        wanted: dict[tuple[int, int], Sighting] = {}
        paths = set(paths_of(self.settings.path))
        for path in sorted(paths, key=lambda path: (os.path.islink(path), path)):
            seen = self._sighting(path)
            if seen is not None:
                wanted.setdefault(seen.identity, seen)  # another link to it is the same file
        followed = {file.identity: log for log in self._logs.values() for file in log.files}
        shares: dict[str, list[Sighting]] = {name: [] for name in self._logs}
        for seen in wanted.values():
            log = followed.get(seen.identity)
            if log is not None and log.knows(seen):
                shares[log.name].append(seen)
            elif self._is_own(log_name(seen.path)) and not self._is_elsewhere(seen):
                shares.setdefault(log_name(seen.path), []).append(seen)
        listings: dict[str, LogListing] = {}
        for name, found in shares.items():
            self._log(name, found).update(found, wanted.keys(), listings)

    def _sighting(self, path: str) -> Sighting | None:
        """The file of a path, if it can be followed; a log's first compressed one is reported."""
        if path.endswith(COMPRESSED):
            name, ending = os.path.splitext(path)
            log = log_name(name) + ending
            if log not in self._left_out and os.path.isfile(path):
                self._left_out.add(log)
                logger.warning(
                    "%s: is left out, as it is compressed; so are others of %s",
                    readable(path),
                    log_name(name),
                )
            return None
        try:
            return Sighting.of(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            if path not in self._left_out:
                self._left_out.add(path)
                logger.warning("%s: cannot be read: %s", readable(path), error.strerror)
            return None

    def _log(self, name: str, found: Sequence[Sighting]) -> RotatedLog:
        """The log of that name, with its stored positions and its files' names."""
        log = self._logs.get(name)
        if log is None:
            names = dict.fromkeys([name, *(readable(seen.path) for seen in found)])
            places = [({FILE: each}, self.context.offset({FILE: each})) for each in names]
            stored: list[Stored] = [(place, offset) for place, offset in places if offset]
            log = self._logs[name] = RotatedLog(name, self._limits, stored)
        return log

    def _is_own(self, name: str) -> bool:
        return crc32(name.encode()) % self.settings.task_count == self.settings.task_number

    def _is_elsewhere(self, seen: Sighting) -> bool:
        """Whether another task has read it, as a file of a log of its own."""
        known = self._elsewhere.get(seen.inode, ())
        return any(each.position and each.is_in(seen.path) for each in known)

    def _records(self, log: RotatedLog) -> Iterator[SourceRecord]:
        partition = {FILE: log.name}
        for file, line, offset in log.lines():
            host = self._host.match(file.name)
            yield SourceRecord(
                topic=self.settings.topic,
                key=host[1] if host else None,
                key_schema=KEY_SCHEMA,
                value=line.decode("utf-8", "replace"),
                value_schema=STRING_SCHEMA,
                headers=(Header(FILE_HEADER, file.name, STRING_SCHEMA),),
                source_partition=partition,
                source_offset=offset,
            )

    @classmethod
    def is_exactly_once(cls, settings: ConfigTable) -> bool:
        """True: each line has a position in its file."""
        return True

    @classmethod
    def alter_offsets(
        cls, settings: ConfigTable, offsets: Sequence[tuple[Place, Place | None]]
    ) -> bool:
        """Positions in logs, with or without the marks of the file."""
        for partition, offset in offsets:
            if set(partition) != {FILE}:
                raise ConfigError(f"partition={dict(partition)}: must have the one key {FILE}")
            if offset is not None:
                if not isinstance(partition[FILE], str):
                    raise ConfigError(f"partition={dict(partition)}: {FILE} must be a path")
                Reached.all_of(offset)
        return True


class Sighting(NamedTuple):
    """A file as it was found on the disk."""

    path: str
    device: int
    inode: int
    size: int
    written_ns: int
    is_wanted: bool = True
    """Whether the setting `path` fits it; others are of interest as what a log became."""
    is_rotated: bool = True
    """Whether it has the name of a log, with more to it."""

    @classmethod
    def of(cls, path: str) -> Sighting | None:
        """The file that is there now; None if it is none. OSError if it cannot be looked at."""
        state = os.stat(path)
        if not S_ISREG(state.st_mode):
            return None
        return cls(path, state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns)

    @property
    def identity(self) -> tuple[int, int]:
        return self.device, self.inode

    @property
    def age(self) -> tuple[int, bool, int]:
        """Files of a log in this order were written one after the other."""
        number = re.search(r"\.(\d{1,5})$", self.path)
        return self.written_ns, number is None, -int(number[1]) if number else 0


class Sample(NamedTuple):
    """Some bytes of a file: how many, and their check sum."""

    size: int = 0
    checksum: int = 0

    def __str__(self) -> str:
        return f"{self.size}:{self.checksum:08x}"

    @classmethod
    def of(cls, text: str | None) -> Sample | None:
        """The stored mark; None if there is none."""
        if not text:
            return None
        size, _, checksum = text.partition(":")
        found = cls(int(size), int(checksum, 16))
        if not 0 <= found.size <= BEGINNING_BYTES:
            raise ValueError(text)
        return found

    def is_at(self, file: BinaryIO, place: int) -> bool:
        found = os.pread(file.fileno(), self.size, place)
        return len(found) == self.size and crc32(found) == self.checksum


class Reached(NamedTuple):
    """How far a file was read, and the marks by which it is known again.

    Offsets of Ottla before 2026-12 have no samples: such a file is known by its number, and by the
    end of a line before its position.
    """

    position: int
    inode: int | None = None
    device: int | None = None
    beginning: Sample | None = None
    last: Sample | None = None

    def is_in(self, path: str) -> bool:
        """Whether the part that was read is in the file of a path."""
        try:
            with open(path, "rb") as file:
                return self.fits(file)
        except OSError:
            return False

    def fits(self, file: BinaryIO) -> bool:
        """Whether a file has the bytes at its places that were read there."""
        if self.position == 0:
            return True
        if self.beginning is None or self.last is None:
            before = os.pread(file.fileno(), 1, self.position - 1)
            return before in (b"\n", b"\r")
        return self.beginning.is_at(file, 0) and self.last.is_at(
            file, self.position - self.last.size
        )

    def __str__(self) -> str:
        return ",".join("" if each is None else str(each) for each in self)

    @classmethod
    def all_of(cls, offset: Mapping[str, Any]) -> list[Reached]:
        """The files of the log in a stored offset, first the one that the offset is a place in.

        ConfigError if it is no offset of ours.
        """
        try:
            position, inode, device = offset["position"], offset.get("inode"), offset.get("device")
            given = [each for each in (inode, device) if each is not None]
            numbers = (position, offset.get("written", 0), *given)
            if any(type(number) is not int or number < 0 for number in numbers):
                raise ValueError(numbers)
            samples = [Sample.of(offset.get(key)) for key in ("begins", "last")]
            found = [cls(position, inode, device, *samples)]
            for text in filter(None, str(offset.get("others", "")).split(";")):
                *parts, beginning, last = text.split(",")
                place, number, device = (int(each) if each else None for each in parts)
                marks = Sample.of(beginning), Sample.of(last)
                found.append(cls(place or 0, number, device, *marks))
        except (KeyError, ValueError, TypeError, AttributeError):
            raise ConfigError(
                f"offset={shown(dict(offset))}: must have a position (a number of bytes from 0 on) "
                "and may have an inode (the file's number on its disk)"
            ) from None
        return found


class FollowedFile:
    """A file that is read to its end, then waited for.

    `position` is behind the last line that was read; the samples are of bytes before it.
    """

    def __init__(
        self,
        path: str,
        position: int,
        inode: int | None,
        most: int,
        room: int = REQUEST_BYTES - ENVELOPE_BYTES,
    ) -> None:
        self.path: str | None = path
        """Where it is now; None if it has no name that is known."""
        self.name = readable(path)
        """The path that its records have."""
        self.position = position
        self.inode = inode
        self.device: int | None = None
        self.size = 0
        self.is_done = False
        """Whether its end was reached, as far as it was written then."""
        self.written_ns = 0
        self._beginning: Sample | None = Sample()
        self._last: Sample | None = Sample()
        self._most = most
        self._room = room
        self._file: BinaryIO | None = None
        self._checked: tuple[int, int] | None = None
        self._waiting: tuple[int, int] | None = None
        self.is_idle = False
        """Whether the last two looks at it have found the same, and no line."""
        self._told: set[str] = set()

    @classmethod
    def of(cls, reached: Reached, path: str, limits: tuple[int, int]) -> FollowedFile:
        """One that was read before, and has not been found yet."""
        file = cls(path, reached.position, reached.inode, *limits)
        file.path, file.device = None, reached.device
        file._beginning, file._last = reached.beginning, reached.last
        return file

    @property
    def identity(self) -> tuple[int | None, int | None]:
        return self.device, self.inode

    @property
    def reached(self) -> Reached:
        return Reached(self.position, self.inode, self.device, self._beginning, self._last)

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def is_still(self, seen: Sighting) -> bool:
        """Whether the part that was read is in a file that was found."""
        stamp = (seen.size, seen.written_ns)
        if stamp != self._checked or seen.identity != self.identity:
            if seen.size < self.position:
                return False
            is_same = self.is_open and seen.identity == self.identity
            fits = self.is_held() if is_same else self.reached.is_in(seen.path)
            if not fits:
                return False
        return True

    def is_held(self) -> bool:
        """Whether it is open, and has the part that was read."""
        return self._file is not None and self.reached.fits(self._file)

    def seen_at(self, seen: Sighting) -> None:
        """Note where the file was seen; one that is open is closed if it was another."""
        if seen.identity != self.identity:
            self.close()
            self.device, self.inode = seen.identity
        self.path = seen.path
        self.size, self.written_ns = seen.size, seen.written_ns
        self._checked = (seen.size, seen.written_ns)

    def lines(self, is_over: bool = False) -> Iterator[tuple[bytes, int, int]]:
        """The next lines without their ends, the position behind each, and the file's number.

        A line is whole when it has ended, or when the file is over: nobody writes the rest of a
        line that was not continued since the last look.
        """
        if not self._open():
            return
        stamp = (self.size, self.written_ns)
        self.is_idle, self._waiting = stamp == self._waiting, stamp
        block = self._next_block()
        whole = split_lines(block)
        rest = b"" if not whole or whole[-1].endswith(b"\n") else _unfinished(whole)
        for line in whole:
            yield from self._cut(line)
        if len(rest) > self._most:
            yield from self._cut(rest, is_whole=False)
            return
        if self.position + len(rest) < self.size and block:
            return
        self.is_done = True
        if rest and is_over and self.is_idle:
            yield from self._cut(rest)

    def _open(self) -> bool:
        if self._file is None:
            if self.path is None or (self.is_done and self.size == self.position):
                return False
            try:
                self._file = open(self.path, "rb")  # noqa: SIM115 # until close
            except OSError as error:
                self._tell(f"cannot be read: {error.strerror}")
                self.is_done = True  # as far as it can be read
                return False
            self._sample_again()
        state = os.fstat(self._file.fileno())
        if (state.st_dev, state.st_ino) != self.identity:
            self.close()  # the name went to another file since the look, and the next one sees it
            return False
        self.size, self.written_ns = state.st_size, state.st_mtime_ns
        return True

    def _sample_again(self) -> None:
        """Samples of a file whose offset has none."""
        if self._file is None or (self._beginning is not None and self._last is not None):
            return
        file = self._file.fileno()
        begin = os.pread(file, min(self.position, BEGINNING_BYTES), 0)
        size = min(self.position, LAST_BYTES)
        last = os.pread(file, size, self.position - size)
        self._beginning = Sample(len(begin), crc32(begin))
        self._last = Sample(len(last), crc32(last))

    def _next_block(self) -> bytes:
        """The bytes behind the position: a block, or more if that is not a whole line."""
        file = self._file
        assert file is not None, "open"
        self.is_done = False
        block = os.pread(file.fileno(), BLOCK, self.position)
        if block.startswith(NUL) and not block.strip(NUL):
            block = self._behind_nuls(file, len(block))
        if len(block) == BLOCK and b"\n" not in block and b"\r" not in block[:-1]:
            block = os.pread(file.fileno(), max(BLOCK, self._most + 4), self.position)
        return block

    def _behind_nuls(self, file: BinaryIO, count: int) -> bytes:
        """The block behind a run of NULs, which a file that was emptied under its writer has.

        At the end of a file they stand where lines will be written: they are waited for.
        """
        while not self.is_idle:
            block = os.pread(file.fileno(), BLOCK, self.position + count)
            if not block:
                break
            text = block.lstrip(NUL)
            count += len(block) - len(text)
            if text:
                self._advance(bytes(min(count, BEGINNING_BYTES)), count)
                self._tell_of_nuls()
                return os.pread(file.fileno(), BLOCK, self.position)
        return b""

    def _advance(self, content: bytes, count: int) -> None:
        """Pass `count` bytes, which are those of `content`, or are like them."""
        beginning = self._beginning or Sample()
        if beginning.size < BEGINNING_BYTES:
            more = content[: BEGINNING_BYTES - beginning.size]
            self._beginning = Sample(beginning.size + len(more), crc32(more, beginning.checksum))
        end = content[-LAST_BYTES:]
        self._last = Sample(len(end), crc32(end))
        self.position += count

    def _cut(self, line: bytes, is_whole: bool = True) -> Iterator[tuple[bytes, int, int]]:
        """A line in pieces that a record can hold, most often one."""
        length = len(line.rstrip(b"\r\n")) if is_whole else len(line)
        start = 0
        while True:
            end = self._end_of_piece(line, start, length)
            if end >= length:
                if is_whole:
                    yield from self._part_to_keep(line[start:])
                return
            yield from self._part_to_keep(line[start:end])
            start = end

    def _end_of_piece(self, line: bytes, start: int, length: int) -> int:
        """Where a piece ends: between characters, and small enough for the producer as JSON."""
        size = min(self._most, length - start)
        while True:
            end = start + size
            if end < length:
                end = _between_characters(line, start, end)
            if size == 1 or (end - start) * MOST_ESCAPED <= self._room:
                return end
            text = line[start:end].decode("utf-8", "replace")
            if len(json.dumps(text, ensure_ascii=False).encode()) - len('""') <= self._room:
                return end
            size //= 2

    def _part_to_keep(self, piece: bytes) -> Iterator[tuple[bytes, int, int]]:
        """Pass a piece, and return the part that a record is to have."""
        text = piece
        if self.position == 0:
            text = text.removeprefix(BYTE_ORDER_MARK)
        self._advance(piece, len(piece))
        if text.startswith(NUL):
            text = text.lstrip(NUL)
            self._tell_of_nuls()
            if not text.strip(b"\r\n"):
                return
        yield text.rstrip(b"\r\n"), self.position, self.inode or 0

    def _tell_of_nuls(self) -> None:
        self._tell("has NULs where lines should begin: they are left out")

    def _tell(self, text: str) -> None:
        """Log it, once for this file."""
        if text not in self._told:
            self._told.add(text)
            logger.warning("%s: %s", readable(self.path) if self.path else self.name, text)


def split_lines(block: bytes) -> list[bytes]:
    """Lines with their ends: \\n, \\r, or any number of \\r and \\n, as of text converted twice."""
    lines = block.splitlines(keepends=True)
    if b"\r\r" not in block:
        return lines
    joined: list[bytes] = []
    for line in lines:
        if line == b"\r\n":
            line = _with_returns(joined) + line
        joined.append(line)
    return joined


def _unfinished(lines: list[bytes]) -> bytes:
    """Take away the last line, whose end is not there yet; a \\r may be the half of one."""
    rest = lines.pop()
    return rest if rest.strip(b"\r") else _with_returns(lines) + rest


def _with_returns(lines: list[bytes]) -> bytes:
    """Take away the last line that ends with \\r, and all that are nothing else behind it."""
    returns = []
    while lines and lines[-1] == b"\r":
        returns.append(lines.pop())
    if lines and lines[-1].endswith(b"\r"):
        returns.append(lines.pop())
    return b"".join(reversed(returns))


def _between_characters(line: bytes, start: int, end: int) -> int:
    """The last place up to `end` where no character of UTF-8 is cut; `end` if it is no UTF-8."""
    for place in range(end, max(start, end - 4), -1):
        if line[place] & 0xC0 != 0x80:
            return place
    return end


class RotatedLog:
    """A file that is written to, and those that it was before.

    `files` are in the order in which they are read: a file is read when those before it are at
    their ends.
    """

    def __init__(self, name: str, limits: tuple[int, int], stored: Sequence[Stored]) -> None:
        self.name = name
        self.files: list[FollowedFile] = []
        self._limits = limits
        self._written_ns = 0
        """When what was read last was written: a file of that age or younger is not read yet."""
        self._passed: dict[tuple[int, int], int] = {}
        """Files that are not read, and when they were written: they were there before the log was
        followed, or are copies of it."""
        self._looks: dict[tuple[int, int], tuple[tuple[int, int], int]] = {}
        """Files that may be copies under way: as they were seen last, and how often."""
        self._is_sorted = not stored
        own = [(place, offset) for place, offset in stored if place == {FILE: name}]
        if own and "begins" in own[0][1]:
            stored = own  # offsets of older versions, by the paths of files, are outdated
        for _, offset in stored:
            self._restore(offset)

    def _restore(self, offset: Place) -> None:
        current, *others = Reached.all_of(offset)
        self._written_ns = max(self._written_ns, offset.get("written", 0))
        for reached in (*others, current):
            file = FollowedFile.of(reached, self.name, self._limits)
            file.is_done = reached is not current
            self.files.append(file)

    def close(self) -> None:
        for file in self.files:
            file.close()

    def knows(self, seen: Sighting) -> bool:
        """Whether it is a file that the log reads."""
        return any(file.identity == seen.identity and file.is_still(seen) for file in self.files)

    def update(
        self,
        wanted: Sequence[Sighting],
        all_wanted: Collection[tuple[int, int]],
        listings: dict[str, LogListing],
    ) -> None:
        """Learn which files there are, and under which names, in the result of a scan.

        `listings` has the folders that other logs were looked for in by this scan.
        """
        here, lost = self._find(wanted, all_wanted, listings)
        if lost:  # the copy of one that was emptied may be younger than a listing
            here, lost = self._find(wanted, all_wanted, {})
        self._sort()
        for file in lost:
            self._replace(file, here)
        self._add(here)

    def _find(
        self,
        wanted: Sequence[Sighting],
        all_wanted: Collection[tuple[int, int]],
        listings: dict[str, LogListing],
    ) -> tuple[dict[tuple[int, int], Sighting], list[FollowedFile]]:
        """Find the files of the log again; the others that are there, and those that are not."""
        beside = self._beside([self.name, *(seen.path for seen in wanted)], listings)
        here = {seen.identity: seen for seen in beside if seen.identity not in all_wanted}
        here |= {seen.identity: seen for seen in wanted}
        lost = []
        for file in self.files:
            seen = self._place_of(file, here)
            if seen is not None:
                file.seen_at(here.pop(seen.identity))
            elif not file.is_held():
                lost.append(file)
            else:
                file.path = None
        return here, lost

    def _beside(self, paths: Sequence[str], listings: dict[str, LogListing]) -> Iterator[Sighting]:
        """The files that have the log's name with more to it, or the number of a file of it."""
        numbers = {file.inode for file in self.files}
        logs = {os.path.split(log) for path in paths for log in _logs_of(path)}
        for folder in {folder for folder, _ in logs}:
            names = {name for its, name in logs if its == folder}
            if folder not in listings:
                listings[folder] = LogListing(folder)
            for name, is_rotated in listings[folder].of(names, numbers).items():
                seen = _looked_at(os.path.join(folder, name))
                if seen is not None:
                    yield seen._replace(is_wanted=False, is_rotated=is_rotated)

    def _place_of(
        self, file: FollowedFile, here: Mapping[tuple[int, int], Sighting]
    ) -> Sighting | None:
        """Where a file is: by its number, also where disks have other numbers since a restart.

        An offset that a person has set has no number, and is a place in the file of the log's name.
        """
        found = [
            seen
            for seen in here.values()
            if seen.inode == file.inode or (file.inode is None and seen.path == self.name)
        ]
        found.sort(key=lambda seen: seen.device != file.device)
        return next((seen for seen in found if file.is_still(seen)), None)

    def _sort(self) -> None:
        """Bring files that were stored into the order in which they were written."""
        if not self._is_sorted:
            self._is_sorted = True
            self.files.sort(key=lambda file: (file.written_ns, file.path == self.name))
            if not self._written_ns:  # an older version has not stored it
                self._written_ns = max((file.written_ns for file in self.files), default=0)

    def _replace(self, file: FollowedFile, here: dict[tuple[int, int], Sighting]) -> None:
        """Read on in the copy of a file that was emptied; without one, report the loss."""
        copies = [
            seen
            for seen in here.values()
            if readable(seen.path) != self.name
            and seen.written_ns >= self._written_ns
            and file.position
            and file.reached.beginning is not None
            and file.is_still(seen)
        ]
        if copies:
            file.seen_at(here.pop(min(copies, key=lambda seen: seen.age).identity))
            return
        self.files.remove(file)
        file.close()
        is_old = file.is_done and file.path != self.name
        if file.position == 0 or is_old:
            return
        is_there = any(seen.inode == file.inode or seen.path == self.name for seen in here.values())
        logger.warning(
            "%s: %s. It was read up to byte %d; what was written behind that, and is in no "
            "uncompressed file beside it, is lost",
            self.name,
            "was emptied, or is another file now, which is read from its start"
            if is_there
            else "is gone",
            file.position,
        )

    def _add(self, here: Mapping[tuple[int, int], Sighting]) -> None:
        """Follow files that are new."""
        is_known = self._written_ns > 0
        unsettled = {seen.identity for seen in here.values() if not self._is_settled(seen)}
        for seen in sorted(here.values(), key=lambda seen: seen.age):
            if self._passed.get(seen.identity) == seen.written_ns:
                continue
            is_before = not is_known or seen.written_ns < self._written_ns
            if (not seen.is_wanted and (is_before or not seen.is_rotated)) or self._is_copy(seen):
                self._passed[seen.identity] = seen.written_ns
                continue
            if seen.identity in unsettled:
                break  # those that are younger come after it
            file = FollowedFile(seen.path, 0, seen.inode, *self._limits)
            if not seen.is_wanted:
                file.name = self.name
            file.seen_at(seen)
            self.files.append(file)

    def _is_settled(self, seen: Sighting) -> bool:
        """Whether a file with a rotated name has not changed since the last look.

        One that has may be a copy under way, whose original is emptied between two steps of this
        look: it would look like a new file.
        """
        if readable(seen.path) == self.name or not any(file.position for file in self.files):
            return True
        stamp = (seen.size, seen.written_ns)
        before, count = self._looks.get(seen.identity, (None, 0))
        if stamp == before or count >= MOST_LOOKS:
            self._looks.pop(seen.identity, None)
            return True
        self._looks[seen.identity] = (stamp, count + 1)
        return False

    def _is_copy(self, seen: Sighting) -> bool:
        """Whether it is a copy, or part of one, of the file that is written to.

        That is emptied next, and then the copy is read from there.
        """
        if readable(seen.path) == self.name:
            return False
        current = next((file for file in self.files if file.path == self.name), None)
        if current is None:
            return False
        try:
            with open(seen.path, "rb") as copy, open(self.name, "rb") as original:
                begins = copy.read(BEGINNING_BYTES)
                is_shorter = os.fstat(original.fileno()).st_size >= seen.size
                return is_shorter and original.read(len(begins)) == begins
        except OSError:
            return False

    def lines(self) -> Iterator[tuple[FollowedFile, bytes, dict[str, Any]]]:
        """The next lines, each with its file and the offset behind it."""
        for file in list(self.files):
            others = ";".join(
                str(each.reached) for each in self.files if each is not file and each.position
            )
            for line, position, inode in file.lines(self._is_over(file)):
                self._written_ns = max(self._written_ns, file.written_ns)
                yield file, line, self._offset(file, position, inode, others)
            if not file.is_done:
                break  # its lines come before those of the next one
        self._let_go()

    def _offset(self, file: FollowedFile, position: int, inode: int, others: str) -> dict[str, Any]:
        reached = file.reached
        found: dict[str, Any] = {
            "position": position,
            "inode": inode,
            "device": file.device,
            "begins": str(reached.beginning),
            "last": str(reached.last),
            "written": self._written_ns,
        }
        if others:
            found["others"] = others
        return found

    def _is_over(self, file: FollowedFile) -> bool:
        """Whether nothing more is written to a file: it has no name, or there is a new one."""
        if file.path == self.name:
            return False
        return file.path is None or any(
            each.path == self.name and each.size > 0 for each in self.files
        )

    def _let_go(self) -> None:
        """Forget files that are gone, and close old ones: they are opened again if they grow."""
        for file in [file for file in self.files if file.is_done and file.path is None]:
            if file.position >= file.size or file.is_idle:
                file.close()
                self.files.remove(file)
        for file in self.files[:-OPEN_FILES]:
            if file.is_done:
                file.close()


def _looked_at(path: str) -> Sighting | None:
    try:
        return Sighting.of(path)
    except OSError:
        return None  # it is gone by now, or cannot be read: nobody asked for it


def _logs_of(path: str) -> Iterator[str]:
    """The paths at which a log's files may be: its own, and that which a link leads to."""
    yield log_name(path)
    yield log_name(os.path.realpath(path))
