"""Metrics as text for Prometheus, and as JSON in the manner of Jolokia; pages that serve both.

The names are those that the JMX exporter makes with its rules for Kafka (`kafka-2_0_0.yml`), and
Strimzi's rules where they differ: dashboards made for either find what they look for.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from enum import Enum
from fnmatch import translate
from typing import Any, Final, NamedTuple

from aiohttp import web

from ottla.config.metrics_config import MetricsEndPoint, package_missing
from ottla.errors import ConfigError
from ottla.metrics.metrics_registry import (
    NOT_IN_NAMES,
    Attributes,
    Family,
    FamilyName,
    Kind,
    MetricsRegistry,
    Number,
    Reading,
    Tags,
    attributes,
    label,
)
from ottla.metrics.sensors import PERCENTILES, RATE_NAMES, Histogram, Meter, Timer
from ottla.runtime import Clock
from ottla.security.http_guard import HttpGuard, local_host
from ottla.version import __version__

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

QUANTILES: Final = {name: f"0.{name.removesuffix('thPercentile')}" for name in PERCENTILES}
"""By the attribute of a histogram, the label that the rules make of it: 0.50, 0.999."""

SLICE_NS: Final = 1_000_000
"""After so much work on a page the loop's other work comes first."""
TIME_LIMIT_NS: Final = 5_000_000_000
MAX_ASKED: Final = 50
MAX_BODY_BYTES: Final = 64 * 1024
VERSION: Final = {"agent": __version__, "protocol": "7.2"}
CONNECT: Final = "kafka.connect"
STATUS: Final = "status"
"""An attribute that is a word: in the exporter's rules a label of a series that is 1."""
_PER_SECOND: Final = "PerSec"
_PERCENT: Final = "Percent"
NUMBERED: Final = (Kind.METER, Kind.TIMER)


class Naming(Enum):
    """Whose names the metrics have in Prometheus."""

    JMX_EXPORTER = "jmx-exporter"
    """Those of the exporter's rules, and Strimzi's where these differ."""
    CONFLUENT = "confluent"
    """Those of the dashboards of Confluent's monitoring stacks."""


class PrometheusName(NamedTuple):
    """A name in Prometheus and its type; a family of MBeans may have several."""

    name: str
    type: str
    attribute: str
    """The attribute of the MBean that it shows."""


def prometheus_base(name: FamilyName) -> str:
    """`kafka.server`, `BrokerTopicMetrics`, `BytesInPerSec` under the rules of the exporter."""
    domain = name.domain.replace(".", "_")
    parts = [domain, name.type, name.name] if name.name else [domain, name.type]
    return NOT_IN_NAMES.sub("_", "_".join(parts)).lower()


def prometheus_names(family: Family, naming: Naming) -> list[PrometheusName]:
    """The names under which a family is shown, but for beans of Kafka's own library.

    A share of time (`...Percent`) is `..._percent` in Strimzi's rules, and in both where it is a
    meter; the exporter's rules keep the name of one that is a gauge.
    """
    name, base = family.name, prometheus_base(family.name)
    if naming is Naming.CONFLUENT:
        return _confluent_names(family.kind, base)
    if family.kind is Kind.METER:
        if name.name.endswith(_PERCENT):
            return [PrometheusName(_with_percent(base), "gauge", "MeanRate")]
        total = base.removesuffix(_PER_SECOND.lower()) + "_total"
        return [PrometheusName(total, "counter", "Count")]
    if family.kind in (Kind.HISTOGRAM, Kind.TIMER):
        counted = PrometheusName(f"{base}_count", "counter", "Count")
        return [counted, PrometheusName(base, "gauge", "")]
    if name.name.endswith(_PERCENT):
        names = (base, _with_percent(base))
        return [PrometheusName(each, "gauge", "Value") for each in names]
    return [PrometheusName(base, "gauge", "Value")]


def _confluent_names(kind: Kind, base: str) -> list[PrometheusName]:
    """Names are kept whole; a meter has its rates as well, a histogram its count without suffix."""
    if kind is Kind.METER:
        rates = [PrometheusName(f"{base}_{name.lower()}", "gauge", name) for name in RATE_NAMES]
        return [PrometheusName(base, "counter", "Count"), *rates]
    if kind in (Kind.HISTOGRAM, Kind.TIMER):
        return [PrometheusName(base, "gauge", attribute) for attribute in ("Count", "")]
    return [PrometheusName(base, "gauge", "Value")]


def _kafka_base(name: FamilyName, naming: Naming) -> str:
    """What the names of attributes begin with.

    Confluent writes `socketservermetrics`; the exporter's rules for Connect leave `-metrics` out.
    """
    if naming is Naming.CONFLUENT and name.type == "socket-server-metrics":
        name = name._replace(type="socketservermetrics")
    if naming is Naming.JMX_EXPORTER and name.domain == CONNECT:
        short = name.type.removeprefix("connect-").removesuffix("-metrics")
        name = name._replace(type=short)
    return prometheus_base(name)


def _with_percent(base: str) -> str:
    return f"{base.removesuffix('percent')}_percent"


class Labels:
    """The text of labels by tags, kept while one text is written: many families share them."""

    def __init__(self, naming: Naming) -> None:
        self._known: dict[Tags, str] = {}
        self._label = _lower_label if naming is Naming.CONFLUENT else label

    def text(self, tags: Tags) -> str:
        """`topic="a",partition="0"`: what stands within the braces."""
        known = self._known.get(tags)
        if known is None:
            named: dict[str, str] = {}
            for key, value in tags:  # clients name some: of one name the first counts
                named.setdefault(self._label(key), value)
            named.pop("", None)
            known = ",".join(f'{name}="{escaped(value)}"' for name, value in named.items())
            self._known[tags] = known
        return known


def _lower_label(key: str) -> str:
    return "network_processor" if key == "networkProcessor" else label(key).lower()


def escaped(value: str) -> str:
    """The value of a label as the text format wants it."""
    if '"' in value or "\\" in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


def number(value: Number) -> str:
    """A number as the text format wants it."""
    if isinstance(value, float):
        if math.isinf(value):
            return "+Inf" if value > 0 else "-Inf"
        return "NaN" if math.isnan(value) else repr(value)
    return str(int(value))


def prometheus_text(
    registry: MetricsRegistry,
    pattern: str | None = None,
    naming: Naming = Naming.JMX_EXPORTER,
) -> Iterator[str]:
    """The whole page, a family or a thousand series at a time.

    `pattern`, with `*` and `?`, chooses families by their names in Prometheus.
    """
    matches = re.compile(translate(pattern)).match if pattern else None
    names: dict[FamilyName, list[PrometheusName]] = {}

    def is_wanted(family: Family) -> bool:
        names[family.name] = _wanted_names(family, matches, naming)
        return bool(names[family.name])

    labels, now_ms = Labels(naming), registry.now_ms
    page = _Page()
    for reading in registry.read(is_wanted):
        if page.is_done_with(reading.family):
            yield page.take()
        if reading.family.kind is Kind.KAFKA:
            base = _kafka_base(reading.family.name, naming)
            page.add_attributes(reading, base, labels.text(reading.tags), matches)
        else:
            page.add(reading, names[reading.family.name], labels.text(reading.tags), now_ms)
        if page.is_long:
            yield ""
    yield page.take()


def _wanted_names(family: Family, matches: Any, naming: Naming) -> list[PrometheusName]:
    if family.kind is Kind.KAFKA:
        return [PrometheusName(_kafka_base(family.name, naming), "gauge", "")]
    names = prometheus_names(family, naming)
    return [name for name in names if matches is None or matches(name.name)]


class _Page:
    """The lines of one family, by name: all series of a name stand together in the text."""

    SERIES_AT_ONCE: Final = 200

    def __init__(self) -> None:
        self._family: Family | None = None
        self._lines: dict[str, list[str]] = {}
        self._count = 0

    def is_done_with(self, family: Family) -> bool:
        """Whether the lines are those of another family, and complete."""
        before, self._family = self._family, family
        return before is not None and before is not family

    @property
    def is_long(self) -> bool:
        """Whether so many series were added that a reader should let others run."""
        self._count += 1
        return self._count % self.SERIES_AT_ONCE == 0

    def take(self) -> str:
        lines, self._lines = self._lines, {}
        return "".join("".join(each) for each in lines.values())

    def _begin(self, name: str, type: str, doc: str) -> list[str]:
        doc = doc.replace("\\", r"\\").replace("\n", r"\n")
        return [f"# HELP {name} {doc}\n# TYPE {name} {type}\n"]

    def _put(self, name: PrometheusName, family: Family, labels: str, value: Number | str) -> None:
        if isinstance(value, str):
            return  # Prometheus has numbers only
        lines = self._lines.get(name.name)
        if lines is None:
            lines = self._lines[name.name] = self._begin(name.name, name.type, family.doc)
        if labels:
            lines.append(f"{name.name}{{{labels}}} {number(value)}\n")
        else:
            lines.append(f"{name.name} {number(value)}\n")

    def add(self, reading: Reading, names: list[PrometheusName], labels: str, now_ms: int) -> None:
        """One series of a gauge, a meter, a histogram or a timer."""
        family, value = reading.family, reading.value
        if isinstance(value, Timer):
            value = value.histogram
        for name in names:
            if isinstance(value, Histogram):
                self._add_histogram(name, family, labels, value, now_ms)
            elif isinstance(value, Meter):
                shown = value.shown(name.attribute, now_ms)
                self._put(name, family, labels, shown)
            elif isinstance(value, int | float):
                self._put(name, family, labels, value)

    def _add_histogram(
        self,
        name: PrometheusName,
        family: Family,
        labels: str,
        value: Histogram,
        now_ms: int,
    ) -> None:
        if name.attribute == "Count":
            self._put(name, family, labels, value.shown_count)
            return
        comma = "," if labels else ""
        for percentile, found in value.snapshot(now_ms).percentiles.items():
            quantile = f'{labels}{comma}quantile="{QUANTILES[percentile]}"'
            self._put(name, family, quantile, found)

    def add_attributes(self, reading: Reading, base: str, labels: str, matches: Any) -> None:
        """One bean of Kafka's own library: each attribute is a metric."""
        assert isinstance(reading.value, dict), "a bean of attributes"
        for attribute, value in reading.value.items():
            name = f"{base}_{label(attribute)}".lower()
            if matches is None or matches(name):
                type = "counter" if attribute.endswith("-total") else "gauge"
                shown = PrometheusName(name, type, attribute)
                if attribute == STATUS:
                    word = f'{labels},{STATUS}="{escaped(str(value))}"'
                    self._put(shown, reading.family, word, 1)
                else:
                    self._put(shown, reading.family, labels, value)


# JSON in the manner of Jolokia, which Kafka's users read JMX with over HTTP.


MAX_NAME_LENGTH: Final = 1_000


class BeanPattern:
    """The name of an MBean, or of several: `*` and `?` stand for any text, `,*` for more tags."""

    def __init__(self, text: str) -> None:
        domain, _, properties = text.partition(":")
        self._domain = re.compile(translate(domain))
        found = [part.partition("=") for part in _properties(properties)]
        self._values = {
            key: re.compile(translate(_unquoted(value))) for key, equals, value in found if equals
        }
        self._has_more = ("*", "", "") in found
        self.is_exact = not re.search(r"(?<!\\)[*?]", text)

    def matches(self, name: FamilyName, tags: Tags) -> bool:
        """Whether an MBean has the domain and the tags; their order says nothing."""
        if self._domain.match(name.domain) is None:
            return False
        found = {"type": name.type, **({"name": name.name} if name.name else {}), **dict(tags)}
        if not self._has_more and found.keys() != self._values.keys():
            return False
        return all(key in found and value.match(found[key]) for key, value in self._values.items())


def _properties(text: str) -> Iterator[str]:
    """The parts between commas; a comma in quotes, where `\\` stands before any, is none."""
    part, is_quoted, is_escaped = "", False, False
    for letter in text:
        if letter == "," and not is_quoted:
            yield part
            part = ""
            continue
        part += letter
        if letter == '"' and not is_escaped:
            is_quoted = not is_quoted
        is_escaped = letter == "\\" and is_quoted and not is_escaped
    yield part


def _unquoted(value: str) -> str:
    """The value of a tag without its quotes; what stood in them is meant as it is."""
    if not value.startswith('"'):
        return value
    plain = re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], value[1:-1])
    return re.sub(r"([*?[])", r"[\1]", plain)


def read_beans(
    registry: MetricsRegistry, pattern: BeanPattern, attribute: str | None = None
) -> Iterator[tuple[str, Attributes] | None]:
    """Name and attributes of each MBean that matches, or one attribute; None for another."""
    now_ms = registry.now_ms
    for family, tags, value in registry.read():
        if not pattern.matches(family.name, tags):
            yield None
            continue
        shown = attributes(value, now_ms)
        if attribute is None:
            yield family.name.bean(tags), shown
        elif attribute in shown:
            yield family.name.bean(tags), {attribute: shown[attribute]}


def finite(value: Any) -> Any:
    """The same with NaN and infinities as text, as Jolokia has them: JSON has no such numbers."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else number(value)
    return value


# Both over HTTP.


class MetricsPages:
    """The paths of an HTTP server under which the metrics of a registry are read.

    Between a few hundred series the other work of the loop has its turn.
    """

    def __init__(
        self,
        registry: MetricsRegistry,
        naming: Naming = Naming.JMX_EXPORTER,
        of_process: Callable[[], bytes] = bytes,
    ) -> None:
        """`of_process` is text of others for Prometheus, which stands below ours."""
        self.registry = registry
        self._naming = naming
        self._of_process = of_process

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/metrics", self._get_metrics),
            web.get("/jolokia", self._get_version),
            web.get("/jolokia/{tail:.*}", self._get_jolokia),
            web.post("/jolokia", self._post_jolokia),
            web.post("/jolokia/", self._post_jolokia),
        ]

    async def _get_metrics(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            response.enable_compression(web.ContentCoding.gzip)
        await response.prepare(request)
        turns = self._turns()
        pattern = request.query.get("name", "")[:MAX_NAME_LENGTH] or None
        for part in prometheus_text(self.registry, pattern, self._naming):
            if part:
                await response.write(part.encode())
            await turns.step()
        if pattern is None:
            await response.write(self._of_process())
        await response.write_eof()
        return response

    async def _get_version(self, request: web.Request) -> web.Response:
        return _page_of(self._answer({"type": "version"}, VERSION))

    async def _get_jolokia(self, request: web.Request) -> web.Response:
        kind, _, rest = request.match_info["tail"].partition("/")
        if kind in ("", "version"):
            return await self._get_version(request)
        asked: dict[str, Any] = {"type": kind}
        if rest:
            asked["mbean"], _, attribute = rest.partition("/")
            if attribute:
                asked["attribute"] = attribute
        return _page_of(await self._reply(asked, self._turns()))

    async def _post_jolokia(self, request: web.Request) -> web.Response:
        try:
            body = await request.text()
            asked = json.loads(body) if len(body) <= MAX_BODY_BYTES else None
        except (ValueError, RecursionError):
            return _bad_page(400, "the body is not JSON")
        if asked is None:
            return _bad_page(413, f"the body has more than {MAX_BODY_BYTES} letters")
        if not isinstance(asked, list):
            return _page_of(await self._reply(asked, self._turns()))
        if len(asked) > MAX_ASKED:
            return _bad_page(400, f"{len(asked)} requests in a list, which may have {MAX_ASKED}")
        turns = self._turns()
        replies = [await self._reply(each, turns) for each in asked]
        return _page_of(f"[{','.join(replies)}]")

    def _turns(self) -> TimeSlices:
        return TimeSlices(self.registry.runtime.clock)

    async def _reply(self, asked: Any, turns: TimeSlices) -> str:
        kind = asked.get("type") if isinstance(asked, dict) else None
        await turns.step()
        if turns.is_over:
            return self._refuse(asked, 503, f"it takes longer than {TIME_LIMIT_NS // 10**9} s")
        if kind == "version":
            return self._answer(asked, VERSION)
        name = asked.get("mbean", "*:*") if isinstance(asked, dict) else ""
        if len(str(name)) > MAX_NAME_LENGTH:
            return self._refuse("", 400, f"a name of more than {MAX_NAME_LENGTH} letters")
        pattern = BeanPattern(str(name))
        if kind == "list":
            return self._answer(asked, _listed(await self._read(BeanPattern("*:*"), None, turns)))
        if kind == "search":
            return self._answer(asked, sorted(await self._read(pattern, None, turns)))
        if kind != "read":
            return self._refuse(asked, 400, f"{kind}: must be read, list, search or version")
        attribute = asked.get("attribute")
        found = await self._read(pattern, None if attribute is None else str(attribute), turns)
        if not found:
            error = f"javax.management.InstanceNotFoundException: {name}"
            return self._refuse(asked, 404, error)
        if not pattern.is_exact:
            return self._answer(asked, found)
        (values,) = found.values()
        if attribute:
            return self._answer(asked, values[str(attribute)])
        return self._answer(asked, values)

    async def _read(
        self, pattern: BeanPattern, attribute: str | None, turns: TimeSlices
    ) -> dict[str, Attributes]:
        """The attributes of the MBeans that match, by name: as many as the time is enough for."""
        found: dict[str, Attributes] = {}
        for each in read_beans(self.registry, pattern, attribute):
            if each is not None:
                found[each[0]] = finite(each[1])
            await turns.step()
            if turns.is_over:
                break
        return found

    def _answer(self, asked: Any, value: Any) -> str:
        timestamp = self.registry.runtime.clock.now_ms() // 1000
        return json.dumps(
            {"request": asked, "value": finite(value), "timestamp": timestamp, "status": 200}
        )

    def _refuse(self, asked: Any, status: int, error: str) -> str:
        return json.dumps({"request": asked, "status": status, "error": error})


def _listed(beans: Mapping[str, Attributes]) -> Mapping[str, Any]:
    """Every MBean with its attributes, by domain."""
    domains: dict[str, dict[str, Any]] = {}
    for bean, values in beans.items():
        domain, _, properties = bean.partition(":")
        described = {
            name: {"rw": False, "type": type(value).__name__, "desc": name}
            for name, value in values.items()
        }
        domains.setdefault(domain, {})[properties] = {"attr": described}
    return domains


def _page_of(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/json")


def _bad_page(status: int, error: str) -> web.Response:
    return web.json_response({"status": status, "error": error}, status=status)


class TimeSlices:
    """The work on one page: now and then the loop's other work comes first, and it has a limit."""

    def __init__(self, clock: Clock) -> None:
        self._now_ns = clock.monotonic_ns
        self._began_ns = self._slice_ns = self._now_ns()

    @property
    def is_over(self) -> bool:
        """Whether the page has taken as long as one may."""
        return self._slice_ns - self._began_ns > TIME_LIMIT_NS

    async def step(self) -> None:
        """A part is done."""
        if self._now_ns() - self._slice_ns > SLICE_NS:
            await asyncio.sleep(0)
            self._slice_ns = self._now_ns()


STOP_TIMEOUT_S: Final = 1.0
BACKLOG: Final = 128


def process_text() -> Callable[[], bytes]:
    """Reads what the system tells of this process: `process_...` for Prometheus."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.process_collector import ProcessCollector
    except ImportError as error:
        raise package_missing(error) from None

    process = CollectorRegistry()
    ProcessCollector(registry=process)
    return lambda: generate_latest(process)


class MetricsServer:
    """An HTTP server of these pages alone, on the loop of the registry."""

    def __init__(self, registry: MetricsRegistry, end_point: MetricsEndPoint) -> None:
        self.end_point = end_point
        self._registry = registry
        self._guard = HttpGuard(names=[end_point.host])
        application = web.Application(
            client_max_size=MAX_BODY_BYTES, middlewares=[self._refuse_foreign_pages]
        )
        application.add_routes(MetricsPages(registry, of_process=process_text()).routes())
        self._runner = web.AppRunner(
            application, access_log=None, shutdown_timeout=STOP_TIMEOUT_S, handle_signals=False
        )

    @web.middleware
    async def _refuse_foreign_pages(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        host = local_host(request.transport)
        refused = self._guard.refusal(request.method, request.headers, host)
        if refused is not None:
            return web.Response(status=refused.status, text=f"{refused.message}\n")
        return await handler(request)

    async def start(self) -> None:
        """Listen; ConfigError where that is not possible. `end_point` has the port then."""
        _, host, port = self.end_point
        try:
            sockets = self._registry.runtime.network.listen(host, port, backlog=BACKLOG)
        except OSError as error:
            raise ConfigError(
                f"metrics.listener={self.end_point}: cannot be listened at: {error}"
            ) from None
        await self._runner.setup()
        for each in sockets:
            await web.SockSite(self._runner, each).start()
        self.end_point = self.end_point._replace(port=int(sockets[0].getsockname()[1]))
        self._registry.start()

    async def close(self) -> None:
        """Serve nothing any longer."""
        self._registry.close()
        await self._runner.cleanup()
