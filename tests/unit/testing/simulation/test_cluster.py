"""The settings of simulated brokers."""

from __future__ import annotations

from ottla.config.broker_config import BrokerConfig
from ottla.testing.simulation.cluster import AGE_MS, PERIOD_MS, SETTINGS


def test_periods_and_ages_of_the_table_are_short_enough_to_be_met():
    """A retention rule or a periodic check that is new in the table runs in the simulation."""
    config = BrokerConfig.parse(SETTINGS)

    assert config.log_retention_ms == AGE_MS
    assert config.offsets_retention_minutes * 60_000 == AGE_MS
    assert config.log_flush_start_offset_checkpoint_interval_ms == PERIOD_MS
    assert config.leader_imbalance_check_interval_seconds * 1_000 == PERIOD_MS
