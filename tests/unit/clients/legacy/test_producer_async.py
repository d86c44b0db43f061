"""The queue of an async producer: when batches are sent, what is refused, what handlers see."""

from __future__ import annotations

import logging
import threading

import pytest
from virtual_thread import virtual_threads

from ottla.clients.legacy import CallbackHandler, QueueClosedError, QueueFullError, QueueItem
from ottla.clients.legacy.producer import AsyncProducer
from ottla.config.legacy_config import LegacyProducerConfig
from ottla.runtime.io_thread import stack_of
from ottla.testing import wait_until

LIMIT_S = 60


def item(data: object) -> QueueItem:
    return QueueItem(data, "pages", 0)


def config(**settings: object) -> LegacyProducerConfig:
    return LegacyProducerConfig.parse({"broker.list": "0:localhost:9092", **settings})


class Handler:
    """Keeps the batches; while `gate` is closed it does not finish one."""

    def __init__(self) -> None:
        self.batches: list[list[object]] = []
        self.changed = threading.Condition()
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, events) -> None:
        with self.changed:
            self.batches.append([event.data for event in events])
            self.changed.notify_all()
        assert self.gate.wait(LIMIT_S)

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.batches) >= count, LIMIT_S)


class Recorder(CallbackHandler):
    """Notes every call, doubles what is dequeued, and adds a last event."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def before_enqueue(self, item):
        self.calls.append("before_enqueue")
        return item._replace(data=item.data.upper())

    def after_enqueue(self, item, added):
        self.calls.append(f"after_enqueue {added}")

    def after_dequeuing_existing_data(self, item):
        return () if item is None else (item, item)

    def before_sending_data(self, items):
        self.calls.append(f"before_sending_data {len(items)}")
        return items

    def last_batch_before_close(self):
        self.calls.append("last_batch_before_close")
        return (item("last"),)

    def close(self):
        self.calls.append("close")


def test_a_batch_is_sent_when_there_are_enough():
    """batch.size events go together, without waiting for queue.time."""
    handler = Handler()
    producer = AsyncProducer(
        config(**{"batch.size": 3, "queue.time": 3_600_000}), handler, CallbackHandler()
    )
    for number in range(7):
        producer.send(item(number))
    handler.wait_for(2)
    assert handler.batches == [[0, 1, 2], [3, 4, 5]]

    producer.close()

    assert handler.batches[2:] == [[6]]


def test_a_batch_is_sent_when_it_has_waited_long_enough():
    """queue.time is up, however few events there are."""
    handler = Handler()
    producer = AsyncProducer(config(**{"queue.time": 5}), handler, CallbackHandler())
    producer.send(item("a"))

    handler.wait_for(1)
    producer.close()

    assert handler.batches == [["a"]]


def test_a_full_queue_refuses_at_once_or_after_a_while_or_waits():
    """queue.enqueueTimeout.ms: 0, a number, and a negative one."""
    for timeout_ms in (0, 5, -1):
        handler = Handler()
        handler.gate.clear()
        settings = {"queue.size": 2, "batch.size": 1, "queue.enqueueTimeout.ms": timeout_ms}
        producer = AsyncProducer(config(**settings), handler, CallbackHandler())
        producer.send(item(0))
        handler.wait_for(1)  # it is being sent; two more fill the queue
        producer.send(item(1))
        producer.send(item(2))
        if timeout_ms >= 0:
            with pytest.raises(QueueFullError, match=r"queue\.size"):
                producer.send(item(3))
            handler.gate.set()
        else:
            threading.Timer(0.01, handler.gate.set).start()
            producer.send(item(3))
        producer.close()

        handled = [data for batch in handler.batches for data in batch]
        assert handled == [0, 1, 2] + [3] * (timeout_ms < 0)


def test_a_closed_producer_takes_nothing():
    """A closed producer refuses messages, and closing it twice does nothing."""
    producer = AsyncProducer(config(), Handler(), CallbackHandler())
    producer.close()
    producer.close()

    with pytest.raises(QueueClosedError):
        producer.send(item(0))


def test_what_cannot_be_sent_is_logged_and_counted(caplog):
    """The next batch is sent all the same."""
    handler = Handler()

    def fail_first(events) -> None:
        handler(events)
        if len(handler.batches) == 1:
            raise OSError("no broker")

    producer = AsyncProducer(config(**{"batch.size": 2}), fail_first, CallbackHandler())
    with caplog.at_level(logging.ERROR):
        for number in range(4):
            producer.send(item(number))
        producer.close()

    assert handler.batches == [[0, 1], [2, 3]]
    assert producer.failed_count == 2
    assert "2 events could not be sent" in caplog.text


def test_callbacks_see_and_change_what_passes():
    """Each at its stage; what they return goes on in place of what came."""
    handler, recorder = Handler(), Recorder()
    producer = AsyncProducer(config(**{"queue.time": 3_600_000}), handler, recorder)
    producer.send(item("a"))
    producer.close()

    assert handler.batches == [["A", "A", "last"]]
    assert recorder.calls == [
        "before_enqueue",
        "after_enqueue True",
        "last_batch_before_close",
        "before_sending_data 3",
        "close",
    ]


class TimedHandler:
    """Notes when each batch came, in virtual time."""

    def __init__(self, runtime) -> None:
        self.runtime = runtime
        self.batches: list[tuple[int, list[object]]] = []

    def __call__(self, events) -> None:
        now_ms = self.runtime.clock.monotonic_ms()
        self.batches.append((now_ms, [event.data for event in events]))


@pytest.fixture
def timed(runtime, monkeypatch):
    """Makes a queue in virtual time: batches of two events, and a queue.time of 1000 ms."""
    virtual_threads(monkeypatch, runtime, "ottla.clients.legacy.producer")

    def make(callbacks: CallbackHandler, **settings):
        handler = TimedHandler(runtime)
        given = {"batch.size": 2, "queue.time": 1000, **settings}
        return AsyncProducer(config(**given), handler, callbacks), handler

    return make


def test_queue_time_begins_anew_when_a_full_batch_was_sent(timed, runtime):
    """Events after that wait for as long again, and not for what is left of the time."""
    producer, handler = timed(CallbackHandler())
    runtime.advance(600)
    for data in "ab":
        producer.send(item(data))
    runtime.advance(300)
    assert handler.batches == [(600, ["a", "b"])]
    producer.send(item("c"))
    runtime.advance(699)
    assert len(handler.batches) == 1
    runtime.advance(1)
    producer.send(item("d"))
    runtime.advance(2500)

    assert handler.batches[1:] == [(1600, ["c"]), (2600, ["d"])]
    for data in "ef":
        producer.send(item(data))
    runtime.advance(1)
    assert handler.batches[3:] == [(4100, ["e", "f"])]


def test_part_of_a_batch_waits_no_longer_than_queue_time(timed, runtime):
    """What is left when a full batch was sent does not begin the time anew."""
    producer, handler = timed(CallbackHandler())
    runtime.advance(600)
    for data in "abc":
        producer.send(item(data))
    runtime.advance(1400)

    assert handler.batches == [(600, ["a", "b"]), (1000, ["c"])]


def test_closed_queue_does_nothing_more(timed, runtime):
    """Neither when queue.time has passed, nor when it is closed again."""
    recorder = Recorder()
    producer, handler = timed(recorder)
    runtime.advance(400)
    producer.close()
    producer.close()
    runtime.advance(5000)

    assert handler.batches == [(400, ["last"])]
    assert recorder.calls.count("close") == 1
    assert runtime.scheduler.loop.next_due_ms() is None


def test_event_that_waits_for_room_is_refused_when_the_producer_is_closed():
    """Its thread would otherwise wait for ever; what is queued is still handled."""
    handler, outcomes = Handler(), []
    handler.gate.clear()
    settings = {"queue.size": 1, "batch.size": 1, "queue.enqueueTimeout.ms": -1}
    producer = AsyncProducer(config(**settings), handler, CallbackHandler())
    producer.send(item(0))
    handler.wait_for(1)
    producer.send(item(1))

    def send() -> None:
        try:
            producer.send(item(2))
        except QueueClosedError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=target, daemon=True) for target in (send, producer.close)]
    threads[0].start()
    wait_until(lambda: "wait_for" in stack_of(threads[0].ident or 0), "the event waits")
    threads[1].start()
    threads[0].join(20)
    assert len(outcomes) == 1
    handler.gate.set()
    threads[1].join(20)

    assert not threads[1].is_alive()
    assert handler.batches == [[0], [1]]
    assert not any(t.name == "ProducerSendThread" for t in threading.enumerate())
