"""`ottla metrics`: look at a broker's metrics, once or as they change."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import add_fraction, add_integer
from ottla.cli.table import JSON, TEXT, Row, add_format, show_rows
from ottla.clients.json_answers import OddAnswerError, json_object, part
from ottla.runtime.clock import SystemClock
from ottla.runtime.http_calls import SUCCESS, CallError, HttpRequest, exchange, shown_url

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ottla.cli.terminal import Terminal

DEFAULT_URL: Final = "http://127.0.0.1:9404"
PASSWORD_VARIABLE: Final = "OTTLA_METRICS_PASSWORD"
ANSWER_LIMIT_S: Final = 30
"""How long a call may take, from the connection to the last byte of the answer."""
LARGEST_ANSWER: Final = 256 * 1024 * 1024
"""A broker of 1,000 topics answers some 30 MiB."""
WILD: Final = ("*", "?")

Beans = Mapping[str, Mapping[str, Any]]


class MetricsCommand(Command):
    """Reads MBeans over HTTP from `metrics.listener`."""

    name = "metrics"
    examples = (
        "ottla metrics lag",
        "ottla metrics 'kafka.network:type=RequestMetrics,name=TotalTimeMs,*'",
        "ottla metrics BytesIn --attributes Count,OneMinuteRate --watch 5",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "pattern",
            nargs="?",
            default="",
            metavar="PATTERN",
            help="A part of the names of MBeans, in any case; or a whole name with * and ?, as "
            "kafka.log:type=Log,*. Without one, all.",
        )
        parser.add_argument(
            "--url",
            default=DEFAULT_URL,
            help="The metrics.listener of a broker or a mirror, or a listener of a Connect worker "
            f"(default: {DEFAULT_URL}).",
        )
        parser.add_argument(
            "--user",
            metavar="NAME",
            help=f"The user that the listener asks for; its password is in {PASSWORD_VARIABLE}.",
        )
        parser.add_argument(
            "--ca-file", metavar="FILE", help="The certificates to trust, for https (PEM)."
        )
        parser.add_argument(
            "--attributes", metavar="NAMES", help="Only these attributes, as Count,Mean."
        )
        add_fraction(
            parser,
            "--watch",
            "SECONDS",
            "Read again so often, and print what has changed and how fast, until Ctrl-C.",
            is_positive=True,
        )
        add_integer(
            parser, "--reports", "NUMBER", "With --watch: end after so many reports.", least=1
        )
        add_format(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        if arguments.reports is not None and arguments.watch is None:
            raise UsageError("--reports: needs --watch")
        if arguments.watch is None:
            found = values(read_beans(arguments), arguments.attributes)
            rows = [
                {"bean": bean, "attribute": attribute, "value": value}
                for (bean, attribute), value in found.items()
            ]
            show(rows, arguments.format, terminal)
            return 0
        watch(arguments, terminal)
        return 0


def show(rows: Sequence[Row], format: str, terminal: Terminal) -> None:
    """A line of text for each value, or a table, or JSON."""
    if format != TEXT:
        show_rows(rows, format, terminal)
    elif not rows:
        terminal.remark("nothing to show")
    for row in rows if format == TEXT else ():
        change = f" ({row['per_second']:+g}/s)" if "per_second" in row else ""
        terminal.print(f"{row['bean']} {row['attribute']}={shown(row['value'])}{change}")


def shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def watch(arguments: Namespace, terminal: Terminal) -> None:
    """Print the metrics that have changed since the reading before, with their rates."""
    before = values(read_beans(arguments), arguments.attributes)
    read_at = time.monotonic()
    left = arguments.reports
    while left is None or left > 0:
        time.sleep(arguments.watch)
        now = values(read_beans(arguments), arguments.attributes)
        elapsed, read_at = time.monotonic() - read_at, time.monotonic()
        rows = [
            {
                "bean": bean,
                "attribute": attribute,
                "value": value,
                "per_second": round((value - old) / elapsed, 3),
            }
            for (bean, attribute), value in now.items()
            if isinstance(value, int | float)
            and isinstance(old := before.get((bean, attribute), 0), int | float)
            and value != old
        ]
        if arguments.format != JSON:
            terminal.print(time.strftime("-- %H:%M:%S"))
        show(rows, arguments.format, terminal)
        terminal.out.flush()
        before = now
        left = None if left is None else left - 1


def values(beans: Beans, wanted: str | None) -> dict[tuple[str, str], Any]:
    """The values by MBean and attribute, in the order of the names."""
    names = None if wanted is None else {name.strip() for name in wanted.split(",")}
    return {
        (bean, attribute): value
        for bean, attributes in sorted(beans.items())
        for attribute, value in attributes.items()
        if names is None or attribute in names
    }


def read_beans(arguments: Namespace) -> Beans:
    """The MBeans that match; a pattern without a colon is looked for in every name."""
    pattern = arguments.pattern
    is_name = ":" in pattern
    where = shown_url(arguments.url)
    try:
        answer = ask(arguments, {"type": "read", "mbean": pattern if is_name else "*:*"})
        if answer.get("status") == HTTPStatus.NOT_FOUND:
            raise CommandError(f"{where}: there is no MBean {pattern}")
        if answer.get("status") != HTTPStatus.OK:
            raise CommandError(f"{where}: {answer.get('error', answer)}")
        found = part(answer, "value", dict)
        if is_name and not any(sign in pattern for sign in WILD):
            return {pattern: found}
        wanted = "" if is_name else pattern.lower()
        return {bean: part(found, bean, dict) for bean in found if wanted in bean.lower()}
    except OddAnswerError as error:
        raise CommandError(f"{where} is no broker of Ottla: {error}") from None


def ask(arguments: Namespace, request: Mapping[str, Any]) -> dict[str, Any]:
    """The response of the listener to a request in the manner of Jolokia."""
    url = f"{arguments.url.rstrip('/')}/jolokia"
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--url {arguments.url}: must be http://host:port or https://host:port")
    login = None
    if arguments.user is not None:
        login = (arguments.user, os.environ.get(PASSWORD_VARIABLE, ""))
    body = json.dumps(request).encode()
    call = HttpRequest(url, "POST", body, login, ca_file=arguments.ca_file)
    where = shown_url(arguments.url)
    try:
        answer = exchange(SystemClock(), call, LARGEST_ANSWER, ANSWER_LIMIT_S)
    except CallError as error:
        hint = "a broker serves metrics with metrics.listener"
        raise CommandError(f"{where}: {error}; {hint}") from None
    if answer.status not in SUCCESS:
        hint = (
            f"; set --user and {PASSWORD_VARIABLE}"
            if answer.status == HTTPStatus.UNAUTHORIZED
            else ""
        )
        raise CommandError(f"{where}: {answer.status} {answer.reason}{hint}")
    return json_object(answer.body)
