"""Temporary folders go with their owners."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile

import pytest

from ottla.runtime.own_folder import OWNER, OwnFolder, own_folder

PREFIX = "of-a-test-"
OWNING = f"""
import sys, tempfile
from ottla.runtime.own_folder import OwnFolder
tempfile.tempdir = sys.argv[1]
folder = OwnFolder("{PREFIX}")
(folder.path / "data").write_text("1")
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The place of temporary folders."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_folder_is_there_for_the_block(temporary):
    """With all that was put into it."""
    with own_folder(PREFIX) as path:
        (path / "data").write_text("1")
        assert [path] == list(temporary.iterdir())
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("call", ["write", "rename"])
def test_folder_that_cannot_be_claimed_is_removed(temporary, monkeypatch, call):
    """On a disk that is full, say: no later start would know that nobody owns it."""
    open_before = len(os.listdir("/dev/fd"))

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space left"):
        OwnFolder(PREFIX)
    assert not list(temporary.iterdir())
    assert len(os.listdir("/dev/fd")) == open_before


def test_folder_of_a_killed_owner_is_removed(temporary):
    """Those of an owner that lives, and what is no such folder, stay."""
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / OWNER).write_text("1")
    (temporary / f"{PREFIX}link").symlink_to(elsewhere)
    (temporary / f"{PREFIX}foreign").mkdir()
    (temporary / f"{PREFIX}file").write_text("")
    before = set(temporary.iterdir())
    command = [sys.executable, "-c", OWNING, str(temporary)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        place = owner.stdout.readline().strip()
        OwnFolder(PREFIX).close()
        assert {str(each) for each in set(temporary.iterdir()) - before} == {place}
        owner.kill()
    OwnFolder(PREFIX).close()
    assert set(temporary.iterdir()) == before
    assert (elsewhere / OWNER).exists()
