"""Topics as Arrow tables, and Arrow tables as records: for pandas, Polars, DuckDB and the like.

pyarrow is imported when it is used; pandas never is. The columns are those of Spark's Kafka source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.clients.admin.admin import Admin
from ottla.clients.client_settings import Servers, merge_settings
from ottla.clients.partition_reader import PartitionReader
from ottla.clients.topic_offsets import OffsetSpec
from ottla.config.client_config import AdminConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.record.columnar import COLUMNS, HEADERS, arrow_schema, decode_columns
from ottla.record.rows import Rows, rows_of
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.clients.consumer.consumer_record import FetchedBatches

Place: TypeAlias = "int | datetime | OffsetSpec | str | Mapping[int, int]"
"""Where to begin or to end: "earliest", "latest", an offset, offsets by partition, or a time."""

NAMED_PLACES: Final = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST}
READER_SETTINGS: Final = {"max.partition.fetch.bytes": 4 * 1024 * 1024}
"""A partition is read from one end to the other: larger answers mean fewer round trips."""
PAIR: Final = ("key", "value")


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
    """The records of a topic as one Arrow table: `scan_arrow`, all of it in memory.

    table = ottla.read_arrow("localhost:9092", "pages", columns=["key", "value"])
    table.to_pandas()
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
    in the range are no longer there, and ValueError for a place or a column that there is not.

    The columns are `key`, `value`, `topic`, `partition`, `offset`, `timestamp`, `timestampType` and
    `headers`. It needs pyarrow (`pip install ottla[arrow]`).
    """
    import pyarrow as pa

    names = list(COLUMNS if columns is None else columns)
    for name in names:
        if name not in COLUMNS:
            raise ValueError(f"column {name!r}: the columns are {', '.join(COLUMNS)}")
    whole = arrow_schema()
    given = merge_settings(bootstrap_servers, None, settings)
    ranges = _ranges(given, topic, partitions, start, end)
    schema = pa.schema([whole.field(name) for name in names])
    return pa.RecordBatchReader.from_batches(schema, _read(given, ranges, names))


def _ranges(
    settings: Mapping[str, Any],
    topic: str,
    partitions: Iterable[int] | None,
    start: Place,
    end: Place,
) -> dict[TopicPartition, tuple[int, int]]:
    """The first offset of each partition, and the one behind the last."""
    isolation = settings.get("isolation.level", "read_uncommitted")
    with Admin(AdminConfig.known_of(settings)) as admin:
        known = admin.describe_topics([topic])[topic].partitions
        count = len(known)
        numbers = range(count) if partitions is None else sorted(set(partitions))
        for number in numbers:
            if not 0 <= number < count:
                raise ValueError(f"partition {number} of topic {topic}, which has {count}")
        wanted = [TopicPartition(topic, number) for number in numbers]
        starts = _offsets(admin, wanted, start, isolation, "start")
        ends = _offsets(admin, wanted, end, isolation, "end")
        latest = _offsets(admin, wanted, OffsetSpec.LATEST, isolation, "end")
    return {each: (starts[each], min(ends[each], latest[each])) for each in wanted}


def _offsets(
    admin: Admin, wanted: Sequence[TopicPartition], place: Place, isolation: str, name: str
) -> dict[TopicPartition, int]:
    if isinstance(place, Mapping):
        given = {each: place.get(each.partition) for each in wanted}
        absent = [each.partition for each, offset in given.items() if offset is None]
        if absent:
            raise ValueError(f"{name}: it has no offset for partition {absent[0]}")
        return {each: _checked(name, offset) for each, offset in given.items()}
    if isinstance(place, int) and not isinstance(place, OffsetSpec):
        return dict.fromkeys(wanted, _checked(name, place))
    spec = _timestamp(place, name)
    found = admin.list_offsets(dict.fromkeys(wanted, spec), isolation)
    late = [each for each in wanted if found[each].offset < 0]  # no record is as new as that
    found |= admin.list_offsets(dict.fromkeys(late, OffsetSpec.LATEST), isolation) if late else {}
    return {each: found[each].offset for each in wanted}


def _checked(name: str, offset: Any) -> int:
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise ValueError(f"{name}={offset!r}: an offset is a whole number from 0 on")
    return offset


def _timestamp(place: Any, name: str) -> int:
    if isinstance(place, OffsetSpec):
        return int(place)
    if isinstance(place, datetime):
        if place.tzinfo is None:
            raise ValueError(f"{name}={place!r}: a time needs a zone, as datetime.UTC")
        return int(place.timestamp() * 1000)
    if place in NAMED_PLACES:
        return int(NAMED_PLACES[place])
    raise ValueError(
        f"{name}={place!r}: must be 'earliest', 'latest', an offset, offsets by partition, "
        "an OffsetSpec or a datetime"
    )


def _read(
    settings: Mapping[str, Any],
    ranges: Mapping[TopicPartition, tuple[int, int]],
    names: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    isolation = settings.get("isolation.level", "read_uncommitted")
    with PartitionReader({**READER_SETTINGS, **settings}) as reader:
        for (topic, partition), (start, end) in ranges.items():
            chunks = reader.read(TopicPartition(topic, partition), start, end, isolation=isolation)
            for batch in decode_columns(
                chunks,
                topic,
                partition,
                start_offset=start,
                end_offset=end,
                with_headers=HEADERS in names,
            ):
                yield batch.select(names)


def table_of(fetched: Iterable[FetchedBatches]) -> pa.Table:
    """What a consumer has fetched, as one table."""
    import pyarrow as pa

    decoded = [
        batch
        for each in fetched
        for batch in decode_columns(
            [kept.view for kept in each.batches], *each.topic_partition, start_offset=each.position
        )
    ]
    return pa.Table.from_batches(decoded, arrow_schema())


def rows_of_arrow(data: Any, largest: int, partition_count: int) -> Iterator[Rows]:
    """The rows of Arrow data, which has a column `value`, to be encoded.

    Raises ValueError for a column that cannot become records, and KafkaError for a row of more
    than `largest` bytes, before the first of its batch.
    """
    import pyarrow as pa

    batches = data.to_batches() if isinstance(data, pa.Table) else data
    for batch in [batches] if isinstance(batches, pa.RecordBatch) else batches:
        names = batch.schema.names
        columns = {name: _plain(batch.column(index)) for index, name in enumerate(names)}
        _check_types(columns)
        _check_values(columns, largest, partition_count)
        yield rows_of(
            columns["value"], columns.get("key"), columns.get("partition"), columns.get(HEADERS)
        )


def _plain(column: Any) -> Any:
    """A column of the types whose buffers are read."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return column.cast(views[column.type]) if column.type in views else column


def _check_types(columns: Mapping[str, Any]) -> None:
    import pyarrow as pa

    if "value" not in columns:
        raise ValueError(f"the column value is missing; there are {', '.join(columns) or 'none'}")
    texts = (pa.binary(), pa.large_binary(), pa.string(), pa.large_string())
    for name in ("key", "value"):
        if name in columns and columns[name].type not in texts:
            raise ValueError(f"column {name}: its type {columns[name].type} is not text or bytes")
    if "partition" in columns and not pa.types.is_integer(columns["partition"].type):
        raise ValueError(f"column partition: its type {columns['partition'].type} is no integer")
    kind = columns[HEADERS].type if HEADERS in columns else None
    if kind is not None:
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        pair = kind.value_type if is_list else None
        if pair is None or not pa.types.is_struct(pair) or pair.num_fields != len(PAIR):
            raise ValueError(f"column headers: its type {kind} is no list of key and value")
        if any(pair.field(n).type not in texts for n in range(len(PAIR))):
            raise ValueError(f"column headers: its type {kind} has more than text and bytes")


def _check_values(columns: Mapping[str, Any], largest: int, partition_count: int) -> None:
    import pyarrow.compute as pc

    size = pc.max(pc.binary_length(columns["value"])).as_py() or 0
    if size > largest:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a value of {size} bytes: a record takes at most {largest}",
        )
    if "partition" in columns:
        limits = pc.min_max(columns["partition"]).as_py()
        for wrong in (limits["min"], limits["max"]):
            if wrong is not None and not 0 <= wrong < partition_count:
                raise ValueError(f"column partition: {wrong} of {partition_count}")
    if HEADERS in columns and columns[HEADERS].flatten().field(0).null_count:
        raise ValueError("column headers: a header has no key")
