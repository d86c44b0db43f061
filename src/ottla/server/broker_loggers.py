"""The broker's loggers as a resource: their levels are described and changed while it runs.

Each broker has its own levels, nothing is stored, and a restart brings those of the start back, as
in Kafka (KIP-412). Python has no level TRACE: here it is one below DEBUG.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.configs import (
    ConfigOperation,
    DescribeConfigsResourceResult,
    IncrementalAlterableConfig,
)
from ottla.runtime.log_levels import LEVELS, ROOT, call_followers, level_of, logger_names
from ottla.structs import ConfigSource

STRING_TYPE: Final = 2


def describe(keys: Sequence[str] | None) -> list[DescribeConfigsResourceResult]:
    """The loggers with their levels; only those of `keys` where there are some."""
    return [
        DescribeConfigsResourceResult(
            name=name,
            value=level_of(name),
            config_source=int(ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG),
            config_type=STRING_TYPE,
        )
        for name in logger_names()
        if not keys or name in keys
    ]


def alter(changes: Iterable[IncrementalAlterableConfig], *, validate_only: bool) -> None:
    """Set levels, or give loggers back the level of the loggers above them; all or none."""
    changes = list(changes)
    known = set(logger_names())
    for change in changes:
        _check(change, known)
    for change in () if validate_only else changes:
        logger = logging.getLogger(None if change.name == ROOT else change.name)
        if change.config_operation == ConfigOperation.DELETE:
            logger.setLevel(logging.NOTSET)
        else:
            logger.setLevel(LEVELS[change.value or ""])
    if not validate_only:
        call_followers()


def _check(change: IncrementalAlterableConfig, known: set[str]) -> None:
    name, operation = change.name, change.config_operation
    if name not in known:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == ConfigOperation.DELETE:
        if name == ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{ROOT}: its level cannot be deleted")
    elif operation != ConfigOperation.SET:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{name}: a level can be set or deleted, nothing else"
        )
    elif change.value not in LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{name}={change.value}: must be one of {', '.join(LEVELS)}"
        )
