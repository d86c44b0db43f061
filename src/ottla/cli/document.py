"""Writes the options of every command into docs/use/commands.md: `python -m ottla.cli.document`.

The text between the marks of a command comes from its parser, so that it cannot be out of date;
the text outside the marks is written by hand and kept. `--check` only says whether the page is
as this module would write it.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from ottla.cli.command import COMMANDS, load_command
from ottla.cli.options import option_parser

PAGE = Path("docs/use/commands.md")
SHARED_OPTIONS = ("--help", "--version", "--log-level")


def options_table(name: str) -> str:
    """The options of a command as a table; those that every command has are left out."""
    parser = option_parser(load_command(name))
    rows = [
        f"| {_usage(action)} | {_meaning(action)} |"
        for action in parser._actions
        if not set(action.option_strings) & set(SHARED_OPTIONS)
    ]
    return "\n".join(("| option | meaning |", "|---|---|", *rows)) if rows else "No options."


def _usage(action: argparse.Action) -> str:
    """`--topic NAME`, with every spelling of the option."""
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    value = f" {metavar}" if metavar and action.nargs != "?" else f" [{metavar}]" if metavar else ""
    spellings = action.option_strings or [""]
    return ", ".join(f"`{(spelling + value).strip()}`" for spelling in spellings).replace(
        "|", "\\|"
    )


def _meaning(action: argparse.Action) -> str:
    return (action.help or "").replace("|", "\\|").replace("<", "&lt;")


def section(name: str) -> str:
    """The text between the marks of a command."""
    command = load_command(name)
    examples = "\n".join(command.examples)
    block = f"\n```\n{examples}\n```\n" if examples else ""
    return f"{command.help}\n{block}\n{options_table(name)}"


def render(page: str) -> str:
    """The page with fresh sections; a command that has none yet gets one at the end."""
    for name in COMMANDS:
        begin, end = f"<!-- {name}: from its parser -->", f"<!-- {name}: end -->"
        fresh = f"{begin}\n{section(name)}\n{end}"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        if found := pattern.search(page):
            page = page[: found.start()] + fresh + page[found.end() :]
        else:
            page = f"{page.rstrip()}\n\n## ottla {name}\n\n{fresh}\n"
    return page


def main(words: list[str]) -> int:
    """Write the page, or with --check compare it."""
    before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else "# Commands\n"
    after = render(before)
    if words == ["--check"]:
        if before != after:
            print(f"{PAGE} is out of date: run python -m ottla.cli.document", file=sys.stderr)
        return int(before != after)
    PAGE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
