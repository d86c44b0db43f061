"""What readers learn of an unclean election that has cost records that they had read (F31)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from cluster_load import until

from ottla import Admin, Consumer, LogTruncationError, NewTopic, Producer, TopicPartition

SETTINGS = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}


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

    until(has_all, f"{count} records are read")
    return found


def test_reader_is_told_that_what_it_has_read_was_lost(cluster, view, unique):
    """Its place is in the new leader's log, but with other records before it (KIP-320).

    Without a policy poll raises; with one it goes back to where the logs part.
    """
    topic, servers = unique("torn"), cluster.bootstrap_servers
    place = TopicPartition(topic, 0)
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(topic, replica_assignment={0: [2, 3]}, configs=SETTINGS)])
    view.until_all_in_sync(topic, [2, 3])
    write(servers, topic, ["kept 0", "kept 1"], acks="all")
    cluster.kill_broker(3)
    until(lambda: view.in_sync(topic) == {0: [2]}, "the leader is in sync alone")
    write(servers, topic, ["lost 2", "lost 3"])
    with reader(servers, place, "none") as firm, reader(servers, place, "earliest") as mild:
        for consumer in (firm, mild):
            assert take(consumer, 4) == ["kept 0", "kept 1", "lost 2", "lost 3"]
        cluster.kill_broker(2)
        cluster.start_broker(3)
        until(lambda: view.leaders(topic) == {0: 3}, "the one that was out of sync leads")
        write(servers, topic, [f"new {number}" for number in range(2, 8)])
        with pytest.raises(LogTruncationError) as raised:
            take(firm, 1)
        assert (raised.value.position, raised.value.divergent_offset) == (4, 2)
        firm.seek(place, 2)
        for consumer in (firm, mild):
            assert take(consumer, 6) == [f"new {number}" for number in range(2, 8)]
