"""`ottla lag`: how far groups are behind, in records and seconds, and why."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import (
    add_bootstrap_server,
    add_command_config,
    add_flag,
    add_integer,
    bootstrap_server,
    did_you_mean,
    given,
)
from ottla.cli.property_files import command_settings
from ottla.cli.table import TEXT, Row, add_format, show_rows
from ottla.console.lag_causes import count, duration

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Mapping

    from ottla.cli.terminal import Terminal
    from ottla.console.group_look import GroupLook
    from ottla.console.lag_reader import Explanation, LagReader
    from ottla.structs import TopicPartition

WATCHED_S: Final = 15
"""For how long a group is watched to explain its lag: three commits of a client by default."""
LOOK_S: Final = 5
CLEAR_SCREEN: Final = "\x1b[H\x1b[2J"
SETTINGS: Final = {"client.id": "lag"}


class LagCommand(Command):
    """Shows the lag of all groups, or of the partitions of one group, and explains it.

    The lag is what lies between a group's committed offset and the end of the log. A group's time
    behind is the age of the record that it reads next.
    """

    name = "lag"
    examples = (
        "ottla lag",
        "ottla lag billing --explain",
        "ottla lag billing --watch",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "group", metavar="GROUP", nargs="?", help="The group; all of them where it is left out."
        )
        add_bootstrap_server(parser)
        add_command_config(parser)
        add_flag(
            parser,
            "--explain",
            "Watch the group for a while, and print the causes of its lag, the leading one first.",
        )
        add_flag(parser, "--watch", f"Print it again every {LOOK_S} s, until Ctrl-C.")
        add_integer(
            parser,
            "--for",
            "SECONDS",
            f"With --explain: how long to watch. Default: {WATCHED_S}; 0 takes one look, which "
            "finds only causes that need no rates.",
            least=0,
        )
        add_format(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        check(arguments)
        servers = bootstrap_server(arguments)
        settings = command_settings(arguments) | SETTINGS
        with (
            terminal.waiting_for(servers),
            terminal.clients.lag_reader(servers, settings) as reader,
        ):
            show = _view(reader, arguments, terminal)
            if not arguments.watch:
                return show()
            while True:
                if terminal.shows_results:
                    terminal.out.write(CLEAR_SCREEN)
                show()
                terminal.out.flush()
                terminal.check_reader()
                time.sleep(LOOK_S)


def check(arguments: Namespace) -> None:
    """Raise UsageError unless the options fit each other."""
    if arguments.group is None and arguments.explain:
        raise UsageError("--explain needs a GROUP")
    if given(arguments, "--for") and not arguments.explain:
        raise UsageError("option --for is used only with --explain")


def _view(reader: LagReader, arguments: Namespace, terminal: Terminal) -> Callable[[], int]:
    """The function that prints what the options ask for, once; 1 where that is not all."""
    if arguments.group is None:
        return lambda: _show_groups(reader, arguments, terminal)
    if arguments.explain:
        return lambda: _show_causes(reader, arguments, terminal)
    return lambda: _show_partitions(reader, arguments, terminal)


def _show_groups(reader: LagReader, arguments: Namespace, terminal: Terminal) -> int:
    found, unknown = reader.groups()
    rows: list[Row] = [
        {
            "group": each.group,
            "state": each.state or None,
            "type": each.type or None,
            "topics": len(each.lag),
            "lag": each.total if each.total or not each.unknown else None,
            "topic_list": [{"topic": topic, "lag": lag} for topic, lag in each.lag.items()],
        }
        for each in found
    ]
    show_rows(rows, arguments.format, terminal)
    for each in found:
        if each.unknown:
            lag = count(each.total, "record")
            terminal.note(f"{each.group}: lag {lag}{unknown_words(each.unknown)}")
    for name, error in sorted(unknown.items()):
        terminal.note(f"Error: no lag of {name}: {error}")
    return 1 if unknown or any(each.unknown for each in found) else 0


def _show_partitions(reader: LagReader, arguments: Namespace, terminal: Terminal) -> int:
    look = _existing(reader, arguments.group)
    seconds = reader.seconds(look)
    if arguments.format == TEXT:
        terminal.print(group_line(look, seconds) + "\n")
    show_rows(partition_rows(look, seconds), arguments.format, terminal)
    return 1 if look.unknown else 0


def _show_causes(reader: LagReader, arguments: Namespace, terminal: Terminal) -> int:
    looks = _watch(reader, arguments, terminal)
    explanation = reader.explain(looks)
    rows: list[Row] = [
        {
            "cause": each.rule,
            "numbers": dict(each.numbers),
            "command": each.command,
            "sentence": each.sentence,
        }
        for each in explanation.causes
    ]
    if arguments.format == TEXT:
        terminal.print(group_line(looks[-1], reader.seconds(looks[-1])))
        _print_causes(explanation, terminal)
    else:
        show_rows(rows, arguments.format, terminal)
    return 0


def _print_causes(explanation: Explanation, terminal: Terminal) -> None:
    for number, cause in enumerate(explanation.causes):
        terminal.print(f"{'ALSO' if number else 'WHY':<5} {cause.sentence}")
        terminal.print(f"{'':<5} $ {cause.command}")
    if explanation.causes:
        return
    seen = explanation.seen
    if not seen.lag:
        terminal.print("The group has read all there is.")
    else:
        watched = f"watched for {seen.window_ms / 1000:.0f} s"
        terminal.print(f"No cause was found for a lag of {seen.lag:,} records ({watched}).")


def _watch(reader: LagReader, arguments: Namespace, terminal: Terminal) -> list[GroupLook]:
    """Looks at the group, the first and the last of them as far apart as the options say."""
    wanted = vars(arguments)["for"]
    seconds = WATCHED_S if wanted is None else wanted
    looks = [_existing(reader, arguments.group)]
    terminal.end_silence()
    with terminal.progress(f"watching {arguments.group}", "s") as progress:
        for second in range(1, seconds + 1):
            time.sleep(1)
            progress.show(second, second / seconds)
            if second % LOOK_S == 0 or second == seconds:
                looks.append(reader.look(arguments.group))
    return looks


def _existing(reader: LagReader, group_id: str) -> GroupLook:
    """A look at a group that exists, or has offsets; raises CommandError for another one."""
    look = reader.look(group_id)
    if look.group.state == "Dead" and not look.committed:
        near = did_you_mean(group_id, reader.group_ids())
        raise CommandError(f"group '{group_id}' does not exist{near}")
    return look


def group_line(look: GroupLook, seconds: Mapping[TopicPartition, float | None]) -> str:
    """`billing  Stable, 4 members, range  lag 1,204 records, 8 min 12 s behind`."""
    lag = sum(look.lag(each) or 0 for each in look.committed)
    members = count(len(look.group.members), "member")
    who = f"{look.other_type} group" if look.other_type else members
    parts = [look.group.state, who, look.group.protocol]
    behind = max((each for each in seconds.values() if each is not None), default=0.0)
    text = f"{look.group.group_id}  {', '.join(filter(None, parts))}  lag {count(lag, 'record')}"
    if lag:
        text += f", {duration(round(1000 * behind))} behind"
    return text + unknown_words(len(look.unknown))


def unknown_words(unknown: int) -> str:
    """That the lag is that of the other partitions alone; empty where there are none."""
    return f", and that of {count(unknown, 'partition')} is not known" if unknown else ""


def partition_rows(look: GroupLook, seconds: Mapping[TopicPartition, float | None]) -> list[Row]:
    """A row for each partition that the group has offsets of, or reads."""
    members = {each.member_id: each for each in look.group.members}
    readers = look.readers
    rows: list[Row] = []
    for each in sorted({*look.committed, *readers}):
        entry, log = look.committed.get(each), look.logs.get(each)
        member = members.get(readers.get(each, ""))
        behind = seconds.get(each)
        rows.append(
            {
                "topic": each.topic,
                "partition": each.partition,
                "committed": None if entry is None else entry.offset,
                "log_end": None if log is None else log.end,
                "lag": look.lag(each),
                "seconds": None if behind is None else round(behind, 1),
                "client_id": None if member is None else member.client_id,
                "host": None if member is None else member.host,
            }
        )
    return rows
