"""`ottla site`: what it refuses before anything is started, and how it ends."""

from __future__ import annotations

import lzma

import pytest

from ottla.cli.main import main
from ottla.cli.site import conclude
from ottla.cli.terminal import Terminal
from ottla.site.ledger import Entry


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--log", "no-such.log"], "--log no-such.log: there is no such file"),
        (["--log", "x", "--rate", "5"], "--rate goes with made-up activity, not with --log"),
        (["--speed", "5"], "--speed goes with --log; made-up activity has a --rate"),
        (["--duration", "0"], "--duration takes a number from 1 on, not '0'"),
        (["--cluster", "2"], "--cluster 2: must be 1 or 3"),
    ],
)
def test_contradictions_are_refused(words, said, capsys):
    """Each with what is wrong and why."""
    assert main(["site", *words]) != 0
    assert said in capsys.readouterr().err


def test_log_that_cannot_be_read_is_refused(tmp_path, capsys):
    """Before anything is started."""
    log = tmp_path / "access.log.xz"
    log.write_bytes(lzma.compress(b"line"))

    assert main(["site", "--log", str(log)]) != 0
    assert "is compressed with xz; gzip and zstd are read" in capsys.readouterr().err


def test_folder_with_other_files_is_left_alone(tmp_path, capsys):
    """Only what a former run left in it is replaced."""
    (tmp_path / "thesis.txt").write_text("mine")

    assert main(["site", "--output", str(tmp_path)]) != 0
    assert "has other files in it" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").exists()


def test_exit_status_says_whether_the_ledger_balances(tmp_path, capsys):
    """One lost record is enough."""
    right = Entry("ranking", "clicks", 100, "clicks", 100, 100, 0, 0)
    wrong = Entry("warehouse", "page-views", 50, "rows", 50, 49, 1, 0)

    assert conclude([right], tmp_path / "site.html", Terminal()) == 0
    assert conclude([right, wrong], tmp_path / "site.html", Terminal()) == 1
    assert "site: 2 readers, 1 lost, 0 doubled" in capsys.readouterr().out
