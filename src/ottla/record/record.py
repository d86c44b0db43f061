"""What a record is once it has left its batch, and the error for bytes that are no record."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ottla.errors import ErrorCode, RetriableError

RecordHeaders: TypeAlias = tuple[tuple[str, bytes | None], ...]
NO_TIMESTAMP = -1


class Record(NamedTuple):
    """One record at its place in the partition; `None` is a null, which is not an empty value."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders


class CorruptRecordError(RetriableError):
    """Bytes that are not a valid record batch; the text names the offset and the reason.

    Retriable as in Kafka: another copy of the batch may be whole.
    """

    def __init__(self, message: str, error: ErrorCode = ErrorCode.CORRUPT_MESSAGE) -> None:
        super().__init__(error, message)


class DecompressionLimitError(CorruptRecordError):
    """Compressed data that would become more bytes than the caller allows."""
