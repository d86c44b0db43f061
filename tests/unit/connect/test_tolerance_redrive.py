"""Dead letters go back to the topics that they are from."""

from __future__ import annotations

from ottla import Consumer, Producer
from ottla.connect.tolerance import PASSES, group_of, redrive

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
