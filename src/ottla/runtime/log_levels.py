"""The levels of Python's loggers under Kafka's names, and the methods that follow them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final
from weakref import WeakMethod

ROOT: Final = "root"
LEVELS: Final[dict[str, int]] = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
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


def call_followers() -> None:
    """Levels were changed."""
    _followers[:] = [each for each in _followers if each() is not None]
    for each in _followers:
        method = each()
        if method is not None:
            method()
