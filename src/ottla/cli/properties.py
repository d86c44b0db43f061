"""Property files on the command line: --command-config, --producer.config, server.properties."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import add_repeated, key_values
from ottla.errors import ConfigError

# Java properties files, as `server.properties` is one: comments, escapes, continued lines.


_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """The settings of a properties file; of a key that is there twice the last one counts."""
    settings = {}
    for line in _logical_lines(text):
        match = _KEY.fullmatch(line)
        assert match is not None, "the pattern takes every text"
        settings[_unescape(match[1])] = _unescape(match[2]).rstrip()
    return settings


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones; an odd backslash at the end continues a line."""
    continued = ""
    for natural in _LINE_END.split(text):
        line = natural.lstrip(" \t\f")
        if not continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            continued += line[:-1]
            continue
        yield continued + line
        continued = ""
    if continued:
        yield continued


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] == "u":
        if len(code) != 5:
            raise ConfigError(f"{match.string}: \\u must be followed by four hexadecimal digits")
        return chr(int(code[1:], 16))
    return _CONTROL.get(code, code)


def load_properties(path: str) -> dict[str, str]:
    """The settings in a property file."""
    try:
        return parse_properties(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"cannot read the property file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"the property file {path} is not UTF-8 text: {error.reason}") from error


def command_settings(arguments: Namespace) -> dict[str, str]:
    """The settings of the file that --command-config names; none without it."""
    return load_properties(arguments.command_config) if arguments.command_config else {}


# The settings of a server: a property file, and single ones that override it.


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
