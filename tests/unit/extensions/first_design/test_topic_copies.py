"""Topics of the first design copied into topics of today: each message once, whatever happens."""

from __future__ import annotations

import itertools
import random
import struct

import pytest
from byte_logs_world import entry, region_of, wrapped
from first_design_client import LIMIT_S, SETTINGS, RawClient, part

import ottla
from ottla.errors import ErrorCode
from ottla.extensions.first_design import copy_steps, topic_copies
from ottla.extensions.first_design.copy_steps import (
    CopyPlace,
    steps_of,
)
from ottla.replication.append_results import PartitionAppendResult
from ottla.testing import InProcessBroker, wait_until

COPYING = SETTINGS | {"first_design_copied_topics": "pages:today"}


def copied(broker: InProcessBroker, count: int, partition: int = 0) -> list[tuple[bytes, bytes]]:
    """So many records of the copy, with the places in their headers, and no more than there are."""
    found: list[tuple[bytes, bytes]] = []
    with ottla.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        where = ottla.TopicPartition("today", partition)
        wait_for_copies(broker, count, partition)
        consumer.assign([where])
        end = end_of(broker, partition)
        consumer.seek_to_beginning()

        def poll() -> None:
            found.extend(
                (record.value, dict(record.headers)["next.id.0"]) for record in consumer.poll(200)
            )

        wait_until(lambda: len(found) >= end, f"{end} records", LIMIT_S, meanwhile=poll)
    return found


def end_of(broker: InProcessBroker, partition: int = 0) -> int:
    found = broker.broker.replica_manager.partitions.get(ottla.TopicPartition("today", partition))
    return 0 if found is None else found.log.log_end_offset


def wait_for_copies(broker: InProcessBroker, count: int, partition: int = 0) -> None:
    wait_until(lambda: end_of(broker, partition) >= count, f"{count} copies", LIMIT_S)


def copy_of(broker: InProcessBroker):
    """The copy of the first partition."""
    return broker.broker.named("FirstDesign").copies.copies["pages", 0]


def test_messages_are_copied_and_followed_and_continued_after_a_stop_and_a_kill():
    """Each once, in their order, into the partition of the same number; other topics are not."""
    broker = InProcessBroker(**COPYING)
    texts: list[bytes] = []
    for end in (broker.stop, broker.kill, broker.stop):
        with broker.start() and RawClient(broker) as client:
            for _ in range(3):
                client.produce(text := b"%d" % len(texts))
                texts.append(text)
            client.produce(b"other", partition=1)
            client.produce(b"not", topic=b"clicks")
            assert [value for value, _ in copied(broker, len(texts))] == texts
            assert copied(broker, 1, 1)[0][0] == b"other"
        end()
    with broker:
        places = [place for _, place in copied(broker, 9)]
        assert places == [b"%d" % (10 * number) for number in range(1, 10)]
        with ottla.Admin(broker.bootstrap_servers) as admin:
            assert admin.list_topics() == {"today"}


def test_compressed_sets_become_single_records():
    """A place in the middle of one has the number of its messages that are copied."""
    with InProcessBroker(**COPYING) as broker, RawClient(broker) as client:
        data = wrapped(b"a", b"b", b"c")
        client.send(b"\0\0" + part(b"pages", 0) + struct.pack(">i", len(data)) + data)
        client.produce(b"d")

        first, second = b"%d" % len(data), b"%d" % (len(data) + 10)
        expected = [(b"a", b"0/1"), (b"b", b"0/2"), (b"c", first), (b"d", second)]
        assert copied(broker, 4) == expected


def test_message_that_is_larger_than_a_read_is_copied(monkeypatch):
    """The next read is as large as it says."""
    monkeypatch.setattr(topic_copies, "READ_BYTES", 100)
    with InProcessBroker(**COPYING) as broker, RawClient(broker) as client:
        texts = [b"a", b"x" * 1000, b"b", b"y" * 500, b"c"]
        client.produce(*texts)
        assert [value for value, _ in copied(broker, 5)] == texts


@pytest.mark.parametrize("seed", range(6))
def test_power_loss_at_any_time_leaves_no_message_out_and_copies_none_twice(seed, monkeypatch):
    """Both disks' files lose what was not synced; the copy says itself how far it has come."""
    monkeypatch.setattr(copy_steps, "MOST_RECORDS", 3)
    chance = random.Random(seed)
    broker = InProcessBroker(**COPYING, log_segment_bytes=400)
    seen: list[bytes] = []
    for life in range(4):
        broker.start()
        with RawClient(broker) as client:
            for number in range(chance.randrange(1, 12)):
                if chance.random() < 0.3:
                    data = wrapped(*(b"%d-%d-%d" % (life, number, i) for i in range(5)))
                    client.send(b"\0\0" + part(b"pages", 0) + struct.pack(">i", len(data)) + data)
                else:
                    client.produce(b"%d-%d" % (life, number))
            client.offsets()
        wait_for_copies(broker, chance.choice([0, end_of(broker)]))
        broker.kill()
        if chance.random() < 0.7:
            broker.disk.crash(chance)
    with broker:
        log = broker.broker.named("FirstDesign").logs.logs["pages", 0]
        region = region_of(
            b"".join(broker.disk.contents(each.path)[: each.size] for each in log.segments)
        )
        seen = [step.payload for step in steps_of(region, CopyPlace())]
        assert [value for value, _ in copied(broker, len(seen))] == seen


def test_append_whose_outcome_is_not_known_is_neither_lost_nor_repeated(monkeypatch):
    """Each second one fails: before it, or behind it, so that the records are there."""
    monkeypatch.setattr(copy_steps, "MOST_RECORDS", 2)
    append = topic_copies.PartitionCopy._appended
    calls = itertools.count()

    async def append_or_fail(copy, batch):
        number = next(calls) % 4
        timed_out = PartitionAppendResult(ErrorCode.REQUEST_TIMED_OUT)
        result = timed_out if number == 1 else await append(copy, batch)
        return timed_out if number == 3 else result

    monkeypatch.setattr(topic_copies.PartitionCopy, "_appended", append_or_fail)
    with InProcessBroker(**COPYING) as broker, RawClient(broker) as client:
        texts = [b"%d" % number for number in range(21)]
        client.produce(*texts)
        assert [value for value, _ in copied(broker, 21)] == texts
        assert next(calls) > 12


def test_copy_continues_behind_records_of_others_and_after_retention():
    """Its last header counts; where its records are gone, the checkpoint does."""
    broker = InProcessBroker(**COPYING)
    with broker, RawClient(broker) as client:
        client.produce(b"a")
        copied(broker, 1)
        with ottla.Producer(broker.bootstrap_servers) as producer:
            producer.send("today", b"other", headers=[("next.id.0", b"0")], partition=1).result(10)
            producer.send("today", b"other", partition=0).result(10)
    with broker, RawClient(broker) as client:
        client.produce(b"b")
        wait_for_copies(broker, 3)
        with ottla.Admin(broker.bootstrap_servers) as admin:
            admin.delete_records({ottla.TopicPartition("today", 0): 3})
    with broker, RawClient(broker) as client:
        client.produce(b"c")
        wait_for_copies(broker, 4)
        assert copy_of(broker).left_out == 0


def test_topic_that_is_made_again_is_copied_from_the_beginning():
    """An empty log is a new one."""
    broker = InProcessBroker(**COPYING)
    with broker, RawClient(broker) as client:
        client.produce(b"a")
        copied(broker, 1)
    with broker:
        with ottla.Admin(broker.bootstrap_servers) as admin:
            admin.delete_topics(["today"])
        with RawClient(broker) as client:
            client.produce(b"b")
        assert [value for value, _ in copied(broker, 2)] == [b"a", b"b"]


def test_what_cannot_be_copied_is_told_by_its_place_and_the_rest_is_copied(caplog):
    """A set that is none, and a message of one that today's topic refuses."""
    with InProcessBroker(**COPYING, message_max_bytes=1000) as broker, RawClient(broker) as client:
        bad, large = entry(b"no set", 1, 1), wrapped(b"x", b"y" * 999, b"z")
        data = bad + large
        client.send(b"\0\0" + part(b"pages", 0) + struct.pack(">i", len(data)) + data)
        client.produce(b"w" * 872)
        found = copied(broker, 3)
        assert [value for value, _ in found] == [b"x", b"z", b"w" * 872]
        assert copy_of(broker).left_out == 2
    assert "pages_0: id 0 is left out: malformed gzip data" in caplog.text
    assert "pages_0: the message before 16/2 has 999 bytes: today-0 refuses it" in caplog.text


def test_copy_waits_where_today_has_no_such_partition(caplog, monkeypatch):
    """It says so once, and continues when there is one: nothing is left out."""
    monkeypatch.setattr(topic_copies, "LAST_RETRY_MS", 80)
    with InProcessBroker(**COPYING) as broker, RawClient(broker) as client:
        broker.create_topic("today", partitions=1)
        client.produce(b"a", partition=1)
        wait_until(lambda: "the copy into today-1 waits" in caplog.text, "a word", LIMIT_S)
        with ottla.Admin(broker.bootstrap_servers) as admin:
            admin.create_partitions({"today": 2})
        assert [value for value, _ in copied(broker, 1, 1)] == [b"a"]


def test_copy_whose_appends_are_refused_says_so_and_copies_all_when_they_are_taken(
    caplog, monkeypatch
):
    """As where a topic of today lacks replicas in sync."""
    refused = [PartitionAppendResult(ErrorCode.NOT_ENOUGH_REPLICAS)]
    append = topic_copies.PartitionCopy._appended

    async def refuse(copy, batch):
        return refused[0] if refused else await append(copy, batch)

    monkeypatch.setattr(topic_copies.PartitionCopy, "_appended", refuse)
    monkeypatch.setattr(topic_copies, "LAST_RETRY_MS", 80)
    with InProcessBroker(**COPYING) as broker, RawClient(broker) as client:
        client.produce(b"a", b"b")
        wait_until(lambda: "the copy into today-0 waits" in caplog.text, "a word", LIMIT_S)
        refused.clear()
        assert [value for value, _ in copied(broker, 2)] == [b"a", b"b"]
        assert caplog.text.count("waits") == 1


def test_ids_that_retention_has_deleted_before_they_were_copied_are_told(caplog):
    """The copy continues at the oldest that is there."""
    small = {"log_segment_bytes": 550, "log_retention_bytes": 1700}
    broker = InProcessBroker(**COPYING | small)
    with broker, RawClient(broker) as client:
        client.produce(b"first")
        copied(broker, 1)
    broker = InProcessBroker(disk=broker.disk, **SETTINGS | small)
    with broker, RawClient(broker) as client:
        for number in range(10):
            client.produce(b"%02d" % number * 200)
        client.wait_for_end(14 + 10 * 409)
        broker.run(retained(broker.broker.named("FirstDesign").logs))
    broker = InProcessBroker(disk=broker.disk, **COPYING | small)
    with broker:
        found = [value for value, _ in copied(broker, 7)]
        assert found == [b"first", *(b"%02d" % number * 200 for number in range(4, 10))]
        assert copy_of(broker).left_out == 1
    assert "the ids from 14 to 1650 were deleted before they were copied" in caplog.text


async def retained(logs) -> None:
    for _ in logs.retain():
        pass


def test_topics_that_the_broker_alone_writes_get_no_copies():
    """Not even of topics with their names, where all are copied."""
    settings = SETTINGS | {"first_design_copied_topics": "*", "ottla_audit_topic": "audit"}
    with InProcessBroker(**settings) as broker, RawClient(broker) as client:
        for topic in (b"__consumer_offsets", b"__transaction_state", b"audit", b"today"):
            client.produce(b"a", topic=topic)
        assert [value for value, _ in copied(broker, 1)] == [b"a"]
        copies = broker.broker.named("FirstDesign").copies.copies
        assert {topic for topic, _ in copies} == {"today"}
