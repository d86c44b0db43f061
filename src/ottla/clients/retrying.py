"""Retries for calls whose errors may pass, and only for those."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from ottla.clients.answers import left_out
from ottla.clients.group_coordination import COORDINATOR_MOVED
from ottla.clients.metadata import Metadata
from ottla.config.config_type import INT_MAX
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError
from ottla.runtime import Scheduler
from ottla.runtime.scheduler import pause, within
from ottla.runtime.timing import Backoff, Deadline

K = TypeVar("K")
V = TypeVar("V")

NO_RETRY = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""Retriable for producers, whose topic may be about to be created; final for other clients."""


GRACE_MS: Final = 100
"""An attempt that knows the deadline ends first, with an error that says more."""


class Retrying:
    """Repeats calls about several keys, for those keys whose error may pass."""

    def __init__(
        self,
        metadata: Metadata,
        backoff: Backoff,
        scheduler: Scheduler,
        *,
        retries: int = INT_MAX,
        ends_attempts: bool = False,
        on_coordinator_moved: Callable[[], object] = lambda: None,
    ) -> None:
        """With `ends_attempts` a hung broker holds no call beyond its deadline; keys that other
        brokers have answered in that attempt have no answer then.
        """
        self._ends_attempts = ends_attempts
        self._metadata = metadata
        self._backoff = backoff
        self._scheduler = scheduler
        self._retries = retries
        self._on_coordinator_moved = on_coordinator_moved

    async def for_each(
        self,
        keys: Iterable[K],
        attempt: Callable[[list[K], Deadline], Awaitable[Mapping[K, V | KafkaError]]],
        deadline: Deadline,
    ) -> dict[K, V | KafkaError]:
        """Call `attempt` for the keys, then for those whose error may pass, until the deadline.

        An error that `attempt` raises counts for all keys of that call. When the time is over each
        key keeps the last error that says why, if there is one, rather than that of the time.
        """
        pending = list(dict.fromkeys(keys))
        results: dict[K, V | KafkaError] = dict.fromkeys(pending, left_out())
        failures = 0
        while pending:
            try:
                answers = await self._attempted(attempt(pending, deadline), deadline)
            except KafkaError as error:
                if failures and isinstance(error, KafkaTimeoutError) and deadline.has_passed:
                    break
                answers = dict.fromkeys(pending, error)
            results.update(answers)
            pending = [key for key in pending if may_pass(results[key])]
            failures += 1
            if failures > self._retries or deadline.has_passed:
                break
            if pending:
                try:
                    await self._before_retry([results[key] for key in pending], failures, deadline)
                except KafkaTimeoutError:
                    break
        return results

    async def _attempted(
        self, attempt: Awaitable[Mapping[K, V | KafkaError]], deadline: Deadline
    ) -> Mapping[K, V | KafkaError]:
        if not self._ends_attempts:
            return await attempt
        return await ended_by(deadline, self._scheduler, attempt, "no broker has answered")

    async def _before_retry(
        self, errors: list[V | KafkaError], failures: int, deadline: Deadline
    ) -> None:
        codes = {error.error for error in errors if isinstance(error, KafkaError)}
        if codes & COORDINATOR_MOVED:
            self._on_coordinator_moved()
        delay_ms = self._backoff.delay_ms(failures)
        await pause(self._scheduler, min(delay_ms, deadline.left_ms))
        if ErrorCode.NOT_CONTROLLER in codes or any(code.refresh_metadata for code in codes):
            await self._metadata.update(deadline)


async def ended_by(deadline: Deadline, scheduler: Scheduler, call: Awaitable[V], what: str) -> V:
    """The result of a call that may not know of the deadline; KafkaTimeoutError soon after it."""
    try:
        return await within(scheduler, deadline.left_ms + GRACE_MS, call, what)
    except KafkaTimeoutError as error:
        if error.message.startswith(what):
            raise deadline.timeout(what) from None
        raise


def may_pass(result: object) -> bool:
    """Whether a result is an error that may not occur again if the call is repeated."""
    return isinstance(result, KafkaError) and result.retriable and result.error not in NO_RETRY
