"""Topics as Arrow tables: the newest records of each partition, within limits.

They have the columns `partition`, `offset`, `timestamp`, `key`, `value` and `headers`; keys, values
and headers are text, in which bytes that are no UTF-8 are escapes (`\\xff`). Keys and values with a
schema of a registry are JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.console.decoding import Hiding, written
from ottla.console.masks import masks_of
from ottla.console.newest_first import LARGEST_STEP, Backwards, Limits, NewestFirst, ReadWindow
from ottla.console.record_query import narrowed, newest_low, offsets
from ottla.console.record_source import FoundRecord, ReadPart, RecordSource, Span
from ottla.console.refusals import Refused
from ottla.console.schema_registry import SchemaRegistry, schema_number
from ottla.console.search_worker import STEP
from ottla.record.columnar import binary_array, decode_columns
from ottla.record.columns import binary_column
from ottla.structs import NO_UUID, NamedTuple, TopicPartition

if TYPE_CHECKING:
    from ottla.clients.metadata import TopicInfo
    from ottla.clients.partition_reader import Chunk
    from ottla.console.conditions import Conjunct
    from ottla.console.console_cluster import ConsoleCluster
    from ottla.console.masks import Mask
    from ottla.structs import IsolationLevel

SMALLEST_STEP: Final = 1_000
SMALL_WINDOW: Final = 512 * 1024
AT_ONCE: Final = 8
"""Partitions that are read at the same time, as the windows of all of them are in memory."""
HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
SCHEMA: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("key", pa.string()),
        ("value", pa.string()),
        ("headers", HEADERS),
    ]
)


class ReadTopic(NamedTuple):
    """How much of a topic was read for a statement."""

    topic: str
    read: int
    total: int
    """The offsets that its conditions on partition, offset and time leave."""
    is_whole: bool
    errors: dict[int, str]
    """Partitions that could not be read, and why."""


class TopicTables(NamedTuple):
    """How topics are read for one statement."""

    cluster: ConsoleCluster
    limits: Limits
    """The limits of each topic."""
    masks: Sequence[Mask]
    isolation: IsolationLevel
    with_headers: bool
    on_read: Callable[[str, int, int], object] = lambda topic, read, total: None
    """Called with how many offsets of a topic were read, and of how many, again and again."""

    async def read(
        self, name: str, references: Iterable[Sequence[Conjunct]]
    ) -> tuple[pa.Table, ReadTopic]:
        """The records of a topic that one of the references may want; NotFound without it."""
        topic = await self.cluster.topic(name)
        partitions = [TopicPartition(name, each) for each in topic.available]
        spans: dict[TopicPartition, Span] = {}
        leaderless = topic.partitions.keys() - {*topic.available}
        unreachable = dict.fromkeys(leaderless, "it has no leader")
        for conjuncts in references:
            found, unknown = await offsets(
                self.cluster, partitions, newest_low(conjuncts), None, self.isolation
            )
            spans = both(spans, narrowed(found, conjuncts))
            unreachable |= unknown
        walk = ColumnWalk(self, name, spans)
        total = sum(span.end - span.start for span in spans.values())
        await walk.read_all(lambda: self.on_read(name, total - walk.unread, total))
        await self._check_same(topic)
        errors = unreachable | walk.errors
        is_whole = walk.is_all_read and not errors
        return walk.table(), ReadTopic(name, walk.read_records, total, is_whole, errors)

    async def _check_same(self, topic: TopicInfo) -> None:
        """Refused where a topic was made again: offsets of the old one were read of the new."""
        await self.cluster.all_topics.fetch_one(topic.name)
        now = self.cluster.all_topics.cluster.topics.get(topic.name)
        ids = {topic.topic_id} if now is None else {topic.topic_id, now.topic_id}
        if len(ids) > 1 and NO_UUID not in ids:
            raise Refused(f"Topic {topic.name} was deleted and made again while it was read.")


def both(
    one: dict[TopicPartition, Span], two: Mapping[TopicPartition, Span]
) -> dict[TopicPartition, Span]:
    """The smallest spans that hold those of both; an empty span holds nothing."""
    found = dict(one)
    for each, span in two.items():
        known = found.get(each)
        if known is None or known.start >= known.end:
            found[each] = span
        elif span.start < span.end:
            found[each] = Span(min(known.start, span.start), max(known.end, span.end))
    return found


class ColumnWalk(NewestFirst):
    """A walk backwards over the partitions of a topic that keeps whole columns."""

    def __init__(
        self, tables: TopicTables, topic: str, spans: Mapping[TopicPartition, Span]
    ) -> None:
        cluster = tables.cluster
        source = RecordSource(cluster.client, lambda: cluster.all_topics.cluster, tables.isolation)
        step = max(SMALLEST_STEP, STEP // max(1, len(spans)))
        super().__init__(source, cluster.runtime.clock, spans, tables.limits, step=step)
        self._topic = topic
        self._with_headers = tables.with_headers
        self._hide = Hiding(masks_of(tables.masks, topic))
        has_registry = bool(cluster.schema_registry)
        self._schemas = cluster.part(SchemaRegistry) if has_registry else None
        self._rows = self._bytes = 0
        self._has_frames = False

    @property
    def is_all_read(self) -> bool:
        """Whether nothing of the spans is left."""
        return all(walk.is_over for walk in self.walks)

    @property
    def fetch_bytes(self) -> int:
        return 4 * super().fetch_bytes

    @property
    def unread(self) -> int:
        """How many offsets of the spans are left."""
        return sum(max(0, walk.unread - walk.start) for walk in self.walks)

    async def read_all(self, on_step: Callable[[], object]) -> None:
        """Read until nothing is left, or the limits are reached."""
        while not self.is_spent and not self.is_all_read:
            walks = [each for each in self.walks if not each.is_over]
            for at in range(0, len(walks), AT_ONCE):
                if not self.is_spent:
                    await self.extend(walks[at : at + AT_ONCE])
                    on_step()

    async def extend(self, walks: list[Backwards]) -> None:
        """Read one more window of each, and make text of its columns."""
        await super().extend(walks)
        for walk in walks:
            buffer: list[Any] = walk.buffer
            for at, each in enumerate(buffer):
                if each.schema == SCHEMA:
                    break  # those of earlier windows are behind the new ones
                buffer[at] = await self._text_of(each)
        self.read_bytes = self._bytes

    async def _text_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        schemas = self._schemas
        framed: list[pa.Array] = []
        if schemas is not None:
            framed = [each for each in (batch["key"], batch["value"]) if has_frames(each)]
            data = [each for column in framed for each in column.to_pylist()]
            # A condition would pass over the rows of a schema for which a page has no time.
            while await schemas.prepare(data) and not self.is_spent:
                pass
        self._has_frames = self._has_frames or bool(framed)
        found = text_batch(batch, self._hide, schemas if framed else None)
        self._bytes += found.nbytes - batch.nbytes
        return found

    def read_chunk(self, partition: int, chunk: Chunk, span: Span) -> ReadPart:
        start, end = span
        found = decode_columns(
            chunk.views,
            self._topic,
            partition,
            start_offset=start,
            end_offset=end,
            with_headers=self._with_headers,
        )
        batches = [*found]
        return ReadPart(batches, sum(each.num_rows for each in batches), [])

    def finish(self, walk: Backwards, window: ReadWindow) -> None:
        """Count all that is kept, and choose how many records the next window has."""
        super().finish(walk, window)
        batches: list[Any] = window.records
        size = sum(each.nbytes for each in batches)
        self._rows += window.count
        self._bytes += size
        self.read_records, self.read_bytes = self._rows, self._bytes
        if window.is_shortened:
            walk.step = max(1, window.count)
        elif size < SMALL_WINDOW and not self._has_frames:  # those take their time
            walk.step = min(2 * walk.step, LARGEST_STEP)

    def table(self) -> pa.Table:
        """All that was read."""
        batches = [each for walk in self.walks for each in walk.buffer]
        return pa.Table.from_batches(batches, SCHEMA)


def text_batch(
    batch: pa.RecordBatch, hide: Hiding, schemas: SchemaRegistry | None
) -> pa.RecordBatch:
    """Columns of bytes as columns of text, without their masked places."""
    columns = [batch.column(name) for name in ("partition", "offset", "timestamp")]
    keys, values = batch.column("key"), batch.column("value")
    lists = whole(batch.column("headers")) if "headers" in batch.schema.names else None
    headers = [] if lists is None else [lists.values.field("key"), lists.values.field("value")]
    if hide.is_needed:
        keys, values, *headers[1:] = hidden(hide, keys, values, lists)
    if schemas is not None:
        keys, values = (json_of(each, schemas) for each in (keys, values))
    columns += [texts_of(keys), texts_of(values)]
    if lists is None:
        columns.append(pa.nulls(len(keys), HEADERS))
    else:
        fields = [headers[0], texts_of(headers[1])]
        pairs = pa.StructArray.from_arrays(fields, fields=list(HEADERS.value_type))
        absent = lists.is_null()
        columns.append(pa.ListArray.from_arrays(lists.offsets, pairs, HEADERS, mask=absent))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def whole(lists: pa.Array) -> pa.Array:
    """The same lists, also where they are a slice of others: of a batch of very many records."""
    if lists.offset == 0 and lists.offsets[-1].as_py() == len(lists.values):
        return lists
    return pa.array(lists.to_pylist(), lists.type)


def hidden(hide: Hiding, keys: pa.Array, values: pa.Array, lists: pa.Array | None) -> list[Any]:
    """Keys, values, and those of headers if there are any, without their masked places."""
    rows = zip(
        keys.to_pylist(),
        values.to_pylist(),
        [None] * len(keys) if lists is None else lists.to_pylist(),
        strict=True,
    )
    records = [
        hide(FoundRecord(0, 0, 0, key, value, tuple((h["key"], h["value"]) for h in headers or ())))
        for key, value, headers in rows
    ]
    found = [bytes_array([each.key for each in records]), bytes_array([r.value for r in records])]
    if lists is not None:
        found.append(bytes_array([data for each in records for _, data in each.headers]))
    return found


def has_frames(column: pa.Array) -> bool:
    """Whether some bytes may have a schema of a registry, as they begin with a byte 0."""
    return bool(pc.any(pc.starts_with(column, pattern=b"\0")).as_py())


def json_of(column: pa.Array, schemas: SchemaRegistry) -> pa.Array:
    """A column of bytes, in which those that have a schema which is known are JSON."""

    def read(data: bytes | None) -> bytes | None:
        if not schema_number(data):
            return data
        assert data is not None, "it has a number"
        try:
            return written(schemas.value_of(data)[1]).encode()
        except (ValueError, RecursionError):
            return data

    return bytes_array([read(each) for each in column.to_pylist()])


def texts_of(column: pa.Array) -> pa.Array:
    """A column of bytes as text."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        texts = (text_of(each) for each in column.to_pylist())
        return bytes_array([each if each is None else each.encode() for each in texts]).cast(
            pa.string()
        )


def bytes_array(items: Sequence[bytes | None]) -> pa.Array:
    """Byte strings as an array."""
    return binary_array(binary_column(items), len(items))


def text_of(data: bytes | None) -> str | None:
    """Bytes as text; those that are no UTF-8 as escapes."""
    return None if data is None else data.decode("utf-8", "backslashreplace")
