"""Log records that become records of a topic, and applications that notice nothing of it."""

from __future__ import annotations

import logging
import logging.config
import multiprocessing
import threading
from collections.abc import Callable, Iterator

import pytest

from ottla import Consumer, ConsumerRecord, TopicHandler, TopicPartition
from ottla.errors import ConfigError
from ottla.runtime.free_port import free_port
from ottla.testing import InProcessBroker, wait_until

LINES = [f"line {number}" for number in range(500)]


@pytest.fixture
def app() -> Iterator[logging.Logger]:
    """A logger that nobody else has."""
    logger = logging.getLogger("test-topic-handler")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    yield logger
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
        handler.close()


@pytest.fixture
def handle(app) -> Callable[..., TopicHandler]:
    """Adds a handler to the logger."""

    def make(topic: str, servers: str, **settings: object) -> TopicHandler:
        handler = TopicHandler(topic, servers, **settings)
        app.addHandler(handler)
        return handler

    return make


def read(broker, topic: str, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    with Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        wait_until(
            lambda: found.extend(consumer.poll(100)) or len(found) >= count, f"{count} lines"
        )
    return found


def test_lines_come_in_order_with_their_times(broker, unique, app):
    """It is set up as the standard library sets up handlers, by a dictionary."""
    topic = unique("log-lines")
    handler = {
        "class": "ottla.TopicHandler",
        "topic": topic,
        "bootstrap_servers": broker.bootstrap_servers,
        "settings": {"linger.ms": 2},
        "acks": "all",
        "formatter": "line",
    }
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"line": {"format": "%(levelname)s %(message)s"}},
            "handlers": {"topic": handler},
            "loggers": {app.name: {"handlers": ["topic"], "level": "DEBUG"}},
        }
    )
    records = [app.makeRecord(app.name, logging.INFO, "", 0, line, (), None) for line in LINES]
    for record in records:
        app.handle(record)
    (made,) = app.handlers
    made.flush()

    assert (made.sent_count, made.dropped_count) == (len(LINES), 0)
    found = read(broker, topic, len(LINES))
    assert [record.value.decode() for record in found] == [f"INFO {line}" for line in LINES]
    assert [each.timestamp_ms for each in found] == [int(r.created * 1000) for r in records]


def test_lines_have_the_keys_of_a_function(broker, unique, app, handle):
    """One that fails, or gives what is no key, takes its own line only."""
    topic = unique("log-keys")
    keys = {"a": "text", "b": b"bytes", "c": None, "d": 5}
    handler = handle(topic, broker.bootstrap_servers, key=lambda record: keys[record.msg])
    logging.raiseExceptions, before = False, logging.raiseExceptions
    try:
        for line in ("a", "no key", "b", "c", "d", "a"):
            app.info(line)
    finally:
        logging.raiseExceptions = before
    handler.flush()

    found = [(record.value, record.key) for record in read(broker, topic, 4)]
    assert found == [(b"a", b"text"), (b"b", b"bytes"), (b"c", None), (b"a", b"text")]
    assert (handler.sent_count, handler.dropped_count) == (4, 1)


def test_lines_wait_for_a_broker_and_say_which_are_missing(app, handle):
    """What does not fit into the queue is counted, and its place is marked in the topic."""
    port = free_port("127.0.0.1")
    handler = handle("logs", f"127.0.0.1:{port}", queue_size=3, max_block_ms=100)
    for line in LINES[:10]:
        app.info(line)
    assert (handler.sent_count, handler.dropped_count) == (0, 7)

    with InProcessBroker(listeners=f"PLAINTEXT://127.0.0.1:{port}") as broker:
        wait_until(lambda: handler.sent_count == 3, "the broker to be found")
        app.info("and on")
        found = [record.value.decode() for record in read(broker, "logs", 5)]
    assert found == [*LINES[:3], "7 log records before this one were dropped", "and on"]


def test_formatter_that_wants_more_of_a_record_stops_nothing(app, handle):
    """The line that says how many are missing has no field of the application."""
    port = free_port("127.0.0.1")
    handler = handle("logs", f"127.0.0.1:{port}", queue_size=1, max_block_ms=100)
    formatter = logging.Formatter()
    formatter.format = lambda record: f"{record.user}: {record.getMessage()}"
    handler.setFormatter(formatter)
    for line in LINES[:4]:
        app.info(line, extra={"user": "u"})

    with InProcessBroker(listeners=f"PLAINTEXT://127.0.0.1:{port}") as broker:
        wait_until(lambda: handler.sent_count == 1, "the broker to be found")
        app.info("and on", extra={"user": "u"})
        found = [record.value.decode() for record in read(broker, "logs", 3)]
    missing = "3 log records before this one were dropped"
    assert found == ["u: line 0", missing, "u: and on"]
    assert handler.dropped_count == 3


def test_line_that_is_too_large_is_left_out(broker, unique, app, handle):
    """It can never be sent, and others do not wait behind it."""
    topic = unique("log-large")
    handler = handle(topic, broker.bootstrap_servers, max_request_size=1000)
    for line in ("before", "x" * 1000, "behind"):
        app.info(line)
    handler.flush()

    assert [record.value for record in read(broker, topic, 2)] == [b"before", b"behind"]
    assert (handler.sent_count, handler.dropped_count) == (2, 1)


def test_clients_own_log_records_are_not_sent(broker, unique, app, handle):
    """Each would be the reason of the next one; others go through the filters as usual."""
    handler = handle(unique("log-own"), broker.bootstrap_servers)
    app.info("line")
    handler.flush()
    running = [thread.name for thread in threading.enumerate()]
    own = [name for name in running if name.startswith(f"{handler.topic}-log-handler-")]

    assert len(own) == 2
    for name in own:
        assert not handler.filter(logging.makeLogRecord({"threadName": name}))
    assert handler.filter(logging.makeLogRecord({"threadName": "MainThread"}))
    handler.addFilter(lambda record: False)
    assert not handler.filter(logging.makeLogRecord({"threadName": "MainThread"}))


def test_end_of_a_program_does_not_wait_long_for_a_broker(app, handle):
    """What could not be sent by then is counted, as is what comes later."""
    handler = handle("logs", f"127.0.0.1:{free_port('127.0.0.1')}", timeout_s=0.2, max_block_ms=50)
    app.info("lost")
    handler.close()
    app.info("late")
    handler.flush()

    assert (handler.sent_count, handler.dropped_count) == (0, 2)


def test_child_that_was_forked_sends_its_own_lines(broker, unique, app, handle):
    """Servers that fork their workers set up logging before that."""
    topic = unique("log-forked")
    handler = handle(topic, broker.bootstrap_servers)
    app.info("parent")
    handler.flush()

    def work() -> None:
        app.info("child")
        handler.flush()

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    app.info("parent again")
    handler.flush()

    found = [record.value for record in read(broker, topic, 3)]
    assert found == [b"parent", b"child", b"parent again"]
    assert handler.sent_count == 2


@pytest.mark.parametrize(
    ("settings", "text"),
    [({"acks": "some"}, "acks"), ({"queue_size": 0}, "queue_size=0: must be at least 1")],
)
def test_settings_are_checked_where_logging_is_set_up(settings, text):
    """A wrong setting is an error of the caller, and not of a thread that nobody looks at."""
    with pytest.raises((ConfigError, ValueError), match=text):
        TopicHandler("logs", "127.0.0.1:9092", **settings)
