"""Clients of other languages produce, share a group, resume, administrate and transact."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from dump_log import logs, size_of
from peer_program import PEERS, PeerProgram

from ottla import Admin
from ottla.record.memory_records import batches
from ottla.record.record_batch import RecordBatch
from ottla.testing import wait_until

COUNT = 1000
PARTITIONS = 3
COMPACTION_SECONDS = 60

ABORT, COMMIT = b"\0\0", b"\0\1"

CODECS = [(name, codec) for name, peer in PEERS.items() for codec in peer.codecs]
# These follow transaction.version 2, with an epoch for each transaction (KIP-890).
BUMPING = {"java-4.1", "franz-go"}
TRANSACTIONAL = [name for name, peer in PEERS.items() if peer.transactions]


def expected(tag, count=COUNT):
    """What `produce` sends: values that say the order in which their key was used."""
    return [
        {
            "key": f"key-{number % 17}",
            "value": f"{tag} {number:06d} " + "x" * (number % 50),
            "headers": [["number", str(number)], ["empty", ""]],
        }
        for number in range(count)
    ]


def in_key_order(records):
    """The values of each key in the order in which they came; headers by value."""
    by_key = {}
    for record in records:
        by_key.setdefault(record["key"], []).append(record["value"])
    return by_key, {record["value"]: sorted(map(tuple, record["headers"])) for record in records}


def assert_same(wanted, received):
    """Every record once, whole, and in the order of its key."""
    assert len(received) == len(wanted)
    assert in_key_order(received) == in_key_order(wanted)


@pytest.fixture
def peer(request):
    return PeerProgram(request.param)


@pytest.fixture
def topic(broker, unique):
    return create(broker, unique("peer"))


def create(broker, name):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
    return name


def read_committed(broker, topic, count):
    """What librdkafka reads of a topic's committed records, up to its stable end."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused"}
    reader = Consumer({**settings, "isolation.level": "read_committed"})
    reader.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    records = []
    for _ in range(300):
        for message in reader.consume(1000, 0.1):
            assert message.error() is None, message.error()
            headers = [[name, value.decode()] for name, value in message.headers() or ()]
            key, value = message.key().decode(), message.value().decode()
            records.append({"key": key, "value": value, "headers": headers})
        if len(records) >= count:
            break
    records += [{"value": message.value()} for message in reader.consume(1, 1.0)]
    reader.close()
    return records


def control_type(batch: RecordBatch) -> bytes:
    """Abort or commit: the key of a marker is a version and a type."""
    (marker,) = batch.records()
    return marker.key[2:]


def batches_on_disk(broker, topic):
    """Every batch of a topic, as its partitions have it."""
    for path in broker.data_dir.glob(f"{topic}-[0-9]/*.log"):
        yield from batches(path.read_bytes())


@pytest.mark.parametrize(("peer", "codec"), CODECS, indirect=["peer"])
def test_records_come_back_through_a_group_of_two(broker, peer, topic, codec):
    """A thousand keyed records with headers in each codec, shared by two members, in key order."""
    servers = broker.bootstrap_servers
    with peer.consuming(servers, topic, topic, str(COUNT), "classic") as received:
        peer.run("produce", servers, topic, codec, codec, str(COUNT))

    assert_same(expected(codec), received)
    written = list(batches_on_disk(broker, topic))
    assert {batch.compression.name.lower() for batch in written} == {codec}
    assert all(batch.producer_id >= 0 for batch in written)


@pytest.mark.parametrize("peer", PEERS, indirect=True)
def test_a_group_resumes_where_it_committed(broker, peer, topic):
    """What was committed is not read again, and the rest is."""
    servers = broker.bootstrap_servers
    for tag in ("first", "second"):
        with peer.consuming(servers, topic, topic, str(COUNT), "classic") as received:
            peer.run("produce", servers, topic, "none", tag, str(COUNT))
        assert_same(expected(tag), received)


@pytest.mark.parametrize("peer", PEERS, indirect=True)
def test_admin_calls_do_what_they_say(broker, peer, unique):
    """Topics, partitions, settings, groups, commits, deleted records: from creation to the end."""
    answer = json.loads(peer.run("admin", broker.bootstrap_servers, unique("admin"))[-1])

    assert answer == {
        "partitions": 4,
        "retention.ms": "3600000",
        "max.message.bytes": "2000000",
        "committed": 100,
        "listed": True,
        "state": "Empty",
        "start": 1,
        "gone": True,
        "nodes": 1,
    }


@pytest.fixture(scope="module", params=[0, 2], ids="transaction.version {}".format)
def versioned_broker(request, start_module_broker):
    """A broker whose clients raise the epoch with each transaction, if they can, or do not."""
    broker = start_module_broker()
    if request.param:
        with Admin(broker.bootstrap_servers) as admin:
            admin.update_features({"transaction.version": request.param})
    return broker, request.param


@pytest.mark.parametrize("peer", TRANSACTIONAL, indirect=True)
def test_copies_in_transactions_are_exact(versioned_broker, peer, unique):
    """Read, process, write with offsets in the transaction, a third of them aborted once."""
    broker, level = versioned_broker
    servers, source, target = broker.bootstrap_servers, unique("source"), unique("target")
    create(broker, source)
    create(broker, target)
    peer.run("produce", servers, source, "none", "copied", str(COUNT))
    peer.run("transact", servers, source, target, source, str(COUNT))

    assert_same(expected("copied"), read_committed(broker, target, COUNT))
    kinds = [control_type(batch) for batch in batches_on_disk(broker, target) if batch.is_control]
    assert kinds.count(ABORT) > 0
    assert kinds.count(COMMIT) > kinds.count(ABORT)
    epochs = {batch.producer_epoch for batch in batches_on_disk(broker, target)}
    assert (len(epochs) > 1) is (level > 0 and peer.name in BUMPING)
    group = Consumer({"bootstrap.servers": servers, "group.id": source})
    partitions = [TopicPartition(source, index) for index in range(PARTITIONS)]
    assert sum(partition.offset for partition in group.committed(partitions, 30)) == COUNT
    group.close()


@pytest.fixture(scope="module")
def compacted(start_module_broker):
    """A broker with a topic of which compaction has emptied many segments, and what is left of it.

    All of it is compacted in one round: later ones would put the empty segments together.
    """
    process = start_module_broker(log_cleaner_enable="false")
    admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
    settings = {"cleanup.policy": "compact", "segment.bytes": "2000"}
    admin.create_topics([NewTopic("compacted", 1, 1, config=settings)])["compacted"].result(60)
    producer = Producer({"bootstrap.servers": process.bootstrap_servers})
    for number in range(COUNT):
        producer.produce("compacted", f"{number:06d}" + "x" * 100, f"key-{number % 5}", 0)
        if number % 10 == 9:
            assert producer.flush(60) == 0
    assert process.stop() == 0
    process = start_module_broker(process.data_dir, log_cleaner_backoff_ms=100)
    files = process.data_dir / "compacted-0"
    wait_until(
        lambda: size_of(files) <= 5000,
        "the cleaner",
        COMPACTION_SECONDS,
    )
    assert sum(path.stat().st_size == 0 for path in logs(files)) > COUNT // 20
    last = range(COUNT - 5, COUNT)
    return process, {f"key-{number % 5}": f"{number:06d}" + "x" * 100 for number in last}


@pytest.mark.parametrize("peer", ["java-3.9", "java-4.1"], indirect=True)
def test_a_compacted_topic_is_read_to_its_end(compacted, peer):
    """The last value of each key, past segments of 0 bytes; the consumer's position is the end."""
    broker, expected = compacted
    lines = peer.run("read", broker.bootstrap_servers, "compacted")
    records = [json.loads(line) for line in lines]

    assert {record["key"]: record["value"] for record in records} == expected
    assert len(records) < COUNT // 10
