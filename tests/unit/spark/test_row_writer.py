"""A task's rows on their way to a producer, which stands here as a list."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ottla import Admin, Producer
from ottla.clients.metadata import PartitionInfo
from ottla.errors import ErrorCode, KafkaError
from ottla.record import kernel
from ottla.record.batch_builder import build_batch_of_payload
from ottla.record.record_batch import BATCH_OVERHEAD, RecordBatch
from ottla.spark.row_writer import RowError, RowWriter
from ottla.spark.sink_options import SinkOptions
from ottla.structs import NO_LEADER
from ottla.testing import InProcessBroker

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Sent:
    """What a producer returns for a batch; with an error it was not delivered."""

    def __init__(self, error):
        self.is_done, self.error = True, error

    def failure(self):
        return self.error


class ListedProducer:
    """`sent` has topic, partition and values of every batch; topics have two partitions."""

    def __init__(self, error=None):
        self.sent, self.error, self.flushes = [], error, 0

    def partitions_for(self, topic, partition=None):
        leaders = {"half": (NO_LEADER, 0)}.get(topic, (0, 0))
        return [
            PartitionInfo(topic, partition, leader, 0, (0,), (0,), ())
            for partition, leader in enumerate(leaders)
        ]

    def send_encoded(self, topic, content):
        times = (content.base_timestamp_ms, content.max_timestamp_ms)
        batch = RecordBatch(build_batch_of_payload(content.payload, times, content.record_count))
        records = kernel.decode_records(batch, batch.payload())
        self.sent.append((topic, content.partition, [record.value for record in records]))
        return Sent(self.error)

    def flush(self):
        self.flushes += 1


def options(topic=None, **client):
    return SinkOptions(topic, True, False, "", client)


def write(columns, chosen=None, error=None):
    producer = ListedProducer(error)
    writer = RowWriter(producer, chosen or options())
    writer.write(pa.RecordBatch.from_pydict(columns))
    writer.finish()
    assert producer.flushes == 1
    return producer.sent


def test_each_row_goes_to_its_topic_in_order():
    """However the topics are mixed; the column's name may be in any case."""
    sent = write(
        {
            "value": [b"1", b"2", b"3", b"4"],
            "Topic": ["b", "a", "b", "a"],
            "partition": pa.array([0, 1, 0, 1], pa.int32()),
        }
    )

    assert sorted(sent) == [("a", 1, [b"2", b"4"]), ("b", 0, [b"1", b"3"])]


def test_rows_without_key_pass_over_partitions_without_a_leader():
    """They would wait for delivery.timeout.ms and fail the task."""
    sent = write({"value": [b"x" * 600] * 40}, options("half", **{"batch.size": "1000"}))
    assert {partition for _, partition, _ in sent} == {1}


def test_one_topic_needs_no_column():
    """The option wins over a column `topic` where there is one."""
    columns = {"value": ["1", "2"], "topic": ["b", None], "partition": [1, 1]}

    assert write(columns, options("a")) == [("a", 1, [b"1", b"2"])]


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ({"batch.size": "4000000"}, (1 << 20) - BATCH_OVERHEAD),
        ({"batch.size": "4000000", "max.request.size": "9000"}, 9000 - BATCH_OVERHEAD),
        ({"max.request.size": "100000"}, 100_000 - BATCH_OVERHEAD),
    ],
)
def test_batches_fit_the_requests_of_their_producer(settings, most):
    """It would refuse a larger one, although each row is small."""
    values = {"value": [bytes(1000)] * 3000}
    sizes = [sum(map(len, v)) for _, _, v in write(values, options("a", **settings))]

    assert sum(sizes) == 3_000_000
    assert 0.8 * most < max(sizes) <= most


def test_batches_are_as_large_as_the_setting_says():
    """Batches of many partitions are smaller, so that they do not fill the memory."""
    values = {"value": [b"x" * 10_000] * 8, "partition": [0] * 8}

    sizes = [len(v) for _, _, v in write(values, options("a", **{"batch.size": "40000"}))]
    assert sizes == [3, 3, 2]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"value": ["1"], "topic": pa.array([None], pa.string())}, "column topic: a row has none"),
        (
            {"value": ["1"], "topic": ["a"], "partition": [2]},
            "partition: 2 of topic a, which has 2",
        ),
        ({"value": ["1"], "topic": ["a"], "partition": [-1]}, "partition: -1 of topic a"),
        (
            {
                "value": ["1"],
                "topic": ["a"],
                "headers": pa.array([[{"key": None, "value": b""}]], HEADERS),
            },
            "column headers: a header has no key",
        ),
    ],
)
def test_rows_that_cannot_be_records_are_named(columns, said):
    """Column, value and rule."""
    with pytest.raises(RowError, match=said):
        write(columns)


@pytest.fixture
def live():
    """A broker with a topic of two partitions, and a producer that knows it."""
    with InProcessBroker() as broker:
        broker.create_topic("a", 2)
        with Producer(broker.bootstrap_servers) as producer:
            producer.partitions_for("a")
            yield broker, producer


def batch(value, partition):
    return pa.RecordBatch.from_pydict({"value": [value], "partition": [partition]})


@pytest.mark.parametrize("is_busy", [False, True])
@pytest.mark.parametrize("partition", [2, 5])
def test_rows_may_go_to_partitions_that_were_added_meanwhile(live, is_busy, partition):
    """The producer of a process lives on, from one micro-batch to the next."""
    broker, producer = live
    writer = RowWriter(producer, options("a"))
    if is_busy:
        writer.write(batch(b"before", 1))
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_partitions({"a": 6})

    writer.write(batch(b"added", partition))
    writer.write(batch(b"behind", 1))
    writer.finish()

    found = [(record.partition, record.value) for record in broker.records("a")]
    before = [(1, b"before")] if is_busy else []
    assert sorted(found) == sorted([*before, (partition, b"added"), (1, b"behind")])


def test_partition_that_was_not_added_is_refused(live):
    """After asking again."""
    broker, producer = live
    writer = RowWriter(producer, options("a"))
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_partitions({"a": 4})

    with pytest.raises(RowError, match="column partition: 4 of topic a, which has 4"):
        writer.write(batch(b"x", 4))


def test_what_was_not_delivered_fails_the_task():
    """Spark then runs it again."""
    with pytest.raises(KafkaError, match="too late"):
        write({"value": ["1"]}, options("a"), KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too late"))
