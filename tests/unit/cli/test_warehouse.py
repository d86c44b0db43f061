"""`ottla warehouse` before it starts anything: what the options ask for, and wrong ones."""

from __future__ import annotations

import pytest

from ottla.cli.command_error import UsageError
from ottla.cli.options import option_parser
from ottla.cli.warehouse import NEEDS, TAKES, WarehouseCommand, check_options
from ottla.cli.warehouse_loading import load_options

SERVERS = ("--bootstrap-server", "localhost:9092")
LOAD = ("load", *SERVERS, "--table", "lake/t")


def parsed(*words):
    arguments = option_parser(WarehouseCommand()).parse_args(list(words))
    check_options(arguments)
    return arguments


def test_options_reach_the_load():
    """Topics, the first offsets, columns, sizes, and what the source is told."""
    words = ("--topic", "a,b", "--from", "2026-03-02T08:00:00Z", "--name", "mine")
    words += ("--fields", "path string", "--partition-by", "hour", "--headers")
    words += ("--max-records", "500", "--min-tasks", "4")
    words += ("--source-option", "failOnDataLoss=false")

    options = load_options(parsed(*LOAD, *words))

    assert options.source == {
        "kafka.bootstrap.servers": "localhost:9092",
        "subscribe": "a,b",
        "startingTimestamp": "1772438400000",
        "startingOffsetsByTimestampStrategy": "latest",
        "failOnDataLoss": "false",
    }
    assert (options.name, options.max_records, options.min_tasks) == ("mine", 500, 4)
    assert options.layout.partition_columns == ("day", "hour")
    assert (options.layout.fields, options.layout.with_headers) == ("path string", True)
    assert options.source_options().isolation == "read_committed"


def test_topics_may_be_a_pattern():
    """A load without further options has a name, and begins at the first record."""
    options = load_options(parsed(*LOAD, "--topics", "web-.*"))

    assert options.source["subscribePattern"] == "^(?:web-.*)$"
    assert options.source["startingOffsets"] == "earliest"
    assert options.name == "warehouse"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("load", *SERVERS), "missing required option --table"),
        (("rewind", *SERVERS, "--table", "t"), "missing required option --to"),
        (("query", "--table", "t"), "missing required option --sql"),
        (("compact", "--table", "t", "--topic", "a"), "option --topic cannot be used with compact"),
        ((*LOAD, "--delete"), "option --delete cannot be used with load"),
        ((*LOAD, "--max-records", "0"), "--max-records takes a number from 1 on, not '0'"),
        (
            ("vacuum", "--table", "t", "--retain-hours", "-1"),
            "--retain-hours takes a number from 0 to 2147483647, not '-1'",
        ),
        (
            ("vacuum", "--table", "t", "--retain-hours", str(1 << 50)),
            "--retain-hours takes a number from 0 to 2147483647, not '1125899906842624'",
        ),
        (
            ("query", "--table", "t", "--sql", "SELECT 1", "--at-version", "-1"),
            "--at-version takes a number from 0 on, not '-1'",
        ),
        ((*LOAD, "--once", "--continuous"), "--continuous cannot be used with option --once"),
    ],
)
def test_options_that_do_not_fit_are_told(words, said):
    """Each with what is wrong."""
    with pytest.raises(UsageError, match=said):
        parsed(*words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "exactly one of --topic, --topics is needed"),
        (("--topic", "a", "--topics", "b"), "exactly one of --topic, --topics is needed"),
        (("--topic", "a", "--from", "noon"), "--from: 'noon' is none of"),
        (("--topic", "a", "--name", "a/b"), "name 'a/b': may have letters"),
        (("--topic", "a", "--source-option", "bad=1"), "bad=1: there is no such option"),
        (("--topics", "("), "is not a regular expression"),
        (("--topic", "a", "--source-option", "endingOffsets=latest"), "a stream has no end"),
    ],
)
def test_mistakes_in_a_load_are_told_before_spark_starts(words, said):
    """The mistake is a sentence."""
    with pytest.raises(UsageError, match=said):
        load_options(parsed(*LOAD, *words))


def test_every_option_belongs_to_an_action():
    """No option is passed over in silence."""
    known = {option for table in (NEEDS, TAKES) for options in table.values() for option in options}
    actions = option_parser(WarehouseCommand())._actions
    declared = {option for action in actions for option in action.option_strings}

    shared = {"-h", "--help", "--version", "--log-level", "-b", "--broker-list", "--storage-option"}
    assert declared - shared == known


def test_compaction_is_for_delta_tables():
    """A folder of plain files has no commit that could replace some of them."""
    words = ("--topic", "a", "--compact-every", "5")
    assert parsed(*LOAD, *words).compact_every == 5
    for wrong in (("--compact-every", "0"), ("--compact-every", "2", "--format", "parquet")):
        with pytest.raises(UsageError, match="--compact-every"):
            parsed(*LOAD, "--topic", "a", *wrong)
