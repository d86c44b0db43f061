"""Property files on the command line: --command-config, --producer.config, server.properties."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from ottla.cli.command_error import CommandError


def load_properties(path: str) -> dict[str, str]:
    """The settings in a property file."""
    from ottla.config.properties import parse_properties

    try:
        return parse_properties(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"cannot read the property file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"the property file {path} is not UTF-8 text: {error.reason}") from error


def command_settings(arguments: Namespace) -> dict[str, str]:
    """The settings of the file that --command-config names; none without it."""
    return load_properties(arguments.command_config) if arguments.command_config else {}
