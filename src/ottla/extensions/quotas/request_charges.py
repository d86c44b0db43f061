"""The charges of one request: its bytes, its mutations, and the time of its handler."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, TypeVar

from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.quotas.client_quotas import UNLIMITED, Budgets, ClientQuotas
from ottla.extensions.quotas.timed_transport import PERCENT_PER_NS, TimedTransport, time_network
from ottla.network.connection import Connection
from ottla.network.request_context import MAX_ANSWER_BYTES, RequestContext, RequestQuota
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.header import RequestHeader
from ottla.protocol.message import Response
from ottla.runtime import Slices
from ottla.structs import NamedTuple

T = TypeVar("T")

MEASURED: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
    }
)
"""What is measured beside the time of handlers."""


def charged_context(
    quotas: ClientQuotas,
    connection: Connection,
    header: RequestHeader,
    received_ms: int,
    size: int,
    start_ns: int,
) -> RequestContext:
    """The context of a request of `size` bytes, whose handling began at `start_ns`."""
    budgets = quotas.budgets((connection.principal.name, header.client_id or ""))
    network = time_network(connection, budgets.request, quotas.clock)
    if budgets is UNLIMITED or (budgets.request is None and header.api_key not in MEASURED):
        return RequestContext(connection, header, received_ms)
    if header.api_key != ApiKey.PRODUCE:
        size = 0
    charges = RequestCharges(quotas, budgets, size, start_ns, network)
    return MeteredContext(connection, header, received_ms, charges)


class RequestCharges(RequestQuota):
    """The charges of one request: its bytes, its mutations, and the time of its handler."""

    __slots__ = (
        "_budgets",
        "_delay_ms",
        "_is_exempt",
        "_network",
        "_produce",
        "_start_ns",
        "quotas",
    )

    def __init__(
        self,
        quotas: ClientQuotas,
        budgets: Budgets,
        size: int,
        start_ns: int,
        network: TimedTransport | None,
    ) -> None:
        self.quotas = quotas
        self._budgets = budgets
        self._network = network
        # Its bytes count from now on: a client may leave before it has an answer.
        self._produce = produce = budgets.produce if size else None
        if produce is not None:
            produce.meter.record(size, produce.limit, quotas.clock.monotonic_ms())
        self._start_ns = start_ns
        self._is_exempt = False
        self._delay_ms = 0

    @property
    def max_fetch_bytes(self) -> int:
        budget = self._budgets.fetch
        if budget is None:
            return MAX_ANSWER_BYTES
        return max(1, min(MAX_ANSWER_BYTES, int(budget.limit * self.quotas.burst_seconds)))

    def admits_fetch(self, size: int) -> bool:
        budget = self._budgets.fetch
        if budget is None or not size:
            return True
        fetch, now_ms = self.quotas.fetch, self.quotas.clock.monotonic_ms()
        # A batch that is larger than all that the windows allow would never be sent.
        is_first = budget.meter.is_idle(budget.limit, now_ms)
        delay_ms = fetch.charge(budget, size, now_ms)
        if delay_ms <= 0:
            return True
        self._delay_ms = max(self._delay_ms, delay_ms)
        if is_first:
            return True
        budget.meter.record(-size, budget.limit, now_ms)
        return False

    def admit_mutations(self, count: int, *, is_strict: bool) -> None:
        budget = self._budgets.mutation
        if budget is None:
            return
        mutation, now_ms = self.quotas.mutation, self.quotas.clock.monotonic_ms()
        if not is_strict:
            self._delay_ms = max(self._delay_ms, mutation.charge(budget, count, now_ms))
            return
        delay_ms = mutation.charge(budget, 0, now_ms)
        if delay_ms > 0:
            self._delay_ms = max(self._delay_ms, delay_ms)
            raise KafkaError.of(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{mutation.key}={budget.limit:.15g} is exceeded; try again in {delay_ms} ms",
            )
        budget.meter.record(count, budget.limit, now_ms)

    def exempt(self) -> None:
        self._is_exempt = True
        if self._network is not None:
            self._network.budget = None

    def begin_step(self) -> None:
        """The handler begins, or continues after a wait."""
        self._start_ns = self.quotas.clock.monotonic_ns()

    def end_step(self) -> None:
        """The handler has returned, or waits: from here on its time is free.

        The step counts from now on: a client may leave before it has an answer.
        """
        if self._start_ns:
            clock, budget = self.quotas.clock, self._budgets.request
            handled_ns, self._start_ns = clock.monotonic_ns() - self._start_ns, 0
            if budget is not None and not self._is_exempt:
                percent = handled_ns * PERCENT_PER_NS
                budget.meter.record(percent, budget.limit, clock.monotonic_ms())

    def timed(self, coroutine: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """The same coroutine, charged for its steps."""
        return coroutine if self._budgets.request is None else _timed(coroutine, self)

    def settle(self, *, is_answered: bool) -> int:
        """End the charges; returns for how many milliseconds the client must wait."""
        if not is_answered:
            self.exempt()
        quotas, produce = self.quotas, self._produce
        request = None if self._is_exempt else self._budgets.request
        if produce is None and request is None:
            return self._delay_ms
        now_ms = quotas.clock.monotonic_ms()
        if produce is not None:
            delay_ms = quotas.produce.charge(produce, 0, now_ms)
            self._delay_ms = max(self._delay_ms, delay_ms)
        if request is not None:
            self.end_step()
            delay_ms = quotas.request.charge(request, 0, now_ms)
            self._delay_ms = max(self._delay_ms, delay_ms)
        return self._delay_ms


class _Step(NamedTuple):
    """Awaits the awaitable of one step of a coroutine."""

    waited_for: Any

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self.waited_for)


async def _timed(coroutine: Coroutine[Any, Any, T], charges: RequestCharges) -> T:
    """Run a coroutine, and charge for its steps but not for its waits."""
    send: Callable[[Any], Any] = coroutine.send
    value: Any = None
    while True:
        charges.begin_step()
        try:
            waited_for = send(value)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            charges.end_step()
        try:
            send, value = coroutine.send, await _Step(waited_for)
        except BaseException as error:
            send, value = coroutine.throw, error


class MeteredContext(RequestContext):
    """The context of a request where there are quotas: after its answer the client may be muted."""

    __slots__ = ()
    quota: RequestCharges

    def __init__(
        self,
        connection: Connection,
        header: RequestHeader,
        received_ms: int,
        charges: RequestCharges,
    ) -> None:
        super().__init__(connection, header, received_ms)
        self.quota = charges

    def respond(self, response: Response) -> None:
        delay_ms = self.quota.settle(is_answered=True)
        if delay_ms <= 0:
            super().respond(response)
            return
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = delay_ms
        super().respond(response)
        self._hold(delay_ms)

    async def respond_in_slices(self, response: Response, slices: Slices) -> int:
        delay_ms = self.quota.settle(is_answered=True)
        if delay_ms > 0 and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = delay_ms
        size = await super().respond_in_slices(response, slices)
        if delay_ms > 0:
            self._hold(delay_ms)
        return size

    def no_response(self) -> None:
        delay_ms = self.quota.settle(is_answered=False)
        super().no_response()
        if delay_ms > 0:
            self._hold(delay_ms)

    def _hold(self, delay_ms: int) -> None:
        now_ms = self.quota.quotas.clock.monotonic_ms()
        self.connection.mute_until(now_ms + delay_ms)
