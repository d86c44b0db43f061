"""The bytes that workers exchange in their group."""

from __future__ import annotations

import pytest

from ottla.connect.connect_protocol import CONNECTOR, Assignment, WorkerState
from ottla.connect.worker_task import TaskId
from ottla.errors import KafkaError

WORK = frozenset({TaskId("a", CONNECTOR), TaskId("a", 0), TaskId("b", 1)})


def test_state_in_version_0_by_hand():
    """Version, URL, offset of the config topic."""
    state = WorkerState("http://h:1/", 5)

    assert state.encode(0) == b"\0\0" + b"\0\x0bhttp://h:1/" + b"\0\0\0\0\0\0\0\5"
    assert WorkerState.decode(state.encode(0)) == state


@pytest.mark.parametrize("version", [1, 2])
def test_state_says_what_runs(version):
    """Since version 1, as an assignment within."""
    state = WorkerState("http://h:1/", 5, WORK, 300)
    assert WorkerState.decode(state.encode(version)) == state


def test_assignment_in_version_0_by_hand():
    """Version, error, leader, its URL, offset, and connectors with their tasks."""
    found = Assignment(0, "m", "u", 7, frozenset({TaskId("a", CONNECTOR), TaskId("a", 0)}))

    assert found.encode(0) == (
        b"\0\0\0\0" + b"\0\1m" + b"\0\1u" + b"\0\0\0\0\0\0\0\7"
        b"\0\0\0\1" + b"\0\1a" + b"\0\0\0\2" + b"\xff\xff\xff\xff" + b"\0\0\0\0"
    )
    assert Assignment.decode(found.encode(0)) == found


def test_assignment_says_what_goes_and_when_to_join_again():
    """Since version 1; what is missing at the end has its default."""
    found = Assignment(1, "m", "u", 7, WORK, frozenset({TaskId("c", 2)}), 300)

    assert Assignment.decode(found.encode(2)) == found
    assert Assignment.decode(found.encode(2)[:-4]).delay_ms == 0
    assert Assignment.decode(b"") == Assignment()


def test_null_arrays_are_empty():
    """Java writes -1 for no work at all."""
    data = Assignment(0, "m", "u", 7).encode(1)[:-12] + b"\xff\xff\xff\xff" * 2 + b"\0\0\0\0"
    assert Assignment.decode(data) == Assignment(0, "m", "u", 7)


def test_short_message_is_an_error():
    """Not an endless loop, nor a wrong assignment."""
    data = Assignment(0, "m", "u", 7, WORK).encode(1)
    with pytest.raises(KafkaError, match="ends too early"):
        Assignment.decode(data[:20])
