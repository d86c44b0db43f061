"""A batch and the futures of its records: what each of them says, before and after."""

from __future__ import annotations

import pytest

from ottla.clients.producer.producer_batch import (
    BatchFormat,
    ProducerBatch,
    RecordFuture,
    RecordMetadata,
    record_size,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.record.record_batch import BATCH_OVERHEAD, RecordBatch
from ottla.structs import NO_OFFSET, NO_TIMESTAMP, TopicPartition

REFUSED = KafkaError(ErrorCode.INVALID_RECORD, "no")


def batch_of(count: int, kind: type[ProducerBatch] = ProducerBatch) -> ProducerBatch:
    batch = kind(TopicPartition("t", 0), 0, 100)
    batch.records = [(0, None, b"%d" % number, ()) for number in range(count)]
    batch.size = sum(map(record_size, batch.records))
    return batch


def future_of(batch: ProducerBatch, index: int) -> RecordFuture:
    return RecordFuture(batch, index, 5, -1, 1)


@pytest.mark.parametrize("is_failed", [False, True])
def test_batch_that_was_not_written_has_no_offset(is_failed):
    """The same is true of the time at which the log took it."""
    batch = batch_of(2)
    if is_failed:
        batch.fail(REFUSED)

    assert (batch.offset_of(1), batch.log_append_time_ms) == (NO_OFFSET, NO_TIMESTAMP)


@pytest.mark.parametrize("is_failed", [False, True])
def test_batch_that_is_done_lets_go_of_its_records(is_failed):
    """Its futures may be kept for long, and the bytes of the records must not be."""
    batch = batch_of(2)
    future = future_of(batch, 1)
    batch.encoded = b"x"
    if is_failed:
        batch.fail(REFUSED)
    else:
        batch.complete(10)

    assert (batch.record_count, batch.encoded) == (0, None)
    assert future.done()
    assert future.exception() is (REFUSED if is_failed else None)


@pytest.mark.parametrize(("more", "codec"), [(0, "GZIP"), (-1, "NONE")])
def test_codec_is_left_out_where_it_makes_a_batch_too_large(more, codec):
    """A batch of just the largest size keeps it."""
    batch = batch_of(2)
    form = BatchFormat(CompressionType.GZIP, None, is_transactional=False, most_bytes=1 << 20)
    batch.encode(form)
    batch.encode(form._replace(most_bytes=len(batch.encoded) + more))

    assert RecordBatch(batch.encoded).compression is CompressionType[codec]


LONG = b"x" * 300


@pytest.mark.parametrize(
    "record",
    [
        (0, None, None, ()),
        (0, LONG, None, ()),
        (0, None, LONG, ()),
        (0, None, None, (("\U0001f642" * 300, None),)),
        (0, None, None, (("a", LONG), ("b", LONG))),
    ],
)
def test_record_takes_up_no_more_than_its_estimated_size(record):
    """Names of headers may need four bytes for a character."""
    assert len(build_batch([record])) - BATCH_OVERHEAD <= record_size(record)


class SplitWhileWaitedFor(ProducerBatch):
    """A broker finds it too large while a thread waits; the second part fails."""

    def wait(self, timeout: float | None) -> bool:
        first, second = self.split(1, 0)
        first.complete(10)
        second.fail(REFUSED)
        return super().wait(timeout)


def test_future_follows_its_record_while_it_is_waited_for():
    """The outcome is that of the part which holds the record."""
    assert future_of(batch_of(2, SplitWhileWaitedFor), 0).result().offset == 10
    assert future_of(batch_of(2, SplitWhileWaitedFor), 1).exception() is REFUSED


def test_callback_that_comes_after_a_split_hears_of_the_part():
    """Whether the part is done by then or not."""
    batch, seen = batch_of(2), []
    futures = [future_of(batch, index) for index in range(2)]
    first, second = batch.split(1, 0)
    first.complete(10)
    for future in futures:
        future.add_on_delivery(lambda metadata, error: seen.append((metadata, error)))
    second.fail(REFUSED)

    assert seen == [(futures[0].result(), None), (None, REFUSED)]


def test_each_record_of_a_refused_batch_has_its_own_reason():
    """Those that a broker does not name were refused for the sake of another (KIP-467)."""
    batch = batch_of(2)
    futures = [future_of(batch, index) for index in range(2)]
    batch.fail(KafkaError(ErrorCode.INVALID_TIMESTAMP, "no"), {1: "it is too old"})
    first, second = [future.exception() for future in futures]

    assert (first.error, first.message) == (
        ErrorCode.INVALID_TIMESTAMP,
        "another record of the same batch was refused",
    )
    assert (second.error, second.message) == (ErrorCode.INVALID_RECORD, "it is too old")


def test_failure_of_a_batch_is_its_own_or_that_of_a_part():
    """There is none while nothing has failed."""
    whole, batch = batch_of(1), batch_of(2)
    first, second = batch.split(1, 0)
    first.complete(0)
    assert (whole.failure(), batch.failure()) == (None, None)
    whole.fail(REFUSED)
    second.fail(REFUSED)

    assert whole.failure() is batch.failure() is REFUSED


@pytest.mark.parametrize(("log_append_time_ms", "expected"), [(NO_TIMESTAMP, 5), (777, 777)])
def test_time_of_a_record_is_its_own_unless_the_log_decides(log_append_time_ms, expected):
    """A record that was written cannot be cancelled either."""
    batch = batch_of(3)
    future = future_of(batch, 2)
    assert (future.cancel(), future.cancelled(), future.running()) == (False, False, True)
    batch.complete(40, log_append_time_ms)

    assert future.result() == RecordMetadata("t", 0, 42, expected, -1, 1)
    assert (future.cancel(), future.cancelled(), future.running()) == (False, False, False)
