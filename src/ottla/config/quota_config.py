"""The keys of client quotas, and their values, as the registry keeps them and tools write them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from ottla.config.config_type import DOUBLE, INT, LONG, LONG_MAX, ConfigType
from ottla.errors import ConfigError
from ottla.structs import ClientEntity

logger = logging.getLogger(__name__)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"

QUOTA_TYPES: Final[Mapping[str, ConfigType]] = {
    PRODUCER_BYTE_RATE: LONG,
    CONSUMER_BYTE_RATE: LONG,
    REQUEST_PERCENTAGE: DOUBLE,
    CONTROLLER_MUTATION_RATE: DOUBLE,
}
"""The keys of quotas of users and client ids, and the types of their values."""

CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
IP_QUOTA_TYPES: Final[Mapping[str, ConfigType]] = {CONNECTION_CREATION_RATE: INT}
"""The keys of quotas of IP addresses (KIP-612)."""


def parse_limit(key: str, value: object, types: Mapping[str, ConfigType] = QUOTA_TYPES) -> float:
    """The limit that a key is set to; ConfigError for an unknown key or a value below 0.

    Requests have limits as doubles. The largest long is none: the double above it stands for it.
    """
    kind = types.get(key)
    if kind is None:
        raise ConfigError(f"{key}: must be one of {', '.join(types)}")
    if isinstance(value, float) and kind is not DOUBLE and value.is_integer():
        value = LONG_MAX if value == float(LONG_MAX) else int(value)
    limit = float(kind.parse(key, value))
    if limit <= 0:
        raise ConfigError(f"{key}={value}: must be greater than 0")
    return limit


def format_limit(key: str, limit: float) -> str:
    """The limit as it is stored: 1024, or 200.0 for a limit that may be a fraction."""
    kind = {**QUOTA_TYPES, **IP_QUOTA_TYPES}[key]
    return str(kind.format(limit if kind is DOUBLE else min(int(limit), LONG_MAX)))


def limit_in(entity: ClientEntity, overrides: Mapping[str, str], key: str) -> float | None:
    """The limit in the stored settings of an entity; a bad value is logged, and limits nothing."""
    if key not in overrides:
        return None
    try:
        return parse_limit(key, overrides[key], {**QUOTA_TYPES, **IP_QUOTA_TYPES})
    except ConfigError as error:
        logger.error("%s: a quota has no effect: %s", entity, error.message)
        return None
