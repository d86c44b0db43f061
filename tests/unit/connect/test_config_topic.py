"""What the records of the config topic mean."""

from __future__ import annotations

import pytest

from ottla.connect.config_topic import (
    ConfigTopic,
    SessionKey,
    commit_entry,
    connector_entry,
    logger_entry,
    removal,
    restart_entry,
    session_key_entry,
    target_entry,
    task_entries,
)
from ottla.connect.plugin_thread import TargetState
from ottla.record.consumer_record import ConsumerRecord, TimestampType

NAME = "a-b"
CONFIG = {"name": NAME, "x": "ž"}


class Log:
    """A config topic, and what it has told."""

    def __init__(self):
        self.changes = []
        self.topic = ConfigTopic(self.changes.append)

    def add(self, *entries):
        for key, value in entries:
            offset = self.topic.offset
            self.topic.apply(
                ConsumerRecord("c", 0, offset, 0, TimestampType.CREATE_TIME, key, value)
            )
        return self


@pytest.fixture
def log():
    return Log()


def test_bytes_are_kafkas():
    """Compact JSON without an envelope, in the order of the fields."""
    assert connector_entry("c", CONFIG) == (
        b"connector-c",
        '{"properties":{"name":"a-b","x":"ž"}}'.encode(),
    )
    assert commit_entry("c", 2) == (b"commit-c", b'{"tasks":2}')
    assert target_entry("c", TargetState.STOPPED)[1] == b'{"state":"PAUSED","state.v2":"STOPPED"}'
    assert restart_entry("c", True, False)[1] == b'{"include-tasks":true,"only-failed":false}'
    assert logger_entry("a.b", "DEBUG") == (b"logger-cluster-a.b", b'{"level":"DEBUG"}')
    assert session_key_entry(SessionKey(b"k", "HmacSHA256", 5)) == (
        b"session-key",
        b'{"key":"aw==","algorithm":"HmacSHA256","creation-timestamp":5}',
    )


def test_tasks_count_after_their_commit(log):
    """A name may have dashes; the number is the last part."""
    log.add(connector_entry(NAME, CONFIG), *task_entries(NAME, [{"n": "0"}, {"n": "1"}]))
    assert log.topic.state.tasks[NAME] == []
    log.add(commit_entry(NAME, 2))
    assert log.topic.state.tasks[NAME] == [{"n": "0"}, {"n": "1"}]
    assert log.topic.offset == 4
    assert [change.kind for change in log.changes] == ["connector", "tasks"]


def test_commit_without_all_tasks_is_inconsistent(log):
    """The connector is asked for them again (KAFKA-16838)."""
    log.add(connector_entry(NAME, CONFIG), task_entries(NAME, [{}])[0], commit_entry(NAME, 2))
    assert (log.topic.state.tasks[NAME], log.topic.inconsistent) == ([], {NAME})


def test_tasks_of_a_deleted_connector_do_not_come_back(log):
    """Tombstones for them too; a commit for nobody drops what was kept aside (KAFKA-17719)."""
    log.add(connector_entry(NAME, CONFIG), *task_entries(NAME, [{}]), commit_entry(NAME, 1))
    log.add(*removal(NAME, 1))
    log.add(*task_entries(NAME, [{"old": "1"}]), commit_entry(NAME, 1))
    log.add(connector_entry(NAME, CONFIG), commit_entry(NAME, 0))

    assert log.topic.state.tasks[NAME] == []
    assert "removed" in [change.kind for change in log.changes]


def test_target_states(log):
    """The new field counts before the old one; what is unknown changes nothing."""
    log.add(connector_entry(NAME, CONFIG), target_entry(NAME, TargetState.STOPPED))
    assert log.topic.state.target(NAME) is TargetState.STOPPED
    log.add((b"target-state-a-b", b'{"state":"PAUSED"}'))
    assert log.topic.state.target(NAME) is TargetState.PAUSED
    log.add((b"target-state-a-b", b'{"state":"DANCING"}'))
    assert log.topic.state.target(NAME) is TargetState.PAUSED
    log.add((b"target-state-a-b", None))
    assert log.topic.state.target(NAME) is TargetState.STARTED


def test_session_key_and_restarts(log):
    """Known as they were written."""
    key = SessionKey(b"secret", "HmacSHA256", 7)
    log.add(session_key_entry(key), restart_entry(NAME, True, True))
    assert log.topic.session_key == key
    assert log.changes[-1] == ("restart", NAME, (True, True))


def test_record_that_is_no_json_changes_nothing(log):
    """A record that is no JSON, or has an unknown key, changes nothing."""
    log.add((b"connector-x", b"{"), (b"other", b"{}"))
    assert (log.topic.state.connectors, log.topic.offset) == ({}, 2)


@pytest.mark.parametrize("value", [b'{"level":"LOUD"}', b'{"level":5}', b'"DEBUG"', b"{}", None])
def test_level_that_is_not_known_changes_nothing(log, value):
    """An unknown level and a tombstone change nothing; a known level counts in any case."""
    log.add((b"logger-cluster-a.b", value))
    assert not log.changes
    log.add(logger_entry("a.b", "debug"))
    assert log.changes == [("level", "a.b", "debug")]
