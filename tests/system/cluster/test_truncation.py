"""What readers learn of an unclean election that has cost records that they had read."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from ottla import Admin, Consumer, LogTruncationError, NewTopic, Producer, TopicPartition
from ottla.testing import wait_until

SETTINGS = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
OLD = ["kept 0", "kept 1", "lost 2", "lost 3"]
NEW = [f"new {number}" for number in range(2, 8)]


def write(servers: str, topic: str, values: Iterable[str], acks: str = "1") -> None:
    """As a producer that numbers nothing: it does not notice that records get lost."""
    with Producer(servers, acks=acks, enable_idempotence=False) as producer:
        for value in values:
            producer.send(topic, value)


def reader(servers: str, place: TopicPartition, reset: str) -> Consumer:
    """One that stands at the beginning."""
    consumer = Consumer(servers, auto_offset_reset=reset, metadata_max_age_ms=500)
    consumer.assign([place])
    consumer.seek(place, 0)
    return consumer


def take(consumer: Consumer, count: int) -> list[str]:
    """The next values, so many and no fewer."""
    found: list[str] = []

    def has_all() -> bool:
        found.extend(record.value.decode() for record in consumer.poll(200))
        return len(found) >= count

    wait_until(has_all, f"{count} records are read")
    return found


def write_some_to_lose(cluster, view, topic: str) -> TopicPartition:
    """Two records on brokers 2 and 3, and then two on broker 2 alone."""
    servers = cluster.bootstrap_servers
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(topic, replica_assignment={0: [2, 3]}, configs=SETTINGS)])
    view.until_all_in_sync(topic, [2, 3])
    write(servers, topic, ["kept 0", "kept 1"], acks="all")
    cluster.kill_broker(3)
    wait_until(lambda: view.in_sync(topic) == {0: [2]}, "the leader is in sync alone")
    write(servers, topic, ["lost 2", "lost 3"])
    return TopicPartition(topic, 0)


def lose_them(cluster, view, topic: str) -> None:
    """Have broker 3 lead, and write six records in the place of those two."""
    cluster.kill_broker(2)
    cluster.start_broker(3)
    wait_until(lambda: view.leaders(topic) == {0: 3}, "the one that was out of sync leads")
    write(cluster.bootstrap_servers, topic, NEW)


def test_reader_is_told_that_what_it_has_read_was_lost(cluster, view, unique):
    """Its place is in the new leader's log, but with other records before it (KIP-320).

    Without a policy poll raises; with one it goes back to where the logs part.
    """
    topic, servers = unique("torn"), cluster.bootstrap_servers
    place = write_some_to_lose(cluster, view, topic)
    with reader(servers, place, "none") as firm, reader(servers, place, "earliest") as mild:
        for consumer in (firm, mild):
            assert take(consumer, 4) == OLD
        lose_them(cluster, view, topic)
        with pytest.raises(LogTruncationError) as raised:
            take(firm, 1)
        assert (raised.value.position, raised.value.divergent_offset) == (4, 2)
        firm.seek(place, 2)
        for consumer in (firm, mild):
            assert take(consumer, 6) == NEW


@pytest.mark.wide
@pytest.mark.spark
def test_query_is_told_that_what_it_has_read_was_lost(spark, cluster, view, unique, tmp_path):
    """The new log has grown past the checkpoint: records 2 and 3 of it were never seen.

    With failOnDataLoss the query fails, and says why; without it goes on where the logs part.
    """
    from pyspark.errors import StreamingQueryException

    from ottla.pipelines.patient_query import PatientQuery

    topic = unique("torn")

    def run(fail_on_data_loss: bool) -> list[str]:
        """What there is now, from the checkpoint on."""
        found: list[str] = []
        source = (
            spark.readStream.format("ottla")
            .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("failOnDataLoss", fail_on_data_loss)
        )
        query = PatientQuery(
            source.load()
            .selectExpr("CAST(value AS STRING) AS value")
            .writeStream.option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .foreachBatch(lambda rows, _: found.extend(row.value for row in rows.collect()))
        )
        while not query.wait(60):
            pass
        return found

    write_some_to_lose(cluster, view, topic)
    assert run(True) == OLD
    lose_them(cluster, view, topic)
    with pytest.raises(StreamingQueryException) as raised:
        run(True)
    assert re.search(
        rf"{topic}-0 is no longer the log that was read up to offset 4 in leader epoch \d+; "
        r"its leader, in epoch \d+, has other records, or none, from offset 2 on",
        str(raised.value),
    )
    assert run(False) == NEW
    assert run(True) == []
