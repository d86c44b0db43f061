"""Apache Kafka's DumpLogSegments reads every kind of file that Ottla writes, and finds no fault."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ROUNDS = 20
PER_ROUND = 40
COUNT = ROUNDS * PER_ROUND
GROUP = "dumped"
COMPLAINTS = ("Found timestamp mismatch", "Mismatches in", "Non-consecutive", "out of order")


@pytest.fixture(scope="module")
def data(start_module_broker) -> Path:
    """A data directory: a topic in each codec over several segments, and a group's commits."""
    process = start_module_broker(
        log_segment_bytes=4096,
        log_index_interval_bytes=512,
        num_partitions=1,
        offsets_topic_num_partitions=1,
    )
    for codec in CODECS:
        produce(process, f"codec-{codec}", codec)
    reader = Consumer({"bootstrap.servers": process.bootstrap_servers, "group.id": GROUP})
    marks = [TopicPartition(f"codec-{codec}", 0, 7) for codec in CODECS]
    reader.commit(offsets=marks, asynchronous=False)
    reader.close()
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
            assert producer.flush(30) == 0


def dump(tools, files, *arguments):
    """What the tool prints of the files; it must not complain of any."""
    assert files
    shown = tools.run("dump-log", "--files", ",".join(map(str, sorted(files))), *arguments)
    assert not [words for words in COMPLAINTS if words in shown], shown
    return shown


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
    checked = dump(tools, offsets, "--index-sanity-check")
    assert checked.count("passed sanity check") == len(offsets)
    checked = dump(tools, times, "--index-sanity-check")
    assert checked.count("passed sanity check") == len(times)


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
