"""Rows as Parquet files, written in the tasks of Spark.

A file counts when a commit of the table names it, and is on its disk before that. Every attempt of
a task makes files of its own; those of attempts that fail, and of loads that die, are in no commit,
and `vacuum` removes them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ottla.runtime.local_disk import LocalDisk
from ottla.runtime.local_file import sync_to_disk
from ottla.warehouse.column_statistics import statistics_of

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs as pafs
    import pyarrow.parquet as pq
    from pyspark.sql import DataFrame

    from ottla.warehouse.table_location import Place

COLUMNS = "path string, size long, row_count long, partition_values string, statistics string"
COMPRESSION = "zstd"
# How much a task keeps in memory before it writes row groups, and how many files it keeps open.
BUFFER_BYTES = 64 * 1024 * 1024
MAX_OPEN_FILES = 100
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"

Values = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A complete file below the table's place; `statistics` are the JSON that Delta keeps."""

    path: str
    size: int
    row_count: int
    partition_values: Mapping[str, str | None]
    statistics: str


def write_files(
    rows: DataFrame, place: Place, partition_by: Sequence[str], folder: str = ""
) -> list[DataFile]:
    """Write a DataFrame in its tasks; the driver gets a row for each file."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield described(write_batches(batches, place.filesystem(), tuple(partition_by), folder))

    found = rows.mapInArrow(write, COLUMNS).collect()
    return [
        DataFile(
            each.path,
            each.size,
            each.row_count,
            json.loads(each.partition_values),
            each.statistics,
        )
        for each in found
    ]


def sync_files(root: Path, names: Collection[str]) -> None:
    """Have files below a folder survive a crash of the machine, with their names."""
    for name in names:
        with (root / name).open("rb") as file:
            sync_to_disk(file.fileno())
    sync_names(root, names)


def sync_names(root: Path, names: Collection[str]) -> None:
    """Have the names of files below a folder survive it, as far as their folders are there."""
    parents = {folder for name in names for folder in (root / name).parents}
    for folder in {root, *(each for each in parents if root in each.parents)}:
        if folder.is_dir():
            LocalDisk().fsync_dir(str(folder))


def described(files: Iterable[DataFile]) -> pa.RecordBatch:
    """The rows that describe files to the driver, as a task returns them."""
    import pyarrow as pa

    found = list(files)
    columns = {
        "path": pa.array([each.path for each in found], pa.string()),
        "size": pa.array([each.size for each in found], pa.int64()),
        "row_count": pa.array([each.row_count for each in found], pa.int64()),
        "partition_values": pa.array(
            [json.dumps(dict(each.partition_values)) for each in found], pa.string()
        ),
        "statistics": pa.array([each.statistics for each in found], pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


def write_batches(
    batches: Iterable[pa.RecordBatch],
    files: pafs.FileSystem,
    partition_by: tuple[str, ...],
    folder: str = "",
) -> list[DataFile]:
    """The rows of one task as files, at least one for each combination of partition values."""
    writer = _TaskWriter(files, partition_by, folder)
    for batch in batches:
        writer.write(batch)
    writer.finish()
    return writer.done


class _TaskWriter:
    """Keeps rows by their partition values until there are enough for a row group."""

    def __init__(self, files: pafs.FileSystem, partition_by: tuple[str, ...], folder: str) -> None:
        self.done: list[DataFile] = []
        self._files = files
        self._partition_by = partition_by
        self._folder = folder
        self._waiting: dict[Values, list[pa.RecordBatch]] = {}
        self._waiting_bytes = 0
        self._open: dict[Values, _OpenFile] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        for values, rows in parted(batch, self._partition_by):
            self._waiting.setdefault(values, []).append(rows)
            self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= BUFFER_BYTES:
            self._flush()

    def finish(self) -> None:
        self._flush()
        self._close_all()

    def _flush(self) -> None:
        for values, batches in self._waiting.items():
            if values not in self._open:
                if len(self._open) >= MAX_OPEN_FILES:
                    self._close_all()
                self._open[values] = self._start(values, batches[0].schema)
            self._open[values].write(batches)
        self._waiting.clear()
        self._waiting_bytes = 0

    def _start(self, values: Values, schema: pa.Schema) -> _OpenFile:
        pairs = dict(zip(self._partition_by, values, strict=True))
        parts = [
            f"{name}={NULL_PARTITION if value is None else quote(value, safe='')}"
            for name, value in pairs.items()
        ]
        path = "/".join(filter(None, [self._folder, *parts, f"{uuid.uuid4()}.parquet"]))
        return _OpenFile(self._files, path, pairs, schema)

    def _close_all(self) -> None:
        self.done += [each.close() for each in self._open.values()]
        self._open.clear()


class _OpenFile:
    """A Parquet file that grows by row groups."""

    def __init__(
        self,
        files: pafs.FileSystem,
        path: str,
        partition_values: Mapping[str, str | None],
        schema: pa.Schema,
    ) -> None:
        import pyarrow.parquet as pq

        self._files, self._path, self._values = files, path, partition_values
        self._stream = files.open_output_stream(path)
        self._metadata: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._stream, schema, compression=COMPRESSION, metadata_collector=self._metadata
        )

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        import pyarrow as pa

        self._writer.write_table(pa.Table.from_batches(batches))

    def close(self) -> DataFile:
        self._writer.close()
        self._stream.close()
        metadata = self._metadata[0]
        return DataFile(
            self._path,
            self._files.get_file_info(self._path).size,
            metadata.num_rows,
            self._values,
            json.dumps(statistics_of(metadata)),
        )


def parted(
    batch: pa.RecordBatch, partition_by: tuple[str, ...]
) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """The rows by their partition values, in their order and without these columns."""
    import pyarrow as pa

    if not partition_by:
        if batch.num_rows:
            yield (), batch
        return
    keys = pa.Table.from_batches([batch.select(list(partition_by))])
    rows = batch.drop_columns(list(partition_by))
    places = keys.append_column("_place", pa.array(range(batch.num_rows), pa.int64()))
    grouped = places.group_by(list(partition_by), use_threads=False).aggregate([("_place", "list")])
    for group in grouped.to_pylist():
        values = tuple(_as_text(group[name]) for name in partition_by)
        yield values, rows.take(pa.array(group["_place_list"], pa.int64()))


def _as_text(value: Any) -> str | None:
    """A partition value as Delta and Hive write it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
