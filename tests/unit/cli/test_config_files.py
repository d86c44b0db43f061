"""`ottla config write`: the shipped property files, for who has installed a package."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.config_files import SHIPPED

CONFIG = Path(__file__).parents[3] / "config"


def test_all_files_are_written_as_they_are_shipped(ottla, tmp_path, monkeypatch):
    """Into `config`, where the pages look for them."""
    monkeypatch.chdir(tmp_path)
    outcome = ottla("config", "write")
    names = {path.name for path in CONFIG.glob("*.properties")}

    assert outcome.out == f"wrote {len(names)} files to config\n"
    assert {path.name for path in (tmp_path / "config").iterdir()} == names
    assert {"server.properties", "zookeeper.properties", "connect-standalone.properties"} <= names
    for name in names:
        assert (tmp_path / "config" / name).read_bytes() == (CONFIG / name).read_bytes()


def test_file_that_is_there_is_left_as_it_is(ottla, tmp_path):
    """It may have been edited; a line says so, and the others are written."""
    own = tmp_path / "deep" / "etc"
    own.mkdir(parents=True)
    (own / "server.properties").write_text("broker.id=7\n")
    outcome = ottla("config", "write", own)

    assert outcome.status == 0
    assert outcome.err == f"{own / 'server.properties'} is there, and left as it is\n"
    assert (own / "server.properties").read_text() == "broker.id=7\n"
    assert f"wrote {len(list(SHIPPED.iterdir())) - 1} files to {own}" in outcome.out


def test_place_that_is_no_folder_is_told(ottla, tmp_path):
    """In one line."""
    (tmp_path / "config").touch()
    outcome = ottla("config", "write", tmp_path / "config")

    assert outcome.status == 1
    assert "is there, and is no folder" in outcome.err


@pytest.mark.parametrize(
    ("path", "is_shipped"),
    [
        ("config/zookeeper.properties", True),
        ("connect-standalone.properties", True),
        ("config/mine.properties", False),
        ("config/", False),
    ],
)
def test_page_that_names_a_missing_file_is_helped(ottla, tmp_path, monkeypatch, path, is_shipped):
    """The line says what writes a file that comes with Ottla, and nothing about others."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    outcome = ottla("broker", path)

    assert outcome.status == 1
    assert ("`ottla config write` writes it" in outcome.err) is is_shipped
