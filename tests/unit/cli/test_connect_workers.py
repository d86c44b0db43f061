"""`ottla connect-standalone` as the quick start types it."""

from __future__ import annotations

import json
import signal

import pytest

from ottla.cli.command_error import CommandError
from ottla.cli.connect import read_connector
from ottla.connect.connect_worker import ConnectWorker


def test_json_files_of_connectors(tmp_path):
    """A flat object, or what POST /connectors takes."""
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"name": "c", "tasks.max": 1}))
    assert read_connector(str(path)) == ({"name": "c", "tasks.max": "1"}, None)
    path.write_text(json.dumps({"name": "c", "config": {"a": "b"}, "initial_state": "PAUSED"}))
    assert read_connector(str(path)) == ({"name": "c", "a": "b"}, "PAUSED")


@pytest.mark.parametrize(
    "text",
    ["[]", "{", '{"name":"c","config":{},"initial_state":"ASLEEP"}', "[" * 100_000, "\ufeff{"],
    ids=len,
)
def test_wrong_files_are_named(tmp_path, text):
    """The error names the file and the reason."""
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(CommandError, match=r"c\.json"):
        read_connector(str(path))


def test_missing_files_are_named(tmp_path, ottla):
    """A line, and status 1."""
    outcome = ottla("connect-standalone", str(tmp_path / "none.properties"))
    assert outcome.status == 1
    assert "cannot read the property file" in outcome.err


def test_worker_without_its_settings(tmp_path, ottla):
    """The first that is missing is named."""
    path = tmp_path / "worker.properties"
    path.write_text("key.converter=JsonConverter\n")
    outcome = ottla("connect-standalone", str(path))
    assert outcome.status == 1
    assert "bootstrap.servers: must be set" in outcome.err


@pytest.mark.parametrize("kind", ["standalone", "distributed"])
def test_worker_whose_brokers_do_not_answer_ends_at_a_signal(tmp_path, ottla, monkeypatch, kind):
    """Its start waits for them a minute, and a supervisor may not."""

    def start(properties):
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("it went on")

    def end(number, frame):
        raise SystemExit(128 + number)

    (tmp_path / "worker.properties").write_text("group.id=g\n")
    monkeypatch.setattr(ConnectWorker, kind, start)
    before = signal.signal(signal.SIGTERM, end)
    try:
        outcome = ottla(f"connect-{kind}", tmp_path / "worker.properties")
    finally:
        signal.signal(signal.SIGTERM, before)

    assert outcome.status == 128 + signal.SIGTERM
