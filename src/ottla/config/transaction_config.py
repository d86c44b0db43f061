"""The broker's settings for transactions and the topic that keeps their state."""

from __future__ import annotations

from ottla.config.config_def import HIGH, LOW, ConfigTable, config_key
from ottla.config.config_type import INT, SHORT, at_least


class TransactionConfig(ConfigTable, group=True):
    """Transactions: how long they may take, and where their state is kept."""

    transaction_max_timeout_ms: int = config_key(
        default=900000,
        type=INT,
        rule=at_least(1),
        importance=HIGH,
        doc="The longest transaction.timeout.ms that a producer may ask for.",
    )
    transactional_id_expiration_ms: int = config_key(
        default=604800000,
        type=INT,
        rule=at_least(1),
        importance=HIGH,
        doc="How long a transactional id that nobody uses is kept.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = config_key(
        default=10000,
        type=INT,
        rule=at_least(1),
        importance=LOW,
        doc="How often transactions that have taken too long are looked for, to be aborted.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = config_key(
        default=3600000,
        type=INT,
        rule=at_least(1),
        importance=LOW,
        doc="How often expired transactional ids are looked for.",
    )
    transaction_state_log_num_partitions: int = config_key(
        default=50,
        type=INT,
        rule=at_least(1),
        importance=HIGH,
        doc="How many partitions the topic of transactional ids gets when it is created.",
    )
    transaction_state_log_replication_factor: int = config_key(
        default=3,
        type=SHORT,
        rule=at_least(1),
        importance=HIGH,
        doc="The replication factor of that topic; fewer live brokers make it less.",
    )
    transaction_state_log_min_isr: int = config_key(
        default=2,
        type=INT,
        rule=at_least(1),
        importance=HIGH,
        doc="The min.insync.replicas of that topic; at most its replication factor.",
    )
    transaction_state_log_segment_bytes: int = config_key(
        default=104857600,
        type=INT,
        rule=at_least(1),
        importance=HIGH,
        doc="The segment size of that topic, small so that compaction can work.",
    )
