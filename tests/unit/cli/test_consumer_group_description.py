"""`ottla consumer-groups --describe`."""

import json

import pytest
from fake_consumer import FakeConsumer

from ottla.clients.admin.descriptions import MemberDescription, TopicPartitionInfo
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.message import encode_versioned
from ottla.protocol.offsets_topic import GroupMetadataKey, GroupMetadataValue, StoredMember
from ottla.structs import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
BUSY = MemberDescription("c-2", None, "c", "/127.0.0.1", [A1, A0])
IDLE = MemberDescription("c-1", None, "c", "/127.0.0.1", [])


def row(*fields: object) -> str:
    """Fields in columns of the width that short contents get."""
    widths = (15, 15, 10, 15, 15, 15, 15, 15, 0)
    return " ".join(f"{field!s:<{width}}" for field, width in zip(fields, widths, strict=True))


def state_row(*fields: object) -> str:
    """Fields in the columns of the --state view."""
    return "{:<25} {:<25} {:<20} {:<15} {}".format(*fields)


HEADER = row(
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)


@pytest.fixture
def cluster(admin):
    """One of the members of group g reads topic a; nobody reads b, which has an offset too."""
    admin.add_topic("a", TopicPartitionInfo(0, 0), TopicPartitionInfo(1, 0))
    admin.add_topic("b")
    admin.add_log(A0, 0, 10)
    admin.add_log(A1, 0, 20)
    admin.add_log(B0, 0, 5)
    admin.add_group("g", "Stable", IDLE, BUSY)
    admin.committed["g"] = {A0: 4, B0: 5}
    admin.add_group("empty")
    return admin


def test_offsets_are_shown_with_their_lag(tool, cluster):
    """Assigned partitions first, then the others; a dash for what is not known."""
    outcome = tool("consumer-groups", "--describe", "--group", "g")

    assert outcome.status == 0
    assert outcome.err == ""
    assert outcome.lines == [
        "",
        HEADER,
        row("g", "a", 0, 4, 10, 6, "c-2", "/127.0.0.1", "c"),
        row("g", "a", 1, "-", 20, "-", "c-2", "/127.0.0.1", "c"),
        row("g", "b", 0, 5, 5, 0, "-", "-", "-"),
    ]


def test_offsets_view_is_the_default(tool, cluster):
    """`--offsets` says the same as no view."""
    plain = tool("consumer-groups", "--describe", "--group", "g")

    assert tool("consumer-groups", "--describe", "--group", "g", "--offsets").out == plain.out


def test_columns_grow_with_their_contents(tool, cluster):
    """Long names stay in their columns."""
    group = "g" * 30
    cluster.add_group(group)
    cluster.committed[group] = {B0: 1}

    lines = tool("consumer-groups", "--describe", "--group", group).lines

    assert lines[1].index("TOPIC") == lines[2].index(" b ") + 1 == 31


def test_topic_that_has_gone_has_no_log_end(tool, cluster):
    """Its offsets are still shown."""
    del cluster.topics["b"]

    lines = tool("consumer-groups", "--describe", "--group", "g").lines

    assert lines[4] == row("g", "b", 0, 5, "-", "-", "-", "-", "-")


def test_group_without_members_says_so(tool, cluster):
    """The note goes to stderr, offsets to stdout as ever."""
    cluster.committed["empty"] = {B0: 1}

    outcome = tool("consumer-groups", "--describe", "--group", "empty")

    assert outcome.err == "\nConsumer group 'empty' has no active members.\n"
    assert outcome.lines[2] == row("empty", "b", 0, 1, 5, 4, "-", "-", "-")


def test_group_that_rebalances_says_so(tool, cluster):
    """What is shown may change in a moment."""
    cluster.groups["g"].state = "PreparingRebalance"

    err = tool("consumer-groups", "--describe", "--group", "g").err

    assert err == "\nWarning: Consumer group 'g' is rebalancing.\n"


@pytest.mark.parametrize("view", [(), ("--members",), ("--state",)])
def test_unknown_group_is_one_line_and_status_1(tool, cluster, view):
    """The others are described."""
    words = ("--group", "none", "--group", "g", *view)

    outcome = tool("consumer-groups", "--describe", *words)

    assert outcome.status == 1
    assert outcome.err == "Error: Consumer group 'none' does not exist.\n"
    assert "g " in outcome.out


def test_members_are_counted(tool, cluster):
    """CONSUMER-ID HOST CLIENT-ID #PARTITIONS."""
    lines = tool("consumer-groups", "--describe", "--group", "g", "--members").lines

    assert [line.split() for line in lines[1:]] == [
        ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"],
        ["g", "c-1", "/127.0.0.1", "c", "0"],
        ["g", "c-2", "/127.0.0.1", "c", "2"],
    ]


def test_verbose_shows_assignments(tool, cluster):
    """Topics with their partitions, or a dash."""
    BUSY.assignment[:] = [B0, A1, A0]

    lines = tool("consumer-groups", "--describe", "--group", "g", "--members", "--verbose").lines

    assert lines[1].endswith("ASSIGNMENT")
    assert lines[2].endswith(" 0               -")
    assert lines[3].endswith(" 3               a(0,1), b(0)")
    BUSY.assignment[:] = [A1, A0]


def test_state_is_one_row(tool, cluster):
    """COORDINATOR (ID) ASSIGNMENT-STRATEGY STATE #MEMBERS."""
    lines = tool("consumer-groups", "--describe", "--group", "g", "--state").lines

    assert lines == [
        "",
        state_row("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"),
        state_row("g", "localhost:9092 (0)", "range", "Stable", 2),
    ]


def test_all_groups_are_described_in_turn(tool, cluster):
    """In the order of their ids."""
    lines = tool("consumer-groups", "--describe", "--all-groups", "--state").lines

    assert [line.split()[0] for line in lines if line and not line.startswith("GROUP")] == [
        "empty",
        "g",
    ]


def test_members_of_a_consumer_group_have_epochs_and_targets(tool, admin):
    """KIP-848: what a member has, and what it is going to have."""
    member = MemberDescription("c-1", None, "c", "/127.0.0.1", [A0], 4, [A0, A1])
    admin.add_group("k", "Reconciling", member)
    admin.groups["k"].group_epoch = admin.groups["k"].assignment_epoch = 5

    outcome = tool("consumer-groups", "--describe", "--group", "k", "--members", "--verbose")

    assert outcome.lines[1].split()[-4:] == [
        "CURRENT-EPOCH",
        "CURRENT-ASSIGNMENT",
        "TARGET-EPOCH",
        "TARGET-ASSIGNMENT",
    ]
    assert outcome.lines[2].split()[-5:] == ["1", "4", "a(0)", "5", "a(0,1)"]
    assert "is rebalancing" in outcome.err


def test_state_of_a_consumer_group_shows_its_epochs(tool, admin):
    """The option --verbose adds the epochs of the group."""
    admin.add_group("k", "Stable")
    admin.groups["k"].group_epoch, admin.groups["k"].assignment_epoch = 5, 4

    outcome = tool("consumer-groups", "--describe", "--group", "k", "--state", "--verbose")

    assert outcome.lines[1].split()[-3:] == ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"]
    assert outcome.lines[2].split()[-3:] == ["5", "4", "0"]


def test_offsets_can_be_described_as_json(tool, cluster):
    """Numbers are numbers, and what is not known is null."""
    words = ("--describe", "--group", "g", "--format", "json")
    rows = json.loads(tool("consumer-groups", *words).out)

    assert rows[1] == {
        "group": "g",
        "topic": "a",
        "partition": 1,
        "current_offset": None,
        "log_end_offset": 20,
        "lag": None,
        "to_read": 20,
        "consumer_id": "c-2",
        "host": "/127.0.0.1",
        "client_id": "c",
    }
    members = json.loads(tool("consumer-groups", *words, "--members").out)
    assert [(member["consumer_id"], member["assignment"]) for member in members] == [
        ("c-1", "-"),
        ("c-2", "a(0,1)"),
    ]
    (state,) = json.loads(tool("consumer-groups", *words, "--state").out)
    assert (state["state"], state["members"]) == ("Stable", 2)


def test_group_that_is_missing_is_an_error_in_every_format(tool, cluster):
    """A missing group is an empty list in JSON, so that JSON stays JSON."""
    outcome = tool("consumer-groups", "--describe", "--group", "none", "--format", "json")

    assert (outcome.status, outcome.out) == (1, "[]\n")
    assert outcome.err == "Error: Consumer group 'none' does not exist.\n"


@pytest.fixture
def offsets_topic(clients):
    """A consumer of __consumer_offsets, which has one partition and no records yet."""
    clients.reader = FakeConsumer(__consumer_offsets=1)
    return clients.reader


def member_record(*topics: str) -> bytes:
    """What the coordinator stores of a group with a member that subscribes to these topics."""
    wanted = encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 0)
    member = StoredMember(member_id="m", client_id="c", client_host="/h", subscription=wanted)
    value = GroupMetadataValue(protocol_type="consumer", generation=1, members=[member])
    return encode_versioned(value, 3)


def test_group_without_offsets_says_so_to_a_person(tool, cluster, offsets_topic):
    """The blank answer looked like a failure."""
    outcome = tool("consumer-groups", "--describe", "--group", "empty", tty=True)

    assert outcome.err.splitlines()[-1] == "Group 'empty' has committed no offsets."


def test_group_without_offsets_shows_what_it_once_read(tool, cluster, offsets_topic):
    """The topics of its former members, and how much there is; a pipe gets Kafka's empty answer."""
    partition = TopicPartition("__consumer_offsets", 0)
    keys = {name: encode_versioned(GroupMetadataKey(group=name), 2) for name in ("empty", "other")}
    offsets_topic.add(partition, 0, member_record("b", "deleted"), keys["empty"])
    offsets_topic.add(partition, 0, member_record("a"), keys["other"])
    offsets_topic.add(partition, 0, None, keys["empty"])
    cluster.add_log(B0, 2, 5)
    words = ("consumer-groups", "--describe", "--group", "empty")

    screen = tool(*words, tty=True)
    (as_json,) = json.loads(tool(*words, "--format", "json").out)
    pipe = tool(*words)

    assert screen.lines[1].split()[4:7] == ["LOG-END-OFFSET", "LAG", "TO-READ"]
    assert screen.lines[2].split() == ["empty", "b", "0", "-", "5", "-", "3", "-", "-", "-"]
    assert "has committed no offsets; it has subscribed to b." in screen.err
    assert (as_json["topic"], as_json["current_offset"], as_json["to_read"]) == ("b", None, 3)
    assert (pipe.out, pipe.err) == ("", "\nConsumer group 'empty' has no active members.\n")


def test_offsets_topic_that_cannot_be_read_is_no_error(tool, cluster, clients):
    """Not every user may read it, and a cluster without groups has none."""
    clients.reader = FakeConsumer(a=1)

    outcome = tool("consumer-groups", "--describe", "--group", "empty", "--format", "json")

    assert (outcome.status, outcome.out) == (0, "[]\n")


@pytest.mark.parametrize("leaders", [(0, -1), (-1, 0), (-1, -1)])
def test_partition_without_a_leader_is_named_and_the_rest_is_shown(tool, cluster, leaders):
    """To wait for a leader would take a minute, and show nothing."""
    cluster.add_topic("a", *(TopicPartitionInfo(n, each) for n, each in enumerate(leaders)))
    outcome = tool("consumer-groups", "--describe", "--group", "g")

    for number, leader in enumerate(leaders):
        note = f"Error: partition a-{number} does not have a leader. It is skipped."
        assert (note in outcome.err) == (leader < 0)
    ends = {line.split()[1] + line.split()[2]: line.split()[4] for line in outcome.lines[2:]}
    assert ends == {
        "a0": "10" if leaders[0] == 0 else "-",
        "a1": "20" if leaders[1] == 0 else "-",
        "b0": "5",
    }


def test_committed_offset_of_a_partition_that_is_gone_has_no_log_end(tool, cluster):
    """The topic was made again with fewer partitions; the rest of the group is shown."""
    cluster.add_topic("a")
    rows = [line.split() for line in tool("consumer-groups", "--describe", "--group", "g").lines]

    assert [row[4] for row in rows if row[1:3] == ["a", "1"]] == ["-"]
    assert [row[4] for row in rows if row[1:3] == ["a", "0"]] == ["10"]


@pytest.mark.parametrize("words", [(), ("--members",), ("--state",), ("--format", "table")])
def test_client_cannot_add_lines_of_its_own(tool, cluster, words):
    """A client id with a line feed would look like another member, or another group."""
    evil = MemberDescription("c-3", None, "c\ng  a  0  10  10  0", "/127.0.0.1", [A0])
    plain = MemberDescription("c-3", None, "c", "/127.0.0.1", [A0])
    counts = []
    for member in (plain, evil):
        cluster.add_group("g", "Stable", member)
        counts.append(len(tool("consumer-groups", "--describe", "--group", "g", *words).lines))

    assert counts[0] == counts[1]


@pytest.mark.parametrize("words", [(), ("--state",), ("--members",), ("--format", "json")])
def test_group_that_cannot_be_described_hides_no_other(tool, cluster, words):
    """One whose coordinator hangs, or whose assignment nobody can read, is a line beside them."""
    del cluster.groups["empty"]
    cluster.add_group("h", "Stable", BUSY)
    cluster.failures["h"] = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
    outcome = tool("consumer-groups", "--describe", "--all-groups", *words)

    assert outcome.status == 1
    assert "'h' is not described: REQUEST_TIMED_OUT: no answer" in outcome.err
    assert "g" in outcome.out
    assert BUSY.client_id in outcome.out or words == ("--state",)


def test_error_of_the_only_group_is_that_of_the_command(tool, cluster):
    """There is nothing to show beside it."""
    cluster.failures["g"] = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
    outcome = tool("consumer-groups", "--describe", "--group", "g")

    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err == "ottla consumer-groups: no answer (REQUEST_TIMED_OUT)\n"
