"""How a group shares its partitions: the assignors that the group's leader may run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.clients.consumer.assignors.assignor import (
    Assignor,
    MemberSubscription,
    RangeAssignor,
    RoundRobinAssignor,
)
from ottla.clients.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from ottla.errors import ConfigError

__all__ = [
    "Assignor",
    "CooperativeStickyAssignor",
    "MemberSubscription",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "assignors_of",
]

_BY_NAME: dict[str, type[Assignor]] = {
    assignor.name: assignor
    for assignor in (
        RangeAssignor,
        RoundRobinAssignor,
        StickyAssignor,
        CooperativeStickyAssignor,
    )
}


def assignors_of(settings: Sequence[Any]) -> list[Assignor]:
    """The assignors that `partition.assignment.strategy` names, by wire name or Kafka's class."""
    return [_assignor_of(setting) for setting in settings]


def _assignor_of(setting: Any) -> Assignor:
    if isinstance(setting, Assignor):
        return setting
    if isinstance(setting, type) and issubclass(setting, Assignor):
        return setting()
    for name, assignor in _BY_NAME.items():
        if setting == name or str(setting).rpartition(".")[2] == assignor.__name__:
            return assignor()
    raise ConfigError(
        f"partition.assignment.strategy={setting}: must be one of {', '.join(_BY_NAME)}"
    )
