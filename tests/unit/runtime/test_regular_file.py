"""Files that are read as a whole: none that keeps its reader waiting, and none without an end."""

from __future__ import annotations

import os

import pytest

from ottla.runtime import regular_file
from ottla.runtime.regular_file import read_regular


def test_content_of_a_file_is_read_through_links(tmp_path):
    """Secrets of containers are behind two of them."""
    (tmp_path / "data").write_bytes(b"\0key")
    (tmp_path / "link").symlink_to("data")

    assert read_regular(tmp_path / "link") == b"\0key"
    assert read_regular(str(tmp_path / "data")) == b"\0key"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (os.mkfifo, "is no regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "is no regular file"),
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.write_bytes(bytes(1001)), "has more than 1000 bytes"),
        (lambda path: None, "No such file"),
    ],
    ids=["pipe", "device", "directory", "large", "none"],
)
def test_what_is_no_file_is_refused_at_once(tmp_path, monkeypatch, make, reason):
    """A loop that waited for a pipe would serve nobody."""
    monkeypatch.setattr(regular_file, "MOST_BYTES", 1000)
    make(tmp_path / "file")
    before = len(os.listdir("/proc/self/fd"))

    with pytest.raises(OSError, match=reason):
        read_regular(tmp_path / "file")
    assert len(os.listdir("/proc/self/fd")) == before
