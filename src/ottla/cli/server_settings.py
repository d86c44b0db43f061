"""The settings of a server: a property file, and single ones that override it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ottla.cli.command_error import UsageError
from ottla.cli.options import add_repeated, key_values
from ottla.cli.properties import load_properties


def add_property_file(parser: ArgumentParser, metavar: str, help_text: str) -> None:
    """The property file, as an argument like that of Kafka's start scripts, or `--config`."""
    parser.add_argument("file", metavar=metavar, nargs="?", help=help_text)
    parser.add_argument("--config", metavar="FILE", help="The same property file by name.")


def add_overrides(parser: ArgumentParser, help_text: str) -> None:
    """`--override key=value`, as often as wanted."""
    add_repeated(parser, "--override", "KEY=VALUE", help_text)


def server_settings(arguments: Namespace) -> dict[str, str]:
    """The property file's settings with the overrides on top."""
    if arguments.file and arguments.config:
        raise UsageError("the property file is given twice, by place and with --config")
    path = arguments.config or arguments.file
    return (load_properties(path) if path else {}) | overrides(arguments)


def overrides(arguments: Namespace) -> dict[str, str]:
    """The settings of `--override`; each needs its equals sign."""
    for pair in arguments.override:
        if "=" not in pair:
            raise UsageError(f"--override takes key=value, not '{pair}'")
    return key_values(arguments.override)
