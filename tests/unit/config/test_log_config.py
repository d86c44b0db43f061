"""Synonyms among the log settings: which one counts."""

from __future__ import annotations

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ConfigError

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("settings", "expected_ms"),
    [
        ({}, 168 * HOUR_MS),
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.minutes": "3", "log.retention.hours": "2"}, 180_000),
        ({"log.retention.ms": "4", "log.retention.minutes": "3"}, 4),
        ({"log.retention.ms": "-1"}, -1),
        ({"log.retention.minutes": "-1"}, -1),
    ],
)
def test_retention_goes_from_fine_to_coarse(settings, expected_ms):
    """ms before minutes before hours; negative is for ever."""
    assert BrokerConfig.parse(settings).log_retention_ms == expected_ms


def test_retention_of_nothing_is_refused():
    """Zero hours would delete everything."""
    with pytest.raises(ConfigError, match=r"log\.retention\.hours=0"):
        BrokerConfig.parse({"log.retention.hours": "0"})


def test_roll_and_flush_have_their_coarser_twins():
    """roll.ms before roll.hours, flush.interval before the scheduler's."""
    config = BrokerConfig.parse(
        {
            "log.roll.hours": "1",
            "log.roll.jitter.hours": "2",
            "log.roll.jitter.ms": "5",
            "log.flush.scheduler.interval.ms": "7",
        }
    )

    assert config.log_roll_ms == HOUR_MS
    assert config.log_roll_jitter_ms == 5
    assert config.log_flush_interval_ms == 7


def test_log_dirs_are_before_log_dir():
    """One directory or several."""
    assert BrokerConfig.parse({"log.dir": "/a"}).log_dirs == ("/a",)
    assert BrokerConfig.parse({"log.dir": "/a", "log.dirs": "/b, /c"}).log_dirs == ("/b", "/c")


@pytest.mark.parametrize("dirs", ["/a,/a", "/a,,/b", "/a,/a/"])
def test_log_dirs_must_be_different_directories(dirs):
    """The same directory twice would be locked twice."""
    with pytest.raises(ConfigError, match=r"log\.dirs"):
        BrokerConfig.parse({"log.dirs": dirs})
