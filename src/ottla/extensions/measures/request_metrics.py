"""The cost of requests: how many there are, with which errors, and where their time goes.

Every request is counted. Times are taken of up to a hundred requests a second, chosen evenly: of
all at a small load, of one in a hundred where ten thousand come; a histogram keeps no more than
that. Counting takes 0.35 microseconds for a request with one partition and 0.07 for each further
one (CPU time), and timing next to nothing. The clock is read when a request has been received, when
its handler begins and returns, when its answer is ready, and when that begins to be sent and has
been sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from ottla.errors import ErrorCode
from ottla.extensions.measures.request_log import Entry, RequestLog, described
from ottla.metrics.metrics_registry import Family, FamilyName, Kind, MetricsRegistry, Series
from ottla.metrics.sensors import TICK_MS, Histogram, Meter
from ottla.network.connection import Connection
from ottla.network.processor import Sent
from ottla.network.request_context import RequestContext
from ottla.network.request_watch import RequestWatch
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.fetch import FetchRequest
from ottla.protocol.message import Request, Response, request_class
from ottla.protocol.types import Array
from ottla.runtime.scheduler import Work
from ottla.server.brokers_only import is_follower
from ottla.server.request_meter import RequestMeter

DOMAIN: Final = "kafka.network"
TYPE: Final = "RequestMetrics"
TIMED_PER_SECOND: Final = 100
LOOK_EACH: Final = 20
"""The timed requests between two looks at whether they come too fast."""
MOST_FEWER: Final = 10
"""One look makes requests that are timed no rarer than this: a burst says little of the next."""
ROWS_AT_ONCE: Final = 1_024
NS_PER_MS: Final = 1_000_000
COUNTED_IN_A_SLICE: Final = 20_000

FETCH_CONSUMER: Final = "FetchConsumer"
FETCH_FOLLOWER: Final = "FetchFollower"

TIMES: Final[dict[str, str]] = {
    "TotalTimeMs": "From when a request was received until its answer had been sent, in ms.",
    "RequestQueueTimeMs": "From when a request was received until its handler began, in ms.",
    "LocalTimeMs": "In the handler of a request, in ms.",
    "RemoteTimeMs": "From when the handler returned until the answer was ready: waiting for "
    "replicas, for data, for other members or for a disk, in ms.",
    "ResponseQueueTimeMs": "From when an answer was ready until it began to be sent, in ms.",
    "ResponseSendTimeMs": "From when an answer began to be sent until it had been, in ms.",
    "ThrottleTimeMs": "For how long quotas held the client after a request, in ms.",
    "RequestBytes": "The size of requests, in bytes.",
}
"""The histograms of a kind of request, in the order of the columns of a row."""

Row = tuple[float, ...]
EndOfRequest = Callable[[Response | None], object]


class RequestMetrics(RequestMeter):
    """Measures the requests of a broker, by API.

    With a `log` every request is timed, and shown to it.
    """

    def __init__(self, registry: MetricsRegistry, sent: Sent) -> None:
        super().__init__(self._measure)
        self.registry = registry
        self.sent = sent
        self.log: RequestLog | None = None
        self.now_ns = registry.runtime.clock.monotonic_ns
        self._kinds: dict[int, RequestNumbers] = {}
        self._fetches = self._new_kind(FETCH_CONSUMER, ApiKey.FETCH)
        self._follower_fetches = self._new_kind(FETCH_FOLLOWER, ApiKey.FETCH)
        self._every = 1
        self._counted = 0
        self._until_look, self._looked_ns = LOOK_EACH, self.now_ns()
        self._register()
        registry.before_read(self._fold_all)
        registry.on_tick(self._adapt)

    def _new_kind(self, name: str, api_key: int) -> RequestNumbers:
        return RequestNumbers(name, self.registry, request_class(api_key).response_class)

    def _kind(self, api_key: int) -> RequestNumbers:
        kind = self._kinds.get(api_key)
        if kind is None:
            name = request_class(api_key).__name__.removesuffix("Request")
            kind = self._kinds[api_key] = self._new_kind(name, api_key)
            if api_key != ApiKey.FETCH:  # of these `measure` looks for the kind of the reader
                self.watches[api_key] = kind
        return kind

    def _measure(self, context: RequestContext, body: Request, size: int) -> RequestWatch:
        """Count a request that is handled now, and choose whether it is timed."""
        if isinstance(body, FetchRequest):
            kind = self._follower_fetches if is_follower(body) else self._fetches
        else:
            kind = self._kind(context.header.api_key)
        kind.versions[context.header.api_version] += 1
        self.until_timed -= 1
        log = self.log
        if self.until_timed > 0 and log is None:
            return kind
        self._counted += self._every
        timed = TimedRequest(self, kind, context, size)
        self._until_look -= 1
        if not self._until_look:
            self._look(timed.began_ns)
        self.until_timed = self._every
        if log is not None:
            self.until_timed = 1
            timed.entry = log.begin(context, body)
        return timed

    def _look(self, now_ns: int) -> None:
        """Time fewer at once when many come: a burst is not waited out until the next tick."""
        elapsed_ns, self._looked_ns = now_ns - self._looked_ns, now_ns
        self._until_look = LOOK_EACH
        too_many = LOOK_EACH * 1_000_000_000 / TIMED_PER_SECOND / max(1, elapsed_ns)
        if too_many > 1:
            self._every = round(self._every * min(too_many, MOST_FEWER)) or 1

    def on_sent(self, connection: Connection) -> None:
        """The answers of a connection have been sent, or it has ended.

        Those that are ready behind an unacknowledged produce have not: they wait in its `owed`.
        """
        sent_ns, began_ns = self.now_ns(), self.sent.began_ns
        held: tuple[TimedRequest, ...] = ()
        for request in connection.unsent:
            assert isinstance(request, TimedRequest), "only timed requests are waited for"
            if request.context in connection.owed:
                request.is_held = True
                held += (request,)
                continue
            # Of the turn in which one is sent that was held, it is not known when sending began.
            row = request.row(sent_ns if request.is_held else min(began_ns, sent_ns), sent_ns)
            rows = request.kind.rows
            rows.append(row)
            if request.entry is not None and self.log is not None:
                self.log.end(request.entry, dict(zip(TIMES, row, strict=True)))
            if len(rows) >= ROWS_AT_ONCE:
                self._fold_all()
        connection.unsent = held

    def _adapt(self) -> None:
        """Time fewer or more of the requests, as more or fewer come."""
        count, self._counted = self._counted, 0
        per_second = 1000 * count / TICK_MS
        self._every = max(1, round(per_second / TIMED_PER_SECOND))
        self.until_timed = min(self.until_timed, self._every)

    def _fold_all(self) -> None:
        now_ms = self.registry.now_ms
        fetches = self._kind(ApiKey.FETCH)
        for part in (self._fetches, self._follower_fetches):
            fetches.rows += part.rows
        for kind in self._all():
            kind.fold(now_ms)

    def _all(self) -> list[RequestNumbers]:
        """Every kind that has had a request; Fetch is the sum of its two parts."""
        whole = self._kind(ApiKey.FETCH)
        parts = (self._fetches, self._follower_fetches)
        for counts in ("versions", "errors"):
            summed: dict[int, int] = getattr(whole, counts)
            for key in {key for part in parts for key in getattr(part, counts)}:
                summed[key] = sum(getattr(part, counts).get(key, 0) for part in parts)
        return [kind for kind in (*self._kinds.values(), *parts) if kind.versions]

    def _register(self) -> None:
        def family(name: str, kind: Kind, doc: str, read: Callable[[], Series]) -> None:
            self.registry.register(Family(FamilyName(DOMAIN, TYPE, name), kind, doc, read))

        family("RequestsPerSec", Kind.METER, "Requests, by API and version.", self._requests)
        family("ErrorsPerSec", Kind.METER, "Errors in answers, also NONE, by API.", self._errors)
        for index, (name, doc) in enumerate(TIMES.items()):
            family(name, Kind.HISTOGRAM, doc, partial(self._times, index))

    def _requests(self) -> Series:
        for kind in self._all():
            for version in sorted(kind.versions):
                yield from self._meter(kind, "version", str(version), kind.versions, version)

    def _errors(self) -> Series:
        for kind in self._all():
            for code in sorted(kind.errors):
                name = ErrorCode.of(code).name
                yield from self._meter(kind, "error", name, kind.errors, code)

    def _meter(
        self, kind: RequestNumbers, tag: str, value: str, counts: dict[int, int], key: int
    ) -> Iterator[tuple[tuple[tuple[str, str], ...], Meter]]:
        meter = kind.meters.get((tag, value))
        if meter is None:
            meter = self.registry.new_meter(lambda: counts[key], "requests")
            kind.meters[tag, value] = meter
        yield (("request", kind.name), (tag, value)), meter

    def _times(self, index: int) -> Series:
        for kind in self._all():
            yield (("request", kind.name),), kind.histograms[index]


def error_counters(
    struct: type[Any], errors: dict[int, int]
) -> tuple[EndOfRequest, Callable[[Response], Work[None]]]:
    """Count the error codes in a response, its own and those of partitions and the like.

    One does it at once, the other in slices. They are made of source text, as codecs are: nested
    loops without a call take a third of the time.
    """
    lines = [
        "def at_once(response, errors=errors):",
        "    if response is None: return",
        *_counting(struct, "response", 1, pauses=False),
        "def in_slices(response, errors=errors):",
        "    seen = 0",
        *_counting(struct, "response", 1, pauses=True),
        "    yield from ()",
    ]
    found: dict[str, Any] = {"errors": errors}
    exec("\n".join(lines), found)
    return found["at_once"], found["in_slices"]


def _counting(struct: type[Any], name: str, depth: int, *, pauses: bool) -> list[str]:
    """The lines that count the errors below `name`, `depth` loops deep."""
    lines = []
    for field in struct.fields:
        if field.name == "error_code":
            lines.append(f"errors[{name}.error_code] += 1")
        elif isinstance(field.type, Array) and hasattr(field.type.element, "fields"):
            inner = _counting(field.type.element, f"each_{depth}", depth + 1, pauses=pauses)
            if inner:
                lines += [f"for each_{depth} in {name}.{field.name} or ():", *inner]
            if inner and pauses:
                lines.append(f"seen += len({name}.{field.name} or ())")
                lines.append(f"if seen > {COUNTED_IN_A_SLICE}: seen = 0; yield")
    return [f"    {line}" for line in lines]


class SampledHistogram(Histogram):
    """A histogram of some of the values, whose count is that of all."""

    __slots__ = ("_read_count",)

    def __init__(self, registry: MetricsRegistry, read_count: Callable[[], int]) -> None:
        super().__init__(registry.chance, registry.now_ms)
        self._read_count = read_count

    @property
    def shown_count(self) -> int:
        return self._read_count()


class RequestNumbers(RequestWatch):
    """The numbers of one API, or of the fetches of consumers or followers alone.

    It watches the requests that are counted and not timed.
    """

    __slots__ = ("_count_in_slices", "errors", "histograms", "meters", "name", "rows")

    def __init__(self, name: str, registry: MetricsRegistry, response: type[Response]) -> None:
        self.name = name
        self.errors: dict[int, int] = defaultdict(int)
        count, self._count_in_slices = error_counters(response, self.errors)
        super().__init__(count)
        self.rows: list[Row] = []
        self.histograms = [SampledHistogram(registry, self._count) for _ in TIMES]
        self.meters: dict[tuple[str, str], Meter] = {}

    def end_in_slices(self, response: Response) -> Work[None]:
        return self._count_in_slices(response)

    def _count(self) -> int:
        return sum(self.versions.values())

    def fold(self, now_ms: int) -> None:
        """Bring the histograms up to date with the requests that were timed."""
        if self.rows:
            rows, self.rows = self.rows, []
            for histogram, column in zip(self.histograms, zip(*rows, strict=True), strict=True):
                histogram.update_all(column, now_ms)


class TimedRequest(RequestWatch):
    """A request that is counted and timed; 0 stands for a moment that has not come."""

    __slots__ = (
        "began_ns",
        "context",
        "entry",
        "is_held",
        "kind",
        "metrics",
        "ready_ns",
        "responded_ns",
        "returned_ns",
        "size",
        "throttle_ms",
    )

    def __init__(
        self, metrics: RequestMetrics, kind: RequestNumbers, context: RequestContext, size: int
    ) -> None:
        """The handler begins now."""
        self.metrics, self.kind, self.context, self.size = metrics, kind, context, size
        self.returned_ns = self.responded_ns = self.throttle_ms = 0
        self.is_held = False
        """Whether its answer was ready before one that is sent earlier."""
        self.entry: Entry | None = None
        """What the log of requests will say of it, where it is wanted there."""
        self.ready_ns = context.connection.ready_ns
        self.began_ns = metrics.now_ns()

    def begin_wait(self) -> None:
        if not self.responded_ns:
            self.returned_ns = self.metrics.now_ns()

    def end(self, response: Response | None) -> None:  # a slot of others, for speed
        self.kind.end(response)
        self._note_end(response)

    def end_in_slices(self, response: Response) -> Work[None]:
        yield from self.kind.end_in_slices(response)
        self._note_end(response)

    def _note_end(self, response: Response | None) -> None:
        self.throttle_ms = getattr(response, "throttle_time_ms", 0)
        if self.entry is not None:
            self.entry["response"] = described(response)
        self.responded_ns = self.metrics.now_ns()
        self.metrics.sent.is_awaited = True
        self.context.connection.unsent += (self,)

    def row(self, send_began_ns: int, sent_ns: int) -> Row:
        """The values of `TIMES`, in their order."""
        returned_ns = self.returned_ns or self.responded_ns
        began_ns = max(self.responded_ns, send_began_ns)
        return (
            (sent_ns - self.ready_ns) / NS_PER_MS,
            (self.began_ns - self.ready_ns) / NS_PER_MS,
            (returned_ns - self.began_ns) / NS_PER_MS,
            (self.responded_ns - returned_ns) / NS_PER_MS,
            (began_ns - self.responded_ns) / NS_PER_MS,
            (sent_ns - began_ns) / NS_PER_MS,
            self.throttle_ms,
            self.size,
        )
