"""The checks on options that commands share, and property files."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError, Namespace
from itertools import product

import pytest

from ottla.cli.command import COMMANDS, load_command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import (
    SERVERS_VARIABLE,
    bootstrap_server,
    bootstrap_server_or_zookeeper,
    check_action,
    check_brokers,
    finite_number,
    forbid_with,
    integers,
    key_values,
    one_of,
    only_with,
    option_parser,
    require,
    whole_number,
    with_ports,
    word_bytes,
)

NUMBER_TYPES = ("number", "whole_number", "finite_number", "positive_number")
"""The names of the functions that read an option's value."""


def test_server_comes_from_the_environment_or_is_on_this_machine(monkeypatch):
    """The address of a server need not be typed with every command."""
    nothing = Namespace(bootstrap_server=None)
    monkeypatch.delenv(SERVERS_VARIABLE, raising=False)
    here = bootstrap_server(nothing)
    monkeypatch.setenv(SERVERS_VARIABLE, "a,b:1")

    assert (here, bootstrap_server(nothing)) == ("localhost:9092", "a:9092,b:1")
    assert bootstrap_server(Namespace(bootstrap_server="c:2")) == "c:2"


@pytest.mark.parametrize(
    ("given", "servers"),
    [("a", "a:9092"), ("a, b:1", "a:9092,b:1"), ("[::1]", "[::1]:9092"), ("[::1]:5", "[::1]:5")],
)
def test_port_is_9092_where_it_is_left_out(given, servers):
    """The port that Kafka's brokers have by default."""
    assert with_ports(given) == servers


def test_zookeeper_is_answered_with_what_to_write_instead():
    """Consumers had their groups there once."""
    with pytest.raises(CommandError, match=r"write --bootstrap-server .* instead of .* zk:2181"):
        bootstrap_server(Namespace(bootstrap_server=None, zookeeper="zk:2181"))


@pytest.mark.parametrize(
    "servers_of", [bootstrap_server, lambda given: bootstrap_server_or_zookeeper(given, {})]
)
def test_zookeeper_beside_a_server_is_a_mistake(servers_of):
    """Only one of the two can be meant."""
    with pytest.raises(UsageError, match="only one"):
        servers_of(Namespace(bootstrap_server="a:1", zookeeper="zk:2181"))


def test_server_is_asked_where_there_is_no_zookeeper():
    """Most users name a server."""
    given = Namespace(bootstrap_server="a:1", zookeeper=None)

    assert bootstrap_server_or_zookeeper(given, {}) == "a:1"


@pytest.mark.parametrize(("a", "b"), [(False, False), (True, True)])
def test_one_of_wants_exactly_one(a, b):
    """None of them and two of them are both mistakes."""
    with pytest.raises(UsageError, match="exactly one of --a, --b is needed"):
        one_of(Namespace(a=a, b=b), ("--a", "--b"))


def test_one_of_counts_a_number_of_zero_as_given():
    """An option with the value 0 was used."""
    assert one_of(Namespace(a=0, b=None), ("--a", "--b")) == "--a"


def test_require_names_what_is_missing():
    """The message has the name of the option."""
    with pytest.raises(UsageError, match="missing required option --topic"):
        require(Namespace(topic=None), "--topic")


@pytest.mark.parametrize(
    ("words", "mistake"),
    [
        ({"table": None, "to": None}, "missing required option --table"),
        ({"table": "t", "to": "earliest"}, "option --to cannot be used with compact"),
    ],
)
def test_check_action_wants_what_the_action_needs_and_nothing_of_others(words, mistake):
    """An option that an action does not know is a mistake, not something to pass over."""
    required = {"compact": ("--table",), "rewind": ("--table", "--to")}

    with pytest.raises(UsageError, match=mistake):
        check_action(Namespace(**words), "compact", required, {})


def test_forbid_with_names_both_options():
    """Two options that exclude each other are named."""
    with pytest.raises(UsageError, match="--group cannot be used with option --list"):
        forbid_with(Namespace(group=["g"], list=True), "--group", ("--list",))


def test_only_with_names_the_action():
    """An option that belongs to an action is refused without it."""
    with pytest.raises(UsageError, match="--all is used only with --describe"):
        only_with(Namespace(all=True, describe=False), ("--all",), "--describe")


def test_key_values_keep_equals_signs_and_blanks_in_values():
    """Only the first equals sign separates."""
    assert key_values(["key.separator= = ", "empty"]) == {"key.separator": " = ", "empty": ""}


def test_key_values_refuse_a_missing_key():
    """A value without a key is a mistake."""
    with pytest.raises(UsageError, match="key=value"):
        key_values(["=x"])


def test_integers_refuse_words():
    """The message has the option and what was given."""
    with pytest.raises(UsageError, match=r"--partitions takes numbers .* not '1,x'"):
        integers("1,x", "--partitions")


def test_comma_at_the_end_of_integers_means_nothing():
    """An empty place between commas is no number either."""
    assert integers("1,2,", "--broker-list") == [1, 2]
    with pytest.raises(UsageError, match="not '1,,2'"):
        integers("1,,2", "--broker-list")


def test_named_brokers_must_all_live():
    """The message has those that do not."""
    check_brokers([0, 1], {0, 1, 2})
    with pytest.raises(CommandError, match="there are no brokers 9, 7"):
        check_brokers([0, 9, 7], {0: "rack"})


# Property files named on the command line.


@pytest.mark.parametrize("given", ["", " ", ",", " , "])
def test_servers_that_are_none_are_not_those_of_this_machine(ottla, clients, monkeypatch, given):
    """As `-b "$BROKERS"` gives them where the variable is not set."""
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", "production:9092")
    outcome = ottla("topics", "--delete", "--topic", "orders", "-b", given)

    assert outcome.status == 1
    assert f"--bootstrap-server needs HOST[:PORT], not '{given}'" in outcome.err
    assert clients.asked == []


@pytest.mark.parametrize("text", ["1_0", "\u0663", " 1", "1.0", ""])
def test_option_takes_digits_of_ascii_alone(text):
    """Who writes another form may mean another number."""
    with pytest.raises(ArgumentTypeError, match=f"^takes a number, not '{text}'$"):
        whole_number(text)


@pytest.mark.parametrize("text", ["9" * 19, "9" * 5000])
def test_option_takes_numbers_for_which_there_is_room(text):
    """The message has the rule."""
    with pytest.raises(ArgumentTypeError, match=f"^takes a number of 64 bits, not '{text}'$"):
        whole_number(text)
    assert whole_number("-9223372036854775808") == -(2**63)


@pytest.mark.parametrize("columns", ["9" * 5000, "\u00b2", "0", "-1", "1"])
def test_help_is_shown_however_wide_the_screen_is_said_to_be(ottla, monkeypatch, columns):
    """$COLUMNS is any text."""
    monkeypatch.setenv("COLUMNS", columns)

    assert ottla("topics", "--help").status == 0


def numbers_of(name: str) -> list[str]:
    """The options of a command that take a number."""
    return [
        action.option_strings[0]
        for action in option_parser(load_command(name))._actions
        if getattr(action.type, "__name__", "") in NUMBER_TYPES
    ]


NO_NUMBERS = ["", "x", "\u0663", "1_0", "0x1", "nan", "inf", "e3", "1e", "\x1b[2J"]
NO_ROOM = ["-99999999999999999999", "99999999999999999999", "9" * 400]


@pytest.mark.parametrize("name", COMMANDS)
def test_option_that_takes_a_number_refuses_others_by_its_name(name):
    """The message has the option, the value and the rule, and no field of a request."""
    for option, text in product(numbers_of(name), NO_NUMBERS + NO_ROOM):
        words = [f"{option}={text}"] if option.startswith("--") else [f"{option}{text or ' '}"]
        with pytest.raises(UsageError) as caught:
            option_parser(load_command(name)).parse_args(words)

        assert re.fullmatch(rf"(?s){option} takes a number.*, not '.*'", str(caught.value))
        assert text in str(caught.value)


def test_no_option_takes_the_numbers_of_python():
    """`int` and `float` take digits of all scripts, `1_0` and NaN."""
    plain = [
        (name, action.option_strings)
        for name in COMMANDS
        for action in option_parser(load_command(name))._actions
        if action.type in (int, float)
    ]

    assert not plain


@pytest.mark.parametrize(
    ("text", "number"),
    [("1e6", 1e6), (".5", 0.5), ("5.", 5.0), ("-1", -1.0), ("+2.50", 2.5), ("2E-3", 0.002)],
)
def test_fraction_is_written_as_kafkas_tools_take_it(text, number):
    """With an exponent as well, and without the digits on one side of the point."""
    assert finite_number(text) == number


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("topics --create --topic t --partitions 99999999999", "number from 1 to 2147483647"),
        ("topics --create --topic t --partitions 0", "number from 1 to 2147483647"),
        ("topics --alter --topic t --partitions 0", "number from 1 to 2147483647"),
        ("topics --alter --topic t --partitions 1e3", "number"),
        ("topics --create --topic t --replication-factor 32768", "number from 1 to 32767"),
        ("console-consumer --topic t --partition -1", "number from 0 to 2147483647"),
        ("leader-election --partition 2147483648", "number from 0 to 2147483647"),
        ("consumer-groups --list --timeout -5", "number from 0 to 2147483647"),
        ("transactions abort --producer-epoch 32768", "number from 0 to 32767"),
        ("transactions abort --start-offset -1", "number from 0 on"),
        ("simulate app.py --seeds 99999999999", "number from 1 to 1000000"),
        ("producer-perf-test --record-size 99999999999", "number from 1 to 268435456"),
        ("producer-perf-test --throughput nan", "number such as 0.5"),
        ("producer-perf-test --throughput .", "number such as 0.5"),
        ("producer-perf-test --throughput e6", "number such as 0.5"),
        ("producer-perf-test --throughput 1e", "number such as 0.5"),
        ("producer-perf-test --throughput 1e999", "number such as 0.5"),
        ("producer-perf-test --throughput 1_0.5", "number such as 0.5"),
        ("metrics --watch inf", "number such as 0.5"),
        ("metrics --watch 0", "number above 0, 1000000000 at most"),
        ("metrics --watch 1 --reports 0", "number from 1 on"),
        ("reassign-partitions --execute --throttle -2", "number from -1 on"),
        ("replica-verification --report-interval-ms 0", "number from 1 to 2147483647"),
        ("mirror --status-interval -1", "number from 0 on"),
        ("cluster --brokers 101", "number from 1 to 100"),
        ("cluster --base-port 65536", "number from 0 to 65535"),
        ("users add alice --iterations 4095", "number from 4096 to 16384"),
        ("dump-log x.log --max-message-size 0", "number from 1 on"),
    ],
)
def test_number_has_the_limits_of_its_option(ottla, words, message):
    """The line has the option and the value as well, and nothing was done."""
    outcome = ottla(*words.split())
    *_, option, value = words.split()

    assert outcome.status == 1
    assert f"{option} takes a {message}, not '{value}'" in outcome.err


@pytest.mark.parametrize(
    ("word", "data"), [("caf\xe9", b"caf\xc3\xa9"), ("\udcff\udcfe", b"\xff\xfe"), ("", b"")]
)
def test_word_has_the_bytes_that_were_typed(word, data):
    """Keys of records, and what separates them, may be bytes that are no UTF-8."""
    assert word_bytes(word) == data
