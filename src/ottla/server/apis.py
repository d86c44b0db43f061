"""The handlers of all APIs, and the way of a request from its frame to the handler.

ApiVersions names exactly the APIs that are registered here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from copy import copy
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError, RemoteProtocolError
from ottla.network.connection import Connection
from ottla.network.frame_buffer import lasting
from ottla.network.refusal_log import RefusalLog
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
from ottla.protocol.types import Buffer
from ottla.protocol.wire import TooLargeError
from ottla.runtime import Runtime
from ottla.server.api import BROKERS_ONLY, Api, ApiFamily, Handler, LateFamily, refuse
from ottla.server.logins import Logins
from ottla.server.request_meter import RequestMeter
from ottla.server.slice_context import SliceContext
from ottla.server.slicing import (
    LARGE_ANSWER_BYTES,
    MAX_ELEMENTS,
    MAX_FRAME_BYTES,
    Slicing,
    freed,
    is_long,
)

if TYPE_CHECKING:
    from ottla.security.acls import AclOperation, Resource

    OnDenial = Callable[[RequestContext, AclOperation, Resource, bool], object]
    """Gets what was denied, and whether it is served all the same."""

logger = logging.getLogger(__name__)

NewContext = Callable[[Connection, RequestHeader, int, int, int], RequestContext]
"""Gets when a request was received, its size, and when its handling began, in nanoseconds."""


class Apis:
    """The table of APIs of one broker."""

    def __init__(self, runtime: Runtime, families: Iterable[ApiFamily] = ()) -> None:
        self.runtime = runtime
        self.slices = runtime.slices
        self.new_context: NewContext | None = None
        """Makes the contexts of requests that are charged to somebody, while any are."""
        self.meter: RequestMeter | None = None
        """Watches requests, where there are metrics."""
        self.refusals = RefusalLog(runtime.clock)
        self.logins = Logins(runtime.scheduler, self.refusals)
        self.on_refused_request: Callable[[RequestContext], object] | None = None
        """Gets a request of brokers that came on another listener than theirs."""
        self.may_be_broker: list[Callable[[RequestContext], bool]] = []
        """Each must hold of a client whose requests may be as large as those of brokers."""
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
        if connection.authenticator is not None and not self.logins.receive(connection, frame):
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

    def _begin_long(self, api: Api, context: RequestContext, frame: memoryview, start: int) -> None:
        """Decode a large request, in slices if need be; the first while the frame is there."""
        header, size, most = context.header, len(frame), api.max_elements
        if header.api_key in BROKERS_ONLY and not all(may(context) for may in self.may_be_broker):
            most = MAX_ELEMENTS  # it is refused, but for what it names
        body = self.slices.begin(decode_request_in_slices(header, frame, start, most))
        if isinstance(body, Request):
            self._call(self._sliced(api, body), context, body, size)
        else:
            head = bytes(frame[:start])
            awaiting = self._decode_rest(api, context, body, size, head)
            self.runtime.scheduler.spawn(context.quota.timed(awaiting), name="decode")
        context.quota.end_step()

    async def _decode_rest(
        self,
        api: Api,
        context: RequestContext,
        rest: Coroutine[Any, Any, Request],
        size: int,
        head: bytes,
    ) -> None:
        try:
            body = await rest
            await self.slices.pause()
            if not context.connection.is_closing:
                self._call(self._sliced(api, body), context, body, size)
        except RemoteProtocolError as error:
            self._refuse_bytes(context.connection, head, error)
        except Exception:
            logger.exception("%s: a request cannot be decoded", context.connection.id)
            context.connection.finish("its request cannot be decoded")

    def _refuse_bytes(
        self, connection: Connection, frame: Buffer, error: RemoteProtocolError
    ) -> None:
        """Bad bytes close the connection; a request that is only too large may be answered."""
        if isinstance(error.__cause__, TooLargeError):
            header, _ = decode_request_header(frame)
            request, code = request_class(header.api_key), ErrorCode.INVALID_REQUEST
            response = error_response(request, header.api_version, code, error.message)
            if response is not None:
                if self.refusals.is_news(connection.client_host, error.message):
                    logger.info("%s: %s", connection.id, error.message)
                RequestContext(connection, header, self.runtime.clock.now_ms()).respond(response)
                return
        refuse(connection, f"malformed request: {error.message}", self.refusals)

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

    def _call(self, handler: Handler, context: RequestContext, body: Request, size: int) -> None:
        if (meter := self.meter) is not None:
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
        self, answer: Coroutine[Any, Any, Response | None], context: RequestContext, body: Request
    ) -> None:
        try:
            response = await answer
            if response is not None:
                size = await context.respond_in_slices(response, self.slices)
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
            what = f"unsupported API key {header.api_key} version {header.api_version}"
            refuse(connection, what, self.refusals)
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
