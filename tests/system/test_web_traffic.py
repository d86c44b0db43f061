"""The web-traffic pipeline: lines of every kind, and a stream that breaks off."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import ottla
from ottla.pipelines import web_traffic
from ottla.pipelines.execution import Execution, RunOptions
from ottla.pipelines.logged_request import BAD_TIME, EMPTY, NO_VALUE, UNKNOWN_FORMAT
from ottla.pipelines.topics import create_topics
from ottla.pipelines.web_traffic import COMPLETENESS, DEAD_LETTERS, LINES, PIPELINE
from ottla.testing.processes import BrokerProcess

pytestmark = pytest.mark.spark

RECORD = "topic string, partition int, offset bigint, value binary"
GOOD = b'192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "x"'


def records(spark, values):
    """A DataFrame as the source gives it, with the columns that the pipeline uses."""
    rows = [("web-traffic", 0, offset, value) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, RECORD)


def test_events_keep_the_parts_of_a_line(spark):
    """Times are turned to UTC, queries are cut off, a response without a body has no bytes."""
    line = (
        b'192.0.2.2 - ann [17/May/2015:12:05:59 +0200] "GET /?from=feed HTTP/1.1" 304 - "-" '
        b'"Mozilla/5.0 (Windows NT 6.1)"'
    )

    row = web_traffic.events(records(spark, [line])).head()

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
        good.replace(b" +0000", b" +0000\n192.0.2.9") + b'7 "-" "-"',
        b"\n" + good + b'7 "-" "-"',
        good.replace(b"GET ", b"\x16\x03 $1 ") + b'7 "-" "-"\xc2\x85',
    ]

    rows = web_traffic.events(records(spark, values)).orderBy("_offset").collect()

    bad = UNKNOWN_FORMAT
    assert [row.problem for row in rows] == [
        NO_VALUE,
        EMPTY,
        bad,
        None,
        bad,
        bad,
        None,
        BAD_TIME,
        bad,
        None,
    ]
    assert bytes(rows[2].raw) == values[2]
    assert [rows[3].bytes, rows[6].bytes] == [None, 7]
    assert rows[6].path == "/\N{REPLACEMENT CHARACTER}"
    assert (rows[9].method, rows[9].path) == (
        None,
        "\x16\x03 $1 /\N{REPLACEMENT CHARACTER} HTTP/1.1",
    )


@pytest.fixture
def servers(tmp_path):
    """A broker with the topics of the pipeline, which have fixed names."""
    process = BrokerProcess(tmp_path / "data").start()
    create_topics(process.bootstrap_servers, PIPELINE)
    yield process.bootstrap_servers
    assert process.stop() == 0


def publish(servers, lines):
    """Lines to partitions in turn."""
    with ottla.Producer(servers) as producer:
        for number, line in enumerate(lines):
            producer.send(LINES, line, partition=number % 3)


@pytest.mark.wide
def test_interrupted_stream_is_complete_after_a_restart(spark, servers, tmp_path):
    """Where a run broke off, the next one goes on: nothing is lost, and nothing there twice."""
    lines = [GOOD, b"rubbish \xff"] * 10
    publish(servers, lines)
    options = RunOptions(max_offsets_per_trigger=6)
    batches = []

    def fail_at_the_second(at_s, batch):
        batches.append(batch.number)
        if len(batches) == 2:
            raise RuntimeError("the machine has lost its power")

    broken = Execution(spark, PIPELINE, servers, tmp_path, options)
    with pytest.raises(RuntimeError, match="lost its power"):
        broken.run_once(fail_at_the_second)
    publish(servers, lines)
    execution = Execution(spark, PIPELINE, servers, tmp_path, options)
    execution.run_once(lambda at_s, batch: None)
    (counts,) = execution.write_tables(tmp_path / "tables")[COMPLETENESS].rows

    assert counts == {
        "in_topic": 40,
        "rows": 40,
        "malformed": 20,
        "dead_letters": 20,
        "lost": 0,
        "duplicated": 0,
        "unreported": 0,
    }


def test_completeness_sees_what_is_lost_and_what_is_twice(spark):
    """Rows that are missing, rows that are there twice, and dead letters that are not there."""
    lines = records(spark, [b"line"] * 10)
    events = web_traffic.events(lines).where("_offset < 7")
    twice = events.union(events.where("_offset < 2"))
    letters = web_traffic.dead_letters(lines).limit(4)

    (counts,) = web_traffic.completeness(lines, twice, letters).collect()

    assert (counts.in_topic, counts.rows, counts.lost, counts.duplicated) == (10, 9, 3, 2)
    assert (counts.malformed, counts.dead_letters, counts.unreported) == (9, 4, 5)


def test_dead_letters_tell_where_they_come_from(spark, servers, tmp_path):
    """A line that does not parse is in the dead-letter topic, with its bytes, place and reason."""
    publish(servers, [b"rubbish \xff", GOOD, None])

    Execution(spark, PIPELINE, servers, tmp_path, RunOptions()).run_once(lambda at_s, batch: None)

    letters = {}
    with ottla.Consumer(servers) as consumer:
        where = ottla.TopicPartition(DEAD_LETTERS, 0)
        consumer.assign([where])
        consumer.seek(where, 0)
        while len(letters) < 2:
            for record in consumer.poll(timeout_ms=5000):
                letters[dict(record.headers)["source.partition"]] = record
    assert [letters[partition].value for partition in (b"0", b"2")] == [b"rubbish \xff", None]
    assert dict(letters[b"0"].headers) == {
        "source.topic": LINES.encode(),
        "source.partition": b"0",
        "source.offset": b"0",
        "reason": UNKNOWN_FORMAT.encode(),
    }
    assert dict(letters[b"2"].headers)["reason"] == NO_VALUE.encode()
