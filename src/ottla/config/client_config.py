"""The settings of the clients: those of all, and of admin client, producer and consumer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Final

from ottla.config.config_def import HIGH, LOW, config_key
from ottla.config.config_type import CLASS, INT_MAX, LONG, STRING
from ottla.config.known_keys import (
    ADMIN_UNUSED,
    CLIENT_REFUSED,
    CONSUMER_UNUSED,
    PRODUCER_UNUSED,
    Refusal,
)
from ottla.config.network_config import SUPPORTED_PROTOCOLS
from ottla.config.rule import any_of, at_least, between, name_in_requests, one_of
from ottla.config.sasl_client_config import SaslClientConfig
from ottla.config.ssl_config import SslConfig
from ottla.config.whole_number import number_of
from ottla.errors import ConfigError


class ClientConfig(SaslClientConfig, SslConfig, group=True):
    """Settings of every client: where the cluster is, how to connect, when to try again."""

    refused: ClassVar[Mapping[str, Refusal]] = CLIENT_REFUSED

    bootstrap_servers: tuple[str, ...] = config_key(
        default=(),
        importance=HIGH,
        doc="Some brokers of the cluster, as host:port with commas between; "
        "the others are learned from them.",
    )
    client_id: str = config_key(
        default="ottla",
        rule=name_in_requests(),
        doc="The name under which the client appears in logs and quotas of the broker.",
    )
    security_protocol: str = config_key(
        default="PLAINTEXT",
        rule=one_of(*SUPPORTED_PROTOCOLS),
        doc="How connections are protected: PLAINTEXT not at all, SSL by TLS, see the ssl.* keys; "
        "with SASL_ before it the client also logs in, see the sasl.* keys.",
    )
    request_timeout_ms: int = config_key(
        default=30000,
        rule=at_least(0),
        doc="How long a request may wait for its response.",
    )
    retry_backoff_ms: int = config_key(
        default=100,
        type=LONG,
        rule=at_least(0),
        importance=LOW,
        doc="The wait before a request is tried again for the first time.",
    )
    retry_backoff_max_ms: int = config_key(
        default=1000,
        type=LONG,
        rule=at_least(0),
        importance=LOW,
        doc="The wait doubles with each further try up to this.",
    )
    reconnect_backoff_ms: int = config_key(
        default=50,
        type=LONG,
        rule=at_least(0),
        importance=LOW,
        doc="The wait before a broker is connected to again for the first time.",
    )
    reconnect_backoff_max_ms: int = config_key(
        default=1000,
        type=LONG,
        rule=at_least(0),
        importance=LOW,
        doc="The wait doubles with each failed connection up to this.",
    )
    metadata_max_age_ms: int = config_key(
        default=300000,
        type=LONG,
        rule=at_least(0),
        importance=LOW,
        doc="Metadata older than this are fetched again.",
    )
    connections_max_idle_ms: int = config_key(
        default=540000,
        type=LONG,
        doc="A connection that was not used for this long is closed.",
    )
    socket_connection_setup_timeout_ms: int = config_key(
        default=10000,
        type=LONG,
        rule=at_least(1),
        doc="How long a connection may take to be established.",
    )
    send_buffer_bytes: int = config_key(
        default=131072,
        rule=at_least(-1),
        doc="SO_SNDBUF of connections; -1 leaves it to the operating system.",
    )
    receive_buffer_bytes: int = config_key(
        default=65536,
        rule=at_least(-1),
        doc="SO_RCVBUF of connections; -1 leaves it to the operating system.",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        for server in values["bootstrap_servers"]:
            host, _, port = str(server).rpartition(":")
            if not host or number_of(port, 1, 65535) is None:
                raise ConfigError(f"bootstrap.servers={server}: must be host:port")


class AdminConfig(ClientConfig):
    """Everything that an admin client is set up with."""

    unused: ClassVar[Mapping[str, str]] = ADMIN_UNUSED

    default_api_timeout_ms: int = config_key(
        default=60000,
        rule=at_least(0),
        doc="How long a call without a time limit of its own may take.",
    )
    retries: int = config_key(
        default=INT_MAX,
        rule=at_least(0),
        importance=LOW,
        doc="How often a request is tried again, within default.api.timeout.ms.",
    )


class ProducerConfig(ClientConfig):
    """Everything that a producer is set up with."""

    unused: ClassVar[Mapping[str, str]] = PRODUCER_UNUSED

    acks: int = config_key(
        default="all",
        type=STRING,
        rule=one_of("all", "-1", "0", "1"),
        importance=HIGH,
        doc="Which replicas must have a record before it counts as sent: "
        "all in sync (all or -1), the leader (1), or nobody (0).",
    )
    enable_idempotence: bool = config_key(
        default=True,
        doc="Whether retries are recognised by the broker, so that no record is there twice. "
        "Switched off by itself where acks, retries or max.in.flight do not permit it.",
    )
    batch_size: int = config_key(
        default=16384,
        rule=at_least(0),
        doc="A batch of a partition is sent when it has this many bytes. Where it is not set, the "
        "batch takes records up to 128 KiB until the sender comes to it.",
    )
    linger_ms: int = config_key(
        default=5,
        type=LONG,
        rule=at_least(0),
        doc="How long a batch that is not full waits for more records.",
    )
    buffer_memory: int = config_key(
        default=33554432,
        type=LONG,
        rule=at_least(0),
        importance=HIGH,
        doc="How many bytes of records may wait to be sent; send() blocks beyond that.",
    )
    max_block_ms: int = config_key(
        default=60000,
        type=LONG,
        rule=at_least(0),
        doc="How long send() may block for memory or metadata.",
    )
    max_request_size: int = config_key(
        default=1048576,
        rule=at_least(0),
        doc="The largest produce request, and so the largest record.",
    )
    max_in_flight_requests_per_connection: int = config_key(
        default=5,
        rule=at_least(1),
        importance=LOW,
        doc="How many requests may be unanswered on a connection.",
    )
    delivery_timeout_ms: int = config_key(
        default=120000,
        rule=at_least(0),
        doc="How long after send() a record has either arrived or failed.",
    )
    retries: int = config_key(
        default=INT_MAX,
        rule=at_least(0),
        importance=HIGH,
        doc="How often a batch is sent again, within delivery.timeout.ms.",
    )
    compression_type: str = config_key(
        default="none",
        rule=one_of("none", "gzip", "snappy", "lz4", "zstd"),
        importance=HIGH,
        doc="The codec of the batches.",
    )
    compression_gzip_level: int = config_key(
        default=-1,
        rule=any_of(between(1, 9), between(-1, -1)),
        doc="The level of gzip; -1 is the default of the library.",
    )
    compression_lz4_level: int = config_key(default=9, rule=between(1, 17), doc="The level of lz4.")
    compression_zstd_level: int = config_key(
        default=3,
        rule=between(-131072, 22),
        doc="The level of zstd.",
    )
    key_serializer: Any = config_key(
        default=None,
        type=CLASS,
        importance=HIGH,
        doc="Makes bytes of keys: a callable, or the import path of one. "
        "Unset: bytes stay as they are, texts become UTF-8.",
    )
    value_serializer: Any = config_key(
        default=None,
        type=CLASS,
        importance=HIGH,
        doc="Makes bytes of values: a callable, or the import path of one. "
        "Unset: bytes stay as they are, texts become UTF-8.",
    )
    partitioner_class: Any = config_key(
        default=None,
        type=CLASS,
        doc="Chooses the partition of a record: a callable, a class, or the import path of one. "
        "Unset: by murmur2 of the key, records without a key fill one batch after the other.",
    )
    partitioner_ignore_keys: bool = config_key(
        default=False,
        doc="Whether records with a key are spread as those without.",
    )
    interceptor_classes: tuple[Any, ...] = config_key(
        default=(),
        importance=LOW,
        doc="Objects that see each record before it is sent and each acknowledgement.",
    )
    transactional_id: str | None = config_key(
        default=None,
        rule=name_in_requests(),
        doc="The name of the producer in transactions. It outlives restarts: whoever takes it "
        "over aborts what the one before had begun, and shuts that one out. Needs idempotence.",
    )
    transaction_timeout_ms: int = config_key(
        default=60000,
        rule=at_least(1),
        doc="A transaction that is open for longer is aborted by the broker, which has a limit "
        "of its own, transaction.max.timeout.ms.",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        values["acks"] = -1 if values["acks"] == "all" else int(values["acks"])
        _check_idempotence(values, given)
        _check_delivery_timeout(values, given)


def _check_idempotence(values: dict[str, Any], given: Collection[str]) -> None:
    """Idempotence needs acks=all, retries, and no more in flight than a broker remembers (5)."""
    obstacles = {
        "acks": values["acks"] != -1,
        "retries": values["retries"] == 0,
        "max.in.flight.requests.per.connection": (
            values["max_in_flight_requests_per_connection"] > 5
        ),
    }
    transactional_id = values["transactional_id"]
    if transactional_id == "":
        raise ConfigError("transactional.id=: must not be empty")
    if transactional_id and not values["enable_idempotence"]:
        raise ConfigError(f"transactional.id={transactional_id}: needs enable.idempotence=true")
    found = [name for name, is_obstacle in obstacles.items() if is_obstacle]
    if not found or not values["enable_idempotence"]:
        return
    if transactional_id or "enable.idempotence" in given:
        name = found[0]
        because = "transactional.id" if transactional_id else "enable.idempotence=true"
        raise ConfigError(
            f"{name}={values[name.replace('.', '_')]}: does not go with {because}, "
            "which needs acks=all, retries and at most 5 requests in flight"
        )
    values["enable_idempotence"] = False


def _check_delivery_timeout(values: dict[str, Any], given: Collection[str]) -> None:
    least = values["linger_ms"] + values["request_timeout_ms"]
    if values["delivery_timeout_ms"] >= least:
        return
    if "delivery.timeout.ms" in given:
        raise ConfigError(
            f"delivery.timeout.ms={values['delivery_timeout_ms']}: must be at least linger.ms + "
            f"request.timeout.ms, {least}"
        )
    values["delivery_timeout_ms"] = min(least, INT_MAX)


CONSUMER_PROTOCOL: Final = "consumer"
CLASSIC_ONLY: Final = frozenset(
    {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"}
)
"""The settings that the coordinator decides where the group speaks the consumer protocol."""


class ConsumerConfig(ClientConfig):
    """Everything that a consumer is set up with."""

    unused: ClassVar[Mapping[str, str]] = CONSUMER_UNUSED

    group_id: str | None = config_key(
        default=None,
        importance=HIGH,
        rule=name_in_requests(),
        doc="The group that the consumer shares its topics and its offsets with.",
    )
    group_protocol: str = config_key(
        default="classic",
        rule=one_of("classic", CONSUMER_PROTOCOL),
        doc="The protocol of the group: classic, where a member assigns the partitions, or "
        "consumer, where the broker does (KIP-848).",
    )
    group_remote_assignor: str | None = config_key(
        default=None,
        doc="The broker's assignor that the member asks for with group.protocol=consumer; "
        "by default the broker chooses.",
    )
    group_instance_id: str | None = config_key(
        default=None,
        rule=name_in_requests(),
        doc="A name that outlives restarts: coming back within the session timeout "
        "does not make the group rebalance.",
    )
    session_timeout_ms: int = config_key(
        default=45000,
        importance=HIGH,
        doc="A member that is not heard of for this long is taken out of its group.",
    )
    heartbeat_interval_ms: int = config_key(
        default=3000,
        importance=HIGH,
        doc="How often a member says that it lives.",
    )
    max_poll_interval_ms: int = config_key(
        default=300000,
        rule=at_least(1),
        doc="A consumer that does not poll for this long leaves its group.",
    )
    max_poll_records: int = config_key(
        default=500,
        rule=at_least(1),
        doc="The most records that one poll returns.",
    )
    fetch_min_bytes: int = config_key(
        default=1,
        rule=at_least(0),
        importance=HIGH,
        doc="A broker waits until it has this much to send.",
    )
    fetch_max_wait_ms: int = config_key(
        default=500,
        rule=at_least(0),
        importance=LOW,
        doc="... but no longer than this.",
    )
    fetch_max_bytes: int = config_key(
        default=52428800,
        rule=at_least(0),
        doc="The most bytes that the answer to one fetch may carry.",
    )
    max_partition_fetch_bytes: int = config_key(
        default=1048576,
        rule=at_least(0),
        importance=HIGH,
        doc="The most bytes of one partition in one answer; a larger first batch comes whole.",
    )
    auto_offset_reset: str = config_key(
        default="latest",
        rule=one_of("latest", "earliest", "none"),
        doc="Where reading begins when no offset is committed, or it is no longer in the log.",
    )
    enable_auto_commit: bool = config_key(
        default=True,
        doc="Whether the positions are committed in the background of poll.",
    )
    auto_commit_interval_ms: int = config_key(
        default=5000,
        rule=at_least(0),
        importance=LOW,
        doc="How often that happens.",
    )
    partition_assignment_strategy: tuple[Any, ...] = config_key(
        default=("range", "cooperative-sticky"),
        doc="How partitions are shared among the members, the most wanted first.",
    )
    isolation_level: str = config_key(
        default="read_uncommitted",
        rule=one_of("read_uncommitted", "read_committed"),
        doc="Whether records of transactions are seen before these are committed.",
    )
    allow_auto_create_topics: bool = config_key(
        default=True,
        doc="Whether subscribing to a topic may create it.",
    )
    exclude_internal_topics: bool = config_key(
        default=True,
        doc="Whether a pattern passes over internal topics.",
    )
    check_crcs: bool = config_key(
        default=True,
        importance=LOW,
        doc="Whether the checksum of each batch is verified.",
    )
    client_rack: str = config_key(
        default="",
        importance=LOW,
        rule=name_in_requests(),
        doc="The rack of the client, told to the broker with each fetch.",
    )
    default_api_timeout_ms: int = config_key(
        default=60000,
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
