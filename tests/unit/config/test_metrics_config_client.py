"""Subscriptions to clients' metrics: what they may say."""

from __future__ import annotations

import pytest

from ottla.config.metrics_config import ClientMetricsConfig
from ottla.errors import ConfigError


def test_subscription_is_read():
    """A subscription is read as Kafka's tool writes it."""
    config = ClientMetricsConfig.of(
        {"metrics": "a.,b.", "interval.ms": "1000", "match": "client_id=app.*"}
    )

    assert config.metrics == ("a.", "b.")
    assert config.interval_ms == 1000
    assert config.patterns()["client_id"].fullmatch("app-1")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("interval.ms", "99", "interval.ms=99"),
        ("match", "rack=a", "match=rack=a: must be one of client_instance_id"),
        ("match", "client_id=(", "no regular expression"),
        ("metric", "a", "metric: not a setting"),
    ],
)
def test_bad_values_are_told(name, value, said):
    """The error has the setting, the value and the rule."""
    with pytest.raises(ConfigError, match=said.replace("(", r"\(")):
        ClientMetricsConfig.of({name: value})
