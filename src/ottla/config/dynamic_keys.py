"""Which settings of a broker can change while it runs, and which of them belong to a listener."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from typing import Final

from ottla.config.config_def import ConfigTableType
from ottla.config.config_type import ConfigType
from ottla.config.known_keys import UNUSED_KEYS, UNUSED_THREAD_KEYS
from ottla.config.sasl_config import sasl_key_of
from ottla.config.ssl_config import ListenerSslSettings, SslSettings
from ottla.config.topic_config import TopicConfig
from ottla.errors import KafkaError

logger = logging.getLogger(__name__)

LISTENER_KEYS: Final = frozenset(
    ("advertised.listeners", "listener.security.protocol.map", "listeners")
)
"""The keys of a broker's listeners, which can be added and removed; one that stays is as before."""

DYNAMIC_BROKER_KEYS: Final = (
    frozenset(row.broker_keys[0] for row in TopicConfig.keys.values() if row.broker_keys)
    | LISTENER_KEYS
    | {
        "metric.reporters",
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "producer.id.expiration.ms",
        "request.log.apis",
        "request.log.client.ids",
        "request.log.principals",
        "request.log.slower.than.ms",
    }
)
"""The broker's settings that can change while it runs."""

THREAD_KEYS: Final = frozenset(UNUSED_THREAD_KEYS) | {
    "log.cleaner.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
}
"""One change can at most double or halve these, as in Kafka."""

LISTENER_SECRETS: Final = frozenset(
    name for name, row in SslSettings.keys.items() if row.type is ConfigType.PASSWORD
) | {"sasl.jaas.config"}
"""The settings that the registry keeps encrypted, where `password.encoder.secret` is set."""

KEY_STORE_KEYS: Final = (LISTENER_SECRETS & SslSettings.keys.keys()) | {
    f"ssl.{store}.{part}" for store in ("keystore", "truststore") for part in ("location", "type")
}
"""Behind listener.name.<name>. of one broker."""

NEW_LISTENER_KEYS: Final = ListenerSslSettings.keys.keys() | {
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
}
"""Behind listener.name.<name>. as well, but only as the listener is added."""

OF_LISTENER: Final = r"listener\.name\.([^.]+)\.(.+)"

CREATION_RATE_KEY: Final = "max.connection.creation.rate"

UNCLEAN_ELECTION_KEY: Final = "unclean.leader.election.enable"


def key_of_listener(name: str) -> str | None:
    """The key, as `ssl.client.auth`, in a setting of a single listener; else None."""
    match = re.fullmatch(OF_LISTENER, name)
    return None if match is None else sasl_key_of(name) or match[2]


def is_key_store(name: str) -> bool:
    """Whether a setting says where a listener's keys or those it trusts are."""
    return key_of_listener(name) in KEY_STORE_KEYS


def is_of_listener(name: str) -> bool:
    """Whether a setting of a single listener can change, or come with the listener."""
    key = key_of_listener(name)
    return key in KEY_STORE_KEYS or key in NEW_LISTENER_KEYS or key == CREATION_RATE_KEY


def is_secret(name: str) -> bool:
    """Whether the registry keeps a setting of a listener encrypted."""
    return key_of_listener(name) in LISTENER_SECRETS


def is_of_one_broker(name: str) -> bool:
    """Whether a setting cannot be made for all brokers at once."""
    return name in LISTENER_KEYS or (is_of_listener(name) and not name.endswith(CREATION_RATE_KEY))


def is_dynamic(name: str) -> bool:
    """Whether a setting of the broker can change while it runs."""
    return name in DYNAMIC_BROKER_KEYS or name in UNUSED_KEYS or is_of_listener(name)


def changed_keys(before: Mapping[str, str], after: Mapping[str, str]) -> Collection[str]:
    """The keys that have come, gone, or have other values."""
    return {key for key, _ in before.items() ^ after.items()}


def without_bad_values(
    owner: str, table: ConfigTableType, overrides: Mapping[str, str]
) -> dict[str, str]:
    """Leave out values that break our rules: other software may have written the registry."""
    good = {}
    for name, text in overrides.items():
        row = table.keys.get(name)
        try:
            if row is not None:
                row.parse(text)
        except KafkaError as error:
            logger.error("%s: an override in the registry has no effect: %s", owner, error.message)
        else:
            good[name] = text
    return good
