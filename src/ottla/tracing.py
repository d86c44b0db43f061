"""OpenTelemetry traces across topics, carried in headers of the records.

    producer = Producer("localhost:9092", interceptor_classes=[TracingProducerInterceptor])
    consumer.process(traced(handle))

The context of a span is written into the headers of a record, and found there, by the propagators
that the program has set: by default W3C Trace Context and Baggage, in the headers `traceparent`,
`tracestate` and `baggage`. The names of spans and attributes are those of OpenTelemetry's semantic
conventions for messaging and for Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, TypeAlias

from ottla.clients.processing.workers import is_coroutine_function
from ottla.clients.producer.producer_interceptors import ProducerRecord
from ottla.record.consumer_record import ConsumerRecord
from ottla.version import __version__

try:
    from opentelemetry.context import Context
    from opentelemetry.propagate import extract, inject
    from opentelemetry.propagators.textmap import Getter, Setter
    from opentelemetry.trace import (
        Link,
        Span,
        SpanKind,
        Tracer,
        TracerProvider,
        get_current_span,
        get_tracer,
        set_span_in_context,
    )
except ImportError as missing:
    text = f"ottla.tracing needs OpenTelemetry's API: pip install 'ottla[tracing]' ({missing})"
    raise ImportError(text, name=missing.name) from None

__all__ = ["TracingConsumerInterceptor", "TracingProducerInterceptor", "processing", "traced"]

Pairs: TypeAlias = Sequence[tuple[str, bytes | str | None]]

BAGGAGE: Final = "baggage"
MAX_FIELD_BYTES: Final = 512
"""Longer values are no context: a tracestate has at most so many bytes (W3C Trace Context)."""
MAX_BAGGAGE_BYTES: Final = 8192
MAX_BAGGAGE_MEMBERS: Final = 64
"""The most members that have to be passed on (W3C Baggage)."""
MAX_MEMBER_BYTES: Final = 4096
MAX_TRACESTATE_MEMBERS: Final = 32
MAX_LINKS: Final = 128
"""The limit of links to a span, unless OTEL_SPAN_LINK_COUNT_LIMIT says otherwise."""


class TracingProducerInterceptor:
    """Begins a span for each record, and writes its context into the headers.

    The span is of the type `create`: the record is handed to the producer, and a child of the
    span that is current. It ends before the record is sent. A record that has a context already
    keeps it, and gets no span.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        """The global provider is used where none is given."""
        self._tracer = tracer_of(tracer_provider)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record with a context in its headers."""
        given = record.headers
        pairs = list(given.items() if isinstance(given, Mapping) else given)
        record = record._replace(headers=pairs)
        if not are_pairs(pairs) or link_to(pairs):
            return record  # it is refused by the producer, or has a context
        attributes = attributes_of("send", "create", record)
        if record.partition is not None:
            attributes["messaging.destination.partition.id"] = str(record.partition)
        span = self._tracer.start_span(
            f"send {record.topic}", kind=SpanKind.PRODUCER, attributes=attributes
        )
        inject(pairs, set_span_in_context(span), HeaderSetter())
        span.end()
        return record


class TracingConsumerInterceptor:
    """Notes each poll that has returned records as a span, with links to those of their senders.

    What is done with a record is a span of its own only with `processing` or `traced`.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        """The global provider is used where none is given."""
        self._tracer = tracer_of(tracer_provider)

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """The same records."""
        if not records:
            return records
        attributes: dict[str, Any] = {
            "messaging.system": "kafka",
            "messaging.operation.name": "poll",
            "messaging.operation.type": "receive",
            "messaging.batch.message_count": len(records),
        }
        name, topics = "poll", {record.topic for record in records}
        if len(topics) == 1:
            attributes["messaging.destination.name"] = topic = topics.pop()
            name = f"poll {topic}"
        links = [link for record in records[:MAX_LINKS] for link in link_to(record.headers)]
        self._tracer.start_span(
            name, kind=SpanKind.CLIENT, links=links, attributes=attributes
        ).end()
        return records


@contextmanager
def processing(
    record: ConsumerRecord, *, tracer_provider: TracerProvider | None = None
) -> Iterator[Span]:
    """The work on a record: a span that is current meanwhile, and a child of the sender's.

    An exception that leaves it is noted in the span, whose status is an error then.
    """
    attributes = attributes_of("process", "process", record)
    attributes["messaging.destination.partition.id"] = str(record.partition)
    attributes["messaging.kafka.offset"] = record.offset
    with tracer_of(tracer_provider).start_as_current_span(
        f"process {record.topic}",
        context_of(record.headers),
        kind=SpanKind.CONSUMER,
        links=link_to(record.headers),
        attributes=attributes,
    ) as span:
        try:
            yield span
        except Exception as error:
            span.set_attribute("error.type", type(error).__qualname__)
            raise


def traced(
    handler: Callable[[ConsumerRecord], Any], *, tracer_provider: TracerProvider | None = None
) -> Callable[[ConsumerRecord], Any]:
    """The handler for `process`, a function or a coroutine function, with each call in a span."""

    @wraps(handler, updated=())
    def work(record: ConsumerRecord) -> Any:
        with processing(record, tracer_provider=tracer_provider):
            return handler(record)

    @wraps(handler, updated=())
    async def work_async(record: ConsumerRecord) -> Any:
        with processing(record, tracer_provider=tracer_provider):
            return await handler(record)

    return work_async if is_coroutine_function(handler) else work


def context_of(headers: Pairs) -> Context:
    """The current context with what the headers add to it; what is no context is passed over."""
    return extract(headers, getter=HeaderGetter())


def link_to(headers: Pairs) -> list[Link]:
    """A link to the span whose context the headers have, if they have one."""
    found = get_current_span(extract(headers, Context(), LinkGetter())).get_span_context()
    return [Link(found)] if found.is_valid else []


def attributes_of(
    name: str, operation_type: str, record: ProducerRecord | ConsumerRecord
) -> dict[str, Any]:
    """The attributes of a span that is about one record."""
    attributes: dict[str, Any] = {
        "messaging.system": "kafka",
        "messaging.operation.name": name,
        "messaging.operation.type": operation_type,
        "messaging.destination.name": record.topic,
    }
    if isinstance(record.key, str):  # bytes have no text that is certain
        attributes["messaging.kafka.message.key"] = record.key
    if record.value is None:
        attributes["messaging.kafka.message.tombstone"] = True
    return attributes


def tracer_of(provider: TracerProvider | None) -> Tracer:
    return get_tracer("ottla", __version__, provider)


def are_pairs(headers: Iterable[Any]) -> bool:
    return all(isinstance(each, (tuple, list)) and len(each) == 2 for each in headers)


class HeaderGetter(Getter[Pairs]):
    """Finds the fields of a context in headers; of several of one name the last one counts.

    Anybody may write headers. Propagators get short and well-formed ones only, which they read in
    little time and without a line in the log.
    """

    def get(self, carrier: Pairs, key: str) -> list[str] | None:
        for name, value in reversed(carrier):
            if name == key and value is not None:
                text = READERS.get(key, field_of)(text_of(value))
                return [text] if text else None
        return None

    def keys(self, carrier: Pairs) -> list[str]:
        return [name for name, _ in carrier]


class LinkGetter(HeaderGetter):
    """Finds the fields that a link has, which are those of a span: no baggage."""

    def get(self, carrier: Pairs, key: str) -> list[str] | None:
        return None if key == BAGGAGE else super().get(carrier, key)


def text_of(value: object) -> str:
    """The text of a header; nothing if it is longer than any field of a context."""
    if (
        not isinstance(value, str | bytes | bytearray | memoryview)
        or len(value) > MAX_BAGGAGE_BYTES
    ):
        return ""
    return value if isinstance(value, str) else bytes(value).decode("ascii", "replace")


def field_of(text: str) -> str:
    """A field of any propagator: short, of printable ASCII, and without a run of blanks."""
    is_good = len(text) <= MAX_FIELD_BYTES and text.isascii() and text.isprintable()
    return text if is_good and "  " not in text else ""


def traceparent_of(text: str) -> str:
    return text if TRACEPARENT.fullmatch(field_of(text)) else ""


def tracestate_of(text: str) -> str:
    """All of its members, or nothing: a part would be the state of another trace."""
    text = field_of(text)
    members = text.split(",")
    is_good = len(members) <= MAX_TRACESTATE_MEMBERS and all(
        TRACESTATE_MEMBER.fullmatch(member.strip()) for member in members
    )
    return text if is_good else ""


def baggage_of(text: str) -> str:
    """The first members that are well-formed."""
    members = (member.strip(" \t") for member in text.split(",", MAX_BAGGAGE_MEMBERS))
    good = [
        member
        for member in members
        if len(member) <= MAX_MEMBER_BYTES and BAGGAGE_MEMBER.fullmatch(member)
    ]
    return ",".join(good[:MAX_BAGGAGE_MEMBERS])


TRACEPARENT: Final = re.compile("(?!ff)[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
TRACESTATE_MEMBER: Final = re.compile(
    r"(?:[a-z][_0-9a-z*/-]{0,255}|[a-z0-9][_0-9a-z*/-]{0,240}@[a-z][_0-9a-z*/-]{0,13})"
    r"=[ -+\--<>-~]{0,255}[!-+\--<>-~]|"
)
_TOKEN: Final = r"[!#-'*+.0-9A-Z^-z|~-]+"
_EQUALS_VALUE: Final = r"[ \t]?=[ \t]?[!#-+\--:<-\[\]-~]*"
BAGGAGE_MEMBER: Final = re.compile(
    f"{_TOKEN}{_EQUALS_VALUE}(?:[ \\t]?;[ \\t]?{_TOKEN}(?:{_EQUALS_VALUE})?)*"
)
READERS: Final[Mapping[str, Callable[[str], str]]] = {
    "traceparent": traceparent_of,
    "tracestate": tracestate_of,
    BAGGAGE: baggage_of,
}
"""How a field's value is read, by its name; others belong to propagators other than W3C's."""


class HeaderSetter(Setter[MutableSequence[tuple[str, bytes | str | None]]]):
    """Writes a field of a context, in place of one that was of no use."""

    def set(
        self, carrier: MutableSequence[tuple[str, bytes | str | None]], key: str, value: str
    ) -> None:
        carrier[:] = [*(pair for pair in carrier if pair[0] != key), (key, value.encode())]
