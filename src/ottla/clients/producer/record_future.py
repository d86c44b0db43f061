"""The future of a record: what `send` returns."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.clients.producer.producer_batch import ProducerBatch
from ottla.clients.producer.record_metadata import NO_TIMESTAMP, OnDelivery, RecordMetadata
from ottla.errors import KafkaError

logger = logging.getLogger(__name__)


class RecordFuture:
    """The outcome of one `send`, with the methods of a concurrent.futures.Future.

    It is a place in a batch: what happens to the batch is recorded once, there, and a million of
    these cost no more than their slots. It cannot be cancelled, as the record is already queued.
    """

    __slots__ = ("_batch", "_index", "_key_size", "_timestamp_ms", "_value_size")

    def __init__(
        self, batch: ProducerBatch, index: int, timestamp_ms: int, key_size: int, value_size: int
    ) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms
        self._key_size = key_size
        self._value_size = value_size

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait up to `timeout` seconds; raises the record's KafkaError, or TimeoutError."""
        error = self.exception(timeout)
        if error is not None:
            raise error.with_traceback(None)
        return self._metadata()

    def exception(self, timeout: float | None = None) -> KafkaError | None:
        """Wait up to `timeout` seconds; the record's error, or None when it was written."""
        if not self.done() and not self._batch.wait(timeout):
            raise TimeoutError(f"no response for {self._batch} within {timeout} s")
        self._follow()
        return self._batch.error_of(self._index)

    def done(self) -> bool:
        self._follow()
        return self._batch.is_done

    def add_done_callback(self, callback: Callable[[RecordFuture], object]) -> None:
        """Call `callback(self)` when the outcome is known: in the I/O thread, or now if it is."""
        self.add_on_delivery(lambda metadata, error: callback(self))

    def add_on_delivery(self, on_delivery: OnDelivery) -> None:
        """The same for a callback that takes metadata and error."""
        self._follow()
        while not self._batch.add_callback(self, on_delivery):
            if self.done():
                self.call(on_delivery)
                return

    def call(self, on_delivery: OnDelivery) -> None:
        """Tell `on_delivery` the outcome. What it raises is logged: others wait for their turn."""
        error = self._batch.error_of(self._index)
        try:
            on_delivery(None if error else self._metadata(), error)
        except Exception:
            logger.exception("the delivery callback %r raised", on_delivery)

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def running(self) -> bool:
        return not self.done()

    def _follow(self) -> None:
        """A batch that was split passed its records on to smaller ones."""
        while self._batch.parts:
            self._batch, self._index = self._batch.part_of(self._index)

    def _metadata(self) -> RecordMetadata:
        batch = self._batch
        appended_ms = batch.log_append_time_ms
        return RecordMetadata(
            *batch.topic_partition,
            batch.offset_of(self._index),
            self._timestamp_ms if appended_ms == NO_TIMESTAMP else appended_ms,
            self._key_size,
            self._value_size,
        )

    def __repr__(self) -> str:
        state = "done" if self.done() else "pending"
        return f"<RecordFuture {self._batch.topic_partition} #{self._index} {state}>"
