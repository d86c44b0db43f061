"""MqttSource and MqttSink: messages of an MQTT broker as records, and records as messages.

    connector.class=MqttSource                  connector.class=MqttSink
    host=mqtt.example                           host=mqtt.example
    filters=sensors/+/temperature               mqtt.topic=alarms/${key}
    topic=temperatures                          topics=alarms

The source has a session that the broker keeps (`client.id`), with quality 1: the broker holds a
message until it is acknowledged, and that happens when the record is in the topic. So a worker that
is killed loses nothing; unacknowledged messages come again. One that comes again in a task that has
only lost its connection is known by its packet's number, and is not sent twice.

The sink publishes with quality 1, in the order of records, and takes a record as written when the
broker has acknowledged it. Needs the extra `mqtt` (paho-mqtt, MQTT 3.1.1).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.clients.producer.producer_batch import RecordMetadata
from ottla.config.config_def import HIGH, LOW, REQUIRED, ConfigTable, config_key
from ottla.config.config_type import LONG, Password
from ottla.config.rule import at_least, between, not_empty, one_of
from ottla.connect.connector import (
    Place,
    SinkConnector,
    SourceBatch,
    SourceConnector,
    TryAgainError,
)
from ottla.connect.connectors import content_of, needed
from ottla.connect.data import BOOLEAN as BOOLEAN_SCHEMA
from ottla.connect.data import BYTES, DataError, Header, SinkRecord, SourceRecord, shown
from ottla.connect.data import STRING as STRING_SCHEMA
from ottla.errors import ConfigError
from ottla.runtime import SystemClock
from ottla.runtime.io_thread import Condition
from ottla.runtime.timing import Deadline
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

EXTRA: Final = "mqtt"
AS_BYTES: Final = "bytes"
AS_TEXT: Final = "text"
CLIENT: Final = "client"
FILTERS: Final = "filters"
RETAINED: Final = "mqtt.retained"
QUALITY: Final = 1
LONGEST_TOPIC: Final = 65_535
WAIT_S: Final = 0.5
RETRY_S: Final = 5.0
MOST_QUEUED: Final = 50_000
"""So many messages wait for the task; then the broker has to."""
ACKNOWLEDGING_WAIT_S: Final = 0.01
"""While some are not acknowledged, a poll ends soon: the broker sends only so many ahead."""
MOST_KEPT: Final = 1000
"""So many acknowledged messages are remembered: more than a broker sends ahead."""


class MqttSettings(ConfigTable, group=True):
    """The settings of both connectors about the broker."""

    host: str = config_key(
        default=REQUIRED, rule=not_empty(), importance=HIGH, doc="The broker's host."
    )
    port: int = config_key(
        default=1883, rule=between(1, 65535), importance=HIGH, doc="The broker's port."
    )
    client_id: str = config_key(
        default="",
        importance=HIGH,
        doc="The name of the session; empty: ottla- and the connector's name.",
    )
    username: str = config_key(default="", doc="The user.")
    password: Password = config_key(default=Password(""), doc="The password of the user.")
    tls: bool = config_key(default=False, doc="Whether to use TLS.")
    tls_ca_file: str = config_key(
        default="",
        doc="A PEM file of the authorities to trust; empty: those of the system.",
    )
    keep_alive_s: int = config_key(
        default=60,
        rule=between(1, 65535),
        importance=LOW,
        doc="After so many seconds of silence each side asks whether the other is there.",
    )
    request_timeout_ms: int = config_key(
        default=30_000,
        type=LONG,
        rule=at_least(1),
        doc="How long the broker has to accept the connection, or a message.",
    )


class MqttSession:
    """A session of a task, which paho's thread keeps connected.

    `has_changed` guards the state that that thread and the task's share.
    """

    def __init__(self, connector: type, settings: MqttSettings, client_id: str) -> None:
        """A session without a name is for one connection."""
        paho = needed("paho.mqtt.client", EXTRA, connector)
        self._settings = settings
        self._clock = SystemClock()
        self.has_changed = Condition()
        self.is_connected = False
        self.was_kept = False
        """Whether the broker had the session when it was connected last."""
        self.refusal = ""
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=not client_id,
            manual_ack=True,
        )
        if settings.username:
            self.client.username_pw_set(settings.username, settings.password.value)
        if settings.tls:
            self.client.tls_set(settings.tls_ca_file or None)
        self.client.max_queued_messages_set(0)
        self.client.connect_timeout = settings.request_timeout_ms / 1000
        self.client.on_connect = self._on_connect
        self.client.on_disconnect = self._on_disconnect

    def connect(self) -> None:
        """Connect; TryAgainError if nobody answers, ConfigError if the broker refuses."""
        settings, limit_ms = self._settings, self._settings.request_timeout_ms
        place = f"{settings.host}:{settings.port}"
        try:
            self.client.connect(settings.host, settings.port, settings.keep_alive_s)
        except OSError as error:
            raise TryAgainError(f"{place}: {error}") from error
        self.client.loop_start()
        with self.has_changed:
            self.has_changed.wait_for(lambda: self.is_connected or self.refusal, limit_ms / 1000)
        if self.refusal:
            self.close()  # its thread would ask again and again
        self.check()
        if not self.is_connected:
            raise TryAgainError(f"{place}: no answer within {limit_ms} ms")

    def check(self) -> None:
        """Raise ConfigError if the broker does not want the session."""
        if self.refusal:
            raise ConfigError(
                f"host={self._settings.host}: the broker must accept the session: {self.refusal}"
            )

    def close(self) -> None:
        """End the connection; the broker keeps the session."""
        self.client.disconnect()
        try:
            self.client.loop_stop()
        except AttributeError:
            pass  # paho's thread has ended between its look at it and its join
        # Without references in a circle paho closes its pair of sockets when it is let go.
        self.client.on_connect = self.client.on_disconnect = None
        self.client.on_message = self.client.on_publish = None

    def deadline(self) -> Deadline:
        """The time by which the broker is to have answered."""
        return Deadline(self._clock, self._settings.request_timeout_ms)

    def _on_connect(self, _c: Any, _u: Any, flags: Any, reason: Any, _p: Any) -> None:
        with self.has_changed:
            self.is_connected = not reason.is_failure
            is_refused = reason.is_failure and "unavailable" not in str(reason).lower()
            self.refusal = str(reason) if is_refused else ""
            self.was_kept = flags.session_present
            self.has_changed.notify_all()

    def _on_disconnect(self, _c: Any, _u: Any, _f: Any, reason: Any, _p: Any) -> None:
        with self.has_changed:
            self.is_connected = False
        if reason.is_failure:
            logger.warning("%s: the connection was lost: %s", self._settings.host, reason)


class MqttSourceSettings(MqttSettings):
    """The settings of MqttSource."""

    filters: tuple[str, ...] = config_key(
        default=REQUIRED,
        rule=not_empty(),
        importance=HIGH,
        doc="The topics to read, with + for one level and # for all that follow.",
    )
    topic: str = config_key(
        default=REQUIRED,
        rule=not_empty(),
        importance=HIGH,
        doc="The topic for all records; ${topic} is that of the message, with dots for slashes.",
    )
    value_format: str = config_key(
        default=AS_BYTES,
        rule=one_of(AS_BYTES, AS_TEXT),
        doc="Whether values are bytes (for ByteArrayConverter) or text.",
    )


class Arrival(NamedTuple):
    """A message, and the number by which it is acknowledged."""

    number: int
    topic: str
    payload: bytes
    is_retained: bool


class MqttSource(SourceConnector):
    """Reads topics of an MQTT broker, and acknowledges messages that have arrived in Kafka.

    `_held` has the messages that are not acknowledged, by their numbers; `_acknowledged` those
    whose acknowledgement may be lost with the connection. The session's condition guards both.
    """

    Settings = MqttSourceSettings
    settings: MqttSourceSettings
    no_preview = "it would take the session over from a connector that runs"

    _session: MqttSession | None = None

    def partition(self) -> Place:
        return {CLIENT: self._client_id}

    @property
    def _client_id(self) -> str:
        return self.settings.client_id or f"ottla-{self.context.name}"

    def start(self) -> None:
        self._session = session = MqttSession(MqttSource, self.settings, self._client_id)
        self._queue: deque[Arrival] = deque()
        self._held: dict[int, Arrival] = {}
        self._acknowledged: dict[int, Arrival] = {}
        self._sent: deque[int] = deque()
        self._is_begun = False
        self._asked = (self.context.offset(self.partition()) or {}).get(FILTERS, [])
        session.client.on_message = self._on_message

    def stop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def poll(self) -> Sequence[SourceRecord]:
        """The messages that have come since; after a wait, if there are none."""
        session = self._session
        assert session is not None, "started"
        if not self._is_begun and not self._begin(session):
            return []
        session.check()
        wait_s = ACKNOWLEDGING_WAIT_S if self._held else WAIT_S
        with session.has_changed:
            session.has_changed.wait_for(lambda: self._queue, wait_s)
            found = [self._queue.popleft() for _ in range(min(len(self._queue), self.most_records))]
            self._sent.extend(arrival.number for arrival in found)
        return [self._record(arrival) for arrival in found]

    def _begin(self, session: MqttSession) -> bool:
        """Connect and subscribe; False, after a wait, if the broker cannot be reached."""
        try:
            session.connect()
            self._subscribe(session)
        except TryAgainError as error:
            logger.warning("%s: tried again in %d s: %s", self.context.name, RETRY_S, error)
            self.context.wait(RETRY_S)
            return False
        self._is_begun = True
        return True

    def _subscribe(self, session: MqttSession) -> None:
        """Subscribe, unless the session has the filters: retained messages would come again."""
        wanted = list(self.settings.filters)
        if session.was_kept and sorted(self._asked) == sorted(wanted):
            return
        gone = sorted(set(self._asked) - set(wanted))
        if gone:
            session.client.unsubscribe(gone)
        code, _ = session.client.subscribe([(each, QUALITY) for each in wanted])
        if code:
            raise TryAgainError(f"{self.settings.host}: cannot subscribe (code {code})")

    def _on_message(self, _client: Any, _user: Any, message: Any) -> None:
        session = self._session
        assert session is not None, "started"
        arrival = Arrival(message.mid, _topic_of(message), message.payload, message.retain)
        if message.qos and message.dup and self._is_known(session, arrival):
            return
        limit_s = self.settings.keep_alive_s / 2
        with session.has_changed:
            session.has_changed.wait_for(lambda: len(self._queue) < MOST_QUEUED, limit_s)
            if message.qos:
                self._held[arrival.number] = arrival
            else:
                arrival = arrival._replace(number=0)
            self._queue.append(arrival)
            session.has_changed.notify_all()

    def _is_known(self, session: MqttSession, arrival: Arrival) -> bool:
        """Whether it came before, over a connection that was lost then."""
        with session.has_changed:
            if self._is_same(self._held.get(arrival.number), arrival):
                return True  # on its way to the topic: it is acknowledged when it is there
            is_acknowledged = self._is_same(self._acknowledged.get(arrival.number), arrival)
        if is_acknowledged:
            session.client.ack(arrival.number, QUALITY)
        return is_acknowledged

    @staticmethod
    def _is_same(known: Arrival | None, arrival: Arrival) -> bool:
        return known is not None and known[:3] == arrival[:3]

    def _record(self, arrival: Arrival) -> SourceRecord:
        is_text = self.settings.value_format == AS_TEXT
        name = arrival.topic.replace("/", ".")
        value: str | bytes = arrival.payload
        problem: DataError | None = None
        if is_text:
            try:
                value = arrival.payload.decode()
            except ValueError as error:
                problem = DataError(
                    f"value.format=text: a message of {arrival.topic} must be UTF-8: {error}"
                )
        return SourceRecord(
            topic=self.settings.topic.replace("${topic}", name),
            key=arrival.topic,
            key_schema=STRING_SCHEMA,
            value=value,
            value_schema=STRING_SCHEMA if is_text else BYTES,
            headers=(Header(RETAINED, arrival.is_retained, BOOLEAN_SCHEMA),),
            source_partition=self.partition(),
            source_offset={FILTERS: list(self.settings.filters)},
            error=problem,
        )

    def commit_record(
        self, record: SourceRecord | SourceBatch, metadata: RecordMetadata | None
    ) -> None:
        """It is in the topic: the broker may forget it."""
        session = self._session
        assert session is not None, "started"
        with session.has_changed:
            number = self._sent.popleft()
            arrival = self._held.pop(number, None)
            if arrival is None:
                return
            self._acknowledged[number] = arrival
            while len(self._acknowledged) > MOST_KEPT:
                del self._acknowledged[next(iter(self._acknowledged))]
        session.client.ack(number, QUALITY)

    @classmethod
    def alter_offsets(
        cls, settings: ConfigTable, offsets: Sequence[tuple[Place, Place | None]]
    ) -> bool:
        """The broker knows the place of the session; only entries of filters can be forgotten."""
        if any(offset is not None for _, offset in offsets):
            raise ConfigError("the place of an MqttSource is in the broker: it can be deleted only")
        return True


def _topic_of(message: Any) -> str:
    """The topic of a message, also of one that is no UTF-8: paho's thread must not end by it."""
    try:
        return str(message.topic)
    except ValueError as error:
        raw: bytes = getattr(error, "object", b"")
        return raw.decode("utf-8", "backslashreplace")


class MqttSinkSettings(MqttSettings):
    """The settings of MqttSink."""

    mqtt_topic: str = config_key(
        default="${topic}",
        rule=not_empty(),
        importance=HIGH,
        doc="The topic of the messages; ${topic} and ${key} are the record's.",
    )
    retain: bool = config_key(
        default=False,
        doc="Whether the broker keeps the last message of each topic for those who come later.",
    )


class MqttSink(SinkConnector):
    """Publishes records, and waits until the broker has them.

    `_published` has the messages of records that the worker may bring again after an outage: paho
    sends them itself when it is connected again.
    """

    Settings = MqttSinkSettings
    settings: MqttSinkSettings

    _session: MqttSession | None = None

    def tasks(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Each task has a session of its own."""
        name = self.settings.client_id
        return [{"client.id": f"{name}-{number}"} if name else {} for number in range(max_tasks)]

    def start(self) -> None:
        self._session = MqttSession(MqttSink, self.settings, "")
        self._session.client.on_publish = self._on_publish
        self._published: dict[tuple[str, int, int], int] = {}
        self._waiting: set[int] = set()
        self._early: set[int] = set()
        self._is_begun = False

    def stop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def close(self, partitions: Collection[TopicPartition]) -> None:
        self._published = {
            place: number
            for place, number in self._published.items()
            if TopicPartition(*place[:2]) not in set(partitions)
        }

    def _on_publish(self, _client: Any, _user: Any, number: int, _r: Any, _p: Any) -> None:
        session = self._session
        assert session is not None, "started"
        with session.has_changed:
            if number in self._waiting:
                self._waiting.discard(number)
            else:
                self._early.add(number)
            session.has_changed.notify_all()

    def put(self, records: Sequence[SinkRecord]) -> None:
        session = self._session
        assert session is not None, "started"
        if not self._is_begun:
            session.connect()
            self._is_begun = True
        for record in records:
            place = (record.original_topic, record.original_partition, record.offset)
            if place not in self._published:
                self._published[place] = self._publish(session, record)
        deadline = session.deadline()
        while not self._is_all_there(session):
            session.check()
            is_left = self.context.is_stopping and not session.is_connected
            if deadline.has_passed or is_left:
                raise TryAgainError(f"{self.settings.host}: messages are not acknowledged")
        self._published.clear()

    def _is_all_there(self, session: MqttSession) -> bool:
        """Whether the broker has all messages, now or soon."""
        with session.has_changed:
            return session.has_changed.wait_for(lambda: not self._waiting, WAIT_S)

    def _publish(self, session: MqttSession, record: SinkRecord) -> int:
        """The message's number; 0 if there can be none of this record, which is reported."""
        try:
            name, payload = self._message(record)
            number: int = session.client.publish(name, payload, QUALITY, self.settings.retain).mid
        except Exception as error:  # of any kind: the message is made of the record alone
            self.context.report(record, DataError(f"no message can be made of it: {error}"))
            return 0
        with session.has_changed:
            if number in self._early:
                self._early.discard(number)
            else:
                self._waiting.add(number)
        return number

    def _message(self, record: SinkRecord) -> tuple[str, bytes]:
        """The topic and the content; DataError names a topic that MQTT does not allow."""
        name = self.settings.mqtt_topic.replace("${topic}", record.topic)
        if "${key}" in self.settings.mqtt_topic:  # else a key that is no text spoils no record
            key = b"" if record.key is None else content_of(record.key, record.key_schema)
            name = name.replace("${key}", key.decode())
        size = len(name.encode())
        if not 0 < size <= LONGEST_TOPIC or any(each in name for each in "+#\0"):
            raise DataError(
                f"the topic {shown(name)} must have 1 to {LONGEST_TOPIC} bytes, without +, # and "
                "NUL"
            )
        value = record.value
        return name, b"" if value is None else content_of(value, record.value_schema)

    @classmethod
    def alter_offsets(
        cls, settings: ConfigTable, offsets: Mapping[TopicPartition, int | None]
    ) -> bool:
        """Any offset will do: records are published again."""
        return True
