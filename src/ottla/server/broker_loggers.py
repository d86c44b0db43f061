"""The broker's loggers: a resource whose levels change while it runs, and the log of requests.

Each broker has its own levels, nothing is stored, and a restart brings those of the start back, as
in Kafka (KIP-412). Python has no level TRACE: here it is one below DEBUG.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final
from weakref import WeakMethod

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.protocol.configs import DescribeConfigsResourceResult, IncrementalAlterableConfig

ROOT: Final = "root"
LEVELS: Final[dict[str, int]] = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
STRING_TYPE: Final = 2

_followers: list[WeakMethod[Callable[[], object]]] = []


def follow(method: Callable[[], object]) -> None:
    """Have a method called after levels were changed, for as long as its object is there."""
    _followers.append(WeakMethod(method))


def logger_names() -> list[str]:
    """Every logger that there is, the root first."""
    known = logging.root.manager.loggerDict.items()
    return [ROOT, *sorted(name for name, each in known if isinstance(each, logging.Logger))]


def level_of(name: str) -> str:
    """The level in force for a logger, under Kafka's name."""
    number = logging.getLogger(None if name == ROOT else name).getEffectiveLevel()
    return next((level for level, least in LEVELS.items() if number <= least), "FATAL")


def describe(keys: Sequence[str] | None) -> list[DescribeConfigsResourceResult]:
    """The loggers with their levels; only those of `keys` where there are some."""
    from ottla.protocol.configs import DescribeConfigsResourceResult
    from ottla.structs import ConfigSource

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
    from ottla.protocol.configs import ConfigOperation

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
        _call_followers()


def _call_followers() -> None:
    _followers[:] = [each for each in _followers if each() is not None]
    for each in _followers:
        method = each()
        if method is not None:
            method()


def _check(change: IncrementalAlterableConfig, known: set[str]) -> None:
    from ottla.protocol.configs import ConfigOperation

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
            ErrorCode.INVALID_CONFIG,
            f"{name}={change.value}: must be one of {', '.join(LEVELS)}",
        )
