"""Metrics and health of a broker over HTTP, at `metrics.listener`.

    /metrics      text for Prometheus; ?name=kafka_server_* chooses names
    /jolokia/...  MBeans as JSON, in the manner of Jolokia: read, list, search, version
    /registry     a node of the registry as JSON; ?path=/brokers/ids
    /healthz      200 while the broker's loop turns, also without ZooKeeper and other brokers
    /readyz       200 while the broker serves its partitions, else 503 with the reason

It shares the broker's loop, is there before the logs are recovered, and ends last.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from ottla.config.broker_config import BrokerConfig
from ottla.config.metrics_config import HTTPS, MetricsEndPoint, package_missing
from ottla.config.ssl_config import ListenerSslSettings
from ottla.extensions.measures.broker_metrics import BrokerMetrics
from ottla.metrics.metrics_registry import MetricsRegistry
from ottla.network.broker_tls import LOOK_MS
from ottla.network.tls_context import ListenerTls, StoreReading
from ottla.runtime import Runtime, Timer
from ottla.runtime.host_name import canonical_host_name
from ottla.security.http_guard import HttpGuard, is_loopback, local_host

try:
    from aiohttp import web

    from ottla.extensions.measures.registry_page import RegistryPage
    from ottla.metrics.bounded_runner import BoundedRunner
    from ottla.metrics.exposition import Naming
    from ottla.metrics.metrics_pages import BACKLOG, MAX_BODY_BYTES, MetricsPages, process_text
except ImportError as error:
    raise package_missing(error) from None

if TYPE_CHECKING:
    from ottla.server.parts import Parts

logger = logging.getLogger(__name__)

OPEN_PATHS: Final = ("/healthz", "/readyz")
"""What starts and stops brokers, such as Kubernetes, asks these, and has no password."""

Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]


class MetricsListener:
    """The HTTP server of one broker, and the metrics that it serves."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        end_point: MetricsEndPoint,
        why_not_ready: Callable[[], str | None],
    ) -> None:
        self.end_point = end_point
        self.registry = MetricsRegistry(runtime, config.metrics_max_series)
        self._runtime, self._config = runtime, config
        self._why_not_ready = why_not_ready
        self._guard = HttpGuard(
            config.metrics_listener_username,
            config.metrics_listener_password,
            (end_point.host, canonical_host_name()),
        )
        self._tls: ListenerTls | None = None
        self._looking: Timer | None = None
        self._metrics: BrokerMetrics | None = None
        is_public = config.metrics_listener_username is None and not is_loopback(end_point.host)
        self._registry_page = RegistryPage(is_for_all=is_public)
        naming = Naming(config.metrics_names)
        pages = MetricsPages(self.registry, naming, process_text())
        application = web.Application(
            middlewares=[self._authenticate], client_max_size=MAX_BODY_BYTES
        )
        application.add_routes(
            [
                web.get("/healthz", self._get_health),
                web.get("/readyz", self._get_readiness),
                web.get("/registry", self._registry_page.get),
                *pages.routes(),
            ]
        )
        self._runner = BoundedRunner(application)

    async def start(self) -> None:
        """Listen; the log says where."""
        host, port = self.end_point.host, self.end_point.port
        context = None
        if self.end_point.scheme == HTTPS:
            context = self._follow_key_store()
        sockets = self._runtime.network.listen(host, port, backlog=BACKLOG)
        await self._runner.setup()
        for endpoint in sockets:
            await web.SockSite(self._runner, endpoint, ssl_context=context).start()
        self.end_point = self.end_point._replace(port=int(sockets[0].getsockname()[1]))
        logger.info("Metrics and health are at %s", self.end_point)

    def _follow_key_store(self) -> ssl.SSLContext:
        """The context of the server; each handshake takes the content of the files by then.

        The certificates that clients must have stay those of the start.
        """
        tls = self._tls = ListenerTls(self._config.ssl_of(""), "metrics.listener")
        context = tls.context

        def choose(connection: ssl.SSLObject, *_: object) -> None:
            connection.context = tls.context

        context.sni_callback = choose
        self._looking = self._runtime.scheduler.call_every(LOOK_MS, self._look)
        return context

    def _look(self) -> None:
        tls = self._tls
        assert tls is not None, "it is looked at with TLS only"

        def take(reading: StoreReading[ListenerSslSettings] | None) -> None:
            if reading is not None:
                tls.take(reading)

        self._runtime.background.submit(tls.read_changed, take, self._fail_to_look)

    def _fail_to_look(self, error: BaseException) -> None:
        logger.error("metrics.listener: cannot look at the key store: %r", error)

    def measure(self, broker: Parts) -> None:
        """All parts of the broker are there: measure them from now on."""
        self._metrics = BrokerMetrics(broker, self.registry)
        self._registry_page.registry = broker.registry
        self.registry.start()

    async def close(self) -> None:
        """Measure and serve nothing any longer."""
        if self._metrics is not None:
            self._metrics.close()
        if self._looking is not None:
            self._looking.cancel()
        self.registry.close()
        await self._runner.cleanup()

    @web.middleware
    async def _authenticate(self, request: web.Request, handler: Reply) -> web.StreamResponse:
        host = local_host(request.transport)
        refused = self._guard.refusal(request.method, request.headers, host)
        if refused is not None:
            return web.Response(status=refused.status, text=f"{refused.message}\n")
        if request.path not in OPEN_PATHS and not self._guard.knows(request.headers):
            headers = {"WWW-Authenticate": 'Basic realm="ottla", charset="UTF-8"'}
            return web.Response(status=401, text="a user and a password\n", headers=headers)
        return await handler(request)

    async def _get_health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _get_readiness(self, request: web.Request) -> web.Response:
        reason = self._why_not_ready()
        if reason is None:
            return web.Response(text="ready\n")
        return web.Response(status=503, text=f"{reason}\n")
