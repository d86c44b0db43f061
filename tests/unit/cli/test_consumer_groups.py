"""`ottla consumer-groups --list` and `--delete`."""

import pytest

from ottla.clients.admin.admin_client import checked
from ottla.clients.admin.descriptions import TopicPartitionInfo
from ottla.errors import ErrorCode, KafkaError


@pytest.fixture
def cluster(admin):
    """An empty group and one with members."""
    admin.add_group("b", "Stable")
    admin.add_group("a", "Empty")
    return admin


def test_list_prints_ids_in_order(tool, cluster):
    """An id per line."""
    assert tool("consumer-groups", "--list").lines == ["a", "b"]


@pytest.mark.parametrize("words", [("--list",), ("--describe", "--all-groups", "--state")])
@pytest.mark.parametrize("format", ["text", "json"])
def test_groups_of_brokers_that_answer_are_shown_beside_one_that_hangs(
    tool, cluster, words, format
):
    """All of them were missing, after a minute; the other broker is named."""
    answers = {0: cluster.list_groups(), 1: KafkaError(ErrorCode.REQUEST_TIMED_OUT, "it hangs")}
    cluster.list_groups = lambda *_: checked(answers)

    outcome = tool("consumer-groups", *words, "--format", format)

    assert outcome.status == 1
    assert "Error: no groups of broker 1: REQUEST_TIMED_OUT: it hangs\n" in outcome.err
    assert "a" in outcome.out
    assert "b" in outcome.out


@pytest.mark.parametrize("words", [("--list",), ("--describe", "--all-groups", "--state")])
def test_groups_without_a_coordinator_are_not_left_out_silently(tool, cluster, words):
    """No broker lists them, while the partition that has them is without a leader."""
    infos = [TopicPartitionInfo(number, number - 1, 0, (0, 1), ()) for number in (0, 1)]
    cluster.add_topic("__consumer_offsets", *infos)

    outcome = tool("consumer-groups", *words)

    assert outcome.status == 1
    assert outcome.err.startswith(
        "Error: partitions 0 of __consumer_offsets have no leader: groups of theirs are not listed"
    )
    assert "a" in outcome.out


def test_error_of_every_broker_is_that_of_the_command(tool, cluster):
    """There is nothing to list beside it."""
    answers = dict.fromkeys((0, 1), KafkaError(ErrorCode.REQUEST_TIMED_OUT, "they hang"))
    cluster.list_groups = lambda *_: checked(answers)

    outcome = tool("consumer-groups", "--list")

    assert (outcome.status, outcome.out) == (1, "")
    assert "they hang" in outcome.err


def test_list_with_state_is_a_table(tool, cluster):
    """The state stands behind the id."""
    assert tool("consumer-groups", "--list", "--state").lines == [
        f"{'GROUP':<25} {'STATE':<20}",
        f"{'a':<25} {'Empty':<20}",
        f"{'b':<25} {'Stable':<20}",
    ]


def test_list_can_be_restricted_to_states(tool, cluster):
    """States are separated by commas and may be written in lower case."""
    lines = tool("consumer-groups", "--list", "--state", "stable,dead").lines

    assert [line.split()[0] for line in lines] == ["GROUP", "b"]


def test_list_with_type_tells_the_protocol(tool, cluster):
    """Behind the id, before the state; --type may name those that are wanted."""
    cluster.groups["b"].group_epoch = 3

    assert tool("consumer-groups", "--list", "--type", "--state").lines == [
        f"{'GROUP':<25} {'TYPE':<20} {'STATE':<20}",
        f"{'a':<25} {'Classic':<20} {'Empty':<20}",
        f"{'b':<25} {'Consumer':<20} {'Stable':<20}",
    ]
    only = tool("consumer-groups", "--list", "--type", "Consumer").lines
    assert [line.split()[0] for line in only] == ["GROUP", "b"]


def test_unknown_type_lists_what_there_is(tool, cluster):
    """The user learns the names."""
    outcome = tool("consumer-groups", "--list", "--type", "share")

    assert outcome.status == 1
    assert "classic, consumer" in outcome.err


def test_unknown_state_lists_what_there_is(tool, cluster):
    """The user learns the names."""
    outcome = tool("consumer-groups", "--list", "--state", "asleep")

    assert outcome.status == 1
    assert "no group state 'asleep'; there are PreparingRebalance" in outcome.err


def test_delete_names_the_groups_in_quotes(tool, cluster):
    """The line of Kafka."""
    outcome = tool("consumer-groups", "--delete", "--group", "a", "--group", "c")

    assert outcome.status == 0
    assert outcome.out == "Deletion of requested consumer groups ('a', 'c') was successful.\n"
    assert cluster.changes == [("delete_groups", ["a"]), ("delete_groups", ["c"])]


def test_delete_refuses_groups_with_members(tool, cluster):
    """The reason is told for each, and the others are deleted."""
    cluster.failures["b"] = KafkaError(ErrorCode.NON_EMPTY_GROUP)

    outcome = tool("consumer-groups", "--delete", "--all-groups")

    assert outcome.status == 1
    assert outcome.err == (
        "Error: Deletion of some consumer groups failed:\n"
        "* Group 'b' could not be deleted due to: "
        "NON_EMPTY_GROUP: The group still has members.\n"
    )
    assert outcome.out == "These consumer groups were deleted successfully: 'a'\n"


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--list", "--describe"),
        ("--list", "--group", "a"),
        ("--delete",),
        ("--describe", "--group", "a", "--all-groups"),
        ("--describe", "--group", "a", "--members", "--state"),
        ("--describe", "--group", "a", "--state", "Stable"),
        ("--delete", "--group", "a", "--members"),
        ("--delete", "--group", "a", "--topic", "t"),
        ("--delete", "--group", "a", "--state"),
        ("--reset-offsets", "--group", "a", "--topic", "t"),
        ("--reset-offsets", "--group", "a", "--to-latest"),
        ("--reset-offsets", "--topic", "t", "--to-latest"),
        ("--reset-offsets", "--group", "a", "--topic", "t", "--all-topics", "--to-latest"),
        ("--reset-offsets", "--group", "a", "--topic", "t", "--to-latest", "--to-earliest"),
        (
            "--reset-offsets",
            "--group",
            "a",
            "--topic",
            "t",
            "--to-latest",
            "--dry-run",
            "--execute",
        ),
        ("--describe", "--group", "a", "--to-latest"),
    ],
)
def test_options_that_do_not_fit_are_one_line(tool, cluster, words):
    """Nothing is changed, and the help is pointed to."""
    outcome = tool("consumer-groups", *words)

    assert outcome.status == 1
    assert "(see 'ottla consumer-groups --help')" in outcome.err
    assert outcome.err.count("\n") == 1
    assert not cluster.changes
