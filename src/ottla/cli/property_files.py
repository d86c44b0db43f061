"""Property files on the command line, and single settings that override one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import add_repeated, key_values
from ottla.cli.text_files import read_text
from ottla.config.properties import parse_properties

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def load_properties(path: str) -> dict[str, str]:
    """The settings in a property file."""
    try:
        return parse_properties(read_text(path, "the property file"))
    except CommandError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        from ottla.cli.config_files import hint  # a start does without

        raise CommandError(f"{error}{hint(path)}") from error


def settings_in(path: str | None) -> dict[str, str]:
    """The settings in the file of an option, and none without the option.

    An empty name is that of no file: a script whose variable is not set asks for no defaults.
    """
    return {} if path is None else load_properties(path)


def command_settings(arguments: Namespace) -> dict[str, str]:
    """The settings of the file that --command-config names; none without it."""
    return settings_in(arguments.command_config)


def add_zookeeper_security(parser: ArgumentParser) -> None:
    """`--zk-tls-config-file`, as Kafka calls it, for tools that open the brokers' registry."""
    parser.add_argument(
        "--zk-tls-config-file",
        metavar="FILE",
        help="How ZooKeeper is connected to: a file with the brokers' zookeeper.ssl.*, "
        "zookeeper.sasl.*, zookeeper.digest.* and zookeeper.set.acl, as a broker's own file.",
    )


def zookeeper_settings(connect: str, arguments: Namespace) -> dict[str, str]:
    """The settings of a registry in ZooKeeper, for a command with these options."""
    settings = settings_in(arguments.zk_tls_config_file)
    of_zookeeper = {name: text for name, text in settings.items() if name.startswith("zookeeper.")}
    return of_zookeeper | {"zookeeper.connect": connect}


def add_property_file(parser: ArgumentParser, metavar: str, help_text: str) -> None:
    """The property file, as an argument like that of Kafka's start scripts, or `--config`."""
    parser.add_argument("file", metavar=metavar, nargs="?", help=help_text)
    parser.add_argument("--config", metavar="FILE", help="The same property file by name.")


def add_overrides(parser: ArgumentParser, help_text: str) -> None:
    """`--override key=value`, as often as wanted."""
    add_repeated(parser, "--override", "KEY=VALUE", help_text)


def server_settings(arguments: Namespace) -> dict[str, str]:
    """The property file's settings with the overrides on top."""
    if None not in (arguments.file, arguments.config):
        raise UsageError("the property file is given twice, by place and with --config")
    path = arguments.file if arguments.config is None else arguments.config
    return settings_in(path) | overrides(arguments)


def overrides(arguments: Namespace) -> dict[str, str]:
    """The settings of `--override`; each needs its equals sign."""
    for pair in arguments.override:
        if "=" not in pair:
            raise UsageError(f"--override takes key=value, not '{pair}'")
    return key_values(arguments.override)
