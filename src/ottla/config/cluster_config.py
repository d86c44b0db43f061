"""Settings of a broker as a member of its cluster, and of the controller."""

from __future__ import annotations

from ottla.config.config_def import HIGH, ConfigTable, config_key
from ottla.config.config_type import LONG
from ottla.config.rule import at_least


class ClusterConfig(ConfigTable, group=True):
    """Requests between brokers, and controlled shutdown: for clusters on ZooKeeper."""

    controlled_shutdown_enable: bool = config_key(
        default=True,
        doc="Whether a broker that is told to stop first has others lead its partitions.",
    )
    controlled_shutdown_max_retries: int = config_key(
        default=3,
        rule=at_least(1),
        doc="How often the controller is asked to do so, while it cannot for every partition.",
    )
    controlled_shutdown_retry_backoff_ms: int = config_key(
        default=5000,
        type=LONG,
        rule=at_least(0),
        doc="The wait before the controller is asked again.",
    )
    controller_socket_timeout_ms: int = config_key(
        default=30000,
        rule=at_least(1),
        doc="How long the controller waits for the answer of a broker.",
    )
    request_timeout_ms: int = config_key(
        default=30000,
        rule=at_least(1),
        importance=HIGH,
        doc="How long a request of this broker to another one may wait for its response.",
    )


class ControllerConfig(ConfigTable, group=True):
    """How the controller moves leadership back to preferred leaders."""

    auto_leader_rebalance_enable: bool = config_key(
        default=True,
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
        rule=at_least(0),
        importance=HIGH,
        doc="How much of what a broker should lead others may lead before something is done.",
    )
