"""The examples of docs/use/faststream.md, as they stand there."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from page import Page

NAMES = (
    "billing.py",
    "test_billing.py",
    "dead_letters.py",
    "test_dead_letters.py",
    "test_worlds.py",
)


@pytest.mark.wide
def test_tests_of_the_page_pass(tmp_path):
    """An app on FastStream meets lost answers, dead letters, and instances that die."""
    pytest.importorskip("faststream", reason="faststream is not installed")
    for name, block in zip(NAMES, Page("docs/use/faststream.md").blocks_in("python"), strict=True):
        (tmp_path / name).write_text(block, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-5_000:]
    assert "5 passed" in done.stdout
