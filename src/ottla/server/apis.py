"""The handlers of all APIs, and the way of a request from its frame to the handler.

ApiVersions names exactly the APIs that are registered here. A handler is called with the request's
context and its decoded body. It returns the answer; a handler that answers later (or never)
returns None and uses the context; a coroutine is awaited on the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from copy import copy
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ottla.errors import ErrorCode, KafkaError, RemoteProtocolError
from ottla.network.connection import Connection, Identify
from ottla.network.frame_buffer import lasting
from ottla.network.request_context import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.header import (
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_request_in_slices,
)
from ottla.protocol.message import Request, Response, error_response, request_class, versions_of
from ottla.protocol.types import UNLIMITED, Buffer
from ottla.protocol.wire import TooLargeError
from ottla.runtime import Runtime, Slices
from ottla.runtime.scheduler import Work
from ottla.server.request_meter import RequestMeter
from ottla.server.slice_context import SliceContext
from ottla.server.slicing import (
    LARGE_ANSWER_BYTES,
    LARGE_FRAME_BYTES,
    LARGE_FRAMES,
    LONG_FRAME_BYTES,
    MAX_ELEMENTS,
    MAX_ELEMENTS_OF,
    MAX_FRAME_BYTES,
    SLICED,
    Slicing,
    freed,
    is_long,
)

if TYPE_CHECKING:
    from ottla.security.acls import AclOperation, Resource
    from ottla.security.principal import KafkaPrincipal
    from ottla.security.sasl import SaslAuthenticator, Verdict

    OnDenial = Callable[[RequestContext, AclOperation, Resource, bool], object]
    """Gets what was denied, and whether it is served all the same."""

logger = logging.getLogger(__name__)

Answer = Response | None | Coroutine[Any, Any, Response | None]
Handler = Callable[[RequestContext, Any], Answer]
NewContext = Callable[[Connection, RequestHeader, int, int, int], RequestContext]
"""Gets when a request was received, its size, and when its handling began, in nanoseconds."""
OnRefusedLogin = Callable[[Connection, str, str], object]
"""Gets a client that was refused, the mechanism that it has chosen, and the reason."""


MAX_REASON: Final = 500
"""Letters of a refusal in the log: names, also of who is not logged in yet, may be in it."""
BROKERS_ONLY: Final = (
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
    ApiKey.WRITE_TXN_MARKERS,
)
"""The APIs that only brokers use; quotas do not limit those who may use them."""


def begin(slices: Slices, context: RequestContext, work: Work[Response]) -> Answer:
    """Answer a request by work in slices; it ends when the client has gone."""
    return slices.begin(work, lambda: not context.connection.is_closing)


class Api(NamedTuple):
    """A handler and the versions that it serves: all that the message has, unless narrowed."""

    handler: Handler
    min_version: int
    max_version: int
    slicings: tuple[Slicing, ...] = ()
    whole_bytes: int = UNLIMITED
    """A request of no more bytes is not looked at for whether it needs slices."""
    undivided_bytes: int = LONG_FRAME_BYTES
    """A request of no more bytes is decoded in one go."""
    max_elements: int = MAX_ELEMENTS
    max_bytes: int = MAX_FRAME_BYTES

    @classmethod
    def of(cls, key: int, handler: Handler, min_version: int, max_version: int) -> Api:
        """The row of an API, with the limits of its requests."""
        if key in BROKERS_ONLY:
            handler = partial(_exempt, handler)
        slicings = SLICED.get(key, ())
        max_bytes = LARGE_FRAME_BYTES if key in LARGE_FRAMES else MAX_FRAME_BYTES
        return cls(
            handler,
            min_version,
            max_version,
            slicings,
            min((each.whole_bytes for each in slicings), default=UNLIMITED),
            UNLIMITED if key == ApiKey.PRODUCE else LONG_FRAME_BYTES,
            MAX_ELEMENTS_OF.get(key, MAX_ELEMENTS),
            UNLIMITED if key in BROKERS_ONLY or key == ApiKey.PRODUCE else max_bytes,
        )


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

    `narrowed` has the versions of APIs that serve only some. The object from `make` has the
    handlers of just these APIs.
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


class Apis:
    """The table of APIs of one broker."""

    def __init__(self, runtime: Runtime, families: Iterable[ApiFamily] = ()) -> None:
        self.runtime = runtime
        self.slices = runtime.slices
        self.new_context: NewContext | None = None
        """Makes the contexts of requests that are charged to somebody, while any are."""
        self.meter: RequestMeter | None = None
        """Watches requests, where there are metrics."""
        self.identify: Identify | None = None
        """Names clients that have logged in, where they do not go by the name of their login."""
        self.on_refused_login: OnRefusedLogin | None = None
        self.on_refused_request: Callable[[RequestContext], object] | None = None
        """Gets a request of brokers that came on another listener than theirs."""
        self.on_denial: list[OnDenial] = []
        """Get each right that a request lacks, where rights are asked for."""
        self._apis: dict[int, Api] = {}
        for family in families:
            self.register(family)

    def register(self, family: ApiFamily) -> None:
        """Add a family's handlers to the table."""
        entries = family.apis()
        for key, entry in entries.items():
            if isinstance(entry, tuple):
                self._apis[int(key)] = Api.of(int(key), *entry)
            else:
                self._apis[int(key)] = Api.of(int(key), entry, *versions_of(key))
        if isinstance(family, LateFamily):
            late = {key: self._apis[int(key)] for key in entries}
            family.on_made = partial(self._replace, late)

    def _replace(self, late: Mapping[ApiKey, Api], made: Mapping[ApiKey, Handler]) -> None:
        """Let requests go straight to the handlers, except where these are wrapped."""
        for key, api in late.items():
            if self._apis[int(key)] is api and key not in BROKERS_ONLY:
                self._apis[int(key)] = api._replace(handler=made[key])

    def wrap(self, key: ApiKey, around: Callable[[Handler], Handler]) -> None:
        """Wrap the handler of an API, if it is in the table."""
        api = self._apis.get(int(key))
        if api is not None:
            self._apis[int(key)] = api._replace(handler=around(api.handler))

    def supported(self) -> list[tuple[int, int, int]]:
        """Key, lowest and highest version of each API, by key."""
        return [(key, api.min_version, api.max_version) for key, api in sorted(self._apis.items())]

    def max_frame_bytes(self, api_key: int) -> int:
        """The most bytes that a request of this API may have; one with more is not received."""
        api = self._apis.get(api_key)
        return MAX_FRAME_BYTES if api is None else api.max_bytes

    def on_request(self, connection: Connection, frame: memoryview) -> None:
        """Decode one request and hand it to its handler; bad bytes close the connection."""
        if connection.authenticator is not None and not self._authenticate(connection, frame):
            return
        charged = self.new_context
        start_ns = 0 if charged is None else self.runtime.clock.monotonic_ns()
        try:
            header, position = decode_request_header(frame)
            api = self._apis.get(header.api_key)
            if api is None or not api.min_version <= header.api_version <= api.max_version:
                self._refuse_version(connection, header)
                return
            size = len(frame)
            now_ms = self.runtime.clock.now_ms()
            if charged is None:
                context = RequestContext(connection, header, now_ms)
            else:
                context = charged(connection, header, now_ms, size, start_ns)
            if size > api.undivided_bytes:
                self._begin_long(api, context, frame, position)
                return
            body = decode_request(header, frame, position, api.max_elements)
            handler = api.handler
            if size > api.whole_bytes:
                if header.api_key != ApiKey.PRODUCE:
                    handler = self._sliced(api, body)
                elif is_long(body):
                    body = decode_request(header, lasting(frame), position)
                    handler = self._sliced(api, body)
        except RemoteProtocolError as error:
            self._refuse_bytes(connection, frame, error)
            return
        self._call(handler, context, body, size)
        if charged is not None:
            context.quota.end_step()

    def _begin_long(
        self, api: Api, context: RequestContext, frame: memoryview, position: int
    ) -> None:
        """Decode a large request, in slices if need be; the first while the frame is there."""
        header, size = context.header, len(frame)
        slices = decode_request_in_slices(header, frame, position, api.max_elements)
        body = next(slices)
        if body is not None:
            self._call(self._sliced(api, body), context, body, size)
        else:
            head = bytes(frame[:position])
            awaiting = self._decode_rest(api, context, slices, size, head)
            self.runtime.scheduler.spawn(context.quota.timed(awaiting), name="decode")
        context.quota.end_step()

    async def _decode_rest(
        self,
        api: Api,
        context: RequestContext,
        slices: Iterator[Request | None],
        size: int,
        head: bytes,
    ) -> None:
        await self.slices.pause()
        try:
            body = await self.slices.last_of(slices)
            if not context.connection.is_closing:
                self._call(self._sliced(api, body), context, body, size)
        except RemoteProtocolError as error:
            self._refuse_bytes(context.connection, head, error)
        except Exception:
            logger.exception("%s: a request cannot be decoded", context.connection.id)
            context.connection.close("its request cannot be decoded")

    def _refuse_bytes(
        self, connection: Connection, frame: Buffer, error: RemoteProtocolError
    ) -> None:
        """Bad bytes close the connection; a request that is only too large may be answered."""
        if isinstance(error.__cause__, TooLargeError):
            header, _ = decode_request_header(frame)
            request, code = request_class(header.api_key), ErrorCode.INVALID_REQUEST
            response = error_response(request, header.api_version, code, error.message)
            if response is not None:
                logger.info("%s: %s", connection.id, error.message)
                RequestContext(connection, header, self.runtime.clock.now_ms()).respond(response)
                return
        refuse(connection, f"malformed request: {error.message}")

    def _sliced(self, api: Api, body: Request) -> Handler:
        """The handler of a request, which is called for each slice of it where it is large."""
        for slicing in api.slicings:
            entries = getattr(body, slicing.entries[0])
            if not entries:
                continue
            if len(entries) == len(slicing.entries) == 1:
                break  # one name, as in most requests: there is nothing to cut
            slices = slicing.cut(body)
            first = list(islice(slices, 2))
            if len(first) > 1:
                return partial(self._in_slices, api.handler, slicing, chain(first, slices))
            break
        return api.handler

    async def _in_slices(
        self,
        handler: Handler,
        slicing: Slicing,
        slices: Iterator[list[Any]],
        context: RequestContext,
        body: Request,
    ) -> Response | None:
        """Have each slice answered, with a pause behind it; the answers become one."""
        whole: Response | None = None
        for entries in slices:
            part = copy(body)
            setattr(part, slicing.entries[0], entries)
            result = await SliceContext(context).answer_of(handler, part, self.slices)
            if context.close_reason:
                context.close_connection(context.close_reason)
                return None
            if whole is None:
                whole = result
            elif result is not None:
                slicing.join(whole, result)
            await self.slices.pause()
            if context.connection.is_closing:
                return None
        if whole is None:
            context.no_response()
        return whole

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
            self._refuse_login(connection, authenticator, verdict)
        elif authenticator.is_complete and self.identify is not None:
            self._identify(self.identify, connection, authenticator)
        else:
            if authenticator.is_complete:
                connection.authenticated(authenticator, authenticator.principal)
            connection.send(verdict.answer or ())
        return False

    def _identify(
        self, identify: Identify, connection: Connection, authenticator: SaslAuthenticator
    ) -> None:
        """Answer a login, which is complete, once the client has its name."""
        before = connection.principal if authenticator.login_count > 1 else None

        def let_in(principal: KafkaPrincipal) -> None:
            if before in (None, principal):
                connection.authenticated(authenticator, principal)
                connection.send(authenticator.welcome())
            else:
                turn_away(f"Cannot change principals during re-authentication from {before}")

        def turn_away(reason: str) -> None:
            self._refuse_login(connection, authenticator, authenticator.refuse(reason))

        identify(connection, let_in, turn_away)

    def _refuse_login(
        self, connection: Connection, authenticator: SaslAuthenticator, verdict: Verdict
    ) -> None:
        """Answer after a while, and close: passwords are not tried faster than that."""
        answer, reason = verdict.answer, verdict.reason
        logger.info(
            "Failed authentication with /%s (channelId=%s) (%s)",
            connection.client_host,
            connection.id,
            reason[:MAX_REASON],
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
            if response is not None:
                size = await context.respond_in_slices(response, self.slices.last_of)
                if size > LARGE_ANSWER_BYTES:
                    parts, response = [response], None
                    self.runtime.begin(freed(parts), "free a large answer")
        except asyncio.CancelledError:  # of what it waited for, or at the end of the broker
            context.connection.close(f"{type(body).__name__} was given up")
            raise
        except Exception as error:
            try:
                self._fail(context, body, error)
            except Exception:
                context.connection.close(f"{type(body).__name__} has no answer that can be sent")
                raise

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


def _exempt(handler: Handler, context: RequestContext, body: Any) -> Answer:
    """Serve a broker: the checks have let it pass, so that no quota limits it.

    What they refuse is charged to the client that has asked for it.
    """
    context.quota.exempt()
    return handler(context, body)


def request_name(header: RequestHeader) -> str:
    """The request as Kafka's log names it: Metadata, ListOffsets."""
    return ApiKey(header.api_key).name.title().replace("_", "")


def error_code(outcome: object) -> int:
    """The error code in a response for the outcome of a request: 0 unless it is an error."""
    return int(outcome.error) if isinstance(outcome, KafkaError) else int(ErrorCode.NONE)


def error_message(outcome: object) -> str | None:
    """The error message in a response; None unless it is an error."""
    return outcome.message if isinstance(outcome, KafkaError) else None


def refuse(connection: Connection, reason: str) -> None:
    """Log and close the connection of a client that breaks the protocol: no answer fits."""
    logger.info("closing %s: %s", connection.id, reason[:MAX_REASON])
    connection.close(reason)
