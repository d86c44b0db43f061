"""Ottla's tools print, line by line, what those of Kafka 2.3.1 print about a cluster of it.

What is another on purpose is listed in docs/internals/peers.md.
"""

from __future__ import annotations

import json

import pytest

KEYS_WARNING = (
    "WARNING: If partitions are increased for a topic that has a key, the partition logic or "
    "ordering of the messages will be affected"
)


@pytest.fixture
def write(tmp_path):
    """Writes a file of JSON; its path."""

    def write_file(name, document):
        path = tmp_path / name
        path.write_text(json.dumps(document))
        return str(path)

    return write_file


def plan(topic, **replicas):
    rows = [
        {"topic": topic, "partition": int(name[1:]), "replicas": each}
        for name, each in replicas.items()
    ]
    return {"version": 1, "partitions": rows}


def test_topics_are_made_shown_altered_and_deleted(pair):
    """With --zookeeper, where the tool of 2.3 says more, and with --bootstrap-server."""
    zookeeper, servers = "topics --zookeeper ZK", "topics --bootstrap-server SERVERS"
    placed = "--replica-assignment 1:2:3,2:3:1"
    made = pair.same_at_once(
        f"{zookeeper} --create --topic w1 {placed} --config flush.messages=9 --config flush.ms=8"
    )
    pair.same_at_once(f"{zookeeper} --create --topic w_2 {placed}")
    pair.same_at_once(f"{zookeeper} --create --topic w1 {placed} --if-not-exists")
    shown = pair.same(f"{zookeeper} --describe --topic w1")
    for form in (zookeeper, servers):
        pair.same(f"{form} --describe --topic w1|w_2")
        pair.same(f"{form} --describe --topic w1|w_2 --under-replicated-partitions")
        pair.same(f"{form} --describe --topic w1|w_2 --unavailable-partitions")
        pair.same(f"{form} --describe --topic w1|w_2 --topics-with-overrides --exclude-internal")
        pair.same(f"{form} --list --topic w1,w_2")
    altered = pair.same_at_once(f"{zookeeper} --alter --topic w1 --partitions 3")
    pair.same_at_once(f"{zookeeper} --alter --topic none --partitions 3 --if-exists")
    pair.same_at_once(
        f"{servers} --alter --topic w_2 --partitions 3 --replica-assignment 1:2:3,2:3:1,3:1:2"
    )
    pair.same(f"{servers} --describe --topic w_2")
    deleted = pair.same_at_once(f"{zookeeper} --delete --topic w1")
    pair.same_at_once(f"{zookeeper} --delete --topic w1 --if-exists")
    silent, told = pair.run(f"{servers} --delete --topic w_2")
    pair.same(f"{zookeeper} --list --topic w1|w_2")

    assert (silent.lines, told.lines) == ([], ["Deleted topic w_2."])
    assert made == ["Created topic w1."]
    assert shown[0] == (
        "Topic:w1\tPartitionCount:2\tReplicationFactor:3\tConfigs:flush.messages=9,flush.ms=8"
    )
    assert altered == [KEYS_WARNING, "Adding partitions succeeded!"]
    assert deleted == [
        "Topic w1 is marked for deletion.",
        "Note: This will have no impact if delete.topic.enable is not set to true.",
    ]


def test_partitions_whose_broker_is_away_are_reported(pair):
    """Partitions of a broker that is away are reported, and a deletion that waits for it."""
    zookeeper, servers = "topics --zookeeper ZK", "topics --bootstrap-server SERVERS"
    settings = "--config min.insync.replicas=2"
    pair.same_at_once(
        f"{zookeeper} --create --topic r3 --replica-assignment 2:1:3,3:2:1 {settings}"
    )
    pair.same_at_once(f"{zookeeper} --create --topic r1 --replica-assignment 2")
    pair.same_at_once(f"{zookeeper} --create --topic going --replica-assignment 2:1")
    pair.same(f"{servers} --describe --topic r3")
    for cluster in pair.clusters:
        cluster.stop_broker(2)
    try:
        pair.same(f"{zookeeper} --describe --topic r3|r1")
        lacking = pair.same(f"{zookeeper} --describe --topic r3|r1 --under-replicated-partitions")
        nobody = pair.same(f"{zookeeper} --describe --topic r3|r1 --unavailable-partitions")
        pair.same(f"{servers} --describe --topic r3 --under-replicated-partitions")
        pair.same(f"{servers} --describe --topic r3 --under-min-isr-partitions")
        at_min = pair.same(f"{servers} --describe --topic r3 --at-min-isr-partitions")
        pair.same_at_once(f"{zookeeper} --delete --topic going")
        again = pair.same_at_once(f"{zookeeper} --delete --topic going")
        listed = pair.same(f"{zookeeper} --list --topic going|r1")
        gone = pair.same(f"{servers} --list --topic r1|going")
    finally:
        for cluster in pair.clusters:
            cluster.start_broker(2)

    assert (
        lacking
        == at_min
        == [
            "\tTopic: r3\tPartition: 0\tLeader: 1\tReplicas: 2,1,3\tIsr: 1,3",
            "\tTopic: r3\tPartition: 1\tLeader: 3\tReplicas: 3,2,1\tIsr: 3,1",
        ]
    )
    assert nobody == ["\tTopic: r1\tPartition: 0\tLeader: -1\tReplicas: 2\tIsr: 2"]
    assert again == ["Topic going is already marked for deletion."]
    assert listed == ["going - marked for deletion", "r1"]
    assert gone == ["r1"]


def test_partitions_move_and_leaders_return(pair, write):
    """Execute, verify, the throttle in the settings; then the elections, by either way."""
    moved = write("plan.json", plan("m", p0=[3, 1]))
    back = write("back.json", plan("m", p0=[1, 2]))
    gone = write("gone.json", plan("gone", p0=[1]))
    reassign = "reassign-partitions --zookeeper ZK --reassignment-json-file"
    pair.same_at_once("topics --zookeeper ZK --create --topic m --replica-assignment 1:2")
    topics = write("topics.json", {"version": 1, "topics": [{"topic": "m"}]})
    kafka, ottla = pair.run(
        f"reassign-partitions --zookeeper ZK --topics-to-move-json-file {topics} "
        "--broker-list 2,3 --generate"
    )
    before = pair.same_at_once(f"{reassign} {moved} --verify")
    executed = pair.same_at_once(f"{reassign} {moved} --execute --throttle 50000000")
    throttled = pair.same("configs --zookeeper ZK --describe --entity-type topics --entity-name m")
    pair.same("configs --zookeeper ZK --describe --entity-type brokers --entity-name 1")
    pair.same("topics --bootstrap-server SERVERS --describe --topic m")
    verified = pair.same(f"{reassign} {moved} --verify")
    pair.same("configs --zookeeper ZK --describe --entity-type topics --entity-name m")
    pair.same("configs --zookeeper ZK --describe --entity-type brokers")
    pair.same_at_once(f"{reassign} {back} --execute")
    pair.same(f"{reassign} {back} --verify")
    missing = pair.same_at_once(f"{reassign} {gone} --verify")
    chosen = write("elect.json", {"partitions": [{"topic": "m", "partition": 0}]})
    wrong = write("wrong.json", {"partitions": [{"topic": "none", "partition": 7}]})
    elect = "preferred-replica-election --zookeeper ZK"
    elected = pair.same(f"{elect} --path-to-json-file {chosen}")
    pair.same(f"{elect} --path-to-json-file {wrong}")
    pair.same("topics --zookeeper ZK --describe --topic m")
    asked = pair.same(
        f"preferred-replica-election --bootstrap-server SERVERS --path-to-json-file {chosen}"
    )

    assert ottla.lines[:4] == kafka.lines[:4]
    assert before == [
        "Status of partition reassignment:", "Reassignment of partition m-0 failed"
    ]  # fmt: skip
    assert executed[-1] == "Successfully started reassignment of partitions."
    assert "leader.replication.throttled.replicas=0:1,0:2" in throttled[0]
    assert "Reassignment of partition m-0 completed successfully" in verified
    assert missing[1] == "Reassignment of partition gone-0 failed"
    assert elected[2:] == [
        "Created preferred replica election path with m-0",
        "Successfully started preferred replica election for partitions Set(m-0)",
    ]
    assert asked == ["Successfully completed preferred replica election for partitions m-0"]


def test_settings_are_altered_and_shown(pair):
    """Of topics, of brokers, and of all of them."""
    topic = "configs --zookeeper ZK --entity-type topics --entity-name s"
    broker = "configs --zookeeper ZK --entity-type brokers"
    rate = "leader.replication.throttled.rate"
    pair.same_at_once("topics --zookeeper ZK --create --topic s --replica-assignment 1:2")
    pair.same(f"{topic} --describe")
    pair.same_at_once(f"{topic} --alter --add-config flush.ms=5,cleanup.policy=[compact,delete]")
    shown = pair.same(f"{topic} --describe")
    pair.same_at_once(f"{topic} --alter --delete-config flush.ms")
    pair.same(f"{topic} --describe")
    pair.same_at_once(f"{broker} --entity-name 1 --alter --add-config {rate}=10000")
    pair.same(f"{broker} --entity-name 1 --describe")
    pair.same_at_once(f"{broker} --entity-name 1 --alter --delete-config {rate}")
    default = "configs --bootstrap-server SERVERS --entity-type brokers --entity-default"
    told = pair.same_at_once(f"{default} --alter --add-config log.flush.interval.ms=9")
    pair.same(f"{broker} --entity-default --describe")
    pair.same_at_once(f"{default} --alter --delete-config log.flush.interval.ms")

    assert shown == ["Configs for topic 's' are cleanup.policy=compact,delete,flush.ms=5"]
    assert told == ["Completed updating default config for brokers in the cluster,"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("topics --zookeeper ZK --create --topic e --partitions 1 --replication-factor 5", "5"),
        ("topics --zookeeper ZK --create --topic e --partitions 0 --replication-factor 1", "0 par"),
        ("topics --zookeeper ZK --create --topic a/b --replica-assignment 1", "'a/b' cannot be"),
        ("topics --zookeeper ZK --create --topic e --replica-assignment 1:1", "names a broker tw"),
        (
            "topics --zookeeper ZK --create --topic e --replica-assignment 1 --config no=1",
            "no=1: there is no topic setting",
        ),
        ("topics --zookeeper ZK --describe --topic none", "topic 'none' does not exist"),
        ("topics --zookeeper ZK --delete --topic none", "topic 'none' does not exist"),
        ("topics --bootstrap-server SERVERS --alter --topic none --partitions 2", "does not exist"),
        ("topics --bootstrap-server SERVERS --zookeeper ZK --list", "only one of"),
        ("topics --bootstrap-server SERVERS --list --describe", "exactly one of --list"),
        ("topics --bootstrap-server SERVERS --list --partitions 2", "cannot be used with"),
        ("reassign-partitions --zookeeper ZK --execute", "--reassignment-json-file"),
        ("configs --zookeeper ZK --describe", "--entity-type, or a short form of it"),
        ("preferred-replica-election --zookeeper ZK --bootstrap-server SERVERS", "only one of"),
        ("delete-records --bootstrap-server SERVERS", "--offset-json-file"),
        ("log-dirs --bootstrap-server SERVERS", "--describe"),
        ("get-offsets --broker-list SERVERS --topic none", "topic 'none' does not exist"),
    ],
)
def test_what_kafka_refuses_is_refused(pair, line, reason):
    """In one line of Ottla's own words, and always with the status 1."""
    assert reason in pair.both_fail(line)


def test_offsets_and_groups_are_shown_and_changed(pair, write):
    """The console producer of 2.3 writes to both; a group without members is moved about."""
    groups = "consumer-groups --bootstrap-server SERVERS"
    pair.same_at_once("topics --zookeeper ZK --create --topic o --replica-assignment 1:2,2:1")
    for cluster in pair.clusters:
        pair.tools.run(
            "console-producer", "--broker-list", cluster.bootstrap_servers, "--topic", "o",
            "--request-required-acks", "-1", "--property", "parse.key=true",
            stdin="".join(f"key {number}\tvalue\n" for number in range(40)),
        )  # fmt: skip
    ends = pair.same("get-offsets --broker-list SERVERS --topic o")
    pair.same("get-offsets --broker-list SERVERS --topic o --time -2 --partitions 1")
    pair.same("get-offsets --broker-list SERVERS --topic o --time 9999999999999")
    reset = f"{groups} --reset-offsets --group og"
    moved = pair.same_at_once(f"{reset} --topic o --to-earliest --execute")
    pair.same_at_once(f"{reset} --topic o:0 --to-offset 3 --execute")
    pair.same_at_once(f"{reset} --topic o:0 --shift-by 2 --execute")
    for scenario in ("--to-current", "--to-latest", "--to-offset 1", "--by-duration P1D"):
        pair.same_at_once(f"{reset} --topic o:0 {scenario} --dry-run")
    exported = pair.same_at_once(f"{reset} --topic o:0 --to-current --export --dry-run")
    shown = pair.same(f"{groups} --describe --group og")
    pair.same(f"{groups} --describe --group og --members --verbose")
    listed = pair.same(f"{groups} --list")
    deleted = pair.same_at_once(f"{groups} --delete --group og")
    rows = [
        {"topic": "o", "partition": number, "offset": offset}
        for number, offset in [(0, 2), (1, -1)]
    ]
    offsets = write("offsets.json", {"partitions": rows, "version": 1})
    dropped = pair.same_at_once(
        f"delete-records --bootstrap-server SERVERS --offset-json-file {offsets}"
    )

    assert sum(int(line.rpartition(":")[2]) for line in ends) == 40
    assert moved[1].split() == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    assert exported == ["o,0,5"]
    assert [line.split()[:4] for line in shown[2:4]] == [
        ["og", "o", "0", "5"],
        ["og", "o", "1", "0"],
    ]
    assert "og" in listed
    assert deleted == ["Deletion of requested consumer groups ('og') was successful."]
    assert "partition: o-0\tlow_watermark: 2" in dropped
