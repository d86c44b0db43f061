"""The commands of the ZooKeeper shell, printed as by zkCli."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from kazoo import exceptions as kazoo_errors

from ottla.cli.command_error import CommandError
from ottla.cli.four_letter_words import WORDS
from ottla.cli.options import OptionParser, whole_number, word_bytes
from ottla.version import __version__

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterator, Sequence

ANY_VERSION: Final = -1

_REFUSALS: Final = {
    kazoo_errors.NoNodeError: "Node does not exist: {}",
    kazoo_errors.NodeExistsError: "Node already exists: {}",
    kazoo_errors.NotEmptyError: "Node not empty: {}",
    kazoo_errors.BadVersionError: "version No is not valid : {}",
    kazoo_errors.NoChildrenForEphemeralsError: "Ephemerals cannot have children: {}",
    kazoo_errors.NoAuthError: "Insufficient permission : {}",
}


class ZnodeCommands:
    """The commands of one session; each returns the lines that it prints."""

    def __init__(self, client: Any, ask: Callable[[str], str]) -> None:
        """`client` has the methods of kazoo's; `ask` returns the answer to a four-letter word."""
        self.client = client
        self.ask = ask
        self._commands: dict[str, tuple[ArgumentParser, Callable[[Namespace], Iterator[str]]]] = {
            "ls": (_parser("ls", "-s", "-R", "path"), self._ls),
            "get": (_parser("get", "-s", "path"), self._get),
            "set": (_parser("set", "-s", "-v", "path", "data"), self._set),
            "create": (_parser("create", "-s", "-e", "path", "data?"), self._create),
            "delete": (_parser("delete", "-v", "path"), self._delete),
            "deleteall": (_parser("deleteall", "path"), self._delete_all),
            "stat": (_parser("stat", "path"), self._stat),
            "getAcl": (_parser("getAcl", "path"), self._get_acl),
            "addauth": (_parser("addauth", "scheme", "auth"), self._add_auth),
            "version": (_parser("version"), self._version),
        }

    def run(self, words: Sequence[str]) -> Iterator[str]:
        """The lines of a command; raises CommandError where it fails or is unknown."""
        name, rest = words[0], list(words[1:])
        if name in WORDS and not rest:  # `stat /path` is of a node, `stat` of the server
            yield from self.ask(name).splitlines()
            return
        if name == "help":
            yield from self._help()
            return
        if name not in self._commands:
            raise CommandError(f"Command not found: {name}")
        parser, command = self._commands[name]
        arguments = parser.parse_args(rest)
        path = getattr(arguments, "path", "/")
        if not path.startswith("/"):
            raise CommandError(f'Path must start with / character: "{path}"')
        try:
            yield from command(arguments)
        except kazoo_errors.KazooException as error:
            raise CommandError(_refusal(error, path)) from error

    def _help(self) -> Iterator[str]:
        for parser, _ in self._commands.values():
            yield parser.format_usage().removeprefix("usage: ").rstrip()
        yield f"{', '.join(WORDS)}: what the server says to this word"
        yield "quit"

    def _ls(self, arguments: Namespace) -> Iterator[str]:
        if arguments.R:
            yield from self._tree(arguments.path)
            return
        names, stat = self.client.get_children(arguments.path, include_data=True)
        yield f"[{', '.join(sorted(names))}]"
        if arguments.s:
            yield from _stat_lines(stat)

    def _tree(self, path: str) -> Iterator[str]:
        names = sorted(self.client.get_children(path))
        yield path
        for name in names:
            yield from self._tree(f"{path.rstrip('/')}/{name}")

    def _get(self, arguments: Namespace) -> Iterator[str]:
        data, stat = self.client.get(arguments.path)
        yield "null" if data is None else data.decode("utf-8", "replace")
        if arguments.s:
            yield from _stat_lines(stat)

    def _set(self, arguments: Namespace) -> Iterator[str]:
        stat = self.client.set(arguments.path, word_bytes(arguments.data), arguments.v)
        if arguments.s:
            yield from _stat_lines(stat)

    def _create(self, arguments: Namespace) -> Iterator[str]:
        data = word_bytes(arguments.data or "")
        path = self.client.create(arguments.path, data, ephemeral=arguments.e, sequence=arguments.s)
        yield f"Created {path}"

    def _delete(self, arguments: Namespace) -> Iterator[str]:
        self.client.delete(arguments.path, arguments.v)
        return iter(())

    def _delete_all(self, arguments: Namespace) -> Iterator[str]:
        for path in reversed(list(self._tree(arguments.path))):
            if path != "/":
                self.client.delete(path)
        return iter(())

    def _stat(self, arguments: Namespace) -> Iterator[str]:
        stat = self.client.exists(arguments.path)
        if stat is None:
            raise kazoo_errors.NoNodeError
        return _stat_lines(stat)

    def _get_acl(self, arguments: Namespace) -> Iterator[str]:
        acls, _ = self.client.get_acls(arguments.path)
        for acl in acls:
            yield f"'{acl.id.scheme},'{acl.id.id}"
            yield f": {_permissions(acl.perms)}"

    def _add_auth(self, arguments: Namespace) -> Iterator[str]:
        self.client.add_auth(arguments.scheme, arguments.auth)
        return iter(())

    def _version(self, _: Namespace) -> Iterator[str]:
        yield f"Ottla {__version__}"
        server = self.ask("srvr").partition("\n")[0]
        yield server.partition(", built")[0]


def _parser(name: str, *parts: str) -> OptionParser:
    """A parser of `-x` flags, `-v` with a version, and words; `data?` may be left out."""
    parser = OptionParser(prog=name, add_help=False, allow_abbrev=False)
    for part in parts:
        if part == "-v":
            parser.add_argument(part, type=whole_number, default=ANY_VERSION, metavar="version")
        elif part.startswith("-"):
            parser.add_argument(part, action="store_true")
        else:
            parser.add_argument(part.rstrip("?"), nargs="?" if part.endswith("?") else None)
    return parser


def _stat_lines(stat: Any) -> Iterator[str]:
    yield f"cZxid = {stat.czxid:#x}"
    yield f"ctime = {_date(stat.ctime)}"
    yield f"mZxid = {stat.mzxid:#x}"
    yield f"mtime = {_date(stat.mtime)}"
    yield f"pZxid = {stat.pzxid:#x}"
    yield f"cversion = {stat.cversion}"
    yield f"dataVersion = {stat.version}"
    yield f"aclVersion = {stat.aversion}"
    yield f"ephemeralOwner = {stat.ephemeralOwner & (1 << 64) - 1:#x}"
    yield f"dataLength = {stat.dataLength}"
    yield f"numChildren = {stat.numChildren}"


def _date(time_ms: int) -> str:
    """The date as Java writes it."""
    return time.strftime("%a %b %d %H:%M:%S %Z %Y", time.localtime(time_ms / 1000))


def _permissions(bits: int) -> str:
    """The permissions in zkCli's order: create, delete, read, write, admin."""
    bit_of = {"c": 4, "d": 8, "r": 1, "w": 2, "a": 16}
    return "".join(letter for letter, bit in bit_of.items() if bits & bit)


def _refusal(error: Exception, path: str) -> str:
    for kind, text in _REFUSALS.items():
        if isinstance(error, kind):
            return text.format(path)
    return f"{type(error).__name__} for {path}"
