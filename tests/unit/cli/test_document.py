"""docs/use/commands.md is what the parsers say."""

from pathlib import Path

import pytest

from ottla.cli.command import COMMANDS, load_command
from ottla.cli.document import SHARED_OPTIONS, options_table, render
from ottla.cli.options import option_parser

PAGE = (Path(__file__).parents[3] / "docs" / "use" / "commands.md").read_text(encoding="utf-8")


def test_page_is_up_to_date():
    """Rendering the page again changes nothing; else: python -m ottla.cli.document."""
    assert render(PAGE) == PAGE


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_is_documented(name):
    """Each spelling of each option stands in the section of its command."""
    section = PAGE.partition(f"<!-- {name}: from its parser -->")[2].partition(": end -->")[0]

    assert section
    for action in option_parser(load_command(name))._actions:
        for option in set(action.option_strings) - {*SHARED_OPTIONS, "-h"}:
            assert f"`{option}" in section, option
            assert action.help


@pytest.mark.parametrize("option", SHARED_OPTIONS)
def test_options_of_all_commands_are_documented_once(option):
    """What every command has stands at the top of the page."""
    assert f"`{option}`" in PAGE.partition("## ottla broker")[0]


def test_handwritten_text_is_kept():
    """Only what stands between the marks is written anew."""
    page = "before\n<!-- version: from its parser -->yesterday<!-- version: end -->\nbehind\n"

    fresh = render(page)

    assert fresh.startswith("before\n")
    assert "yesterday" not in fresh
    assert "\nbehind\n" in fresh


def test_table_escapes_what_would_break_it():
    """A bar inside a cell is escaped."""
    rows = options_table("broker-api-versions").splitlines()[2:]

    assert all(row.replace("\\|", "").count("|") == 3 for row in rows)
