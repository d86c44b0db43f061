"""`ottla connect redrive`: dead letters are sent back to the topics that they came from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla import Consumer, Producer
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import (
    Options,
    add_command_config,
    add_flag,
    add_integer,
    add_repeated,
    bootstrap_server,
    key_values,
    single_word,
    word_bytes,
)
from ottla.cli.output import one_line
from ottla.cli.property_files import command_settings
from ottla.cli.table import TABLE, Row, show_rows
from ottla.cli.terminal import Terminal, check_reachable, without_servers
from ottla.cli.times import moment_ms
from ottla.clients.dead_letter_headers import LARGEST_LETTER
from ottla.clients.letter_families import FAMILIES, HeaderFamily
from ottla.config.whole_number import number_of
from ottla.connect.redrive import MOST_TRIES, READING, Choice, Left, Redrive, group_of, writing

if TYPE_CHECKING:
    from argparse import Namespace

    from ottla.connect.redrive import DeadLetter


SHOWN: Final = 1000
"""So many letters are in the table of a dry run; all of them are counted."""
MOST_ERRORS: Final = 20
"""So many errors have a line of their own; they may be as many as there are letters."""
LONGEST_ERROR: Final = 500
"""Letters of an error that are kept for a row or a count: a header may have a megabyte of them."""
Wanted = Callable[["DeadLetter"], bool]
Fits = Callable[["int | None", "int | None"], bool]


def add_redrive_options(group: Options) -> None:
    """The options that choose dead letters, and the parts that the letters keep."""
    add_command_config(group)
    add_repeated(
        group,
        "--from",
        "TOPIC[:PARTITION[:OFFSETS]]",
        "Only records that are from there; offsets as 17, 17-20 or 17-. May be repeated.",
    )
    add_repeated(
        group,
        "--at",
        "PARTITION[:OFFSETS]",
        "Only letters at these places of the queue; may be repeated.",
    )
    group.add_argument(
        "--since",
        metavar="WHEN",
        help="Only letters since then: 1h, 2026-03-02, 2026-03-02T08:00Z.",
    )
    group.add_argument("--until", metavar="WHEN", help="Only letters before then.")
    group.add_argument(
        "--error", metavar="TEXT", help="Only letters with this in the error's class or message."
    )
    group.add_argument("--stage", metavar="STAGE", help="Only letters of this stage of Connect.")
    group.add_argument(
        "--connector", metavar="NAME", help="Only letters of this connector or consumer group."
    )
    group.add_argument("--key", metavar="TEXT", help="Only letters with this key.")
    add_repeated(group, "--header", "NAME=TEXT", "Only letters with this header; may be repeated.")
    add_flag(group, "--again", "Send what was sent before as well.")
    add_integer(
        group,
        "--max-tries",
        "N",
        f"Leave records that were sent back N times and came again. Default: {MOST_TRIES}.",
        least=1,
    )
    group.add_argument(
        "--topic", metavar="TOPIC", help="Where records go that do not say where they are from."
    )
    group.add_argument(
        "--origin",
        metavar="FAMILY|HEADER",
        help="Whose headers count: connect, streams, spring, spring-retry, share-groups, smallrye, "
        "x (x-original-topic), pipelines, or the name of a header of yours that has the topic. "
        "Default: all families.",
    )
    add_flag(group, "--keep-headers", "Keep the headers that say what failed.")
    add_flag(group, "--keep-timestamp", "Keep the time of the record, which else is now.")
    add_flag(group, "--keep-partition", "Send to the partition that the record is from.")


def redrive(arguments: Namespace, terminal: Terminal) -> int:
    queue = single_word(arguments, "one QUEUE, a topic of dead letters")
    choice = _choice(arguments, terminal)
    servers = bootstrap_server(arguments)
    settings = without_servers(command_settings(arguments))
    check_reachable(servers, settings)
    reading = settings | READING | {"group.id": group_of(queue)}
    result = _RedriveResult(queue)
    with Consumer(servers, reading) as consumer:
        redrive = Redrive(consumer, queue, choice, result.note)
        try:
            if arguments.dry_run:
                redrive.preview()
                result.print_table(terminal)
            else:
                room = {"max.request.size": str(LARGEST_LETTER)}
                with Producer(servers, room | settings | writing(queue)) as producer:
                    redrive.send(producer)
        finally:
            result.print_counts(terminal, "would be" if arguments.dry_run else "were")
    problems = result.problems()
    if problems:
        raise CommandError("; ".join(problems))
    return 0


class _RedriveResult:
    """The outcome of each letter that was looked at."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._sent: Counter[tuple[str, str]] = Counter()
        self._left: Counter[Left] = Counter()
        self._first: dict[Left, str] = {}
        self._rows: list[Row] = []

    def note(self, letter: DeadLetter, verdict: str, error: str) -> None:
        """A letter that goes to a topic, or is left, for a reason that is a `Left`."""
        if isinstance(verdict, Left):
            self._left[verdict] += 1
            place = f"the first is {self._queue}-{letter.record.partition} at offset "
            self._first.setdefault(
                verdict, f"{place}{letter.record.offset}{': ' if error else ''}{error}"
            )
            return
        self._sent[verdict, (letter.error or letter.message)[:LONGEST_ERROR]] += 1
        if len(self._rows) < SHOWN:
            self._rows.append(_row_of(letter, verdict))

    def print_table(self, terminal: Terminal) -> None:
        if self._rows:
            show_rows(self._rows, TABLE, terminal)
        if self._sent.total() > SHOWN:
            terminal.print(f"and {self._sent.total() - SHOWN:,} more")

    def print_counts(self, terminal: Terminal, verb: str) -> None:
        """How many went, by topic and error, and how many stay, by reason."""
        terminal.print(f"{self._sent.total()} records {verb} sent back")
        shown = self._sent.most_common(MOST_ERRORS)
        for (topic, error), count in shown:
            terminal.print(f"  {count} to {topic}: {one_line(error) or 'no error is named'}")
        others = self._sent.total() - sum(count for _, count in shown)
        if others:
            terminal.print(f"  {others} with other errors")
        for reason, count in sorted(self._left.items()):
            terminal.print(f"{count} left: {reason}")

    def problems(self) -> list[str]:
        """The outcomes that need a person's attention, each with the first letter of its kind."""
        return [
            f"{self._left[reason]} in {self._queue}: {reason} ({place}){HINTS.get(reason.name, '')}"
            for reason, place in self._first.items()
            if reason.is_problem
        ]


HINTS: Final = {
    "NO_TOPIC": "; give --topic, --to or --origin, or set "
    "errors.deadletterqueue.context.headers.enable=true",
    "AMBIGUOUS": "; give --origin or --to",
}


def _row_of(letter: DeadLetter, topic: str) -> Row:
    record = letter.record
    origin = "" if letter.partition is None else f"-{letter.partition}"
    origin += "" if letter.offset is None else f"@{letter.offset}"
    error = ": ".join(filter(None, (letter.error, letter.message)))[:LONGEST_ERROR]
    return {
        "letter": f"{record.partition}:{record.offset}",
        "from": f"{letter.topic}{origin}" or None,
        "to": topic,
        "tries": letter.tries,
        "error": error or None,
    }


def _choice(arguments: Namespace, terminal: Terminal) -> Choice:
    """The letters that the options ask for."""
    families = [each for each in FAMILIES if arguments.origin in (None, each.name)]
    if not families:
        name = arguments.origin.lower()
        families = [HeaderFamily(name, (), topic=name, reserved=False)]
    conditions = _conditions(arguments, terminal)
    return Choice(
        is_wanted=lambda letter: all(each(letter) for each in conditions),
        to=arguments.to,
        otherwise=arguments.topic,
        families=families,
        again=arguments.again,
        max_tries=MOST_TRIES if arguments.max_tries is None else arguments.max_tries,
        at_most=arguments.n,
        keeps_headers=arguments.keep_headers,
        keeps_timestamp=arguments.keep_timestamp,
        keeps_partition=arguments.keep_partition,
    )


def _conditions(arguments: Namespace, terminal: Terminal) -> list[Wanted]:
    """A test for each option that was given."""
    found: list[Wanted] = []
    if arguments.stage is not None:
        found.append(lambda letter: letter.stage == arguments.stage)
    if arguments.connector is not None:
        found.append(lambda letter: letter.connector == arguments.connector)
    origins = [_place("--from", text, has_topic=True) for text in getattr(arguments, "from")]
    if origins:
        found.append(
            lambda letter: any(
                letter.topic == topic and fits(letter.partition, letter.offset)
                for topic, fits in origins
            )
        )
    if places := [_place("--at", text, has_topic=False)[1] for text in arguments.at]:
        found.append(
            lambda letter: any(
                fits(letter.record.partition, letter.record.offset) for fits in places
            )
        )
    since, until = (_moment(arguments, name, terminal) for name in ("since", "until"))
    if since is not None:
        found.append(lambda letter: letter.record.timestamp_ms >= since)
    if until is not None:
        found.append(lambda letter: letter.record.timestamp_ms < until)
    if arguments.error is not None:
        text = arguments.error.lower()
        found.append(lambda letter: text in f"{letter.error}\n{letter.message}".lower())
    if arguments.key is not None:
        found.append(lambda letter: letter.record.key == word_bytes(arguments.key))
    if headers := key_values(arguments.header):
        wanted = {(name, word_bytes(value)) for name, value in headers.items()}
        found.append(lambda letter: wanted <= set(letter.record.headers))
    return found


def _place(option: str, text: str, *, has_topic: bool) -> tuple[str, Fits]:
    """A topic, if the option has one, and a test for a partition and an offset in it."""
    topic, _, rest = text.partition(":") if has_topic else ("", "", text)
    partition, _, offsets = rest.partition(":")
    first, is_range, last = offsets.partition("-")
    if not all(
        not number or number_of(number, 0) is not None for number in (partition, first, last)
    ) or (offsets and not first):
        raise UsageError(f"{option} takes {'TOPIC:' * has_topic}PARTITION:17-20, not '{text}'")
    lowest = int(first or 0)
    highest = int(last) if last else math.inf if is_range or not first else lowest

    def fits(number: int | None, offset: int | None) -> bool:
        if partition and number != int(partition):
            return False
        return not offsets or (offset is not None and lowest <= offset <= highest)

    return topic, fits


def _moment(arguments: Namespace, name: str, terminal: Terminal) -> int | None:
    text = getattr(arguments, name)
    moment = None if text is None else moment_ms(text, terminal.now_ms())
    if text is not None and moment is None:
        raise UsageError(f"--{name} takes 1h, '5m ago', 2026-03-02 or 2026-03-02T08:00Z: '{text}'")
    return moment
