"""What a leader makes sure of before a produced batch goes into its log.

Nothing but the header is read, and the bytes once for the CRC. Records are decoded only where the
topic asks for it: keys on a compacted topic, a bound on how old they may be, another codec.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from ottla.config.config_type import LONG_MAX
from ottla.config.topic_config import TopicConfig
from ottla.errors import ErrorCode, KafkaError, RefusedRecordsError
from ottla.record.batch_builder import recompress
from ottla.record.batch_validator import validate_batch, validate_records
from ottla.record.compression import CompressionType
from ottla.record.record_batch import (
    BATCH_OVERHEAD,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    CorruptRecordError,
    RecordBatch,
    set_log_append_time,
)

MAGIC: Final = 2
LOG_APPEND_TIME: Final = "LogAppendTime"
PRODUCER: Final = "producer"
UNCOMPRESSED: Final = "uncompressed"


class AppendOrigin(Enum):
    """Who made a batch: a client, or this broker's own coordinators."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


_CLIENT: Final = AppendOrigin.CLIENT


# A batch that may be appended, whose `buffer` can be stamped in place; its largest timestamp; the
# broker's time where that was set, else -1. A plain tuple, because one is made for every append.
ValidBatch = tuple[RecordBatch, int, int]


class LogValidator:
    """The rules of one topic's configuration for batches that are to be appended."""

    __slots__ = (
        "codec",
        "has_time_bounds",
        "is_log_append_time",
        "level",
        "max_age_ms",
        "max_ahead_ms",
        "max_message_bytes",
        "needs_keys",
        "segment_bytes",
    )

    def __init__(self, config: TopicConfig) -> None:
        difference_ms = config.message_timestamp_difference_max_ms
        self.max_age_ms = min(config.message_timestamp_before_max_ms, difference_ms)
        self.max_ahead_ms = min(config.message_timestamp_after_max_ms, difference_ms)
        self.has_time_bounds = min(self.max_age_ms, self.max_ahead_ms) < LONG_MAX
        self.max_message_bytes = config.max_message_bytes
        self.segment_bytes = config.segment_bytes
        self.needs_keys = "compact" in config.cleanup_policy
        self.is_log_append_time = config.message_timestamp_type == LOG_APPEND_TIME
        self.codec = _stored_codec(config.compression_type)
        self.level = _level(config, self.codec)

    def validate(self, records: memoryview, now_ms: int, origin: AppendOrigin) -> ValidBatch:
        """The one batch in `records`, checked and ready to be stamped; KafkaError if it is bad.

        Its buffer is `records` unless that could not be written to or had to be recompressed.
        """
        batch = RecordBatch(records)
        size = batch.batch_length + LOG_OVERHEAD
        if size != len(records) or batch.magic != MAGIC:
            raise _not_one_batch(batch, len(records))
        if origin is _CLIENT:
            self._check_client_batch(batch)
        else:
            batch.verify()
        if not self.is_log_append_time:
            if batch.attributes & LOG_APPEND_TIME_FLAG:
                raise _invalid_timestamp("a batch says that the broker has set its timestamps")
            if self.has_time_bounds:
                self._check_timestamps(batch, now_ms)
        if self.codec is not None and batch.compression is not self.codec and not batch.is_control:
            validate_records(batch)
            batch = RecordBatch(bytearray(recompress(batch, self.codec, level=self.level)))
            size = batch.size_in_bytes
        elif records.readonly:
            batch = RecordBatch(bytearray(records))
        if size > self.max_message_bytes and origin is _CLIENT:
            raise _too_large(ErrorCode.MESSAGE_TOO_LARGE, size, self.max_message_bytes)
        if size > self.segment_bytes:
            raise _too_large(ErrorCode.RECORD_LIST_TOO_LARGE, size, self.segment_bytes)
        if self.is_log_append_time:
            set_log_append_time(batch.buffer, 0, now_ms)
            return batch, now_ms, now_ms
        return batch, batch.max_timestamp, NO_TIMESTAMP

    def _check_client_batch(self, batch: RecordBatch) -> None:
        validate_batch(batch)
        if batch.producer_id < 0 and batch.is_transactional:
            raise _invalid("a transactional batch needs a producer id")
        if self.needs_keys:
            validate_records(batch, require_keys=True)

    def _check_timestamps(self, batch: RecordBatch, now_ms: int) -> None:
        """A bound on the future needs the header only, one on the past the oldest record."""
        is_ahead = batch.max_timestamp - now_ms > self.max_ahead_ms
        if not is_ahead:
            if self.max_age_ms == LONG_MAX:
                return
            oldest_ms = validate_records(batch).min_timestamp_ms
            if oldest_ms >= 0 and now_ms - oldest_ms <= self.max_age_ms:
                return
        refused = {
            index: self._why_out_of_bounds(record.timestamp_ms, now_ms)
            for index, record in enumerate(batch.records())
        }
        refused = {index: why for index, why in refused.items() if why}
        if not refused and not is_ahead:
            return
        why = next(iter(refused.values()), "the largest timestamp of the batch is out of bounds")
        raise RefusedRecordsError(ErrorCode.INVALID_TIMESTAMP, why, refused)

    def _why_out_of_bounds(self, timestamp_ms: int, now_ms: int) -> str:
        if timestamp_ms - now_ms > self.max_ahead_ms:
            limit_ms, where = self.max_ahead_ms, "ahead of"
        elif timestamp_ms != NO_TIMESTAMP and now_ms - timestamp_ms > self.max_age_ms:
            limit_ms, where = self.max_age_ms, "behind"
        else:
            return ""
        return f"timestamp {timestamp_ms} is more than {limit_ms} ms {where} the broker's {now_ms}"


def _stored_codec(compression_type: str) -> CompressionType | None:
    """The codec that a topic stores with; None where it keeps what the producer chose."""
    if compression_type == PRODUCER:
        return None
    if compression_type == UNCOMPRESSED:
        return CompressionType.NONE
    return CompressionType.of(compression_type)


def _level(config: TopicConfig, codec: CompressionType | None) -> int | None:
    """How hard a codec works (KIP-390); None leaves it to the library."""
    match codec:
        case CompressionType.GZIP:
            return config.compression_gzip_level if config.compression_gzip_level > 0 else None
        case CompressionType.LZ4:
            return config.compression_lz4_level
        case CompressionType.ZSTD:
            return config.compression_zstd_level
    return None


def _not_one_batch(batch: RecordBatch, size: int) -> KafkaError:
    """What is wrong with bytes that are not just one batch of the present format."""
    if batch.magic != MAGIC:
        return _invalid(f"magic {batch.magic} is not {MAGIC}, the only one that is taken")
    if not BATCH_OVERHEAD <= batch.size_in_bytes <= size:
        return CorruptRecordError(f"a batch cannot have {batch.size_in_bytes} of {size} bytes")
    return _invalid(f"one batch at a time: {size - batch.size_in_bytes} bytes follow the first")


def _invalid(what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, what)


def _invalid_timestamp(what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_TIMESTAMP, what)


def _too_large(error: ErrorCode, size: int, limit: int) -> KafkaError:
    key = "max.message.bytes" if error is ErrorCode.MESSAGE_TOO_LARGE else "segment.bytes"
    return KafkaError(error, f"a batch of {size} bytes is above {key}={limit}")
