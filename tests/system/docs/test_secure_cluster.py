"""docs/start/secure-cluster.md as it stands: three brokers and users, other passwords and keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from page import Page, PageReader

PORTS = ("2181", "9091", "9092", "9093")
LIMIT_S = 900


@pytest.fixture
def reader(java: None, tmp_path: Path) -> Iterator[PageReader]:
    """Whose servers end with the test."""
    somebody = PageReader(tmp_path, *PORTS)
    yield somebody
    somebody.shell.close()


@pytest.mark.wide
@pytest.mark.timeout(LIMIT_S)
def test_page_on_a_secure_cluster_is_true(reader: PageReader) -> None:
    """From an empty directory to its end; each command prints what the page shows."""
    do = {"properties": reader.write, "console": reader.type}
    for language, text in Page("docs/start/secure-cluster.md").blocks():
        do[language](text)
