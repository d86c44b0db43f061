"""The assignors that the coordinator has: `uniform` and `range`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.coordinator.group.consumer.assignors.assignor import (
    Assignor,
    assign_range,
    assign_uniform,
)

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""By the names that `group.consumer.assignors` and members use."""
