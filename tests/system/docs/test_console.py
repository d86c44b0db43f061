"""docs/start/console.md: its command starts a broker; its conditions and statements are some."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
from page import ROOT, Page

from ottla.console.conditions import condition_of
from ottla.console.record_source import FoundRecord
from ottla.console.sql_statement import statement_of

PAGE = Page("docs/start/console.md")
VALUE = (
    b'{"status": "error", "amount": 150, "items": [{"sku": "A-1"}], "user": "u3",'
    b' "note": "timeout"}'
)


def test_first_command_starts_a_broker_to_look_at(tmp_path: Path) -> None:
    """On other ports, and with other data, than the page's."""
    (command, shown) = PAGE.conversations()[0]
    settings = ("listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path}")
    more = [word for each in settings for word in ("--override", each)]
    words = [sys.executable, "-m", *shlex.split(command), *more]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as broker:
        assert broker.stdout is not None
        try:
            line = next(each for each in broker.stdout if each.startswith("The console"))
        finally:
            broker.terminate()
    assert [re.sub(r":\d+|token=.*", "", line.strip())] == [
        re.sub(r":\d+|token=.*", "", each) for each in shown
    ]


def test_conditions_of_the_page_are_some() -> None:
    """Each is read as a condition; all but the narrow ones hold for a record that they describe."""
    lines = PAGE.blocks_in("sql")[0].splitlines()
    record = FoundRecord(2, 88_120, 5_000, b"k2", VALUE * 20, (("source", b"web"),))
    for line in lines:
        condition = condition_of(line, 6_000)
        assert not condition.is_words
        whole = record if "size" in line or "contains" in line else record._replace(value=VALUE)
        assert condition.test(whole), line


def test_statements_of_the_page_are_some() -> None:
    """DuckDB parses each, and it reads the topics that it names."""
    lines = PAGE.blocks_in("sql")[1].splitlines()
    with duckdb.connect() as connection:

        def parse(text: str) -> dict[str, Any]:
            rows = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
            found: dict[str, Any] = json.loads(rows[0][0])
            return found

        read = [{*statement_of(each, parse, 5_000).tables} for each in lines]
    assert read == [{"orders"}, {"orders", "paid"}, {"shop.orders"}]


def test_pictures_of_the_page_are_there() -> None:
    """And are made by release/pictures.py."""
    names = re.findall(r"\]\(\.\./pictures/([\w.-]+)\)", PAGE.text)
    maker = (ROOT / "release" / "pictures.py").read_text(encoding="utf-8")

    assert len(names) == 2
    for name in names:
        assert (ROOT / "docs" / "pictures" / name).exists()
        assert f'"{name.removesuffix(".png")}"' in maker
