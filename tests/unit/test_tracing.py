"""Traces across topics: the spans, the headers, and the headers of others."""

from __future__ import annotations

import asyncio
import sys

import pytest
from opentelemetry.baggage import get_all
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from ottla import Consumer, ConsumerRecord, Producer, aio
from ottla.clients.producer.producer_interceptors import ProducerRecord
from ottla.record.consumer_record import TimestampType
from ottla.testing import InProcessBroker
from ottla.tracing import (
    HeaderGetter,
    LinkGetter,
    TracingConsumerInterceptor,
    TracingProducerInterceptor,
    context_of,
    link_to,
    processing,
    traced,
)

CONTEXT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C
EARLIEST = {"auto_offset_reset": "earliest"}


class Traces:
    """A provider, and the spans that have ended with it."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.sender = TracingProducerInterceptor(self.provider)

    def one(self, name):
        """The only span of that name."""
        (span,) = (each for each in self._exporter.get_finished_spans() if each.name == name)
        return span

    @property
    def names(self):
        return sorted(each.name for each in self._exporter.get_finished_spans())


@pytest.fixture
def traces():
    return Traces()


@pytest.fixture(scope="module")
def servers():
    with InProcessBroker() as broker:
        yield broker.bootstrap_servers


def record_with(*headers, **fields):
    record = ConsumerRecord("pages", 3, 42, 0, TimestampType.CREATE_TIME, None, b"v", headers)
    return record._replace(**fields)


def is_child(child, parent):
    return (child.context.trace_id, child.parent.span_id) == (
        parent.context.trace_id,
        parent.context.span_id,
    )


def test_handler_of_process_goes_on_with_the_trace(servers, traces):
    """The span of the handler is a child of the one of the send, which is one of the caller's."""
    with (
        traces.provider.get_tracer("shop").start_as_current_span("checkout"),
        Producer(servers, interceptor_classes=[traces.sender]) as producer,
    ):
        producer.send("orders", "3 apples", key="ada").result(timeout=10)
    with Consumer(servers, group_id="g", topics=["orders"], **EARLIEST) as consumer:
        handler = traced(lambda record: consumer.stop(), tracer_provider=traces.provider)
        consumer.process(handler)

    sent, processed = traces.one("send orders"), traces.one("process orders")
    assert is_child(sent, traces.one("checkout"))
    assert is_child(processed, sent)
    assert [link.context.span_id for link in processed.links] == [sent.context.span_id]


def test_trace_goes_on_with_asyncio(servers, traces):
    """A producer, a poll and a coroutine as handler, on one loop."""

    async def run():
        async with aio.Producer(servers, interceptor_classes=[traces.sender]) as producer:
            await producer.send_and_wait("visits", "v", headers={"kept": "yes"})
        async with aio.Consumer(
            servers,
            group_id="a",
            topics=["visits"],
            interceptor_classes=[TracingConsumerInterceptor(traces.provider)],
            **EARLIEST,
        ) as consumer:
            record = await anext(aiter(consumer))

            async def visit(record):
                assert dict(record.headers)["kept"] == b"yes"

            await traced(visit, tracer_provider=traces.provider)(record)

    asyncio.run(run())
    sent, polled = traces.one("send visits"), traces.one("poll visits")
    assert is_child(traces.one("process visits"), sent)
    assert (polled.kind, polled.parent) == (SpanKind.CLIENT, None)
    assert [link.context.trace_id for link in polled.links] == [sent.context.trace_id]


def test_send_has_the_attributes_of_the_conventions(traces):
    """As far as they are known before a record is sent."""
    record = traces.sender.on_send(ProducerRecord("pages", None, "/home", partition=3))
    span = traces.one("send pages")

    assert dict(span.attributes) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "create",
        "messaging.destination.name": "pages",
        "messaging.destination.partition.id": "3",
        "messaging.kafka.message.key": "/home",
        "messaging.kafka.message.tombstone": True,
    }
    trace_id, span_id, _, flags, *_ = span.context
    value = b"00-%032x-%016x-%02x" % (trace_id, span_id, flags)
    assert record.headers == [("traceparent", value)]


def test_work_on_a_record_has_its_place(traces):
    """Partition and offset find the record again; a key of bytes has no certain text."""
    with processing(record_with(key=b"k"), tracer_provider=traces.provider):
        pass
    span = traces.one("process pages")

    assert (span.kind, span.status.status_code) == (SpanKind.CONSUMER, StatusCode.UNSET)
    assert dict(span.attributes) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "pages",
        "messaging.destination.partition.id": "3",
        "messaging.kafka.offset": 42,
    }


def test_failure_of_a_handler_is_in_its_span(traces):
    """The exception goes on its way."""

    def fail(record):
        raise LookupError("no such customer")

    with pytest.raises(LookupError):
        traced(fail, tracer_provider=traces.provider)(record_with())

    span = traces.one("process pages")
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "LookupError"


def test_record_with_a_context_keeps_it(traces):
    """So do copies of records, with the headers as they were: no span says that they are new."""
    headers = {"traceparent": CONTEXT, "other": None}

    assert traces.sender.on_send(ProducerRecord("copy", headers=headers)).headers == [
        *headers.items()
    ]
    assert traces.names == []


BAD = [
    b"",
    None,
    b"\xff\xfe\x00",
    b"00-zz-b7ad6b7169203331-01",
    b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01",
    b"ff" + CONTEXT[2:],
    CONTEXT + b" " * 10_000,
    b" " + CONTEXT,
    CONTEXT + b"\n",
    CONTEXT.upper(),
    7,
]


@pytest.mark.parametrize("value", BAD)
def test_headers_of_others_that_are_no_context_are_passed_over(traces, value):
    """The work begins a trace of its own; a record that is sent gets a context in their place."""
    with processing(record_with(("traceparent", value)), tracer_provider=traces.provider):
        pass
    sent = traces.sender.on_send(ProducerRecord("pages", headers=[("traceparent", value)]))

    assert traces.one("process pages").parent is None
    ((name, context),) = sent.headers
    assert (name, len(context)) == ("traceparent", len(CONTEXT))


def context_with(*headers):
    return context_of((("traceparent", CONTEXT), *headers))


@pytest.mark.parametrize(
    "state",
    [
        b"a=1\nERROR forged",
        b"a=1,no member",
        b"a=" + b" " * 300 + b"b",
        b"a=1" + b"," * 600,
        b",".join(b"a%d=1" % number for number in range(33)),
        "a=\u00e9",
    ],
)
def test_bad_tracestate_is_dropped_and_not_logged(state, caplog):
    """As a whole, and the trace goes on without it; a line of the log could be forged."""
    span = get_current_span(context_with(("tracestate", state))).get_span_context()
    assert (span.trace_id, dict(span.trace_state)) == (TRACE_ID, {})
    assert caplog.messages == []


def test_good_tracestate_is_kept():
    """With blanks around its members, and in values."""
    headers = ("tracestate", b"rojo=00f067, 1t@vendor=a b")
    span = get_current_span(context_with(headers)).get_span_context()
    assert dict(span.trace_state) == {"rojo": "00f067", "1t@vendor": "a b"}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"a=1,b = 2;p;q=3 ,c=%20", {"a": "1", "b": "2;p;q=3", "c": ""}),
        (b"a=1,bad\nmember,\xff=2, = ,d=4", {"a": "1", "d": "4"}),
        (b"a" + b" " * 8180 + b"b", {}),
        (b",".join(b"k%d=v" % n for n in range(999)), {f"k{n}": "v" for n in range(64)}),
        (b"a=" + b"1" * 9000, {}),
        (b"a=" + b"1" * 4095 + b",b=2", {"b": "2"}),
    ],
)
def test_baggage_has_its_good_members_and_nothing_is_logged(value, found, caplog):
    """The propagator would log each bad one as it is, and take 80 ms for a run of blanks."""
    assert dict(get_all(context_with(("baggage", value)))) == found
    assert caplog.messages == []


def test_no_propagator_sees_what_costs_it_time_and_links_have_no_baggage():
    """The fields that are handed over: short, without runs of blanks, for other propagators too."""
    getter = HeaderGetter()
    for bad in (b"a" + b" " * 8180 + b"b", b"x" * 513, b"a\nb", b"a  b", b"\xff"):
        assert getter.get([("b3", bad), ("baggage", bad)], "b3") is None
        assert getter.get([("baggage", bad)], "baggage") is None
    assert getter.get([("b3", b"80f1-05e3-1")], "b3") == ["80f1-05e3-1"]
    assert LinkGetter().get([("baggage", b"a=1")], "baggage") is None
    assert LinkGetter().get([("traceparent", CONTEXT)], "traceparent") == [CONTEXT.decode()]
    (link,) = link_to((("traceparent", CONTEXT), ("baggage", b"a=1")))
    assert link.context.trace_id == TRACE_ID


def test_last_of_several_contexts_counts(traces):
    """As with the headers of Kafka's own clients."""
    headers = (("traceparent", b"00-nothing"), ("traceparent", CONTEXT))
    with processing(record_with(*headers), tracer_provider=traces.provider):
        pass

    assert traces.one("process pages").context.trace_id == TRACE_ID


@pytest.mark.parametrize("headers", [[7], ["ab"], [("only a name",)]])
def test_what_are_no_headers_is_left_to_the_producer(traces, headers):
    """It says what is wrong with them."""
    assert traces.sender.on_send(ProducerRecord("pages", headers=iter(headers))).headers == headers
    assert traces.names == []


def test_poll_of_several_topics_names_none(traces):
    """It counts the records; a poll that has returned none is no span."""
    interceptor = TracingConsumerInterceptor(traces.provider)
    records = [record_with(("traceparent", CONTEXT)), record_with(topic="visits")]

    assert interceptor.on_consume([]) == []
    assert interceptor.on_consume(records) is records
    span = traces.one("poll")
    assert span.attributes["messaging.batch.message_count"] == 2
    assert "messaging.destination.name" not in span.attributes
    assert [link.context.trace_id for link in span.links] == [TRACE_ID]


def test_missing_package_says_what_to_install(monkeypatch):
    """The error names the extra."""
    monkeypatch.setitem(sys.modules, "opentelemetry.context", None)
    monkeypatch.delitem(sys.modules, "ottla.tracing")

    with pytest.raises(ImportError, match=r"pip install 'ottla\[tracing\]'"):
        __import__("ottla.tracing")
