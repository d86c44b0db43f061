"""Which handler serves which API, and the way of a request from its frame to the handler.

ApiVersions says exactly what is registered here. A handler is called with the request's context
and its decoded body. What it returns is the answer; a handler that answers later (or never)
returns None and uses the context; a coroutine is awaited on the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ottla.errors import ErrorCode, KafkaError, RemoteProtocolError
from ottla.network.client_quotas import ClientQuotas
from ottla.network.connection import Connection, RequestContext, RequestWatch
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.fetch import FetchRequest
from ottla.protocol.header import (
    RequestHeader,
    decode_request,
    decode_request_header,
)
from ottla.protocol.message import Request, Response, error_response, versions_of
from ottla.protocol.types import Part
from ottla.runtime import Runtime

if TYPE_CHECKING:
    from ottla.security.sasl import SaslAuthenticator

logger = logging.getLogger(__name__)


Answer = Response | None | Coroutine[Any, Any, Response | None]
Handler = Callable[[RequestContext, Any], Answer]
OnRefusedLogin = Callable[[Connection, str, str], object]
"""Gets a client that was refused, the mechanism that it has chosen, and the reason."""
MAX_MESSAGE_LENGTH: Final = 1000
"""Messages name what was sent, and a peer may have sent anything; strings end at 32767 bytes."""


BROKERS_ONLY: Final = (
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
    ApiKey.WRITE_TXN_MARKERS,
)
"""The APIs that only brokers use; quotas do not limit them."""


class Api(NamedTuple):
    """A handler and the versions that it serves: all that the message has, unless narrowed."""

    handler: Handler
    min_version: int
    max_version: int


class ApiFamily(Protocol):
    """A group of handlers that share their collaborators."""

    def apis(self) -> Mapping[ApiKey, Handler | tuple[Handler, int, int]]:
        """The handlers of the family, each alone or with the versions that it serves."""


class WholeFamily(Protocol):
    """A family that serves all versions that its messages have."""

    def apis(self) -> Mapping[ApiKey, Handler]:
        """The handlers of the family."""


class LateFamily:
    """A family that is imported and made when the first request for it is there.

    `narrowed` has the versions of APIs that serve only some. What `make` gives has the handlers
    of just these APIs.
    """

    def __init__(
        self,
        make: Callable[[], WholeFamily],
        *keys: ApiKey,
        narrowed: Mapping[ApiKey, tuple[int, int]] | None = None,
    ) -> None:
        self.on_made: Callable[[Mapping[ApiKey, Handler]], object] | None = None
        self._make = make
        self._keys = keys
        self._narrowed = narrowed or {}
        self._made: Mapping[ApiKey, Handler] = {}

    def apis(self) -> dict[ApiKey, Handler | tuple[Handler, int, int]]:
        """Handlers that make the family, and then hand on to its own."""
        late: dict[ApiKey, Handler] = {key: partial(self._handle, key) for key in self._keys}
        return {
            key: (handler, *self._narrowed[key]) if key in self._narrowed else handler
            for key, handler in late.items()
        }

    def _handle(self, key: ApiKey, context: RequestContext, body: Any) -> Answer:
        if not self._made:
            self._made = self._make().apis()
            assert self._made.keys() == set(self._keys), "the row names the APIs of the family"
            if self.on_made is not None:
                self.on_made(self._made)
        return self._made[key](context, body)


class RequestMeter:
    """What measures requests, as far as the table of APIs knows it."""

    def __init__(self, measure: Callable[[RequestContext, Request, int], RequestWatch]) -> None:
        self.measure = measure
        """Counts a decoded request, of a frame of so many bytes, and chooses whether to time it."""
        self.until_timed = 1
        """The request that makes it 0 is timed."""
        self.watches: dict[int, RequestWatch] = {}
        """Of requests that are only counted, by API; `measure` chooses where there is none."""


class Apis:
    """The table of APIs of one broker."""

    def __init__(self, runtime: Runtime, families: Iterable[ApiFamily] = ()) -> None:
        self.runtime = runtime
        self.quotas: ClientQuotas | None = None
        self.meter: RequestMeter | None = None
        """Watches requests, where there are metrics."""
        self.on_refused_login: OnRefusedLogin | None = None
        self._apis: dict[int, Api] = {}
        for family in families:
            self.register(family)

    def register(self, family: ApiFamily) -> None:
        """Add a family's handlers to the table."""
        entries = family.apis()
        for key, entry in entries.items():
            if isinstance(entry, tuple):
                self._apis[int(key)] = Api(*entry)
            else:
                self._apis[int(key)] = Api(entry, *versions_of(key))
        if isinstance(family, LateFamily):
            late = {key: self._apis[int(key)] for key in entries}
            family.on_made = partial(self._replace, late)

    def _replace(self, late: Mapping[ApiKey, Api], made: Mapping[ApiKey, Handler]) -> None:
        """From now on requests go straight to the handlers, except where these are wrapped."""
        for key, api in late.items():
            if self._apis[int(key)] is api:
                self._apis[int(key)] = api._replace(handler=made[key])

    def wrap(self, key: ApiKey, around: Callable[[Handler], Handler]) -> None:
        """Wrap the handler of an API, if it is in the table."""
        api = self._apis.get(int(key))
        if api is not None:
            self._apis[int(key)] = api._replace(handler=around(api.handler))

    def supported(self) -> list[tuple[int, int, int]]:
        """Key, lowest and highest version of each API, by key."""
        return [(key, api.min_version, api.max_version) for key, api in sorted(self._apis.items())]

    def on_request(self, connection: Connection, frame: memoryview) -> None:
        """Decode one request and hand it to its handler; bad bytes close the connection."""
        if connection.authenticator is not None and not self._authenticate(connection, frame):
            return
        quotas = self.quotas
        start_ns = 0
        if quotas is not None and quotas.request.is_active:
            start_ns = self.runtime.clock.monotonic_ns()
        try:
            header, position = decode_request_header(frame)
            api = self._apis.get(header.api_key)
            if api is None or not api.min_version <= header.api_version <= api.max_version:
                self._refuse_version(connection, header)
                return
            body = decode_request(header, frame, position)
        except RemoteProtocolError as error:
            refuse(connection, f"malformed request: {error.message}")
            return
        now_ms = self.runtime.clock.now_ms()
        size = len(frame)
        if quotas is None or not quotas.is_active or header.api_key in BROKERS_ONLY:
            self._call(api.handler, RequestContext(connection, header, now_ms), body, size)
            return
        context = quotas.context(connection, header, now_ms, size, start_ns)
        self._call(api.handler, context, body, size)
        context.quota.end_step()

    def _authenticate(self, connection: Connection, frame: memoryview) -> bool:
        """Show a frame to the connection's authenticator; True if it is a request for us."""
        authenticator = connection.authenticator
        assert authenticator is not None
        verdict = authenticator.receive(frame)
        if verdict.is_request:
            return True
        if verdict.is_end:
            refuse(connection, verdict.reason)
        elif verdict.is_refusal:
            self._refuse_login(connection, authenticator, verdict.answer, verdict.reason)
        else:
            if authenticator.is_complete:
                connection.authenticated(authenticator)
            connection.send(verdict.answer or ())
        return False

    def _refuse_login(
        self,
        connection: Connection,
        authenticator: SaslAuthenticator,
        answer: list[Part] | None,
        reason: str,
    ) -> None:
        """Answer after a while, and close: passwords are not tried faster than that."""
        logger.info(
            "Failed authentication with /%s (channelId=%s) (%s)",
            connection.client_host,
            connection.id,
            reason,
        )
        if self.on_refused_login is not None:
            self.on_refused_login(connection, authenticator.mechanism, reason)

        def end() -> None:
            if answer is None:
                connection.close(reason)
            else:
                connection.send_last(answer, reason)

        self.runtime.scheduler.call_later(authenticator.listener.failure_delay_ms, end)

    def _call(self, handler: Handler, context: RequestContext, body: Request, size: int) -> None:
        meter = self.meter
        if meter is not None:
            header = context.header
            watch = meter.watches.get(header.api_key)
            if watch is None or meter.until_timed <= 1:
                watch = meter.measure(context, body, size)
            else:  # in line, as most requests of a busy broker come here
                meter.until_timed -= 1
                watch.versions[header.api_version] += 1
            context.watch = watch
        try:
            answer = handler(context, body)
        except Exception as error:
            self._fail(context, body, error)
            return
        if answer is None:
            context.begin_wait()
        elif isinstance(answer, Response):
            context.respond(answer)
        else:
            context.begin_wait()
            awaiting = self._await(context.quota.timed(answer), context, body)
            self.runtime.scheduler.spawn(awaiting, name=type(body).__name__)

    async def _await(
        self,
        answer: Coroutine[Any, Any, Response | None],
        context: RequestContext,
        body: Request,
    ) -> None:
        try:
            response = await answer
        except Exception as error:
            self._fail(context, body, error)
            return
        if response is not None:
            context.respond(response)

    def _fail(self, context: RequestContext, body: Request, error: Exception) -> None:
        """Answer with the error where the response has a place for one, else close."""
        if isinstance(error, KafkaError):
            code, message = error.error, error.message
        else:
            logger.error("%s failed: %r", type(body).__name__, error, exc_info=error)
            code, message = ErrorCode.UNKNOWN_SERVER_ERROR, None
        response = error_response(type(body), context.api_version, code, message)
        if response is None:
            context.close_connection(f"{type(body).__name__} failed: {code.name}")
        else:
            context.respond(response)

    def _refuse_version(self, connection: Connection, header: RequestHeader) -> None:
        """ApiVersions is answered in its oldest form, so that any client can read it (KIP-511)."""
        if header.api_key != ApiKey.API_VERSIONS:
            refuse(connection, f"unsupported API key {header.api_key} version {header.api_version}")
            return
        oldest = RequestHeader(header.api_key, 0, header.correlation_id, header.client_id)
        context = RequestContext(connection, oldest, self.runtime.clock.now_ms())
        api = self._apis[int(ApiKey.API_VERSIONS)]
        refusal = api.handler(context, ApiVersionsRequest())
        assert isinstance(refusal, ApiVersionsResponse), "ApiVersions is answered at once"
        refusal.error_code = int(ErrorCode.UNSUPPORTED_VERSION)
        refusal.api_keys = [
            entry for entry in refusal.api_keys if entry.api_key == ApiKey.API_VERSIONS
        ]
        context.respond(refusal)


def error_code(outcome: object) -> int:
    """The error code in a response for what came of a request: 0 unless it is an error."""
    return int(outcome.error) if isinstance(outcome, KafkaError) else int(ErrorCode.NONE)


def error_message(outcome: object) -> str | None:
    """The error message in a response, cut to a length that fits; None unless it is an error."""
    return outcome.message[:MAX_MESSAGE_LENGTH] if isinstance(outcome, KafkaError) else None


def refuse(connection: Connection, reason: str) -> None:
    """Log and close the connection of a client that breaks the protocol: no answer fits."""
    logger.info("closing %s: %s", connection.id, reason)
    connection.close(reason)


# APIs that only brokers use: refused on every listener but the brokers' own.
#
# Kafka asks for ClusterAction on the cluster (CVE-2018-1288 is what happens without). A listener
# that clients cannot reach keeps them from it as well; where brokers and clients share one, a
# client that knows the ids of the replicas and the epochs of the cluster can pose as a broker.


def keep_to_brokers(
    apis: Apis,
    listener_name: str,
    on_refused: Callable[[RequestContext], object] | None = None,
    *,
    has_rights: bool = False,
) -> None:
    """Answer these APIs, and Fetch as a follower, on this listener only.

    Where rights are asked for, an administrator may end a transaction on any other (KIP-664).
    """

    def guard(is_reserved: Callable[[Any], bool]) -> Callable[[Handler], Handler]:
        def guarded(handler: Handler) -> Handler:
            def handle(context: RequestContext, body: Any) -> Answer:
                if context.listener_name != listener_name and is_reserved(body):
                    name = type(body).__name__
                    logger.info("%s of a client at %s is refused", name, context.client_host)
                    if on_refused is not None:
                        on_refused(context)
                    raise KafkaError.of(
                        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                        f"{name} on listener {context.listener_name}: brokers talk "
                        f"to each other on {listener_name}",
                    )
                return handler(context, body)

            return handle

        return guarded

    for key in BROKERS_ONLY:
        if not (has_rights and key is ApiKey.WRITE_TXN_MARKERS):
            apis.wrap(key, guard(lambda body: True))
    apis.wrap(ApiKey.FETCH, guard(is_follower))


def is_follower(body: FetchRequest) -> bool:
    """Whether a replica fetches: its fetch offset advances the high watermark."""
    replica_id = body.replica_id if body.replica_state is None else body.replica_state.replica_id
    return replica_id >= 0 or body.replica_id >= 0
