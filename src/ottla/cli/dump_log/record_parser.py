"""Keys and values of records as the text that a dump shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.cli.decoders import text_decoder

if TYPE_CHECKING:
    from ottla.record.record_batch import Record

Texts = tuple[str | None, str | None]
RecordParser = Callable[["Record"], Texts]
"""Turns a key and a value into text; None stays None."""


def decoding_parser(key_decoder: str, value_decoder: str) -> RecordParser:
    """Decodes keys and values with the decoders of these names."""
    decode_key, decode_value = text_decoder(key_decoder), text_decoder(value_decoder)

    def parse(record: Record) -> Texts:
        return (
            None if record.key is None else decode_key(record.key),
            None if record.value is None else decode_value(record.value),
        )

    return parse


def parse_offsets(record: Record) -> Texts:
    """Reads records as those of __consumer_offsets."""
    from ottla.cli.group_records import key_and_payload

    return key_and_payload(record.key, record.value)
