"""Dead letters go back to the topics that they are from."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla import Consumer, Producer
from ottla.clients.consumer.consumer_record import ConsumerRecord, TimestampType
from ottla.connect.tolerance import (
    PASSES,
    DeadLetterQueue,
    Operation,
    RecordFailure,
    group_of,
    headers_of,
    redrive,
    target_of,
)

FROM = "__connect.errors.topic"


def run(broker, topic=None):
    servers = broker.bootstrap_servers
    settings = {"group_id": group_of("dead"), "enable_auto_commit": False}
    with (
        Consumer(servers, auto_offset_reset="earliest", **settings) as consumer,
        Producer(servers) as producer,
    ):
        return redrive(consumer, producer, "dead", topic)


def bury(broker, *letters):
    with Producer(broker.bootstrap_servers) as producer:
        for value, headers in letters:
            producer.send("dead", value, key=b"k", headers=headers)


def test_letters_go_back_once(ottla_fresh_broker):
    """Key, value and own headers as they were; what failed is not repeated."""
    broker = ottla_fresh_broker
    bury(broker, (b"1", {FROM: b"orders", "__connect.errors.stage": b"TASK_PUT", "h": b"v"}))

    assert run(broker) == (1, 0)
    assert run(broker) == (0, 0)
    (record,) = broker.records("orders")
    assert (record.key, record.value, dict(record.headers)) == (
        b"k",
        b"1",
        {"h": b"v", PASSES: b"1"},
    )


def test_passes_are_counted(ottla_fresh_broker):
    """A record that comes back again and again says so."""
    bury(ottla_fresh_broker, (b"1", {FROM: b"orders", PASSES: b"4"}))
    run(ottla_fresh_broker)

    assert dict(ottla_fresh_broker.records("orders")[0].headers) == {PASSES: b"5"}


def test_letters_that_do_not_say_where_they_are_from(ottla_fresh_broker):
    """They stay, and nothing counts as sent, until a topic is given for them."""
    bury(ottla_fresh_broker, (b"1", {}))

    assert run(ottla_fresh_broker) == (0, 1)
    assert run(ottla_fresh_broker, "orders") == (1, 0)
    assert [record.value for record in ottla_fresh_broker.records("orders")] == [b"1"]


def letter(*headers):
    """A record that a sink could not handle, with these headers, as its queue keeps it."""
    sent = []

    class Queue:
        def send(self, topic, value, *, key, headers, timestamp_ms, on_delivery):
            sent.append(
                ConsumerRecord(topic, 0, 0, 1, TimestampType.CREATE_TIME, key, value, headers)
            )

    config = SimpleNamespace(
        errors_deadletterqueue_topic_name="dead",
        errors_deadletterqueue_context_headers_enable=True,
    )
    record = ConsumerRecord("orders", 0, 7, 1, TimestampType.CREATE_TIME, b"k", b"v", headers)
    operation = Operation("VALUE_CONVERTER", "JsonConverter", record)
    DeadLetterQueue(Queue(), config, ("sink", 0))(RecordFailure(operation, ValueError("bad"), 1))
    return sent[0]


def test_author_of_a_record_does_not_choose_where_it_is_sent():
    """The tool writes with the operator's rights: only what the queue itself has written counts."""
    found = letter((FROM, b"payments-approved"), ("h", b"v"))

    assert target_of(found) == "orders"
    assert [value for name, value in found.headers if name == FROM] == [b"orders"]


def test_last_header_counts_in_queues_that_others_have_written():
    """Kafka's own queues append their headers to those that the record had."""
    found = letter()._replace(headers=[(FROM, b"payments-approved"), (FROM, b"orders")])

    assert target_of(found) == "orders"


@pytest.mark.parametrize("value", [b"__consumer_offsets", b"__transaction_state", b"\xff\xfe"])
def test_letter_is_sent_to_no_internal_topic(value):
    """Nor to one whose name is no text."""
    assert target_of(letter()._replace(headers=[(FROM, value)])) is None


@pytest.mark.parametrize("value", [b"x", b"", None, b"-3", b"9" * 5000, "²".encode()])
def test_count_that_is_no_number_counts_as_none(value):
    """A record of any author does not end the tool."""
    assert headers_of(letter()._replace(headers=[(PASSES, value)])) == [(PASSES, b"1")]
