"""The page of a site: one file, which needs no network and tells what happened."""

from __future__ import annotations

import re

from ottla.site.ledger import Entry
from ottla.site.whole_site import PageState, ReaderRow, TopicRow, write_page


def flow(entries=(), refresh_s=0) -> PageState:
    return PageState(
        12.5,
        [TopicRow("page-views", 1200, 96.0), TopicRow("searches", 0, 0.0)],
        [ReaderRow("search-index", "posts", 90, 10, 0), ReaderRow("ranking", "clicks", 0, 0, 2)],
        [(6.0, "<b>spark</b> is killed")],
        entries,
        refresh_s,
    )


def test_page_of_a_running_site_reloads_itself(tmp_path):
    """Topics, readers, lag and incidents are there; what comes from outside is escaped."""
    write_page(flow(refresh_s=2), tmp_path / "site.html")
    text = (tmp_path / "site.html").read_text()

    assert '<meta http-equiv="refresh" content="2">' in text
    assert "running" in text
    assert "width: 90.0%" in text
    assert "&lt;b&gt;spark&lt;/b&gt; is killed" in text
    assert not re.search(r"(?:src|href)=|@import|url\(", text)


def test_page_of_an_ended_site_has_the_ledger(tmp_path):
    """It says whether the ledger balances."""
    right = Entry("search-index", "posts", 100, "documents", 100, 100, 0, 0)
    wrong = Entry("ranking", "clicks", 100, "clicks", 100, 99, 1, 0)
    write_page(flow([right]), tmp_path / "right.html")
    write_page(flow([right, wrong]), tmp_path / "wrong.html")

    assert "nothing lost" in (tmp_path / "right.html").read_text()
    assert "http-equiv" not in (tmp_path / "right.html").read_text()
    assert "does not balance" in (tmp_path / "wrong.html").read_text()
