"""The settings of the consumer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Final

from ottla.config.client_config import ClientConfig
from ottla.config.config_def import HIGH, LOW, config_key
from ottla.config.config_type import BOOLEAN, CLASS, INT, LIST, STRING, at_least, one_of
from ottla.config.known_keys import CONSUMER_UNUSED
from ottla.errors import ConfigError

CONSUMER_PROTOCOL: Final = "consumer"
CLASSIC_ONLY: Final = frozenset(
    {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"}
)
"""What the group's coordinator decides where the group speaks the consumer protocol."""


class ConsumerConfig(ClientConfig):
    """Everything that a consumer is set up with."""

    unused: ClassVar[Mapping[str, str]] = CONSUMER_UNUSED

    group_id: str | None = config_key(
        default=None,
        type=STRING,
        importance=HIGH,
        doc="The group that the consumer shares its topics and its offsets with.",
    )
    group_protocol: str = config_key(
        default="classic",
        type=STRING,
        rule=one_of("classic", CONSUMER_PROTOCOL),
        doc="The protocol of the group: classic, where a member assigns the partitions, or "
        "consumer, where the broker does (KIP-848).",
    )
    group_remote_assignor: str | None = config_key(
        default=None,
        type=STRING,
        doc="The broker's assignor that the member asks for with group.protocol=consumer; "
        "by default the broker chooses.",
    )
    group_instance_id: str | None = config_key(
        default=None,
        type=STRING,
        doc="A name that outlives restarts: coming back within the session timeout "
        "does not make the group rebalance.",
    )
    session_timeout_ms: int = config_key(
        default=45000,
        type=INT,
        importance=HIGH,
        doc="A member that is not heard of for this long is taken out of its group.",
    )
    heartbeat_interval_ms: int = config_key(
        default=3000,
        type=INT,
        importance=HIGH,
        doc="How often a member says that it lives.",
    )
    max_poll_interval_ms: int = config_key(
        default=300000,
        type=INT,
        rule=at_least(1),
        doc="A consumer that does not poll for this long leaves its group.",
    )
    max_poll_records: int = config_key(
        default=500,
        type=INT,
        rule=at_least(1),
        doc="The most records that one poll returns.",
    )
    fetch_min_bytes: int = config_key(
        default=1,
        type=INT,
        rule=at_least(0),
        importance=HIGH,
        doc="A broker waits until it has this much to send.",
    )
    fetch_max_wait_ms: int = config_key(
        default=500,
        type=INT,
        rule=at_least(0),
        importance=LOW,
        doc="... but no longer than this.",
    )
    fetch_max_bytes: int = config_key(
        default=52428800,
        type=INT,
        rule=at_least(0),
        doc="The most bytes that the answer to one fetch may carry.",
    )
    max_partition_fetch_bytes: int = config_key(
        default=1048576,
        type=INT,
        rule=at_least(0),
        importance=HIGH,
        doc="The most bytes of one partition in one answer; a larger first batch comes whole.",
    )
    auto_offset_reset: str = config_key(
        default="latest",
        type=STRING,
        rule=one_of("latest", "earliest", "none"),
        doc="Where reading begins when no offset is committed, or it is no longer in the log.",
    )
    enable_auto_commit: bool = config_key(
        default=True,
        type=BOOLEAN,
        doc="Whether the positions are committed in the background of poll.",
    )
    auto_commit_interval_ms: int = config_key(
        default=5000,
        type=INT,
        rule=at_least(0),
        importance=LOW,
        doc="How often that happens.",
    )
    partition_assignment_strategy: tuple[Any, ...] = config_key(
        default=("range", "cooperative-sticky"),
        type=LIST,
        doc="How partitions are shared among the members, the most wanted first.",
    )
    isolation_level: str = config_key(
        default="read_uncommitted",
        type=STRING,
        rule=one_of("read_uncommitted", "read_committed"),
        doc="Whether records of transactions are seen before these are committed.",
    )
    allow_auto_create_topics: bool = config_key(
        default=True,
        type=BOOLEAN,
        doc="Whether subscribing to a topic may create it.",
    )
    exclude_internal_topics: bool = config_key(
        default=True,
        type=BOOLEAN,
        doc="Whether a pattern passes over internal topics.",
    )
    check_crcs: bool = config_key(
        default=True,
        type=BOOLEAN,
        importance=LOW,
        doc="Whether the checksum of each batch is verified.",
    )
    client_rack: str = config_key(
        default="",
        type=STRING,
        importance=LOW,
        doc="The rack of the client, told to the broker with each fetch.",
    )
    default_api_timeout_ms: int = config_key(
        default=60000,
        type=INT,
        rule=at_least(0),
        doc="How long a call without a time limit of its own may take.",
    )
    key_deserializer: Any = config_key(
        default=None,
        type=CLASS,
        importance=HIGH,
        doc="Makes keys of bytes: a callable, or the import path of one. Unset: bytes.",
    )
    value_deserializer: Any = config_key(
        default=None,
        type=CLASS,
        importance=HIGH,
        doc="Makes values of bytes: a callable, or the import path of one. Unset: bytes.",
    )
    interceptor_classes: tuple[Any, ...] = config_key(
        default=(),
        type=LIST,
        importance=LOW,
        doc="Objects that see the records of each poll and each commit.",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        session = values["session_timeout_ms"]
        heartbeat = values["heartbeat_interval_ms"]
        if heartbeat >= session:
            raise ConfigError(
                f"heartbeat.interval.ms={heartbeat}: must be less than session.timeout.ms, "
                f"{session}"
            )
        if values["group_protocol"] == CONSUMER_PROTOCOL:
            for name in sorted(CLASSIC_ONLY.intersection(given)):
                raise ConfigError(f"{name}: cannot be set with group.protocol=consumer")
        if values["group_id"] is None and "enable.auto.commit" not in given:
            values["enable_auto_commit"] = False
