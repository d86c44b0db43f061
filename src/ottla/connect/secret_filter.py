"""Keeps the secrets of config providers out of the log, where plug-ins write of errors."""

from __future__ import annotations

import logging
from collections.abc import Callable


class SecretFilter(logging.Filter):
    """Puts references in the place of secrets in a message, and in the traceback behind it.

    `begin` has it see all that the handlers of the root write, until `end`.
    """

    def __init__(self, hide: Callable[[str], str]) -> None:
        super().__init__()
        self._hide = hide
        self._handlers: list[logging.Handler] = []

    def begin(self) -> None:
        self._handlers = list(logging.getLogger().handlers)
        for each in self._handlers:
            each.addFilter(self)

    def end(self) -> None:
        for each in self._handlers:
            each.removeFilter(self)
        self._handlers.clear()

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        hidden = self._hide(message)
        if hidden != message:
            record.msg, record.args = hidden, ()
        if record.exc_info:
            text = record.exc_text or logging.Formatter().formatException(record.exc_info)
            record.exc_text = self._hide(text)
        return True
