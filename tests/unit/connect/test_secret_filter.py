"""What a log has in the place of secrets."""

from __future__ import annotations

import json
import logging

import pytest

from ottla.cli.json_log import JsonFormatter
from ottla.cli.main import LOG_FORMAT, LineFormatter
from ottla.connect.secret_filter import SecretFilter


class Log(logging.Handler):
    """Keeps its lines."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.mark.parametrize(
    "formatter", [LineFormatter(LOG_FORMAT), JsonFormatter()], ids=["lines", "json"]
)
def test_secrets_are_in_no_line_of_any_form(formatter):
    """Neither in messages and their arguments nor in tracebacks; other lines stay as they are."""
    log, logger = Log(formatter), logging.getLogger("a.plug-in")
    secrets = SecretFilter(lambda text: text.replace("SESAME", "${file:f:k}"))
    logging.getLogger().addHandler(log)
    try:
        secrets.begin()
        logger.error("open %s, %d times", "SESAME", 7)
        try:
            raise ValueError("no SESAME")
        except ValueError:
            logger.exception("it failed")
        logger.error("100%% of %s", "others")
        secrets.end()
        logger.error("SESAME")
    finally:
        logging.getLogger().removeHandler(log)
    first, second, third, last = log.lines

    assert "SESAME" not in first + second + third
    assert "open ${file:f:k}, 7 times" in first
    assert "it failed" in second
    assert "no ${file:f:k}" in second
    assert "100% of others" in third
    assert "SESAME" in last
    if isinstance(formatter, JsonFormatter):
        assert "Traceback" in json.loads(second)["exception"]
