"""A folder is listed once for all of its logs, and each finds what it would find by itself."""

from __future__ import annotations

import glob
import os
from itertools import product

import pytest
from contexts import LoneContext

from ottla.connect.connectors.log_folder import LogFolderSource, RotatedLog
from ottla.connect.connectors.log_listing import COMPRESSED, LogListing, log_name, paths_of

BASES = ("app", "app.log", "app-err.log", "application.log", "a", "caf\udce9.log")
MORE = ("", ".1", ".12", "-20200203", ".old", "~", ".1.gz", ".gz", "-x.log", "2", ".2020-01-01.log")


def is_of(name, log):
    """Whether a file has the name that a log had, with more to it, and is still text."""
    if name.endswith(COMPRESSED):
        return False
    behind = name[len(log) :]
    return os.path.basename(log_name(name)) == log or (
        name.startswith(log) and (not behind or behind[0] in ".-_~")
    )


@pytest.mark.parametrize("log", [*BASES, "none.log", "zz"])
def test_a_log_finds_what_has_its_name_and_more(tmp_path, log):
    """And files of any name by their numbers."""
    names = {f"{base}{more}" for base, more in product(BASES, MORE)}
    for name in names:
        (tmp_path / name).touch()
    numbers = {os.stat(tmp_path / name).st_ino: name for name in sorted(names)[::7]}
    found = LogListing(str(tmp_path)).of({log}, [*numbers, None])

    assert found == {
        name: is_of(name, log) for name in names if is_of(name, log) or name in numbers.values()
    }


def test_a_folder_that_is_gone_has_nothing(tmp_path):
    """No error: it may come again."""
    assert LogListing(str(tmp_path / "gone")).of({"app.log"}, [1]) == {}


def test_a_folder_of_many_logs_is_listed_once_a_look(tmp_path, monkeypatch):
    """It was listed for each of them: a look at a thousand took seconds."""
    for number in range(50):
        (tmp_path / f"host-{number}.log").write_text(f"{number}\n")
    settings = {"path": f"{tmp_path}/*.log", "topic": "t", "scan.interval.ms": "1"}
    source = LogFolderSource(LogFolderSource.Settings.parse(settings), LoneContext({}))
    source.start()
    made = []
    monkeypatch.setattr(
        "ottla.connect.connectors.log_folder.LogListing",
        lambda folder: made.append(folder) or LogListing(folder),
    )
    assert len(source.poll()) == 50
    assert source.poll() == []
    assert made == [str(tmp_path)] * 2
    source.stop()


def test_a_copy_that_is_younger_than_the_listing_is_found(tmp_path, monkeypatch):
    """Another log of the folder was looked for before the file was copied and emptied."""
    paths = [tmp_path / f"{name}.log" for name in "ab"]
    for path in paths:
        path.write_text("1\n2\n")
    settings = {"path": f"{tmp_path}/*.log", "topic": "t", "scan.interval.ms": "1"}
    source = LogFolderSource(LogFolderSource.Settings.parse(settings), LoneContext({}))
    source.start()
    assert len(source.poll()) == 4
    find = RotatedLog._find

    def rotating(log, *arguments):
        found = find(log, *arguments)
        if log.name == str(paths[0]) and not (copy := tmp_path / "b.log.1").exists():
            copy.write_text("1\n2\n3\n")
            os.truncate(paths[1], 0)
        return found

    monkeypatch.setattr(RotatedLog, "_find", rotating)
    found = [record.value for _ in range(4) for record in source.poll()]
    paths[1].write_text("4\n")
    found += [record.value for _ in range(4) for record in source.poll()]
    assert found == ["3", "4"]
    source.stop()


PATTERNS = (
    *("*.log", "*/*.log", "a/*.log", "nowhere/*", "**", "**/*.log", "a/**", "a/**/*.log"),
    *("*/**/x.log", "**/b/*.log", "**/b/**/*.log", "a/**/b/**", "**/.h/*", "**.log", "a/**b/*.log"),
    *("**/", "./**/*.log", "a/../**/x.log", "**/[[]z]/*"),
)


@pytest.mark.parametrize("is_absolute", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_files_of_a_pattern_are_those_of_glob(tmp_path, monkeypatch, pattern, is_absolute):
    """By the same paths, where no link leads to a folder."""
    for folder in ("", "a", "a/b", "a/b/c", "a/b/b", "d", ".h", "a/.h", "[z]"):
        (tmp_path / folder).mkdir(exist_ok=True, parents=True)
        for name in ("x.log", "y.log", ".hidden.log", "z"):
            (tmp_path / folder / name).touch()
    monkeypatch.chdir(tmp_path)
    pattern = f"{glob.escape(str(tmp_path))}/{pattern}" if is_absolute else pattern
    expected = {path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)}

    assert {path for path in paths_of(pattern) if os.path.isfile(path)} == expected


def test_a_folder_is_entered_once_whatever_links_lead_to_it(tmp_path):
    """Two links to their own folder are 2**40 ways for glob."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x.log").touch()
    (tmp_path / "loop").symlink_to("loop")
    for name, leads in (("here", "."), ("again", "."), ("a/up", ".."), ("a/b/top", "../..")):
        (tmp_path / name).symlink_to(leads)
    found = [path for path in paths_of(f"{tmp_path}/**/*.log") if path.endswith(".log")]

    assert found == [str(tmp_path / "a" / "b" / "x.log")]
    assert len(list(paths_of(f"{tmp_path}/**/a/**/*.log"))) > 0
