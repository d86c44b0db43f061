"""Writes the rows of one task: Arrow batches to record batches, and these to a producer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ottla.clients.producer.bulk import DEFAULT_BATCH_BYTES, RowSender
from ottla.config.client_config import ProducerConfig
from ottla.record.record_batch import BATCH_OVERHEAD
from ottla.record.rows import partition_outside, rows_of
from ottla.runtime import SystemClock
from ottla.spark.sink_options import SinkOptions
from ottla.structs import NO_LEADER

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.clients.producer.producer import Producer
    from ottla.clients.producer.producer_batch import ProducerBatch

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
        self._producer = producer
        self._options = options
        batch_size = int(options.client.get("batch.size", DEFAULT_BATCH_BYTES))
        request_size = options.client.get("max.request.size", DEFAULT_REQUEST_BYTES)
        largest_batch = int(request_size) - BATCH_OVERHEAD
        self._sender = RowSender(
            self._partitions, producer.send_encoded, batch_size, largest_batch, task
        )
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
        return self._sender.topics

    def finish(self) -> None:
        """Send the rest and wait until all is delivered; raises the first error of a batch."""
        self._note(self._sender.finish())
        self._producer.flush()
        self._check_delivered()

    def _partitions(self, topic: str) -> tuple[int, list[int]]:
        """How many partitions a topic has, and those with a leader."""
        partitions = self._producer.partitions_for(topic)
        return len(partitions), [each.partition for each in partitions if each.leader != NO_LEADER]

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
        partitions = columns.get("partition")
        if partitions is not None:
            self._check_partitions(topic, partitions)
        headers = columns.get("headers") if self._options.include_headers else None
        if headers is not None and headers.flatten().field(0).null_count:
            raise RowError("column headers: a header has no key")
        rows = rows_of(columns["value"], columns.get("key"), partitions, headers)
        self._note(self._sender.send(topic, rows, now_ms))

    def _check_partitions(self, topic: str, partitions: Any) -> None:
        """Refuse rows of partitions that the topic does not have, also after asking again."""
        wrong = partition_outside(partitions, self._sender.partition_count(topic))
        if wrong is None:
            return
        if wrong >= 0:
            # This process keeps its producer: partitions may have been added since it asked.
            self._producer.partitions_for(topic, wrong)
            self._note(self._sender.begin_again(topic))
            wrong = partition_outside(partitions, self._sender.partition_count(topic))
        if wrong is not None:
            count = self._sender.partition_count(topic)
            raise RowError(f"column partition: {wrong} of topic {topic}, which has {count}")

    def _note(self, batches: list[ProducerBatch]) -> None:
        self._sent += batches
        while self._sent and self._sent[0].is_done:
            self._check(self._sent.popleft())

    def _check_delivered(self) -> None:
        while self._sent:
            self._check(self._sent.popleft())

    def _check(self, batch: ProducerBatch) -> None:
        error = batch.failure()
        if error is not None:
            raise error
