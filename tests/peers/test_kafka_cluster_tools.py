"""Apache Kafka's tools administrate a cluster of three brokers by --bootstrap-server."""

from __future__ import annotations

import json
import re

import pytest
from benchmarks.peers.kafka_tools import TOOL_SECONDS
from cluster_load import SteadyLoad

from ottla.testing import wait_until

COUNT = 60


@pytest.fixture
def kafka(tools, cluster):
    """Runs a tool against the cluster; what it printed."""

    def run(tool, *arguments, **options):
        server = ("--bootstrap-server", cluster.bootstrap_servers)
        return tools.run(tool, *server, *map(str, arguments), **options)

    return run


@pytest.fixture
def topic(tools, unique):
    return unique(f"on-three-{tools.version}-").replace(".", "-")


@pytest.fixture
def plan(topic, tmp_path):
    """Writes a plan of partitions and their replicas; the path of it."""

    def write(**replicas):
        rows = [
            {"topic": topic, "partition": int(name[1:]), "replicas": each}
            for name, each in replicas.items()
        ]
        path = tmp_path / "plan.json"
        path.write_text(json.dumps({"version": 1, "partitions": rows}))
        return path

    return write


def create(kafka, topic, *assignment, **settings):
    """A topic whose partitions have these replicas."""
    configs = [f"--config={name.replace('_', '.')}={value}" for name, value in settings.items()]
    words = ("--topic", topic, "--replica-assignment", ",".join(assignment), *configs)
    assert kafka("topics", "--create", *words) == f"Created topic {topic}.\n"


def described(kafka, topic, *filters):
    """Leader, replicas and in-sync replicas by partition, as kafka-topics shows them."""
    shown = kafka("topics", "--describe", "--topic", topic, *filters)
    rows = re.findall(
        r"Partition: (\d+)\tLeader: (\w+)\tReplicas: ([\d,]+)\tIsr: ([\d,]*)(?:\t|$)", shown, re.M
    )
    return {
        int(partition): (leader, replicas, ",".join(sorted(isr.split(","))))
        for partition, leader, replicas, isr in rows
    }


def produce(kafka, topic, count=COUNT):
    lines = "".join(f"key-{n % 7}:value {n:04d}\n" for n in range(count))
    keys = ("--property", "parse.key=true", "--property", "key.separator=:")
    kafka("console-producer", "--topic", topic, *keys, "--request-required-acks", "-1", stdin=lines)
    return [f"value {n:04d}" for n in range(count)]


def consume(kafka, topic, *words, count=COUNT):
    limits = ("--max-messages", count, "--timeout-ms", "30000", "--from-beginning")
    return sorted(kafka("console-consumer", "--topic", topic, *limits, *words).splitlines())


def test_topic_outlives_its_leader(kafka, cluster, view, topic):
    """Described, led by another when its leader is killed, read; and whole again at the end."""
    create(kafka, topic, "1:2:3", "2:3:1", "3:1:2")
    sent = produce(kafka, topic)
    whole = described(kafka, topic)
    cluster.kill_broker(1)
    wait_until(lambda: view.leaders(topic)[0] == 2, "the next replica leads")
    without = described(kafka, topic)
    filters = ("under-replicated-partitions", "under-min-isr-partitions", "at-min-isr-partitions")
    counts = [len(described(kafka, topic, f"--{name}")) for name in filters]
    unavailable = described(kafka, topic, "--unavailable-partitions")
    read = consume(kafka, topic, "--group", topic)
    cluster.start_broker(1)
    view.until_all_in_sync(topic, [1, 2, 3])

    assert whole == {
        0: ("1", "1,2,3", "1,2,3"), 1: ("2", "2,3,1", "1,2,3"), 2: ("3", "3,1,2", "1,2,3")
    }  # fmt: skip
    assert without == {0: ("2", "1,2,3", "2,3"), 1: ("2", "2,3,1", "2,3"), 2: ("3", "3,1,2", "2,3")}
    assert (counts, unavailable) == ([3, 0, 3], {})
    assert read == sent
    assert described(kafka, topic, "--under-replicated-partitions") == {}
    assert described(kafka, topic)[0] == ("2", "1,2,3", "1,2,3")


def test_topic_with_one_replica_is_unavailable_while_its_broker_is_away(kafka, cluster, topic):
    """The leader is `none` in the words of the tool, and get-offsets says what it leaves out."""
    create(kafka, topic, "2", "3", min_insync_replicas=1)
    cluster.stop_broker(2)
    unavailable = described(kafka, topic, "--unavailable-partitions")
    cluster.start_broker(2)

    assert unavailable == {0: ("none", "2", "2")}
    assert kafka("get-offsets", "--topic", topic).split() == [f"{topic}:0:0", f"{topic}:1:0"]


def test_groups_are_found_at_whatever_broker_coordinates_them(kafka, cluster, topic, tools):
    """Offsets, state and the coordinator of several groups; resets by each rule that needs none."""
    create(kafka, topic, "1:2:3", "2:3:1")
    produce(kafka, topic)
    groups = [f"{topic}-{name}" for name in ("red", "green", "blue")]
    for group in groups:
        consume(kafka, topic, "--group", group)
    states = kafka("consumer-groups", "--describe", "--state", *words("--group", groups))
    offsets = kafka("consumer-groups", "--describe", "--offsets", *words("--group", groups))
    reset = ("consumer-groups", "--reset-offsets", "--execute", "--topic", topic, "--group")
    shifted = kafka(*reset, groups[0], "--shift-by", -1)
    latest = kafka(*reset, groups[1], "--to-latest")
    deleted = kafka("consumer-groups", "--delete-offsets", "--group", groups[2], "--topic", topic)
    gone = kafka("consumer-groups", "--delete", *words("--group", groups[:2]))
    left = kafka("consumer-groups", "--list").split()

    for group in groups:
        assert re.search(rf"{group}\s+127.0.0.1:\d+ +\([123]\)\s.*Empty\s+0", states), states
        assert len(re.findall(rf"^{group}\s+{topic}\s+[01]\s+(\d+)\s+\1\s+0\s", offsets, re.M)) == 2
    assert sum(map(int, re.findall(rf"{topic}\s+[01]\s+(\d+)", shifted))) == COUNT - 2
    assert sum(map(int, re.findall(rf"{topic}\s+[01]\s+(\d+)", latest))) == COUNT
    assert deleted.count("Successful") == 2, deleted
    assert "was successful" in gone
    assert not {*groups} & {*left}, "a group without offsets and members is gone as well"


def words(option, values):
    return [word for value in values for word in (option, value)]


def test_members_are_described(kafka, cluster, tools, topic):
    """Who has what of the topic, while the group is stable."""
    create(kafka, topic, "1:2:3", "2:3:1")
    servers = ("--bootstrap-server", cluster.bootstrap_servers)
    reading = ("--topic", topic, "--group", topic, "--from-beginning")
    with tools.running("console-consumer", *servers, *reading) as consumer:
        produce(kafka, topic, 1)
        assert consumer.stdout.readline() == "value 0000\n"
        members = kafka("consumer-groups", "--describe", "--members", "--verbose", "--group", topic)
        state = kafka("consumer-groups", "--describe", "--state", "--group", topic)
        listed = kafka("consumer-groups", "--list", "--state", "Stable")

    row = rf"{topic}\s+console-consumer-\S+\s+/127.0.0.1\s+console-consumer\s+2\s+"
    # Kafka 3.9 shows (0,1), without the topic.
    assert re.search(row + rf".*(?:{topic}:0,1|\(0,1\))\s", members), members
    assert re.search(r"range\s+Stable\s+1\s", state), state
    assert re.search(rf"^{topic}\s+(Consumer\s+)?Stable", listed, re.M), listed


def test_settings_of_brokers_and_topics(kafka, topic):
    """One broker's, every broker's and a topic's are set, shown with their sources, dropped."""
    create(kafka, topic, "1:2:3")
    one = ("--entity-type", "brokers", "--entity-name", "2")
    every = ("--entity-type", "brokers", "--entity-default")
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    kafka("configs", *every, "--alter", "--add-config", "log.retention.ms=7200000")
    kafka("configs", *one, "--alter", "--add-config", "log.retention.ms=3600000")
    kafka("configs", *of_topic, "--alter", "--add-config", "flush.messages=9,segment.bytes=2000000")
    shown = [kafka("configs", "--describe", *words) for words in (one, every, of_topic)]
    third = kafka("configs", "--describe", "--all", "--entity-type", "brokers", "--entity-name", 3)
    for words in (one, every):
        kafka("configs", *words, "--alter", "--delete-config", "log.retention.ms")
    kafka("configs", *of_topic, "--alter", "--delete-config", "flush.messages,segment.bytes")

    assert "log.retention.ms=3600000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG" in shown[0]
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=7200000" in shown[0]
    assert "log.retention.ms=7200000 sensitive=false synonyms={DYNAMIC_DEFAULT" in shown[1]
    assert "flush.messages=9 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG" in shown[2]
    assert "DEFAULT_CONFIG:log.segment.bytes=1073741824" in shown[2]
    assert "log.retention.ms=7200000 sensitive=false" in third
    for words in (one, every, of_topic):
        assert "=" not in kafka("configs", "--describe", *words).replace("--", "")


def until_complete(kafka, path, partitions):
    """What --verify prints when all is done."""
    printed = [""]

    def is_complete():
        printed[0] = kafka("reassign-partitions", "--reassignment-json-file", path, "--verify")
        return printed[0].count("is completed.") == partitions

    wait_until(
        is_complete, "the reassignment is complete", 2 * TOOL_SECONDS, seen=lambda: printed[0]
    )
    return printed[0]


def test_partitions_move_as_generated(kafka, cluster, tmp_path, topic, view):
    """Generate, execute with a throttle under load, verify: it is gone in the end."""
    create(kafka, topic, "1:2", "1:2")
    chosen = tmp_path / "topics.json"
    chosen.write_text(json.dumps({"topics": [{"topic": topic}], "version": 1}))
    choice = ("--topics-to-move-json-file", chosen, "--broker-list", "2,3", "--generate")
    generated = kafka("reassign-partitions", *choice).splitlines()
    path = tmp_path / "plan.json"
    path.write_text(generated[4])
    with SteadyLoad(cluster.bootstrap_servers, topic, 2) as load:
        execute = ("--reassignment-json-file", path, "--execute", "--throttle", 50_000_000)
        executed = kafka("reassign-partitions", *execute)
        throttled = kafka("configs", "--describe", "--entity-type", "brokers")
        verified = until_complete(kafka, path, 2)
        load.until_more()
    load.check()

    assert generated[0] == "Current partition replica assignment"
    assert generated[3] == "Proposed partition reassignment configuration"
    assert "The inter-broker throttle limit was set to 50000000 B/s" in executed
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in executed
    assert throttled.count("follower.replication.throttled.rate=50000000") >= 2
    assert "Clearing broker-level throttles on brokers 1,2,3" in verified
    assert f"Clearing topic-level throttles on topic {topic}" in verified
    assert {tuple(sorted(isr)) for isr in view.in_sync(topic).values()} == {(2, 3)}
    after = kafka("configs", "--describe", "--entity-type", "brokers")
    assert "throttled" not in after
    listed = ("--list",)
    assert kafka("reassign-partitions", *listed) == "No partition reassignments found.\n"


def test_reassignment_is_cancelled(kafka, cluster, tools, topic, plan):
    """One that a throttle holds back is listed, in progress, taken back; then none is active."""
    create(kafka, topic, "1", min_insync_replicas=1)
    # A fetch of a megabyte goes whenever the window of the quota is empty: enough for minutes.
    size = ("--record-size", "10000", "--num-records", "4000", "--throughput", "-1")
    servers = ("--producer-props", f"bootstrap.servers={cluster.bootstrap_servers}")
    tools.run("producer-perf-test", "--topic", topic, *size, *servers)
    # Kafka 3.9 does not find moves to cancel that only add replicas, yet lifts the throttle (its
    # pull request 20003). This one removes one as well.
    path = plan(p0=[2])
    moves = ("reassign-partitions", "--reassignment-json-file", path)
    kafka(*moves, "--execute", "--throttle", 1000)
    listed = kafka("reassign-partitions", "--list")
    verified = kafka(*moves, "--verify", "--preserve-throttles")
    cancelled = kafka(*moves, "--cancel")
    nothing = kafka(*moves, "--cancel")

    row = f"{topic}-0: replicas: 2,1. adding: 2. removing: 1."
    assert listed == f"Current partition reassignments:\n{row}\n"
    assert f"Reassignment of partition {topic}-0 is still in progress." in verified
    assert f"Successfully cancelled partition reassignment for: {topic}-0" in cancelled
    assert "None of the specified partition moves are active." in nothing
    assert described(kafka, topic) == {0: ("1", "1", "1")}


def test_replica_moves_to_another_disk(kafka, cluster, topic, tmp_path):
    """Within its broker, as kafka-log-dirs shows and verify says."""
    create(kafka, topic, "1:2:3")
    produce(kafka, topic)
    homes = [cluster.folder(broker_id, f"{topic}-0").parent for broker_id in (1, 2, 3)]
    goals = [next(d for d in cluster.disks(n) if d != homes[n - 1]) for n in (1, 2, 3)]
    row = {"topic": topic, "partition": 0, "replicas": [1, 2, 3], "log_dirs": list(map(str, goals))}
    path = tmp_path / "disks.json"
    path.write_text(json.dumps({"version": 1, "partitions": [row]}))
    words = ("reassign-partitions", "--reassignment-json-file", path)
    executed = kafka(*words, "--execute", "--replica-alter-log-dirs-throttle", 10_000_000)
    wait_until(
        lambda: all((goal / f"{topic}-0").exists() for goal in goals), "the replicas have moved"
    )
    verified = kafka(*words, "--verify")
    dirs = log_dirs(kafka, topic)

    assert len(re.findall("Successfully started .*log director", executed)) in (1, 3), executed
    for broker_id in (1, 2, 3):
        moved = f"Reassignment of replica {topic}-0-{broker_id} completed successfully."
        assert moved in verified
    assert dirs == {n: str(goals[n - 1]) for n in (1, 2, 3)}
    assert "throttled" not in kafka("configs", "--describe", "--entity-type", "brokers")


def log_dirs(kafka, topic):
    """In which folder each broker has the topic's replica."""
    printed = kafka("log-dirs", "--describe", "--topic-list", topic)
    (document,) = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return {
        broker["broker"]: folder["logDir"]
        for broker in document["brokers"]
        for folder in broker["logDirs"]
        if folder["partitions"]
    }


def test_log_dirs_are_described(kafka, cluster, topic):
    """Of the brokers that are named, with sizes; no replica lags, none is on its way."""
    create(kafka, topic, "1:2:3", "2:3:1")
    produce(kafka, topic)
    named = ("--describe", "--topic-list", topic, "--broker-list", "2,3")
    printed = kafka("log-dirs", *named).splitlines()
    brokers = json.loads(printed[-1])["brokers"]

    assert printed[:-1] == [
        "Querying brokers for log directories information",
        "Received log directory information from brokers 2,3",
    ]
    assert sorted(broker["broker"] for broker in brokers) == [2, 3]
    for broker in brokers:
        assert [each["error"] for each in broker["logDirs"]] == [None, None]
        replicas = [each for folder in broker["logDirs"] for each in folder["partitions"]]
        assert sorted(each["partition"] for each in replicas) == [f"{topic}-0", f"{topic}-1"]
        assert all(each["size"] > 0 for each in replicas)
        assert all((each["offsetLag"], each["isFuture"]) == (0, False) for each in replicas)


def test_preferred_leaders_are_elected(kafka, cluster, view, topic, tmp_path):
    """After their broker was away: of one partition, of a file, of all; then there is none to."""
    create(kafka, topic, "1:2:3", "1:3:2", "1:2:3")
    cluster.stop_broker(1)
    cluster.start_broker(1)
    view.until_all_in_sync(topic, [1, 2, 3])
    before = view.leaders(topic)
    preferred = ("leader-election", "--election-type", "preferred")
    one = kafka(*preferred, "--topic", topic, "--partition", 0)
    path = tmp_path / "elect.json"
    path.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 1}]}))
    of_file = kafka(*preferred, "--path-to-json-file", path)
    every = kafka(*preferred, "--all-topic-partitions")
    again = kafka(*preferred, "--topic", topic, "--partition", 0)

    assert before == {0: 2, 1: 3, 2: 2}
    assert one == f"Successfully completed leader election (PREFERRED) for partitions {topic}-0\n"
    assert f"(PREFERRED) for partitions {topic}-1\n" in of_file
    assert f"{topic}-2" in every
    assert again == f"Valid replica already elected for partitions {topic}-0\n"
    assert view.leaders(topic) == {0: 1, 1: 1, 2: 1}


def test_unclean_leader_is_elected(kafka, cluster, view, topic):
    """The last in sync is dead: nobody leads until the operator takes the other one."""
    create(kafka, topic, "1:2", min_insync_replicas=1)
    produce(kafka, topic)
    cluster.stop_broker(2)
    produce(kafka, topic)
    cluster.kill_broker(1)
    wait_until(lambda: view.leaders(topic).get(0) == -1, "nobody leads")
    cluster.start_broker(2)
    unclean = ("leader-election", "--election-type", "unclean", "--topic", topic, "--partition", 0)
    offline = described(kafka, topic)
    elected = kafka(*unclean)
    after = described(kafka, topic)
    left = kafka("get-offsets", "--topic", topic)
    cluster.start_broker(1)
    view.until_all_in_sync(topic, [1, 2])

    assert offline == {0: ("none", "1,2", "1")}
    assert elected == f"Successfully completed leader election (UNCLEAN) for partitions {topic}-0\n"
    assert after == {0: ("2", "1,2", "2")}
    assert left == f"{topic}:0:{COUNT}\n"
    assert kafka("get-offsets", "--topic", topic) == f"{topic}:0:{COUNT}\n"


def test_replicas_are_verified(kafka, tools, cluster, topic):
    """kafka-replica-verification finds all replicas the same, record for record."""
    create(kafka, topic, "1:2:3", "2:3:1")
    produce(kafka, topic)
    servers = ("--broker-list", cluster.bootstrap_servers)
    options = ("--topics-include", topic, "--report-interval-ms", "1000", "--time", "-2")
    with tools.running("replica-verification", *servers, *options) as verification:
        lines = iter(verification.stdout.readline, "")
        # The first report may come before the first answer: then there is no partition in it.
        found = next((line for line in lines if "max lag is 0 for" in line), "it ended")

    assert re.search(rf"max lag is 0 for partition {topic}-[01] at offset \d+ among 2", found)


def test_cluster_is_known_by_its_tools(kafka, tools, cluster, topic):
    """Its id and its three brokers, each with the APIs that it serves."""
    servers = ("--bootstrap-server", cluster.bootstrap_servers)
    cluster_id = tools.run("cluster", "cluster-id", *servers)
    versions = kafka("broker-api-versions")

    assert re.fullmatch(r"Cluster ID: \S{22}\n", cluster_id)
    assert len(re.findall(r"^127.0.0.1:\d+ \(id: [123] rack: null", versions, re.M)) == 3
    assert len(re.findall(r"Fetch\(1\): 0 to 18", versions)) == 3


def test_verifiable_clients_agree(kafka, tools, cluster, topic):
    """Kafka's own system tests' producer and consumer: all that was acknowledged is read."""
    create(kafka, topic, "1:2:3", "2:3:1", "3:1:2")
    servers = ("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic)
    produced = tools.run("verifiable-producer", *servers, "--max-messages", "2000")
    limits = ("--group-id", topic, "--max-messages", "2000", "--reset-policy", "earliest")
    consumed = tools.run("verifiable-consumer", *servers, *limits)

    assert produced.count('"name":"producer_send_success"') == 2000
    sums = [json.loads(line) for line in consumed.splitlines() if '"records_consumed"' in line]
    assert sum(each["count"] for each in sums) == 2000


def test_unknown_tool_words_are_answered_with_reasons(kafka, topic):
    """A replication factor that is too large, and a topic that is not there."""
    words = ("--topic", topic, "--partitions", 1, "--replication-factor", 4)
    refused = kafka("topics", "--create", *words, status=1)
    missing = kafka("topics", "--describe", "--topic", topic, status=1)

    assert "replication factor 4: must be from 1 to 3, the number of live brokers" in refused
    # Kafka 3.9 shows the name as Optional[...].
    row = rf"Topic '(Optional\[)?{topic}\]?' does not exist as expected"
    assert re.search(row, missing), missing
