"""A broker's log as lines of JSON."""

from __future__ import annotations

import json
import logging
import sys

from ottla.cli.json_log import JsonFormatter, log_as_json


def line_of(message, *arguments, exc_info=None, fields=None):
    """The JSON of one event."""
    record = logging.LogRecord("ottla.server", logging.INFO, "", 0, message, arguments, exc_info)
    record.created = 1_600_000_000.25
    if fields is not None:
        record.fields = fields
    return json.loads(JsonFormatter().format(record))


def test_event_is_one_object():
    """When, how grave, who and what."""
    assert line_of("broker %d is stopping", 3) == {
        "timestamp": "2020-09-13T12:26:40.250+00:00",
        "level": "INFO",
        "logger": "ottla.server",
        "message": "broker 3 is stopping",
    }


def test_exception_stands_beside_the_message():
    """The line of the message has the traceback as well."""
    try:
        raise ValueError("no")
    except ValueError:
        found = line_of("it failed", exc_info=sys.exc_info())

    assert found["message"] == "it failed"
    assert found["exception"].endswith("ValueError: no")


def test_fields_of_an_event_are_fields_of_the_line():
    """A request of the request log can be searched by its principal and client id."""
    found = line_of("Completed request:%s", "{}", fields={"principal": "User:a", "totalTimeMs": 2})

    assert found["message"] == "Completed request"
    assert (found["principal"], found["totalTimeMs"]) == ("User:a", 2)


def test_line_has_no_control_characters():
    """A terminal acts on some that JSON would not escape, and others turn the line round."""
    name = "\x1b[2J\n\x9b1m\x7f\u2028\u202e\u2066"
    record = logging.LogRecord("ottla", logging.INFO, "", 0, name, (), None)
    line = JsonFormatter().format(record)

    assert line.isprintable()
    assert json.loads(line)["message"] == name


def test_every_handler_writes_json(monkeypatch):
    """Handlers that were there before write JSON, too."""
    handler = logging.StreamHandler()
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    log_as_json()

    assert isinstance(handler.formatter, JsonFormatter)
