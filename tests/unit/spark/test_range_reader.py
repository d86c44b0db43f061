"""One range of a task: rows out of record batches, and offsets that vanish meanwhile."""

from __future__ import annotations

import pytest

from ottla.clients.consumer.position_validator import LogTruncationError
from ottla.errors import ErrorCode, KafkaError
from ottla.record.batch_builder import BatchBuilder
from ottla.spark import connections
from ottla.spark.data_loss import DataLossError
from ottla.spark.offsets import OffsetRange
from ottla.spark.options import SourceOptions
from ottla.spark.range_reader import RangesPartition, read_range, read_ranges
from ottla.structs import TopicPartition

A0 = TopicPartition("a", 0)


def wire_batch(first, end):
    builder = BatchBuilder(base_offset=first)
    for offset in range(first, end):
        builder.append(offset, b"k", b"v%d" % offset)
    return memoryview(builder.build())


class FakeReader:
    """Answers each read with what stands next in the script: batches, then maybe an error."""

    def __init__(self, *script):
        self.script = list(script)
        self.asked = []

    def read(self, where, start, end, *, isolation, topic_id):
        self.asked.append((where, start, end, isolation))
        batches, error = self.script.pop(0)
        yield from batches
        if error is not None:
            raise error


@pytest.fixture
def read(monkeypatch):
    """Reads offsets 2 to 9 of a-0 from a scripted reader; the offsets of the rows."""

    def run(fake, parse=SourceOptions.for_batch, **options):
        monkeypatch.setattr(connections, "partition_reader", lambda settings: fake)
        given = {"kafka.bootstrap.servers": "x:1", "subscribe": "a"}
        batches = read_range(parse(given | options), OffsetRange(A0, 2, 10))
        return [offset for batch in batches for offset in batch.column("offset").to_pylist()]

    return run


def out_of_range():
    return KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "offset 2 of a-0")


def test_only_the_range_is_read(read):
    """Batches that reach beyond it on both sides are cut."""
    fake = FakeReader(([wire_batch(0, 5), wire_batch(5, 12)], None))

    assert read(fake) == list(range(2, 10))
    assert fake.asked == [(A0, 2, 10, "read_uncommitted")]


def test_rows_have_the_columns_that_are_named(monkeypatch):
    """The position is known without them."""
    monkeypatch.setattr(
        connections, "partition_reader", lambda settings: FakeReader(([wire_batch(0, 5)], None))
    )
    given = {"kafka.bootstrap.servers": "x:1", "subscribe": "a", "columns": "partition,value"}
    task = RangesPartition((OffsetRange(A0, 2, 5),), {})
    (batch,) = read_ranges(SourceOptions.for_batch(given), task)
    assert batch.schema.names == ["partition", "value"]
    assert batch.num_rows == 3


def test_records_that_vanish_meanwhile_are_lost_data(read, admin):
    """Planned, then deleted before the task came to them: an error that names them."""
    admin.log("a", (6, 12))

    with pytest.raises(DataLossError, match="offsets 2 to 5 of a-0 are gone; its log begins at 6"):
        read(FakeReader(([], out_of_range())))


def test_reading_goes_on_behind_what_is_lost(read, admin):
    """The rest of the range is read with failOnDataLoss=false."""
    admin.log("a", (6, 12))
    fake = FakeReader(([], out_of_range()), ([wire_batch(6, 12)], None))

    assert read(fake, failOnDataLoss="false") == [6, 7, 8, 9]
    assert fake.asked[1] == (A0, 6, 10, "read_uncommitted")


def test_shorter_log_is_lost_data_too(read, admin):
    """A topic that was made anew has no such offsets, and asking again does not bring them."""
    admin.log("a", (0, 1))

    with pytest.raises(DataLossError, match="offsets 2 to 9 of a-0 are not there"):
        read(FakeReader(([], out_of_range())))
    assert read(FakeReader(([], out_of_range())), failOnDataLoss="false") == []


def test_other_errors_are_not_hidden(read):
    """Nothing but lost offsets is made up for."""
    error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "a")

    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        read(FakeReader(([], error)), failOnDataLoss="false")


def cut(position, parting):
    """What a reader says of a new leader's log; it has handed out whole Arrow batches only."""
    return LogTruncationError(A0, position, parting)


def test_log_that_is_cut_while_it_is_read_is_lost_data(read):
    """Its new leader has other records at offsets that were read."""
    fake = FakeReader(([wire_batch(2, 6)], cut(6, 4)))

    with pytest.raises(DataLossError, match=r"a-0 was cut .* offset 4 on, and was read up to 6"):
        read(fake)


def test_batch_goes_on_in_the_new_log_as_far_as_it_reaches(read, admin):
    """The batch goes on from where the logs part, with failOnDataLoss=false."""
    admin.log("a", (0, 8))
    fake = FakeReader(([], cut(6, 4)), ([wire_batch(2, 8)], None))

    assert read(fake, failOnDataLoss="false") == [2, 3, 4, 5, 6, 7]
    assert fake.asked[1] == (A0, 2, 8, "read_uncommitted")


@pytest.mark.parametrize(("parting", "found"), [(4, [2, 3]), (None, [])])
def test_stream_leaves_the_new_log_to_the_next_micro_batch(read, parting, found):
    """That one begins where the logs part: what it will read is not read twice."""
    fake = FakeReader(([], cut(6, parting)), ([wire_batch(0, 5)], None))

    assert read(fake, SourceOptions.for_stream, failOnDataLoss="false") == found
