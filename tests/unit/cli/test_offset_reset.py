"""`ottla consumer-groups --reset-offsets`, scenario by scenario, and plans as CSV."""

from __future__ import annotations

import json

import pytest
from fake_consumer import FakeConsumer

from ottla.cli.command_error import CommandError
from ottla.cli.offset_reset import plan_as_csv, read_plan
from ottla.cli.terminal import Terminal
from ottla.clients.admin.descriptions import TopicPartitionInfo
from ottla.structs import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)

DAY_MS = 86_400_000


@pytest.fixture
def cluster(admin):
    """Topic t has two partitions; group g has offsets of t-0 and u-0."""
    admin.add_topic("t", TopicPartitionInfo(0, 0), TopicPartitionInfo(1, 0))
    admin.add_topic("u")
    admin.add_log(T0, 5, 100)
    admin.add_log(T1, 0, 50)
    admin.add_log(U0, 0, 9)
    admin.add_group("g")
    admin.committed["g"] = {T0: 40, U0: 3}
    return admin


@pytest.fixture
def reset(tool, cluster):
    """Reset the offsets of group g with these options; None where nothing was committed."""

    def run(*words: object):
        outcome = tool("consumer-groups", "--reset-offsets", "--group", "g", "--execute", *words)
        assert outcome.status == 0, outcome.err
        return cluster.changes[-1][2] if cluster.changes else None

    return run


def test_earliest_and_latest_are_the_ends_of_the_log(reset):
    """Each partition goes to its own first or last offset."""
    assert reset("--topic", "t", "--to-earliest") == {T0: 5, T1: 0}
    assert reset("--topic", "t", "--to-latest") == {T0: 100, T1: 50}


def test_offset_can_be_named(reset):
    """Every partition in scope goes to it."""
    assert reset("--topic", "t", "--to-offset", 30) == {T0: 30, T1: 30}


def test_offset_may_be_zero(reset):
    """Zero is an offset like any other."""
    assert reset("--topic", "t:1", "--to-offset", 0) == {T1: 0}


@pytest.mark.parametrize(("shift", "offset"), [(10, 50), (-10, 30), (0, 40)])
def test_shift_goes_both_ways(reset, shift, offset):
    """The shift counts records from the committed offset."""
    assert reset("--topic", "t:0", "--shift-by", shift) == {T0: offset}


@pytest.mark.parametrize(
    ("shift", "offset", "warning"),
    [
        (1000, 100, "new offset 1040 is higher than latest offset of partition t-0"),
        (-1000, 5, "new offset -960 is lower than earliest offset of partition t-0"),
    ],
)
def test_offsets_stay_inside_the_log(tool, cluster, shift, offset, warning):
    """A warning says what was asked for and what was done."""
    words = ("--group", "g", "--topic", "t:0", "--shift-by", shift, "--execute")

    outcome = tool("consumer-groups", "--reset-offsets", *words)

    assert outcome.err == f"WARN: {warning}; it is set to {offset}\n"
    assert cluster.changes == [("alter_group_offsets", "g", {T0: offset})]


def test_shift_needs_an_offset_to_shift(tool, cluster):
    """A partition without one is named."""
    words = ("--group", "g", "--topic", "t", "--shift-by", 1)

    outcome = tool("consumer-groups", "--reset-offsets", *words)

    assert outcome.status == 1
    assert "cannot shift the offset of t-1: group 'g' has none" in outcome.err


def test_current_is_the_committed_offset_or_the_log_end(reset):
    """A partition without a committed offset goes to the end of its log."""
    assert reset("--topic", "t", "--to-current") == {T0: 40, T1: 50}


def test_datetime_finds_the_first_record_since(reset, cluster):
    """The log end where no record is as new."""
    cluster.offsets[T0, 1500] = 17
    cluster.offsets[T1, 1500] = -1

    assert reset("--topic", "t", "--to-datetime", "1970-01-01T00:00:01.500") == {T0: 17, T1: 50}


def test_time_that_no_record_has_is_said_to_be_the_log_end(tool, cluster):
    """A reset to the year 2099 skips all that is there: a person should hear of it."""
    cluster.offsets[T0, 4_070_908_800_000] = cluster.offsets[T1, 4_070_908_800_000] = -1
    words = ("--topic", "t:0", "--to-datetime", "2099-01-01T00:00:00.000")
    outcome = tool("consumer-groups", "--reset-offsets", "--group", "g", "--execute", *words)

    assert "WARN: partition t-0 has no record with such a timestamp or a newer one" in outcome.err


@pytest.mark.parametrize("words", [("--to-latest",), ("--to-offset", "7"), ("--shift-by", "1")])
def test_partition_without_a_leader_is_skipped_by_a_reset(tool, cluster, words):
    """It is named; the other partitions are reset, and the status tells that one is not."""
    cluster.add_topic("t", TopicPartitionInfo(0, 0), TopicPartitionInfo(1, -1))
    cluster.committed["g"][T1] = 1
    words = ("--reset-offsets", "--group", "g", "--topic", "t", "--execute", *words)
    outcome = tool("consumer-groups", *words)

    assert "Error: partition t-1 does not have a leader. It is skipped." in outcome.err
    assert list(cluster.changes[-1][2]) == [T0]
    assert outcome.status == 1


def test_duration_is_counted_from_now(reset, cluster, monkeypatch):
    """An ISO 8601 duration before the present gives the time to look for."""
    monkeypatch.setattr(Terminal, "now_ms", lambda _: 100_000)
    cluster.offsets[T0, 40_000] = 21

    assert reset("--topic", "t:0", "--by-duration", "PT1M") == {T0: 21}


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (("--to-datetime", "1969-12-31T23:59:59.999"), 0),  # -1 names the end of the log
        (("--to-datetime", "1969-12-31T23:59:59.998"), 0),  # -2 names its start
        (("--by-duration", "P99999999D"), 0),
        (("--by-duration=-P999999999999D",), 2**63 - 1),
    ],
)
def test_moments_outside_of_timestamps_are_the_nearest_timestamp(reset, cluster, words, asked):
    """No moment is taken for a time that has a name, and none is too large for the protocol."""
    cluster.offsets[T0, asked] = 21

    assert reset("--topic", "t:0", *words) == {T0: 21}


def test_file_names_partitions_and_offsets(reset, tmp_path):
    """No scope is needed, and offsets stay inside the log."""
    path = tmp_path / "plan.csv"
    path.write_text("t,0,7\nt,1,70\n")

    assert reset("--from-file", path) == {T0: 7, T1: 50}


def test_file_without_the_group_is_refused(tool, cluster, tmp_path):
    """The file and the group are named."""
    path = tmp_path / "plan.csv"
    path.write_text("other,t,0,7\n")

    outcome = tool("consumer-groups", "--reset-offsets", "--group", "g", "--from-file", path)

    assert outcome.status == 1
    assert "plan.csv has no offsets for group 'g'" in outcome.err


@pytest.mark.parametrize("line", ["t,7,7", "none,0,7"])
def test_file_with_a_partition_that_there_is_not_changes_nothing(tool, cluster, tmp_path, line):
    """A line that is passed over would look as if it had been done."""
    path = tmp_path / "plan.csv"
    path.write_text(f"t,0,7\n{line}\n")
    words = ("--reset-offsets", "--group", "g", "--from-file", path, "--execute")
    outcome = tool("consumer-groups", *words)

    assert outcome.status == 1
    assert f"plan.csv: there is no partition {'-'.join(line.split(',')[:2])}" in outcome.err
    assert cluster.changes == []


def test_file_may_begin_with_a_mark_of_its_encoding(reset, tmp_path):
    """Editors of Windows write one, and end lines in their way."""
    path = tmp_path / "plan.csv"
    path.write_bytes(b"\xef\xbb\xbft,0,7\r\nt,1,8\r\n")

    assert reset("--from-file", path) == {T0: 7, T1: 8}


def test_all_topics_are_those_with_offsets(reset):
    """Topics that the group has not read are left alone."""
    assert reset("--all-topics", "--to-latest") == {T0: 100, U0: 9}


def test_partitions_can_be_chosen(reset):
    """The partitions may be of several topics."""
    assert reset("--topic", "t:1", "--topic", "u", "--to-earliest") == {T1: 0, U0: 0}


def test_plan_is_printed_and_nothing_is_changed(tool, cluster):
    """A call without --execute is a dry run, which a warning says unless --dry-run is given."""
    words = ("--reset-offsets", "--group", "g", "--topic", "t", "--to-latest")

    silent, warned = tool("consumer-groups", *words, "--dry-run"), tool("consumer-groups", *words)

    assert silent.lines == [
        "",
        f"{'GROUP':<30} {'TOPIC':<30} {'PARTITION':<10} {'NEW-OFFSET':<15}",
        f"{'g':<30} {'t':<30} {'0':<10} {'100':<15}",
        f"{'g':<30} {'t':<30} {'1':<10} {'50':<15}",
    ]
    assert warned.out == silent.out
    assert silent.err == ""
    assert warned.err.startswith("WARN: nothing is changed")
    assert not cluster.changes


def test_export_prints_csv(tool, cluster):
    """The group stands in front where there are several."""
    cluster.add_group("h")
    words = ("--reset-offsets", "--topic", "t:1", "--to-latest", "--export", "--dry-run")

    one = tool("consumer-groups", *words, "--group", "g")
    two = tool("consumer-groups", *words, "--group", "g", "--group", "h")

    assert one.out == "t,1,50\n"
    assert two.out == "g,t,1,50\nh,t,1,50\n"


def test_group_with_members_is_refused_with_its_state(tool, cluster):
    """The other groups are reset."""
    cluster.add_group("busy", "Stable")
    words = ("--all-groups", "--topic", "t:1", "--to-latest", "--execute")

    outcome = tool("consumer-groups", "--reset-offsets", *words)

    assert outcome.status == 1
    assert outcome.err == (
        "Error: Assignments can only be reset if the group 'busy' is inactive, "
        "but the current state is Stable.\n"
    )
    assert cluster.changes == [("alter_group_offsets", "g", {T1: 50})]


def test_group_that_does_not_exist_gets_offsets(tool, cluster):
    """Such a group begins at the given offsets, as in Kafka."""
    words = ("--group", "new", "--topic", "t:1", "--to-offset", 7, "--execute")

    assert tool("consumer-groups", "--reset-offsets", *words).status == 0
    assert cluster.changes == [("alter_group_offsets", "new", {T1: 7})]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--topic", "none", "--to-latest"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("--topic", "t:7", "--to-latest"), "topic 't' has no partition 7"),
        (("--topic", "t:x", "--to-latest"), "--topic takes numbers"),
        (("--topic", "t", "--to-datetime", "noon"), "--to-datetime takes"),
        (("--topic", "t", "--to-datetime", ""), "--to-datetime takes"),
        (("--topic", "t", "--by-duration", ""), "--by-duration takes"),
        (("--topic", "t", "--from-file", ""), "a file has an empty name"),
        (("--from-file", ""), "a file has an empty name"),
        (("--topic", "t", "--by-duration", "1h"), "--by-duration takes"),
        (("--from-file", "/none"), "cannot read /none"),
    ],
)
def test_mistakes_are_one_line(tool, cluster, words, line):
    """A mistake commits nothing."""
    outcome = tool("consumer-groups", "--reset-offsets", "--group", "g", "--dry-run", *words)

    assert outcome.status == 1
    assert line in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.fixture
def records(cluster, clients, monkeypatch):
    """What the reset reads: t-0 has a record a day after 1970 at offset 35, t-1 one at 20."""
    monkeypatch.setattr(Terminal, "now_ms", lambda _: 4 * DAY_MS)
    clients.reader = FakeConsumer(t=2, u=1)
    clients.reader.add(T0, DAY_MS, b"v", offset=35)
    clients.reader.add(T1, DAY_MS, b"v", offset=20)
    clients.reader.ends = {T0: 100, T1: 50}
    return clients.reader


def test_person_sees_what_a_reset_changes(tool, records):
    """A person sees the repeated records and the age of the next; a script Kafka's columns."""
    words = ("--reset-offsets", "--group", "g", "--topic", "t", "--to-offset", 30)

    screen = tool("consumer-groups", *words, tty=True)
    pipe = tool("consumer-groups", *words)

    assert [line.split() for line in screen.lines[1:]] == [
        ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET", "OLD-OFFSET", "CHANGE", "AGE"],
        ["g", "t", "0", "30", "40", "10", "again", "3", "days"],
        ["g", "t", "1", "30", "-", "-", "log", "end"],
    ]
    assert pipe.lines[1].split() == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    assert pipe.lines[2].split() == ["g", "t", "0", "30"]


def test_reset_can_be_read_by_programs(tool, records, clients):
    """--format json, dry run or not; the offsets are those from before the reset."""
    words = ("--reset-offsets", "--group", "g", "--topic", "t:0", "--to-latest", "--execute")
    outcome = tool("consumer-groups", *words, "--format", "json")
    earlier = tool("consumer-groups", *words[:-2], "--to-earliest", "--format", "json")

    (row,) = json.loads(outcome.out)
    assert row == {
        "group": "g",
        "topic": "t",
        "partition": 0,
        "new_offset": 100,
        "old_offset": 40,
        "change": "60 skipped",
        "record_time": None,
        "age": "log end",
    }
    assert json.loads(earlier.out)[0]["record_time"] == "1970-01-02T00:00:00.000Z"
    assert [asked[0] for asked in clients.asked] == ["admin", "consumer"] * 2


def test_reset_is_either_csv_or_rows(tool, cluster):
    """--export has a format of its own."""
    words = ("--group", "g", "--topic", "t", "--to-latest", "--export", "--format", "json")

    outcome = tool("consumer-groups", "--reset-offsets", *words)

    assert "--format json cannot be used with --export, which is CSV" in outcome.err


def test_moment_that_is_none_is_told_before_the_dry_run(tool, cluster):
    """The warning about a dry run came first, and hid it."""
    words = ("--reset-offsets", "--group", "g", "--topic", "t", "--to-datetime", "yesterday")

    outcome = tool("consumer-groups", *words)

    assert outcome.err.startswith("ottla consumer-groups: --to-datetime takes YYYY-MM-DD")


# Reset plans as CSV.


PLAN = {"g": {TopicPartition("t", 1): 7, TopicPartition("t", 0): 5}}


def test_plan_of_one_group_has_three_columns():
    """Topic, partition, offset, in the order of partitions."""
    assert plan_as_csv(PLAN, with_group=False) == "t,0,5\nt,1,7\n"


def test_plan_of_several_groups_names_them():
    """The group stands in front."""
    assert plan_as_csv(PLAN, with_group=True) == "g,t,0,5\ng,t,1,7\n"


@pytest.mark.parametrize(("with_group", "only_group"), [(False, "g"), (True, "g"), (True, None)])
def test_plan_can_be_read_back(tmp_path, with_group, only_group):
    """The file of --export is read by --from-file."""
    path = tmp_path / "plan.csv"
    path.write_text(plan_as_csv(PLAN, with_group=with_group))

    assert read_plan(str(path), only_group=only_group) == PLAN


@pytest.mark.parametrize(
    "line", ["t,0", "t,x,5", "t,0,5", "a,b,t,0,5", "g,t,0,1_0", "g,t,\u0663,1"]
)
def test_wrong_line_is_named(tmp_path, line):
    """The message has the file, the line and what was expected there."""
    path = tmp_path / "plan.csv"
    path.write_text(f"g,t,0,5\n\n{line}\n")

    with pytest.raises(CommandError, match=rf"plan.csv, line 3: expected group,.* found '{line}'"):
        read_plan(str(path), only_group=None)


def test_missing_file_is_named():
    """The message has the path and the reason."""
    with pytest.raises(CommandError, match="cannot read /no/plan: No such file"):
        read_plan("/no/plan", only_group="g")


@pytest.mark.parametrize("group", ["a,b", 'a"b', "a\nb", "a\u2028b", "a\x85b", "a\x0bb"])
def test_plan_of_a_group_with_any_name_can_be_read_back(tmp_path, group):
    """A name may hold the ends of lines: one that was read in two would be another group."""
    plan = {group: {TopicPartition("t", 0): 5}}
    path = tmp_path / "plan.csv"
    path.write_text(plan_as_csv(plan, with_group=True), encoding="utf-8")

    assert read_plan(str(path), only_group=None) == plan


def test_field_that_is_too_long_is_named(tmp_path):
    """The message has the file and the line."""
    path = tmp_path / "plan.csv"
    path.write_text(f"g,t,0,5\n{'g' * 200_000},t,0,5\n")

    with pytest.raises(CommandError, match=r"plan\.csv, line 2: field larger than"):
        read_plan(str(path), only_group=None)
