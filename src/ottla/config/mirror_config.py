"""The settings of a mirror's flow from one cluster to another, as mm2.properties has them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Final

from ottla.config.config_def import HIGH, LOW, REQUIRED, ConfigTable, config_key
from ottla.config.config_type import LONG, STRING
from ottla.config.metrics_config import HTTP, MetricsEndPoint, parse_metrics_listener
from ottla.config.rule import at_least, one_of
from ottla.errors import ConfigError

SOURCE, TARGET = "source", "target"
FAIL, CONTINUE = "fail", "continue"
EXACTLY_ONCE: Final = ("disabled", "preparing", "enabled")


class MirrorFileConfig(ConfigTable):
    """The settings of mm2.properties that hold once, for the process and all flows."""

    clusters: tuple[str, ...] = config_key(
        default=(),
        importance=HIGH,
        doc="What the clusters are called: two or more. `alias.bootstrap.servers` says where each "
        "of them is.",
    )
    metrics_listener: MetricsEndPoint | None = config_key(
        default=None,
        type=STRING,
        doc="Where `ottla mirror` serves what it measures over HTTP, as http://127.0.0.1:9405; "
        "without a host only this machine can connect. Unset: it is not served. Ottla's own; "
        "needs `pip install ottla[metrics]`.",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        text = values["metrics_listener"]
        end_point = values["metrics_listener"] = parse_metrics_listener(text) if text else None
        if end_point is not None and end_point.scheme != HTTP:
            raise ConfigError(f"metrics.listener={text}: a mirror has no keys: must be http://")


def _how_often(default: int) -> Any:
    """The seconds between two rounds of the work that the setting before it switches on."""
    return config_key(default=default, rule=at_least(1), doc="How often.")


class MirrorConfig(ConfigTable):
    """The topics of a flow, and how it copies them; the clients' settings are beside it."""

    renamed: ClassVar[Mapping[str, str]] = {
        "topics.blacklist": "topics.exclude",
        "groups.blacklist": "groups.exclude",
        "config.properties.blacklist": "config.properties.exclude",
    }
    """The names of Kafka 2.4 to 2.6 and their present names."""

    unused: ClassVar[Mapping[str, str]] = {
        "dedicated.mode.enable.internal.rest": "processes share tasks by the flow's group alone",
        "admin.timeout.ms": "default.api.timeout.ms of the clients says it",
        "topic.filter.class": "topics and topics.exclude are the filter",
        "group.filter.class": "groups and groups.exclude are the filter",
        "config.property.filter.class": "config.properties.exclude is the filter",
        "forwarding.admin.class": "the target's own API is used",
        "status.storage.replication.factor": "there is no status topic",
        "config.storage.replication.factor": "there is no topic of settings",
        "key.converter": "records are copied as they are",
        "value.converter": "records are copied as they are",
        "header.converter": "records are copied as they are",
    }

    enabled: bool = config_key(
        default=False, importance=HIGH, doc="Whether the flow copies anything."
    )
    topics: tuple[str, ...] = config_key(
        default=(".*",),
        importance=HIGH,
        doc="The topics to copy: regular expressions that match whole names.",
    )
    topics_exclude: tuple[str, ...] = config_key(
        default=(r"mm2.*\.internal", r".*\.replica", "__.*"),
        importance=HIGH,
        doc="Of these, the topics not to copy.",
    )
    groups: tuple[str, ...] = config_key(
        default=(".*",),
        importance=HIGH,
        doc="The consumer groups whose offsets are translated.",
    )
    groups_exclude: tuple[str, ...] = config_key(
        default=("console-consumer-.*", "connect-.*", "__.*"),
        importance=HIGH,
        doc="Of these, the groups to leave out.",
    )
    config_properties_exclude: tuple[str, ...] = config_key(
        default=(
            r"follower\.replication\.throttled\.replicas",
            r"leader\.replication\.throttled\.replicas",
            r"message\.timestamp\.difference\.max\.ms",
            r"message\.timestamp\.type",
            r"unclean\.leader\.election\.enable",
            r"min\.insync\.replicas",
        ),
        doc="The settings of topics that are not carried over.",
    )
    use_defaults_from: str = config_key(
        default=TARGET,
        rule=one_of(SOURCE, TARGET),
        doc="Whose default a setting has that the source's topic leaves at its default.",
    )
    replication_factor: int = config_key(
        default=2,
        rule=at_least(-1),
        importance=HIGH,
        doc="The replicas of topics that the mirror makes; -1: the target's default.",
    )
    replication_policy_class: str = config_key(
        default="DefaultReplicationPolicy",
        doc="How copies are called: DefaultReplicationPolicy (source.topic) or "
        "IdentityReplicationPolicy (the same name); Kafka's full class names are taken.",
    )
    replication_policy_separator: str = config_key(
        default=".", doc="What stands between the source's alias and the topic."
    )
    replication_policy_internal_topic_separator_enabled: bool = config_key(
        default=True,
        importance=LOW,
        doc="Whether that separator is in the names of internal topics, too.",
    )
    refresh_topics_enabled: bool = config_key(
        default=True,
        doc="Whether new topics and partitions are looked for after the start.",
    )
    refresh_topics_interval_seconds: int = _how_often(600)
    refresh_groups_enabled: bool = config_key(
        default=True, doc="Whether new groups are looked for after the start."
    )
    refresh_groups_interval_seconds: int = _how_often(600)
    sync_topic_configs_enabled: bool = config_key(
        default=True, doc="Whether settings of topics are carried over."
    )
    sync_topic_configs_interval_seconds: int = _how_often(600)
    sync_topic_acls_enabled: bool = config_key(
        default=True,
        doc="Whether ACLs of topics are carried over: who may read there may read here, and "
        "nobody gets a right to write.",
    )
    sync_topic_acls_interval_seconds: int = _how_often(600)
    emit_heartbeats_enabled: bool = config_key(
        default=True, doc="Whether the flow writes to heartbeats of its target."
    )
    emit_heartbeats_interval_seconds: int = _how_often(1)
    heartbeats_replication_enabled: bool = config_key(
        default=True, doc="Whether the source's heartbeats are copied."
    )
    emit_checkpoints_enabled: bool = config_key(
        default=True, doc="Whether groups' offsets are translated and written."
    )
    emit_checkpoints_interval_seconds: int = _how_often(60)
    sync_group_offsets_enabled: bool = config_key(
        default=False,
        importance=HIGH,
        doc="Whether translated offsets are committed for the groups at the target, where these "
        "have no members; only ever forward.",
    )
    sync_group_offsets_interval_seconds: int = _how_often(60)
    emit_offset_syncs_enabled: bool = config_key(
        default=True,
        name="emit.offset-syncs.enabled",
        doc="Whether pairs of offsets are written, without which no group is translated.",
    )
    offset_syncs_topic_location: str = config_key(
        default=SOURCE,
        rule=one_of(SOURCE, TARGET),
        name="offset-syncs.topic.location",
        doc="The cluster that keeps them.",
    )
    offset_lag_max: int = config_key(
        default=100,
        type=LONG,
        rule=at_least(0),
        doc="How many records may pass before the next pair of offsets is written at once.",
    )
    offset_syncs_topic_replication_factor: int = config_key(
        default=3,
        rule=at_least(-1),
        importance=LOW,
        name="offset-syncs.topic.replication.factor",
        doc="The replicas of that topic; -1: the cluster's default.",
    )
    checkpoints_topic_replication_factor: int = config_key(
        default=3, rule=at_least(-1), importance=LOW, doc="The same of checkpoints."
    )
    heartbeats_topic_replication_factor: int = config_key(
        default=3, rule=at_least(-1), importance=LOW, doc="The same of heartbeats."
    )
    offset_storage_replication_factor: int = config_key(
        default=3,
        rule=at_least(-1),
        importance=LOW,
        doc="The same of the topic at the target that says how far each partition was copied.",
    )
    offset_flush_interval_ms: int = config_key(
        default=1000,
        type=LONG,
        rule=at_least(1),
        doc="How often that is written; with exactly-once, how long a transaction lasts.",
    )
    exactly_once_source_support: str = config_key(
        default="disabled",
        rule=one_of(*EXACTLY_ONCE),
        importance=HIGH,
        doc="enabled: records and how far they were copied are written in one transaction, so that "
        "no crash repeats any. Needs consumer.isolation.level=read_committed.",
    )
    tasks_max: int = config_key(
        default=1,
        rule=at_least(1),
        doc="How many tasks share the partitions; processes with the same file deal them out.",
    )
    consumer_poll_timeout_ms: int = config_key(
        default=1000, type=LONG, rule=at_least(0), doc="How long a task waits for records."
    )
    on_gap: str = config_key(
        default=CONTINUE,
        rule=one_of(CONTINUE, FAIL),
        importance=HIGH,
        doc="What is done where records of the source are gone before they were copied: by "
        "retention, a truncation, or a topic that was made again. continue: report, count and go "
        "on with what is there; fail: report and stop the partition's flow. Ottla's own.",
    )
    errors_tolerance: str = config_key(
        default="none",
        rule=one_of("none", "all"),
        importance=HIGH,
        doc="What is done with a record that the target refuses, as it is too large or has a "
        "timestamp that it does not take. none: its partition stands still there, all others are "
        "copied, and it is tried again from time to time; all: it is left out. The log names it.",
    )
    errors_deadletterqueue_topic_name: str = config_key(
        default="",
        doc="The topic at the target for records that are left out, as their bytes were; it has "
        "to take what the copies do not. With errors.tolerance=all.",
    )
    errors_deadletterqueue_topic_replication_factor: int = config_key(
        default=3,
        rule=at_least(-1),
        importance=LOW,
        doc="The replicas of that topic; -1: the target's default.",
    )
    errors_deadletterqueue_context_headers_enable: bool = config_key(
        default=False,
        doc="Whether records there have headers that say where they are from and why.",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        if not values["replication_policy_separator"]:
            raise ConfigError("replication.policy.separator=: must not be empty")


class MirrorConnectorConfig(MirrorConfig):
    """The settings of a mirror's connector in a Connect worker: a flow's, and both clusters."""

    source_cluster_alias: str = config_key(
        default=REQUIRED, importance=HIGH, doc="What the source is called."
    )
    target_cluster_alias: str = config_key(
        default="target", importance=HIGH, doc="What the target is called."
    )
    source_cluster_bootstrap_servers: tuple[str, ...] = config_key(
        default=REQUIRED,
        importance=HIGH,
        doc="Its brokers. Other settings of clients there have the same prefix.",
    )
    target_cluster_bootstrap_servers: tuple[str, ...] = config_key(
        default=REQUIRED, importance=HIGH, doc="The same of the target."
    )
