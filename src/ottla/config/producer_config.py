"""The settings of the producer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from ottla.config.client_config import ClientConfig
from ottla.config.config_def import HIGH, LOW, config_key
from ottla.config.config_type import (
    BOOLEAN,
    CLASS,
    INT,
    INT_MAX,
    LIST,
    LONG,
    STRING,
    any_of,
    at_least,
    between,
    one_of,
)
from ottla.config.known_keys import PRODUCER_UNUSED
from ottla.errors import ConfigError


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
        type=BOOLEAN,
        doc="Whether retries are recognised by the broker, so that no record is there twice. "
        "Switched off by itself where acks, retries or max.in.flight do not permit it.",
    )
    batch_size: int = config_key(
        default=16384,
        type=INT,
        rule=at_least(0),
        doc="A batch of a partition is sent when it has this many bytes.",
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
        type=INT,
        rule=at_least(0),
        doc="The largest produce request, and so the largest record.",
    )
    max_in_flight_requests_per_connection: int = config_key(
        default=5,
        type=INT,
        rule=at_least(1),
        importance=LOW,
        doc="How many requests may be unanswered on a connection.",
    )
    delivery_timeout_ms: int = config_key(
        default=120000,
        type=INT,
        rule=at_least(0),
        doc="How long after send() a record has either arrived or failed.",
    )
    retries: int = config_key(
        default=INT_MAX,
        type=INT,
        rule=at_least(0),
        importance=HIGH,
        doc="How often a batch is sent again, within delivery.timeout.ms.",
    )
    compression_type: str = config_key(
        default="none",
        type=STRING,
        rule=one_of("none", "gzip", "snappy", "lz4", "zstd"),
        importance=HIGH,
        doc="The codec of the batches.",
    )
    compression_gzip_level: int = config_key(
        default=-1,
        type=INT,
        rule=any_of(between(1, 9), between(-1, -1)),
        doc="The level of gzip; -1 is the default of the library.",
    )
    compression_lz4_level: int = config_key(
        default=9,
        type=INT,
        rule=between(1, 17),
        doc="The level of lz4.",
    )
    compression_zstd_level: int = config_key(
        default=3,
        type=INT,
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
        type=BOOLEAN,
        doc="Whether records with a key are spread as those without.",
    )
    interceptor_classes: tuple[Any, ...] = config_key(
        default=(),
        type=LIST,
        importance=LOW,
        doc="Objects that see each record before it is sent and each acknowledgement.",
    )
    transactional_id: str | None = config_key(
        default=None,
        type=STRING,
        doc="The name of the producer in transactions. It outlives restarts: whoever takes it "
        "over aborts what the one before had begun, and shuts that one out. Needs idempotence.",
    )
    transaction_timeout_ms: int = config_key(
        default=60000,
        type=INT,
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
