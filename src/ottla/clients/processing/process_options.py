"""The arguments of `process`, checked."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from math import inf
from typing import TYPE_CHECKING, Any

from ottla.errors import ConfigError
from ottla.structs import NamedTuple, is_topic_name

if TYPE_CHECKING:
    from ottla.clients.consumer.subscription_state import SubscriptionState
    from ottla.record.consumer_record import ConsumerRecord

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

    def check(self, subscriptions: SubscriptionState) -> None:
        """ConfigError, with the name, the value and the rule, for an argument that is wrong."""
        if not callable(self.handler):
            raise ConfigError(f"handler={self.handler!r}: must be a function of a record")
        if isgeneratorfunction(self.handler) or isasyncgenfunction(self.handler):
            raise ConfigError(f"handler={self.handler!r}: a generator would not be run")
        if iscoroutinefunction(self.by) or not (callable(self.by) or self.by in ORDERS):
            raise ConfigError(f"by={self.by!r}: must be one of {', '.join(ORDERS)}, or a function")
        if not is_number(self.workers) or self.workers < 1:
            raise ConfigError(f"workers={self.workers!r}: must be a whole number, at least 1")
        if not is_number(self.max_in_flight) or self.max_in_flight < self.workers:
            raise ConfigError(
                f"max_in_flight={self.max_in_flight!r}: must be a whole number, at least "
                f"workers={self.workers}"
            )
        if self.retries is not None and (not is_number(self.retries) or self.retries < 0):
            raise ConfigError(f"retries={self.retries!r}: must be a number, or None for no end")
        if not is_number(self.retry_pause, float):
            raise ConfigError(f"retry_pause={self.retry_pause!r}: must be a number of seconds")
        if not 0 <= self.retry_pause < inf:
            raise ConfigError(f"retry_pause={self.retry_pause!r}: must be finite, not negative")
        if self.dead_letters is not None:
            self._check_dead_letters(self.dead_letters, subscriptions)

    @staticmethod
    def _check_dead_letters(topic: object, subscriptions: SubscriptionState) -> None:
        if not is_topic_name(topic):
            raise ConfigError(
                f"dead_letters={topic!r}: must be a topic's name, of at most 249 letters, digits, "
                "'.', '_' and '-'"
            )
        pattern = subscriptions.pattern
        if topic in subscriptions.topics or (pattern is not None and pattern.fullmatch(topic)):
            raise ConfigError(f"dead_letters={topic!r}: this topic is read itself")


def is_number(value: object, *kinds: type) -> bool:
    """Whether it is a whole number, or of one of the `kinds`; True and False are none."""
    return isinstance(value, (int, *kinds)) and not isinstance(value, bool)
