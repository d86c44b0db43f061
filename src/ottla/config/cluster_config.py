"""The broker's settings for its requests to other brokers, and for controlled shutdown."""

from __future__ import annotations

from ottla.config.config_def import HIGH, ConfigTable, config_key
from ottla.config.config_type import BOOLEAN, INT, LONG
from ottla.config.rules import at_least


class ClusterConfig(ConfigTable, group=True):
    """Requests between brokers, and controlled shutdown: for clusters on ZooKeeper."""

    controlled_shutdown_enable: bool = config_key(
        default=True,
        type=BOOLEAN,
        doc="Whether a broker that is told to stop first has others lead its partitions.",
    )
    controlled_shutdown_max_retries: int = config_key(
        default=3,
        type=INT,
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
        type=INT,
        rule=at_least(1),
        doc="How long the controller waits for the answer of a broker.",
    )
    request_timeout_ms: int = config_key(
        default=30000,
        type=INT,
        rule=at_least(1),
        importance=HIGH,
        doc="How long a request of this broker to another one may wait for its response.",
    )
