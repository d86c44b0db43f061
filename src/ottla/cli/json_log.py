"""A log as lines of JSON, one for each event, for programs that collect logs."""

from __future__ import annotations

import json
import logging

from ottla.cli.terminal import TURNING

CONTROLS_IN_JSON = {code: f"\\u{code:04x}" for code in (*range(127, 160), *map(ord, TURNING))}
"""Characters that JSON does not ask to be escaped, but on which a terminal may act."""


class JsonFormatter(logging.Formatter):
    """Writes `timestamp` (UTC), `level`, `logger`, `message`, and the further fields of an event.

    An event with `fields`, as one of the request log, has them beside these; then its message is
    its text without them.
    """

    def format(self, record: logging.LogRecord) -> str:
        from datetime import UTC, datetime

        moment = datetime.fromtimestamp(record.created, UTC)
        fields = getattr(record, "fields", None)
        line = {
            "timestamp": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage() if fields is None else str(record.msg).partition(":")[0],
            **(fields or {}),
        }
        if record.exc_info:
            line["exception"] = record.exc_text or self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str).translate(CONTROLS_IN_JSON)


def log_as_json() -> None:
    """Have every handler of the root write JSON from now on."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter())
