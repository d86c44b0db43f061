"""Where reading begins or ends, as the user said it; offsets are looked up when a query runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ottla.structs import TopicPartition


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first record that each partition still has."""


@dataclass(frozen=True, slots=True)
class Latest:
    """Behind the last record of each partition."""


@dataclass(frozen=True, slots=True)
class ByOffset:
    """An offset for each partition; -2 stands for the earliest, -1 for the latest.

    `epochs` are those of the logs in which the partitions were read up to there, where known.
    """

    option: str
    offsets: Mapping[TopicPartition, int]
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ByTimestamp:
    """A timestamp for each partition; `when_none` (error, latest) says what to do where no record
    is that young."""

    option: str
    timestamps_ms: Mapping[TopicPartition, int]
    when_none: str


@dataclass(frozen=True, slots=True)
class GlobalTimestamp:
    """One timestamp for all partitions."""

    timestamp_ms: int
    when_none: str


def epochs_of(bound: Bound) -> dict[TopicPartition, int]:
    """The leader epochs that a bound names."""
    return dict(bound.epochs) if isinstance(bound, ByOffset) else {}


Bound: TypeAlias = Earliest | Latest | ByOffset | ByTimestamp | GlobalTimestamp
