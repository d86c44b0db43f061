"""A client of Kafka Connect's REST interface, for commands and pages."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any, Final

LIMIT_S: Final = 30
LARGEST_ANSWER: Final = 16 * 1024 * 1024


class ConnectRefusedError(Exception):
    """A worker refuses a request; the text is the worker's own, `status` that of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class ConnectRest:
    """Asks one worker; any worker of a cluster answers for all of them."""

    def __init__(self, url: str, limit_s: float = LIMIT_S) -> None:
        self.url = url.rstrip("/")
        self._limit_s = limit_s

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The worker's answer to a request; blocks for `limit_s` at most.

        Raises ConnectRefusedError where the worker refuses, OSError where none answers.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=self._limit_s) as answer:
                content = answer.read(LARGEST_ANSWER)
        except urllib.error.HTTPError as error:
            with error:
                content = error.read(LARGEST_ANSWER)
            raise ConnectRefusedError(message_of(content, error.code), error.code) from None
        try:
            return json.loads(content) if content else {}
        except ValueError:
            raise OSError(f"{self.url} is no worker of Connect: its answer is no JSON") from None


def message_of(content: bytes, status: int) -> str:
    """The message in the answer of a worker that refuses."""
    try:
        return str(json.loads(content)["message"])
    except (ValueError, KeyError, TypeError):
        return f"the worker answered with status {status}"
