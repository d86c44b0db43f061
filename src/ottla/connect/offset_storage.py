"""Where the offsets of sources are kept: in a file, or in a topic that all workers of a group read.

An offset belongs to a connector and a partition of its source, as JSON:
`["local-file-source",{"filename":"test.txt"}]` has `{"position":12}`, Kafka's own bytes. Partitions
are compared as maps: another order of the keys is the same partition.
"""

from __future__ import annotations

import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.connect.connector import Place
from ottla.connect.data import DataError, shown
from ottla.connect.topic_table import TableTopic, TopicTable
from ottla.errors import ConfigError, KafkaError
from ottla.record.consumer_record import ConsumerRecord
from ottla.runtime.io_thread import Lock

logger = logging.getLogger(__name__)

COPY_LIMIT_MS: Final = 5000
JAVA_SERIALIZED: Final = b"\xac\xed\x00\x05"


class SourceOffset(NamedTuple):
    """Where a source is in one of its partitions; without an offset it is at the start."""

    connector: str
    partition: Place
    offset: Place | None


def partition_key(partition: Place) -> tuple[tuple[str, Any], ...]:
    """What two equal partitions have in common, in any order of their keys."""
    items = tuple(partition.items())
    return items if len(items) < 2 else tuple(sorted(items))


def _as_dict(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{shown(value)} is of the type {type(value).__name__}")


_ENCODER: Final = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_as_dict
)


def to_json(value: Any) -> str:
    """Compact, as Kafka's JsonConverter writes it without schemas."""
    return _ENCODER.encode(value)


def check_stored(place: Place, what: str, *, is_key: bool = False) -> None:
    """DataError unless a partition or an offset comes back from JSON as it was.

    One that did not would be stored with those of other connectors, and spoil them all. `is_key`
    is for a partition, whose values are compared.
    """
    try:
        to_json(_as_dict(place)).encode()
        _check_names(place)
    except Exception as error:  # JSON's, Unicode's, and those of a class of a plug-in
        raise DataError(
            f"{what}={shown(place)}: must have names and values that JSON can hold: {error}"
        ) from error
    if is_key:
        check_simple(place, what)


def _check_names(value: Any) -> None:
    if isinstance(value, Mapping):
        for name, item in value.items():
            if not isinstance(name, str):
                raise TypeError(f"the name {shown(name)} is no text")
            _check_names(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_names(item)


class OffsetTable:
    """All offsets, by connector and partition; any thread may ask."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._offsets: dict[str, dict[tuple[Any, ...], SourceOffset]] = {}

    def put(self, entry: SourceOffset) -> None:
        """Keep a copy, which nobody changes; DataError if JSON cannot hold it."""
        check_stored(entry.partition, "partition", is_key=True)
        if entry.offset is not None:
            check_stored(entry.offset, "offset")
        entry = SourceOffset(*json.loads(to_json(entry)))
        with self._lock:
            places = self._offsets.setdefault(entry.connector, {})
            if entry.offset is None:
                places.pop(partition_key(entry.partition), None)
            else:
                places[partition_key(entry.partition)] = entry

    def get(self, connector: str, partition: Place) -> dict[str, Any] | None:
        with self._lock:
            found = self._offsets.get(connector, {}).get(partition_key(partition))
        return None if found is None or found.offset is None else dict(found.offset)

    def of(self, connector: str) -> list[SourceOffset]:
        """Every offset of a connector."""
        with self._lock:
            return list(self._offsets.get(connector, {}).values())

    def all(self) -> list[SourceOffset]:
        with self._lock:
            return [entry for places in self._offsets.values() for entry in places.values()]


OffsetRecord = tuple[bytes, bytes | None]


class OffsetStorage(ABC):
    """Offsets that outlive the worker. Any thread may call; `write` may take a while."""

    topic: str | None = None
    """Its topic, if it has one."""

    def __init__(self) -> None:
        self.table = OffsetTable()

    def encode(self, entries: Sequence[SourceOffset]) -> tuple[str, list[OffsetRecord]]:
        """The topic and the records to write in a transaction of the source's."""
        raise TypeError(f"{type(self).__name__} is no topic")

    def note_committed(self, entries: Sequence[SourceOffset]) -> None:
        """What `encode` made has been committed."""
        for entry in entries:
            self.table.put(entry)

    @abstractmethod
    def write(self, entries: Sequence[SourceOffset], timeout_ms: int) -> None:
        """Keep these offsets, all of them, or raise: then it is unknown which are kept."""

    def refresh(self, timeout_ms: int) -> None:
        """Learn what others have written up to now."""

    def close(self) -> None:
        """Release what it holds."""


class FileOffsetStorage(OffsetStorage):
    """A file with a line of JSON for each partition, written beside and renamed."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = Path(path)
        self._writing = Lock()
        for entry in _read_file(self._path):
            self.table.put(entry)

    def write(self, entries: Sequence[SourceOffset], timeout_ms: int) -> None:
        with self._writing:
            for entry in entries:
                self.table.put(entry)
            self._replace(self.table.all())

    def _replace(self, entries: Iterable[SourceOffset]) -> None:
        beside = self._path.with_name(f"{self._path.name}.tmp")
        beside.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("w", encoding="utf-8") as file:
            for connector, partition, offset in entries:
                file.write(to_json([[connector, partition], offset]) + "\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _read_file(path: Path) -> list[SourceOffset]:
    """The offsets of a file that may not be there yet."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(
            f"offset.storage.file.filename={path}: cannot be read: {error.strerror}"
        ) from error
    if content.startswith(JAVA_SERIALIZED):
        raise ConfigError(
            f"offset.storage.file.filename={path}: is a file of Kafka's own worker, whose objects "
            "of Java are not read here; name another file"
        )
    found = []
    lines = content.decode("utf-8", "replace").split("\n")  # others may stand in a value
    for number, line in enumerate(lines if lines[-1] else lines[:-1], 1):
        try:
            (connector, partition), offset = json.loads(line)
            found.append(SourceOffset(str(connector), dict(partition), dict(offset)))
        except (ValueError, TypeError, KafkaError):
            raise ConfigError(
                f"offset.storage.file.filename={path}: line {number} must be "
                '[["<connector>",{partition}],{offset}]; it is not one of ours, or is damaged'
            ) from None
    return found


class TopicOffsetStorage(OffsetStorage):
    """A compacted topic that all workers of a group read; keys are Kafka's bytes.

    A partition that a worker of Kafka's has written with its keys in another order is found all the
    same, and written again under that worker's key.
    """

    topic: str

    def __init__(
        self, topic: TableTopic, settings: Mapping[str, Any], has_transactions: bool
    ) -> None:
        """`transactions`: only committed records are read."""
        super().__init__()
        self.topic = topic.name
        self._keys: dict[tuple[str, tuple[Any, ...]], bytes] = {}
        level = {"isolation.level": "read_committed"} if has_transactions else {}
        self._topic_table = TopicTable(topic, settings, self._take, level)

    def start(self) -> None:
        """Read the topic to its end."""
        self._topic_table.start()

    def encode(self, entries: Sequence[SourceOffset]) -> tuple[str, list[OffsetRecord]]:
        records: list[OffsetRecord] = []
        for connector, partition, offset in entries:
            known = self._keys.get((connector, partition_key(partition)))
            key = known or to_json([connector, partition]).encode()
            records.append((key, None if offset is None else to_json(offset).encode()))
        return self.topic, records

    def write(self, entries: Sequence[SourceOffset], timeout_ms: int) -> None:
        self._topic_table.write(self.encode(entries)[1], timeout_ms)
        self.note_committed(entries)

    def refresh(self, timeout_ms: int) -> None:
        self._topic_table.refresh().result(timeout_ms / 1000)

    def close(self) -> None:
        self._topic_table.close()

    def _take(self, record: ConsumerRecord) -> None:
        connector, partition = json.loads(record.key)
        offset = None if record.value is None else dict(json.loads(record.value))
        self._keys[connector, partition_key(partition)] = record.key
        self.table.put(SourceOffset(connector, partition, offset))


class OwnOffsets(OffsetStorage):
    """The offsets of connectors that have a topic for them (`offsets.storage.topic`, KIP-618).

    What is not there is looked up in the worker's topic, to which all is copied: so the setting can
    be changed back. The topic is created and read when it is first used.
    """

    def __init__(self, own: TopicOffsetStorage, of_worker: OffsetStorage) -> None:
        super().__init__()
        self.topic = own.topic
        self._own = own
        self._of_worker = of_worker
        self._is_started = False
        self._starting = Lock()
        self.table = LayeredTable(own.table, of_worker.table)

    def encode(self, entries: Sequence[SourceOffset]) -> tuple[str, list[OffsetRecord]]:
        self._forget(entries, COPY_LIMIT_MS)
        return self._own.encode(entries)

    def note_committed(self, entries: Sequence[SourceOffset]) -> None:
        self._own.note_committed(entries)
        self._copy(entries, COPY_LIMIT_MS)

    def write(self, entries: Sequence[SourceOffset], timeout_ms: int) -> None:
        self._start()
        self._forget(entries, timeout_ms)
        self._own.write(entries, timeout_ms)
        self._copy(entries, timeout_ms)

    def refresh(self, timeout_ms: int) -> None:
        self._start()
        self._own.refresh(timeout_ms)
        self._of_worker.refresh(timeout_ms)

    def close(self) -> None:
        with self._starting:
            if self._is_started:
                self._own.close()

    def _start(self) -> None:
        with self._starting:
            if not self._is_started:
                self._own.start()
                self._is_started = True

    def _forget(self, entries: Sequence[SourceOffset], timeout_ms: int) -> None:
        """Remove offsets from the worker's topic first: else they would count once more."""
        gone = [each for each in entries if each.offset is None]
        if gone:
            self._of_worker.write(gone, timeout_ms)

    def _copy(self, entries: Sequence[SourceOffset], timeout_ms: int) -> None:
        try:
            self._of_worker.write(entries, timeout_ms)
        except Exception as error:  # the own topic counts
            logger.warning("offsets were not copied from %s: %s", self.topic, error)


class LayeredTable(OffsetTable):
    """A table, and one for what it does not have."""

    def __init__(self, own: OffsetTable, other: OffsetTable) -> None:
        super().__init__()
        self._own = own
        self._other = other

    def put(self, entry: SourceOffset) -> None:
        self._own.put(entry)

    def get(self, connector: str, partition: Place) -> dict[str, Any] | None:
        found = self._own.get(connector, partition)
        return self._other.get(connector, partition) if found is None else found

    def of(self, connector: str) -> list[SourceOffset]:
        layers = (self._other, self._own)
        found = {partition_key(e.partition): e for layer in layers for e in layer.of(connector)}
        return list(found.values())


def check_simple(place: Mapping[str, Any], what: str) -> None:
    """ConfigError unless a partition or an offset has names and simple values only."""
    for name, value in place.items():
        if not isinstance(name, str) or isinstance(value, list | dict | tuple | set | bytes):
            raise ConfigError(f"{what}={dict(place)}: must have names and simple values only")
