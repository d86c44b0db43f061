"""The web-traffic pipeline: its functions over the sample files, and a stream that breaks off."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.testing import assertDataFrameEqual

import ottla
from ottla.pipelines.web_traffic import pipeline as web_traffic
from ottla.pipelines.web_traffic import transformations
from ottla.pipelines.web_traffic.dead_letters import dead_letter_topic

pytestmark = pytest.mark.spark

SAMPLES = Path(web_traffic.__file__).parent / "samples"
RECORD = "topic string, partition int, offset bigint, value binary"
LIMIT = 2


def records(spark, values):
    """A DataFrame as the source gives it, with the columns that the pipeline uses."""
    rows = [("web-traffic", 0, offset, value) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, RECORD)


@pytest.fixture(scope="module")
def sample_events(spark):
    """The events of samples/input.log, computed once."""
    lines = (SAMPLES / "input.log").read_bytes().splitlines()
    events = transformations.events(records(spark, lines)).cache()
    yield events
    events.unpersist()


def result(name, events):
    """A table of the pipeline, with the limit that the sample files were made for."""
    if name == "crawlers_by_rate":
        return transformations.crawlers_by_rate(events, max_requests_per_minute=LIMIT)
    return web_traffic.TABLES[name](events)


@pytest.mark.parametrize("name", web_traffic.TABLES)
def test_tables_are_those_of_the_sample_files(spark, sample_events, name):
    """Each table of the sample input has exactly the expected rows, in their order."""
    table = result(name, sample_events)
    if name == "malformed":
        table = table.withColumn("raw", F.col("raw").cast("string"))
    expected = spark.read.schema(table.schema).json(str(SAMPLES / "expected" / f"{name}.json"))

    assertDataFrameEqual(table, expected, checkRowOrder=True)


def test_events_keep_the_parts_of_a_line(sample_events):
    """Times are turned to UTC, queries are cut off, a response without a body has no bytes."""
    row = sample_events.where("_offset = 2").head()

    assert row.time.astimezone(UTC) == datetime(2015, 5, 17, 10, 5, 59, tzinfo=UTC)
    assert (row.client, row.method, row.path, row.status) == ("192.0.2.2", "GET", "/", 304)
    assert (row.bytes, row.referrer, row.problem, row.raw) == (None, "-", None, None)


def test_no_value_stops_the_pipeline(spark):
    """Null values, bytes that are no text, huge numbers and hostile lines become rows."""
    good = b'192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET /\xff HTTP/1.1" 200 '
    values = [
        None,
        b"",
        b"\x00\xff\xfe",
        good + b'99999999999999999999 "-" "-"',
        good + b'1 "-" "' + b'\\"' * 20_000,
        good + b'1 "' + b'" 200 1 "' * 5_000 + b'" "-',
        good + b'7 "-" "-"\r\n',
    ]

    rows = transformations.events(records(spark, values)).orderBy("_offset").collect()

    bad = transformations.NOT_COMBINED
    assert [row.problem for row in rows] == [
        transformations.NO_VALUE,
        bad,
        bad,
        None,
        bad,
        bad,
        None,
    ]
    assert bytes(rows[2].raw) == values[2]
    assert [rows[3].bytes, rows[6].bytes] == [None, 7]
    assert rows[6].path == "/\N{REPLACEMENT CHARACTER}"


def test_interrupted_stream_is_complete_after_a_restart(spark, broker, unique, tmp_path):
    """A failure behind a written batch has it replayed, and replaced: no row is there twice."""
    topic = unique("web-traffic")
    lines = (SAMPLES / "input.log").read_bytes().splitlines()
    with ottla.Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([ottla.NewTopic(topic, 2), ottla.NewTopic(dead_letter_topic(topic), 1)])
    with ottla.Producer(broker.bootstrap_servers) as producer:
        for number, line in enumerate(lines):
            producer.send(topic, line, partition=number % 2)
    pipeline = web_traffic.WebTrafficPipeline(spark, broker.bootstrap_servers, topic, tmp_path, 4)

    def fail_at_the_second(batch_id, rows):
        if batch_id == 1:
            raise RuntimeError("the machine has lost its power")

    with pytest.raises(Exception, match="lost its power"):
        pipeline.ingest(fail_at_the_second)
    sizes = {}
    pipeline.ingest(sizes.__setitem__)
    counts = pipeline.reconcile()

    assert sizes == {1: 4, 2: 3}
    assert (counts.in_topic, counts.rows, counts.distinct) == (len(lines),) * 3
    assert (counts.malformed, counts.lost, counts.duplicated) == (3, 0, 0)
    assert counts.unreported == 0


def test_reconciliation_sees_what_is_lost_and_what_is_twice(spark, broker, unique, tmp_path):
    """Rows that are missing, and rows that are there twice, are counted."""
    topic = unique("web-traffic")
    with ottla.Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([ottla.NewTopic(topic, 1), ottla.NewTopic(dead_letter_topic(topic), 1)])
    with ottla.Producer(broker.bootstrap_servers) as producer:
        for number in range(10):
            producer.send(topic, b"line %d" % number)
    events = transformations.events(records(spark, [b"line"] * 7).withColumn("topic", F.lit(topic)))
    for batch_id, part in enumerate((events, events.where("_offset < 2"))):
        part.write.parquet(str(tmp_path / "events" / f"batch_id={batch_id}"))

    pipeline = web_traffic.WebTrafficPipeline(spark, broker.bootstrap_servers, topic, tmp_path)
    counts = pipeline.reconcile()

    assert (counts.in_topic, counts.rows, counts.lost, counts.duplicated) == (10, 9, 3, 2)
    assert (counts.malformed, counts.dead_letters, counts.unreported) == (9, 0, 9)


def test_dead_letters_tell_where_they_come_from(spark, broker, unique, tmp_path):
    """A line that does not parse is in the dead-letter topic, with its bytes, place and reason."""
    topic = unique("web-traffic")
    with ottla.Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([ottla.NewTopic(topic, 1), ottla.NewTopic(dead_letter_topic(topic), 1)])
    with ottla.Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"rubbish \xff")
        producer.send(topic, None)

    web_traffic.WebTrafficPipeline(spark, broker.bootstrap_servers, topic, tmp_path).ingest()

    letters = {}
    with ottla.Consumer(broker.bootstrap_servers) as consumer:
        where = ottla.TopicPartition(dead_letter_topic(topic), 0)
        consumer.assign([where])
        consumer.seek(where, 0)
        while len(letters) < 2:
            for record in consumer.poll(timeout_ms=5000):
                letters[dict(record.headers)["source.offset"]] = record
    assert [letters[offset].value for offset in (b"0", b"1")] == [b"rubbish \xff", None]
    assert dict(letters[b"0"].headers) == {
        "source.topic": topic.encode(),
        "source.partition": b"0",
        "source.offset": b"0",
        "reason": transformations.NOT_COMBINED.encode(),
    }
    assert dict(letters[b"1"].headers)["reason"] == transformations.NO_VALUE.encode()
