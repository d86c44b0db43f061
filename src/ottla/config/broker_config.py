"""The settings of a broker: Kafka's keys and defaults, as far as Ottla acts on them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, Self

from ottla.config.authorizer_config import AuthorizerConfig
from ottla.config.config_def import HIGH, LOW, ConfigTable, config_key, dotted
from ottla.config.config_type import BOOLEAN, INT, LONG, LONG_MAX, STRING, at_least, one_of
from ottla.config.coordinator_config import GroupConfig, TransactionConfig
from ottla.config.known_keys import KRAFT_DEFAULTS, refuse_kraft
from ottla.config.log_config import CleanerConfig, LogConfig
from ottla.config.metrics_config import MetricsConfig
from ottla.config.sasl_config import ListenerSaslConfig
from ottla.errors import ConfigError

SELECTOR_PACKAGE: Final = "org.apache.kafka.common.replica."
LEADER_SELECTOR: Final = "LeaderSelector"
RACK_AWARE_SELECTOR: Final = "RackAwareReplicaSelector"


class ReplicationConfig(ConfigTable, group=True):
    """How followers fetch from leaders, and how leaders treat them."""

    num_replica_fetchers: int = config_key(
        default=1,
        type=INT,
        rule=at_least(1),
        importance=HIGH,
        doc="How many fetchers copy partitions from each of the other brokers.",
    )
    replica_lag_time_max_ms: int = config_key(
        default=30000,
        type=LONG,
        rule=at_least(1),
        importance=HIGH,
        doc="A follower that has not caught up with the leader for this long is not in sync.",
    )
    replica_fetch_min_bytes: int = config_key(
        default=1,
        type=INT,
        rule=at_least(0),
        importance=HIGH,
        doc="The leader answers a follower once there are so many bytes for it.",
    )
    replica_fetch_max_bytes: int = config_key(
        default=1048576,
        type=INT,
        rule=at_least(0),
        doc="How much a follower fetches of one partition at a time; a larger batch comes whole.",
    )
    replica_fetch_response_max_bytes: int = config_key(
        default=10485760,
        type=INT,
        rule=at_least(0),
        doc="How much a follower fetches of all partitions of a leader at a time.",
    )
    replica_fetch_wait_max_ms: int = config_key(
        default=500,
        type=INT,
        rule=at_least(0),
        importance=HIGH,
        doc="How long the leader may keep a follower waiting; below replica.lag.time.max.ms.",
    )
    replica_fetch_backoff_ms: int = config_key(
        default=1000,
        type=INT,
        rule=at_least(0),
        doc="The longest wait of a follower before it tries again after an error.",
    )
    replica_socket_timeout_ms: int = config_key(
        default=30000,
        type=INT,
        rule=at_least(1),
        importance=HIGH,
        doc="How long a follower waits for an answer, beside replica.fetch.wait.max.ms.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = config_key(
        default=5000,
        type=LONG,
        rule=at_least(1),
        importance=HIGH,
        doc="How often the high watermarks are written to disk.",
    )
    replica_selector_class: str | None = config_key(
        default=None,
        type=STRING,
        rule=one_of(
            LEADER_SELECTOR,
            RACK_AWARE_SELECTOR,
            SELECTOR_PACKAGE + LEADER_SELECTOR,
            SELECTOR_PACKAGE + RACK_AWARE_SELECTOR,
        ),
        doc="Where consumers are sent to read: to the leader (unset as well), or to a replica in "
        "their rack.",
    )
    leader_replication_throttled_rate: int = config_key(
        default=LONG_MAX,
        type=LONG,
        rule=at_least(0),
        doc="How many bytes a second this broker sends of the partitions that "
        "leader.replication.throttled.replicas names, to replicas that are not in sync.",
    )
    follower_replication_throttled_rate: int = config_key(
        default=LONG_MAX,
        type=LONG,
        rule=at_least(0),
        doc="How many bytes a second this broker fetches of the partitions that "
        "follower.replication.throttled.replicas names.",
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = config_key(
        default=LONG_MAX,
        type=LONG,
        rule=at_least(1),
        doc="How many bytes a second are copied when replicas move between log directories.",
    )
    replication_quota_window_num: int = config_key(
        default=11,
        type=INT,
        rule=at_least(1),
        importance=LOW,
        doc="Over how many samples the rate of throttled replication is taken.",
    )
    replication_quota_window_size_seconds: int = config_key(
        default=1,
        type=INT,
        rule=at_least(1),
        importance=LOW,
        doc="How long each of these samples is.",
    )


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
    CleanerConfig,
    LogConfig,
):
    """Everything that a broker is set up with."""

    broker_id: int = config_key(
        default=-1,
        type=INT,
        rule=at_least(-1),
        importance=HIGH,
        doc="The id of this broker in its cluster; -1 has one generated at the first start.",
    )
    broker_id_generation_enable: bool = config_key(
        default=True,
        type=BOOLEAN,
        doc="Whether an id may be generated when broker.id is -1.",
    )
    reserved_broker_max_id: int = config_key(
        default=1000,
        type=INT,
        rule=at_least(0),
        doc="The largest id that may be set by hand; generated ids begin above it.",
    )
    broker_rack: str | None = config_key(
        default=None,
        type=STRING,
        doc="The rack of this broker, told to clients with the metadata.",
    )
    auto_create_topics_enable: bool = config_key(
        default=True,
        type=BOOLEAN,
        importance=HIGH,
        doc="Whether a topic is created when a client first asks for its metadata.",
    )
    delete_topic_enable: bool = config_key(
        default=True,
        type=BOOLEAN,
        importance=HIGH,
        doc="Whether topics can be deleted.",
    )
    num_partitions: int = config_key(
        default=1,
        type=INT,
        rule=at_least(1),
        doc="How many partitions a topic gets when its creator does not say.",
    )
    default_replication_factor: int = config_key(
        default=1,
        type=INT,
        rule=at_least(1),
        doc="The replication factor that a topic gets when its creator does not say.",
    )
    fetch_max_bytes: int = config_key(
        default=57671680,
        type=INT,
        rule=at_least(1024),
        doc="The most bytes that the answer to one fetch may carry.",
    )
    max_incremental_fetch_session_cache_slots: int = config_key(
        default=1000,
        type=INT,
        rule=at_least(0),
        doc="How many incremental fetch sessions the broker keeps.",
    )
    producer_id_expiration_ms: int = config_key(
        default=86400000,
        type=INT,
        rule=at_least(1),
        importance=LOW,
        doc="How long a partition remembers an idempotent producer that has stopped writing.",
    )
    producer_id_expiration_check_interval_ms: int = config_key(
        default=600000,
        type=INT,
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
