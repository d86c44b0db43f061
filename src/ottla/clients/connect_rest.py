"""A client of Kafka Connect's REST interface, for commands and pages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.json_answers import OddAnswerError, is_shallow, json_object, part, text_of
from ottla.runtime.clock import SystemClock
from ottla.runtime.http_calls import SUCCESS, HttpRequest, exchange, shown_url
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LIMIT_S: Final = 30
LARGEST_ANSWER: Final = 16 * 1024 * 1024
LONGEST_MESSAGE: Final = 10_000
DEEPEST: Final = 32
"""How deep the offsets of a connector may be nested: a page is made of them by recursion."""


class ConnectRefusedError(Exception):
    """A worker refuses a request; the text is the worker's own, `status` that of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class ConnectRest:
    """Asks one worker; any worker of a cluster answers for all of them."""

    def __init__(self, url: str, limit_s: float = LIMIT_S) -> None:
        self._address = url.rstrip("/")
        self.url = shown_url(self._address)
        """The address without the name and password that it may have."""
        self._limit_s = limit_s

    def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """The worker's answer to a request, {} for an empty one; blocks for `limit_s` at most.

        Raises ConnectRefusedError where the worker refuses, OSError where none answers, and
        OddAnswerError where the answer is no JSON object.
        """
        data = None if body is None else json.dumps(body).encode()
        request = HttpRequest(self._address + path, method, data)
        answer = exchange(SystemClock(), request, LARGEST_ANSWER, self._limit_s)
        if answer.status not in SUCCESS:
            raise ConnectRefusedError(message_of(answer.body, answer.status), answer.status)
        return json_object(answer.body)


def message_of(content: bytes, status: int) -> str:
    """The message in the answer of a worker that refuses."""
    try:
        return str(json.loads(content)["message"])[:LONGEST_MESSAGE]
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"the worker answered with status {status}"


class TaskStatus(NamedTuple):
    """A task of a connector; the trace is that of its failure."""

    id: int
    state: str
    worker: str
    trace: str


class ConnectorStatus(NamedTuple):
    """A connector with its tasks; the trace is that of its own failure."""

    type: str
    """`source` or `sink`."""
    state: str
    worker: str
    trace: str
    tasks: Sequence[TaskStatus]


def status_of(found: Mapping[str, Any]) -> ConnectorStatus:
    """The status of a connector; OddAnswerError where it has another form than Connect's."""
    own = part(found, "connector", dict)
    tasks = [_task_of(part({"task": each}, "task", dict)) for each in part(found, "tasks", list)]
    state = text_of(own, "state") or "UNKNOWN"
    worker, trace = text_of(own, "worker_id"), text_of(own, "trace")
    return ConnectorStatus(text_of(found, "type"), state, worker, trace, tasks)


def _task_of(found: Mapping[str, Any]) -> TaskStatus:
    state = text_of(found, "state") or "UNKNOWN"
    worker, trace = text_of(found, "worker_id"), text_of(found, "trace")
    return TaskStatus(part(found, "id", int), state, worker, trace)


def offsets_of(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The offsets of a connector: the partition and the offset of each, which are any JSON.

    OddAnswerError where they have another form, or are nested deeper than `DEEPEST`.
    """
    offsets = [part({"offset": each}, "offset", dict) for each in part(found, "offsets", list)]
    if not is_shallow(offsets, DEEPEST):
        raise OddAnswerError(f"offsets are nested deeper than {DEEPEST} levels")
    return [{name: each.get(name) for name in ("partition", "offset")} for each in offsets]
