"""`ottla topics`, action by action."""

import json
from concurrent.futures import Future

import pytest
from fake_consumer import FakeConsumer

from ottla.cli.terminal import Terminal
from ottla.clients.admin.admin_client import checked
from ottla.clients.admin.descriptions import ConfigEntry, NewTopic, TopicPartitionInfo
from ottla.clients.admin.log_dirs import LogDirDescription, ReplicaInfo
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import ConfigSource, Node, TopicPartition

NOW_MS = 1_800_000_000_000


def partition(number: int, leader: int, isr: tuple[int, ...]) -> TopicPartitionInfo:
    return TopicPartitionInfo(number, leader, 0, (0, 1, 2), isr)


@pytest.fixture
def cluster(admin):
    """One topic is well; partitions of the other lack replicas, a live leader, or any leader."""
    admin.nodes = [Node(0, "a", 1), Node(2, "c", 3)]
    admin.add_topic("well", partition(0, 0, (0, 1, 2)))
    admin.add_topic(
        "ill",
        partition(3, -1, (1,)),
        partition(0, 0, (0, 1, 2)),
        partition(1, 2, (2, 0)),
        partition(2, 1, (1,)),
        min_insync_replicas="2",
    )
    admin.add_topic("__consumer_offsets")
    return admin


def test_create_says_so(tool, admin):
    """The topic is asked for as it was written."""
    words = ("--replication-factor", 1, "--partitions", 3, "--topic", "test")

    outcome = tool("topics", "--create", *words, "--config", "retention.ms=5")

    assert (outcome.status, outcome.out, outcome.err) == (0, "Created topic test.\n", "")
    assert admin.changes == [
        ("create_topics", [NewTopic("test", 3, 1, None, {"retention.ms": "5"})])
    ]


def test_create_leaves_what_is_not_said_to_the_broker(tool, admin):
    """-1 stands for the broker's default."""
    tool("topics", "--create", "--topic", "test")

    assert admin.changes == [("create_topics", [NewTopic("test", -1, -1)])]


def test_create_can_place_the_replicas(tool, admin):
    """Partitions are separated by commas, replicas by colons."""
    tool("topics", "--create", "--topic", "test", "--replica-assignment", "0:1,1:2")

    assert admin.changes[0][1][0].replica_assignment == {0: [0, 1], 1: [1, 2]}


@pytest.mark.parametrize(
    ("assignment", "why"),
    [("0:x", "broker ids"), ("0:0", "names a broker twice"), ("0:1,1", "all partitions need")],
)
def test_create_refuses_wrong_placements(tool, admin, assignment, why):
    """A placement has different brokers, and as many for each partition."""
    words = ("--create", "--topic", "test", "--replica-assignment", assignment)

    assert why in tool("topics", *words).err
    assert not admin.changes


def test_create_warns_of_names_that_collide_in_metrics(tool, admin):
    """A period and an underscore are the same to metrics."""
    assert tool("topics", "--create", "--topic", "a_b").lines[0].startswith("WARNING: Due to")


def test_create_of_a_topic_that_exists_fails_unless_that_is_fine(tool, admin):
    """--if-not-exists makes it succeed without a word."""
    admin.failures["test"] = KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'test' is there.")

    failed = tool("topics", "--create", "--topic", "test")
    fine = tool("topics", "--create", "--topic", "test", "--if-not-exists")

    assert (failed.status, fine.status) == (1, 0)
    assert failed.err == "ottla topics: Topic 'test' is there. (TOPIC_ALREADY_EXISTS)\n"
    assert (fine.out, fine.err) == ("", "")


def test_list_prints_names_in_order(tool, cluster):
    """A name per line."""
    assert tool("topics", "--list").lines == ["__consumer_offsets", "ill", "well"]
    assert tool("topics", "--list", "--exclude-internal").lines == ["ill", "well"]


@pytest.mark.parametrize("expression", ["well,ill", "'well, ill'", ".*ll", "well|ill"])
def test_list_takes_expressions(tool, cluster, expression):
    """A comma means 'or', and whole names are matched."""
    assert tool("topics", "--list", "--topic", expression).lines == ["ill", "well"]


def test_wrong_expression_is_one_line(tool, cluster):
    """The line names the error of the expression."""
    assert "'*' is not a regular expression" in tool("topics", "--list", "--topic", "*").err


def test_describe_prints_a_line_per_topic_and_per_partition(tool, cluster):
    """Separated by tabs, partitions in order, `none` for a missing leader."""
    assert tool("topics", "--describe", "--topic", "ill").out == (
        "Topic:ill\tPartitionCount:4\tReplicationFactor:3\tConfigs:min.insync.replicas=2\n"
        "\tTopic: ill\tPartition: 0\tLeader: 0\tReplicas: 0,1,2\tIsr: 0,1,2\n"
        "\tTopic: ill\tPartition: 1\tLeader: 2\tReplicas: 0,1,2\tIsr: 2,0\n"
        "\tTopic: ill\tPartition: 2\tLeader: 1\tReplicas: 0,1,2\tIsr: 1\n"
        "\tTopic: ill\tPartition: 3\tLeader: none\tReplicas: 0,1,2\tIsr: 1\n"
    )


def test_describe_without_a_topic_shows_all(tool, cluster):
    """In the order of their names."""
    lines = tool("topics", "--describe").lines

    assert [line.split("\t")[0] for line in lines if line.startswith("Topic:")] == [
        "Topic:__consumer_offsets",
        "Topic:ill",
        "Topic:well",
    ]


@pytest.mark.parametrize(
    ("report", "partitions"),
    [
        ("--under-replicated-partitions", [1, 2, 3]),
        ("--unavailable-partitions", [2, 3]),
        ("--under-min-isr-partitions", [2, 3]),
        ("--at-min-isr-partitions", [1]),
    ],
)
def test_reports_show_only_partitions_that_fit(tool, cluster, report, partitions):
    """Reports leave out the lines of topics, and count a leader that is down as none."""
    lines = tool("topics", "--describe", "--topic", "ill", report).lines

    assert [int(line.split("\t")[2].removeprefix("Partition: ")) for line in lines] == partitions


@pytest.mark.parametrize("report", ["--under-replicated-partitions", "--unavailable-partitions"])
def test_reports_of_replicas_do_not_wait_for_the_registry(tool, cluster, monkeypatch, report):
    """Brokers read settings from it, and ZooKeeper may be what is broken."""

    def no_answer(*_):
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    monkeypatch.setattr(cluster, "describe_configs", no_answer)
    outcome = tool("topics", "--describe", "--topic", "ill", report)

    assert (outcome.status, outcome.err) == (0, "")
    assert "Partition: 3" in outcome.out


def test_topics_with_overrides_are_shown_without_partitions(tool, cluster):
    """The output has the lines of topics alone."""
    assert tool("topics", "--describe", "--topics-with-overrides").lines == [
        "Topic:ill\tPartitionCount:4\tReplicationFactor:3\tConfigs:min.insync.replicas=2"
    ]


@pytest.mark.parametrize("action", ["--describe", "--delete", "--alter"])
def test_missing_topic_fails_unless_that_is_fine(tool, cluster, action):
    """One line and status 1; --if-exists makes it nothing."""
    words = (action, "--topic", "none", *(("--partitions", 5) if action == "--alter" else ()))

    failed, fine = tool("topics", *words), tool("topics", *words, "--if-exists")

    assert failed.status == 1
    assert failed.err == "ottla topics: topic 'none' does not exist\n"
    assert (fine.status, fine.out, fine.err) == (0, "", "")
    assert not cluster.changes


def test_delete_takes_expressions(tool, cluster):
    """Topics that match are listed and deleted, each with a line; internal ones are left out."""
    outcome = tool("topics", "--delete", "--topic", ".*")

    assert (outcome.status, outcome.lines) == (0, ["Deleted topic ill.", "Deleted topic well."])
    assert outcome.err.splitlines() == [
        "Topics that '.*' matches, to be deleted with their records:", "  ill", "  well"
    ]  # fmt: skip
    assert cluster.changes == [("delete_topics", ["ill", "well"])]


def test_delete_of_one_named_topic_says_so(tool, cluster):
    """The deletion prints a line as --create does, and asks nothing about a whole name."""
    outcome = tool("topics", "--delete", "--topic", "well", tty=True)

    assert (outcome.out, outcome.err) == ("Deleted topic well.\n", "")


@pytest.mark.parametrize(
    ("words", "answer", "deleted"),
    [((), b"2\n", True), ((), b"y\n", False), ((), b"", False), (("--force",), b"", True)],
)
def test_delete_asks_a_person_about_a_pattern(tool, cluster, words, answer, deleted):
    """Only the number of the topics is a yes; --force asks nothing."""
    outcome = tool("topics", "--delete", "--topic", ".*ll", *words, stdin=answer, tty=True)

    assert ("Type their number, 2, to delete them: " in outcome.err) == (not words)
    assert bool(cluster.changes) == deleted
    assert outcome.status == (0 if deleted else 1)


def test_delete_of_internal_topics_needs_their_names(tool, cluster):
    """The brokers then say why they refuse it."""
    outcome = tool("topics", "--delete", "--topic", "__.*")
    tool("topics", "--delete", "--topic", "__consumer_offsets")

    assert outcome.status == 1
    assert "'__.*' matches internal topics only" in outcome.err
    assert cluster.changes == [("delete_topics", ["__consumer_offsets"])]


def test_delete_tells_which_topics_remain(tool, cluster):
    """The error does not hide the topics that were deleted."""
    cluster.failures["ill"] = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not yours")

    outcome = tool("topics", "--delete", "--topic", ".*ll")

    assert (outcome.status, outcome.out) == (1, "Deleted topic well.\n")
    assert outcome.err.splitlines()[-2:] == [
        "Error: topic 'ill' was not deleted: not yours",
        "ottla topics: 1 of 2 topics were not deleted",
    ]


def test_alter_adds_partitions(tool, cluster):
    """The count is that of all partitions."""
    assert tool("topics", "--alter", "--topic", "well", "--partitions", 2).status == 0
    assert cluster.changes == [("create_partitions", {"well": 2}, None)]


def test_alter_places_only_the_new_partitions(tool, cluster):
    """The assignment names all partitions; those that exist are left out of the request."""
    words = ("--partitions", 3, "--replica-assignment", "0:1,1:2,2:0")

    tool("topics", "--alter", "--topic", "well", *words)

    assert cluster.changes == [("create_partitions", {"well": 3}, {"well": [[1, 2], [2, 0]]})]


def test_alter_changes_settings_as_old_scripts_do(tool, cluster):
    """`ottla configs` is named as the tool for it, in Kafka's words."""
    words = ("--config", "retention.ms=5", "--delete-config", "min.insync.replicas")

    outcome = tool("topics", "--alter", "--topic", "ill", *words)

    assert outcome.out == (
        "WARNING: Altering topic configuration from this script has been deprecated and may be "
        "removed in future releases.\n"
        "         Going forward, please use 'ottla configs' for this functionality\n"
        "Updated config for topic ill.\n"
    )
    assert cluster.changes == [
        ("TOPIC", "ill", ("retention.ms", "5", "SET"), ("min.insync.replicas", None, "DELETE"))
    ]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--list", "--describe"),
        ("--create",),
        ("--delete",),
        ("--alter", "--topic", "t"),
        ("--list", "--partitions", "1"),
        ("--describe", "--config", "a=b"),
        ("--list", "--if-exists"),
        ("--alter", "--topic", "t", "--if-not-exists", "--partitions", "2"),
        ("--list", "--under-replicated-partitions"),
        ("--describe", "--unavailable-partitions", "--at-min-isr-partitions"),
        ("--create", "--topic", "t", "--replica-assignment", "0", "--partitions", "1"),
        ("--create", "--topic", "t", "--config", "a"),
        ("--create", "--topic", "t", "--partitions", "x"),
    ],
)
def test_options_that_do_not_fit_are_one_line(tool, admin, words):
    """Nothing is done, and the help is pointed to."""
    outcome = tool("topics", *words)

    assert outcome.status == 1
    assert outcome.err.count("\n") == 1
    assert "(see 'ottla topics --help')" in outcome.err
    assert not admin.changes


def test_command_config_reaches_the_client(tool, admin, clients, tmp_path):
    """Settings of the file are those of the tool's own client."""
    path = tmp_path / "client.properties"
    path.write_text("request.timeout.ms=7\n")

    tool("topics", "--list", "--command-config", path)

    assert clients.asked == [("admin", "localhost:9092", {"request.timeout.ms": "7"})]


def test_topics_can_be_described_with_what_is_in_them(tool, admin, monkeypatch):
    """--format: offsets, bytes, records a second in the last minute, the slowest lag."""
    monkeypatch.setattr(Terminal, "now_ms", lambda self: NOW_MS)
    zero, one = TopicPartition("orders", 0), TopicPartition("orders", 1)
    infos = [TopicPartitionInfo(0, 0, 0, (0, 2), (0,)), TopicPartitionInfo(1, -1, 0, (2,), ())]
    admin.add_topic("orders", *infos)
    admin.add_topic("empty")
    admin.add_log(zero, 5, 105)
    admin.add_log(TopicPartition("empty", 0), 0, 0)
    admin.offsets[zero, NOW_MS - 60_000] = 30
    replicas = {zero: ReplicaInfo(4096, 0, False), one: ReplicaInfo(1, 0, False)}
    admin.log_dirs[0] = {"/data": LogDirDescription(ErrorCode.NONE, replicas)}
    admin.add_group("slow")
    admin.committed["slow"] = {zero: 65}

    table = tool("topics", "--describe", "--format", "table")
    (orders,) = json.loads(
        tool("topics", "--describe", "--topic", "orders", "--format", "json").out
    )

    header, *rows = table.lines
    assert header.endswith("OFFSETS  BYTES  IN/S  IN SYNC  GROUPS  MAX LAG")
    assert [line.split() for line in rows] == [
        ["empty", "1", "1", "no", "0", "0", "0.0", "yes", "0", "-"],
        ["orders", "2", "2", "no", "100", "4,097", "1.2", "no", "1", "40"],
    ]
    assert orders["group_list"] == [{"group": "slow", "lag": 40}]
    assert orders["partition_list"][0] == {
        "partition": 0,
        "leader": 0,
        "replicas": [0, 2],
        "isr": [0],
        "start_offset": 5,
        "end_offset": 105,
        "bytes": 4096,
        "in_per_s": 1.25,
    }
    assert orders["partition_list"][1]["leader"] is None


def test_contents_are_shown_beside_a_broker_that_hangs(tool, admin):
    """What it leads is left open, its groups are missing, and it is named."""
    hangs = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "it hangs")
    infos = [TopicPartitionInfo(number, number, 0, (0, 1), (0, 1)) for number in (0, 1)]
    zero, one = (TopicPartition("orders", number) for number in (0, 1))
    admin.add_topic("orders", *infos)
    admin.add_log(zero, 5, 105)
    admin.log_dirs = {0: {"/data": LogDirDescription(ErrorCode.NONE, {})}, 1: hangs}
    admin.failures[one] = hangs
    admin.add_group("slow")
    admin.committed["slow"] = {zero: 65, one: 5}
    lists = {0: admin.list_groups(), 1: hangs}
    admin.list_groups = lambda: checked(lists)

    outcome = tool("topics", "--describe", "--format", "json")

    (orders,) = json.loads(outcome.out)
    assert outcome.status == 1
    assert outcome.err == (
        "Error: nothing is known of what broker 1 leads: REQUEST_TIMED_OUT: it hangs\n"
        "Error: no groups of broker 1: REQUEST_TIMED_OUT: it hangs\n"
    )
    assert [each["end_offset"] for each in orders["partition_list"]] == [105, None]
    assert orders["group_list"] == [{"group": "slow", "lag": 40}]


def test_topics_can_be_listed_as_json(tool, cluster):
    """An object for each."""
    listed = json.loads(tool("topics", "--list", "--exclude-internal", "--format", "json").out)

    assert [(topic["topic"], topic["partitions"]) for topic in listed] == [("ill", 4), ("well", 1)]


def test_report_that_finds_nothing_says_so_to_a_person(tool, cluster):
    """A script gets Kafka's empty answer."""
    words = ("topics", "--describe", "--topic", "well", "--under-replicated-partitions")

    assert tool(*words, tty=True).err == "none of 1 partition\n"
    assert (tool(*words).out, tool(*words).err) == ("", "")


def test_format_is_for_lists_and_descriptions(tool, cluster):
    """Other actions have no rows."""
    words = ("--delete", "--topic", "well", "--format", "json")

    assert "--format json cannot be used with --delete" in tool("topics", *words).err
    assert not cluster.changes


class FakeProducer:
    """Keeps what is sent; a value in `refused` fails later."""

    def __init__(self) -> None:
        self.sent = []
        self.refused = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def send(self, topic, value, **fields):
        self.sent.append((topic, value, fields))
        future = Future()
        if value in self.refused:
            future.set_exception(self.refused[value])
        else:
            future.set_result(None)
        return future

    def flush(self):
        pass


@pytest.fixture
def orders(admin, clients):
    """A topic of two partitions with a record in each, the log of the second ends in a marker."""
    admin.add_topic("orders", *(TopicPartitionInfo(n, 0, 0, (0, 2), (0,)) for n in (0, 1)))
    own = ConfigEntry("retention.ms", "5", source=ConfigSource.DYNAMIC_TOPIC_CONFIG)
    inherited = ConfigEntry("segment.ms", "7", source=ConfigSource.STATIC_BROKER_CONFIG)
    admin.settings["topic", "orders"] = [own, inherited]
    clients.reader, clients.writer = FakeConsumer(orders=2), FakeProducer()
    zero, one = TopicPartition("orders", 0), TopicPartition("orders", 1)
    clients.reader.add(zero, 1000, b"a", b"k", [("h", b"v")])
    clients.reader.add(one, 2000, None, b"k")
    clients.reader.ends = {one: 3}
    return clients


def test_topic_is_copied_with_its_records(tool, admin, orders):
    """Partitions, replicas and settings of its own; what is committed, as it is."""
    outcome = tool("topics", "--copy", "--topic", "orders", "--to", "copy")

    assert outcome.out == "Copied 2 records of orders to copy.\n"
    ((_, topics),) = admin.changes
    assert topics == [NewTopic("copy", 2, 2, configs={"retention.ms": "5"})]
    first = {"key": b"k", "headers": (("h", b"v"),), "partition": 0, "timestamp_ms": 1000}
    second = {"key": b"k", "headers": (), "partition": 1, "timestamp_ms": 2000}
    assert orders.writer.sent == [("copy", b"a", first), ("copy", None, second)]
    assert orders.asked[1][0] == "consumer"
    assert orders.asked[1][2]["isolation.level"] == "read_committed"


def test_copy_that_fails_says_that_it_is_not_complete(tool, orders):
    """The topic is there, so a user must not take it for a copy."""
    orders.writer.refused = {b"a": KafkaError(ErrorCode.INVALID_TIMESTAMP, "too old")}

    outcome = tool("topics", "--copy", "--topic", "orders", "--to", "copy")

    assert outcome.status == 1
    assert outcome.err == (
        "ottla topics: topic 'copy' is not complete, at most 2 records were copied: "
        "too old (INVALID_TIMESTAMP)\n"
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--topic", "oders", "--to", "copy"), "'oders' does not exist; did you mean orders?"),
        (("--topic", "orders"), "missing required option --to"),
        (("--topic", "orders", "--to", "c", "--partitions", 2), "cannot be used with option"),
    ],
)
def test_copy_that_cannot_begin_creates_nothing(tool, admin, orders, words, text):
    """The failure leaves neither topic nor record."""
    assert text in tool("topics", "--copy", *words).err
    assert not admin.changes
