"""`ottla config write`: the property files that pages name, for who has installed a package.

A checkout and the release archive have them in `config`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ottla.cli.terminal import Terminal

SHIPPED: Final = Path(__file__).parents[1] / "config" / "files"
FOLDER: Final = "config"


class ConfigCommand(Command):
    """Writes the files into a folder; one that is there already is left as it is."""

    name = "config"
    examples = ("ottla config write", "ottla config write /etc/ottla")

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("action", metavar="ACTION", choices=("write",), help="write.")
        parser.add_argument(
            "folder", metavar="DIR", nargs="?", default=FOLDER, help=f"Where. Default: {FOLDER}."
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        folder = Path(arguments.folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise CommandError(f"{folder} is there, and is no folder") from error
        written = 0
        for file in sorted(SHIPPED.glob("*.properties")):
            try:
                with (folder / file.name).open("x", encoding="utf-8") as copy:
                    copy.write(file.read_text(encoding="utf-8"))
            except FileExistsError:
                terminal.note(f"{folder / file.name} is there, and left as it is")
            else:
                written += 1
        terminal.print(f"wrote {written} files to {folder}")
        return 0


def hint(path: str) -> str:
    """How to get a file that is not there, if it is one of these."""
    name = path.rpartition("/")[2]
    return "; `ottla config write` writes it" if (SHIPPED / name).is_file() and name else ""
