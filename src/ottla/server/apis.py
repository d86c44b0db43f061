"""Which handler serves which API, and the way of a request from its frame to the handler.

ApiVersions says exactly what is registered here. A handler is called with the request's context
and its decoded body. What it returns is the answer; a handler that answers later (or never)
returns None and uses the context; a coroutine is awaited on the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from copy import copy
from functools import cache, partial
from itertools import chain, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ottla.errors import ErrorCode, KafkaError, RemoteProtocolError
from ottla.network.connection import (
    Connection,
    Identify,
    RequestContext,
    RequestWatch,
    lasting,
)
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.fetch import FetchRequest
from ottla.protocol.header import (
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_request_in_slices,
)
from ottla.protocol.message import (
    Request,
    Response,
    Struct,
    error_response,
    request_class,
    versions_of,
)
from ottla.protocol.types import UNLIMITED, Array, Buffer
from ottla.protocol.wire import TooLargeError
from ottla.runtime import DelayedOperation, Runtime, Slices
from ottla.runtime.scheduler import Work
from ottla.structs import CONSUMER_REPLICA_ID

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
"""The APIs that only brokers use; quotas do not limit those who may use them."""


# What one request may ask for, and how much of it is done at a time.
#
# All clients share one loop. So a request has a limit of bytes (those with records, assignments, or
# the state of a cluster aside), and one of elements in all its arrays together, which is known
# before they are made. What is larger than LONG_FRAME_BYTES is read in slices; what is answered
# entry by entry is answered in slices, each the same request with a part of the entries, so that
# handlers and checks of rights need not know of it. The connection stays muted meanwhile.


MAX_FRAME_BYTES: Final = 4 * 1024 * 1024
LARGE_FRAME_BYTES: Final = 32 * 1024 * 1024
LARGE_FRAMES: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""With subscriptions and assignments; records have `socket.request.max.bytes` alone."""
LONG_FRAME_BYTES: Final = 16 * 1024
MAX_ELEMENTS: Final = 25_000
MAX_ELEMENTS_OF: Final[Mapping[int, int]] = {
    # Between brokers: the state of 200,000 partitions with three replicas each.
    **dict.fromkeys((ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA), 2_500_000),
    ApiKey.ALTER_PARTITION: 1_000_000,
    ApiKey.STOP_REPLICA: 500_000,
    ApiKey.WRITE_TXN_MARKERS: 120_000,  # administrators may, too (KIP-664)
    ApiKey.PRODUCE: 10_000,  # its frame is not decoded in slices
    # What follows is not answered in slices: it is done as a whole or not at all.
    ApiKey.ADD_PARTITIONS_TO_TXN: 4_000,
    ApiKey.DELETE_RECORDS: 4_000,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 3_000,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 5_000,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 1_000,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 10_000,
    **dict.fromkeys((ApiKey.JOIN_GROUP, ApiKey.LEAVE_GROUP), 2_000),
    **dict.fromkeys((ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.CREATE_DELEGATION_TOKEN), 500),
    **dict.fromkeys((ApiKey.UPDATE_FEATURES, ApiKey.DESCRIBE_DELEGATION_TOKEN), 500),
    **dict.fromkeys((ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS), 2_000),
}


def begin(slices: Slices, context: RequestContext, work: Work[Response]) -> Answer:
    """Answer a request by work in slices; it ends when the client has gone."""
    return slices.begin(work, lambda: not context.connection.is_closing)


class Slicing(NamedTuple):
    """How the answer to a large request is made in slices."""

    entries: tuple[str, ...]
    """The list of the request that is answered entry by entry, and the lists within an entry."""
    results: tuple[str, ...]
    """Those of the answer."""
    most: int = 500
    """Elements in a slice; fewer where an answer is much larger than its question."""
    names_once: bool = False
    """Whether what is named again is answered once."""
    element_bytes: int = 1
    """An element of the request has so many bytes at least."""
    is_whole: bool = False
    """Whether an entry has one answer, which parts of it cannot have."""
    named_by: tuple[str, ...] = ()
    """What names an entry, where handlers refuse entries of one name: they are in one slice."""

    @property
    def whole_bytes(self) -> int:
        """A request of so many bytes needs no slices."""
        return 0 if self.names_once else self.most * self.element_bytes

    def cut(self, body: Request) -> Iterator[list[Any]]:
        """The entries for each slice, as they are wanted; repeated ones once, where that holds."""
        entries = getattr(body, self.entries[0])
        if self.names_once and len(entries) > 1:
            entries = once(entries, self.entries[1:])
            setattr(body, self.entries[0], entries)
        if self.named_by and len(entries) > 1:
            repeated, entries = apart(entries, self.named_by)
            if repeated:
                yield repeated
        if len(self.entries) == 1:
            for place in range(0, len(entries), self.most):
                yield entries[place : place + self.most]
            return
        part: list[Any] = []
        room = self.most
        for entry in entries:
            parts = (entry,) if self.is_whole else pieces(entry, self.entries[1:], room, self.most)
            for piece in parts:
                weight = weigh(piece, self.entries[1:])
                if weight > room and part:
                    yield part
                    part, room = [], self.most
                part.append(piece)
                room -= weight
        if part:
            yield part

    def join(self, whole: Response, more: Response) -> None:
        """Put the results of one more slice behind the others."""
        join_results(whole, more, self.results)


def is_long(body: Any) -> bool:
    """Whether a Produce is answered in slices, for which its frame has to stay."""
    topics = body.topic_data
    if len(topics) == 1:
        return len(topics[0].partition_data) >= PRODUCE_PARTITIONS
    return sum(len(topic.partition_data) + 1 for topic in topics) > PRODUCE_PARTITIONS


def weigh(entry: Any, lists: tuple[str, ...]) -> int:
    """How many elements an entry has, with itself."""
    if not lists:
        return 1
    inner = getattr(entry, lists[0]) or ()
    if len(lists) == 1:
        return 1 + len(inner)
    return 1 + sum(weigh(each, lists[1:]) for each in inner)


def pieces(entry: Any, lists: tuple[str, ...], room: int, most: int) -> Iterator[Any]:
    """The entry, or copies of it with parts of what is within it, none larger than a slice."""
    if not lists or weigh(entry, lists) <= max(room, most):
        yield entry
        return
    inner, weight = getattr(entry, lists[0]), 1
    part: list[Any] = []
    for each in inner:
        for piece in pieces(each, lists[1:], most - 1, most - 1):
            size = weigh(piece, lists[1:])
            if weight + size > most and part:
                yield _with(entry, lists[0], part)
                part, weight = [], 1
            part.append(piece)
            weight += size
    yield _with(entry, lists[0], part)


def _with(entry: Any, name: str, part: list[Any]) -> Any:
    piece = copy(entry)
    setattr(piece, name, part)
    return piece


def once(entries: list[Any], lists: tuple[str, ...]) -> list[Any]:
    """Each entry once; of entries of one name the lists are put together (null is all)."""
    if not isinstance(entries[0], Struct):
        return list(dict.fromkeys(entries))
    found: dict[Any, Any] = {}
    identity = identity_of(entries[0].__class__)
    for entry in entries:
        known = found.setdefault(identity(entry), entry)
        if known is entry or not lists:
            continue
        inner, more = getattr(known, lists[0]), getattr(entry, lists[0])
        if inner is None or more is None:
            setattr(known, lists[0], None)
        else:
            inner.extend(more)  # in place: a new list for each of many entries is quadratic work
    for entry in found.values():
        inner = getattr(entry, lists[0]) if lists else None
        if inner and len(inner) > 1:
            setattr(entry, lists[0], once(inner, lists[1:]))
    return list(found.values())


def apart(entries: list[Any], named_by: tuple[str, ...]) -> tuple[list[Any], list[Any]]:
    """The entries whose names are there more than once, and the others."""
    names = [entry if type(entry) is str else attrgetter(*named_by)(entry) for entry in entries]
    counts = Counter(names)
    if len(counts) == len(entries):
        return [], entries
    repeated = [entry for entry, name in zip(entries, names, strict=True) if counts[name] > 1]
    return repeated, [
        entry for entry, name in zip(entries, names, strict=True) if counts[name] == 1
    ]


@cache
def identity_of(cls: Any) -> Callable[[Any], Any]:
    """Gives all values of a struct but its lists."""
    return attrgetter(*(each.name for each in cls.fields if not isinstance(each.type, Array)))


def join_results(whole: Any, more: Any, lists: tuple[str, ...]) -> None:
    """Add the results of a later slice; an entry that was cut becomes one again."""
    results, added = getattr(whole, lists[0]), getattr(more, lists[0])
    if len(lists) > 1 and results and added:
        identity = identity_of(added[0].__class__)
        if identity(results[-1]) == identity(added[0]):
            join_results(results[-1], added[0], lists[1:])
            added = added[1:]
    results.extend(added)


TOPICS: Final = ("topics", "partitions")
RESOURCE: Final = ("resource_type", "resource_name")
PRODUCE_PARTITIONS: Final = 200
SLICED: Final[Mapping[int, tuple[Slicing, ...]]] = {
    ApiKey.PRODUCE: (
        Slicing(
            ("topic_data", "partition_data"),
            ("responses", "partition_responses"),
            PRODUCE_PARTITIONS,
            element_bytes=3,  # a topic's name, the length of its list, and its tagged fields
        ),
    ),
    ApiKey.METADATA: (Slicing(("topics",), ("topics",), 50, names_once=True),),
    ApiKey.LIST_OFFSETS: (Slicing(TOPICS, TOPICS),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (Slicing(TOPICS, TOPICS),),
    ApiKey.OFFSET_COMMIT: (Slicing(TOPICS, TOPICS, 1000),),
    ApiKey.OFFSET_DELETE: (Slicing(TOPICS, TOPICS, 1000),),
    ApiKey.TXN_OFFSET_COMMIT: (Slicing(TOPICS, TOPICS, 500),),
    ApiKey.WRITE_TXN_MARKERS: (
        Slicing(("markers", "topics", "partition_indexes"), ("markers", "topics", "partitions")),
    ),
    ApiKey.OFFSET_FETCH: (
        Slicing(("topics", "partition_indexes"), TOPICS, names_once=True),
        Slicing(
            ("groups", "topics", "partition_indexes"),
            ("groups", "topics", "partitions"),
            names_once=True,
        ),
    ),
    ApiKey.FIND_COORDINATOR: (Slicing(("coordinator_keys",), ("coordinators",), names_once=True),),
    ApiKey.DESCRIBE_GROUPS: (Slicing(("groups",), ("groups",), 50, names_once=True),),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (Slicing(("group_ids",), ("groups",), 20, names_once=True),),
    ApiKey.DELETE_GROUPS: (Slicing(("groups_names",), ("results",), 100, names_once=True),),
    ApiKey.CREATE_TOPICS: (
        Slicing(
            ("topics", "assignments", "broker_ids"),
            ("topics",),
            20,
            is_whole=True,
            named_by=("name",),
        ),
    ),
    ApiKey.DELETE_TOPICS: (
        Slicing(("topic_names",), ("responses",), 50, named_by=("topic_names",)),
        Slicing(("topics",), ("responses",), 50, named_by=("name", "topic_id")),
    ),
    ApiKey.CREATE_PARTITIONS: (Slicing(("topics",), ("results",), 20, named_by=("name",)),),
    ApiKey.DESCRIBE_CONFIGS: (
        Slicing(
            ("resources", "configuration_keys"), ("results",), 10, names_once=True, is_whole=True
        ),
    ),
    ApiKey.ALTER_CONFIGS: (Slicing(("resources",), ("responses",), 10, named_by=RESOURCE),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        Slicing(("resources",), ("responses",), 10, named_by=RESOURCE),
    ),
    ApiKey.CREATE_ACLS: (Slicing(("creations",), ("results",), 100),),
    ApiKey.DELETE_ACLS: (Slicing(("filters",), ("filter_results",), 20),),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (
        Slicing(("dirs", "topics", "partitions"), ("results", "partitions"), names_once=True),
    ),
    ApiKey.ELECT_LEADERS: (
        Slicing(
            ("topic_partitions", "partitions"),
            ("replica_election_results", "partition_result"),
            200,
            names_once=True,
        ),
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (Slicing(TOPICS, ("responses", "partitions"), 100),),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (
        Slicing(("topics", "partition_indexes"), TOPICS, names_once=True),
    ),
    ApiKey.DESCRIBE_PRODUCERS: (
        Slicing(("topics", "partition_indexes"), TOPICS, 100, names_once=True),
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        Slicing(("transactional_ids",), ("transaction_states",), 100, names_once=True),
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: (Slicing(("entries",), ("entries",), 50),),
}
"""What is answered entry by entry: the first list that is not empty counts."""


class SliceContext(RequestContext):
    """The context of one slice of a request: its answer becomes a part of the whole one."""

    __slots__ = ("answer", "quota", "whole")

    def __init__(self, whole: RequestContext) -> None:
        super().__init__(whole.connection, whole.header, whole.received_ms)
        self.whole = whole
        self.quota = whole.quota
        self.answer: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()

    def respond(self, response: Response) -> None:
        self._check_not_ended()
        if self.amend is not None:
            self.amend(response)
        self._end(response)

    def no_response(self) -> None:
        self._check_not_ended()
        if self.close_reason:
            self.whole.close_reason = self.close_reason
        self._end(None)

    def close_connection(self, reason: str) -> None:
        self._end(None)
        self.whole.close_reason = reason

    def wait_for(self, operation: DelayedOperation | None) -> None:
        """The slice ends by itself, though its client may be gone."""

    async def answer_of(self, handler: Handler, body: Request) -> Response | None:
        """What the handler answers to the slice, now or later; None for no answer."""
        answer = handler(self, body)
        response = answer if answer is None or isinstance(answer, Response) else await answer
        if response is not None:
            self.respond(response)
        return await self.answer

    def _end(self, response: Response | None) -> None:
        self._is_ended = True
        if not self.answer.done():
            self.answer.set_result(response)


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
        """With the limits of its requests."""
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
        """From now on requests go straight to the handlers, except where these are wrapped."""
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
        except RemoteProtocolError as error:
            self._refuse_bytes(context.connection, head, error)
            return
        if not context.connection.is_closing:
            self._call(self._sliced(api, body), context, body, size)

    def _refuse_bytes(
        self, connection: Connection, frame: Buffer, error: RemoteProtocolError
    ) -> None:
        """Bad bytes close the connection; what is only too large is answered, where that can be."""
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
            result = await SliceContext(context).answer_of(handler, part)
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
            if response is not None:
                await context.respond_in_slices(response, self.slices.last_of)
        except Exception as error:
            self._fail(context, body, error)

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


FIRST_ADD_PARTITIONS_OF_BROKERS: Final = 4


def keep_to_brokers(
    apis: Apis,
    listener_name: str,
    *,
    has_rights: bool = False,
) -> None:
    """Answer these APIs, Fetch as a follower and AddPartitionsToTxn of brokers, here only.

    Listeners may be added while the broker runs: each request is looked at, however many there are
    now. Where rights are asked for, an administrator may end a transaction on any other (KIP-664).
    """

    def guard(
        is_reserved: Callable[[RequestContext, Any], bool],
    ) -> Callable[[Handler], Handler]:
        def guarded(handler: Handler) -> Handler:
            def handle(context: RequestContext, body: Any) -> Answer:
                if context.listener_name != listener_name and is_reserved(context, body):
                    name = type(body).__name__
                    logger.info("%s of a client at %s is refused", name, context.client_host)
                    if apis.on_refused_request is not None:
                        apis.on_refused_request(context)
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
            apis.wrap(key, guard(lambda context, body: True))
    apis.wrap(ApiKey.FETCH, guard(lambda context, body: is_follower(body)))
    apis.wrap(ApiKey.ADD_PARTITIONS_TO_TXN, guard(_is_of_broker))


def _is_of_broker(context: RequestContext, body: object) -> bool:
    """Whether AddPartitionsToTxn comes in a version that speaks for many producers (KIP-890)."""
    return context.api_version >= FIRST_ADD_PARTITIONS_OF_BROKERS


def is_follower(body: FetchRequest) -> bool:
    """Whether a replica fetches: its fetch offset advances the high watermark."""
    return replica_id_of(body) > CONSUMER_REPLICA_ID


def replica_id_of(body: FetchRequest) -> int:
    """The broker that follows, CONSUMER_REPLICA_ID for a consumer; v15 has it in another field."""
    state = body.replica_state
    return body.replica_id if state is None else max(state.replica_id, body.replica_id)
