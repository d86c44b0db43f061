"""`ottla lag`, on a broker in this process."""

from __future__ import annotations

import json

import pytest
from command_here import run_here

from ottla import Admin, NewTopic, Producer, TopicPartition
from ottla.cli import lag
from ottla.clients.admin.admin_client import checked
from ottla.clients.admin.groups import GroupAdmin
from ottla.clients.admin.offsets import OffsetAdmin
from ottla.console.console_cluster import ConsoleCluster
from ottla.errors import ErrorCode, KafkaError
from ottla.testing import InProcessBroker

ORDERS = [TopicPartition("orders", number) for number in range(2)]
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def servers():
    """Topic orders has 10 records in each partition; group billing has read some of them."""
    with InProcessBroker() as broker, Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("orders", 2, 1)])
        with Producer(broker.bootstrap_servers) as producer:
            for number in range(20):
                producer.send("orders", b"v", partition=number % 2)
        admin.alter_group_offsets("billing", {ORDERS[0]: 4, ORDERS[1]: 10})
        admin.alter_group_offsets("done", {ORDERS[0]: 10})
        yield broker.bootstrap_servers


@pytest.fixture
def run(servers):
    """Run `ottla lag` with these words."""
    return lambda *words: run_here("lag", *words, "--bootstrap-server", servers)


def test_groups_are_listed_with_most_lag_first(run):
    """State, topics and lag of each."""
    lines = run().stdout.splitlines()

    assert [line.split() for line in lines] == [
        ["GROUP", "STATE", "TYPE", "TOPICS", "LAG"],
        ["billing", "Empty", "classic", "1", "6"],
        ["done", "Empty", "classic", "1", "0"],
    ]


def test_groups_are_json_with_their_topics(run):
    """The lag of each topic is in the JSON."""
    found = json.loads(run("--format", "json").stdout)

    assert [(row["group"], row["topic_list"]) for row in found] == [
        ("billing", [{"topic": "orders", "lag": 6}]),
        ("done", [{"topic": "orders", "lag": 0}]),
    ]


def test_group_has_a_row_for_each_partition(run):
    """The first line is about the whole group."""
    head, blank, *table = run("billing").stdout.splitlines()

    assert head.startswith("billing  Empty, 0 members  lag 6 records, ")
    assert head.endswith(" s behind")
    assert blank == ""
    rows = [line.split() for line in table]
    assert " ".join(rows[0]) == "TOPIC PARTITION COMMITTED LOG END LAG SECONDS CLIENT ID HOST"
    assert [row[:5] for row in rows[1:]] == [
        ["orders", "0", "4", "10", "6"],
        ["orders", "1", "10", "10", "0"],
    ]
    assert rows[2][5:] == ["0.0", "-", "-"]


def test_seconds_are_those_since_the_next_record_was_written(run):
    """The record at the committed offset has just been written."""
    rows = json.loads(run("billing", "--format", "json").stdout)

    assert 0 <= rows[0]["seconds"] < 600
    assert rows[1]["seconds"] == 0


def test_cause_is_explained_with_a_command(run):
    """One look is enough where nobody reads."""
    lines = run("billing", "--explain", "--for", 0).stdout.splitlines()

    assert lines[1:] == [
        "WHY   nobody reads: the group is Empty and has no members; 6 records wait",
        "      $ ottla consumer-groups --describe --group billing --members",
    ]


@pytest.fixture
def silent(monkeypatch):
    """No leader answers where a log ends, as one whose process was stopped."""

    async def nothing(_cluster, timestamps, *_isolation):
        error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
        return dict.fromkeys(timestamps, error)

    monkeypatch.setattr(ConsoleCluster, "offsets_at", nothing)


@pytest.mark.usefixtures("silent")
def test_lag_that_is_not_known_is_not_nothing(run):
    """A group was said to have read all there is, as the lag of those partitions counted as 0."""
    head, *causes = run("billing", "--explain", "--for", 0).stdout.splitlines()

    assert head.endswith("  lag 0 records, and that of 2 partitions is not known")
    assert causes == [
        "WHY   the lag of orders-0, orders-1 is not known: broker 0 does not answer",
        "      $ ottla broker-api-versions",
    ]


@pytest.mark.usefixtures("silent")
def test_list_has_no_lag_where_none_is_known(run):
    """And a line beside the table names the group."""
    found = run("--format", "json")

    assert [row["lag"] for row in json.loads(found.stdout)] == [None, None]
    assert "billing: lag 0 records, and that of 2 partitions is not known" in found.stderr


@pytest.mark.parametrize("format", ["table", "json"])
def test_groups_of_brokers_that_answer_are_listed_beside_one_that_hangs(run, monkeypatch, format):
    """All of them were missing; the other broker is named, and a group whose offsets are not."""
    listing = GroupAdmin.list_groups
    hangs = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "it hangs")
    fetching = OffsetAdmin.list_groups_offsets

    async def without_one(admin, *wanted):
        return checked({0: await listing(admin, *wanted), 1: hangs})

    async def without_done(admin, groups):
        return await fetching(admin, groups) | {"done": hangs}

    monkeypatch.setattr(GroupAdmin, "list_groups", without_one)
    monkeypatch.setattr(OffsetAdmin, "list_groups_offsets", without_done)
    outcome = run("--format", format)

    assert outcome.returncode == 1
    assert outcome.stderr.splitlines() == [
        "Error: no lag of broker 1: REQUEST_TIMED_OUT: it hangs",
        "Error: no lag of group 'done': REQUEST_TIMED_OUT: it hangs",
    ]
    assert "billing" in outcome.stdout


def test_causes_are_json_with_their_numbers(run):
    """The leading one first."""
    first, *_ = json.loads(run("billing", "--explain", "--for", 0, "--format", "json").stdout)

    assert first["cause"] == "nobody_reads"
    assert first["numbers"] == {"members": 0, "partitions_without_reader": 1, "lag": 6}


def test_group_is_watched_for_as_long_as_the_option_says(run, monkeypatch):
    """A look every five seconds, and one at the end."""
    slept: list[float] = []
    monkeypatch.setattr(lag.time, "sleep", slept.append)
    outcome = run("done", "--explain", "--for", 7)

    assert sum(slept) == 7
    assert outcome.stdout.splitlines()[1:] == ["The group has read all there is."]


def test_watch_prints_again_and_again(run, monkeypatch):
    """Until Ctrl-C."""
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(lag.time, "sleep", sleep)
    outcome = run("done", "--watch")

    assert outcome.returncode == 130
    assert outcome.stdout.count("done  Empty") == 3


def test_unknown_group_is_an_error_with_the_right_name(run):
    """Nothing is created by looking."""
    outcome = run("biling")

    assert outcome.returncode == 1
    assert outcome.stderr == ("ottla lag: group 'biling' does not exist; did you mean billing?\n")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--explain"], "--explain needs a GROUP"),
        (["billing", "--for", 3], "option --for is used only with --explain"),
        (["billing", "--explain", "--for", -1], "--for takes a number from 0 on, not '-1'"),
    ],
)
def test_options_that_do_not_fit_are_refused(run, words, complaint):
    """Before a broker is asked."""
    assert complaint in run(*words).stderr
