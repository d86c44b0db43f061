"""`ottla consumer-groups --list`, and the groups that the options of other actions name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.cli.command_error import UsageError, listed
from ottla.cli.output import one_line
from ottla.cli.table import TEXT, show_rows
from ottla.cli.topic_views import note_no_coordinators
from ottla.structs import OFFSETS_TOPIC

if TYPE_CHECKING:
    from argparse import Namespace

    from ottla import Admin
    from ottla.cli.terminal import Terminal


STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
)
TYPES: Final = ("classic", "consumer")


def list_groups(admin: Admin, arguments: Namespace, terminal: Terminal) -> int:
    """Print the ids of the groups; with --state and --type also their states and types."""
    states = group_states(arguments.state) if arguments.state else ()
    types = group_types(arguments.type) if arguments.type else ()
    found, status = listed(lambda: admin.list_groups(states, types), "groups", terminal.note)
    status = max(status, note_no_coordinators(admin, OFFSETS_TOPIC, "groups", terminal))
    groups = [each for _, each in sorted({each.group_id: each for each in found}.items())]
    if arguments.format != TEXT:
        rows = [
            {"group": group.group_id, "type": group.type, "state": group.state} for group in groups
        ]
        show_rows(rows, arguments.format, terminal)
        return status
    width = max([15, *(len(group.group_id) for group in groups)]) + 10
    with_type, with_state = arguments.type is not None, arguments.state is not None
    if not with_type and not with_state:
        width = 0
    else:
        _print_row(terminal, width, "GROUP", "TYPE" * with_type, "STATE" * with_state)
    for group in groups:
        _print_row(
            terminal,
            width,
            group.group_id,
            group.type.capitalize() if with_type else "",
            group.state if with_state else "",
        )
    return status


def _print_row(terminal: Terminal, width: int, group_id: str, type_: str, state: str) -> None:
    fields = [f"{group_id:<{width}}"] + [f"{field:<20}" for field in (type_, state) if field]
    terminal.print(" ".join(map(one_line, fields)))


def group_types(text: str) -> tuple[str, ...]:
    """The types of a list like `classic,consumer`."""
    wanted = tuple(part.strip().lower() for part in text.split(","))
    for name in wanted:
        if name not in TYPES:
            raise UsageError(f"there is no group type '{name}'; there are {', '.join(TYPES)}")
    return wanted


def group_states(text: str) -> tuple[str, ...]:
    """The states of a list like `stable,empty`, spelled as the protocol spells them."""
    known = {state.lower(): state for state in STATES}
    wanted = [part.strip().lower() for part in text.split(",")]
    for state in wanted:
        if state not in known:
            raise UsageError(f"there is no group state '{state}'; there are {', '.join(STATES)}")
    return tuple(known[state] for state in wanted)


def shown_groups(admin: Admin, arguments: Namespace, terminal: Terminal) -> tuple[list[str], int]:
    """The same to be shown, and the status: 1 where some brokers do not say which they have."""
    if not arguments.all_groups:
        return chosen_groups(admin, arguments), 0
    found, status = listed(admin.list_groups, "groups", terminal.note)
    status = max(status, note_no_coordinators(admin, OFFSETS_TOPIC, "groups", terminal))
    return sorted({group.group_id for group in found}), status


def chosen_groups(admin: Admin, arguments: Namespace) -> list[str]:
    """The groups that --group or --all-groups name."""
    if arguments.all_groups:
        return sorted(group.group_id for group in admin.list_groups())
    return list(dict.fromkeys(arguments.group))
