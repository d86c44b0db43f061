"""How a consumer is, for the probes of a supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clients.consumer.subscription_state import SubscriptionType
from ottla.structs import NO_GENERATION, NamedTuple

if TYPE_CHECKING:
    from ottla.clients.consumer.consumer_core import ConsumerCore
    from ottla.errors import KafkaError
    from ottla.structs import TopicPartition


class ConsumerHealth(NamedTuple):
    """A liveness probe looks at `is_alive`, a probe of readiness at `is_ready`."""

    is_alive: bool
    """It polls at least every max.poll.interval.ms, and its loop runs: else it must be restarted.

    A cluster that cannot be reached is no reason: the consumer continues when it is back.
    """
    is_ready: bool
    """It knows where to read in its partitions, and the last poll and commit had no error."""
    assignment: frozenset[TopicPartition]
    lag: int | None
    """How far it is behind in all partitions together; None where that is not known yet."""
    ms_since_poll: int
    last_error: KafkaError | None
    """The error of the last poll or commit, if it failed."""


NO_ANSWER_MS = 1000
"""A loop that does not answer a probe for so long is taken for dead."""


def health_of(core: ConsumerCore) -> ConsumerHealth:
    """The health of an open consumer, asked for on its loop."""
    subscriptions, ms_since_poll = core.subscriptions, core.metrics.ms_since_poll
    lags = [core.current_lag(each) for each in subscriptions.assigned]
    known = [lag for lag in lags if lag is not None]
    commit_error = None if core.coordinator is None else core.coordinator.commit_error
    error = commit_error or core.poll_error
    reads = subscriptions.type is not SubscriptionType.NONE and subscriptions.has_all_positions
    is_member = not subscriptions.is_by_group or is_in_group(core)
    return ConsumerHealth(
        ms_since_poll <= core.config.max_poll_interval_ms,
        reads and is_member and error is None,
        frozenset(subscriptions.assigned),
        sum(known) if is_member and len(known) == len(lags) else None,
        ms_since_poll,
        error,
    )


def is_in_group(core: ConsumerCore) -> bool:
    """Whether it has joined its group, also where it has got no partition there."""
    assert core.coordinator is not None  # else it could not have subscribed
    member = core.coordinator.member
    return not member.is_lost and member.membership.generation != NO_GENERATION


def dead(error: KafkaError | None = None) -> ConsumerHealth:
    """The health of a consumer that is closed, or whose loop does not answer."""
    return ConsumerHealth(False, False, frozenset(), None, 0, error)
