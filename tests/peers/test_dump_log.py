"""Apache Kafka's DumpLogSegments reads every kind of file that Ottla writes, and finds no fault."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from dump_log import assert_sane, dump, logs, size_of

from ottla.testing import wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ROUNDS = 80
PER_ROUND = 10
COUNT = ROUNDS * PER_ROUND
GROUP = "dumped"
COMPACTION_SECONDS = 60


@pytest.fixture(scope="module")
def data(start_module_broker) -> Path:
    """A data directory: a topic in each codec over several segments, and a group's commits."""
    process = start_module_broker(
        log_segment_bytes=4096,
        log_index_interval_bytes=512,
        num_partitions=1,
        offsets_topic_num_partitions=1,
        transaction_state_log_num_partitions=1,
        log_cleaner_backoff_ms=100,
    )
    for codec in CODECS:
        produce(process, f"codec-{codec}", codec)
    reader = Consumer({"bootstrap.servers": process.bootstrap_servers, "group.id": GROUP})
    marks = [TopicPartition(f"codec-{codec}", 0, 7) for codec in CODECS]
    reader.commit(offsets=marks, asynchronous=False)
    reader.close()
    transact(process)
    compact(process)
    assert process.stop() == 0
    return process.data_dir


def produce(process, topic, codec):
    """Records in many batches, by an idempotent producer."""
    settings = {"bootstrap.servers": process.bootstrap_servers, "enable.idempotence": True}
    producer = Producer({**settings, "compression.type": codec})
    for number in range(COUNT):
        key, value = f"key-{number % 7}", f"{codec} {number:06d} " + "x" * (number % 50)
        producer.produce(topic, value, key, headers=[("number", str(number))])
        if number % PER_ROUND == PER_ROUND - 1:
            assert producer.flush(60) == 0


def transact(process):
    """One transaction that is committed, and one that is aborted."""
    settings = {"bootstrap.servers": process.bootstrap_servers, "transactional.id": GROUP}
    producer = Producer(settings)
    producer.init_transactions(60)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for number in range(PER_ROUND):
            producer.produce("transactions", f"{end.__name__} {number:06d}")
        assert producer.flush(60) == 0
        end(60)


def compact(process):
    """A topic of which the cleaner has left hardly more than a record for each key."""
    admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    admin.create_topics([NewTopic("compacted", 1, 1, config=settings)])["compacted"].result(60)
    produce(process, "compacted", "gzip")
    full = size_of(process.data_dir / "codec-gzip-0")
    wait_until(
        lambda: size_of(process.data_dir / "compacted-0") <= full / 2,
        "the cleaner",
        COMPACTION_SECONDS,
    )


@pytest.mark.parametrize("codec", CODECS)
def test_every_record_is_read(tools, data, codec):
    """Each batch is valid, of the codec that its producer chose, and holds the right records."""
    files = (data / f"codec-{codec}-0").glob("*.log")
    shown = dump(tools, list(files), "--print-data-log", "--deep-iteration")

    payloads = re.findall(r"payload: (\S+ \d{6})", shown)
    assert payloads == [f"{codec} {number:06d}" for number in range(COUNT)]
    assert "isvalid: false" not in shown
    assert set(re.findall(r"compresscodec: (\w+)", shown)) == {codec}
    assert shown.count("Log starting offset:") > 1


@pytest.mark.parametrize("codec", CODECS)
def test_indexes_agree_with_the_log(tools, data, codec):
    """Every entry of the offset and time indexes points at the batch that holds its record."""
    folder = data / f"codec-{codec}-0"
    offsets, times = list(folder.glob("*.index")), list(folder.glob("*.timeindex"))

    assert re.search(r"offset: \d+ position: \d+", dump(tools, offsets))
    assert re.search(r"timestamp: \d+ offset: \d+", dump(tools, times))
    assert_sane(tools, offsets)
    assert_sane(tools, times)


def test_producer_snapshots_are_read(tools, data):
    """The producer, its epoch and its last sequence number are in the snapshot of the stop."""
    files = list((data / "codec-none-0").glob("*.snapshot"))
    shown = dump(tools, files)

    newest = shown.rpartition("Dumping ")[2]
    assert re.search(r"producerId: \d+ producerEpoch: 0 ", newest)
    assert re.search(rf"lastSequence: {COUNT - 1}\b", newest)


def test_commits_are_decoded(tools, data):
    """The records of __consumer_offsets are Kafka's own."""
    files = list((data / "__consumer_offsets-0").glob("*.log"))
    shown = dump(tools, files, "--offsets-decoder")

    for codec in CODECS:
        assert f"codec-{codec}" in shown
    assert GROUP in shown
    assert "isvalid: false" not in shown


def test_transactions_are_decoded(tools, data):
    """Markers in the log, the aborted one in the index, and the coordinator's own records."""
    folder = data / "transactions-0"
    shown = dump(tools, logs(folder), "--print-data-log", "--deep-iteration")
    markers = re.findall(r"endTxnMarker: (\w+)", shown)
    assert markers == ["COMMIT", "ABORT"]
    aborted = dump(tools, list(folder.glob("*.txnindex")))
    last = 2 * PER_ROUND
    expected = f"firstOffset: {PER_ROUND + 1} lastOffset: {last + 1} lastStableOffset: {last + 2}"
    assert aborted.count("producerId:") == 1
    assert expected in aborted

    shown = dump(tools, logs(data / "__transaction_state-0"), "--transaction-log-decoder")
    assert GROUP in shown
    assert "isvalid: false" not in shown


def test_a_compacted_log_is_read(tools, data):
    """Offsets have holes, every key's last record is there, and the indexes agree."""
    folder = data / "compacted-0"
    shown = dump(tools, logs(folder), "--print-data-log", "--deep-iteration")
    found = dict(re.findall(r"key: (key-\d) payload: gzip (\d{6})", shown))
    assert found == {f"key-{number % 7}": f"{number:06d}" for number in range(COUNT)}
    assert shown.count("payload: ") < COUNT
    assert "isvalid: false" not in shown

    for kind in ("*.index", "*.timeindex"):
        dump(tools, list(folder.glob(kind)))
        assert_sane(tools, list(folder.glob(kind)))
