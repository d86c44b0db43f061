"""`ottla consumer-groups --list`."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Final

from ottla.cli.command import UsageError
from ottla.cli.terminal import Terminal

if TYPE_CHECKING:
    from ottla import Admin

STATES: Final = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")


def list_groups(admin: Admin, arguments: Namespace, terminal: Terminal) -> int:
    """Print the ids of the groups; with --state also the state that each is in."""
    states = group_states(arguments.state) if arguments.state else ()
    groups = sorted(admin.list_groups(states=states), key=lambda group: group.group_id)
    if arguments.state is None:
        for group in groups:
            terminal.print(group.group_id)
        return 0
    width = max([15, *(len(group.group_id) for group in groups)]) + 10
    terminal.print(f"{'GROUP':<{width}} {'STATE':<20}")
    for group in groups:
        terminal.print(f"{group.group_id:<{width}} {group.state:<20}")
    return 0


def group_states(text: str) -> tuple[str, ...]:
    """The states of a list like `stable,empty`, spelled as the protocol spells them."""
    known = {state.lower(): state for state in STATES}
    wanted = [part.strip().lower() for part in text.split(",")]
    for state in wanted:
        if state not in known:
            raise UsageError(f"there is no group state '{state}'; there are {', '.join(STATES)}")
    return tuple(known[state] for state in wanted)


def chosen_groups(admin: Admin, arguments: Namespace) -> list[str]:
    """The groups that --group or --all-groups name."""
    if arguments.all_groups:
        return sorted(group.group_id for group in admin.list_groups())
    return list(dict.fromkeys(arguments.group))
