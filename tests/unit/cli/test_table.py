"""Rows as tables and as JSON."""

import json
from io import StringIO

import pytest

from ottla.cli.table import show_rows
from ottla.cli.terminal import Terminal

ROWS = [
    {"topic": "a\x1b[31m", "broker": 1001, "bytes": 1234567, "moving": False, "isr": [1]},
    {"topic": "b", "broker": 2, "bytes": None, "moving": True, "isr": []},
]


class Screen(StringIO):
    """Standard output on a screen."""

    def isatty(self) -> bool:
        return True


def printed(format: str, out: StringIO, rows=ROWS) -> str:
    show_rows(rows, format, Terminal(out=out, err=StringIO()))
    return out.getvalue()


def test_table_is_aligned_and_gives_no_orders_to_a_terminal():
    """Counts have commas, ids have none, and lists are for JSON alone."""
    assert printed("table", StringIO()).splitlines() == [
        "TOPIC      BROKER      BYTES  MOVING",
        "a\\x1b[31m    1001  1,234,567      no",
        "b               2          -     yes",
    ]


def test_long_text_is_wrapped_to_the_screen(monkeypatch):
    """What a setting does stays in its column on a screen; a pipe gets whole lines."""
    rows = [{"setting": "a", "does": "says in several words what is done"}]
    monkeypatch.setenv("COLUMNS", "36")
    monkeypatch.setenv("NO_COLOR", "1")

    assert printed("table", Screen(), rows).splitlines() == [
        "SETTING  DOES",
        "a        says in several words what",
        "         is done",
    ]
    assert printed("table", StringIO(), rows).splitlines()[1:] == [
        "a        says in several words what is done"
    ]
    monkeypatch.setenv("COLUMNS", "20")
    assert len(printed("table", Screen(), rows).splitlines()) == 2


def test_json_has_everything_on_one_line():
    """For programs, which read it from a pipe; a person gets it indented."""
    line = printed("json", StringIO())

    assert (json.loads(line), line.count("\n")) == (ROWS, 1)
    assert json.loads(printed("json", Screen())) == ROWS
    assert printed("json", Screen()).count("\n") > len(ROWS)


def test_colour_is_for_terminals_without_no_color(monkeypatch):
    """NO_COLOR is the field's word for it (no-color.org)."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1m" in printed("table", Screen())
    assert "\x1b[1m" not in printed("table", StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1m" not in printed("table", Screen())


@pytest.mark.parametrize(("format", "text"), [("table", ""), ("json", "[]\n")])
def test_nothing_is_an_empty_list(format, text):
    """No rows are an empty list, so that JSON stays JSON."""
    assert printed(format, StringIO(), rows=[]) == text
