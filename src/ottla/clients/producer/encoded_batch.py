"""A batch whose records are bytes already when it comes: see `kernel.RowEncoder`."""

from __future__ import annotations

from ottla.clients.producer.producer_batch import BatchFormat, ProducerBatch
from ottla.record import kernel
from ottla.record.batch_builder import build_batch_of_payload
from ottla.record.record_batch import RecordBatch
from ottla.record.rows import EncodedRecords
from ottla.structs import TopicPartition


class EncodedBatch(ProducerBatch):
    """Closed from the start: no record is added to it, only a header.

    Its records become tuples only where a broker finds it too large, so that it must be split.
    """

    __slots__ = ("_content", "_record_count")

    def __init__(
        self, topic_partition: TopicPartition, created_ms: int, content: EncodedRecords
    ) -> None:
        self._content: EncodedRecords | None = content
        size = len(memoryview(content.payload))
        super().__init__(topic_partition, created_ms, size)
        self.size = size
        self._record_count = content.record_count

    @property
    def record_count(self) -> int:
        return self._record_count

    def encode(self, form: BatchFormat) -> None:
        assert self._content is not None, f"{self} is done"
        _, count, payload, base_timestamp_ms, max_timestamp_ms = self._content
        self.encoded = build_batch_of_payload(
            payload,
            (base_timestamp_ms, max_timestamp_ms),
            count,
            form.codec,
            level=form.level,
            **self.header(form),
        )

    def split(self, max_size: int, now_ms: int) -> list[ProducerBatch]:
        assert self._content is not None, f"{self} is done"
        batch = RecordBatch(
            build_batch_of_payload(
                self._content.payload,
                (self._content.base_timestamp_ms, self._content.max_timestamp_ms),
                self._content.record_count,
            )
        )
        decoded = kernel.decode_records(batch, batch.payload())
        self.records = [(r.timestamp_ms, r.key, r.value, r.headers) for r in decoded]
        return super().split(max_size, now_ms)

    def _finish(self) -> None:
        super()._finish()
        self._content = None
