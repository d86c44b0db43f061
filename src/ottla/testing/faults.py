"""Scripted faults: the next answers of an API fail, are late or are cut off.

A fault stands in the broker's table of handlers, in front of the handler of its API, and only from
the first fault of that API on: a broker without faults does nothing more than it does without
this module. Requests between replicas are spared.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from itertools import chain
from typing import Any, Final

from ottla.errors import ErrorCode
from ottla.network.request_context import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.fetch import FetchRequest
from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.produce import ProduceRequest
from ottla.protocol.types import Array, Field, Int32, String
from ottla.runtime import DelayedOperation, Runtime
from ottla.runtime.io_thread import Lock
from ottla.server.api import Answer, Handler
from ottla.server.apis import Apis
from ottla.server.broker import Broker
from ottla.server.brokers_only import is_follower
from ottla.testing.waiting import LIMIT_S, wait_until

Deliver = Callable[[Response], object]

PARTITIONS: Final = ("partition_index", "partition", "index")
TOPICS: Final = ("name", "topic", "topic_name")
NAMES: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(PARTITIONS, PARTITIONS),
    **dict.fromkeys(TOPICS, TOPICS),
    **{
        name: (name,)
        for name in (
            "topic_id",
            "group_id",
            "member_id",
            "group_instance_id",
            "transactional_id",
            "producer_id",
            "key",
            "resource_type",
            "resource_name",
        )
    },
}
"""The fields of a response with the subjects of a request, and their names in the request."""

ERRORS: Final = frozenset({"error_code", "partition_error_code"})


class Faults:
    """The faults of a broker, or of all brokers of a cluster, in the order in which they strike.

    An API is named as Kafka does, `Produce`, or `PRODUCE`, or by its number. With `client_id` only
    the requests of that client are struck, with `broker_id` only those to that broker. Where
    several faults fit a request, the oldest strikes.
    """

    def __init__(self) -> None:
        self._faults: list[RequestFault] = []
        self._brokers: list[Broker] = []
        self._wrapped: set[tuple[Apis, ApiKey]] = set()

    def fail(
        self,
        api: str | ApiKey,
        error: str | ErrorCode,
        times: int = 1,
        *,
        performed: bool = False,
        client_id: str | None = None,
        broker_id: int | None = None,
    ) -> RequestFault:
        """Answer with an error, for all that is asked for, in place of doing it.

        With `performed` it is done: the client gets an error, and the records are there.
        """
        code = code_of(error)
        return self._add(Failure(code, performed, key_of(api), times, client_id, broker_id))

    def delay(
        self,
        api: str | ApiKey,
        seconds: float,
        times: int = 1,
        *,
        client_id: str | None = None,
        broker_id: int | None = None,
    ) -> RequestFault:
        """Do it at once, and answer so much later; other connections are not held up."""
        delay_ms = round(seconds * 1000)
        return self._add(Delay(delay_ms, key_of(api), times, client_id, broker_id))

    def hold(
        self,
        api: str | ApiKey,
        times: int = 1,
        *,
        client_id: str | None = None,
        broker_id: int | None = None,
    ) -> Hold:
        """Perform the request at once, and answer after `release` of the returned object.

        Other connections are not held up. `wait` returns when the requests have come.
        """
        fault = Hold(key_of(api), times, client_id, broker_id)
        self._add(fault)
        return fault

    def cut_off(
        self,
        api: str | ApiKey,
        times: int = 1,
        *,
        performed: bool = False,
        client_id: str | None = None,
        broker_id: int | None = None,
    ) -> RequestFault:
        """Close the connection in place of an answer; with `performed` after it was done."""
        return self._add(Cut(performed, key_of(api), times, client_id, broker_id))

    def clear(self) -> None:
        """Strike no more."""
        for fault in self._faults:
            fault.clear()
        self._faults.clear()

    def attach(self, broker: Broker) -> None:
        """Strike requests of this broker from now on, beside those of others."""
        self._brokers.append(broker)
        for fault in self._faults:
            self._wrap(fault.api)

    def detach(self, broker: Broker) -> None:
        """The broker has ended."""
        if broker in self._brokers:
            self._brokers.remove(broker)
            self._wrapped = {each for each in self._wrapped if each[0] is not broker.apis}

    def _add(self, fault: RequestFault) -> RequestFault:
        self._faults.append(fault)
        self._wrap(fault.api)
        return fault

    def _wrap(self, api: ApiKey) -> None:
        for broker in self._brokers:
            if (broker.apis, api) not in self._wrapped:
                self._wrapped.add((broker.apis, api))
                broker.apis.wrap(api, partial(self._around, broker, api))

    def _around(self, broker: Broker, api: ApiKey, handler: Handler) -> Handler:
        def handle(context: RequestContext, body: Any) -> Answer:
            if not self._faults or (isinstance(body, FetchRequest) and is_follower(body)):
                return handler(context, body)
            for fault in self._faults:
                if fault.strikes(api, broker.broker_id, context):
                    return fault.handle(handler, context, body, broker.runtime)
            return handler(context, body)

        return handle


class HeldContext(RequestContext):
    """A request whose answer goes to the fault, not to the client."""

    __slots__ = ("_deliver",)

    def __init__(self, context: RequestContext, deliver: Deliver) -> None:
        super().__init__(context.connection, context.header, context.received_ms)
        self._deliver = deliver

    def respond(self, response: Response) -> None:
        self._check_not_ended()
        self._is_ended = True
        self._deliver(response)

    def await_acknowledgement(self, operation: DelayedOperation) -> None:
        self.wait_for(operation)


class RequestFault(ABC):
    """The fate of the next `left` requests of an API."""

    def __init__(
        self, api: ApiKey, times: int, client_id: str | None, broker_id: int | None
    ) -> None:
        self.api = api
        self.left = times
        """How many requests it is still to strike."""
        self.hits = 0
        """How many it has struck."""
        self._client_id = client_id
        self._broker_id = broker_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.api.name}, hits={self.hits}, left={self.left})"

    def wait(self, limit: float = LIMIT_S) -> None:
        """Wait until it has struck as often as it was to, or is cleared."""
        what = f"{self.left + self.hits} requests of {self.api.name} to be struck"
        wait_until(lambda: self.left <= 0, what, limit, seen=lambda: f"{self.hits} were")

    def clear(self) -> None:
        """Strike no more."""
        self.left = 0

    def strikes(self, api: ApiKey, broker_id: int, context: RequestContext) -> bool:
        """Whether this request is one of those."""
        return (
            self.left > 0
            and self.api is api
            and self._broker_id in (None, broker_id)
            and self._client_id in (None, context.client_id)
        )

    def count(self) -> None:
        """A request is struck."""
        self.hits += 1
        self.left -= 1

    @abstractmethod
    def handle(
        self, handler: Handler, context: RequestContext, body: Request, runtime: Runtime
    ) -> Answer:
        """In place of the handler."""


class Failure(RequestFault):
    """The answer is an error; with `performed` the request has been done all the same."""

    def __init__(self, error: ErrorCode, performed: bool, *which: Any) -> None:
        super().__init__(*which)
        self.error = error
        self.performed = performed

    def handle(
        self, handler: Handler, context: RequestContext, body: Request, runtime: Runtime
    ) -> Answer:
        if isinstance(body, FetchRequest) and body.session_epoch > 0:
            # It names only changed partitions: the client is made to name all, and is struck then.
            return refusal(body, context.api_version, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self.count()
        if isinstance(body, MetadataRequest):  # the brokers are to stay known
            return perform(handler, context, body, partial(self._deliver_metadata, context))
        if self.performed:
            answer = refusal(body, context.api_version, self.error)
            return perform(handler, context, body, lambda _: context.respond(answer))
        if isinstance(body, ProduceRequest) and body.acks == 0:
            context.no_response()
            return None
        return refusal(body, context.api_version, self.error)

    def _deliver_metadata(self, context: RequestContext, response: Response) -> None:
        assert isinstance(response, MetadataResponse)
        for topic in response.topics:
            topic.error_code = int(self.error)
            topic.partitions = []
        context.respond(response)


class Delay(RequestFault):
    """The request is done at once, and answered later."""

    def __init__(self, delay_ms: int, *which: Any) -> None:
        super().__init__(*which)
        self.delay_ms = delay_ms

    def handle(
        self, handler: Handler, context: RequestContext, body: Request, runtime: Runtime
    ) -> Answer:
        self.count()

        def deliver(response: Response) -> None:
            answer = partial(context.respond, response)
            runtime.scheduler.call_later(self.delay_ms, answer)

        return perform(handler, context, body, deliver)


class Hold(RequestFault):
    """The request is done at once, and answered when the test says so."""

    def __init__(self, *which: Any) -> None:
        super().__init__(*which)
        self._lock = Lock()
        self._is_released = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, Callable[[], object]]] = []

    def handle(
        self, handler: Handler, context: RequestContext, body: Request, runtime: Runtime
    ) -> Answer:
        self.count()
        return perform(handler, context, body, partial(self._deliver, context))

    def _deliver(self, context: RequestContext, response: Response) -> None:
        with self._lock:
            if not self._is_released:
                answer = partial(context.respond, response)
                self._waiting.append((asyncio.get_running_loop(), answer))
                return
        context.respond(response)

    def release(self) -> None:
        """Have the answers go out, those that are held and those that come."""
        with self._lock:
            self._is_released = True
            released, self._waiting = self._waiting, []
        for loop, answer in released:
            if not loop.is_closed():  # else its broker has ended
                loop.call_soon_threadsafe(answer)

    def clear(self) -> None:
        """Strike no more, and hold nothing back."""
        super().clear()
        self.release()


class Cut(RequestFault):
    """The connection ends in place of an answer."""

    def __init__(self, performed: bool, *which: Any) -> None:
        super().__init__(*which)
        self.performed = performed

    def handle(
        self, handler: Handler, context: RequestContext, body: Request, runtime: Runtime
    ) -> Answer:
        self.count()
        reason = f"a test cut off the answer to {self.api.name}"
        if self.performed:
            return perform(handler, context, body, lambda _: context.close_connection(reason))
        context.close_connection(reason)
        return None


def key_of(api: str | ApiKey) -> ApiKey:
    """The API of a name as `Produce`, `ListOffsets` or `LIST_OFFSETS`."""
    if isinstance(api, ApiKey):
        return api
    for key in ApiKey:
        if key.name.replace("_", "") == api.replace("_", "").upper():
            return key
    raise ValueError(f"api={api!r}: no API of Kafka has this name, as Produce or ListOffsets")


def code_of(error: str | ErrorCode) -> ErrorCode:
    """The error of a name as `NOT_LEADER_OR_FOLLOWER`."""
    if isinstance(error, ErrorCode):
        return error
    if error not in ErrorCode.__members__:
        raise ValueError(f"error={error!r}: no error of Kafka has this name, as NOT_CONTROLLER")
    return ErrorCode[error]


def perform(
    handler: Handler, context: RequestContext, body: Request, deliver: Deliver
) -> Coroutine[Any, Any, None] | None:
    """Do the request, and give its answer to `deliver` whenever it comes."""
    held = HeldContext(context, deliver)
    answer = handler(held, body)
    if isinstance(answer, Response):
        held.respond(answer)
    elif answer is not None:
        return _await(answer, held)
    return None


async def _await(answer: Coroutine[Any, Any, Response | None], held: HeldContext) -> None:
    response = await answer
    if response is not None:
        held.respond(response)


def refusal(request: Request, version: int, error: ErrorCode) -> Response:
    """The answer of this version to the request, with the error wherever it has a place for one.

    The error for the whole of it is set only where the request names nothing in particular.
    """
    response = type(request).response_class()
    if not _refuse_parts(request, response, version, error):
        _set_error(response, version, error)
    return response


def _refuse_parts(request: Struct, response: Struct, version: int, error: ErrorCode) -> bool:
    """Fill the lists of the response as the request lists them; whether there was anything."""
    asked = [each for each in _lists(request, version) if getattr(request, each.name)]
    answered = [each for each in _lists(response, version) if _has_error(each.type.element)]
    for wanted, given in zip(answered, asked, strict=False):
        element = wanted.type.element
        items = [
            _refused_part(element, item, version, error) for item in getattr(request, given.name)
        ]
        setattr(response, wanted.name, items)
    return bool(answered and asked)


def _refused_part(element: type[Struct], asked: Any, version: int, error: ErrorCode) -> Struct:
    part = element()
    for field in element.fields:
        names: Iterable[str] = NAMES.get(field.name, ())
        if isinstance(asked, Struct):
            name = next((each for each in names if hasattr(asked, each)), None)
            if name is not None:
                setattr(part, field.name, getattr(asked, name))
        elif names and field.type is (String if isinstance(asked, str) else Int32):
            setattr(part, field.name, asked)
            break
    _set_error(part, version, error)
    if isinstance(asked, Struct):
        _refuse_parts(asked, part, version, error)
    return part


def _set_error(part: Struct, version: int, error: ErrorCode) -> None:
    for field in type(part).fields:
        if field.name in ERRORS and version in field.versions:
            setattr(part, field.name, int(error))


def _lists(part: Struct, version: int) -> list[Field]:
    return [
        field
        for field in type(part).fields
        if isinstance(field.type, Array) and version in field.versions
    ]


def _has_error(element: Any) -> bool:
    """Whether parts of this kind, or parts of theirs, can be refused on their own."""
    if not (isinstance(element, type) and issubclass(element, Struct)):
        return False
    inner = (field.type.element for field in element.fields if isinstance(field.type, Array))
    own = (field.name in ERRORS for field in element.fields)
    return any(chain(own, map(_has_error, inner)))
