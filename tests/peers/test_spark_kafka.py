"""Spark's own Kafka source and sink against a broker of Ottla, beside the format `ottla`."""

from __future__ import annotations

import pytest
from benchmarks.peers.downloads import jar_settings

import ottla
from ottla.pipelines.runner import spark_session

ROWS = [
    "cast(if(id % 4 = 0, null, concat('k', id)) as binary) as key",
    "cast(if(id % 9 = 0, null, concat('v', id)) as binary) as value",
    "if(id % 5 = 0, array(struct('id' as key, cast(concat(id) as binary) as value)), null)"
    " as headers",
]


@pytest.fixture(scope="module")
def spark(java):
    """A session that has Spark's own connector."""
    session = spark_session("peers", settings=jar_settings("spark-kafka"), short_run=True)
    yield session
    session.stop()


@pytest.fixture
def topics(broker, unique):
    names = [unique("jvm"), unique("jvm")]
    with ottla.Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([ottla.NewTopic(name, 3) for name in names])
    return names


@pytest.fixture
def servers(broker):
    return {"kafka.bootstrap.servers": broker.bootstrap_servers}


def rows(spark, name, servers, topic, **options):
    """All rows as they are read, in their order."""
    loaded = spark.read.format(name).options(**servers, subscribe=topic, **options)
    return loaded.load().orderBy("partition", "offset").collect()


@pytest.mark.parametrize("writer", ["kafka", "ottla"])
@pytest.mark.parametrize("codec", ["none", "lz4", "zstd", "snappy", "gzip"])
def test_both_sources_read_the_same(spark, servers, topics, writer, codec):
    """Whoever wrote it, in every codec: all eight columns are equal."""
    written = spark.range(0, 3000, 1, 2).selectExpr(*ROWS).write.format(writer)
    codec = {"kafka.compression.type": codec}
    written.options(**servers, **codec, topic=topics[0]).mode("append").save()

    theirs, ours = (
        rows(spark, name, servers, topics[0], includeHeaders="true") for name in ("kafka", "ottla")
    )
    assert len(ours) == 3000
    assert ours == theirs


def test_both_sinks_choose_the_same_partitions(spark, servers, topics):
    """By key, for keys of all lengths."""
    keyed = spark.range(0, 500).selectExpr("repeat('x', cast(id as int)) as key", "'v' as value")
    for name, topic in zip(("kafka", "ottla"), topics, strict=True):
        keyed.write.format(name).options(**servers, topic=topic).mode("append").save()

    places = [
        {(bytes(row.key), row.partition) for row in rows(spark, "ottla", servers, topic)}
        for topic in topics
    ]
    assert places[0] == places[1]
    assert len(places[0]) == 500


@pytest.mark.parametrize(("source", "sink"), [("kafka", "ottla"), ("ottla", "kafka")])
def test_streams_go_through_both(spark, servers, topics, tmp_path, source, sink):
    """One source with the other's sink, over a restart; what is committed is read by both."""
    origin, target = topics
    for first in (0, 100):
        numbers = spark.range(first, first + 100, 1, 1).selectExpr("concat(id) as value")
        numbers.write.format("kafka").options(**servers, topic=origin).mode("append").save()
        limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}
        stream = spark.readStream.format(source).options(**servers, **limits, subscribe=origin)
        writer = stream.load().select("value").writeStream.format(sink)
        writer = writer.options(**servers, topic=target, checkpointLocation=str(tmp_path))
        assert writer.trigger(availableNow=True).start().awaitTermination(100)

    committed = {"kafka.isolation.level": "read_committed"}
    for name in ("kafka", "ottla"):
        found = rows(spark, name, servers, target, **committed)
        assert sorted(int(row.value) for row in found) == list(range(200))
