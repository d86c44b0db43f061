"""OpenTelemetry traces across topics, carried in headers of the records.

    producer = Producer("localhost:9092", interceptor_classes=[TracingProducerInterceptor])
    consumer.process(traced(handle))

The context of a span is written into the headers of a record, and found there, by the propagators
that the program has set: by default W3C Trace Context and Baggage, in the headers `traceparent`,
`tracestate` and `baggage`. The names of spans and attributes are those of OpenTelemetry's semantic
conventions for messaging and for Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, TypeAlias

from ottla.clients.consumer.consumer_record import ConsumerRecord
from ottla.clients.processing.workers import is_coroutine_function
from ottla.clients.producer.producer_interceptors import ProducerRecord
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

MAX_HEADER_BYTES: Final = 8192
"""Longer values are no context: a baggage has at most so many bytes (W3C Baggage)."""
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
    found = get_current_span(extract(headers, Context(), HeaderGetter())).get_span_context()
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
    """Finds the fields of a context in headers; of several of one name the last one counts."""

    def get(self, carrier: Pairs, key: str) -> list[str] | None:
        for name, value in reversed(carrier):
            if name == key and value is not None and len(value) <= MAX_HEADER_BYTES:
                return [value if isinstance(value, str) else bytes(value).decode(errors="replace")]
        return None

    def keys(self, carrier: Pairs) -> list[str]:
        return [name for name, _ in carrier]


class HeaderSetter(Setter[MutableSequence[tuple[str, bytes | str | None]]]):
    """Writes a field of a context, in place of one that was of no use."""

    def set(
        self, carrier: MutableSequence[tuple[str, bytes | str | None]], key: str, value: str
    ) -> None:
        carrier[:] = [*(pair for pair in carrier if pair[0] != key), (key, value.encode())]
