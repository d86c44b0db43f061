"""The Spark source against a broker: every option, streams with restarts, lost data, sentences."""

from __future__ import annotations

import json
import queue
import time

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import ottla
from ottla.pipelines.patient_query import PatientQuery
from ottla.testing import wait_until

pytestmark = pytest.mark.spark

# As the guide of Spark's Kafka source lists them; `headers` is there only with includeHeaders.
KAFKA_COLUMNS = [
    StructField("key", BinaryType(), True),
    StructField("value", BinaryType(), True),
    StructField("topic", StringType(), True),
    StructField("partition", IntegerType(), True),
    StructField("offset", LongType(), True),
    StructField("timestamp", TimestampType(), True),
    StructField("timestampType", IntegerType(), True),
]
HEADERS = StructField(
    "headers",
    ArrayType(
        StructType(
            [StructField("key", StringType(), True), StructField("value", BinaryType(), True)]
        ),
        True,
    ),
    True,
)
WAIT_S = 60
LIMIT_S = 300
FIRST_MS = int(time.time() * 1000) - 3_600_000


class Topic:
    """A topic of one test, and the ways to read it."""

    def __init__(self, spark, servers, name, partitions=2):
        self.spark, self.servers, self.name = spark, servers, name
        with ottla.Admin(servers) as admin:
            admin.create_topics([ottla.NewTopic(name, partitions)])

    def fill(self, counts, first=0, **producer_settings):
        """`counts[p]` records in partition p; value "p:n", a second between two timestamps."""
        with ottla.Producer(self.servers, **producer_settings) as producer:
            for partition, count in enumerate(counts):
                for number in range(first, first + count):
                    producer.send(
                        self.name,
                        f"{partition}:{number}".encode(),
                        partition=partition,
                        timestamp_ms=FIRST_MS + 1000 * number,
                    )

    def options(self, **options):
        defaults = {"kafka.bootstrap.servers": self.servers, "subscribe": self.name}
        if {"subscribePattern", "assign"} & options.keys():
            del defaults["subscribe"]
        return defaults | {name: str(value) for name, value in options.items()}

    def batch(self, **options):
        return self.spark.read.format("ottla").options(**self.options(**options)).load()

    def stream(self, **options):
        return self.spark.readStream.format("ottla").options(**self.options(**options)).load()

    def places(self, **options):
        """Partition and offset of each record that a batch reads, sorted."""
        rows = self.batch(**options).select("partition", "offset").collect()
        return sorted((row.partition, row.offset) for row in rows)

    def by_partition(self, numbers):
        """JSON with a number for each partition of this topic."""
        return json.dumps({self.name: {str(p): number for p, number in numbers.items()}})


def topic_ids(*topics: Topic) -> dict[str, str]:
    """The ids of topics by name, as offsets have them."""
    with ottla.Admin(topics[0].servers) as admin:
        described = admin.describe_topics([topic.name for topic in topics])
    return {name: str(each.topic_id) for name, each in described.items()}


@pytest.fixture
def topic(spark, broker, unique):
    return Topic(spark, broker.bootstrap_servers, unique("spark"))


@pytest.fixture(scope="module")
def filled(spark, broker):
    """A topic with ten records in partition 0 and five in partition 1, for tests that only read."""
    made = Topic(spark, broker.bootstrap_servers, "spark-filled")
    made.fill([10, 5])
    return made


def places(*ranges):
    """Every place of the ranges (partition, first offset, end offset)."""
    return [(partition, offset) for partition, start, end in ranges for offset in range(start, end)]


def test_schema_is_that_of_the_kafka_source(filled):
    """Names, types and nullability are those that Spark documents, headers only when asked for."""
    assert filled.batch().schema == StructType(KAFKA_COLUMNS)
    assert filled.batch(includeHeaders="true").schema == StructType([*KAFKA_COLUMNS, HEADERS])
    assert filled.stream().schema == StructType(KAFKA_COLUMNS)


def test_columns_are_those_that_are_named(filled):
    """In this order, from a batch and from a stream; those of a query need not be all of them."""
    named = filled.batch(columns="offset,Value")
    assert named.schema == StructType([KAFKA_COLUMNS[4], KAFKA_COLUMNS[1]])
    assert filled.stream(columns="headers").schema == StructType([HEADERS])
    rows = named.where("offset >= 8").collect()
    assert [(row.offset, bytes(row.value)) for row in rows] == [(8, b"0:8"), (9, b"0:9")]
    assert filled.batch(columns="topic").count() == 15


def test_source_registers_itself(spark, filled):
    """A fresh session knows the format without being told, in any case and in SQL."""
    fresh = spark.newSession()

    loaded = fresh.read.format("OTTLA").options(**filled.options()).load()
    options = ", ".join(f"`{name}` '{value}'" for name, value in filled.options().items())
    fresh.sql(f"CREATE TEMPORARY VIEW filled USING ottla OPTIONS ({options})")

    assert loaded.count() == 15
    assert fresh.sql("SELECT max(offset) FROM filled WHERE partition = 1").head()[0] == 4


def test_columns_hold_what_was_sent(topic):
    """Keys, values, headers, nulls and timestamps come back as they were sent."""
    sent = [
        (b"k", b"v", (("h", b"1"), ("h", None)), FIRST_MS),
        (None, b"", (), FIRST_MS + 1),
        (b"", None, (("é", b"\xff\x00"),), FIRST_MS + 2),
    ]
    with ottla.Producer(topic.servers) as producer:
        for key, value, headers, timestamp_ms in sent:
            producer.send(
                topic.name, value, key=key, headers=headers, partition=1, timestamp_ms=timestamp_ms
            )

    rows = topic.batch(includeHeaders="true").orderBy("offset").collect()

    got = [
        (
            row.key if row.key is None else bytes(row.key),
            row.value if row.value is None else bytes(row.value),
            tuple(
                (h.key, h.value if h.value is None else bytes(h.value)) for h in row.headers or ()
            ),
        )
        for row in rows
    ]
    assert got == [record[:3] for record in sent]
    assert rows[1].headers is None
    assert [row.offset for row in rows] == [0, 1, 2]
    assert {(row.topic, row.partition, row.timestampType) for row in rows} == {(topic.name, 1, 0)}
    assert [round(row.timestamp.timestamp() * 1000) for row in rows] == [
        FIRST_MS + n for n in range(3)
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(topic, codec):
    """Batches of each codec become rows; ranges that cut batches hold only their own offsets."""
    topic.fill([300, 200], compression_type=codec, linger_ms=50)

    assert topic.places() == places((0, 0, 300), (1, 0, 200))
    assert topic.places(
        startingOffsets=topic.by_partition({0: 17, 1: 199}),
        endingOffsets=topic.by_partition({0: 283, 1: -1}),
    ) == places((0, 17, 283), (1, 199, 200))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, [(0, 0, 10), (1, 0, 5)]),
        ({"startingOffsets": {0: 3, 1: -2}}, [(0, 3, 10), (1, 0, 5)]),
        ({"endingOffsets": {0: 4, 1: -1}}, [(0, 0, 4), (1, 0, 5)]),
        ({"startingOffsets": {0: 10, 1: 5}}, []),
        ({"startingTimestamp": FIRST_MS + 3500}, [(0, 4, 10), (1, 4, 5)]),
        ({"endingTimestamp": FIRST_MS + 6000}, [(0, 0, 6), (1, 0, 5)]),
        ({"startingOffsetsByTimestamp": {0: FIRST_MS + 8000, 1: 0}}, [(0, 8, 10), (1, 0, 5)]),
        ({"endingOffsetsByTimestamp": {0: FIRST_MS, 1: FIRST_MS + 1}}, [(1, 0, 1)]),
        (
            {
                "startingTimestamp": FIRST_MS + 7000,
                "startingOffsetsByTimestampStrategy": "latest",
                "startingOffsets": {0: 1, 1: 1},
            },
            [(0, 7, 10)],
        ),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_bounds_select_offsets(filled, options, expected):
    """Each way to say where a batch begins and ends; a timestamp goes before offsets."""
    given = {
        name: filled.by_partition(value) if isinstance(value, dict) else value
        for name, value in options.items()
    }

    assert filled.places(**given) == places(*expected)


def test_topics_are_chosen_by_pattern_and_assignment(filled):
    """A pattern is found in the name; an assignment reads only its partitions."""
    assert len(filled.places(subscribePattern="spark-fil{1}.*")) == 15
    assert len(filled.places(subscribePattern="rk-fil")) == 15
    assert filled.places(subscribePattern="^rk-fil") == []
    assert filled.places(assign=json.dumps({filled.name: [1]})) == places((1, 0, 5))


def test_min_partitions_splits_ranges(filled):
    """More tasks than partitions read the same records; few records share a task."""
    loaded = filled.batch(minPartitions=6)

    assert loaded.rdd.getNumPartitions() >= 6
    assert filled.places(minPartitions=6) == places((0, 0, 10), (1, 0, 5))
    assert filled.batch().rdd.getNumPartitions() == 1


def run_to_end(stream, checkpoint, out):
    """One run with AvailableNow into a memory list; offsets and the size of every batch."""
    sizes = []

    def keep(batch, batch_id):
        rows = [(row.partition, row.offset) for row in batch.collect()]
        sizes.append(len(rows))
        out.extend(rows)

    writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    query = PatientQuery(writer.trigger(availableNow=True))
    while not query.wait(WAIT_S):
        pass
    return sizes, query.current


def test_stream_reads_each_record_once_over_restarts(topic, tmp_path):
    """Limited batches, restarts from the checkpoint, a new partition: each record comes once."""
    rows = []
    topic.fill([60, 30])
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 40}

    sizes, query = run_to_end(topic.stream(**options), tmp_path, rows)

    assert sizes == [40, 40, 10]
    assert sorted(rows) == places((0, 0, 60), (1, 0, 30))
    source = query.lastProgress.sources[0]
    assert json.loads(source.endOffset) == {
        topic.name: {"0": 60, "1": 30},
        "leader epochs": {topic.name: {"0": 0, "1": 0}},
        "topic ids": topic_ids(topic),
    }
    assert json.loads(source.latestOffset) == {topic.name: {"0": 60, "1": 30}}

    assert run_to_end(topic.stream(**options), tmp_path, rows)[0] == []

    with ottla.Admin(topic.servers) as admin:
        admin.create_partitions({topic.name: 3})
    topic.fill([5, 0, 20], first=60)
    run_to_end(topic.stream(**options), tmp_path, rows)

    assert sorted(rows) == places((0, 0, 65), (1, 0, 30), (2, 0, 20))


def test_running_stream_finds_new_topics_and_partitions(spark, broker, unique, tmp_path):
    """What a pattern comes to match is read from its beginning; lag is there for all to see."""
    stem, servers = unique("growing"), broker.bootstrap_servers
    first = Topic(spark, servers, f"{stem}.a", partitions=1)
    first.fill([3])
    arrived = queue.Queue()

    def keep(batch, batch_id):
        for row in batch.select("topic", "partition", "offset").collect():
            arrived.put(tuple(row))

    def next_rows(count):
        def go_on():
            assert not query.wait(1)

        wait_until(
            lambda: arrived.qsize() >= count,
            f"{count} rows",
            LIMIT_S,
            seen=arrived.qsize,
            meanwhile=go_on,
        )
        return sorted(arrived.get() for _ in range(count))

    group = {"kafka.group.id": stem}
    stream = first.stream(subscribePattern=f"{stem}.*", startingOffsets="earliest", **group)
    writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path))
    query = PatientQuery(writer)
    try:
        assert next_rows(3) == [(first.name, 0, n) for n in range(3)]
        with ottla.Admin(servers) as admin:
            admin.create_partitions({first.name: 2})
        first.fill([0, 2])
        assert next_rows(2) == [(first.name, 1, n) for n in range(2)]
        second = Topic(spark, servers, f"{stem}.b", partitions=1)
        second.fill([2])
        assert next_rows(2) == [(second.name, 0, n) for n in range(2)]
        query.current.processAllAvailable()
    finally:
        query.stop()

    source = query.current.lastProgress.sources[0]
    reached = {first.name: {"0": 3, "1": 2}, second.name: {"0": 2}}
    epochs = {first.name: {"0": 0, "1": 0}, second.name: {"0": 0}}
    assert json.loads(source.latestOffset) == reached
    assert json.loads(source.endOffset) == {
        **reached,
        "leader epochs": epochs,
        "topic ids": topic_ids(first, second),
    }
    with ottla.Admin(servers) as admin:
        told = admin.list_group_offsets(stem)
    assert {(*where, each.offset) for where, each in told.items()} == {
        (first.name, 0, 3),
        (first.name, 1, 2),
        (second.name, 0, 2),
    }


def test_stream_begins_at_the_latest_offset(topic, tmp_path):
    """Without startingOffsets a stream reads only what comes after its first start."""
    rows = []
    topic.fill([5, 5])
    run_to_end(topic.stream(), tmp_path, rows)
    assert rows == []

    topic.fill([2, 1], first=5)
    run_to_end(topic.stream(), tmp_path, rows)

    assert sorted(rows) == places((0, 5, 7), (1, 5, 6))


def sentence(error):
    """The last line of Python's in an error of Spark's."""
    return next(line for line in str(error.value).splitlines() if line.startswith("ottla."))


def test_lost_records_fail_the_query_or_are_left_out(topic, tmp_path):
    """Deleted offsets are named; with failOnDataLoss=false the others are read."""
    rows = []
    topic.fill([4, 4])
    run_to_end(topic.stream(startingOffsets="earliest"), tmp_path / "a", rows)
    topic.fill([6, 0], first=4)
    with ottla.Admin(topic.servers) as admin:
        admin.delete_records({ottla.TopicPartition(topic.name, 0): 7})
    start = topic.by_partition({0: 2, 1: 0})

    with pytest.raises(PySparkException) as error:
        topic.places(startingOffsets=start)
    assert f"offsets 2 to 6 of {topic.name}-0 are not there; its log begins at 7" in sentence(error)
    kept = topic.places(startingOffsets=start, failOnDataLoss="false")
    assert kept == places((0, 7, 10), (1, 0, 4))

    with pytest.raises(PySparkException) as error:
        run_to_end(topic.stream(startingOffsets="earliest"), tmp_path / "a", [])
    assert f"offsets 4 to 6 of {topic.name}-0 are gone; its log begins at 7" in sentence(error)
    rows.clear()
    run_to_end(
        topic.stream(startingOffsets="earliest", failOnDataLoss="false"), tmp_path / "a", rows
    )
    assert sorted(rows) == places((0, 7, 10))


def test_offsets_beyond_the_end_are_lost_data(filled):
    """A batch that shall end behind the last record says so."""
    with pytest.raises(PySparkException) as error:
        filled.places(endingOffsets=filled.by_partition({0: 12, 1: -1}))

    assert f"offsets 10 to 11 of {filled.name}-0 are not there" in sentence(error)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"subscribe": "no-such-topic"},
            "subscribe=no-such-topic: there is no topic no-such-topic",
        ),
        ({"startingOffsets": "latest"}, "startingOffsets=latest: a batch cannot begin at"),
        ({"minPartitions": "none"}, "minPartitions=none: must be a whole number greater than 0"),
        ({"startingOfsets": "earliest"}, "there is no such option; did you mean startingOffsets?"),
        (
            {"startingTimestamp": FIRST_MS + 10**7},
            "has no record of that time or later; set startingOffsetsByTimestampStrategy",
        ),
        ({"startingOffsets": '{"spark-filled":{"0":1}}'}, "missing: spark-filled-1"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_wrong_options_are_told_in_a_sentence(filled, options, said):
    """The last line of Spark's error names option, value and rule."""
    with pytest.raises(PySparkException) as error:
        filled.places(**options)

    assert said in sentence(error)
