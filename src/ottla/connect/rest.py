"""The REST API of a worker: Kafka's paths, JSON and status codes.

It shares the loop with the herder, on which no code of a plug-in runs, so that a connector
that hangs does not keep it from answering. An error is
`{"error_code":404,"message":"Connector c not found"}`. A request that only the leader of a group
can carry out is sent on to it, and its answer is given back.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from aiohttp import BasicAuth, ClientError, ClientSession, ClientTimeout, TCPConnector, web
from yarl import URL

from ottla.config.config_type import LIST
from ottla.config.connect_config import WorkerConfig, parse_listener
from ottla.config.ssl_config import ListenerSslSettings, SslSettings, given_settings
from ottla.connect.connect_metrics import worker_registry
from ottla.connect.connect_protocol import ALGORITHM, SIGNATURE, check_signature
from ottla.connect.data import shown
from ottla.connect.distributed_herder import DistributedHerder, NotLeaderError, path_of
from ottla.connect.herder import Herder, is_level
from ottla.connect.json_converter import refuse_constant
from ottla.connect.plugin_thread import INITIAL_STATES, TargetState
from ottla.connect.worker import ConnectRestError, refusal
from ottla.connect.worker_clients import with_prefix
from ottla.connect.worker_task import TaskId
from ottla.errors import KafkaError, KafkaTimeoutError
from ottla.metrics.bounded_runner import BoundedRunner
from ottla.metrics.metrics_pages import MetricsPages
from ottla.network.tls_context import client_context, server_context
from ottla.runtime.host_name import canonical_host_name
from ottla.security.http_guard import HttpGuard, local_host
from ottla.version import __version__

logger = logging.getLogger(__name__)

REQUEST_LIMIT_S: Final = 90.0
HTTP_ERROR: Final = 400
COMMIT: Final = "unknown"
JSON_TYPE: Final = "application/json"
SHARED_METHODS: Final = "GET,POST,HEAD"
SHARED_HEADERS: Final = "X-Requested-With,Content-Type,Accept,Origin"
LONGEST_LOGGER: Final = 200
WORKER: Final = "worker"
CLUSTER: Final = "cluster"

Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RestServer:
    """Serves one herder over HTTP, on all listeners of the worker."""

    def __init__(self, config: WorkerConfig, herder: Herder) -> None:
        self._config = config
        self._herder = herder
        self._guard = HttpGuard(
            config.rest_basic_auth_username,
            config.rest_basic_auth_password,
            own_names(config),
            LIST.parse("", config.access_control_allow_origin),
        )
        self.metrics = worker_registry(herder)
        self._runners: list[web.AppRunner] = []
        self.urls: list[str] = []
        """Where it listens, with the ports that it got."""
        self.admin_urls: list[str] = []
        """Where levels of the log and metrics are, if that is elsewhere."""

    async def start(self) -> None:
        """Listen; OSError where that is not possible."""
        admin = self._config.admin_listeners
        routes = self._routes() + (self._admin_routes() if admin is None else [])
        self.urls = await self._serve(routes, self._config.listeners)
        logger.info("REST API at %s", ", ".join(self.urls))
        if admin:
            self.admin_urls = await self._serve(self._admin_routes(), admin)
            logger.info("levels of the log and metrics at %s", ", ".join(self.admin_urls))
        self.metrics.start()

    async def _serve(self, routes: list[web.RouteDef], listeners: tuple[str, ...]) -> list[str]:
        """Serve these paths; where, with the ports that it got."""
        middlewares = [self._share, self._authenticate, self._errors]
        application = web.Application(middlewares=middlewares, client_max_size=1 << 24)
        application.add_routes(routes)
        runner = BoundedRunner(application)
        self._runners.append(runner)
        await runner.setup()
        urls = []
        for listener in listeners:
            scheme, host, port = parse_listener(listener)
            context = self._tls() if scheme == "https" else None
            site = web.TCPSite(runner, host or None, port, ssl_context=context)
            await site.start()
            server = site._server
            assert isinstance(server, asyncio.Server), "it has started"
            bound = server.sockets[0].getsockname()[1]
            urls.append(f"{scheme}://{self._shown(host)}:{bound}/")
        return urls

    @property
    def advertised_url(self) -> str:
        """Under which other workers reach this one."""
        config = self._config
        wanted = config.rest_advertised_listener
        url = next((e for e in self.urls if wanted is None or e.startswith(f"{wanted}:")), "")
        scheme, host, port = parse_listener(url or self.urls[0])
        host = config.rest_advertised_host_name or host
        return f"{scheme}://{self._shown(host)}:{config.rest_advertised_port or port}/"

    async def close(self) -> None:
        self.metrics.close()
        for runner in self._runners:
            await runner.cleanup()

    def _shown(self, host: str) -> str:
        name = host or "localhost"
        return f"[{name}]" if ":" in name else name

    def _tls(self) -> ssl.SSLContext:
        settings = given_settings(self._config, ListenerSslSettings)
        settings |= with_prefix(self._herder.worker.properties, "listeners.https.")
        context: ssl.SSLContext = server_context(ListenerSslSettings.parse(settings))
        return context

    def _routes(self) -> list[web.RouteDef]:
        herder, name, task = self._herder, "/connectors/{name}", "/connectors/{name}/tasks/{task}"
        plugin = "/connector-plugins/{plugin}/config"
        return [
            web.get("/", self._get_root),
            web.get("/health", self._get_health),
            web.get("/connectors", self._list),
            web.post("/connectors", self._create),
            web.get(name, partial(self._answer, herder.info)),
            web.delete(name, self._delete),
            web.get(f"{name}/config", partial(self._answer, herder.config)),
            web.put(f"{name}/config", self._put_config),
            web.patch(f"{name}/config", self._patch_config),
            web.get(f"{name}/status", partial(self._answer, herder.status)),
            web.put(f"{name}/pause", partial(self._set_target, TargetState.PAUSED, 202)),
            web.put(f"{name}/resume", partial(self._set_target, TargetState.STARTED, 202)),
            web.put(f"{name}/stop", partial(self._set_target, TargetState.STOPPED, 204)),
            web.post(f"{name}/restart", self._restart),
            web.get(f"{name}/tasks", partial(self._answer, herder.task_configs)),
            web.post(f"{name}/tasks", self._put_tasks),
            web.put(f"{name}/fence", self._fence),
            web.get(f"{task}/status", self._get_task_status),
            web.post(f"{task}/restart", self._restart_task),
            web.get(f"{name}/topics", partial(self._answer, herder.topics)),
            web.put(f"{name}/topics/reset", self._reset_topics),
            web.get(f"{name}/offsets", self._get_offsets),
            web.patch(f"{name}/offsets", self._alter_offsets),
            web.delete(f"{name}/offsets", self._reset_offsets),
            web.get("/connector-plugins", self._get_plugins),
            web.get(plugin, self._get_plugin),
            web.put(f"{plugin}/validate", self._validate),
        ]

    def _admin_routes(self) -> list[web.RouteDef]:
        return [
            web.get("/admin/loggers", self._get_loggers),
            web.get("/admin/loggers/{logger}", self._get_logger),
            web.put("/admin/loggers/{logger}", self._put_logger),
            *MetricsPages(self.metrics).routes(),
        ]

    # Who may ask, and how errors are told

    @web.middleware
    async def _share(self, request: web.Request, handler: Reply) -> web.StreamResponse:
        """Refuse what pages of other sites ask, unless access.control.allow.origin names them."""
        headers, method = request.headers, request.method
        refused = self._guard.refusal(method, headers, local_host(request.transport))
        if refused is not None:
            return _error(*refused)
        origin = headers.get("Origin", "")
        is_question = method == "OPTIONS" and "Access-Control-Request-Method" in headers
        if not origin or not self._guard.allows_origin(origin):
            return await handler(request)
        answer = web.Response() if is_question else await handler(request)
        answer.headers["Access-Control-Allow-Origin"] = origin
        if self._guard.allows_credentials(origin):
            answer.headers["Access-Control-Allow-Credentials"] = "true"
        answer.headers["Vary"] = "Origin"
        if is_question:
            methods = self._config.access_control_allow_methods or SHARED_METHODS
            answer.headers["Access-Control-Allow-Methods"] = methods
            answer.headers["Access-Control-Allow-Headers"] = SHARED_HEADERS
        return answer

    @web.middleware
    async def _authenticate(self, request: web.Request, handler: Reply) -> web.StreamResponse:
        if self._guard.knows(request.headers):
            return await handler(request)
        headers = {"WWW-Authenticate": 'Basic realm="Connect", charset="UTF-8"'}
        body = {"error_code": 401, "message": "a user and a password are needed"}
        return web.json_response(body, status=401, headers=headers)

    @web.middleware
    async def _errors(self, request: web.Request, handler: Reply) -> web.StreamResponse:
        try:
            return await asyncio.wait_for(handler(request), REQUEST_LIMIT_S)
        except NotLeaderError as error:
            return await self._forward(request, error)
        except ConnectRestError as error:
            return self._refused(error.status, error.message)
        except (TimeoutError, KafkaTimeoutError) as error:
            text = getattr(error, "message", "") or "Request timed out"
            return self._refused(500, text)
        except web.HTTPException as error:
            return _error(error.status, f"HTTP {error.status} {error.reason}")
        except KafkaError as error:
            return self._refused(400, error.message)
        except Exception as error:
            logger.exception("%s %s", request.method, request.path)
            return self._refused(500, str(error) or type(error).__name__)

    def _refused(self, status: int, message: str) -> web.Response:
        """What code says of an error, with references in the place of secrets."""
        return _error(status, self._herder.worker.providers.hide(message))

    async def _forward(self, request: web.Request, error: NotLeaderError) -> web.StreamResponse:
        """Have another worker answer: two hops at most, or two would ask each other without end."""
        hop = request.query.get("forward")
        if error.url is None or hop == "false":
            return _error(409, error.message)
        query = {**request.query, "forward": "true" if hop is None else "false"}
        place = error.url.rstrip("/") + request.raw_path.partition("?")[0]
        url = URL(place, encoded=True).with_query(query)  # as it was asked: `..` is a name, too
        headers = {k: v for k, v in request.headers.items() if k.lower() in FORWARDED}
        connector = connector_to(place, self._config, self._herder.worker.properties)
        try:
            async with (
                ClientSession(
                    connector=connector, timeout=ClientTimeout(total=REQUEST_LIMIT_S)
                ) as session,
                session.request(
                    request.method, url, data=await request.read(), headers=headers
                ) as answer,
            ):
                body = await answer.read()
                kind = answer.headers.get("Content-Type", "application/json")
                found = {"Content-Type": kind}
                if "Location" in answer.headers:
                    found["Location"] = answer.headers["Location"]
                return web.Response(status=answer.status, body=body, headers=found)
        except ClientError as failed:
            return _error(500, f"IO Error trying to forward REST request: {failed}")

    # The worker

    async def _get_root(self, request: web.Request) -> web.Response:
        cluster = self._herder.kafka_cluster_id
        body = {"version": __version__, "commit": COMMIT, "kafka_cluster_id": cluster}
        return web.json_response(body)

    async def _get_health(self, request: web.Request) -> web.Response:
        status, message = self._herder.health
        code = {"healthy": 200, "starting": 503, "unhealthy": 500}[status]
        return web.json_response({"status": status, "message": message}, status=code)

    # Connectors

    async def _list(self, request: web.Request) -> web.Response:
        wanted = request.query.getall("expand", [])
        if not wanted:
            return web.json_response(self._herder.names())
        parts = {"status": self._herder.status, "info": self._herder.info}
        return web.json_response(
            {
                name: {word: parts[word](name) for word in wanted if word in parts}
                for name in self._herder.names()
            }
        )

    async def _create(self, request: web.Request) -> web.Response:
        body = await _mapping(request)
        config = _properties(body.get("config") or {}, "config")
        name = _properties({"name": body.get("name") or config.get("name") or ""})["name"].strip()
        if not name:
            raise refusal(400, "connector name must not be empty")
        state = body.get("initial_state")
        if state is not None and (not isinstance(state, str) or state not in INITIAL_STATES):
            raise refusal(400, f"initial_state={shown(state)}: must be {', '.join(INITIAL_STATES)}")
        target = INITIAL_STATES.get(state or "")
        _, info = await self._herder.put_config(name, config, may_replace=False, target=target)
        headers = {"Location": f"/{path_of(name)}"}
        return web.json_response(info, status=201, headers=headers)

    async def _answer(self, ask: Callable[[str], Any], request: web.Request) -> web.Response:
        """Answer a question about one connector."""
        return web.json_response(ask(_name(request)))

    async def _delete(self, request: web.Request) -> web.Response:
        await self._herder.delete(_name(request))
        return web.Response(status=204)

    async def _put_config(self, request: web.Request) -> web.Response:
        name = _name(request)
        config = _properties(await _mapping(request))
        is_new, info = await self._herder.put_config(name, config, may_replace=True)
        headers = {"Location": f"/{path_of(name)}"} if is_new else None
        return web.json_response(info, status=201 if is_new else 200, headers=headers)

    async def _patch_config(self, request: web.Request) -> web.Response:
        body = await _mapping(request)
        changes = {**dict.fromkeys(body), **_properties(body)}
        _, info = await self._herder.put_config(_name(request), changes, True, is_patch=True)
        return web.json_response(info)

    async def _set_target(
        self, target: TargetState, status: int, request: web.Request
    ) -> web.Response:
        await self._herder.set_target(_name(request), target)
        return web.Response(status=status)

    async def _restart(self, request: web.Request) -> web.Response:
        include, only = _flag(request, "includeTasks"), _flag(request, "onlyFailed")
        found = await self._herder.restart(_name(request), include, only)
        if not include and not only:
            return web.Response(status=204)
        return web.json_response(found, status=202)

    # Tasks, topics and offsets

    async def _put_tasks(self, request: web.Request) -> web.Response:
        """Take the tasks into which a connector on another worker splits its work."""
        herder, body = await self._of_group(request)
        tasks = [_properties(each, "a task") for each in _parsed(body, list)]
        await herder.write_tasks(_name(request), tasks)
        return web.Response(status=200)

    async def _fence(self, request: web.Request) -> web.Response:
        """Fence for a task of an exactly-once source that is about to start on another worker."""
        herder, _ = await self._of_group(request)
        await herder.fence(_name(request))
        return web.Response(status=204)

    async def _of_group(self, request: web.Request) -> tuple[DistributedHerder, bytes]:
        """The herder, and the body of a request that only workers of the group may send."""
        herder = self._herder
        if not isinstance(herder, DistributedHerder):
            raise refusal(404, "HTTP 404 Not Found")
        body = await request.read()
        if herder.group.is_sessioned:
            allowed = herder.config_of_group.inter_worker_verification_algorithms
            check_signature(request.headers, body, herder.session_key, allowed)
        return herder, body

    async def _get_task_status(self, request: web.Request) -> web.Response:
        return web.json_response(self._herder.task_status(_task(request)))

    async def _restart_task(self, request: web.Request) -> web.Response:
        await self._herder.restart_task(_task(request))
        return web.Response(status=204)

    async def _reset_topics(self, request: web.Request) -> web.Response:
        self._herder.reset_topics(_name(request))
        return web.Response(status=200)

    async def _get_offsets(self, request: web.Request) -> web.Response:
        return web.json_response(await self._herder.offsets(_name(request)))

    async def _alter_offsets(self, request: web.Request) -> web.Response:
        body = await _mapping(request)
        wanted = body.get("offsets")
        if not isinstance(wanted, list) or not wanted:
            raise refusal(400, "Partitions / offsets need to be provided for an alter request")
        pairs = []
        for each in wanted:
            if not isinstance(each, dict) or not isinstance(each.get("partition"), dict):
                raise refusal(400, f"{shown(each)}: must have a partition and an offset")
            if not isinstance(each.get("offset"), dict | None):
                raise refusal(400, f"offset={shown(each['offset'])}: must be an object or null")
            pairs.append((each["partition"], each.get("offset")))
        message = await self._herder.alter_offsets(_name(request), pairs)
        return web.json_response({"message": message})

    async def _reset_offsets(self, request: web.Request) -> web.Response:
        message = await self._herder.reset_offsets(_name(request))
        return web.json_response({"message": message})

    # Plug-ins

    async def _get_plugins(self, request: web.Request) -> web.Response:
        only = request.query.get("connectorsOnly", "true").lower() == "true"
        return web.json_response(await self._herder.plugins(only))

    async def _get_plugin(self, request: web.Request) -> web.Response:
        return web.json_response(await self._herder.plugin_config(request.match_info["plugin"]))

    async def _validate(self, request: web.Request) -> web.Response:
        config = _properties(await _mapping(request))
        found = await self._herder.validate(request.match_info["plugin"], config)
        return web.json_response(found)

    # Levels of the log (KIP-495)

    async def _get_loggers(self, request: web.Request) -> web.Response:
        return web.json_response(self._herder.log_levels.all())

    async def _get_logger(self, request: web.Request) -> web.Response:
        return web.json_response(self._herder.log_levels.of(request.match_info["logger"]))

    async def _put_logger(self, request: web.Request) -> web.Response:
        """Set a level of this worker, or with scope=cluster of the whole group (KIP-976)."""
        name = request.match_info["logger"]
        if len(name) > LONGEST_LOGGER or not name.isprintable():
            raise refusal(400, f"{shown(name)}: no name of a logger")  # it would be kept
        level = (await _mapping(request)).get("level")
        if level is None:
            raise refusal(400, "Desired 'level' parameter was not specified in request.")
        scope = request.query.get("scope", WORKER)
        if scope.lower() not in (WORKER, CLUSTER):
            raise refusal(400, f"scope={scope}: must be {WORKER} or {CLUSTER}")
        if not is_level(level):
            raise refusal(404, f"invalid log level '{level}'.")
        if scope.lower() == WORKER:
            return web.json_response(self._herder.log_levels.set(name, level))
        await self._herder.set_group_level(name, level)
        return web.Response(status=204)


FORWARDED: Final = ("authorization", "content-type", SIGNATURE.lower(), ALGORITHM.lower())


class WorkerRequests:
    """Requests of a worker to others of its group, with its own user and password."""

    def __init__(self, config: WorkerConfig, properties: Mapping[str, str]) -> None:
        self._config = config
        self._properties = properties
        self._auth: BasicAuth | None = None
        if config.rest_basic_auth_username is not None:
            password = config.rest_basic_auth_password
            assert password is not None, "the settings belong together"
            self._auth = BasicAuth(config.rest_basic_auth_username, password.value)

    async def ask(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> bool:
        """Whether the other worker has done it; why not is in the log."""
        sent = {"Content-Type": "application/json", **headers}
        connector = connector_to(url, self._config, self._properties)
        limit = ClientTimeout(total=REQUEST_LIMIT_S)
        try:
            async with (
                ClientSession(connector=connector, timeout=limit, auth=self._auth) as s,
                s.request(
                    method, URL(url, encoded=True), data=body or None, headers=sent
                ) as answer,
            ):
                if answer.status < HTTP_ERROR:
                    return True
                logger.info("%s answers %d: %s", url, answer.status, await answer.text())
        except (ClientError, TimeoutError) as error:
            logger.info("%s: %s", url, error)
        return False


def connector_to(
    url: str, config: WorkerConfig, properties: Mapping[str, str]
) -> TCPConnector | None:
    """How another worker is reached: over TLS it is trusted as this worker's settings say."""
    if not url.startswith("https:"):
        return None
    settings = given_settings(config, SslSettings)
    settings |= with_prefix(properties, "listeners.https.")
    return TCPConnector(ssl=client_context(SslSettings.parse(SslSettings.known_of(settings))))


def own_names(config: WorkerConfig) -> list[str]:
    """The host names of the worker: those of its listeners, the advertised one, the machine's."""
    listeners = (*config.listeners, *(config.admin_listeners or ()))
    hosts = [parse_listener(each)[1] for each in listeners]
    advertised = config.rest_advertised_host_name
    return [*hosts, *([advertised] if advertised else []), canonical_host_name()]


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error_code": status, "message": message}, status=status)


def _name(request: web.Request) -> str:
    return request.match_info["name"]


def _task(request: web.Request) -> TaskId:
    try:
        return TaskId(_name(request), int(request.match_info["task"]))
    except ValueError:
        raise refusal(404, "HTTP 404 Not Found") from None


def _flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "false").lower() == "true"


async def _mapping(request: web.Request) -> dict[str, Any]:
    """The JSON object in the body, which must say that it is JSON.

    A browser sends JSON for a page of another site only after it was allowed to.
    """
    if request.content_type != JSON_TYPE:
        raise refusal(415, f"Content-Type {request.content_type}: must be {JSON_TYPE}")
    body: dict[str, Any] = _parsed(await request.read(), dict)
    return body


def _parsed(data: bytes, kind: type) -> Any:
    """The JSON of a body, which is UTF-8 (RFC 8259); without what UTF-8 cannot hold."""
    try:
        body = json.loads(data.decode(), parse_constant=refuse_constant)
        if b"\\u" in data:
            json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise refusal(400, f"the body must be JSON: {error}") from None
    if not isinstance(body, kind):
        raise refusal(400, f"the body must be a JSON {'object' if kind is dict else 'list'}")
    return body


def _properties(body: object, place: str = "the body") -> dict[str, str]:
    """Settings as text; JSON may have numbers and booleans where Kafka has texts.

    A refused value is not repeated: it may be a secret.
    """
    if not isinstance(body, dict):
        raise refusal(400, f"{place} must be a JSON object")
    found = {}
    for key, value in body.items():
        if isinstance(value, bool):
            found[key] = "true" if value else "false"
        elif isinstance(value, list | dict):
            raise refusal(400, f"{key}: must be a text, not a {type(value).__name__}")
        elif value is not None:
            found[key] = str(value)
    return found
