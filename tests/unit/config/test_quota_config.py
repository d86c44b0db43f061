"""Values of client quotas, as the registry keeps them."""

from __future__ import annotations

import pytest

from ottla.config.config_type import LONG_MAX
from ottla.config.quota_config import format_limit, parse_limit
from ottla.errors import ConfigError


@pytest.mark.parametrize("value", [0, -1, "0", "x", 1.5, float("inf"), float("nan"), "1.5"])
def test_limit_that_nobody_could_keep_is_refused(value):
    """Kafka takes 0, and the client waits for ever (KAFKA-14943)."""
    with pytest.raises(ConfigError, match="producer_byte_rate="):
        parse_limit("producer_byte_rate", value)


def test_limits_are_read_as_kafka_writes_them():
    """Longs for bytes, doubles for the others."""
    assert parse_limit("producer_byte_rate", "1024") == 1024
    assert parse_limit("producer_byte_rate", 1024.0) == 1024
    assert parse_limit("request_percentage", "200.0") == 200
    assert parse_limit("controller_mutation_rate", 2.5) == 2.5
    with pytest.raises(ConfigError, match="must be one of"):
        parse_limit("bogus", 1)


@pytest.mark.parametrize("value", [str(LONG_MAX), LONG_MAX, float(LONG_MAX)])
def test_largest_long_is_a_limit(value):
    """Who wants none writes it, and requests have it as the double above it."""
    limit = parse_limit("consumer_byte_rate", value)

    assert format_limit("consumer_byte_rate", limit) == str(LONG_MAX)
    assert parse_limit("consumer_byte_rate", format_limit("consumer_byte_rate", limit)) == limit
    with pytest.raises(ConfigError, match="64 bits"):
        parse_limit("consumer_byte_rate", 1e19)
