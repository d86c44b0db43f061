"""`ottla consumer-groups --delete`."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from ottla.cli.consumer_groups.listing import chosen_groups
from ottla.cli.terminal import Terminal
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from ottla import Admin


def delete_groups(admin: Admin, arguments: Namespace, terminal: Terminal) -> int:
    """Delete the groups; those that could not be are listed with the reason."""
    groups = chosen_groups(admin, arguments)
    failed: dict[str, KafkaError] = {}
    for group in groups:
        try:
            admin.delete_groups([group])
        except KafkaError as error:
            failed[group] = error
    deleted = quoted([group for group in groups if group not in failed])
    if not failed:
        terminal.print(f"Deletion of requested consumer groups ({deleted}) was successful.")
        return 0
    terminal.note("Error: Deletion of some consumer groups failed:")
    for group, reason in failed.items():
        terminal.note(f"* Group '{group}' could not be deleted due to: {reason}")
    if deleted:
        terminal.print(f"These consumer groups were deleted successfully: {deleted}")
    return 1


def quoted(names: list[str]) -> str:
    """Names as `'a', 'b'`."""
    return ", ".join(f"'{name}'" for name in names)
