"""Arguments of `process` that are refused."""

from __future__ import annotations

import re

import pytest

from ottla.clients.consumer.subscription_state import SubscriptionState
from ottla.clients.processing.process_options import ProcessOptions
from ottla.errors import ConfigError

OPTIONS = ProcessOptions(print, 8, "key", 3, 0.1, None, 1000)
READ = SubscriptionState()
READ.subscribe(frozenset(["pages"]), None)


def generator(record):
    yield record


async def coroutine(record):
    return record.key


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("handler", None, "handler=None: must be a function"),
        ("by", "topic", "by='topic': must be one of key, partition, or a function"),
        ("workers", 0, "workers=0: must be a whole number, at least 1"),
        ("workers", 1.5, r"workers=1\.5: must be a whole number, at least 1"),
        ("workers", True, "workers=True: must be a whole number, at least 1"),
        ("max_in_flight", 7, "max_in_flight=7: must be a whole number, at least workers=8"),
        ("retries", True, "retries=True: must be a number, or None"),
        ("retries", -1, "retries=-1: must be a number, or None"),
        ("retry_pause", -0.1, r"retry_pause=-0\.1: must be finite, not negative"),
        ("retry_pause", float("nan"), "retry_pause=nan: must be finite"),
        ("retry_pause", float("inf"), "retry_pause=inf: must be finite"),
        ("retry_pause", "1", "retry_pause='1': must be a number of seconds"),
        ("retry_pause", None, "retry_pause=None: must be a number of seconds"),
        ("handler", generator, "a generator would not be run"),
        ("by", coroutine, "must be one of key, partition, or a function"),
        ("dead_letters", 5, "dead_letters=5: must be a topic's name"),
        ("dead_letters", "", "dead_letters='': must be a topic's name"),
        ("dead_letters", "a b", "dead_letters='a b': must be a topic's name"),
        ("dead_letters", "x" * 250, "must be a topic's name, of at most 249"),
        ("dead_letters", "pages", "dead_letters='pages': this topic is read itself"),
    ],
)
def test_wrong_argument_is_named_with_its_value_and_the_rule(name, value, message):
    """Before anything is polled."""
    with pytest.raises(ConfigError, match=message):
        OPTIONS._replace(**{name: value}).check(READ)


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
    options.check(READ)


def test_letters_do_not_go_to_a_topic_that_the_pattern_reads():
    """Though it is not there yet: the letters would be read, and fail, without an end."""
    read = SubscriptionState()
    read.subscribe_pattern(re.compile("a5.*"), None)
    with pytest.raises(ConfigError, match="dead_letters='a5-dlq': this topic is read itself"):
        OPTIONS._replace(dead_letters="a5-dlq").check(read)
    OPTIONS._replace(dead_letters="dlq-a5").check(read)
