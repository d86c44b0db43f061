"""Replicas are compared batch by batch: those of three brokers, and made-up ones."""

import os
import re
import signal
from types import SimpleNamespace

import pytest

from ottla import Producer
from ottla.cli.command_error import CommandError
from ottla.cli.replica_verification import ReplicaVerification
from ottla.cli.terminal import Clients
from ottla.clients.partition_reader import ReplicaData, ReplicaReader
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import TopicPartition

T0 = TopicPartition("t", 0)


def data(*batches, high_watermark=100):
    """What a replica has: batches of ten records, by last offset and checksum."""
    made = [
        SimpleNamespace(last_offset=last, next_offset=last + 1, crc=crc) for last, crc in batches
    ]
    return ReplicaData(made, high_watermark)


def verification(lines):
    return ReplicaVerification({T0: (1, 2)}, {T0: 0}, lines.append)


def test_equal_batches_are_passed():
    """The next fetch begins behind them, on both brokers; what one lacks waits."""
    compared = verification(lines := [])
    compared.compare({1: {T0: data((9, 7), (19, 8))}, 2: {T0: data((9, 7))}})

    assert compared.wanted() == {1: {T0: 10}, 2: {T0: 10}}
    assert compared.report() == "max lag is 90 for partition t-0 at offset 10 among 1 partitions"
    assert (lines, compared.differences) == ([], 0)


def test_other_checksum_is_told():
    """Kafka's line; the comparison goes on."""
    compared = verification(lines := [])
    compared.compare({1: {T0: data((9, 7), (19, 8))}, 2: {T0: data((9, 6), (19, 8))}})

    assert lines == [
        "partition t-0 has unmatched checksum at offset 9; replica 1's checksum 7; replica 2's "
        "checksum 6"
    ]
    assert compared.wanted()[1] == {T0: 20}
    assert compared.differences == 1


def test_other_offset_ends_it():
    """The comparison cannot go on from there."""
    with pytest.raises(
        CommandError, match="replica 1's offset 9 doesn't match replica 2's offset 8"
    ):
        verification([]).compare({1: {T0: data((9, 7))}, 2: {T0: data((8, 7))}})


@pytest.mark.parametrize(
    "other",
    [
        {T0: data((9, 6), high_watermark=9)},
        {T0: KafkaError(ErrorCode.NETWORK_EXCEPTION, "away")},
        {},
    ],
    ids=["above-the-high-watermark", "error", "no-answer"],
)
def test_what_is_not_there_yet_waits(other):
    """Records above the high watermark may still change, and a broker may be away."""
    compared = verification(lines := [])
    compared.compare({1: {T0: data((9, 7))}, 2: other})

    assert compared.wanted()[1] == {T0: 0}
    assert lines == []


def test_replicas_of_a_cluster_are_alike(ottla_fresh_cluster):
    """Every replica is read, also those that do not lead, and all of them are passed."""
    ottla_fresh_cluster.create_topic("t", partitions=2, replication_factor=3)
    with Producer(ottla_fresh_cluster.bootstrap_servers, acks="all") as producer:
        for number in range(20):
            producer.send("t", str(number), partition=number % 2)
    brokers = tuple(ottla_fresh_cluster.live_brokers)
    partitions = [TopicPartition("t", number) for number in range(2)]
    compared = ReplicaVerification(
        dict.fromkeys(partitions, brokers), dict.fromkeys(partitions, 0), pytest.fail
    )
    settings = {"fetch.max.wait.ms": "100"}
    with ReplicaReader(ottla_fresh_cluster.bootstrap_servers, settings) as reader:
        for _ in range(600):
            compared.compare(reader.fetch(compared.wanted()))
            if set(compared.offsets.values()) == {10}:
                break

    assert compared.offsets == dict.fromkeys(partitions, 10)
    assert compared.report().startswith("max lag is 0 for partition t-")


def test_command_runs_until_it_is_stopped(ottla, clients, ottla_fresh_broker, monkeypatch):
    """A line at the start, and one for each interval; Ctrl-C is a good end."""
    clients.admin = Clients().admin
    ottla_fresh_broker.create_topic("t")
    report = ReplicaVerification.report

    def stopping(compared):
        os.kill(os.getpid(), signal.SIGINT)
        return report(compared)

    monkeypatch.setattr(ReplicaVerification, "report", stopping)
    words = ("--topic-white-list", "t", "--time", -2, "--report-interval-ms", 1)
    servers = ("--broker-list", ottla_fresh_broker.bootstrap_servers, "--max-wait-ms", 10)
    outcome = ottla("replica-verification", *servers, *words)

    assert outcome.status == 0, outcome.err
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"
    assert re.fullmatch(f"{moment}: verification process is started", outcome.lines[0])
    expected = "max lag is 0 for partition t-0 at offset 0 among 1 partitions"
    assert re.fullmatch(f"{moment}: {expected}", outcome.lines[1])


def test_topics_must_match(ottla, clients, ottla_fresh_broker):
    """Nothing to compare is an error."""
    clients.admin = Clients().admin
    servers = ("--broker-list", ottla_fresh_broker.bootstrap_servers)

    assert (
        "no topic matches 'x'"
        in ottla("replica-verification", *servers, "--topics-include", "x").err
    )
