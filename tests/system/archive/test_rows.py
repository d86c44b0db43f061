"""The command lines of Kafka's documentation, typed in the unpacked archive as they are printed.

What a command prints stands here with the article's own names; only ports, folders and the ids of
members differ.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from page import ROOT

from ottla import Consumer, Producer
from ottla.cli.kafka_scripts import SCRIPTS, offered_scripts
from ottla.cli.local_servers import server_processes
from ottla.testing import wait_until

PRINTED = {
    *("zookeeper-server-stop", "kafka-server-start", "kafka-server-stop", "connect-standalone"),
    *("kafka-topics", "kafka-console-producer", "kafka-console-consumer", "kafka-configs"),
    *("kafka-consumer-groups", "kafka-reassign-partitions", "kafka-run-class"),
    "kafka-preferred-replica-election",
}
"""The scripts whose command lines Kafka's documentation prints."""

TOPICS = "bin/kafka-topics.sh --bootstrap-server localhost:9092"
GROUPS = "bin/kafka-consumer-groups.sh --bootstrap-server localhost:9092"
REASSIGN = "bin/kafka-reassign-partitions.sh --zookeeper localhost:2181"
OFFSETS = "bin/kafka-run-class.sh kafka.tools.GetOffsetShell --broker-list localhost:9092 --topic"
DESCRIBED = re.compile(
    r"\tTopic: (\S+)\tPartition: (\d+)\tLeader: (\w+)\tReplicas: ([\d,]+)\tIsr: ([\d,]*)"
)
HEADER = "Topic:{}\tPartitionCount:{}\tReplicationFactor:{}\tConfigs:"
DEAD_LEADER_S = 120


def described(reader, topic):
    """Leader, replicas and in-sync replicas of each partition; the first line apart."""
    first, *others = reader.types(f"{TOPICS} --describe --topic {topic}")
    found = [DESCRIBED.fullmatch(line).groups() for line in others]
    return first, {
        int(number): (leader, replicas, set(isr.split(",")))
        for _, number, leader, replicas, isr in found
    }


def rows(lines):
    """The cells of a table, a list for each line."""
    return [line.split() for line in lines if line.strip()]


def cells(header):
    """The names of a table's columns."""
    return header.split()


def consumed(reader, topic, *texts):
    """Read from the beginning until these have come, then press Ctrl-C."""
    line = f"bin/kafka-console-consumer.sh --bootstrap-server localhost:9092 --topic {topic}"
    process = reader.shell.begin(f"{line} --from-beginning", stderr=subprocess.DEVNULL)
    printed = [process.stdout.readline().rstrip("\n") for _ in texts]
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert printed == list(texts)


@pytest.fixture(scope="module")
def replicated(reader):
    """The quick start's topic with three replicas and two messages."""
    create = "--create --replication-factor 3 --partitions 1 --topic my-replicated-topic"
    # As the article's three brokers would have it; this cluster has eight.
    placed = create.replace("--replication-factor 3 --partitions 1", "--replica-assignment 1:2:0")
    assert reader.types(f"{TOPICS} {placed}") == ["Created topic my-replicated-topic."]
    reader.types(
        "bin/kafka-console-producer.sh --broker-list localhost:9092 --topic my-replicated-topic",
        "my test message 1\nmy test message 2\n",
    )
    return "my-replicated-topic"


@pytest.fixture(scope="module")
def group(reader):
    """The group my-group: a member with two partitions of my-topic, and one that reads nothing."""
    reader.types(f"{TOPICS} --create --replication-factor 1 --partitions 2 --topic my-topic")
    with Producer(reader.servers) as producer:
        for number in range(10):
            producer.send("my-topic", str(number), partition=number % 2)
    settings = {"group_id": "my-group", "auto_offset_reset": "earliest"}
    with Consumer(reader.servers, client_id="consumer1", topics=["my-topic"], **settings) as first:
        seen = []
        while len(seen) < 10:
            seen += first.poll(1000)
        first.commit()
        yield "my-group"
        first.close(timeout_ms=1_000)  # the last test has stopped the brokers


@pytest.fixture
def idle_group(reader, request):
    """A group without members that has read all ten records of a topic of its own."""
    topic = f"topic-{request.node.originalname}".replace("_", "-")
    reader.types(f"{TOPICS} --create --replication-factor 1 --partitions 1 --topic {topic}")
    with Producer(reader.servers) as producer:
        for number in range(10):
            producer.send(topic, str(number), timestamp_ms=1_600_000_000_000 + number)
    name = f"group-{topic}"
    settings = {"group_id": name, "auto_offset_reset": "earliest", "topics": [topic]}
    with Consumer(reader.servers, **settings) as consumer:
        seen = []
        while len(seen) < 10:
            seen += consumer.poll(1000)
        consumer.commit()
    return name, topic


def reset(reader, group, words):
    """The new offset that the one row of a reset shows."""
    table = rows(reader.types(f"{GROUPS} --reset-offsets --group {group} {words}"))
    assert table[0] == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    (offset,) = [int(row[3]) for row in table if row[0] == group]
    return offset


def offset_of(reader, group):
    """What the group has committed, as --describe shows it."""
    table = rows(reader.types(f"{GROUPS} --describe --group {group}"))
    return int(next(row for row in table if row[0] == group)[3])


def test_every_printed_script_is_typed():
    """Each script of the documentation's command lines stands in a command of this file."""
    source = Path(__file__).read_text(encoding="utf-8")

    assert set(re.findall(r"\bbin/([a-z-]+)\.sh", source)) >= PRINTED


def test_archive_has_the_layout_of_kafka(archive, home):
    """bin and config under Kafka's names, and a script for each command that is there."""
    with tarfile.open(archive) as file:
        tops = {name.split("/")[0] for name in file.getnames()}
    scripts = {path.name for path in (home / "bin").iterdir()}

    assert tops == {home.name}
    assert {"server.properties", "zookeeper.properties"} < {
        path.name for path in (home / "config").iterdir()
    }
    assert scripts == {"ottla", *offered_scripts()}
    assert "kafka-mirror-maker.sh" in scripts
    assert "connect-standalone.sh" in scripts


def test_wheel_brings_the_property_files(home):
    """For who has installed it without an archive: `ottla config write`."""
    (wheel,) = home.glob("libs/ottla-*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = {Path(name).name for name in file.namelist() if "/config/files/" in name}

    assert names == {path.name for path in (ROOT / "config").glob("*.properties")}
    assert "connect-standalone.properties" in names


def test_environment_has_the_packages_of_the_scripts_and_no_others(home):
    """What the installer asks for: Connect's are there, those of the tests are not."""
    (site,) = home.glob(".venv/lib/python*/site-packages")
    packages = {path.name for path in site.iterdir()}

    assert {"aiohttp", "prometheus_client", "kazoo", "ottla"} <= packages
    assert not packages & {"pytest", "pyspark", "confluent_kafka", "packages.pth"}


@pytest.mark.wide
def test_server_says_which_properties_it_was_given(reader):
    """A line for each property that is overridden, when it starts."""
    said = "\n".join(reader.first_lines)

    assert "INFO Property broker.id is overridden to 0 " in said
    assert "INFO Property socket.send.buffer.bytes is overridden to 102400 " in said


def test_topic_is_created_listed_written_and_read(reader):
    """Steps 3 to 5 of the quick start, with both options for the server."""
    create = "--create --bootstrap-server localhost:9092 --replication-factor 1 --partitions 1"
    assert reader.types(f"bin/kafka-topics.sh {create} --topic test") == ["Created topic test."]
    listed = reader.types("bin/kafka-topics.sh --list --bootstrap-server localhost:9092")
    assert "test" in listed

    for option, text in (("--broker-list", "a message"), ("--bootstrap-server", "another message")):
        producer = f"bin/kafka-console-producer.sh {option} localhost:9092 --topic test"
        reader.types(producer, f"This is {text}\n")

    consumed(reader, "test", "This is a message", "This is another message")


def test_topic_that_does_not_exist_is_created_by_the_first_message(reader):
    """Brokers create topics that somebody publishes to."""
    producer = "bin/kafka-console-producer.sh --broker-list localhost:9092 --topic by-itself"
    reader.types(producer, "hello\n")

    assert described(reader, "by-itself")[0].startswith(HEADER.format("by-itself", 1, 1))


@pytest.mark.wide
def test_three_brokers_replicate_a_topic_and_one_dies(reader, replicated):
    """Another replica leads, and the messages are there: step 6."""
    first, partitions = described(reader, replicated)
    assert first.startswith(HEADER.format(replicated, 1, 3))
    assert partitions == {0: ("1", "1,2,0", {"1", "2", "0"})}
    consumed(reader, replicated, "my test message 1", "my test message 2")

    lines = reader.types("ps aux | grep server-1.properties")
    own = {process.pid for process in reader.shell.started}
    (process,) = own & {int(line.split()[1]) for line in lines}
    os.kill(process, signal.SIGKILL)

    wait_until(
        lambda: described(reader, replicated)[1][0] == ("2", "1,2,0", {"2", "0"}),
        "the next replica to lead",
        DEAD_LEADER_S,
        seen=lambda: described(reader, replicated),
    )
    consumed(reader, replicated, "my test message 1", "my test message 2")
    reader.starts("bin/kafka-server-start.sh config/server-1.properties")
    wait_until(
        lambda: described(reader, replicated)[1][0][2] == {"0", "1", "2"},
        "the replica that was away to catch up",
        DEAD_LEADER_S,
    )


def test_preferred_replicas_lead_again(reader, replicated):
    """kafka-preferred-replica-election.sh asks for it through ZooKeeper."""
    said = reader.types("bin/kafka-preferred-replica-election.sh --zookeeper localhost:2181")

    assert any(f"{replicated}-0" in line for line in said)
    wait_until(
        lambda: described(reader, replicated)[1][0][0] == "1", "the preferred replica to lead"
    )


def test_groups_are_listed_and_described(reader, group):
    """The tables of --describe, with the column GROUP that Kafka 2.3 prints."""
    assert group in reader.types(
        "bin/kafka-consumer-groups.sh --bootstrap-server localhost:9092 --list"
    )

    plain = rows(reader.types(f"{GROUPS} --describe --group {group}"))
    offsets = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
    assert plain[0] == cells(offsets)
    assert [row[:6] for row in plain[1:]] == [
        [group, "my-topic", str(number), "5", "5", "0"] for number in range(2)
    ]
    assert plain[1][7:] == ["/127.0.0.1", "consumer1"]
    assert rows(reader.types(f"{GROUPS} --describe --group {group} --offsets")) == plain

    members = rows(reader.types(f"{GROUPS} --describe --group {group} --members"))
    assert members[0] == cells("GROUP CONSUMER-ID HOST CLIENT-ID #PARTITIONS")
    assert [row[2:] for row in members[1:]] == [["/127.0.0.1", "consumer1", "2"]]

    table = reader.types(f"{GROUPS} --describe --group {group} --members --verbose")
    assert rows(table)[0] == cells("GROUP CONSUMER-ID HOST CLIENT-ID #PARTITIONS ASSIGNMENT")
    assert table[-1].rstrip().endswith("my-topic(0,1)")

    state = reader.types(f"{GROUPS} --describe --group {group} --state")
    assert rows(state)[0] == cells("GROUP COORDINATOR (ID) ASSIGNMENT-STRATEGY STATE #MEMBERS")
    assert re.fullmatch(r"my-group +\S+:\d+ +\(\d\) +range +Stable +1 *", state[-1])


def test_groups_are_deleted_unless_they_have_members(reader, group, idle_group):
    """The line of success quotes the names; a group with members is refused."""
    name, _ = idle_group
    other = f"{name}-other"
    seek = f"{GROUPS} --reset-offsets --group {other} --topic my-topic --to-earliest --execute"
    reader.types(seek)

    refused = reader.fails(f"{GROUPS} --delete --group {group}")
    done = reader.types(f"{GROUPS} --delete --group {name} --group {other}")

    assert "NON_EMPTY_GROUP" in refused or "not empty" in refused
    assert done == [f"Deletion of requested consumer groups ('{name}', '{other}') was successful."]


def test_reset_needs_an_inactive_group_and_a_scope(reader, group, idle_group):
    """Neither a group with members nor a reset of nothing."""
    name, topic = idle_group

    assert "Stable" in reader.fails(
        f"{GROUPS} --reset-offsets --group {group} --topic my-topic --to-earliest"
    )
    assert "--all-topics" in reader.fails(f"{GROUPS} --reset-offsets --group {name} --to-earliest")
    assert reset(reader, name, "--all-topics --to-earliest") == 0
    assert reset(reader, name, f"--topic {topic} --to-earliest") == 0


def test_reset_plans_executes_and_exports(reader, idle_group):
    """The plan changes nothing, --execute does, --export is CSV for --from-file."""
    name, topic = idle_group
    words = f"--topic {topic} --to-offset 3"

    assert reset(reader, name, words) == 3
    assert reset(reader, name, f"{words} --dry-run") == 3
    assert offset_of(reader, name) == 10
    exported = reader.types(f"{GROUPS} --reset-offsets --group {name} {words} --export")
    lines = [line for line in exported if line.startswith(topic)]
    assert lines == [f"{topic},0,3"]
    assert reset(reader, name, f"{words} --execute") == 3
    assert offset_of(reader, name) == 3

    (reader.folder / "offsets.csv").write_text(f"{topic},0,7\n")
    assert reset(reader, name, "--from-file offsets.csv --execute") == 7
    assert offset_of(reader, name) == 7


@pytest.mark.parametrize(
    ("words", "offset"),
    [
        ("--to-datetime 2020-09-13T12:26:40.004", 4),
        ("--to-earliest", 0),
        ("--to-latest", 10),
        ("--shift-by -2", 8),
        ("--shift-by 5", 10),
        ("--to-current", 10),
        ("--by-duration P1D", 10),
        ("--to-offset 6", 6),
        ("--to-offset 99", 10),
    ],
)
def test_reset_goes_to(reader, reset_group, words, offset):
    """Each scenario keeps the offsets within the log."""
    name, topic = reset_group

    assert reset(reader, name, f"--topic {topic} {words}") == offset


@pytest.fixture(scope="module")
def reset_group(reader):
    """A group at the end of a topic with ten records of the year 2020; plans leave it there."""
    reader.types(f"{TOPICS} --create --replication-factor 1 --partitions 1 --topic topic1")
    with Producer(reader.servers) as producer:
        for number in range(10):
            producer.send("topic1", str(number), timestamp_ms=1_600_000_000_000 + number)
    reader.types(
        f"{GROUPS} --reset-offsets --group consumergroup1 --topic topic1 --to-latest --execute"
    )
    return "consumergroup1", "topic1"


@pytest.fixture(scope="module")
def moved_topics(reader):
    """foo1 and foo2 on the brokers 1 to 4, as the chapter has them, and its files."""
    for name in ("foo1", "foo2"):
        reader.types(f"{TOPICS} --create --topic {name} --replica-assignment 3:4,2:3,1:2")
    reader.writes(
        "topics-to-move.json",
        '{"topics": [{"topic": "foo1"},\n            {"topic": "foo2"}],\n"version":1\n}\n',
    )
    reader.writes(
        "custom-reassignment.json",
        '{"version":1,"partitions":[{"topic":"foo1","partition":0,"replicas":[5,6]},'
        '{"topic":"foo2","partition":1,"replicas":[2,3]}]}\n',
    )


CURRENT = {
    (topic, partition): replicas
    for topic in ("foo1", "foo2")
    for partition, replicas in enumerate(([3, 4], [2, 3], [1, 2]))
}


def assignment(line):
    """The replicas of each partition, out of the JSON that a plan is printed as."""
    plan = json.loads(line)
    assert plan["version"] == 1
    return {(each["topic"], each["partition"]): each["replicas"] for each in plan["partitions"]}


def verified(reader, plan, count):
    """Look with --verify until all partitions of a plan have moved; what it prints in the end."""
    shown = []

    def has_moved():
        shown[:] = reader.types(f"{REASSIGN} --reassignment-json-file {plan} --verify")
        return sum(line.endswith("completed successfully") for line in shown) == count

    wait_until(has_moved, f"{plan} to be done", DEAD_LEADER_S, seen=lambda: shown)
    assert shown[0] == "Status of partition reassignment:"
    return shown


def test_topics_move_to_other_brokers(reader, moved_topics):
    """A plan is generated, executed, and verified until it is done."""
    generate = '--topics-to-move-json-file topics-to-move.json --broker-list "5,6" --generate'
    lines = [line for line in reader.types(f"{REASSIGN} {generate}") if line]
    assert lines[0] == "Current partition replica assignment"
    assert assignment(lines[1]) == CURRENT
    assert lines[2] == "Proposed partition reassignment configuration"
    proposed = assignment(lines[3])
    assert proposed.keys() == CURRENT.keys()
    assert all(set(replicas) == {5, 6} for replicas in proposed.values())

    reader.writes("expand-cluster-reassignment.json", lines[3])
    execute = "--reassignment-json-file expand-cluster-reassignment.json --execute"
    lines = [line for line in reader.types(f"{REASSIGN} {execute}") if line]
    assert lines[0] == "Current partition replica assignment"
    assert assignment(lines[1]) == CURRENT
    assert lines[2] == "Save this to use as the --reassignment-json-file option during rollback"
    assert lines[-1] == "Successfully started reassignment of partitions."

    done = verified(reader, "expand-cluster-reassignment.json", 6)
    assert "Reassignment of partition foo1-0 completed successfully" in done
    assert set(described(reader, "foo1")[1][0][1].split(",")) == {"5", "6"}


def test_single_partitions_move_by_a_plan_made_by_hand(reader, moved_topics):
    """Partition 0 of foo1 to 5 and 6, partition 1 of foo2 to 2 and 3."""
    reader.types(f"{REASSIGN} --reassignment-json-file custom-reassignment.json --execute")

    verified(reader, "custom-reassignment.json", 2)
    assert described(reader, "foo2")[1][1][1] == "2,3"


def test_plan_gives_a_partition_more_replicas(reader):
    """foo has one replica, on broker 5, and then three."""
    reader.types(f"{TOPICS} --create --topic foo --replica-assignment 5")
    reader.writes(
        "increase-replication-factor.json",
        '{"version":1,\n"partitions":[{"topic":"foo","partition":0,"replicas":[5,6,7]}]}\n',
    )
    plan = "increase-replication-factor.json"
    reader.types(f"{REASSIGN} --reassignment-json-file {plan} --execute")

    verified(reader, plan, 1)
    first, partitions = described(reader, "foo")
    assert first.startswith(HEADER.format("foo", 1, 3))
    assert partitions == {0: ("5", "5,6,7", {"5", "6", "7"})}


@pytest.mark.wide
def test_throttle_is_set_changed_seen_and_removed(reader):
    """The dash of the article's --throttle is a long one."""
    reader.types(f"{TOPICS} --create --topic slow --replica-assignment 1")
    with Producer(reader.servers) as producer:
        for _ in range(30):
            producer.send("slow", b"x" * 100_000)
    plan = "bigger-cluster.json"
    reader.writes(
        plan, '{"version":1,"partitions":[{"topic":"slow","partition":0,"replicas":[2]}]}\n'
    )
    execute = f"{REASSIGN} --execute --reassignment-json-file {plan}"

    said = reader.types(f"{execute} \u2014throttle 1000")
    assert "The inter-broker throttle limit was set to 1000 B/s" in "\n".join(said)
    brokers = reader.types(
        "bin/kafka-configs.sh --describe --zookeeper localhost:2181 --entity-type brokers"
    )
    rate = "replication.throttled.rate=1000"
    throttled = [
        line for line in brokers if f"leader.{rate}" in line and f"follower.{rate}" in line
    ]
    assert {1, 2} <= {int(re.search(r"'(\d)'", line)[1]) for line in throttled}
    topics = reader.types(
        "bin/kafka-configs.sh --describe --zookeeper localhost:2181 --entity-type topics"
    )
    (shown,) = [line for line in topics if "'slow'" in line]
    assert "leader.replication.throttled.replicas=0:1" in shown
    assert "follower.replication.throttled.replicas=0:2" in shown

    again = reader.types(f"{execute} --throttle 700000000")
    assert "There is an existing assignment running." in again
    assert "700000000 B/s" in "\n".join(again)
    assert verified(reader, plan, 1)[-1] == "Throttle was removed."
    after = reader.types(
        "bin/kafka-configs.sh --describe --zookeeper localhost:2181 --entity-type brokers"
    )
    assert not [line for line in after if "throttled" in line]


def test_files_go_to_a_topic_and_to_a_file(reader):
    """connect-standalone.sh with the shipped files, and more test.sink.txt."""
    worker = "config/connect-standalone.properties"
    reader.writes(
        worker,
        "bootstrap.servers=localhost:9092\nlisteners=http://127.0.0.1:0\n"
        # How far a worker of an earlier run of this test has read a file of this name.
        "offset.storage.file.filename=/tmp/connect.offsets\n",
    )
    reader.types("printf 'foo\\nbar\\n' > test.txt")
    connectors = "config/connect-file-source.properties config/connect-file-sink.properties"
    reader.starts(f"bin/connect-standalone.sh {worker} {connectors}", ready="connectors run")

    sink = reader.folder / "test.sink.txt"
    wait_until(lambda: sink.exists() and sink.read_text() == "foo\nbar\n", "both lines")
    reader.types("echo Another line >> test.txt")
    wait_until(lambda: sink.read_text() == "foo\nbar\nAnother line\n", "the line that came later")
    assert reader.types("more test.sink.txt")[-3:] == ["foo", "bar", "Another line"]


def test_offset_shell_prints_topic_partition_and_offset(reader, replicated):
    """kafka-run-class.sh finds the command by the name of a class."""
    assert reader.types(f"{OFFSETS} {replicated}") == [f"{replicated}:0:2"]
    assert "GetOffsetShel" in reader.fails("bin/kafka-run-class.sh kafka.tools.GetOffsetShel")


def test_memory_that_waits_for_the_disk_is_shown(reader):
    """`cat /proc/meminfo`, which is Linux's own."""
    names = {line.split(":")[0] for line in reader.types("cat /proc/meminfo")}

    assert {"Dirty", "Writeback"} <= names


@pytest.mark.parametrize(
    "script", ["kafka-topics.sh", "kafka-server-start.sh", "zookeeper-shell.sh"]
)
def test_script_without_options_shows_them(reader, script):
    """Each tool has a usage text; tests/unit/cli asks every command for its own."""
    assert reader.fails(f"bin/{script}").startswith(f"usage: ottla {SCRIPTS[script][0]}")


@pytest.mark.wide
def test_servers_in_the_background_are_stopped(reader):
    """-daemon and its file; the stop scripts end all servers of this installation, and no others.

    It is the last test of the archive, since the brokers of all tests end here.
    """
    log = reader.folder / "logs" / "kafkaServer.out"
    reader.types(
        "bin/kafka-server-start.sh -daemon config/server-alone.properties "
        "--override broker.id=99 --override listeners=PLAINTEXT://127.0.0.1:0 "
        "--override log.dirs=/tmp/kafka-logs-99"
    )
    wait_until(lambda: " is ready at " in log.read_text(), "the server in the background")
    zookeeper, *others = reader.shell.started
    brokers = [each for each in others if "kafka-server-start" in str(each.args)]

    reader.types("bin/kafka-server-stop.sh")

    for process in brokers:
        process.wait(60)
    programs = str(reader.folder / ".venv" / "bin")
    wait_until(
        lambda: not list(server_processes("broker", Path("/proc"), programs, os.getuid())),
        "the server in the background to end",
    )
    assert "broker 99 is stopping" in log.read_text()
    assert zookeeper.poll() is None
    assert reader.fails("bin/kafka-server-stop.sh") == "No kafka server to stop\n"
    reader.types("bin/zookeeper-server-stop.sh")
    zookeeper.wait(60)
    assert reader.fails("bin/zookeeper-server-stop.sh") == "No zookeeper server to stop\n"
