"""Many records at once: encoded together, without an object for each of them.

The records of a call are distributed over the partitions and encoded by `kernel.RowEncoder`; what
fills a batch is queued behind the records that were sent before, and does not linger.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import count as count_from
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.clients.producer.producer_batch import RECORD_OVERHEAD, ProducerBatch, RecordFuture
from ottla.clients.serialization import to_bytes
from ottla.record import kernel
from ottla.record.columns import binary_column
from ottla.record.rows import BinaryRows, Rows
from ottla.runtime.timing import Deadline
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from ottla.errors import KafkaError
    from ottla.record.rows import EncodedRecords, RowEncoder
    from ottla.runtime.clock import Clock

MAX_OPEN_BYTES: Final = 32 * 1024 * 1024
"""All batches being filled for the partitions of a topic together take no more than this."""
MIN_BATCH_BYTES: Final = 16 * 1024
DEFAULT_BATCH_BYTES: Final = 512 * 1024
"""A producer's 16 KiB are for records that come one by one: here all are there at once."""
ROWS_AT_ONCE: Final = 10_000
BYTES_AT_ONCE: Final = 32 * 1024 * 1024
"""The memory that encoding takes does not grow with the number of records, or their sizes."""


Serializer: TypeAlias = Callable[[str, Any], bytes | None]


class WrittenRange(NamedTuple):
    """Records with consecutive offsets; `offset`, of the first, is -1 where it is not known."""

    topic: str
    partition: int
    offset: int
    record_count: int


class BulkFuture:
    """The outcome of one `send_values` or `send_arrow`, with methods of a Future."""

    def __init__(self, clock: Clock, parts: Sequence[ProducerBatch | RecordFuture]) -> None:
        self._clock = clock
        self._parts = parts

    def done(self) -> bool:
        """Whether the outcome of all records is known."""
        return all(map(_is_done, self._parts))

    def exception(self, timeout: float | None = None) -> KafkaError | None:
        """Wait up to `timeout` seconds; the first error, or None when all were written."""
        deadline = Deadline(self._clock, None if timeout is None else int(timeout * 1000))
        first: KafkaError | None = None
        for part in self._parts:
            left_s = None if timeout is None else deadline.left_ms / 1000
            if isinstance(part, RecordFuture):
                error = part.exception(left_s)
            elif part.wait(left_s):
                error = part.failure()
            else:
                raise TimeoutError(f"no response for {part} within {timeout} s")
            first = first or error
        return first

    def __await__(self) -> Generator[Any, None, list[WrittenRange]]:
        """The result, in a coroutine of any event loop."""
        for part in self._parts:
            yield from part.settled().__await__()
        return self.result(0)

    def result(self, timeout: float | None = None) -> list[WrittenRange]:
        """Wait up to `timeout` seconds for where all were written; raises the first KafkaError.

        Those that other batches have are written none the less.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error.with_traceback(None)
        return [written for part in self._parts for written in _ranges_of(part)]


def _is_done(part: ProducerBatch | RecordFuture) -> bool:
    return part.done() if isinstance(part, RecordFuture) else part.is_settled


def _ranges_of(part: ProducerBatch | RecordFuture) -> Iterator[WrittenRange]:
    if isinstance(part, RecordFuture):
        where = part.result(0)
        yield WrittenRange(where.topic, where.partition, where.offset, 1)
        return
    for _, piece, count in part.pieces(part.record_count):
        yield WrittenRange(*piece.topic_partition, piece.base_offset, count)


class RowSender:
    """Encodes rows into batches, and hands over those that are full.

    `partitions_of` says how many partitions a topic has, and which of them have a leader;
    `send_encoded` is a producer's. A batch takes up to `batch_size` bytes, and never more than
    `largest_batch`. Rows without key and partition go to partitions that have a leader, if any has,
    and begin with number `first` of these.
    """

    def __init__(
        self,
        partitions_of: Callable[[str], tuple[int, Sequence[int]]],
        send_encoded: Callable[[str, EncodedRecords], ProducerBatch],
        batch_size: int,
        largest_batch: int,
        first: int = 0,
    ) -> None:
        self._partitions_of = partitions_of
        self._send_encoded = send_encoded
        self._batch_size = batch_size
        self._largest_batch = largest_batch
        self._first = first
        self._encoders: dict[str, RowEncoder] = {}
        self._partition_counts: dict[str, int] = {}

    @property
    def topics(self) -> list[str]:
        """The topics that rows went to, in the order of their first rows."""
        return list(self._encoders)

    def partition_count(self, topic: str) -> int:
        """How many partitions the rows of a topic are distributed over."""
        if topic not in self._encoders:
            count, available = self._partitions_of(topic)
            size = max(MIN_BATCH_BYTES, MAX_OPEN_BYTES // count)
            size = min(size, self._batch_size, self._largest_batch)
            turns = _turns(self._first, available or range(count))
            self._encoders[topic] = kernel.RowEncoder(count, size, turns.__next__)
            self._partition_counts[topic] = count
        return self._partition_counts[topic]

    def begin_again(self, topic: str) -> list[ProducerBatch]:
        """Ask again how many partitions a topic has; rows that are encoded are sent before."""
        encoder = self._encoders.pop(topic, None)
        rest = [] if encoder is None else encoder.finish()
        return [self._send_encoded(topic, content) for content in rest]

    def encode(self, topic: str, rows: Rows, timestamp_ms: int) -> list[EncodedRecords]:
        """Encode rows; the batches that they fill."""
        self.partition_count(topic)
        return self._encoders[topic].append(rows, timestamp_ms)

    def rest(self) -> Iterator[tuple[str, EncodedRecords]]:
        """The batches that are not full, with their topics."""
        for topic, encoder in self._encoders.items():
            for content in encoder.finish():
                yield topic, content

    def send(self, topic: str, rows: Rows, timestamp_ms: int) -> list[ProducerBatch]:
        """Encode rows, and send what fills batches; blocks while buffer.memory is used up."""
        full = self.encode(topic, rows, timestamp_ms)
        return [self._send_encoded(topic, content) for content in full]

    def finish(self) -> list[ProducerBatch]:
        """Send the rest."""
        return [self._send_encoded(topic, content) for topic, content in self.rest()]


def _turns(first: int, partitions: Sequence[int]) -> Iterator[int]:
    """The partitions that rows without key go to, one after the other."""
    for number in count_from(first):
        yield partitions[number % len(partitions)]


def rows_of_values(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    partition: int | None,
    bytes_at_once: int = BYTES_AT_ONCE,
) -> Iterator[Rows]:
    """Rows of values, and of as many keys, some thousands or some megabytes at a time."""
    sizes = sizes_of(values, keys)
    start = 0
    while start < len(values):
        end = min(start + ROWS_AT_ONCE, len(values))
        while end - start > 1 and sum(sizes[start:end]) > bytes_at_once:
            end = (start + end) // 2
        yield Rows(
            end - start,
            _binary(values[start:end]),
            None if keys is None else _binary(keys[start:end]),
            None if partition is None else array("i", [partition]) * (end - start),
        )
        start = end


def sizes_of(values: Sequence[bytes | None], keys: Sequence[bytes | None] | None) -> Sequence[int]:
    """How many bytes each value and its key have."""
    sizes = [0 if value is None else len(value) for value in values]
    if keys is None:
        return sizes
    return [size + len(key or b"") for size, key in zip(sizes, keys, strict=True)]


def largest_size(values: Sequence[bytes | None], keys: Sequence[bytes | None] | None) -> int:
    """The size of the largest record, as `Producer.send` counts it."""
    return RECORD_OVERHEAD + max(sizes_of(values, keys), default=0)


def pairs_of(
    values: Iterable[Any], keys: Iterable[Any] | None
) -> tuple[list[Any], list[Any] | None]:
    """Values and as many keys, or none, as lists."""
    values = _items_of("values", values)
    keys = None if keys is None else _items_of("keys", keys)
    if keys is not None and len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys for {len(values)} values")
    return values, keys


def _items_of(what: str, items: Iterable[Any]) -> list[Any]:
    """Values or keys as a list; one text in place of several would be its letters."""
    if isinstance(items, str | bytes | bytearray | memoryview):
        raise TypeError(f"{what} is a {type(items).__name__}: several are needed, as in a list")
    return list(items)


def _binary(items: Sequence[bytes | None]) -> BinaryRows:
    column = binary_column(items)
    return BinaryRows(column.validity, column.offsets, column.data)


def serialized(
    topic: str, what: str, items: Iterable[Any], serialize: Serializer | None
) -> list[bytes | None]:
    """Each of the items as bytes, as `send` would make it."""
    if serialize is not None:
        return [serialize(topic, item) for item in items]
    return [item if item is None or type(item) is bytes else to_bytes(what, item) for item in items]
