"""Apache Kafka's command line tools do against Ottla what they do against Apache Kafka."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from confluent_kafka import Producer

from ottla import Admin
from ottla.extensions.quotas.quotas import Quotas
from ottla.testing import InProcessBroker, wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 50


@pytest.fixture
def kafka(tools, broker):
    """Runs a tool against the broker; what it printed."""

    def run(tool, *arguments, **options):
        server = ("--bootstrap-server", broker.bootstrap_servers)
        return tools.run(tool, *server, *arguments, **options)

    return run


@pytest.fixture
def topic(kafka, tools, unique):
    name = unique(f"tools-{tools.version}-").replace(".", "-")
    kafka("topics", "--create", "--topic", name, "--partitions", "3")
    return name


def produce(kafka, topic, codec="none", count=COUNT):
    """Type keyed records with headers into the console producer."""
    lines = "".join(f"codec:{codec}\tkey-{n % 7}\t{codec} {n:04d}\n" for n in range(count))
    keys = ("--property", "parse.key=true", "--property", "parse.headers=true")
    kafka("console-producer", "--topic", topic, "--compression-codec", codec, *keys, stdin=lines)
    return sorted(lines.splitlines())


def consume(kafka, topic, group, count):
    """What the console consumer prints of so many records, in a group."""
    shown = ("--property", "print.key=true", "--property", "print.headers=true")
    limits = ("--max-messages", str(count), "--timeout-ms", "30000", "--from-beginning")
    return kafka("console-consumer", "--topic", topic, "--group", group, *limits, *shown)


def committed(kafka, group):
    """Current offset and lag by partition, as `--describe` shows them."""
    rows = [
        line.split()
        for line in kafka("consumer-groups", "--describe", "--group", group).splitlines()
    ]
    return {int(row[2]): (int(row[3]), int(row[5])) for row in rows if row[:1] == [group]}


def offsets(kafka, topic, *arguments):
    """What get-offsets prints, by partition."""
    lines = kafka("get-offsets", "--topic", topic, *arguments).split()
    return {int(line.split(":")[1]): int(line.split(":")[2]) for line in lines}


def test_topics_are_created_described_widened_listed_and_deleted(kafka, unique):
    """Every verb of kafka-topics, with a setting, and the error of a topic that exists."""
    name = unique("life").replace(".", "-")
    setting = ("--config", "retention.ms=3600000")
    assert "Created topic" in kafka(
        "topics", "--create", "--topic", name, "--partitions", "2", *setting
    )
    again = kafka("topics", "--create", "--topic", name, status=1)
    kafka("topics", "--alter", "--topic", name, "--partitions", "5")
    described = kafka("topics", "--describe", "--topic", name)
    assert "exists" in again
    assert "PartitionCount: 5" in described
    assert "retention.ms=3600000" in described
    assert re.search(r"TopicId: [\w-]{22}\b", described)
    assert len(re.findall(r"Leader: 0\s+Replicas: 0\s+Isr: 0", described)) == 5
    assert name in kafka("topics", "--list").split()
    kafka("topics", "--delete", "--topic", name)
    assert name not in kafka("topics", "--list").split()


def test_topics_are_described_in_pieces(kafka, unique):
    """A limit of two partitions for an answer takes three requests, with cursors (KIP-966)."""
    name = unique("pieces").replace(".", "-")
    kafka("topics", "--create", "--topic", name, "--partitions", "5")
    limit = ("--partition-size-limit-per-response", "2")
    described = kafka("topics", "--describe", "--topic", name, *limit)

    assert "PartitionCount: 5" in described
    assert sorted(re.findall(r"Partition: (\d)", described)) == list("01234")
    assert described.count("Isr: 0\tElr:") == 5, "the columns of DescribeTopicPartitions"


def test_acls_are_refused_as_without_an_authorizer(kafka):
    """MirrorMaker 2 asks the same, and goes on after this error only."""
    assert "SecurityDisabledException" in kafka("acls", "--list", status=1)


@pytest.mark.parametrize("codec", CODECS)
def test_console_records_come_back(kafka, topic, codec):
    """Keys, values and headers typed into the producer are what the consumer prints."""
    sent = produce(kafka, topic, codec)

    assert sorted(consume(kafka, topic, topic, COUNT).splitlines()) == sent


def test_groups_are_described_reset_and_deleted(kafka, topic):
    """Offsets and lag of a group, its reset to the start, another reading, and its end."""
    sent = produce(kafka, topic)
    consume(kafka, topic, topic, COUNT)
    ends = offsets(kafka, topic)

    assert sum(ends.values()) == COUNT
    described = committed(kafka, topic)
    assert described == {
        partition: (end, 0) for partition, end in ends.items() if partition in described
    }
    assert sum(end for end, _ in described.values()) == COUNT
    assert topic in kafka("consumer-groups", "--list").split()
    assert "Empty" in kafka("consumer-groups", "--describe", "--group", topic, "--state")

    reset = ("--reset-offsets", "--group", topic, "--topic", topic, "--to-earliest", "--execute")
    kafka("consumer-groups", *reset)
    assert committed(kafka, topic) == {partition: (0, end) for partition, end in ends.items()}
    assert sorted(consume(kafka, topic, topic, COUNT).splitlines()) == sent

    deleted = kafka("consumer-groups", "--delete", "--group", topic)
    assert "was successful" in deleted
    assert topic not in kafka("consumer-groups", "--list").split()


def test_settings_are_altered_and_described(kafka, topic):
    """A topic's override is shown with the broker's default behind it, and is removed again."""
    entity = ("--entity-type", "topics", "--entity-name", topic)
    kafka("configs", *entity, "--alter", "--add-config", "max.message.bytes=2000000")
    described = kafka("configs", *entity, "--describe")
    assert "max.message.bytes=2000000" in described
    assert "DEFAULT_CONFIG:message.max.bytes=1048588" in described
    kafka("configs", *entity, "--alter", "--delete-config", "max.message.bytes")
    assert "max.message.bytes" not in kafka("configs", *entity, "--describe")
    broker = ("--entity-type", "brokers", "--entity-name", "0")
    assert "log.segment.bytes=1073741824" in kafka("configs", *broker, "--describe", "--all")


def test_records_are_deleted_and_offsets_looked_up(kafka, topic, tmp_path):
    """Both ends, the largest timestamp and a time; the log start after delete-records."""
    produce(kafka, topic)
    ends = offsets(kafka, topic)
    partition = max(ends, key=ends.__getitem__)
    wanted = [{"topic": topic, "partition": partition, "offset": 3}]
    plan = tmp_path / "delete.json"
    plan.write_text(json.dumps({"version": 1, "partitions": wanted}))

    done = kafka("delete-records", "--offset-json-file", str(plan))

    assert f"partition: {topic}-{partition}\tlow_watermark: 3" in done
    starts = offsets(kafka, topic, "--time", "-2")
    assert starts == {**dict.fromkeys(ends, 0), partition: 3}
    newest = offsets(kafka, topic, "--time", "-3")
    assert all(0 <= newest[index] < end for index, end in ends.items() if end)
    assert offsets(kafka, topic, "--time", "1000")[partition] == 3


def test_api_versions_are_understood(kafka):
    """The tool names every API that it knows, and can use the ones that Ottla serves."""
    shown = kafka("broker-api-versions")

    assert re.search(r"Produce\(0\): \d+ to \d+ \[usable: \d+\]", shown)
    assert re.search(r"Fetch\(1\): \d+ to \d+ \[usable: \d+\]", shown)


def test_the_performance_tools_run(kafka, tools, broker, topic):
    """A hundred thousand records in and out."""
    count = 100_000
    size = ("--record-size", "100", "--throughput", "-1", "--num-records", str(count))
    servers = ("--producer-props", f"bootstrap.servers={broker.bootstrap_servers}")
    produced = tools.run("producer-perf-test", "--topic", topic, *size, *servers)
    consumed = kafka("consumer-perf-test", "--topic", topic, "--messages", str(count))

    assert f"{count} records sent" in produced
    assert int(consumed.splitlines()[-1].split(", ")[4]) == count


def test_transactions_are_listed_and_described(kafka, topic, broker):
    """An open transaction is seen by every verb, and can be aborted by the operator."""
    transactional_id = f"{topic}-id"
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer({**settings, "transactional.id": transactional_id})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(60) == 0

    assert re.search(rf"{transactional_id}\s+0\s+\d+\s+Ongoing", kafka("transactions", "list"))
    described = kafka("transactions", "describe", "--transactional-id", transactional_id)
    assert f"{topic}-0" in described
    partition = ("--topic", topic, "--partition", "0")
    producers = kafka("transactions", "describe-producers", *partition).splitlines()[1].split()
    assert producers[-1] == "0"
    kafka("transactions", "abort", *partition, "--start-offset", "0")

    producers = kafka("transactions", "describe-producers", *partition).splitlines()[1].split()
    assert producers[-1] == "None"
    assert offsets(kafka, topic)[0] == 2


def ottla(broker, tool, *words):
    """What Ottla's tool of the same name prints."""
    command = [sys.executable, "-m", "ottla", tool]
    servers = ("--bootstrap-server", broker.bootstrap_servers)
    done = subprocess.run(
        [*command, *servers, *words], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


@pytest.mark.parametrize("words", ["list", "describe-producers", "find-hanging"])
def test_ottla_prints_transactions_as_kafka_does(kafka, topic, broker, words):
    """Headers, columns and padding, character by character; Kafka's tool does not sort."""
    servers = broker.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"a long id of {topic}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"v", partition=0)
    producer.flush()
    options = [] if words == "list" else ["--topic", topic, "--partition", "0"]

    printed = ottla(broker, "transactions", words, *options).splitlines()
    assert sorted(printed) == sorted(kafka("transactions", words, *options).splitlines())
    producer.abort_transaction(60)


def test_features_are_changed_by_either_tool(kafka, broker):
    """Both tools change features, and describe them in the same words."""
    unused = kafka("features", "describe")
    assert unused == ottla(broker, "features", "describe")
    try:
        upgraded = kafka("features", "upgrade", "--feature", "transaction.version=2")
        assert upgraded == "transaction.version was upgraded to 2.\n"
        described = kafka("features", "describe")
        assert described == ottla(broker, "features", "describe")
        assert "FinalizedVersionLevel: 2" in described
        kafka("features", "upgrade", "--feature", "transaction.version=3", status=1)
    finally:
        disabled = ottla(broker, "features", "disable", "--feature", "transaction.version")
    assert disabled == "transaction.version was disabled.\n"


USER = ("--entity-type", "users")
CLIENT = ("--entity-type", "clients")
DEFAULT = ("--entity-default",)
ME = ("--entity-name", "ANONYMOUS")
APP = ("--entity-name", "app")
LEVELS = (
    (*CLIENT, *DEFAULT),
    (*CLIENT, *APP),
    (*USER, *DEFAULT),
    (*USER, *DEFAULT, *CLIENT, *DEFAULT),
    (*USER, *DEFAULT, *CLIENT, *APP),
    (*USER, *ME),
    (*USER, *ME, *CLIENT, *DEFAULT),
    (*USER, *ME, *CLIENT, *APP),
)
"""Where a quota of ANONYMOUS and app can stand, the weakest first."""


def test_quotas_of_each_level_are_set_and_removed(tools):
    """The broker follows the strongest level that has a limit, and forgets it again."""
    with InProcessBroker() as broker:
        server = ("--bootstrap-server", broker.bootstrap_servers)

        def is_in_force(limit):
            found = broker.broker.find(Quotas).known().produce.limit_of("ANONYMOUS", "app")
            return (found and found[1]) == limit

        for limit, words in enumerate(LEVELS, 1000):
            change = ("--add-config", f"producer_byte_rate={limit}")
            assert "Completed updating" in tools.run("configs", *server, "--alter", *change, *words)
            wait_until(lambda limit=limit: is_in_force(limit), f"{words} is in force")
        shown = tools.run("configs", *server, "--describe", *LEVELS[-1])
        assert "Quota configs for user-principal 'ANONYMOUS', client-id 'app'" in shown
        assert "producer_byte_rate=1007.0" in shown
        with Admin(broker.bootstrap_servers) as admin:
            assert len(admin.describe_client_quotas()) == len(LEVELS)
        undo = ("--delete-config", "producer_byte_rate")
        tools.run("configs", *server, "--alter", *undo, *LEVELS[-1])
        wait_until(lambda: is_in_force(1006), "the next level is in force")
