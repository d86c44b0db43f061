"""Topics of a real MQTT broker (Debian's mosquitto) through kills, restarts and outages.

Without mosquitto these tests are skipped, and say so.
"""

from __future__ import annotations

import signal
from concurrent.futures import Future

import pytest
from contexts import LoneContext
from mosquitto import HINT, PROGRAM, Listener, Mosquitto
from paho.mqtt import client as mqtt

from ottla.connect.connector import TryAgainError
from ottla.connect.connectors.mqtt import MqttSink, MqttSource
from ottla.connect.data import BOOLEAN, Header, SinkRecord
from ottla.errors import ConfigError
from ottla.testing import wait_until
from ottla.testing.connector_contract import SinkContract, SourceContract

pytestmark = pytest.mark.skipif(PROGRAM is None, reason=HINT)


@pytest.fixture
def mosquitto(tmp_path):
    broker = Mosquitto(tmp_path)
    yield broker
    broker.stop()


class Task:
    """A source that a worker would drive, started again when it was killed."""

    def __init__(self, broker, **settings):
        given = {"host": "127.0.0.1", "port": str(broker.port), "filters": "#", "topic": "t"}
        self.given = given | {key.replace("_", "."): value for key, value in settings.items()}
        self.context = LoneContext()
        self.source = None
        self.start()

    def start(self):
        self.source = MqttSource(MqttSource.Settings.parse(self.given), self.context)
        self.source.start()
        self.early = list(self.source.poll())

    def take(self, count, commits=True):
        """So many records; all arrive in the topic, or none."""
        found, self.early = self.early, []

        def is_enough():
            return len(found) >= count or found.extend(self.source.poll())

        wait_until(is_enough, f"{count} messages", seen=lambda: found)
        if commits:
            self.arrive(found)
        return found

    def arrive(self, records):
        for record in records:
            place = tuple(sorted(record.source_partition.items()))
            self.context.stored[place] = record.source_offset
            self.source.commit_record(record, None)

    def kill(self):
        self.source.stop()


@pytest.fixture
def start(mosquitto):
    made = []

    def start(**settings):
        made.append(Task(mosquitto, **settings))
        return made[-1]

    yield start
    for task in made:
        task.kill()


def values(records):
    return [record.value for record in records]


def until(task, value):
    """The records up to this one: acknowledgements may have met a connection that had ended."""
    came = task.take(1)
    while came[-1].value != value:
        came += task.take(1)
    return came


def test_a_message_is_a_record(mosquitto, start):
    """Its topic is the key; ${topic} has dots."""
    mosquitto.publish(b"\xff", topic="hall/1/heat", retain=True)
    task = start(topic="iot.${topic}")

    (record,) = task.take(1)

    assert (record.topic, record.key, record.value) == ("iot.hall.1.heat", "hall/1/heat", b"\xff")
    assert record.headers == (Header("mqtt.retained", True, BOOLEAN),)
    assert record.source_partition == {"client": "ottla-lone"}


def test_what_was_not_in_the_topic_comes_again(mosquitto, start):
    """After a kill; what was need not, and retained messages do not."""
    mosquitto.publish("kept", retain=True)
    task = start(value_format="text")
    assert values(task.take(1)) == ["kept"]
    mosquitto.publish("1", "2")
    assert values(task.take(2, commits=False)) == ["1", "2"]
    task.kill()
    mosquitto.publish("3")
    task.start()
    assert values(task.take(3)) == ["1", "2", "3"]
    task.kill()
    task.start()
    mosquitto.publish("4")
    assert set(values(until(task, "4"))) <= {"1", "2", "3", "4"}


def test_a_lost_connection_repeats_nothing(mosquitto, start):
    """The broker sends again what it holds; the task knows it by its number."""
    task = start(value_format="text")
    mosquitto.publish("1", "2")
    first = task.take(2, commits=False)
    mosquitto.stop()
    mosquitto.start()
    mosquitto.publish("3")
    third = task.take(1, commits=False)
    assert values(third) == ["3"]
    task.arrive(first + third)
    mosquitto.publish("4")
    assert values(task.take(1)) == ["4"]


def test_changed_filters_are_told(mosquitto, start):
    """Those that are gone bring nothing any more."""
    task = start(filters="a/#,b/#", value_format="text")
    mosquitto.publish("1", topic="a/x")
    task.take(1)
    task.kill()
    task.given["filters"] = "b/#,c/#"
    task.start()
    mosquitto.publish("2", topic="a/x")
    mosquitto.publish("3", topic="c/x")
    assert values(task.take(1)) == ["3"]


def test_text_that_is_none_is_reported(mosquitto, start):
    """By place, and acknowledged like any other, so that the rest goes on."""
    task = start(value_format="text")
    mosquitto.publish(b"M\xfcnchen", b"", "ok")
    found = task.take(3)
    assert [bool(record.error) for record in found] == [True, False, False]
    assert "value.format=text" in str(found[0].error)
    assert values(found[1:]) == ["", "ok"]
    task.kill()
    task.start()
    mosquitto.publish("next")
    assert len(until(task, "next")) <= len(found) + 1


def test_a_topic_that_is_no_text_does_not_end_the_thread_that_reads(start):
    """paho raises where it is asked for such a name; the message comes with its bytes shown."""
    task = start()
    message = mqtt.MQTTMessage(7, b"hall/\xff")
    message.payload = b"warm"
    task.source._on_message(None, None, message)
    (record,) = task.take(1)
    assert (record.key, record.value) == ("hall/\\xff", b"warm")


def test_a_broker_that_is_away_is_waited_for(mosquitto, start):
    """The task polls on; nothing fails."""
    mosquitto.stop()
    task = start(value_format="text")
    assert task.source.poll() == []
    assert ("wait", 5.0) in task.context.asked
    mosquitto.start()
    task.source.poll()
    mosquitto.publish("1")
    assert values(task.take(1)) == ["1"]


def test_a_refused_user_ends_the_task(tmp_path):
    """A wrong password does not become right."""
    (tmp_path / "users").write_text("")
    broker = Mosquitto(tmp_path, "allow_anonymous false", f"password_file {tmp_path}/users")
    try:
        with pytest.raises(ConfigError, match="must accept the session: Not authorized"):
            Task(broker, username="me", password="word")
    finally:
        broker.stop()


def test_offsets_can_only_be_deleted():
    """The broker has them."""
    assert MqttSource.alter_offsets(None, [({}, None)])
    with pytest.raises(ConfigError, match="deleted only"):
        MqttSource.alter_offsets(None, [({}, {"filters": []})])
    assert MqttSink.alter_offsets(None, {})


class SinkContext(LoneContext):
    """Keeps what is reported."""

    def report(self, record, error):
        self.asked.append((record.offset, str(error)))
        future = Future()
        future.set_result(None)
        return future


def sink(broker, **settings):
    given = {"host": "127.0.0.1", "port": str(broker.port)}
    given |= {key.replace("_", "."): value for key, value in settings.items()}
    made = MqttSink(MqttSink.Settings.parse(given), SinkContext())
    made.start()
    return made


def record(offset, key="k", value=b"v"):
    return SinkRecord(topic="t", partition=0, offset=offset, key=key, value=value)


def test_records_are_messages(mosquitto):
    """In order; a name with a wildcard is the record's own fault."""
    listener = Listener(mosquitto)
    made = sink(mosquitto, mqtt_topic="out/${topic}/${key}", retain="true")
    made.put([record(0, "a", b"1"), record(1, "+", b"2"), record(2, "b", {"n": 3})])
    made.stop()

    wait_until(lambda: len(listener.got) == 2, "two messages")
    listener.close()
    assert [(each.topic, each.payload, each.qos) for each in listener.got] == [
        ("out/t/a", b"1", 1),
        ("out/t/b", b'{"n":3}', 1),
    ]
    ((offset, said),) = made.context.asked
    assert offset == 1
    assert "'out/t/+'" in said


def test_keys_that_no_topic_is_made_of_are_nobodys_fault(mosquitto):
    """Bytes, a lone surrogate: what is published is the value."""
    listener = Listener(mosquitto)
    made = sink(mosquitto, mqtt_topic="out/${topic}")
    keys = [b"\xff\xfe", "\ud83d", {1}, "+", None]
    made.put([record(number, key, str(number)) for number, key in enumerate(keys)])
    made.stop()

    wait_until(lambda: len(listener.got) == len(keys), "all messages")
    listener.close()
    assert [each.payload for each in listener.got] == [b"0", b"1", b"2", b"3", b"4"]
    assert not made.context.asked


@pytest.mark.parametrize(
    "poison",
    [
        {"key": "+"},
        {"key": "a/#"},
        {"key": "\0"},
        {"key": "\ud83d"},
        {"key": b"\xff"},
        {"key": object()},
        {"key": "k" * 70_000},
        {"value": "cut \ud83d"},
        {"value": object()},
    ],
)
def test_what_no_message_can_be_made_of_is_reported(mosquitto, poison):
    """Whatever kind of error it is; the records beside it are published, in order."""
    listener = Listener(mosquitto)
    made = sink(mosquitto, mqtt_topic="out/${key}")
    made.put([record(0, value=b"0"), record(1, **poison), record(2, value=b"2")])
    made.stop()
    wait_until(lambda: len(listener.got) == 2, "two messages")
    listener.close()
    ((offset, _),) = made.context.asked
    assert offset == 1
    assert [each.payload for each in listener.got] == [b"0", b"2"]


def test_an_outage_repeats_no_message(mosquitto):
    """What was handed over before it is sent when the broker is back, once."""
    listener = Listener(mosquitto)
    made = sink(mosquitto, request_timeout_ms="500")
    made.put([record(0, value=b"0")])
    mosquitto.stop()
    records = [record(1, value=b"1"), record(2, value=b"2")]
    with pytest.raises(TryAgainError, match="not acknowledged"):
        made.put(records)
    mosquitto.start()

    def is_put():
        try:
            made.put([*records, record(3, value=b"3")])
        except TryAgainError:
            return False
        return True

    wait_until(is_put, "the broker's return")
    wait_until(lambda: len(listener.got) >= 4, "all messages")
    made.stop()
    listener.close()
    assert [each.payload for each in listener.got] == [b"0", b"1", b"2", b"3"]


def test_a_stop_waits_for_what_the_broker_has_not_acknowledged(mosquitto):
    """A broker that is slow has the message all the same: it must not come again."""

    class Stopping(SinkContext):
        @property
        def is_stopping(self):
            mosquitto.signal(signal.SIGCONT)
            return True

    listener = Listener(mosquitto)
    made = sink(mosquitto)
    made.put([record(0, value=b"0")])
    made.context = Stopping()
    mosquitto.signal(signal.SIGSTOP)
    made.put([record(1, value=b"1")])
    made.stop()
    wait_until(lambda: len(listener.got) == 2, "both messages")
    listener.close()


def test_each_task_of_a_sink_has_a_session():
    """Two with one name would take it from each other."""
    settings = MqttSink.Settings.parse({"host": "h", "client.id": "me"})
    assert MqttSink(settings, SinkContext()).tasks(2) == [
        {"client.id": "me-0"},
        {"client.id": "me-1"},
    ]


class TestSource(SourceContract):
    """What every source keeps."""

    connector = MqttSource
    bad_settings = ({"port": "0"}, {"filters": ""})

    @pytest.fixture(autouse=True)
    def _mosquitto(self, mosquitto):
        self.mosquitto = mosquitto
        mosquitto.session("ottla-contract")

    def own_settings(self):
        return {
            "topic": self.topic,
            "host": "127.0.0.1",
            "port": str(self.mosquitto.port),
            "filters": "#",
            "value.format": "text",
        }

    def bring(self, count):
        self.mosquitto.publish(*map(str, range(count)))

    def test_messages_that_no_topic_takes_are_left_out(self):
        """With errors.tolerance=all: the broker does not bring them again, and the rest goes on."""
        more = {"topic": "mqtt.${topic}", "errors_tolerance": "all"}
        with self.worker() as worker:
            worker.create(self.properties(**more))
            self.mosquitto.publish("no name of Kafka's", topic="a b")
            self.mosquitto.publish(b"M\xfcnchen", b"x" * 2_000_000, "first", topic="ok")
            self.broker.wait_for_records("mqtt.ok", 1)
        with self.worker() as worker:
            worker.create(self.properties(**more))
            self.mosquitto.publish("second", topic="ok")
            self.broker.wait_for_records("mqtt.ok", 2)
        assert [record.value for record in self.broker.records("mqtt.ok")] == [b"first", b"second"]


class TestSink(SinkContract):
    """What every sink keeps."""

    connector = MqttSink
    bad_settings = ({"host": ""}, {"retain": "perhaps"})

    @pytest.fixture(autouse=True)
    def _listener(self, mosquitto):
        self.mosquitto, self.listener = mosquitto, Listener(mosquitto)
        yield
        self.listener.close()

    def own_settings(self):
        return {"topics": self.topic, "host": "127.0.0.1", "port": str(self.mosquitto.port)}

    def written(self):
        return [message.payload.decode() for message in self.listener.got]
