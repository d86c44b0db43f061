"""Keys and values of records as the text that a dump shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.cli.decoders import text_decoder

if TYPE_CHECKING:
    from ottla.record.record_batch import Record

Texts = tuple[str | None, str | None]


class RecordParser(Protocol):
    """Finds the text of a key and of a value; None for what is not there."""

    def parse(self, record: Record) -> Texts: ...


class DecodingParser:
    """Decodes keys and values by the names of decoders."""

    def __init__(self, key_decoder: str, value_decoder: str) -> None:
        self.decode_key = text_decoder(key_decoder)
        self.decode_value = text_decoder(value_decoder)

    def parse(self, record: Record) -> Texts:
        return (
            None if record.key is None else self.decode_key(record.key),
            None if record.value is None else self.decode_value(record.value),
        )


class OffsetsParser:
    """Reads records as those of __consumer_offsets."""

    def parse(self, record: Record) -> Texts:
        from ottla.cli.group_records import key_and_payload

        return key_and_payload(record.key, record.value)
