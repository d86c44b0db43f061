"""The Spark sink against a broker: what is written is what any consumer reads."""

from __future__ import annotations

import json

import pytest
from page import Page
from pyspark.errors import PySparkException

import ottla
from ottla.clients.producer.partitioner import partition_for_key
from ottla.pipelines.patient_query import PatientQuery
from ottla.spark.exactly_once import into_topics
from ottla.testing import wait_until

pytestmark = pytest.mark.spark

WAIT_S = 60

ROWS = [
    "cast(if(id % 4 = 0, null, concat('k', id)) as binary) as key",
    "if(id % 9 = 0, null, concat('v', id)) as value",
    "if(id % 5 = 0, array(struct('id' as key, cast(concat(id) as binary) as value)), null)"
    " as headers",
]


@pytest.fixture
def topics(broker, unique):
    """Two topics of three partitions."""
    names = [unique("sink"), unique("sink")]
    with ottla.Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([ottla.NewTopic(name, 3) for name in names])
    return names


def write(data, broker, **options):
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, **options}
    data.write.format("ottla").options(**options).mode("append").save()


def read(broker, *topics):
    """Every record of the topics, by a consumer that is not Spark."""
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    with ottla.Consumer(broker.bootstrap_servers, **settings) as consumer:
        partitions = [ottla.TopicPartition(topic, p) for topic in topics for p in range(3)]
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        records = []
        while any(consumer.position(each) < ends[each] for each in partitions):
            records += consumer.poll(1)
    return records


def wait_for(query):
    """Until it has ended, however often it is started again."""
    while not query.wait(WAIT_S):
        pass


def expected(number):
    return (
        None if number % 4 == 0 else f"k{number}".encode(),
        None if number % 9 == 0 else f"v{number}".encode(),
        (("id", str(number).encode()),) if number % 5 == 0 else (),
    )


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_rows_are_written_as_they_are(spark, broker, topics, codec):
    """Keys, values, headers and nulls; keyed rows lie where a producer would put them."""
    rows = spark.range(0, 2000, 1, 2).selectExpr(*ROWS)

    write(rows, broker, topic=topics[0], **{"kafka.compression.type": codec})

    records = read(broker, topics[0])
    found = [(record.key, record.value, tuple(record.headers)) for record in records]
    assert sorted(found, key=str) == sorted(map(expected, range(2000)), key=str)
    keyed = [record for record in records if record.key is not None]
    assert all(partition_for_key(each.key, 3) == each.partition for each in keyed)


def test_rows_choose_topic_and_partition(spark, broker, topics):
    """By columns; what Spark reads back goes where it says."""
    rows = spark.range(0, 300, 1, 1).selectExpr(
        "concat(id) as value",
        f"if(id % 2 = 0, '{topics[0]}', '{topics[1]}') as topic",
        "cast(id % 3 as int) as partition",
    )

    write(rows, broker)

    records = read(broker, *topics)
    places = sorted((int(r.value), r.topic, r.partition, r.offset) for r in records)
    assert places == [(n, topics[n % 2], n % 3, n // 6) for n in range(300)]


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("id", {"topic": "a"}, "OptionError: columns id: there must be a column `value`"),
        (
            "id as value",
            {"topic": "a"},
            "column value: must be a string or a binary, and is bigint",
        ),
        ("'' as value", {}, "topic: set the option, or give every row a column `topic`"),
        ("'' as value", {"topik": "a"}, "topik=a: there is no such option; did you mean topic?"),
        ("'' as value, 9 as partition", {}, "column partition: 9 of topic {topic}, which has 3"),
    ],
    ids=lambda value: None if isinstance(value, dict) else value[:20],
)
def test_mistakes_are_told_in_a_sentence(spark, broker, topics, columns, options, said):
    """One line of Spark's error names column or option, value and rule."""
    if "partition" in columns:
        options = {"topic": topics[0]}
    with pytest.raises(PySparkException) as error:
        write(spark.range(1).selectExpr(*columns.split(", ")), broker, **options)

    lines = [line for line in str(error.value).splitlines() if line.startswith("ottla.")]
    assert said.format(topic=topics[0]) in lines[0]


@pytest.mark.parametrize("exactly_once", ["true", "false"])
def test_stream_is_copied_over_restarts(spark, broker, topics, tmp_path, exactly_once):
    """Micro-batch by micro-batch, from where the run before it ended."""
    source, target = topics
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers}

    def copy():
        rows = spark.readStream.format("ottla").options(**options, subscribe=source)
        rows = rows.options(startingOffsets="earliest", maxOffsetsPerTrigger=40).load()
        sink = rows.selectExpr("key", "value").writeStream.format("ottla").options(**options)
        sink = sink.options(topic=target, exactlyOnce=exactly_once)
        sink = sink.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        # A thread with a new connection to the JVM has no session there.
        spark._jvm.org.apache.spark.sql.classic.SparkSession.clearActiveSession()
        wait_for(PatientQuery(sink))

    for first in (0, 100):
        numbers = spark.range(first, first + 100, 1, 1).selectExpr("concat(id) as value")
        write(numbers, broker, topic=source)
        copy()

    found = sorted(int(record.value) for record in read(broker, target))
    assert found == list(range(200))


@pytest.mark.parametrize("way", ["sink", "foreachBatch"])
def test_batch_that_fails_leaves_nothing_open(spark, broker, topics, tmp_path, way):
    """Readers of what is committed would wait for a complete task of it, for a quarter of an hour.

    The second of two tasks fails when Spark knows that the first one is complete.
    """
    source, target = topics
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    numbers = spark.range(0, 20, 1, 1).selectExpr("concat(id) value", "id % 2 partition")
    write(numbers, broker, topic=source)
    is_complete = tmp_path / "complete"

    def poison(batches):
        for batch in batches:
            if batch.column("partition")[0].as_py():
                wait_until(is_complete.exists, "the first task to be complete", WAIT_S)
                raise ValueError("poison")
            yield batch.select(["value"])

    def look():
        tracker = spark.sparkContext.statusTracker()
        stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
        if any(each is not None and each.numCompletedTasks for each in stages):
            is_complete.touch()
        return running.wait(1)

    rows = spark.readStream.format("ottla").options(**options, subscribe=source)
    rows = rows.options(startingOffsets="earliest", minPartitions=2).load()
    query = rows.mapInArrow(poison, "value binary").writeStream.outputMode("append")
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
    more = {"topic": target, "transactionalIdPrefix": target}
    mode = "append" if way == "sink" else "update"
    spark._jvm.org.apache.spark.sql.classic.SparkSession.clearActiveSession()
    running = PatientQuery(into_topics(query, mode, {**options, **more}))
    with pytest.raises(PySparkException, match="poison"):
        wait_until(look, "the query to fail", 5 * WAIT_S)

    with ottla.Admin(broker.bootstrap_servers) as admin:
        names = [each.transactional_id for each in admin.list_transactions(["Ongoing"])]
    assert [name for name in names if name.startswith(target)] == []


def test_aggregate_of_the_page_is_written_back(spark, broker, topics, tmp_path):
    """The counts by key of a stream, as docs/use/spark-sink.md has it for who begins."""
    (program,) = [
        text
        for language, text in Page("docs/use/spark-sink.md").blocks()
        if language == "python" and "into_topics" in text
    ]
    write(
        spark.range(0, 90, 1, 1).selectExpr("concat(id % 3) key", "'x' value"),
        broker,
        topic=topics[0],
    )
    stream = spark.readStream.format("ottla").option("subscribe", topics[0])
    stream = stream.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    for page, ours in {
        "localhost:9092": broker.bootstrap_servers,
        '"visits"': f'"{topics[1]}"',
        "visits-checkpoint": str(tmp_path / "visits"),
    }.items():
        assert page in program
        program = program.replace(page, ours)
    pages = stream.option("startingOffsets", "earliest").load()
    names = {"pages": pages}
    # A thread with a new connection to the JVM has no session there.
    spark._jvm.org.apache.spark.sql.classic.SparkSession.clearActiveSession()
    exec(program, names)
    try:
        names["query"].processAllAvailable()
    finally:
        names["query"].stop()
    counts = {record.key: json.loads(record.value)["count"] for record in read(broker, topics[1])}

    assert counts == {b"0": 30, b"1": 30, b"2": 30}
