"""The pages of metrics over HTTP: Prometheus's text and Jolokia's JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

from aiohttp import web

from ottla.config.metrics_config import MetricsEndPoint, package_missing
from ottla.errors import ConfigError
from ottla.metrics.bounded_runner import BoundedRunner
from ottla.metrics.exposition import Naming, prometheus_text
from ottla.metrics.jolokia import BeanPattern, finite, read_beans
from ottla.metrics.metrics_registry import MetricsRegistry
from ottla.runtime import Clock
from ottla.security.http_guard import HttpGuard, local_host
from ottla.version import __version__

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

SLICE_NS: Final = 1_000_000
"""The work on a page after which the loop's other work comes first."""
TIME_LIMIT_NS: Final = 5_000_000_000
MAX_ASKED: Final = 50
MAX_BODY_BYTES: Final = 64 * 1024
BODY_LIMIT_S: Final = 10
VERSION: Final = {"agent": __version__, "protocol": "7.2"}

MAX_NAME_LENGTH: Final = 1_000
TEXTS_IN_A_PART: Final = 200


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

    async def _get_jolokia(self, request: web.Request) -> web.StreamResponse:
        kind, _, rest = request.match_info["tail"].partition("/")
        if kind in ("", "version"):
            return await self._get_version(request)
        asked: dict[str, Any] = {"type": kind}
        if rest:
            asked["mbean"], _, attribute = rest.partition("/")
            if attribute:
                asked["attribute"] = attribute
        turns = self._turns()
        return await self._send(request, await self._reply(asked, turns), turns)

    async def _post_jolokia(self, request: web.Request) -> web.StreamResponse:
        try:
            async with asyncio.timeout(BODY_LIMIT_S):
                body = await request.text()
            asked = json.loads(body) if len(body) <= MAX_BODY_BYTES else None
        except TimeoutError:
            return _bad_page(408, f"the body did not come within {BODY_LIMIT_S} s")
        except (ValueError, RecursionError):
            return _bad_page(400, "the body is not JSON")
        if asked is None:
            return _bad_page(413, f"the body has more than {MAX_BODY_BYTES} letters")
        turns = self._turns()
        if not isinstance(asked, list):
            return await self._send(request, await self._reply(asked, turns), turns)
        if len(asked) > MAX_ASKED:
            return _bad_page(400, f"{len(asked)} requests in a list, which may have {MAX_ASKED}")
        parts = ["["]
        for number, each in enumerate(asked):
            parts += ["," if number else "", *await self._reply(each, turns)]
        return await self._send(request, [*parts, "]"], turns)

    async def _send(
        self, request: web.Request, parts: Sequence[str], turns: TimeSlices
    ) -> web.StreamResponse:
        if len(parts) == 1:
            return _page_of(parts[0])
        response = web.StreamResponse(headers={"Content-Type": "application/json; charset=utf-8"})
        await response.prepare(request)
        for part in filter(None, parts):
            await response.write(part.encode())
            await turns.step()
        await response.write_eof()
        return response

    def _turns(self) -> TimeSlices:
        return TimeSlices(self.registry.runtime.clock)

    async def _reply(self, asked: Any, turns: TimeSlices) -> list[str]:
        """The text of an answer; that of very many MBeans in parts."""
        try:
            await turns.step_in_time()
            return await self._found(asked, turns)
        except TimeoutError:  # a part of the answer would be taken for all of it
            return [self._refuse(asked, 503, f"it takes longer than {TIME_LIMIT_NS // 10**9} s")]

    async def _found(self, asked: Any, turns: TimeSlices) -> list[str]:
        kind = asked.get("type") if isinstance(asked, dict) else None
        if kind == "version":
            return [self._answer(asked, VERSION)]
        name = asked.get("mbean", "*:*") if isinstance(asked, dict) else ""
        if len(str(name)) > MAX_NAME_LENGTH:
            return [self._refuse("", 400, f"a name of more than {MAX_NAME_LENGTH} letters")]
        pattern = BeanPattern(str(name))
        if kind == "list":
            return self._long_answer(asked, await self._listed(turns))
        if kind == "search":
            names = [json.dumps(bean) async for bean, _ in self._beans(pattern, None, turns)]
            return self._long_answer(asked, ["[", *joined(names), "]"])
        if kind != "read":
            return [self._refuse(asked, 400, f"{kind}: must be read, list, search or version")]
        attribute = asked.get("attribute")
        wanted = None if attribute is None else str(attribute)
        texts, values = [], dict[str, Any]()
        async for bean, values in self._beans(pattern, wanted, turns):
            texts.append(f"{json.dumps(bean)}: {json.dumps(values)}")
        if not texts:
            error = f"javax.management.InstanceNotFoundException: {name}"
            return [self._refuse(asked, 404, error)]
        if not pattern.is_exact:
            return self._long_answer(asked, ["{", *joined(texts), "}"])
        return [self._answer(asked, values[wanted] if wanted else values)]

    async def _beans(
        self, pattern: BeanPattern, attribute: str | None, turns: TimeSlices
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """The MBeans that match, with attributes as JSON has them."""
        for each in read_beans(self.registry, pattern, attribute):
            if each is not None:
                yield each[0], finite(each[1])
            await turns.step_in_time()

    async def _listed(self, turns: TimeSlices) -> list[str]:
        """Every MBean with its attributes, by domain."""
        domains: dict[str, list[str]] = {}
        async for bean, values in self._beans(BeanPattern("*:*"), None, turns):
            domain, _, properties = bean.partition(":")
            described = {
                name: {"rw": False, "type": type(value).__name__, "desc": name}
                for name, value in values.items()
            }
            entry = f"{json.dumps(properties)}: {json.dumps({'attr': described})}"
            domains.setdefault(domain, []).append(entry)
        parts = ["{"]
        for domain, entries in domains.items():
            comma = ", " if len(parts) > 1 else ""
            parts += [f"{comma}{json.dumps(domain)}: {{", *joined(entries), "}"]
        return [*parts, "}"]

    def _answer(self, asked: Any, value: Any) -> str:
        return "".join(self._long_answer(asked, [json.dumps(value)]))

    def _long_answer(self, asked: Any, value: Sequence[str]) -> list[str]:
        timestamp = self.registry.runtime.clock.now_ms() // 1000
        head = f'{{"request": {json.dumps(asked)}, "value": '
        return [head, *value, f', "timestamp": {timestamp}, "status": 200}}']

    def _refuse(self, asked: Any, status: int, error: str) -> str:
        return json.dumps({"request": asked, "status": status, "error": error})


def joined(texts: Sequence[str]) -> Iterator[str]:
    """The texts with commas between them, some hundred in a part."""
    for place in range(0, len(texts), TEXTS_IN_A_PART):
        yield (", " if place else "") + ", ".join(texts[place : place + TEXTS_IN_A_PART])


def _page_of(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/json")


def _bad_page(status: int, error: str) -> web.Response:
    return web.json_response({"status": status, "error": error}, status=status)


class TimeSlices:
    """The work on one page: now and then the loop's other work comes first, and it has a limit."""

    def __init__(self, clock: Clock) -> None:
        self._now_ns = clock.monotonic_ns
        self._began_ns = self._slice_ns = self._now_ns()

    async def step(self) -> None:
        """A part is done."""
        if self._now_ns() - self._slice_ns > SLICE_NS:
            await asyncio.sleep(0)
            self._slice_ns = self._now_ns()

    async def step_in_time(self) -> None:
        """The same; TimeoutError where the page has taken as long as one may."""
        await self.step()
        if self._slice_ns - self._began_ns > TIME_LIMIT_NS:
            raise TimeoutError


BACKLOG: Final = 128


def process_text() -> Callable[[], bytes]:
    """Reads the system's figures of this process: `process_...` for Prometheus."""
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
        self._runner = BoundedRunner(application)

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
