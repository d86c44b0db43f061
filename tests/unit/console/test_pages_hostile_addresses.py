"""Words that mean harm in each part of the address of each page: no page breaks, none runs them."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from topics_of_records import START, send
from visitor import Visitor, visit

from ottla.console.page import ConsolePage
from ottla.console.pages import PAGES

WORDS = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "a\r\nset-cookie: x=1",
    "\0\x1b[2J\u202e",
    "//evil.example/",
    "9" * 5_000,
    "-1",
    "٣",
    "[" * 3_000,
)
NAMES = ("q", "from", "to", "sort", "id", "topic", "span", "part", "kind", "name", "partition")
NAMES += (
    "count",
    "before",
    "like",
    "pin",
    "path",
    "edit",
    "token",
    "value",
    "operation",
    "principal",
)
SEARCHES = {"/t/orders/records", "/sql"}
"""Their `q` is begun in a process of its own; the conditions and statements have tests."""


def addresses(page: ConsolePage, word: str) -> list[str]:
    """The page with the word as each part of its path, and in each field of a query."""
    text = quote(word, safe="")
    there = re.sub(r"\{\w+:number\}", "0", page.path).replace("{topic}", "orders")
    named = there + ("?id=billing" if page.path.startswith("/group") else "?x=1")
    found = [f"{named}&{name}={text}" for name in NAMES if not (name == "q" and there in SEARCHES)]
    return found + ([re.sub(r"\{[^}]*\}", text, page.path)] if "{" in page.path else [])


@pytest.mark.parametrize(
    "page",
    [
        page if page.path == "/group" else pytest.param(page, marks=pytest.mark.wide)
        for page in PAGES
    ],
    ids=lambda page: page.path,
)
def test_no_word_of_an_address_breaks_a_page_or_runs(group_broker, page):
    """The answer is a page, a refusal or another page of this console."""
    if "orders" not in group_broker.topics():
        group_broker.create_topic("orders", 1)
        send(group_broker, "orders", (0, START, b"k", b"{}", []))

    async def walk(visitor: Visitor) -> None:
        for word in WORDS:
            for address in addresses(page, word):
                answer = await visitor.get(address)
                assert answer.status < 500, address
                assert "<script>alert" not in answer.text, address
                assert "<img src=x" not in answer.text, address
                assert "x=1" not in answer.header("set-cookie"), address
                assert not answer.header("location").startswith(("//", "/\\", "http")), address

    visit(group_broker.bootstrap_servers, walk, report="/nowhere/report.html")
