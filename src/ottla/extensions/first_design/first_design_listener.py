"""Serves the five requests of Kafka 0.7 (`protocol.first_design`) at a port of their own.

A produce has no answer. One that cannot be appended, whole, ends the connection: that is all that
a producer of 0.7 can notice, and the log says why. Message sets are checked for lengths and CRCs,
and appended as they came: the compressed content of a message is the consumer's.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Sequence
from ipaddress import ip_address
from typing import Any, Final

from ottla.config.broker_config import BrokerConfig
from ottla.config.first_design_config import Address
from ottla.config.network_config import LOOPBACK_NAME
from ottla.errors import ErrorCode, KafkaError, RemoteProtocolError
from ottla.extensions.first_design.byte_logs import ByteLogs
from ottla.network.connection import Connection
from ottla.network.frame_buffer import lasting
from ottla.network.outgoing import Part
from ottla.network.processor import Processor
from ottla.network.refusal_log import RefusalLog
from ottla.network.socket_config import SocketConfig, connection_limits
from ottla.protocol.first_design import (
    RANDOM_PARTITION,
    RequestType,
    ToAppend,
    ToFind,
    ToRead,
    decode_request,
    encode_answer_head,
    encode_offsets_answer,
)
from ottla.record.legacy_positional import LENGTH, positional_messages
from ottla.record.record import CorruptRecordError
from ottla.runtime import Buffer, FileRegion, Runtime
from ottla.runtime.scheduler import Work
from ottla.server.api import refuse
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

LISTENER: Final = "FIRST_DESIGN"
MAX_REQUEST_BYTES: Final = 16 * 1024 * 1024
MESSAGES_AT_ONCE: Final = 2_000
BYTES_AT_ONCE: Final = 4 * 1024 * 1024
MAX_ANSWER_BYTES: Final = 2**31 - 1 - 6
"""All messages of an answer, whose size is a number of 31 bits."""
RECORD_OVERHEAD: Final = 128
"""The most bytes that a message gains as a batch of today: it can be copied into a topic."""
MAX_OFFSETS: Final = 10_000
STOP_TIMEOUT_MS: Final = 5_000
KNOWN_CODES: Final = frozenset(
    {
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_FETCH_SIZE,
    }
)
"""What 0.7 has a code for; the rest is -1."""


class FirstDesignListener:
    """The listener of one broker, with sockets that are not those of today's clients."""

    def __init__(self, runtime: Runtime, config: BrokerConfig, logs: ByteLogs) -> None:
        assert config.first_design_listener is not None, "the feature is wanted"
        self.address = config.first_design_listener
        self._runtime = runtime
        self._logs = logs
        self._max_message_bytes = max(1, config.message_max_bytes - RECORD_OVERHEAD)
        sockets = SocketConfig(
            socket_request_max_bytes=min(config.socket_request_max_bytes, MAX_REQUEST_BYTES),
            connections_max_idle_ms=config.connections_max_idle_ms,
            **connection_limits(config),
        )
        self._processor = Processor(runtime, sockets, self.on_request)
        self._refusals = RefusalLog(runtime.clock)

    def start(self) -> Address:
        """Serve clients; returns where, with the real port."""
        host, port = self.address
        listener = self._processor.listen(LISTENER, host, port)
        self.address = Address(host, listener.port)
        self._processor.start()
        logger.info("Clients of Kafka 0.7 are served at %s:%d", *self.address)
        if is_open_to_others(host):
            logger.warning(
                "first.design.listener is open to others: it has no logins, no rights, no quotas"
            )
        return self.address

    async def stop(self) -> None:
        """Answer the requests that are there, and close the connections."""
        await self._processor.stop(STOP_TIMEOUT_MS)

    def on_request(self, connection: Connection, frame: memoryview) -> None:
        """Serve one request. The frame is valid until this returns."""
        try:
            type_, parts = decode_request(frame)
        except RemoteProtocolError as error:
            refuse(connection, f"malformed request: {error.message}", self._refusals)
            return
        if type_ in (RequestType.PRODUCE, RequestType.MULTI_PRODUCE):
            connection.is_answer_due = False
            self._begin_append(connection, lasting(frame))
        elif type_ is RequestType.OFFSETS:
            connection.send([self._offsets(*parts)])
        else:
            connection.send(self._answer(type_, parts))

    # Produce

    def _begin_append(self, connection: Connection, frame: memoryview) -> None:
        """Append now, or in slices where there is much to be checked."""
        _, sets = decode_request(frame)
        work = self._append(connection, sets)
        rest = self._runtime.slices.begin(work)
        if isinstance(rest, Coroutine):
            self._runtime.scheduler.spawn(rest, "append of the first design")

    def _append(self, connection: Connection, sets: Sequence[Any]) -> Work[None]:
        """Check all message sets of a request, and append them when all of them are valid."""
        try:
            checked = []
            for each in sets:
                partition = self._place(each)
                count = yield from self._check(each.messages)
                checked.append((partition, each.messages, count))
            for partition, messages, count in checked:
                if count:
                    self._logs.append(partition, messages, count)
                    if len(checked) > 1:
                        yield
        except KafkaError as error:
            why = f"a message set that is not appended: {error.message}"
            refuse(connection, why, self._refusals)
        except Exception:
            logger.exception("%s: a message set is not appended", connection.id)
            connection.close("appending failed")
        else:
            connection.no_response()

    def _place(self, wanted: ToAppend) -> TopicPartition:
        partition = wanted.partition
        if partition == RANDOM_PARTITION:
            partition = self._runtime.random.randrange(self._logs.partition_count(wanted.topic))
        return self._logs.check(wanted.topic, partition)

    def _check(self, messages: Buffer) -> Work[int]:
        """How many messages a set has, all of them whole and valid; of no size that is refused."""
        end = count = 0
        paused_at = 0
        for message in positional_messages(messages):
            if len(message.payload) > self._max_message_bytes:
                raise KafkaError.of(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"{len(message.payload)} bytes: message.max.bytes leaves "
                    f"{self._max_message_bytes} for a message",
                )
            end, count = message.next_position, count + 1
            if not count % MESSAGES_AT_ONCE or end - paused_at > BYTES_AT_ONCE:
                paused_at = end
                yield
        if end != len(messages):
            raise CorruptRecordError(f"{len(messages) - end} bytes of a message that is cut off")
        return count

    # Fetch

    def _answer(self, type_: RequestType, places: Sequence[Any]) -> list[Part]:
        """The answer to a fetch, or to a multi-fetch: as many answers behind a head of their own.

        The messages are sent from the file by the kernel.
        """
        parts: list[Part] = []
        size = 0
        left = MAX_ANSWER_BYTES
        for place in places:
            error, region = self._read(place, left)
            body_bytes = 0 if region is None else region.size
            head = encode_answer_head(body_bytes, error)
            parts.append(head)
            if region is not None:
                parts.append(region)
            size += len(head) + body_bytes
            left = max(0, MAX_ANSWER_BYTES - size - LENGTH.size * len(places))
        if type_ is RequestType.MULTI_FETCH:
            parts.insert(0, encode_answer_head(size))
        return parts

    def _read(self, place: ToRead, left: int) -> tuple[ErrorCode, FileRegion | None]:
        try:
            partition = self._logs.check(place.topic, place.partition)
            size = min(place.max_bytes, left)
            return ErrorCode.NONE, self._logs.read(partition, place.position, size)
        except KafkaError as error:
            return code_of(error), None

    # Offsets

    def _offsets(self, wanted: ToFind) -> bytes:
        try:
            partition = self._logs.check(wanted.topic, wanted.partition)
            most = min(wanted.max_count, MAX_OFFSETS)
            return encode_offsets_answer(self._logs.offsets_before(partition, wanted.time_ms, most))
        except KafkaError as error:
            return encode_offsets_answer((), code_of(error))


def code_of(error: KafkaError) -> ErrorCode:
    """The code that 0.7 has for an error."""
    return error.error if error.error in KNOWN_CODES else ErrorCode.UNKNOWN_SERVER_ERROR


def is_open_to_others(host: str) -> bool:
    """Whether other machines may reach an address, as they may a name other than localhost."""
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != LOOPBACK_NAME
