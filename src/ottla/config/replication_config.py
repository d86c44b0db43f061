"""Settings of replication."""

from __future__ import annotations

from typing import Final

from ottla.config.config_def import HIGH, LOW, ConfigTable, config_key
from ottla.config.config_type import LONG, LONG_MAX
from ottla.config.rule import at_least, one_of

SELECTOR_PACKAGE: Final = "org.apache.kafka.common.replica."
LEADER_SELECTOR: Final = "LeaderSelector"
RACK_AWARE_SELECTOR: Final = "RackAwareReplicaSelector"


class ReplicationConfig(ConfigTable, group=True):
    """How followers fetch from leaders, and how leaders treat them."""

    num_replica_fetchers: int = config_key(
        default=1,
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
        rule=at_least(0),
        importance=HIGH,
        doc="The leader answers a follower once there are so many bytes for it.",
    )
    replica_fetch_max_bytes: int = config_key(
        default=1048576,
        rule=at_least(0),
        doc="How much a follower fetches of one partition at a time; a larger batch comes whole.",
    )
    replica_fetch_response_max_bytes: int = config_key(
        default=10485760,
        rule=at_least(0),
        doc="How much a follower fetches of all partitions of a leader at a time.",
    )
    replica_fetch_wait_max_ms: int = config_key(
        default=500,
        rule=at_least(0),
        importance=HIGH,
        doc="How long the leader may keep a follower waiting; below replica.lag.time.max.ms.",
    )
    replica_fetch_backoff_ms: int = config_key(
        default=1000,
        rule=at_least(0),
        doc="The longest wait of a follower before it tries again after an error.",
    )
    replica_socket_timeout_ms: int = config_key(
        default=30000,
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
        rule=at_least(1),
        importance=LOW,
        doc="Over how many samples the rate of throttled replication is taken.",
    )
    replication_quota_window_size_seconds: int = config_key(
        default=1,
        rule=at_least(1),
        importance=LOW,
        doc="How long each of these samples is.",
    )
