"""LogFolderSource: the log files of many hosts, in folders, as records of one topic.

    connector.class=LogFolderSource
    path=/logs/*/*.log
    host.pattern=/logs/([^/]+)/
    topic=logs

Each line is a record: its key is the host, which a group of `host.pattern` finds in the path, its
value the line, and its header `file` the path. New files are found while it runs, also by a
restarted task, and the lines of one file keep their order. Tasks share the files by their names.

A file that was rotated (`app.log` became `app.log.1`, and there is a new `app.log`) is told by its
number on the disk: its rest is read before the new one, and so are those between the two, also if
all of it happened while the task was down, as long as they are in their folder, uncompressed. One
that became shorter is read from its start.
"""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final
from zlib import crc32

from ottla.config.config_def import HIGH, LOW, REQUIRED, ConfigTable, config_key
from ottla.config.config_type import INT, LONG, STRING, Rule, at_least, not_empty
from ottla.config.java_regex import is_java_pattern, java_pattern
from ottla.connect.connector import SourceConnector
from ottla.connect.data import STRING as STRING_SCHEMA
from ottla.connect.data import Header, SourceRecord

logger = logging.getLogger(__name__)

FILE_HEADER: Final = "file"
FILE: Final = "filename"
PLACE: Final = "position"
INODE: Final = "inode"
"""The number of a file on its disk, which stays when it is renamed."""
BLOCK: Final = 1 << 18
COMPRESSED: Final = (".gz", ".bz2", ".xz", ".zst")


class LogFolderSettings(ConfigTable):
    """What LogFolderSource is told."""

    path: str = config_key(
        default=REQUIRED,
        type=STRING,
        rule=not_empty(),
        importance=HIGH,
        doc="The files: a path with *, ? and ** (any folders).",
    )
    topic: str = config_key(
        default=REQUIRED,
        type=STRING,
        rule=not_empty(),
        importance=HIGH,
        doc="The topic for all lines.",
    )
    host_pattern: str = config_key(
        default=r".*/([^/]+)/[^/]*",
        type=STRING,
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
        default=1 << 20,
        type=INT,
        rule=at_least(1),
        importance=LOW,
        doc="A longer line is cut into several records, so that none fills the memory.",
    )
    task_number: int = config_key(
        default=0, type=INT, importance=LOW, doc="Which task it is; the connector sets it."
    )
    task_count: int = config_key(
        default=1, type=INT, importance=LOW, doc="How many tasks share the files; set as well."
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
        self._followed: dict[str, FollowedFile] = {}
        self.idle_s = self.settings.scan_interval_ms / 1000

    def stop(self) -> None:
        for each in self._followed.values():
            each.close()

    def poll(self) -> Sequence[SourceRecord]:
        """A block of lines of each file that has some; after a wait, if none has."""
        self._find_files()
        found: list[SourceRecord] = []
        for each in list(self._followed.values()):
            found += self._records(each)
            if each.is_gone and not found:
                each.close()
                del self._followed[each.path]
        if not found:
            self.context.wait(self.idle_s)
        return found

    def _find_files(self) -> None:
        for path in sorted(glob.glob(self.settings.path, recursive=True)):
            if path in self._followed or not self._is_own(path) or not os.path.isfile(path):
                continue
            offset = self.context.offset({FILE: path}) or {}
            self._followed[path] = FollowedFile(
                path, offset.get(PLACE, 0), offset.get(INODE), self.settings.max_line_bytes
            )

    def _is_own(self, path: str) -> bool:
        return crc32(path.encode()) % self.settings.task_count == self.settings.task_number

    def _records(self, followed: FollowedFile) -> Iterator[SourceRecord]:
        host = self._host.match(followed.path)
        for line, position, inode in followed.lines():
            yield SourceRecord(
                topic=self.settings.topic,
                key=host[1] if host else None,
                key_schema=STRING_SCHEMA.as_optional(),
                value=line.rstrip(b"\r\n").decode("utf-8", "replace"),
                value_schema=STRING_SCHEMA,
                headers=(Header(FILE_HEADER, followed.path, STRING_SCHEMA),),
                source_partition={FILE: followed.path},
                source_offset={PLACE: position, INODE: inode},
            )

    @classmethod
    def is_exactly_once(cls, settings: ConfigTable) -> bool:
        """Files have positions."""
        return True


class FollowedFile:
    """A path whose file is read to its end, then waited for; also when it is another file."""

    def __init__(self, path: str, position: int, inode: int | None, max_line: int) -> None:
        self.path = path
        self.is_gone = False
        """Whether nothing has the path any longer, and all was read."""
        self._position = position
        self._inode = inode
        self._max_line = max_line
        self._file: BinaryIO | None = None

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def lines(self) -> Iterator[tuple[bytes, int, int]]:
        """Whole lines of the next block, the position behind each, and the file's number."""
        file = self._opened()
        if file is None:
            return
        file.seek(self._position)
        block = file.read(max(BLOCK, self._max_line))
        if not block:
            self._change_files(file)
            return
        for line in block.splitlines(keepends=True):
            if not line.endswith(b"\n") and len(line) < self._max_line and not self._is_moved():
                return  # the rest of it is not written yet
            for start in range(0, len(line), self._max_line):
                piece = line[start : start + self._max_line]
                self._position += len(piece)
                yield piece, self._position, self._inode or 0

    def _opened(self) -> BinaryIO | None:
        """The file that was read last: under its path, or under the name that it has now."""
        if self._file is not None:
            if os.fstat(self._file.fileno()).st_size < self._position:
                logger.warning("%s became shorter: it is read from its start", self.path)
                self._position = 0
            return self._file
        found = self._renamed() or self.path
        try:
            self._file = open(found, "rb")  # noqa: SIM115 # until close
        except OSError as error:
            self.is_gone = isinstance(error, FileNotFoundError)
            return None
        inode = os.fstat(self._file.fileno()).st_ino
        if inode != self._inode:
            if self._inode is not None and self._position:
                logger.warning("%s is another file now: it is read from its start", self.path)
            self._inode, self._position = inode, 0
        return self._file

    def _renamed(self) -> str | None:
        """Where the file is that was read last, if it is still in its folder."""
        if self._inode is None:
            return None
        with os.scandir(Path(self.path).parent) as entries:
            return next((each.path for each in entries if each.inode() == self._inode), None)

    def _is_moved(self) -> bool:
        """Whether the path means another file than the one that is open, or none."""
        try:
            return os.stat(self.path).st_ino != self._inode
        except FileNotFoundError:
            return True

    def _change_files(self, file: BinaryIO) -> None:
        """At the end of a file that was moved away: continue with the one that was written next."""
        state = os.fstat(file.fileno())
        if not self._is_moved() or state.st_size > self._position:
            return
        self.close()
        self._position, self._inode = 0, self._following(state)
        self.is_gone = self._inode is None

    def _following(self, state: os.stat_result) -> int | None:
        """The number of the oldest file of this name that was written to after another one."""
        path = Path(self.path)
        newer = []
        with os.scandir(path.parent) as entries:
            for each in entries:
                is_current = each.name == path.name
                if not is_current and not _is_rotated(each.name, path.name):
                    continue
                found = each.stat()
                if found.st_ino != state.st_ino and (
                    is_current or found.st_mtime_ns > state.st_mtime_ns
                ):
                    newer.append((found.st_mtime_ns, is_current, found.st_ino))
        return min(newer)[2] if newer else None


def _is_rotated(name: str, of: str) -> bool:
    """Whether a file has the name that another had, with more behind it, and is still text."""
    return name.startswith(of) and not name.endswith(COMPRESSED)
