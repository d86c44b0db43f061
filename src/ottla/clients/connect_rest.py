"""A client of Kafka Connect's REST interface, for commands and pages."""

from __future__ import annotations

import json
from typing import Any, Final

from ottla.network.http_calls import SUCCESS, HttpRequest, exchange, shown_url
from ottla.runtime.clock import SystemClock

LIMIT_S: Final = 30
LARGEST_ANSWER: Final = 16 * 1024 * 1024
LONGEST_MESSAGE: Final = 10_000


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

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The worker's answer to a request; blocks for `limit_s` at most.

        Raises ConnectRefusedError where the worker refuses, OSError where none answers.
        """
        data = None if body is None else json.dumps(body).encode()
        request = HttpRequest(self._address + path, method, data)
        answer = exchange(SystemClock(), request, LARGEST_ANSWER, self._limit_s)
        if answer.status not in SUCCESS:
            raise ConnectRefusedError(message_of(answer.body, answer.status), answer.status)
        try:
            return json.loads(answer.body) if answer.body else {}
        except (ValueError, RecursionError):
            raise OSError(f"{self.url} is no worker of Connect: its answer is no JSON") from None


def message_of(content: bytes, status: int) -> str:
    """The message in the answer of a worker that refuses."""
    try:
        return str(json.loads(content)["message"])[:LONGEST_MESSAGE]
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"the worker answered with status {status}"
