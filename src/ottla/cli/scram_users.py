"""SCRAM users as `ottla configs --entity-type users` has them, with the texts of Kafka's tool."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.output import one_line
from ottla.cli.users import DEFAULT_ITERATIONS, ITERATIONS, MECHANISMS
from ottla.clients.admin.scram_users import UserScramCredential
from ottla.errors import ErrorCode, KafkaError
from ottla.security.scram import ScramCredential
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla import Admin
    from ottla.cli.terminal import Terminal


_CREDENTIAL: Final = re.compile(r"(?:iterations=(?P<iterations>\d+),)?password=(?P<password>.+)")


class NewPassword(NamedTuple):
    """The value of --add-config for a mechanism."""

    password: str
    iterations: int

    def __repr__(self) -> str:
        return f"NewPassword(iterations={self.iterations})"


def scram_changes(
    added: Mapping[str, str], deleted: Sequence[str]
) -> dict[str, NewPassword | None]:
    """`SCRAM-SHA-256=[iterations=8192,password=x]` by mechanism; None for a removed credential."""
    unknown = [key for key in (*added, *deleted) if key not in MECHANISMS]
    if unknown:
        raise CommandError(
            f"Cannot alter both quota and SCRAM credential configs: {', '.join(unknown)}"
        )
    changes: dict[str, NewPassword | None] = dict.fromkeys(deleted)
    for mechanism, text in added.items():
        match = _CREDENTIAL.fullmatch(text)
        if match is None:
            raise UsageError(f"{mechanism} takes [iterations=COUNT,password=PASSWORD]")
        iterations = int(match["iterations"] or DEFAULT_ITERATIONS)
        if iterations not in ITERATIONS:
            raise UsageError(
                f"{mechanism}: iterations must be {ITERATIONS.start} to {ITERATIONS.stop - 1}, "
                f"not {iterations}"
            )
        changes[mechanism] = NewPassword(match["password"], iterations)
    return changes


def alter_scram(admin: Admin, user: str, changes: Mapping[str, NewPassword | None]) -> None:
    """Make, replace and remove credentials by a broker."""
    admin.alter_user_scram_credentials(
        [
            UserScramCredential(user, mechanism, None)
            if new is None
            else UserScramCredential(user, mechanism, new.password, new.iterations)
            for mechanism, new in changes.items()
        ]
    )


def scram_stored(
    changes: Mapping[str, NewPassword | None], before: dict[str, str]
) -> dict[str, str]:
    """The settings of a user after the changes, as ZooKeeper keeps them."""
    after = dict(before)
    for mechanism, new in changes.items():
        if new is not None:
            credential = ScramCredential.of_password(mechanism, new.password, new.iterations)
            after[mechanism] = credential.format()
        elif after.pop(mechanism, None) is None:
            raise CommandError(f"Invalid config(s): {mechanism}")
    return after


def describe_scram(admin: Admin, user: str | None, terminal: Terminal) -> None:
    """A line for the user, or for each, that has credentials."""
    try:
        found = admin.describe_user_scram_credentials(None if user is None else [user])
    except KafkaError as error:
        if error.error is not ErrorCode.RESOURCE_NOT_FOUND:
            terminal.note(f"Error retrieving SCRAM credential configs: {error.message}")
        return
    for name, iterations in found.items():
        shown = ", ".join(f"{each}=iterations={count}" for each, count in iterations.items())
        terminal.print(
            f"SCRAM credential configs for user-principal '{one_line(name)}' are {shown}"
        )


def without_keys(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of a user as they may be shown: of credentials, the iterations only."""
    return {
        key: text.rpartition(",")[2] if key in MECHANISMS else text
        for key, text in settings.items()
    }
