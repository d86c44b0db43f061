"""FilesSink: topics as files of Parquet or JSON lines, each record in exactly one of them.

    connector.class=FilesSink
    topics=orders
    url=file:///data/lake                 or s3://bucket/path, memory://, any that fsspec knows
    format=parquet                        or jsonl
    records.per.file=10000

A file is named after its topic, partition, first and last offset:

    orders/partition=3/orders+3+00000000000000020000+00000000000000029999.parquet

It appears whole or not at all, and the files that are there say where to continue: offsets are read
from the names when a partition is opened, and the group's are only there to show the lag. After a
kill the records that are in no file yet come again. Where a file ends follows from its records
alone (their number, their timestamps, their schema), so that even a task that believes it still has
a partition writes the same bytes under the same name. Needs the extra `connect-files`.

A record that no file can hold is reported before the file that would have had it is stored. Two
kinds of marks, whose names begin with a dot so that readers of the folder pass over them, have no
content:

    .topic+1+<id>                         the topic that the files are of
    .orders+3+<first>+<last>.refused      all these records were reported

Files of a topic that was deleted and created again have its generation in their names, as in
`orders+3.2+<first>+<last>.parquet`: its offsets begin again, and those of the former do not count.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from errno import ENAMETOOLONG
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from ottla.config.config_def import HIGH, LOW, REQUIRED, ConfigTable, config_key
from ottla.config.config_type import LONG
from ottla.config.rule import at_least, not_empty, one_of
from ottla.connect.connector import SinkConnector, TryAgainError
from ottla.connect.connectors import json_text, needed
from ottla.connect.data import (
    DATE_NAME,
    DECIMAL_NAME,
    TIME_NAME,
    TIMESTAMP_NAME,
    DataError,
    Schema,
    SchemaType,
    SinkRecord,
    shown,
)
from ottla.errors import ConfigError
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

EXTRA: Final = "connect-files"
PARQUET: Final = "parquet"
JSON_LINES: Final = "jsonl"
LOCAL: Final = ("file", "local")
REFUSED: Final = "refused"
_NAME: Final = re.compile(
    r"(?P<topic>[^+]+)\+(?P<partition>\d+)(\.(?P<generation>\d+))?"
    r"\+(?P<first>\d{20})\+(?P<last>\d{20})\.(?P<format>\w+)"
)
_TOPIC: Final = re.compile(r"\.topic\+(?P<generation>\d+)\+(?P<id>[\w-]+)")
DECIMAL_DIGITS: Final = 38
"""The most digits that Parquet's usual decimals have."""


class FilesSinkSettings(ConfigTable):
    """The settings of FilesSink."""

    url: str = config_key(
        default=REQUIRED,
        rule=not_empty(),
        importance=HIGH,
        doc="The folder or bucket for the files: a URL that fsspec knows.",
    )
    storage_options: str = config_key(
        default="{}",
        doc="What fsspec is to be told of the storage, as a JSON object.",
    )
    format: str = config_key(
        default=PARQUET,
        rule=one_of(PARQUET, JSON_LINES),
        importance=HIGH,
        doc="Parquet, or a line of JSON for each record.",
    )
    records_per_file: int = config_key(
        default=10_000,
        rule=at_least(1),
        importance=HIGH,
        doc="After how many records a file ends.",
    )
    record_interval_ms: int = config_key(
        default=0,
        type=LONG,
        rule=at_least(0),
        doc="A file ends where timestamps enter another interval of this length; 0: never.",
    )
    with_metadata: bool = config_key(
        default=False,
        importance=LOW,
        doc="Add the columns __topic, __partition, __offset, __timestamp and __key.",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        try:
            is_object = isinstance(json.loads(values["storage_options"]), dict)
        except ValueError:
            is_object = False
        if not is_object:
            raise ConfigError(f"storage.options={values['storage_options']}: must be a JSON object")


class StoredFile(NamedTuple):
    """A file that is there: the offsets of its first and last record, and its name."""

    first: int
    last: int
    name: str


class Folder(NamedTuple):
    """The files of a partition, by the generation of its topic."""

    files: Mapping[int, Sequence[StoredFile]]
    topics: Mapping[int, str]

    @property
    def latest(self) -> int:
        """The last generation; 0 if there is none."""
        return max([*self.files, *self.topics], default=0)


@dataclass
class Pending:
    """The records of a file that is not written yet."""

    records: list[SinkRecord] = field(default_factory=list)
    schema: Schema | None = None
    has_values: bool = False
    """Whether the schema is known: tombstones have none, and fit with all."""
    reported: set[int] = field(default_factory=set)
    """The offsets that were reported, should the file have to be written once more."""

    def add(self, record: SinkRecord) -> None:
        self.records.append(record)
        if not self.has_values and not is_tombstone(record):
            self.has_values = True
            self.schema = record.value_schema

    def __bool__(self) -> bool:
        return bool(self.records)

    def fits(self, record: SinkRecord) -> bool:
        """Whether it is of the schema of the others."""
        if not self.has_values or is_tombstone(record):
            return True
        return record.value_schema is self.schema or record.value_schema == self.schema


class RefusedRecord(NamedTuple):
    """A record that a file cannot hold, and why."""

    record: SinkRecord
    error: Exception


class FileContent(NamedTuple):
    """The bytes of a file, None if it would have no record; and the records that it cannot hold."""

    data: bytes | None
    refused: Sequence[RefusedRecord] = ()


Encode = Callable[[Sequence[SinkRecord]], FileContent]


def is_tombstone(record: SinkRecord) -> bool:
    """Whether it has neither a value nor a schema of one."""
    return record.value is None and record.value_schema is None


class FilesSink(SinkConnector):
    """Writes files that hold each record exactly once, on disks and in object stores."""

    Settings = FilesSinkSettings
    settings: FilesSinkSettings

    def start(self) -> None:
        fsspec = needed("fsspec", EXTRA, FilesSink)
        options = json.loads(self.settings.storage_options)
        self._fs, root = fsspec.core.url_to_fs(self.settings.url, **options)
        self._root = str(root).rstrip("/")
        self._encode = _encoder(self.settings)
        self._pending: dict[TopicPartition, Pending] = {}
        self._next: dict[TopicPartition, int] = {}
        self._generations: dict[TopicPartition, int] = {}
        self._topic_ids: dict[TopicPartition, str] = {}
        self._marks: dict[TopicPartition, str] = {}
        """Names of marks that have to be there before the next file."""

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Read on behind the last record that is in a file of this topic."""
        found = {}
        for place in partitions:
            self._pending[place] = Pending()
            folder = self._listed(place)
            generation = self._generations[place] = self._generation(place, folder)
            files = folder.files.get(generation)
            if files:
                found[place] = files[-1].last + 1
            elif folder.files:
                found[place] = self.context.log_range(place).start
        self._next.update(found)
        if found:
            self.context.rewind(found)

    def _generation(self, place: TopicPartition, folder: Folder) -> int:
        """The number of the topic among those of its name; marked, at the latest with a file."""
        topic_id = self._topic_ids[place] = self.context.topic_id(place.topic)
        if not topic_id:
            return max(folder.latest, 1)
        known = {of_topic: number for number, of_topic in folder.topics.items()}
        if topic_id in known:
            return known[topic_id]
        generation = folder.latest + 1
        is_adopted = bool(folder.files) and not folder.topics and self._may_be_of(place, folder)
        if is_adopted:
            generation = folder.latest
        elif folder.files:
            logger.warning(
                "%s: topic %s was deleted and created again: %s is read from its beginning, into "
                "files of generation %d",
                self.context.name,
                place.topic,
                place,
                generation,
            )
        self._marks[place] = f".topic+{generation}+{topic_id}"
        if is_adopted:
            self._mark(place)
        return generation

    def _may_be_of(self, place: TopicPartition, folder: Folder) -> bool:
        """Whether files of a version that marked none may be of the topic that is there now."""
        return folder.files[folder.latest][-1].last < self.context.log_range(place).stop

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Records that are in no file yet are read by the task that has the partition next.

        Those of a topic that is deleted nobody reads again: they are in a short file.
        """
        for place in partitions:
            known, pending = self._topic_ids.pop(place, ""), self._pending.get(place)
            if known and known != self.context.topic_id(place.topic) and pending:
                self._write(place, pending)
            self._pending.pop(place, None)
            self._next.pop(place, None)
            self._generations.pop(place, None)
            self._marks.pop(place, None)

    def put(self, records: Sequence[SinkRecord]) -> None:
        for record in records:
            place = TopicPartition(record.original_topic, record.original_partition)
            pending = self._pending.setdefault(place, Pending())
            there = pending.records
            done = there[-1].offset + 1 if there else self._next.get(place, 0)
            if record.offset < done:
                continue  # it came before, in a call that had to be made again
            if pending and self._ends_before(pending, record):
                pending = self._write(place, pending)
            pending.add(record)
            if len(pending.records) >= self.settings.records_per_file:
                self._write(place, pending)

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """The offsets behind the last file of each partition."""
        return {place: self._next[place] for place in offsets if place in self._next}

    @classmethod
    def alter_offsets(
        cls, settings: ConfigTable, offsets: Mapping[TopicPartition, int | None]
    ) -> bool:
        """Refuse: the names of the files say where to continue."""
        raise ConfigError(
            "the offsets of a FilesSink are in the names of its files: to go back, delete files "
            "from an offset on"
        )

    def _ends_before(self, pending: Pending, record: SinkRecord) -> bool:
        """Whether a file ends before this record: it is full, of another interval or schema."""
        if len(pending.records) >= self.settings.records_per_file:
            return True  # it could not be written when it became full
        first, interval = pending.records[0], self.settings.record_interval_ms
        if (
            interval
            and (first.timestamp_ms or 0) // interval != (record.timestamp_ms or 0) // interval
        ):
            return True
        return not pending.fits(record)

    def _folder(self, place: TopicPartition) -> str:
        return f"{self._root}/{quote(place.topic)}/partition={place.partition}"

    def _listed(self, place: TopicPartition) -> Folder:
        """The files of a partition in order; ConfigError if two hold the same record."""
        folder = self._folder(place)
        try:
            self._fs.invalidate_cache(folder)
            names = [Path(name).name for name in self._fs.ls(folder, detail=False)]
        except FileNotFoundError:
            return Folder({}, {})
        except Exception as error:  # each storage has its own
            raise TryAgainError(f"{folder}: cannot be listed: {error!r}") from error
        files: dict[int, list[StoredFile]] = {}
        topics: dict[int, str] = {}
        for name in sorted(names):
            if match := _TOPIC.fullmatch(name):
                topics[int(match["generation"])] = match["id"]
            elif (match := _NAME.fullmatch(name)) and self._is_of(place, match):
                file = StoredFile(int(match["first"]), int(match["last"]), name)
                files.setdefault(int(match["generation"] or 1), []).append(file)
        for found in files.values():
            found.sort()
            self._refuse_overlaps(found)
        return Folder(files, topics)

    def _is_of(self, place: TopicPartition, match: re.Match[str]) -> bool:
        start = "." if match["format"] == REFUSED else ""
        return match["topic"] == f"{start}{quote(place.topic)}"

    def _refuse_overlaps(self, files: Sequence[StoredFile]) -> None:
        for before, after in pairwise(files):
            if after.first <= before.last:
                raise ConfigError(
                    f"url={self.settings.url}: {before.name} and {after.name} must not hold the "
                    "same records; delete one"
                )

    def _write(self, place: TopicPartition, pending: Pending) -> Pending:
        """Store a file, after the reports of records that it cannot hold; returns the rest."""
        first, last = pending.records[0].offset, pending.records[-1].offset
        generation = self._generations.get(place, 1)
        number = f"{place.partition}.{generation}" if generation > 1 else f"{place.partition}"
        name = f"{quote(place.topic)}+{number}+{first:020}+{last:020}"
        content = self._encode(pending.records)
        self._report(pending, content.refused)
        self._mark(place)
        if content.data is None:
            self._keep(place, f".{name}.{REFUSED}", b"")
        else:
            self._keep(place, f"{name}.{self.settings.format}", content.data)
        self._next[place] = last + 1
        self._pending[place] = following = Pending()
        return following

    def _report(self, pending: Pending, refused: Sequence[RefusedRecord]) -> None:
        """Give records that a file cannot hold to the dead letters, and wait until they are there.

        Once the file is stored nobody reads them again.
        """
        futures: list[Future[None]] = []
        for record, error in refused:
            if record.offset not in pending.reported:
                futures.append(self.context.report(record, error))
        for future in futures:
            future.result()
        pending.reported |= {record.offset for record, _ in refused}

    def _mark(self, place: TopicPartition) -> None:
        """Say whose files these are, where that is not said yet."""
        if place in self._marks:
            self._keep(place, self._marks[place], b"")
            del self._marks[place]

    def _keep(self, place: TopicPartition, name: str, data: bytes) -> None:
        folder = self._folder(place)
        try:
            self._store(folder, name, data)
        except Exception as error:  # each storage has its own
            if getattr(error, "errno", None) == ENAMETOOLONG:
                raise ConfigError(
                    f"url={self.settings.url}: must take names as long as {name}, as object stores "
                    "do; this file system does not"
                ) from error
            raise TryAgainError(f"{folder}/{name}: cannot be written: {error!r}") from error

    def _store(self, folder: str, name: str, data: bytes) -> None:
        """Whole or not at all: renamed on a disk, one request to an object store."""
        protocols = self._fs.protocol
        protocol = protocols if isinstance(protocols, str) else protocols[0]
        if protocol not in LOCAL:
            self._fs.makedirs(folder, exist_ok=True)
            self._fs.pipe_file(f"{folder}/{name}", data)
            return
        target = Path(folder) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f".{name}.unfinished")
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(target)
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _encoder(settings: FilesSinkSettings) -> Encode:
    """The function that makes the content of a file of its records."""
    if settings.format == JSON_LINES:
        return lambda records: _json_lines(records, settings.with_metadata)
    pyarrow = needed("pyarrow", EXTRA, FilesSink)
    parquet = needed("pyarrow.parquet", EXTRA, FilesSink)
    return ParquetEncoder(pyarrow, parquet, settings.with_metadata).encode


METADATA: Final = ("__topic", "__partition", "__offset", "__timestamp", "__key")


def _metadata(record: SinkRecord) -> dict[str, Any]:
    key = record.key
    if isinstance(key, dict | list):
        key = json_text(key, record.key_schema)
    values = (
        record.original_topic,
        record.original_partition,
        record.offset,
        record.timestamp_ms,
        key,
    )
    return dict(zip(METADATA, values, strict=True))


def _json_lines(records: Sequence[SinkRecord], with_metadata: bool) -> FileContent:
    lines, refused = [], []
    for record in records:
        try:
            lines.append(_json_line(record, with_metadata))
        except Exception as error:  # of this record: too deep, text that UTF-8 cannot hold
            refused.append(RefusedRecord(record, error))
    return FileContent(b"".join(lines) if lines else None, refused)


def _json_line(record: SinkRecord, with_metadata: bool) -> bytes:
    value = json_text(record.value, record.value_schema)
    if with_metadata:
        before = ",".join(
            f'"{name}":{json_text(item, None)}' for name, item in _metadata(record).items()
        )
        value = f'{{{before},"value":{value}}}'
    return f"{value}\n".encode()


_SIMPLE: Final = {
    SchemaType.INT8: "int8",
    SchemaType.INT16: "int16",
    SchemaType.INT32: "int32",
    SchemaType.INT64: "int64",
    SchemaType.FLOAT32: "float32",
    SchemaType.FLOAT64: "float64",
    SchemaType.BOOLEAN: "bool_",
    SchemaType.STRING: "string",
    SchemaType.BYTES: "binary",
}
DEEPEST: Final = 100
"""Readers of Parquet open no file of more levels."""
VALUE_COLUMN: Final = "value"
"""The column of values that are no structs."""


def arrow_type(pyarrow: Any, schema: Schema) -> Any:
    """The type of Arrow's for a schema of Connect's."""
    match schema.logical and schema.name:
        case str(name) if name == DECIMAL_NAME:
            return pyarrow.decimal128(DECIMAL_DIGITS, schema.scale)
        case str(name) if name == DATE_NAME:
            return pyarrow.date32()
        case str(name) if name == TIME_NAME:
            return pyarrow.time32("ms")
        case str(name) if name == TIMESTAMP_NAME:
            return pyarrow.timestamp("ms", tz="UTC")
    match schema.type:
        case SchemaType.ARRAY:
            return pyarrow.list_(arrow_type(pyarrow, schema.items))
        case SchemaType.MAP:
            return pyarrow.map_(arrow_type(pyarrow, schema.keys), arrow_type(pyarrow, schema.items))
        case SchemaType.STRUCT:
            fields = [(name, arrow_type(pyarrow, field)) for name, field in schema.fields]
            return pyarrow.struct(fields)
    return getattr(pyarrow, _SIMPLE[schema.type])()


def without_empty_structs(pyarrow: Any, kind: Any) -> Any:
    """The type with null in the place of structs without fields, which Parquet cannot hold."""
    inner = partial(without_empty_structs, pyarrow)
    if pyarrow.types.is_struct(kind):
        fields = [(each.name, inner(each.type)) for each in kind]
        return pyarrow.struct(fields) if fields else pyarrow.null()
    if pyarrow.types.is_map(kind):
        return pyarrow.map_(kind.key_type, inner(kind.item_type))
    if pyarrow.types.is_list(kind):
        return pyarrow.list_(inner(kind.value_type))
    return kind


def without_empty_values(pyarrow: Any, kind: Any, value: Any) -> Any:
    """A value for the type without structs that have no fields."""
    inner = partial(without_empty_values, pyarrow)
    if value is None or pyarrow.types.is_null(kind):
        return None
    if pyarrow.types.is_struct(kind):
        return {each.name: inner(each.type, value.get(each.name)) for each in kind}
    if pyarrow.types.is_map(kind):
        return {key: inner(kind.item_type, item) for key, item in value.items()}
    if pyarrow.types.is_list(kind):
        return [inner(kind.value_type, item) for item in value]
    return value


def check_depth(value: Mapping[str, Any] | Sequence[Any], left: int) -> None:
    """DataError if a value is nested deeper: Arrow ends the process at some thousand levels."""
    if not left:
        raise DataError(f"must not be nested deeper than {DEEPEST} levels")
    for item in value.values() if isinstance(value, Mapping) else value:
        if isinstance(item, dict | list | tuple):
            check_depth(item, left - 1)


class ParquetEncoder:
    """Makes a table of the records of a file: a row for each, whose columns are in all files alike.

    The fields of an object are columns, any other value is in the column `value`, and a tombstone
    has null in all of them. Types are those of the schema, or those that the values of a file have
    in common: where they have nothing in common, those that come first are kept.
    """

    def __init__(self, pyarrow: Any, parquet: Any, with_metadata: bool) -> None:
        self._pyarrow = pyarrow
        self._parquet = parquet
        self._with_metadata = with_metadata

    def encode(self, records: Sequence[SinkRecord]) -> FileContent:
        """The file; misfits are looked for only where all together do not fit."""
        schema = next((r.value_schema for r in records if not is_tombstone(r)), None)
        try:
            rows = [self._row(record, schema) for record in records]
            return FileContent(self._file(rows, self._type(rows, schema)))
        except Exception:  # of a record, or of several that do not fit together
            return self._encode_what_fits(records, schema)

    def _encode_what_fits(
        self, records: Sequence[SinkRecord], schema: Schema | None
    ) -> FileContent:
        kept: list[tuple[SinkRecord, dict[str, Any]]] = []
        refused: list[RefusedRecord] = []
        kind = self._pyarrow.struct([])
        for record in records:
            try:
                row = self._row(record, schema)
                own = self._type([row], schema)
                self._file([row], own)
                kind = self._merged(kind, own)
            except Exception as error:
                refused.append(RefusedRecord(record, error))
            else:
                kept.append((record, row))
        fitting: list[dict[str, Any]] = []
        for record, row in kept:
            try:
                self._array([row], kind)
            except Exception as error:  # 2**60 + 1 in a column that became one of fractions
                refused.append(RefusedRecord(record, error))
            else:
                fitting.append(row)
        refused.sort(key=lambda each: each.record.offset)
        return FileContent(self._file(fitting, kind) if fitting else None, refused)

    def _row(self, record: SinkRecord, schema: Schema | None) -> dict[str, Any]:
        value = record.value
        if schema is not None and schema.type is not SchemaType.STRUCT:
            row = {VALUE_COLUMN: value}
        elif value is None:
            row = {}
        elif schema is None:
            row = value if isinstance(value, dict) else {VALUE_COLUMN: value}
            check_depth(row, DEEPEST)
        elif isinstance(value, dict):
            row = value
        else:
            raise DataError(f"value={shown(value)}: must be a struct of {schema}")
        if not self._with_metadata:
            return row
        metadata = _metadata(record)
        if not metadata.keys().isdisjoint(row):
            raise DataError("with.metadata=true: must have no field that is called as its columns")
        return metadata | row

    def _type(self, rows: Sequence[Mapping[str, Any]], schema: Schema | None) -> Any:
        """A struct of all columns, in the order in which they appear."""
        pyarrow = self._pyarrow
        given: dict[str, Any] = {}
        if schema is not None:
            is_struct = schema.type is SchemaType.STRUCT
            fields = schema.fields if is_struct else [(VALUE_COLUMN, schema)]
            given = {name: arrow_type(pyarrow, each) for name, each in fields}
        names = dict.fromkeys(name for row in rows for name in row)
        if schema is not None:
            names = dict.fromkeys(name for name in names if name in METADATA)
            rows = [{name: row.get(name) for name in names} for row in rows]
        found = pyarrow.infer_type(rows)
        inferred = {each.name: each.type for each in found} if names else {}
        return pyarrow.struct([(name, inferred[name]) for name in names] + list(given.items()))

    def _merged(self, kind: Any, other: Any) -> Any:
        if kind == other:
            return kind
        schemas = [self._pyarrow.schema(list(each)) for each in (kind, other)]
        try:
            return self._pyarrow.struct(
                list(self._pyarrow.unify_schemas(schemas, promote_options="permissive"))
            )
        except Exception as error:
            raise DataError(f"must fit the records of its file that come before: {error}") from None

    def _array(self, rows: Sequence[Mapping[str, Any]], kind: Any) -> Any:
        """The rows as one array of structs."""
        pyarrow = self._pyarrow
        writable = without_empty_structs(pyarrow, kind)
        if pyarrow.types.is_null(writable):  # no field in any row, and rows are to be counted
            writable = pyarrow.struct([(VALUE_COLUMN, pyarrow.null())])
            rows = [{}] * len(rows)
        elif writable != kind:
            rows = [without_empty_values(pyarrow, writable, row) for row in rows]
        return pyarrow.array(rows, type=writable)

    def _file(self, rows: Sequence[Mapping[str, Any]], kind: Any) -> bytes:
        sink = self._pyarrow.BufferOutputStream()
        table = self._pyarrow.Table.from_struct_array(self._array(rows, kind))
        self._parquet.write_table(table, sink, compression="zstd")
        data = sink.getvalue()
        self._parquet.read_schema(self._pyarrow.BufferReader(data))  # as deep as can be read
        return bytes(data)
