"""DumpLogSegments, and what it says when it finds a fault."""

from __future__ import annotations

from contextlib import suppress

COMPLAINTS = ("Found timestamp mismatch", "Mismatches in", "Non-consecutive", "out of order")


def logs(folder):
    """The segments of a partition that are not on their way in or out."""
    return sorted(folder.glob("*.log"))


def size_of(folder):
    """The bytes of its segments; the cleaner may remove some of them meanwhile."""
    size = 0
    for path in logs(folder):
        with suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


def dump(tools, files, *arguments):
    """What the tool prints of the files; it must not complain of any."""
    assert files
    shown = tools.run("dump-log", "--files", ",".join(map(str, sorted(files))), *arguments)
    assert not [words for words in COMPLAINTS if words in shown], shown
    return shown


def assert_sane(tools, files):
    """Each index passes, but for those of a segment that is too small to have an entry."""
    checked = dump(tools, files, "--index-sanity-check")
    assert checked.count("passed sanity check") + checked.count("is empty") == len(files)
    assert "passed sanity check" in checked
