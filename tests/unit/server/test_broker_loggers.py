"""Levels of loggers are shown and changed as a resource of a broker."""

from __future__ import annotations

import logging

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.configs import ConfigOperation, IncrementalAlterableConfig
from ottla.runtime import log_levels
from ottla.server import broker_loggers

NAME = "ottla.server.broker"


@pytest.fixture(autouse=True)
def logger():
    """One whose level the test may change."""
    found = logging.getLogger(NAME)
    before = found.level
    yield found
    found.setLevel(before)


def alter(name, value, operation=ConfigOperation.SET, *, validate_only=False):
    change = IncrementalAlterableConfig(name=name, config_operation=operation, value=value)
    broker_loggers.alter([change], validate_only=validate_only)


def shown(name=NAME):
    (entry,) = broker_loggers.describe([name])
    return entry.value


@pytest.mark.parametrize("level", log_levels.LEVELS)
def test_level_is_set_at_once(logger, level):
    """A level is set at once, and shown under Kafka's name, as Kafka's tool has it."""
    alter(NAME, level)

    assert shown() == level
    assert logger.isEnabledFor(log_levels.LEVELS[level])
    assert not logger.isEnabledFor(log_levels.LEVELS[level] - 1)


def test_level_that_is_deleted_is_that_of_the_logger_above(logger):
    """What it was before it was set."""
    before = shown()
    alter(NAME, "TRACE")
    alter(NAME, None, ConfigOperation.DELETE)

    assert shown() == before
    assert logger.level == logging.NOTSET


def test_root_and_every_logger_are_listed():
    """Each as a setting that can be changed."""
    entries = broker_loggers.describe(None)

    assert entries[0].name == log_levels.ROOT
    assert NAME in {entry.name for entry in entries}
    assert not any(entry.read_only or entry.is_sensitive for entry in entries)


@pytest.mark.parametrize(
    ("name", "value", "operation", "error"),
    [
        ("no.such.logger", "INFO", ConfigOperation.SET, ErrorCode.INVALID_CONFIG),
        (NAME, "LOUD", ConfigOperation.SET, ErrorCode.INVALID_CONFIG),
        (NAME, None, ConfigOperation.SET, ErrorCode.INVALID_CONFIG),
        (NAME, "INFO", ConfigOperation.APPEND, ErrorCode.INVALID_REQUEST),
        ("root", None, ConfigOperation.DELETE, ErrorCode.INVALID_REQUEST),
    ],
)
def test_wrong_change_changes_nothing(name, value, operation, error):
    """A wrong change changes nothing, also beside a right one in the same request."""
    before = shown()
    changes = [
        IncrementalAlterableConfig(name=NAME, config_operation=0, value="TRACE"),
        IncrementalAlterableConfig(name=name, config_operation=operation, value=value),
    ]
    with pytest.raises(KafkaError) as refusal:
        broker_loggers.alter(changes, validate_only=False)

    assert refusal.value.error is error
    assert shown() == before


class Follower:
    """Notes how the logger stands whenever it is called."""

    def __init__(self):
        self.seen = []

    def look(self):
        self.seen.append(shown())


@pytest.mark.parametrize("validate_only", [False, True])
def test_those_who_follow_the_levels_hear_of_a_change_that_is_made(validate_only):
    """After it; not of one that is only tried, nor once they are gone."""
    gone, here = Follower(), Follower()
    seen = gone.seen
    for each in (gone, here):
        log_levels.follow(each.look)
    del gone, each
    log_levels.follow(here.look)
    alter(NAME, "TRACE", validate_only=validate_only)

    assert seen == []
    assert here.seen == ([] if validate_only else ["TRACE"] * 2)


def test_validation_alone_changes_nothing():
    """validateOnly of the request."""
    before = shown()
    alter(NAME, "TRACE", validate_only=True)

    assert shown() == before
