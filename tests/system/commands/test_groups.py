"""Consumer groups: what they have read, and how that is changed."""

import pytest


def columns(text: str) -> list[list[str]]:
    """The words of each line that has any."""
    return [line.split() for line in text.splitlines() if line]


def committed(ottla, group: str) -> str:
    """The offset of the one partition that the group has committed."""
    return columns(ottla("consumer-groups", "--describe", "--group", group).stdout)[1][3]


@pytest.fixture
def member(start, ottla, broker, topic):
    """A group with one member, which has read three records and goes on."""
    group = f"{topic}-members"
    ottla("console-producer", "--topic", topic, stdin="a\nb\nc\n")
    words = ("--topic", topic, "--from-beginning", "--group", group)
    process = start("console-consumer", "--bootstrap-server", broker.bootstrap_servers, *words)
    for _ in range(3):
        assert process.stdout.readline()
    return group


def test_group_with_a_member_is_described(ottla, topic, member):
    """List, and the three views of a group."""
    describe = ("consumer-groups", "--describe", "--group", member)

    offsets = columns(ottla(*describe).stdout)
    members = columns(ottla(*describe, "--members", "--verbose").stdout)
    state = columns(ottla(*describe, "--state").stdout)

    assert member in ottla("consumer-groups", "--list").stdout.splitlines()
    assert " ".join(offsets[0]) == (
        "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
    )
    assert [row[:3] for row in offsets[1:]] == [[member, topic, str(each)] for each in range(3)]
    assert all(row[6].startswith("console-consumer-") for row in offsets[1:])
    assert members[1][-2:] == ["3", f"{topic}(0,1,2)"]
    assert state[1][-2:] == ["Stable", "1"]


def test_group_with_a_member_is_neither_deleted_nor_reset(run, broker, fails, member):
    """The group is named with the reason."""
    servers = ("--bootstrap-server", broker.bootstrap_servers)
    reset = ("--reset-offsets", "--group", member, "--all-topics", "--to-earliest", "--dry-run")

    done = run("consumer-groups", *servers, "--delete", "--group", member)

    assert done.returncode == 1
    assert f"* Group '{member}' could not be deleted due to: NON_EMPTY_GROUP" in done.stderr
    assert "the current state is Stable" in fails("consumer-groups", *reset)


def test_consumer_commits_what_it_has_printed(ottla, narrow, group):
    """--max-messages in the middle of a batch leaves the rest for the next start."""
    reset = ("--reset-offsets", "--group", group, "--topic", narrow, "--to-offset", 2)
    ottla("consumer-groups", *reset, "--execute")
    words = ("--topic", narrow, "--group", group)

    first = ottla("console-consumer", *words, "--max-messages", 3).stdout
    rest = ottla("console-consumer", *words, "--max-messages", 5).stdout

    assert first == "2\n3\n4\n"
    assert rest == "5\n6\n7\n8\n9\n"


@pytest.mark.parametrize(
    ("scenario", "offset"),
    [
        (("--to-earliest",), "0"),
        (("--to-latest",), "10"),
        (("--to-offset", 4), "4"),
        (("--shift-by", -3), "7"),
        (("--shift-by", 99), "10"),
        (("--to-current",), "10"),
        (("--by-duration", "PT1H"), "0"),
        (("--to-datetime", "2001-01-01T00:00:00.000"), "0"),
        (("--to-datetime", "2999-01-01T00:00:00.000+02:00"), "10"),
    ],
)
def test_offsets_are_reset(ottla, narrow, group, scenario, offset):
    """Each scenario commits what it plans, and the plan is shown."""
    words = ("--reset-offsets", "--group", group, "--topic", narrow, "--execute", *scenario)

    shown = columns(ottla("consumer-groups", *words).stdout)

    assert shown == [
        ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"],
        [group, narrow, "0", offset],
    ]
    assert committed(ottla, group) == offset


def test_exported_offsets_can_be_imported(ottla, narrow, group, tmp_path):
    """What --export printed is a file for --from-file."""
    plan = tmp_path / "plan.csv"
    reset = ("consumer-groups", "--reset-offsets", "--group", group)

    exported = ottla(*reset, "--all-topics", "--shift-by", -5, "--export", "--dry-run").stdout
    plan.write_text(exported)
    unchanged = committed(ottla, group)
    ottla(*reset, "--from-file", plan, "--execute")

    assert exported == f"{narrow},0,5\n"
    assert (unchanged, committed(ottla, group)) == ("10", "5")


def test_group_without_members_is_deleted(ottla, fails, group):
    """The line of Kafka, and then there is no such group."""
    done = ottla("consumer-groups", "--delete", "--group", group)

    assert done.stdout == f"Deletion of requested consumer groups ('{group}') was successful.\n"
    assert fails("consumer-groups", "--describe", "--group", group) == (
        f"Error: Consumer group '{group}' does not exist.\n"
    )


def test_committed_offsets_can_be_read_as_records(start, broker, narrow, group):
    """The formatter of offsets reads __consumer_offsets, from which more may always come."""
    words = ("--topic", "__consumer_offsets", "--from-beginning")
    name = "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter"
    servers = ("--bootstrap-server", broker.bootstrap_servers)

    process = start("console-consumer", *servers, *words, "--formatter", name)

    wanted = f"[{group},{narrow},0]::OffsetAndMetadata(offset=10, "
    assert any(wanted in line for line in process.stdout)
