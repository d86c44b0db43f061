"""`ottla console`: the cluster's topics, records and groups as pages for a browser."""

from __future__ import annotations

import errno
import re
import sys
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import (
    add_bootstrap_server,
    add_command_config,
    add_flag,
    add_repeated,
    bootstrap_server,
)
from ottla.cli.property_files import command_settings
from ottla.config.jaas import PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from ottla.config.whole_number import number_of
from ottla.config.zookeeper_config import parse_connect
from ottla.console.console_settings import ConsoleSettings
from ottla.console.masks import mask_of
from ottla.console.protobuf_values import protobuf_topics
from ottla.errors import ConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping

    from ottla.cli.terminal import Terminal

LISTEN: Final = "127.0.0.1:8090"
MOST_PORT: Final = 65_535
LIMIT_OF_ALERT: Final = re.compile(r"[1-9][0-9]{0,8}")
BY_PASSWORD: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512)
OF_ONE_USER: Final = {"sasl.jaas.config", "sasl.username", "sasl.password"}
NOT_WITH_LOGIN: Final = {
    "connect": "a worker of Connect has no ACLs, so it is not for --login",
    "metrics": "a broker's metrics have no ACLs, so not with --login",
    "zookeeper": "its nodes have no ACLs of Kafka's, so not with --login",
    "webhook": "alerts are those that a user may see, so not with --login",
}


class ConsoleCommand(Command):
    """Serves the pages until SIGTERM or Ctrl-C; it works with any cluster of Kafka."""

    name = "console"
    examples = (
        "ottla console",
        "ottla console -b kafka-1:9092 --login SCRAM-SHA-512",
        "ottla console -b kafka-1:9092 --read-only --mask 'orders.*:value.card'",
    )
    default_log_level = "INFO"

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_bootstrap_server(parser)
        add_command_config(parser)
        parser.add_argument(
            "--listen",
            metavar="HOST:PORT",
            default=LISTEN,
            help="Where browsers connect; port 0 takes a free one. An address that is not of this "
            f"machine alone needs --certificate or --insecure. Default: {LISTEN}.",
        )
        parser.add_argument("--certificate", metavar="FILE", help="Serve HTTPS by this (PEM).")
        parser.add_argument("--private-key", metavar="FILE", help="The certificate's key (PEM).")
        add_flag(parser, "--insecure", "Listen without TLS where others can read along.")
        add_flag(
            parser,
            "--no-token",
            "Let in every browser of this machine; else only one that opens the printed URL.",
        )
        parser.add_argument(
            "--login",
            choices=BY_PASSWORD,
            help="Ask each browser for a name and a password of the cluster, by this mechanism of "
            "SASL; its ACLs decide what a page shows and does. It is so as well where the file of "
            "--command-config has sasl.mechanism, but no name.",
        )
        add_repeated(
            parser, "--host-name", "NAME", "A further name by which browsers may call the console."
        )
        parser.add_argument(
            "--name", metavar="TEXT", help="The name of the cluster at the top of each page."
        )
        add_flag(
            parser, "--end-with-input", "End when standard input does: with what has started it."
        )
        parser.add_argument(
            "--connect",
            metavar="URL",
            type=connect_url,
            help="A worker of Kafka Connect, as http://localhost:8083: connectors have pages then.",
        )
        add_decoders(parser)
        add_sources(parser)
        add_flag(parser, "--read-only", "Without everything that changes something.")
        add_flag(parser, "--hide-records", "Without keys, values and headers of records.")
        add_repeated(
            parser,
            "--mask",
            "PATTERN:PLACE",
            "A place in the records of topics that is never shown, as 'orders.*:value.card', "
            "'.*:key' or '.*:headers.token'; all of a key or value that is no JSON object or list; "
            "may be repeated.",
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        from ottla.console.server import TlsFiles, run_console

        settings = settings_of(arguments)
        files = tls_files(arguments)
        tls = TlsFiles(*files) if files else None

        def say(line: str) -> None:
            terminal.print(line)
            terminal.out.flush()

        try:
            run_console(
                settings, say, tls, sys.stdin.fileno() if arguments.end_with_input else None
            )
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise CommandError(
                f"--listen {arguments.listen}: another program listens there; "
                "choose another port, or 0 for a free one"
            ) from error
        return 0


def add_decoders(parser: ArgumentParser) -> None:
    """Options for values that are neither text nor JSON."""
    parser.add_argument(
        "--schema-registry",
        metavar="URL",
        type=registry_url,
        help="A schema registry, as http://localhost:8081: keys and values with Avro are shown "
        "by its schemas.",
    )
    add_repeated(
        parser,
        "--protobuf",
        "PATTERN:FILE:MESSAGE",
        "Topics whose values are this message of Protocol Buffers, as "
        "'orders.*:shop.desc:shop.Order', by a file of protoc --include_imports "
        "--descriptor_set_out; may be repeated.",
    )


def add_sources(parser: ArgumentParser) -> None:
    """Options for things beside the brokers: metrics, alerts, and the report of a run."""
    add_repeated(
        parser,
        "--metrics",
        "URL",
        "The metrics of a broker, as http://127.0.0.1:9404/metrics: a page has them then. "
        "http://NAME:PASSWORD@HOST:PORT/metrics where it asks for both; may be repeated.",
    )
    parser.add_argument(
        "--zookeeper",
        metavar="CONNECT",
        help="The ZooKeeper of the brokers, as localhost:2181/chroot: the page of the registry "
        "shows its nodes; else those that an Ottla broker shows beside its metrics.",
    )
    add_repeated(
        parser,
        "--alert",
        "RULE=LIMIT",
        "When an alert fires: behind and stuck in seconds, disk in hours, dead-letters in "
        "quiet minutes, or off, also for partitions; may be repeated.",
    )
    parser.add_argument(
        "--webhook",
        metavar="URL",
        help="Send alerts that fire and that end to this address, as JSON.",
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="The HTML file that a run writes: the page of the run shows it as it is then.",
    )


def settings_of(arguments: Namespace) -> ConsoleSettings:
    """The settings that the options name; UsageError where they do not fit."""
    host, port = listen_address(arguments.listen)
    if not is_loopback(host):
        check_protection(arguments)
    client = client_settings(arguments)
    has_login = is_for_login(client)
    check_sources(arguments, has_login)
    return ConsoleSettings(
        bootstrap_servers=bootstrap_server(arguments),
        client=client,
        host=host,
        port=port,
        name=arguments.name or "",
        names=tuple(arguments.host_name),
        has_token=not arguments.no_token and not has_login,
        has_login=has_login,
        read_only=arguments.read_only,
        hide_records=arguments.hide_records,
        masks=tuple(map(mask_of, arguments.mask)),
        connect=arguments.connect or "",
        schema_registry=arguments.schema_registry or "",
        protobuf=tuple(map(protobuf_topics, arguments.protobuf)),
        metrics=tuple(arguments.metrics),
        alerts=alert_limits(arguments.alert),
        webhook=arguments.webhook or "",
        zookeeper=zookeeper_address(arguments.zookeeper or ""),
        report=arguments.report or "",
    )


def check_sources(arguments: Namespace, has_login: bool) -> None:
    """UsageError for an address that is none, and where users would see more than their rights."""
    for each in arguments.metrics:
        check_url("--metrics", each, "http://127.0.0.1:9404/metrics")
    if arguments.webhook is not None:
        check_url("--webhook", arguments.webhook, "https://localhost:8000/alerts")
    for name, reason in NOT_WITH_LOGIN.items():
        if has_login and getattr(arguments, name):
            raise UsageError(f"--{name}: {reason}")
    if arguments.report and (has_login or arguments.hide_records or arguments.mask):
        raise UsageError(
            "--report: it is shown whole, so it is not for --login, --hide-records and --mask"
        )


def client_settings(arguments: Namespace) -> dict[str, str]:
    """The settings of clients, by which users log in where --login says so."""
    client = command_settings(arguments)
    if arguments.login is None:
        return client
    if given := sorted(OF_ONE_USER & client.keys()):
        raise UsageError(f"--login: {given[0]} must not be set, as each user has a name")
    is_encrypted = "SSL" in client.get("security.protocol", "")
    protocol = "SASL_SSL" if is_encrypted else "SASL_PLAINTEXT"
    return client | {"security.protocol": protocol, "sasl.mechanism": arguments.login}


def is_for_login(client: Mapping[str, str]) -> bool:
    """Whether clients of these settings lack nothing but the name and password of a user."""
    is_sasl = client.get("security.protocol", "").startswith("SASL_")
    by_password = client.get("sasl.mechanism") in BY_PASSWORD
    return is_sasl and by_password and not OF_ONE_USER & client.keys()


def connect_url(text: str, example: str = "http://localhost:8083") -> str:
    """The URL of `--connect`, which must be one of HTTP."""
    if not is_http(text):
        raise ArgumentTypeError(f"takes a URL, as {example}, not '{text}'")
    return text


def registry_url(text: str) -> str:
    """The URL of `--schema-registry`."""
    return connect_url(text, "http://localhost:8081")


def alert_limits(given: list[str]) -> dict[str, int]:
    """The limits of `--alert RULE=LIMIT`; -1 for a rule that is off."""
    from ottla.console.alert_rules import LIMITS

    found = {}
    for each in given:
        rule, _, limit = each.partition("=")
        has_limit = LIMIT_OF_ALERT.fullmatch(limit) and rule != "partitions"
        if rule not in LIMITS or not (limit == "off" or has_limit):
            known = ", ".join(LIMITS)
            raise UsageError(f"--alert {each}: takes RULE=NUMBER or RULE=off, of {known}")
        found[rule] = -1 if limit == "off" else int(limit)
    return found


def zookeeper_address(text: str) -> str:
    """The text of `--zookeeper`; UsageError where it names no servers."""
    try:
        if text:
            parse_connect("--zookeeper", text)
    except ConfigError as error:
        raise UsageError(error.message) from None
    return text


def check_url(option: str, url: str, example: str) -> None:
    """UsageError, without the password that it may have, for an address that is none of HTTP."""
    if not is_http(url):
        raise UsageError(f"{option} takes a URL, as {example}")


def is_http(url: str) -> bool:
    """Whether requests can go to an address: it has a host, and a port from 1 to 65535 or none."""
    try:
        parts = urlsplit(url)
        has_place = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    # What HTTP has no place for would fail at each request.
    return parts.scheme in ("http", "https") and has_place and min(url) > " "


def check_protection(arguments: Namespace) -> None:
    """UsageError where others reach the console, and nothing protects it."""
    if not arguments.certificate and not arguments.insecure:
        raise UsageError(
            f"--listen {arguments.listen}: others could read along; add --certificate, "
            "or --insecure if the network is trusted"
        )
    if arguments.no_token:
        raise UsageError(f"--listen {arguments.listen}: --no-token is for this machine alone")


def tls_files(arguments: Namespace) -> tuple[str, str] | None:
    """The files of the certificate and its key, which fit together; None without them."""
    from ssl import PROTOCOL_TLS_SERVER, SSLContext, SSLError

    certificate, key = arguments.certificate, arguments.private_key
    if certificate is None:
        if key is not None:
            raise UsageError(f"--private-key {key}: without --certificate it protects nothing")
        return None
    option, path = "--certificate", certificate
    try:
        with open(path, "rb"):
            option, path = (option, path) if key is None else ("--private-key", key)
        with open(path, "rb"):
            context = SSLContext(PROTOCOL_TLS_SERVER)
        # Who starts a server is not asked for a password: it would wait for it unseen.
        context.load_cert_chain(certificate, path, password=lambda: b"")
    except SSLError as error:
        raise CommandError(
            f"--certificate {certificate}: it must be a certificate in PEM, with its key without "
            f"a password in {'--private-key ' + key if key else 'the same file'} ({error.reason})"
        ) from error
    except OSError as error:
        raise CommandError(f"{option} {path}: {error.strerror or error}") from error
    return certificate, path


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of `--listen`."""
    host, colon, port = text.rpartition(":")
    if not colon or number_of(port, 0, MOST_PORT) is None:
        raise UsageError(f"--listen takes HOST:PORT, as {LISTEN}, not '{text}'")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach an address."""
    from ipaddress import ip_address

    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
