"""Options that several commands share, and the checks that Kafka's tools make on them.

Among them are property files: --command-config, --producer.config, server.properties.
"""

from __future__ import annotations

import argparse
import os
import re
from argparse import Namespace
from typing import TYPE_CHECKING, Final, NoReturn

from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.terminal import USUAL_WIDTH, with_port
from ottla.cli.zookeeper_brokers import registered_brokers
from ottla.config.whole_number import LARGEST, number_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ottla.cli.command import Command

SERVERS_VARIABLE = "OTTLA_BOOTSTRAP_SERVERS"
DEFAULT_SERVERS = "localhost:9092"
UNRECOGNIZED = "unrecognized arguments: "
ARGUMENT: Final = r"(?s)argument ([^:]+): (.*)"
LONG_DASH: Final = "^[–—](?=[a-z])"
LARGEST_INT: Final = 2**31 - 1
LARGEST_SHORT: Final = 2**15 - 1
DIGITS: Final = r"[+-]?[0-9]+"
FRACTION: Final = r"[+-]?(?=\.?[0-9])[0-9]{0,15}(\.[0-9]{0,9})?([eE][+-]?[0-9]{1,2})?"
LARGEST_POSITIVE: Final = 1_000_000_000
CHOICE: Final = r"invalid choice: '(.*)' \(choose from (.*)\)"
Options = argparse._ActionsContainer
"""A parser, or one group of its options under a title of its own."""
LOG_LEVELS = ("DEBUG", "INFO", "WARN", "ERROR")


class OptionParser(argparse.ArgumentParser):
    """A parser without abbreviations, as Kafka's tools have it; a mistake is one line."""

    def parse_args(  # type: ignore[override] # argparse overloads it for a namespace of one's own
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse; a dash that a page printed as `—throttle` stands for the two that were meant."""
        words = args or ()
        return super().parse_args([re.sub(LONG_DASH, "--", word) for word in words], namespace)

    def error(self, message: str) -> NoReturn:
        raise UsageError(self._in_words(message))

    def _in_words(self, message: str) -> str:
        """The parser's message in the words of the other messages, with a hint where one helps."""
        if message.startswith(UNRECOGNIZED):
            words = message.removeprefix(UNRECOGNIZED).split()
            return f"{message}{self._hint(words[0])}" if words else message
        found = re.fullmatch(ARGUMENT, message)
        if found is None:
            return message
        option = found[1].partition("/")[0]
        choice = re.fullmatch(CHOICE, found[2])
        if choice is not None:
            return f"{option} may be {choice[2].replace(chr(39), '')}, not '{choice[1]}'"
        return f"{option} {found[2].replace('expected one argument', 'needs a value')}"

    def _hint(self, word: str) -> str:
        options = list(self._option_string_actions)
        if f"--{word}" in options:
            return f"; did you mean --{word}?"
        if not word.startswith("--"):
            return ""
        # The dashes would make every short option look like the word.
        names = {each.lstrip("-"): each for each in options if each.startswith("--")}
        near = close_matches(word.lstrip("-"), names)
        return f"; did you mean {' or '.join(names[each] for each in near)}?" if near else ""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the screen; argparse would import four libraries of archives for that."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


def _columns() -> int:
    """$COLUMNS, else those of the terminal that results go to, if they do."""
    named = number_of(os.environ.get("COLUMNS", ""), 1)
    if named is not None:
        return named
    try:
        return os.get_terminal_size(1).columns or USUAL_WIDTH
    except OSError:  # it is closed, a file or a pipe
        return USUAL_WIDTH


def option_parser(command: Command) -> OptionParser:
    """The parser of a command, with the options that every command has."""
    parser = OptionParser(
        prog=f"ottla {command.name}",
        description=command.help,
        epilog="\n".join(("examples:", *(f"  {line}" for line in command.examples)))
        if command.examples
        else None,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    places = [str(each.metavar) for each in parser._actions if not each.option_strings]
    parser.usage = " ".join(["%(prog)s", *places, "[options]"])
    parser.add_argument("--version", action="store_true", help="Print the version and exit.")
    _add_log_level(parser, command.default_log_level)
    return parser


def _add_log_level(parser: OptionParser, default: str) -> None:
    parser.add_argument(
        "--log-level",
        metavar="LEVEL",
        type=str.upper,
        choices=LOG_LEVELS,
        default=default,
        help="What is logged to stderr: DEBUG, INFO, WARN or ERROR. With DEBUG an error shows "
        f"its traceback. Default: {default}.",
    )


def add_flag(parser: Options, option: str, text: str) -> None:
    """An option without a value: given or not."""
    parser.add_argument(option, action="store_true", help=text)


def add_integer(
    parser: Options,
    option: str,
    metavar: str,
    text: str,
    *,
    least: int = -LARGEST - 1,
    most: int = LARGEST,
    default: int | None = None,
) -> None:
    """An option whose value is a number within limits; its default where it is not given."""

    def number(text: str) -> int:
        return whole_number(text, least, most)

    parser.add_argument(option, metavar=metavar, type=number, default=default, help=text)


def whole_number(text: str, least: int = -LARGEST - 1, most: int = LARGEST) -> int:
    """The number that an option's value is."""
    number = number_of(text, least, most)
    if number is None:
        raise argparse.ArgumentTypeError(f"takes a {_kind(text, least, most)}, not '{text}'")
    return number


def _kind(text: str, least: int, most: int) -> str:
    if not re.fullmatch(DIGITS, text):
        return "number"
    if least < -LARGEST and most == LARGEST:
        return "number of 64 bits"
    return f"number from {least} " + ("on" if most == LARGEST else f"to {most}")


def add_fraction(
    parser: Options, option: str, metavar: str, text: str, *, is_positive: bool = False
) -> None:
    """An option whose value may be a fraction."""
    parse = positive_number if is_positive else finite_number
    parser.add_argument(option, metavar=metavar, type=parse, help=text)


def finite_number(text: str) -> float:
    """The number that an option's value is, with digits of ASCII: `0.5`, `.5`, `1e6`."""
    if not re.fullmatch(FRACTION, text):
        raise argparse.ArgumentTypeError(f"takes a number such as 0.5, not '{text}'")
    return float(text)


def positive_number(text: str) -> float:
    """The same of numbers above 0 for which there are clocks."""
    number = finite_number(text)
    if not 0 < number <= LARGEST_POSITIVE:
        limits = f"above 0, {LARGEST_POSITIVE} at most"
        raise argparse.ArgumentTypeError(f"takes a number {limits}, not '{text}'")
    return number


def add_repeated(parser: Options, option: str, metavar: str, text: str) -> None:
    """An option that may be given several times: a list of its values."""
    parser.add_argument(option, metavar=metavar, action="append", default=[], help=text)


def add_bootstrap_server(parser: Options, older_names: Sequence[str] = ("--broker-list",)) -> None:
    """`--bootstrap-server`, short `-b`, and `--broker-list` as older tools call it."""
    parser.add_argument(
        "--bootstrap-server",
        "-b",
        *older_names,
        dest="bootstrap_server",
        metavar="HOST[:PORT],...",
        type=with_ports,
        help="The brokers to ask first; they name the others. The port is 9092 "
        f"where it is left out. Default: ${SERVERS_VARIABLE}, else {DEFAULT_SERVERS}.",
    )


def add_zookeeper(parser: Options) -> None:
    """`--zookeeper`, which older tools have in the place of --bootstrap-server."""
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT/PATH",
        help="In the place of --bootstrap-server, as older tools have it: the cluster's "
        "ZooKeeper. What is not in its nodes is asked of the brokers that are registered there.",
    )


def add_unused_zookeeper(parser: Options) -> None:
    """`--zookeeper` of tools whose groups were once kept there; it is refused."""
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT",
        help="Refused, with a reason: the brokers keep the groups today. Use --bootstrap-server.",
    )


def add_command_config(parser: Options) -> None:
    """`--command-config`: a property file for the client inside the tool."""
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="Property file with settings for the tool's own client (request.timeout.ms, ...).",
    )


def bootstrap_server(arguments: argparse.Namespace) -> str:
    """The brokers to ask: from the option, the environment, or the default."""
    servers: str | None = arguments.bootstrap_server
    zookeeper: str | None = getattr(arguments, "zookeeper", None)
    if servers and zookeeper:
        raise UsageError("only one of --bootstrap-server and --zookeeper may be given")
    if zookeeper:
        raise CommandError(
            "consumers and their groups talk to a broker, not to ZooKeeper: write "
            f"--bootstrap-server <broker host>:9092 instead of --zookeeper {zookeeper}"
        )
    return servers or with_ports(os.environ.get(SERVERS_VARIABLE) or DEFAULT_SERVERS)


def with_ports(servers: str) -> str:
    """Each server of a list with its port; a list of none is not taken for a missing option."""
    named = [with_port(each) for each in servers.split(",") if each.strip()]
    if not named:
        raise argparse.ArgumentTypeError(f"needs HOST[:PORT], not '{servers}'")
    return ",".join(named)


def bootstrap_server_or_zookeeper(
    arguments: argparse.Namespace, settings: Mapping[str, str]
) -> str:
    """The brokers to ask; with --zookeeper those that are registered there."""
    if not arguments.zookeeper or arguments.bootstrap_server:
        return bootstrap_server(arguments)

    protocol = settings.get("security.protocol", "PLAINTEXT")
    return registered_brokers(arguments.zookeeper, protocol, arguments.log_level)


def given(arguments: argparse.Namespace, option: str) -> bool:
    """Whether the option was used: anything but None, False and an empty list is a use."""
    value = getattr(arguments, option.lstrip("-").replace("-", "_").replace(".", "_"))
    return value is not None and value is not False and value != []


def one_of(arguments: argparse.Namespace, options: Sequence[str]) -> str:
    """The one of these options that was used; raises UsageError for none or several."""
    used = [option for option in options if given(arguments, option)]
    if len(used) != 1:
        raise UsageError(f"exactly one of {', '.join(options)} is needed")
    return used[0]


def check_action(
    arguments: argparse.Namespace,
    action: str,
    required: Mapping[str, Sequence[str]],
    optional: Mapping[str, Sequence[str]],
) -> None:
    """Raise UsageError unless the action has the options it needs, and none of others."""
    require(arguments, *required[action])
    known = {*required[action], *optional.get(action, ())}
    others = {each for options in (*required.values(), *optional.values()) for each in options}
    for option in sorted(others - known):
        if given(arguments, option):
            raise UsageError(f"option {option} cannot be used with {action}")


def require(arguments: argparse.Namespace, *options: str) -> None:
    """Raise UsageError unless each of these options was used."""
    for option in options:
        if not given(arguments, option):
            raise UsageError(f"missing required option {option}")


def forbid_with(arguments: argparse.Namespace, option: str, others: Iterable[str]) -> None:
    """Raise UsageError if `option` was used together with one of the others."""
    if not given(arguments, option):
        return
    for other in others:
        if other != option and given(arguments, other):
            raise UsageError(f"option {option} cannot be used with option {other}")


def only_with(arguments: argparse.Namespace, options: Iterable[str], action: str) -> None:
    """Raise UsageError if one of `options` was used without `action`."""
    for option in options:
        if given(arguments, option) and not given(arguments, action):
            raise UsageError(f"option {option} is used only with {action}")


def word_bytes(word: str) -> bytes:
    """The bytes of a word as they were typed: UTF-8, or others that Python has put in its place."""
    return word.encode("utf-8", "surrogateescape")


def key_values(pairs: Iterable[str]) -> dict[str, str]:
    """`key=value` arguments as a dict; a value may hold further equals signs, or be missing."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        if not key.strip():
            raise UsageError(f"'{pair}' is not in the form key=value")
        found[key.strip()] = value
    return found


def pairs_of(option: str, form: str, pairs: Iterable[str]) -> dict[str, str]:
    """The values of an option that takes pairs, such as `--param NAME=VALUE`, by their names."""
    found = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign:
            raise UsageError(f"{option} '{pair}' is not of the form {form}")
        found[name] = value
    return found


def integers(text: str, option: str) -> list[int]:
    """A list like `0,1,2`; a comma at its end is ignored, as by Kafka's scripts."""
    numbers = [number_of(part.strip()) for part in text.rstrip(",").split(",")]
    found = [number for number in numbers if number is not None]
    if len(found) < len(numbers):
        raise UsageError(f"{option} takes numbers separated by commas, not '{text}'")
    return found


def topic_pattern(expression: str) -> re.Pattern[str]:
    """The regular expression of a topic list: quotes and blanks drop out, a comma means 'or'."""
    text = expression.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"'{expression}' is not a regular expression: {error}") from None


def close_matches(word: str, known: Iterable[str]) -> list[str]:
    """Up to three of the words that look like this one."""
    from difflib import get_close_matches  # only where there is a mistake

    return get_close_matches(word, list(known), n=3)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean orders?`, or "" where nothing looks like the word."""
    near = close_matches(word, known)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def check_brokers(brokers: Iterable[int], alive: Collection[int]) -> None:
    """Raise CommandError unless all are live: waiting for others would not end."""
    unknown = [broker for broker in brokers if broker not in alive]
    if unknown:
        raise CommandError(f"there are no brokers {', '.join(map(str, unknown))}")


def single_word(arguments: Namespace, what: str, position: int = 0) -> str:
    words: list[str] = arguments.words
    if len(words) != position + 1:
        raise UsageError(f"{arguments.action} takes {what}")
    return words[position]
