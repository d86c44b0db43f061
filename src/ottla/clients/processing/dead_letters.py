"""Records that no attempt has helped, as dead letters in a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.aio.producer import Producer
from ottla.clients.dead_letter_headers import LARGEST_LETTER, FailedStep, letter_headers
from ottla.clients.serialization import SerializationError
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.clients.processing.process_options import ProcessOptions
    from ottla.record.consumer_record import ConsumerRecord

CONNECTION: Final = ("bootstrap.servers", "client.id", "security.", "ssl.", "sasl.")
"""The settings that a producer of dead letters has in common with the consumer."""


class DeadLetters:
    """Writes records as they were read: bytes, headers and time, with the headers of Connect.

    Each is awaited, so that no record counts as finished whose letter may be lost.
    """

    def __init__(self, options: ProcessOptions, settings: Mapping[str, Any]) -> None:
        assert options.dead_letters is not None, "there is no topic for them"
        self._topic = options.dead_letters
        self._executing = getattr(options.handler, "__qualname__", repr(options.handler))
        self._group = str(settings.get("group.id", ""))
        own = {name: value for name, value in settings.items() if name.startswith(CONNECTION)}
        self._producer = Producer(own, acks="all", max_request_size=LARGEST_LETTER)

    async def send(self, record: ConsumerRecord, error: BaseException) -> None:
        """Write the letter of a record; without its trace where the topic has no room for that."""
        try:
            await self._send(record, error, is_short=False)
        except KafkaError as refusal:
            if refusal.error is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
            await self._send(record, error, is_short=True)

    async def _send(self, record: ConsumerRecord, error: BaseException, *, is_short: bool) -> None:
        is_unreadable = isinstance(error, SerializationError)
        stage = "VALUE_CONVERTER" if is_unreadable else "TASK_PUT"
        step = FailedStep(self._group, 0, stage, self._executing)
        await self._producer.send_and_wait(
            self._topic,
            record.value,
            key=record.key,
            headers=letter_headers(record, step, error, is_short=is_short),
            timestamp_ms=record.timestamp_ms if record.timestamp_ms >= 0 else None,
        )

    async def close(self) -> None:
        """Give up the letters that are not there: their records are not finished."""
        await self._producer.close(timeout=0)
