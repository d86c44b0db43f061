"""Arguments of `process` that are refused."""

from __future__ import annotations

import pytest

from ottla.clients.processing.process_options import ProcessOptions
from ottla.errors import ConfigError

OPTIONS = ProcessOptions(print, 8, "key", 3, 0.1, None, 1000)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("handler", None, "handler=None: must be a function"),
        ("by", "topic", "by='topic': must be one of key, partition, or a function"),
        ("workers", 0, "workers=0: must be a whole number, at least 1"),
        ("workers", 1.5, r"workers=1\.5: must be a whole number, at least 1"),
        ("max_in_flight", 7, "max_in_flight=7: must be a whole number, at least 8"),
        ("retries", -1, "retries=-1: must be a number, or None"),
        ("retry_pause", -0.1, r"retry_pause=-0\.1: must not be negative"),
        ("dead_letters", "pages", "dead_letters='pages': this topic is read itself"),
    ],
)
def test_wrong_argument_is_named_with_its_value_and_the_rule(name, value, message):
    """Before anything is polled."""
    with pytest.raises(ConfigError, match=message):
        OPTIONS._replace(**{name: value}).check(frozenset(["pages"]))


@pytest.mark.parametrize(
    "options",
    [
        OPTIONS,
        OPTIONS._replace(by=hash, retries=None, retry_pause=0),
        OPTIONS._replace(by="partition", workers=1, max_in_flight=1, dead_letters="dead"),
    ],
)
def test_right_arguments_pass(options):
    """A function for the order, retries without an end, one record at a time."""
    options.check(frozenset(["pages"]))
