"""`ottla users`: the users that can log in by SCRAM; also before the first broker runs."""

from __future__ import annotations

from getpass import getpass
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import (
    add_bootstrap_server,
    add_command_config,
    add_integer,
    add_repeated,
    bootstrap_server,
    check_action,
    given,
    only_with,
)
from ottla.cli.output import one_line
from ottla.cli.property_files import add_zookeeper_security, command_settings, zookeeper_settings
from ottla.cli.text_files import read_text
from ottla.cli.zookeeper_session import address, reachable
from ottla.clients.admin.scram_users import UserScramCredential
from ottla.config.broker_config import BrokerConfig
from ottla.controller.entity_configs import EntityConfigs
from ottla.registry import paths
from ottla.registry.tree import ensure_path
from ottla.runtime import real_runtime
from ottla.security.scram import ScramCredential
from ottla.server.membership import cluster_registry
from ottla.structs import ClientEntity

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Awaitable, Callable

    from ottla.cli.terminal import Terminal

T = TypeVar("T")
Users = dict[str, dict[str, int]]
"""The iterations by mechanism, by user."""

MECHANISMS: Final[tuple[str, ...]] = ("SCRAM-SHA-256", "SCRAM-SHA-512")
DEFAULT_ITERATIONS: Final = 4096
ITERATIONS: Final = range(4096, 16385)
REQUIRED: Final[dict[str, tuple[str, ...]]] = {"add": (), "list": (), "remove": ()}
OPTIONAL: Final[dict[str, tuple[str, ...]]] = {
    "add": ("--mechanism", "--iterations", "--password-file"),
    "remove": ("--mechanism",),
}


class UsersCommand(Command):
    """Adds, lists and removes SCRAM users, by a broker or in its registry."""

    name = "users"
    examples = (
        "ottla users add admin --log-dir /var/lib/ottla --password-file admin.password",
        "ottla users add alice --bootstrap-server localhost:9092 --command-config admin.properties",
        "ottla users list --zookeeper localhost:2181",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "action",
            metavar="ACTION",
            choices=tuple(REQUIRED),
            help=f"One of {', '.join(REQUIRED)}.",
        )
        parser.add_argument("user", metavar="USER", nargs="?", help="add, remove: the name.")
        add_bootstrap_server(parser)
        add_command_config(parser)
        parser.add_argument(
            "--zookeeper",
            metavar="HOST:PORT/PATH",
            help="In the place of --bootstrap-server: the cluster's ZooKeeper. No broker has to "
            "run, as before the first start of brokers that log in to each other.",
        )
        add_zookeeper_security(parser)
        parser.add_argument(
            "--log-dir",
            metavar="DIRECTORY",
            help="In the place of --bootstrap-server: the first of the log.dirs of a broker "
            "without ZooKeeper, which must not run; the directory may be new.",
        )
        add_repeated(
            parser,
            "--mechanism",
            "MECHANISM",
            f"{' or '.join(MECHANISMS)}; may be repeated. Default: both.",
        )
        add_integer(
            parser,
            "--iterations",
            "COUNT",
            f"add: how often the password is hashed, {ITERATIONS.start} to {ITERATIONS.stop - 1}. "
            f"Default: {DEFAULT_ITERATIONS}.",
            least=ITERATIONS.start,
            most=ITERATIONS.stop - 1,
        )
        parser.add_argument(
            "--password-file",
            metavar="FILE",
            help="add: its first line is the password. Without it, the password is asked for, or "
            "read from standard input.",
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        check(arguments)
        action, user = arguments.action, arguments.user
        mechanisms = tuple(arguments.mechanism) or MECHANISMS
        if action == "list":
            for name, found in sorted(_list(arguments, terminal).items()):
                shown = ", ".join(f"{each} ({count} iterations)" for each, count in found.items())
                terminal.print(f"{one_line(name)}: {shown}")
        elif action == "add":
            iterations = arguments.iterations or DEFAULT_ITERATIONS
            password = read_password(arguments, terminal)
            _change(arguments, terminal, user, dict.fromkeys(mechanisms, password), iterations)
            terminal.print(f"Added user {user} ({', '.join(mechanisms)}).")
        else:
            has = _list(arguments, terminal).get(user, {})
            removed = [each for each in mechanisms if each in has]
            if not removed:
                raise CommandError(f"user {user} has no credentials of {' or '.join(mechanisms)}")
            _change(arguments, terminal, user, dict.fromkeys(removed), DEFAULT_ITERATIONS)
            terminal.print(f"Removed user {user} ({', '.join(removed)}).")
        return 0


def check(arguments: Namespace) -> None:
    """UsageError where the options do not fit the action, or each other."""
    check_action(arguments, arguments.action, REQUIRED, OPTIONAL)
    if (arguments.action != "list") != (arguments.user is not None):
        raise UsageError(f"{arguments.action} takes {'no' if arguments.user else 'a'} USER")
    if arguments.user == "":
        raise UsageError("the name of a user must not be empty")
    targets = ("--bootstrap-server", "--zookeeper", "--log-dir")
    if sum(given(arguments, option) for option in targets) > 1:
        raise UsageError(f"only one of {', '.join(targets)} may be given")
    only_with(arguments, ("--zk-tls-config-file",), "--zookeeper")
    for mechanism in arguments.mechanism:
        if mechanism not in MECHANISMS:
            raise UsageError(f"--mechanism may be {' or '.join(MECHANISMS)}, not '{mechanism}'")


def read_password(arguments: Namespace, terminal: Terminal) -> str:
    """The password: from a file, typed without being shown, or a line of standard input."""
    if arguments.password_file is not None:
        text = read_text(arguments.password_file, "the password file").partition("\n")[0]
        password = text.removesuffix("\r")
    elif terminal.can_ask:
        password = getpass(f"Password of {arguments.user}: ")
    else:
        try:
            password = terminal.source.readline().decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise CommandError(f"the password is not UTF-8 text: {error.reason}") from None
    if not password:
        raise CommandError("the password must not be empty")
    return password


def _list(arguments: Namespace, terminal: Terminal) -> Users:
    if not is_offline(arguments):
        servers = bootstrap_server(arguments)
        with terminal.admin(servers, command_settings(arguments)) as admin:
            return admin.describe_user_scram_credentials()
    return in_registry(arguments, stored_users)


def _change(
    arguments: Namespace,
    terminal: Terminal,
    user: str,
    passwords: dict[str, str] | dict[str, None],
    iterations: int,
) -> None:
    """Make the credentials of these mechanisms, or remove those whose password is None."""
    if not is_offline(arguments):
        servers = bootstrap_server(arguments)
        with terminal.admin(servers, command_settings(arguments)) as admin:
            admin.alter_user_scram_credentials(
                [
                    UserScramCredential(user, mechanism, password, iterations)
                    for mechanism, password in passwords.items()
                ]
            )
        return

    made = {
        mechanism: None
        if password is None
        else ScramCredential.of_password(mechanism, password, iterations).format()
        for mechanism, password in passwords.items()
    }

    def change(before: dict[str, str]) -> dict[str, str]:
        after = before | made
        return {key: text for key, text in after.items() if text is not None}

    in_registry(arguments, lambda entities: entities.change_client(ClientEntity(user=user), change))


def is_offline(arguments: Namespace) -> bool:
    return bool(arguments.zookeeper or arguments.log_dir)


async def stored_users(entities: EntityConfigs) -> Users:
    """The users in the registry and their credentials."""
    found: Users = {}
    for entity in await entities.client_entities():
        if entity.user and entity.client_id is None:
            stored = await entities.read_client(entity)
            credentials: dict[str, int] = {
                mechanism: ScramCredential.parse(stored[mechanism]).iterations
                for mechanism in MECHANISMS
                if mechanism in stored
            }
            if credentials:
                found[entity.user] = credentials
    return found


def in_registry(arguments: Namespace, use: Callable[[EntityConfigs], Awaitable[T]]) -> T:
    """Open the registry in ZooKeeper or in files, as a broker does, and use it."""
    import asyncio

    return asyncio.run(_in_registry(arguments, use))


async def _in_registry(arguments: Namespace, use: Callable[[EntityConfigs], Awaitable[T]]) -> T:
    import asyncio

    where = arguments.zookeeper
    if where:
        reachable(address(where)[0])
    settings = {"log.dirs": arguments.log_dir}
    if where:
        settings = zookeeper_settings(where, arguments)
    runtime = real_runtime(asyncio.get_running_loop())
    registry = cluster_registry(runtime, BrokerConfig.parse(settings))
    try:
        await registry.start()
        await ensure_path(registry, paths.CONFIG_CHANGES)
        return await use(EntityConfigs(registry))
    finally:
        await registry.close()
        await runtime.close()
