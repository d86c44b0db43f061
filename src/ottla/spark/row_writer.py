"""Writes the rows of one task: Arrow batches to record batches, and these to a producer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ottla.config.client_config import ProducerConfig
from ottla.record.record_batch import BATCH_OVERHEAD
from ottla.record.rows import EncodedRecords
from ottla.runtime import SystemClock
from ottla.spark.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.clients.producer.producer import Producer
    from ottla.clients.producer.producer_batch import ProducerBatch
    from ottla.record.rows import RowEncoder

# All batches being filled for the partitions of a topic together take no more than this.
MAX_OPEN_BYTES = 32 * 1024 * 1024
MIN_BATCH_BYTES = 16 * 1024
# A producer's 16 KiB are for records that come one by one: here all are there at once.
DEFAULT_BATCH_BYTES = 512 * 1024
DEFAULT_REQUEST_BYTES: int = ProducerConfig.keys["max.request.size"].default


class RowError(ValueError):
    """A row that cannot become a record; the text names the column and the rule."""


class RowWriter:
    """Sends the rows of one task; `finish` must be called to send the last of them.

    Rows without key begin with partition number `task`, so that tasks spread over a topic.
    Invariant: `_sent` has the batches that are not known to be delivered, oldest first.
    """

    def __init__(self, producer: Producer, options: SinkOptions, task: int = 0) -> None:
        self._clock = SystemClock()
        self._task = task
        self._producer = producer
        self._options = options
        self._batch_size = int(options.client.get("batch.size", DEFAULT_BATCH_BYTES))
        request_size = options.client.get("max.request.size", DEFAULT_REQUEST_BYTES)
        self._largest_batch = int(request_size) - BATCH_OVERHEAD
        self._encoders: dict[str, RowEncoder] = {}
        self._partition_counts: dict[str, int] = {}
        self._sent: deque[ProducerBatch] = deque()
        self.row_count = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Encode a batch of rows, and send full batches; blocks while buffer.memory is used up."""
        columns = {name.lower(): batch.column(n) for n, name in enumerate(batch.schema.names)}
        now_ms = self._clock.now_ms()
        for topic, rows in self._by_topic(columns):
            self._write_topic(topic, rows, now_ms)
        self.row_count += batch.num_rows

    @property
    def topics(self) -> list[str]:
        """The topics that rows went to, in the order of their first rows."""
        return list(self._encoders)

    def finish(self) -> None:
        """Send the rest and wait until all is delivered; raises the first error of a batch."""
        for topic, encoder in self._encoders.items():
            self._send(topic, encoder.finish())
        self._producer.flush()
        self._check_delivered()

    def _by_topic(self, columns: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """The rows of each topic, in order."""
        if self._options.topic is not None:
            yield self._options.topic, columns
            return
        import pyarrow.compute as pc

        encoded = columns["topic"].dictionary_encode()
        if encoded.null_count:
            raise RowError("column topic: a row has none; set the option topic, or fill the column")
        topics = encoded.dictionary.to_pylist()
        if len(topics) <= 1:
            for topic in topics:
                yield topic, columns
            return
        order = pc.array_sort_indices(encoded.indices)
        counts = {
            each["values"]: each["counts"] for each in encoded.indices.value_counts().to_pylist()
        }
        start = 0
        for number, topic in enumerate(topics):
            places = order.slice(start, counts[number])
            start += counts[number]
            yield topic, {name: column.take(places) for name, column in columns.items()}

    def _write_topic(self, topic: str, columns: dict[str, Any], now_ms: int) -> None:
        from ottla.record.rows import rows_of

        encoder = self._encoders.get(topic) or self._new_encoder(topic)
        partitions = columns.get("partition")
        if partitions is not None:
            self._check_partitions(topic, partitions)
        headers = columns.get("headers") if self._options.include_headers else None
        if headers is not None and headers.flatten().field(0).null_count:
            raise RowError("column headers: a header has no key")
        rows = rows_of(columns["value"], columns.get("key"), partitions, headers)
        self._send(topic, encoder.append(rows, now_ms))

    def _new_encoder(self, topic: str) -> RowEncoder:
        from ottla.record import kernel

        count = len(self._producer.partitions_for(topic))
        size = max(MIN_BATCH_BYTES, min(self._batch_size, MAX_OPEN_BYTES // count))
        size = min(size, self._largest_batch)
        self._partition_counts[topic] = count
        self._encoders[topic] = kernel.RowEncoder(count, size, self._turns(count).__next__)
        return self._encoders[topic]

    def _turns(self, count: int) -> Iterator[int]:
        """The partitions that rows without key go to, one after the other."""
        partition = self._task
        while True:
            yield partition % count
            partition += 1

    def _check_partitions(self, topic: str, partitions: Any) -> None:
        import pyarrow.compute as pc

        count = self._partition_counts[topic]
        limits = pc.min_max(partitions).as_py()
        for wrong in (limits["min"], limits["max"]):
            if wrong is not None and not 0 <= wrong < count:
                raise RowError(f"column partition: {wrong} of topic {topic}, which has {count}")

    def _send(self, topic: str, full: list[EncodedRecords]) -> None:
        for content in full:
            self._sent.append(self._producer.send_encoded(topic, content))
        while self._sent and self._sent[0].is_done:
            self._check(self._sent.popleft())

    def _check_delivered(self) -> None:
        while self._sent:
            self._check(self._sent.popleft())

    def _check(self, batch: ProducerBatch) -> None:
        error = batch.failure()
        if error is not None:
            raise error
