"""FilesSink: topics as files of Parquet or JSON lines, each record in exactly one of them.

    connector.class=FilesSink
    topics=orders
    url=file:///data/lake                 or s3://bucket/path, memory://, any that fsspec knows
    format=parquet                        or jsonl
    records.per.file=10000

A file is named after what it holds, first and last offset:

    orders/partition=3/orders+3+00000000000000020000+00000000000000029999.parquet

It appears whole or not at all, and what is there says where to continue: offsets are read from the
names when a partition is opened, and the group's are only there to show the lag. After a kill the
records that are in no file yet come again. Where a file ends follows from its records alone (their
number, their timestamps, their schema), so that even a task that believes it still has a partition
writes the same bytes under the same name. Needs the extra `connect-files`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from ottla.config.config_def import HIGH, LOW, REQUIRED, ConfigTable, config_key
from ottla.config.config_type import BOOLEAN, INT, LONG, STRING, at_least, not_empty, one_of
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
)
from ottla.errors import ConfigError
from ottla.structs import TopicPartition

EXTRA: Final = "connect-files"
PARQUET: Final = "parquet"
JSON_LINES: Final = "jsonl"
LOCAL: Final = ("file", "local")
_NAME: Final = re.compile(
    r"(?P<topic>[^+]+)\+(?P<partition>\d+)\+(?P<first>\d{20})\+(?P<last>\d{20})\.\w+"
)
DECIMAL_DIGITS: Final = 38
"""The most digits that Parquet's usual decimals have."""


class FilesSinkSettings(ConfigTable):
    """What FilesSink is told."""

    url: str = config_key(
        default=REQUIRED,
        type=STRING,
        rule=not_empty(),
        importance=HIGH,
        doc="The folder or bucket for the files: a URL that fsspec knows.",
    )
    storage_options: str = config_key(
        default="{}",
        type=STRING,
        doc="What fsspec is to be told of the storage, as a JSON object.",
    )
    format: str = config_key(
        default=PARQUET,
        type=STRING,
        rule=one_of(PARQUET, JSON_LINES),
        importance=HIGH,
        doc="Parquet, or a line of JSON for each record.",
    )
    records_per_file: int = config_key(
        default=10_000,
        type=INT,
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
        type=BOOLEAN,
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
        self._pending: dict[TopicPartition, list[SinkRecord]] = {}
        self._next: dict[TopicPartition, int] = {}

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Go on behind the last record that is in a file."""
        found = {}
        for partition in partitions:
            self._pending[partition] = []
            files = self._listed(partition)
            if files:
                found[partition] = files[-1].last + 1
        self._next.update(found)
        if found:
            self.context.rewind(found)

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Records that are in no file yet are read by the task that has the partition next."""
        for partition in partitions:
            self._pending.pop(partition, None)
            self._next.pop(partition, None)

    def put(self, records: Sequence[SinkRecord]) -> None:
        for record in records:
            place = TopicPartition(record.original_topic, record.original_partition)
            pending = self._pending.setdefault(place, [])
            done = pending[-1].offset + 1 if pending else self._next.get(place, 0)
            if record.offset < done:
                continue  # it came before, in a call that had to be made again
            if pending and self._ends_before(pending, record):
                self._write(place, pending)
            pending.append(record)
            if len(pending) >= self.settings.records_per_file:
                self._write(place, pending)

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """What is in files."""
        return {place: self._next[place] for place in offsets if place in self._next}

    @classmethod
    def alter_offsets(
        cls, settings: ConfigTable, offsets: Mapping[TopicPartition, int | None]
    ) -> bool:
        """The files say where to continue."""
        raise ConfigError(
            "the offsets of a FilesSink are in the names of its files: to go back, delete files "
            "from an offset on"
        )

    def _ends_before(self, pending: Sequence[SinkRecord], record: SinkRecord) -> bool:
        """Whether a file ends before this record: it is full, of another interval or schema."""
        if len(pending) >= self.settings.records_per_file:
            return True  # it could not be written when it became full
        first, interval = pending[0], self.settings.record_interval_ms
        if (
            interval
            and (first.timestamp_ms or 0) // interval != (record.timestamp_ms or 0) // interval
        ):
            return True
        return record.value_schema is not first.value_schema and (
            record.value_schema != first.value_schema
        )

    def _folder(self, place: TopicPartition) -> str:
        return f"{self._root}/{quote(place.topic)}/partition={place.partition}"

    def _listed(self, place: TopicPartition) -> list[StoredFile]:
        """The files of a partition in order; ConfigError if two hold the same record."""
        folder = self._folder(place)
        try:
            self._fs.invalidate_cache(folder)
            names = [Path(name).name for name in self._fs.ls(folder, detail=False)]
        except FileNotFoundError:
            return []
        except Exception as error:  # each storage has its own
            raise TryAgainError(f"{folder}: cannot be listed: {error!r}") from error
        matches = [_NAME.fullmatch(name) for name in names]
        files = sorted(
            StoredFile(int(match["first"]), int(match["last"]), match.string)
            for match in matches
            if match and unquote(match["topic"]) == place.topic
        )
        for before, after in pairwise(files):
            if after.first <= before.last:
                raise ConfigError(
                    f"url={self.settings.url}: {before.name} and {after.name} must not hold the "
                    "same records; delete one"
                )
        return files

    def _write(self, place: TopicPartition, pending: list[SinkRecord]) -> None:
        first, last = pending[0].offset, pending[-1].offset
        folder = self._folder(place)
        start = f"{quote(place.topic)}+{place.partition}+{first:020}+{last:020}"
        data = self._encode(pending)
        try:
            self._store(folder, f"{start}.{self.settings.format}", data)
        except Exception as error:  # each storage has its own
            raise TryAgainError(f"{folder}/{start}: cannot be written: {error!r}") from error
        self._next[place] = last + 1
        pending.clear()

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


def _encoder(settings: FilesSinkSettings) -> Any:
    """The function that makes the bytes of a file of its records."""
    if settings.format == JSON_LINES:
        return lambda records: _json_lines(records, settings.with_metadata)
    pyarrow = needed("pyarrow", EXTRA, FilesSink)
    parquet = needed("pyarrow.parquet", EXTRA, FilesSink)

    def encode(records: Sequence[SinkRecord]) -> bytes:
        table = _table(pyarrow, records, settings.with_metadata)
        sink = pyarrow.BufferOutputStream()
        parquet.write_table(table, sink, compression="zstd")
        return bytes(sink.getvalue())

    return encode


def _metadata(record: SinkRecord) -> dict[str, Any]:
    key = record.key
    if isinstance(key, dict | list):
        key = json_text(key, record.key_schema)
    return {
        "__topic": record.original_topic,
        "__partition": record.original_partition,
        "__offset": record.offset,
        "__timestamp": record.timestamp_ms,
        "__key": key,
    }


def _json_lines(records: Sequence[SinkRecord], with_metadata: bool) -> bytes:
    lines = []
    for record in records:
        value = json_text(record.value, record.value_schema)
        if with_metadata:
            before = ",".join(
                f'"{name}":{json_text(item, None)}' for name, item in _metadata(record).items()
            )
            value = f'{{{before},"value":{value}}}'
        lines.append(value + "\n")
    return "".join(lines).encode()


# Parquet

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


def _table(pyarrow: Any, records: Sequence[SinkRecord], with_metadata: bool) -> Any:
    """The records as columns: those of the schema, or what the values of a file have in common."""
    schema = records[0].value_schema
    values = [record.value for record in records]
    is_struct = schema is not None and schema.type is SchemaType.STRUCT
    columns: dict[str, Any] = {}
    if with_metadata:
        rows = [_metadata(record) for record in records]
        columns = {name: pyarrow.array([row[name] for row in rows]) for name in rows[0]}
    try:
        if schema is not None and is_struct:
            for name, field in schema.fields:
                kind = arrow_type(pyarrow, field)
                items = [None if value is None else value.get(name) for value in values]
                columns[name] = pyarrow.array(items, type=kind)
        elif schema is None and all(isinstance(value, dict) for value in values):
            found = pyarrow.Table.from_pylist(_with_all_fields(values))
            columns |= dict(zip(found.column_names, found.columns, strict=True))
        else:
            kind = None if schema is None else arrow_type(pyarrow, schema)
            columns[VALUE_COLUMN] = pyarrow.array(values, type=kind)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        place = f"{records[0].original_topic}-{records[0].original_partition}"
        raise DataError(
            f"{place}, offsets {records[0].offset} to {records[-1].offset}: must be one table "
            f"({error}); with a schema they are"
        ) from error
    return pyarrow.table(columns)


def _with_all_fields(values: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each with the fields of all, as a table takes its columns from the first."""
    names = dict.fromkeys(name for value in values for name in value)
    return [{name: value.get(name) for name in names} for value in values]
