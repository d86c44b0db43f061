"""The arguments of `process`, checked."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.errors import ConfigError

if TYPE_CHECKING:
    from ottla.clients.consumer.consumer_record import ConsumerRecord

ORDERS = ("key", "partition")


class ProcessOptions(NamedTuple):
    """How records are worked on; the names are those of `Consumer.process`."""

    handler: Callable[[ConsumerRecord], Any]
    workers: int
    by: str | Callable[[ConsumerRecord], Hashable]
    retries: int | None
    retry_pause: float
    dead_letters: str | None
    max_in_flight: int

    def check(self, topics: frozenset[str]) -> None:
        """ConfigError, with the name, the value and the rule, for an argument that is wrong.

        `topics` are those that are read.
        """
        if not callable(self.handler):
            raise ConfigError(f"handler={self.handler!r}: must be a function of a record")
        if not callable(self.by) and self.by not in ORDERS:
            raise ConfigError(f"by={self.by!r}: must be one of {', '.join(ORDERS)}, or a function")
        for name, lowest in (("workers", 1), ("max_in_flight", self.workers)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < lowest:
                raise ConfigError(f"{name}={value!r}: must be a whole number, at least {lowest}")
        if self.retries is not None and (not isinstance(self.retries, int) or self.retries < 0):
            raise ConfigError(f"retries={self.retries!r}: must be a number, or None for no end")
        if self.retry_pause < 0:
            raise ConfigError(f"retry_pause={self.retry_pause!r}: must not be negative")
        if self.dead_letters is not None and self.dead_letters in topics:
            raise ConfigError(f"dead_letters={self.dead_letters!r}: this topic is read itself")
