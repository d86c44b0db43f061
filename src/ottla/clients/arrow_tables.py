"""Topics as Arrow tables, and Arrow tables as records: for pandas, Polars, DuckDB and the like.

pyarrow is imported when it is used; pandas never is. The columns are those of Spark's Kafka source.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import inf
from operator import index
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, TypeAlias, cast

from ottla.clients.admin.admin import Admin
from ottla.clients.client_settings import Servers, merge_settings
from ottla.clients.partition_reader import SCAN_FETCH_BYTES, PartitionReader
from ottla.clients.producer.producer_batch import RECORD_OVERHEAD
from ottla.clients.topic_offsets import OffsetSpec
from ottla.config.client_config import AdminConfig, ConsumerConfig
from ottla.errors import KafkaError
from ottla.protocol.topic_name import validate_topic_name
from ottla.record.columnar import COLUMNS, HEADERS, MAX_BATCH_BYTES, arrow_schema, decode_columns
from ottla.record.record import HEADER_OVERHEAD
from ottla.record.rows import Rows, partition_outside, rows_of
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    import pyarrow as pa

    from ottla.clients.consumer.completed_fetch import FetchedBatches

Place: TypeAlias = "int | datetime | OffsetSpec | str | Mapping[int, int]"
"""Where to begin or to end: "earliest", "latest", an offset, offsets by partition, or a time."""

NAMED_PLACES: Final = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST}
PAIR: Final = {"key", "value"}
EPOCH: Final = datetime.fromtimestamp(0, UTC)
MAX_PORTION_BYTES: Final = 64 * 1024 * 1024
"""Rows are encoded in portions of so many bytes: the encoder's columns hold at most 2 GiB."""


def require_pyarrow() -> None:
    """Raise an ImportError that names what to install, before anything is read or sent."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        text = f"Arrow tables need pyarrow: pip install 'ottla[arrow]' ({error})"
        raise ImportError(text, name="pyarrow") from None


def read_arrow(
    bootstrap_servers: Servers,
    topic: str,
    *,
    start: Place = "earliest",
    end: Place = "latest",
    partitions: Iterable[int] | None = None,
    columns: Sequence[str] | None = None,
    **settings: Any,
) -> pa.Table:
    """The records of a topic as one Arrow table, such as

        table = ottla.read_arrow("localhost:9092", "pages", columns=["key", "value"])
        table.to_pandas()

    It is `scan_arrow` with all of it in memory.
    """
    scan = scan_arrow(
        bootstrap_servers,
        topic,
        start=start,
        end=end,
        partitions=partitions,
        columns=columns,
        **settings,
    )
    return scan.read_all()


def scan_arrow(
    bootstrap_servers: Servers,
    topic: str,
    *,
    start: Place = "earliest",
    end: Place = "latest",
    partitions: Iterable[int] | None = None,
    columns: Sequence[str] | None = None,
    **settings: Any,
) -> pa.RecordBatchReader:
    """The records of a topic as a stream of Arrow batches, one partition after the other.

    `start` and `end` are "earliest", "latest", an offset, offsets by partition, or a datetime with
    a zone. Where it ends is looked up before the first record is read: the stream has an end, and
    nothing behind the topic's own is waited for. `settings` are a consumer's: with
    `isolation_level="read_committed"` it ends at the last stable offset, and has no record of an
    aborted transaction. Raises KafkaError if the topic is unknown, OFFSET_OUT_OF_RANGE if records
    in the range are no longer there, TopicRecreatedError if the topic was deleted and created
    again meanwhile, and ValueError for a place or a column that there is not.
    Its connections end when it is read to its end or let go: pyarrow's `close` alone keeps them.

    The columns are `key`, `value`, `topic`, `partition`, `offset`, `timestamp`, `timestampType` and
    `headers`. It needs pyarrow (`pip install ottla[arrow]`).
    """
    require_pyarrow()
    import pyarrow as pa

    validate_topic_name(topic)
    names = _names(columns)
    whole = arrow_schema()
    given = {
        "max.partition.fetch.bytes": SCAN_FETCH_BYTES,
        **merge_settings(bootstrap_servers, None, settings),
    }
    ConsumerConfig.parse(given)  # a wrong setting is refused here, not by the first batch
    topic_id, ranges = _ranges(given, topic, partitions, start, end)
    schema = pa.schema([whole.field(name) for name in names])
    return pa.RecordBatchReader.from_batches(schema, _read(given, ranges, topic_id, names))


def _ranges(
    settings: Mapping[str, Any],
    topic: str,
    partitions: Iterable[int] | None,
    start: Place,
    end: Place,
) -> tuple[UUID, dict[TopicPartition, tuple[int, int]]]:
    """The topic's id, and the first offset of each partition and the one behind the last."""
    isolation = settings.get("isolation.level", "read_uncommitted")
    with Admin(AdminConfig.known_of(settings)) as admin:
        described = admin.describe_topics([topic])[topic]
        count = len(described.partitions)
        numbers = range(count) if partitions is None else _numbers(partitions)
        for number in numbers:
            if not 0 <= number < count:
                raise ValueError(f"partition {number} of topic {topic}, which has {count}")
        wanted = [TopicPartition(topic, number) for number in numbers]

        def lookup(time: int) -> dict[TopicPartition, int]:
            found = admin.list_offsets(dict.fromkeys(wanted, time), isolation)
            return {each: found[each].offset for each in wanted}

        latest = lookup(OffsetSpec.LATEST)
        starts = _offsets(start, "start", latest, lookup)
        ends = _offsets(end, "end", latest, lookup)
    ranges = {each: (starts[each], min(ends[each], latest[each])) for each in wanted}
    return described.topic_id, ranges


def _names(columns: Sequence[str] | None) -> list[str]:
    """The columns that are wanted, all by default; ValueError for one that there is not."""
    if columns is None:
        return list(COLUMNS)
    is_list = isinstance(columns, Iterable) and not isinstance(columns, str)
    if not is_list:
        raise ValueError(f"columns={columns!r}: must be the names of columns, as a list")
    names = list(columns)
    for name in names:
        if name not in COLUMNS:
            raise ValueError(f"column {name!r}: the columns are {', '.join(COLUMNS)}")
    return names


def _numbers(partitions: Iterable[int]) -> list[int]:
    try:
        return sorted({index(each) for each in partitions})
    except TypeError:
        raise ValueError(
            f"partitions={partitions!r}: must be the numbers of partitions, as a list"
        ) from None


def _offsets(
    place: Place,
    name: str,
    latest: Mapping[TopicPartition, int],
    lookup: Callable[[int], Mapping[TopicPartition, int]],
) -> Mapping[TopicPartition, int]:
    """The offset of a place in each partition; where no record is as new as that, the latest."""
    if isinstance(place, Mapping):
        given = {each: place.get(each.partition) for each in latest}
        absent = [each.partition for each, offset in given.items() if offset is None]
        if absent:
            raise ValueError(f"{name}: it has no offset for partition {absent[0]}")
        return {each: _checked(name, offset) for each, offset in given.items()}
    if isinstance(place, SupportsIndex) and not isinstance(place, OffsetSpec):
        return dict.fromkeys(latest, _checked(name, place))
    time = _timestamp(place, name)
    if time == OffsetSpec.LATEST:
        return latest
    found = lookup(time)
    return {each: latest[each] if found[each] < 0 else found[each] for each in latest}


def _checked(name: str, offset: Any) -> int:
    is_number = isinstance(offset, SupportsIndex) and not isinstance(offset, bool)
    if not is_number or index(offset) < 0:
        raise ValueError(f"{name}={offset!r}: an offset is a whole number from 0 on")
    return index(offset)


def _timestamp(place: Any, name: str) -> int:
    if isinstance(place, OffsetSpec):
        return int(place)
    if isinstance(place, datetime):
        if place.utcoffset() is None:
            raise ValueError(f"{name}={place!r}: a time needs a zone, as datetime.UTC")
        # The first millisecond that is not before the place; there are none before 1970.
        return max(0, -((EPOCH - place) // timedelta(milliseconds=1)))
    if isinstance(place, str) and place in NAMED_PLACES:
        return int(NAMED_PLACES[place])
    raise ValueError(
        f"{name}={place!r}: must be 'earliest', 'latest', an offset, offsets by partition, "
        "an OffsetSpec or a datetime"
    )


def _read(
    settings: Mapping[str, Any],
    ranges: Mapping[TopicPartition, tuple[int, int]],
    topic_id: UUID,
    names: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    isolation = settings.get("isolation.level", "read_uncommitted")
    with PartitionReader(settings) as reader:
        for (topic, partition), (start, end) in ranges.items():
            where = TopicPartition(topic, partition)
            chunks = reader.read(where, start, end, isolation=isolation, topic_id=topic_id)
            for batch in decode_columns(
                chunks,
                topic,
                partition,
                start_offset=start,
                end_offset=end,
                with_headers=HEADERS in names,
            ):
                yield batch.select(names)


def table_of(
    fetched: Sequence[FetchedBatches],
    give_back: Callable[[TopicPartition, int], object],
    max_bytes: int = sys.maxsize,
) -> tuple[pa.Table, list[FetchedBatches]]:
    """The records that a consumer has fetched, as one table; and the batches that are left.

    No more batches are decoded once those of more than `max_bytes` were: a few bytes that have
    arrived may be a GB without their codecs. A batch that cannot be decoded, and all that is behind
    it, is given back, by partition and offset, to be read again; the error is raised unless records
    precede it.
    """
    import pyarrow as pa

    decoded = _Decoded(max_bytes)
    left = deque(fetched)
    try:
        while left and not decoded.is_full:
            left[0] = _decode(left[0], decoded)
            if not left[0].batches:
                left.popleft()
    except BaseException as error:
        is_fault = isinstance(error, KafkaError)
        if is_fault:
            left[0] = _from_the_fault(left[0], decoded)
        # Of two pieces of a partition it is the first one that counts.
        for each in reversed(left if is_fault else fetched):
            give_back(each.topic_partition, each.position)
        if not is_fault or not decoded.tables:
            raise
        left.clear()
    return pa.Table.from_batches(decoded.tables, arrow_schema()), list(left)


class _Decoded:
    """Records of a table, and their bytes: those of each are counted once."""

    def __init__(self, max_bytes: int) -> None:
        self.tables: list[pa.RecordBatch] = []
        self.size = 0
        self.max_bytes = max_bytes

    @property
    def is_full(self) -> bool:
        return self.size > self.max_bytes


def _decode(fetched: FetchedBatches, decoded: _Decoded) -> FetchedBatches:
    """Add the records of batches until all come to `max_bytes`; the batches that are left."""
    position, batches = fetched.position, fetched.batches
    size, count, max_bytes = decoded.size, 0, decoded.max_bytes
    room = max_bytes - size + 1
    portion = -(-room // -(-room // MAX_BATCH_BYTES))

    def views() -> Iterator[memoryview]:
        nonlocal count
        for batch in batches:
            if size > max_bytes:
                return
            count += 1
            yield batch.view

    own, place = [], fetched.topic_partition
    for table in decode_columns(views(), *place, start_offset=position, batch_bytes=portion):
        own.append(table)
        size += table.nbytes
    decoded.tables += own
    decoded.size = size
    behind = batches[count - 1].next_offset if count else position
    return fetched._replace(position=max(position, behind), batches=batches[count:])


def _from_the_fault(fetched: FetchedBatches, decoded: _Decoded) -> FetchedBatches:
    """The batches from the first one on that cannot be decoded; those before it are decoded."""
    left = fetched
    for batch in fetched.batches:
        try:
            if decoded.is_full:
                break
            _decode(left._replace(batches=[batch]), decoded)
        except KafkaError:
            break
        left = left._replace(position=batch.next_offset, batches=left.batches[1:])
    return left


def rows_of_arrow(
    data: Any,
    check_size: Callable[[int], object],
    partition_count: int,
    portion_bytes: int | None = None,
) -> Iterator[Rows]:
    """The rows of Arrow data, which has a column `value`, to be encoded, in portions.

    Raises ValueError for what cannot become records, and calls `check_size` with the size of the
    largest row, both before the first row of a batch is returned.
    """
    import pyarrow.compute as pc

    for batch in _batches_of(data):
        columns = _columns_of(batch)
        _check_values(columns, partition_count)
        sizes = _row_sizes(columns)
        if len(sizes):
            check_size(pc.max(sizes).as_py())
        for start, count in _portions(sizes, portion_bytes or MAX_PORTION_BYTES):
            some = {name: column.slice(start, count) for name, column in columns.items()}
            key, headers = some.get("key"), some.get(HEADERS)
            yield rows_of(
                _plain(some["value"]),
                None if key is None else _plain(key),
                some.get("partition"),
                None if headers is None else _plain_headers(headers),
            )


def highest_partition(data: Any) -> float:
    """The highest number in the column `partition`, -1 if there is none.

    It is infinite where a stream has the column, as that can be read only once.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return -1
    if data.schema.names.count("partition") != 1:
        return -1
    if isinstance(data, pa.RecordBatchReader):
        return inf
    column = data["partition"]
    found = pc.max(column).as_py() if pa.types.is_integer(column.type) else None
    return -1 if found is None else float(found)


def _batches_of(data: Any) -> Iterable[Any]:
    """The batches of what pyarrow has, or of what another library hands over (PyCapsule)."""
    import pyarrow as pa

    if isinstance(data, pa.RecordBatch):
        return [data]
    if isinstance(data, pa.Table):
        return cast("list[Any]", data.to_batches()) or [_no_rows(data.schema)]
    if hasattr(data, "__arrow_c_stream__") and not isinstance(data, pa.RecordBatchReader):
        return cast("Iterable[Any]", pa.RecordBatchReader.from_stream(data))
    if not isinstance(data, Iterable):
        raise _no_arrow_data(data)
    return data


def _no_arrow_data(data: object) -> TypeError:
    return TypeError(f"Arrow data are needed, such as a pyarrow.Table; there is a {type(data)}")


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)


def _columns_of(batch: pa.RecordBatch) -> dict[str, Any]:
    """The columns that are used, by name; those of nulls without a type are left out."""
    import pyarrow as pa

    if not isinstance(batch, pa.RecordBatch):
        raise _no_arrow_data(batch)
    columns: dict[str, Any] = {}
    names = batch.schema.names
    for name, check in TYPE_CHECKS.items():
        count = names.count(name)
        if count > 1:
            raise ValueError(f"column {name}: there are {count} of this name")
        column = batch.column(names.index(name)) if count else None
        if column is not None and not pa.types.is_null(column.type):
            check(name, column.type)
            columns[name] = column
        elif column is not None and name == "value":
            columns[name] = pa.nulls(len(column), pa.binary())
    if "value" not in columns:
        raise ValueError(f"the column value is missing; there are {', '.join(names) or 'none'}")
    return columns


def _is_text(kind: Any) -> bool:
    """Whether text or bytes are in a column of a type, or nothing but nulls."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return kind in (
        *(pa.null(), pa.binary(), pa.large_binary(), pa.binary_view()),
        *(pa.string(), pa.large_string(), pa.string_view()),
    )


def _check_text(name: str, kind: Any) -> None:
    if not _is_text(kind):
        raise ValueError(f"column {name}: its type {kind} is not text or bytes")


def _check_integer(name: str, kind: Any) -> None:
    import pyarrow as pa

    if not pa.types.is_integer(kind):
        raise ValueError(f"column {name}: its type {kind} is no integer")


def _check_headers(name: str, kind: Any) -> None:
    import pyarrow as pa

    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    pair = kind.value_type if is_list else None
    if pair is not None and pa.types.is_null(pair):
        return
    fields = list(pair) if pair is not None and pa.types.is_struct(pair) else []
    if {each.name for each in fields} != PAIR or len(fields) != len(PAIR):
        raise ValueError(f"column {name}: its type {kind} is no list of key and value")
    if not all(_is_text(each.type) for each in fields):
        raise ValueError(f"column {name}: its type {kind} has more than text and bytes")


TYPE_CHECKS: Final[Mapping[str, Callable[[str, Any], None]]] = {
    "value": _check_text,
    "key": _check_text,
    "partition": _check_integer,
    HEADERS: _check_headers,
}
"""The columns that are used, and what refuses their types."""


def _check_values(columns: Mapping[str, Any], partition_count: int) -> None:
    if "partition" in columns:
        wrong = partition_outside(columns["partition"], partition_count)
        if wrong is not None:
            raise ValueError(f"column partition: {wrong} of {partition_count}")
    if HEADERS in columns and _keys_and_contents(columns[HEADERS])[0].null_count:
        raise ValueError("column headers: a header has no key")


def _row_sizes(columns: Mapping[str, Any]) -> Any:
    """How many bytes each row takes up, as `Producer.send` counts them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sizes = pc.add(_lengths(columns["value"]), pa.scalar(RECORD_OVERHEAD, pa.int64()))
    if "key" in columns:
        sizes = pc.add(sizes, _lengths(columns["key"]))
    if HEADERS in columns:
        keys, contents = map(_lengths, _keys_and_contents(columns[HEADERS]))
        each = pc.add(pc.add(keys, contents), pa.scalar(HEADER_OVERHEAD, pa.int64()))
        until = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(each)])
        ends = _ends(columns[HEADERS])
        starts = pa.concat_arrays([pa.array([0], pa.int64()), ends])[:-1]
        sizes = pc.add(sizes, pc.subtract(until.take(ends), until.take(starts)))
    return sizes


def _lengths(column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        return pc.fill_null(_lengths(column.dictionary).take(column.indices), 0)
    if column.type in (pa.null(), pa.binary_view(), pa.string_view()):
        column = column.cast(pa.large_binary())
    return pc.fill_null(pc.binary_length(column).cast(pa.int64()), 0)


def _ends(lists: Any) -> Any:
    """Behind how many of all headers those of each row end."""
    import pyarrow as pa
    import pyarrow.compute as pc

    counts = pc.fill_null(pc.list_value_length(lists).cast(pa.int64()), 0)
    return pc.cumulative_sum(counts)


def _portions(sizes: Any, most: int, start: int = 0) -> Iterator[tuple[int, int]]:
    """Runs of rows, by their first and their number, of at most so many bytes together."""
    import pyarrow.compute as pc

    count = len(sizes)
    if count > 1 and pc.sum(sizes).as_py() > most:
        half = count // 2
        yield from _portions(sizes[:half], most, start)
        yield from _portions(sizes[half:], most, start + half)
    elif count:
        yield start, count


def _plain(column: Any) -> Any:
    """A column of text or bytes of the types whose buffers are read."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type in (pa.binary(), pa.string(), pa.large_binary(), pa.large_string()):
        return column
    return column.cast(pa.large_binary())


def _keys_and_contents(lists: Any) -> tuple[Any, Any]:
    """All headers of all rows; a header that is null has a null key."""
    import pyarrow as pa

    pairs = lists.flatten()
    if pa.types.is_null(pairs.type):
        return pairs, pairs
    fields = dict(zip((each.name for each in pairs.type), pairs.flatten(), strict=True))
    return fields["key"], fields["value"]


def _plain_headers(lists: Any) -> Any:
    """Lists of headers of the types whose buffers are read; no list has no headers."""
    import pyarrow as pa

    keys, contents = map(_plain, _keys_and_contents(lists))
    try:
        keys = keys.cast(pa.large_binary()).cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise ValueError(f"column headers: a key is no text: {error}") from None
    zero = pa.array([0], pa.int64())
    offsets = pa.concat_arrays([zero, _ends(lists)]).cast(pa.int32())
    pairs = pa.StructArray.from_arrays([keys, contents], names=["key", "value"])
    return pa.ListArray.from_arrays(offsets, pairs)
