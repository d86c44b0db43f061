"""The settings of a broker: Kafka's keys and defaults, as far as Ottla acts on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from ottla.config.authorizer_config import AuthorizerConfig
from ottla.config.cluster_config import ClusterConfig, ControllerConfig
from ottla.config.config_def import HIGH, LOW, config_key, dotted
from ottla.config.coordinator_config import GroupConfig, TransactionConfig
from ottla.config.first_design_config import FirstDesignConfig
from ottla.config.known_keys import KRAFT_DEFAULTS, refuse_kraft
from ottla.config.log_config import CleanerConfig, LogConfig
from ottla.config.metrics_config import MetricsConfig
from ottla.config.replication_config import ReplicationConfig
from ottla.config.rule import at_least
from ottla.config.sasl_config import ListenerSaslConfig
from ottla.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

INITIAL_DELAY: Final = "group.initial.rebalance.delay.ms"


class BrokerConfig(
    GroupConfig,
    TransactionConfig,
    ReplicationConfig,
    ControllerConfig,
    ClusterConfig,
    ListenerSaslConfig,
    AuthorizerConfig,
    MetricsConfig,
    FirstDesignConfig,
    CleanerConfig,
    LogConfig,
):
    """Everything that a broker is set up with."""

    broker_id: int = config_key(
        default=-1,
        rule=at_least(-1),
        importance=HIGH,
        doc="The id of this broker in its cluster; -1 has one generated at the first start.",
    )
    broker_id_generation_enable: bool = config_key(
        default=True,
        doc="Whether an id may be generated when broker.id is -1.",
    )
    reserved_broker_max_id: int = config_key(
        default=1000,
        rule=at_least(0),
        doc="The largest id that may be set by hand; generated ids begin above it.",
    )
    broker_rack: str | None = config_key(
        default=None,
        doc="The rack of this broker, told to clients with the metadata.",
    )
    auto_create_topics_enable: bool = config_key(
        default=True,
        importance=HIGH,
        doc="Whether a topic is created when a client first asks for its metadata.",
    )
    delete_topic_enable: bool = config_key(
        default=True,
        importance=HIGH,
        doc="Whether topics can be deleted.",
    )
    num_partitions: int = config_key(
        default=1,
        rule=at_least(1),
        doc="How many partitions a topic gets when its creator does not say.",
    )
    default_replication_factor: int = config_key(
        default=1,
        rule=at_least(1),
        doc="The replication factor that a topic gets when its creator does not say.",
    )
    fetch_max_bytes: int = config_key(
        default=57671680,
        rule=at_least(1024),
        doc="The most bytes that the answer to one fetch may carry.",
    )
    max_incremental_fetch_session_cache_slots: int = config_key(
        default=1000,
        rule=at_least(0),
        doc="How many incremental fetch sessions the broker keeps.",
    )
    producer_id_expiration_ms: int = config_key(
        default=86400000,
        rule=at_least(1),
        importance=LOW,
        doc="How long a partition remembers an idempotent producer that has stopped writing.",
    )
    producer_id_expiration_check_interval_ms: int = config_key(
        default=600000,
        rule=at_least(1),
        importance=LOW,
        doc="How often expired producer ids are looked for.",
    )

    @classmethod
    def parse(cls, settings: Mapping[str, Any] | None = None, **keywords: Any) -> Self:
        refuse_kraft(dotted(settings, keywords))
        return super().parse(settings, **keywords)

    @classmethod
    def known_names(cls) -> set[str]:
        return super().known_names() | set(KRAFT_DEFAULTS)

    @classmethod
    def pass_over(cls, name: str, value: Any) -> None:
        if name not in KRAFT_DEFAULTS:  # at its default, or the file would have been refused
            super().pass_over(name, value)

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        if values["zookeeper_connect"] is None and INITIAL_DELAY not in given:
            values["group_initial_rebalance_delay_ms"] = 0
        broker_id = values["broker_id"]
        largest = values["reserved_broker_max_id"]
        if broker_id > largest and values["broker_id_generation_enable"]:
            raise ConfigError(
                f"broker.id={broker_id}: must be at most reserved.broker.max.id ({largest}), "
                "because ids above that are generated"
            )
        if broker_id < 0 and not values["broker_id_generation_enable"]:
            raise ConfigError(f"broker.id={broker_id}: must be set; ids are not to be generated")
