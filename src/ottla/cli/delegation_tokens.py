"""`ottla delegation-tokens`: passwords for a while, with the texts of Kafka's tool."""

from __future__ import annotations

from base64 import b64decode
from datetime import datetime
from typing import TYPE_CHECKING, Final

from ottla.cli.command import Command
from ottla.cli.command_error import UsageError
from ottla.cli.options import (
    add_bootstrap_server,
    add_command_config,
    add_flag,
    add_integer,
    add_repeated,
    bootstrap_server,
    given,
    require,
)
from ottla.cli.property_files import command_settings
from ottla.cli.table import TEXT, add_format, show_rows
from ottla.cli.times import moment_text
from ottla.security.principal import KafkaPrincipal

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Sequence

    from ottla import Admin
    from ottla.cli.terminal import Terminal
    from ottla.security.delegation_tokens import DelegationToken

ACTIONS: Final = ("--create", "--renew", "--expire", "--describe")
REQUIRED: Final[dict[str, tuple[str, ...]]] = {"--renew": ("--hmac",), "--expire": ("--hmac",)}
ALLOWED: Final[dict[str, tuple[str, ...]]] = {
    "--create": ("--owner-principal", "--renewer-principal", "--max-life-time-period"),
    "--renew": ("--hmac", "--renew-time-period"),
    "--expire": ("--hmac", "--expiry-time-period"),
    "--describe": ("--owner-principal",),
}
COLUMNS: Final = {
    "tokenid": 15,
    "hmac": 30,
    "owner": 15,
    "requester": 15,
    "renewers": 25,
    "issuedate": 15,
    "expirydate": 15,
    "maxdate": 15,
}
"""The columns of the list, and their widths."""


class DelegationTokensCommand(Command):
    """Makes, renews, ends and lists tokens, as whom the --command-config logs in."""

    name = "delegation-tokens"
    examples = (
        "ottla delegation-tokens --create --max-life-time-period -1 "
        "--renewer-principal User:jobs --command-config alice.properties",
        "ottla delegation-tokens --describe --command-config alice.properties",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_bootstrap_server(parser, ())
        add_command_config(parser)
        add_flag(parser, "--create", "Make a token; its id and HMAC are a name and a password.")
        add_flag(parser, "--renew", "Have a token end later.")
        add_flag(parser, "--expire", "Have a token end sooner, or at once.")
        add_flag(
            parser, "--describe", "List the tokens of --owner-principal, or all that one may see."
        )
        add_repeated(
            parser,
            "--owner-principal",
            "TYPE:NAME",
            "--create: whose token it is; --describe: whose tokens are listed. Default: of whom "
            "the --command-config logs in as.",
        )
        add_repeated(
            parser,
            "--renewer-principal",
            "TYPE:NAME",
            "--create: who may renew and end it, beside its owner. May be repeated.",
        )
        add_integer(
            parser,
            "--max-life-time-period",
            "MS",
            "--create: how long it lives at most; -1 (the default) for the broker's "
            "delegation.token.max.lifetime.ms.",
            least=-1,
        )
        add_integer(
            parser,
            "--renew-time-period",
            "MS",
            "--renew: for how long; -1 (the default) for the broker's "
            "delegation.token.expiry.time.ms.",
            least=-1,
        )
        add_integer(
            parser,
            "--expiry-time-period",
            "MS",
            "--expire: when; -1 (the default) for at once.",
        )
        parser.add_argument("--hmac", metavar="HMAC", help="--renew, --expire: the token's HMAC.")
        add_format(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        action = check(arguments)
        with terminal.admin(bootstrap_server(arguments), command_settings(arguments)) as admin:
            if action == "--create":
                create(admin, arguments, terminal)
            elif action == "--describe":
                describe(admin, arguments, terminal)
            else:
                end_at(admin, action.removeprefix("--"), arguments, terminal)
        return 0


def check(arguments: Namespace) -> str:
    """The action; UsageError where options do not fit it."""
    used = [action for action in ACTIONS if given(arguments, action)]
    if len(used) != 1:
        raise UsageError(
            "Command must include exactly one action: --create, --renew, --expire or --describe"
        )
    (action,) = used
    require(arguments, *REQUIRED.get(action, ()))
    for option in sorted({each for options in ALLOWED.values() for each in options}):
        if option not in ALLOWED[action] and given(arguments, option):
            raise UsageError(f"option {option} cannot be used with option {action}")
    if action == "--create" and len(arguments.owner_principal) > 1:
        raise UsageError("--create takes one --owner-principal: a token has one owner")
    return action


def create(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Make a token, and show it."""
    renewers = principals(arguments.renewer_principal)
    owners = principals(arguments.owner_principal)
    lifetime_ms = period(arguments.max_life_time_period)
    if arguments.format == TEXT:
        terminal.print(
            f"Calling create token operation with renewers :{_list(renewers)} , "
            f"max-life-time-period :{lifetime_ms}"
        )
    token = admin.create_delegation_token(owners[0] if owners else None, renewers, lifetime_ms)
    if arguments.format == TEXT:
        terminal.print(f"Created delegation token with tokenId : {token.token_id}")
    show([token], arguments.format, terminal)


def end_at(admin: Admin, verb: str, arguments: Namespace, terminal: Terminal) -> None:
    """Renew a token, or end it."""
    is_renewal = verb == "renew"
    period_ms = period(arguments.renew_time_period if is_renewal else arguments.expiry_time_period)
    name = "renew-time-period" if is_renewal else "expire-time-period"
    hmac = arguments.hmac
    terminal.print(f"Calling {verb} token operation with hmac :{hmac} , {name} :{period_ms}")
    change = admin.renew_delegation_token if is_renewal else admin.expire_delegation_token
    end_ms = change(decoded(hmac), period_ms)
    terminal.print(f"Completed {verb} operation. New expiry date : {date(end_ms)}")


def describe(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """List tokens."""
    owners = principals(arguments.owner_principal)
    if arguments.format == TEXT:
        if owners:
            terminal.print(f"Calling describe token operation for owners: {_list(owners)}")
        else:
            terminal.print("Calling describe token operation for current user.")
    tokens = admin.describe_delegation_tokens(owners or None)
    if arguments.format == TEXT:
        terminal.print(f"Total number of tokens : {len(tokens)}")
    show(tokens, arguments.format, terminal)


def show(tokens: Sequence[DelegationToken], format: str, terminal: Terminal) -> None:
    """The tokens as rows: in the columns of Kafka's tool, or as --format says."""
    rows = [row(token) for token in tokens]
    if format != TEXT:
        show_rows(rows, format, terminal)
        return
    for cells in ([name.upper() for name in COLUMNS], *(list(each.values()) for each in rows)):
        padded = (f"{cell:<{width}}" for cell, width in zip(cells, COLUMNS.values(), strict=True))
        terminal.print("\n" + " ".join(padded))


def row(token: DelegationToken) -> dict[str, str]:
    """The columns of one token."""
    cells = (
        token.token_id,
        token.password,
        str(token.owner),
        str(token.requester),
        _list(token.renewers),
        *map(date, (token.issue_ms, token.expiry_ms, token.max_ms)),
    )
    return dict(zip(COLUMNS, cells, strict=True))


def date(ms: int) -> str:
    """A time as Kafka's tool shows it: by the clock on the wall, without seconds.

    One beyond the years that have a local time here is shown in UTC.
    """
    try:
        return datetime.fromtimestamp(ms / 1000).astimezone().strftime("%Y-%m-%dT%H:%M")
    except (ValueError, OverflowError, OSError):
        return moment_text(ms)


def period(ms: int | None) -> int:
    return -1 if ms is None else ms


def principals(texts: Iterable[str]) -> list[KafkaPrincipal]:
    """The principals that an option names."""
    try:
        return [KafkaPrincipal.parse(text.strip()) for text in texts]
    except ValueError as error:
        raise UsageError(str(error)) from None


def decoded(hmac: str) -> bytes:
    """The HMAC that an option has in base64."""
    try:
        return b64decode(hmac, validate=True)
    except ValueError:  # of base64, or of text beyond ASCII
        raise UsageError("--hmac takes the HMAC that --create has shown, in base64") from None


def _list(values: Iterable[object]) -> str:
    return f"[{', '.join(map(str, values))}]"
