"""The broker's settings for when it is the controller."""

from __future__ import annotations

from ottla.config.config_def import HIGH, ConfigTable, config_key
from ottla.config.config_type import BOOLEAN, INT, LONG
from ottla.config.rules import at_least


class ControllerConfig(ConfigTable, group=True):
    """How the controller moves leadership back to preferred leaders."""

    auto_leader_rebalance_enable: bool = config_key(
        default=True,
        type=BOOLEAN,
        importance=HIGH,
        doc="Whether preferred leaders are elected from time to time where others lead.",
    )
    leader_imbalance_check_interval_seconds: int = config_key(
        default=300,
        type=LONG,
        rule=at_least(1),
        importance=HIGH,
        doc="How often the controller looks for partitions that others lead.",
    )
    leader_imbalance_per_broker_percentage: int = config_key(
        default=10,
        type=INT,
        rule=at_least(0),
        importance=HIGH,
        doc="How much of what a broker should lead others may lead before something is done.",
    )
