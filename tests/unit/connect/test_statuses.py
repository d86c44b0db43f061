"""Statuses that all workers of a group see."""

from __future__ import annotations

import pytest

from ottla.connect.plugin_thread import State
from ottla.connect.statuses import Status, TopicStatuses
from ottla.connect.worker_task import TaskId
from ottla.record.consumer_record import ConsumerRecord, TimestampType

TASK = TaskId("a-b", 0)


@pytest.fixture
def written():
    return []


@pytest.fixture
def statuses(written):
    return TopicStatuses(written.extend, lambda: 9)


def test_bytes_are_kafkas(statuses, written):
    """Absent values are null; topics have the time at which they were seen."""
    statuses.put_connector("a-b", Status(State.RUNNING, "h:1", 3))
    statuses.put_task(TASK, Status(State.FAILED, "h:1", 3, "trace"))
    statuses.add_topic(TASK, "t")
    statuses.add_topic(TASK, "t")

    assert written == [
        (
            b"status-connector-a-b",
            b'{"state":"RUNNING","trace":null,"worker_id":"h:1","generation":3,"version":null}',
        ),
        (
            b"status-task-a-b-0",
            b'{"state":"FAILED","trace":"trace","worker_id":"h:1","generation":3,"version":null}',
        ),
        (
            b"status-topic-t:connector-a-b",
            b'{"topic":{"name":"t","connector":"a-b","task":0,"discoverTimestamp":9}}',
        ),
    ]


def test_what_is_read_is_known(statuses, written):
    """All that one worker writes, another one reads."""
    other = TopicStatuses(lambda entries: None, lambda: 9)
    statuses.put_connector("a-b", Status(State.PAUSED, "h:1", 3))
    statuses.put_task(TASK, Status(State.RUNNING, "h:1", 3))
    statuses.add_topic(TASK, "t")
    for key, value in written:
        other.apply(ConsumerRecord("s", 0, 0, 0, TimestampType.CREATE_TIME, key, value))

    assert other.connectors == statuses.connectors
    assert other.tasks == statuses.tasks
    assert set(other.topics["a-b"]) == {"t"}
    written.clear()
    statuses.remove_connector("a-b")
    for key, value in written:
        other.apply(ConsumerRecord("s", 0, 0, 0, TimestampType.CREATE_TIME, key, value))
    assert (other.connectors, other.tasks, other.topics) == ({}, {}, {"a-b": {}})


def test_late_word_of_another_worker_is_answered():
    """It came behind that of the worker which has the task now, which says it again."""
    log: list[tuple[bytes, bytes]] = []
    before, now = (TopicStatuses(log.extend, lambda: 9) for _ in range(2))
    before.put_task(TASK, Status(State.RUNNING, "h:1", 4))
    before.put_task(TASK, Status(State.UNASSIGNED, "h:1", 4))
    late = log.pop()
    now.put_task(TASK, Status(State.RUNNING, "h:2", 5))
    log.append(late)
    read = 0
    while read < len(log):
        for each in (before, now):
            each.apply(ConsumerRecord("s", 0, read, 0, TimestampType.CREATE_TIME, *log[read]))
        read += 1

    assert before.tasks[TASK] == now.tasks[TASK] == Status(State.RUNNING, "h:2", 5)
    assert b'"worker_id":"h:2"' in log[-1][1]
    assert len(log) == 4


def test_worker_that_was_left_behind_hides_nothing(statuses):
    """Its last words count only over its own, or those of an older generation."""
    statuses.put_task(TASK, Status(State.RUNNING, "new", 5))
    statuses.put_task(TASK, Status(State.UNASSIGNED, "old", 5))
    assert statuses.tasks[TASK].worker_id == "new"
    statuses.put_task(TASK, Status(State.FAILED, "old", 6))
    assert statuses.tasks[TASK].worker_id == "old"


ODD = [b"", b"\xff", b"5", b"[]", b"{", b'{"state":7}', b'{"topic":5}', b'{"state":"NAPPING"}']
KEYS = [
    b"status-task-a-x",
    b"status-task-",
    b"status-connector-a",
    b"status-topic-t",
    b"\xff",
    None,
]


@pytest.mark.parametrize("value", [*ODD, None])
@pytest.mark.parametrize("key", KEYS)
def test_what_is_no_status_is_passed_over(statuses, caplog, key, value):
    """It changes nothing, and the log says which record it was."""
    statuses.apply(ConsumerRecord("s", 1, 7, 0, TimestampType.CREATE_TIME, key, value))

    assert not statuses.connectors
    assert not statuses.tasks
    if value is not None and key is not None:
        assert "record 7 of s-1 is no status, and passed over" in caplog.text
