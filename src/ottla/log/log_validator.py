"""The checks of a leader before a produced batch goes into its log.

All records of a client's batch are checked, unpacked if need be: count, offsets, sizes, and the
topic's rules, which are keys, bounds of the timestamps, or another codec. Message sets of old
producers become batches. A coordinator of this broker is trusted: its records are not read.

Rule: work that would hold the loop for long is not done on the loop. `validate` raises
LargeBatchError instead, and `large_batches` does the same checks on a background worker.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Final

from ottla.config.config_type import LONG_MAX
from ottla.config.topic_config import TopicConfig
from ottla.errors import ErrorCode, KafkaError, RefusedRecordsError
from ottla.log.batch_validation import MAX_NAMED_RECORDS, validate_batch, validate_records
from ottla.record import kernel
from ottla.record.batch_builder import recompress
from ottla.record.compression import MAX_DECOMPRESSED_BYTES, CompressionType
from ottla.record.record import (
    COMPRESSION_MASK,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MIN_RECORD_BYTES,
    DecompressionLimitError,
    RecordSurvey,
)
from ottla.record.record_batch import (
    BATCH_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    CorruptRecordError,
    RecordBatch,
    set_log_append_time,
    set_max_timestamp,
)
from ottla.structs import NO_TIMESTAMP

LOG_APPEND_TIME: Final = "LogAppendTime"
PRODUCER: Final = "producer"
UNCOMPRESSED: Final = "uncompressed"

# The limits of a check on the loop: a few milliseconds' work at most. A batch is large beyond one
# of these: its size, its unpacked size (which is less where it is stored in another codec), the
# count of its records (librdkafka puts at most 10,000 into a batch), the size of a message set.
INLINE_BYTES: Final = 1024 * 1024
INLINE_UNPACKED_BYTES: Final = 512 * 1024
INLINE_RECOMPRESSED_BYTES: Final = 64 * 1024
INLINE_RECORDS: Final = 100_000 if kernel.COMPILED else 10_000
INLINE_MESSAGE_SET_BYTES: Final = 64 * 1024


class AppendOrigin(Enum):
    """Where a batch comes from: a client, or this broker's own coordinators."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


_CLIENT: Final = AppendOrigin.CLIENT

ValidBatch = tuple[RecordBatch, int, int]
"""A batch that may be appended, whose `buffer` can be stamped in place; its largest timestamp; the
broker's time where that was set, else -1. A plain tuple, because one is made for every append."""

Validated = ValidBatch | KafkaError
"""The result for a batch: what may be appended, or the error that says why not."""

UNPACKED_FLOOR_BYTES: Final = 4 * 1024 * 1024
MAX_UNPACKED_RATIO: Final = 24
"""Text of logs becomes a twentieth; small batches may be of any ratio, up to the floor."""


class LargeBatchError(Exception):
    """A batch would hold the loop for long: call its `validate` on another thread."""

    def __init__(self, validate: Callable[[], ValidBatch]) -> None:
        super().__init__("a large batch is looked through in the background")
        self.validate = validate


class LogValidator:
    """Checks the batches for one topic by the rules of its configuration."""

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

    def validate(
        self, records: memoryview, now_ms: int, origin: AppendOrigin, *, is_inline: bool = True
    ) -> ValidBatch:
        """The one batch in `records`, checked and ready to be stamped; KafkaError if it is bad.

        Its buffer is `records` unless that could not be written to, held a message set or had to
        be recompressed. A client's batch that takes long raises LargeBatchError if `is_inline`,
        before anything of `records` has changed.
        """
        if origin is _CLIENT:
            try:
                batch = self._client_batch(records, now_ms, is_inline)
            except DecompressionLimitError as error:
                if is_inline:
                    raise self._large(records, now_ms) from None
                raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, error.message) from None
        else:
            batch = RecordBatch(records)
            _check_is_alone(batch, len(records))
            batch.verify()
            if self.has_time_bounds and not self.is_log_append_time:
                self._check_timestamps(batch, validate_records(batch), now_ms)
        size = batch.batch_length + LOG_OVERHEAD
        if self.codec is not None and batch.compression is not self.codec and not batch.is_control:
            batch = RecordBatch(bytearray(recompress(batch, self.codec, level=self.level)))
            size = batch.size_in_bytes
        elif batch.buffer.readonly:
            batch = RecordBatch(bytearray(batch.buffer))
        if size > self.max_message_bytes and origin is _CLIENT:
            raise _too_large(ErrorCode.MESSAGE_TOO_LARGE, size, self.max_message_bytes)
        if size > self.segment_bytes:
            raise _too_large(ErrorCode.RECORD_LIST_TOO_LARGE, size, self.segment_bytes)
        if self.is_log_append_time:
            set_log_append_time(batch.buffer, 0, now_ms)
            return batch, now_ms, now_ms
        return batch, batch.max_timestamp, NO_TIMESTAMP

    def _client_batch(self, records: memoryview, now_ms: int, is_inline: bool) -> RecordBatch:
        """A client's batch, or message set, with everything checked but the size that is stored.

        Its largest timestamp is corrected where the header is wrong: a few clients write none.
        """
        if len(records) > MAGIC_POSITION and 0 <= records[MAGIC_POSITION] < MAGIC:
            records = self._converted(records, now_ms, is_inline)
            is_inline = False
        batch = RecordBatch(records)
        size = batch.batch_length + LOG_OVERHEAD
        if size != len(records) or batch.magic != MAGIC:
            _check_is_alone(batch, len(records))
        if size > self.max_message_bytes:
            raise _too_large(ErrorCode.MESSAGE_TOO_LARGE, size, self.max_message_bytes)
        limit = INLINE_UNPACKED_BYTES
        if not is_inline:
            limit = most_unpacked_bytes(size)
        elif size > INLINE_BYTES or batch.record_count > INLINE_RECORDS or self.codec is not None:
            limit = self._inline_limit(batch, size)
            if size > limit:
                raise self._large(records, now_ms)
        validate_batch(batch)
        if batch.attributes & LOG_APPEND_TIME_FLAG:
            raise _invalid_timestamp("a batch says that the broker has set its timestamps")
        survey = validate_records(batch, require_keys=self.needs_keys, max_bytes=limit)
        if self.is_log_append_time:
            return batch
        if self.has_time_bounds:
            self._check_timestamps(batch, survey, now_ms)
        if survey.max_timestamp_ms != batch.max_timestamp:
            return _with_max_timestamp(batch, survey.max_timestamp_ms)
        return batch

    def _inline_limit(self, batch: RecordBatch, size: int) -> int:
        """How many bytes the batch may have, or unpack to, to be checked on this thread."""
        codec = batch.attributes & COMPRESSION_MASK
        if self.codec is not None and codec != self.codec:
            return INLINE_RECOMPRESSED_BYTES
        if codec:
            return INLINE_UNPACKED_BYTES
        # A count that these bytes cannot hold is wrong, and is seen at once.
        is_dense = INLINE_RECORDS < batch.record_count <= size // MIN_RECORD_BYTES
        return 0 if is_dense else INLINE_BYTES

    def _converted(self, message_set: memoryview, now_ms: int, is_inline: bool) -> memoryview:
        if len(message_set) > self.max_message_bytes:
            raise _too_large(ErrorCode.MESSAGE_TOO_LARGE, len(message_set), self.max_message_bytes)
        if is_inline and len(message_set) > INLINE_MESSAGE_SET_BYTES:
            raise self._large(message_set, now_ms)
        size = len(message_set)
        limit = INLINE_UNPACKED_BYTES if is_inline else most_unpacked_bytes(size)
        from ottla.record.conversion import to_batch  # few clients are as old

        return memoryview(to_batch(message_set, max_bytes=limit))

    def _large(self, records: memoryview, now_ms: int) -> LargeBatchError:
        """Copy the bytes: those of a request are reused by the network after its call."""
        copied = memoryview(bytearray(records))
        return LargeBatchError(partial(self.validate, copied, now_ms, _CLIENT, is_inline=False))

    def _check_timestamps(self, batch: RecordBatch, survey: RecordSurvey, now_ms: int) -> None:
        lowest_ms, highest_ms = survey.min_timestamp_ms, survey.max_timestamp_ms
        why = self._why_out_of_bounds(highest_ms, now_ms)
        why = why or self._why_out_of_bounds(lowest_ms, now_ms)
        # Behind a record without a timestamp, one that is too old does not show in the survey.
        may_hide = lowest_ms == NO_TIMESTAMP != highest_ms
        refused: dict[int, str] = {}
        if (why or may_hide) and batch.record_count <= MAX_NAMED_RECORDS:
            reasons = [
                self._why_out_of_bounds(each.timestamp_ms, now_ms) for each in batch.records()
            ]
            refused = {index: reason for index, reason in enumerate(reasons) if reason}
            why = next(iter(refused.values()), "")
        if why:
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
    """The codec that a topic stores with; None where it keeps the producer's choice."""
    if compression_type == PRODUCER:
        return None
    if compression_type == UNCOMPRESSED:
        return CompressionType.NONE
    return CompressionType.of(compression_type)


def _level(config: TopicConfig, codec: CompressionType | None) -> int | None:
    """The compression level of a codec (KIP-390); None, and -1 of gzip, leave it to the library."""
    match codec:
        case CompressionType.GZIP:
            return config.compression_gzip_level
        case CompressionType.LZ4:
            return config.compression_lz4_level
        case CompressionType.ZSTD:
            return config.compression_zstd_level
    return None


def most_unpacked_bytes(size: int) -> int:
    """How many bytes a batch of `size` bytes may unpack to: no bomb takes more memory."""
    return min(MAX_DECOMPRESSED_BYTES, UNPACKED_FLOOR_BYTES + MAX_UNPACKED_RATIO * size)


def _check_is_alone(batch: RecordBatch, size: int) -> None:
    """Raise KafkaError unless `size` bytes are just one batch of the present format."""
    if batch.magic != MAGIC:
        raise _invalid(f"magic {batch.magic} is not {MAGIC}, the only one that is taken")
    if not BATCH_OVERHEAD <= batch.size_in_bytes <= size:
        raise CorruptRecordError(f"a batch cannot have {batch.size_in_bytes} of {size} bytes")
    if batch.size_in_bytes < size:
        raise _invalid(f"one batch at a time: {size - batch.size_in_bytes} bytes follow the first")


def _with_max_timestamp(batch: RecordBatch, timestamp_ms: int) -> RecordBatch:
    """The batch with another largest timestamp in its header; in place where that can be."""
    buffer = bytearray(batch.buffer) if batch.buffer.readonly else batch.buffer
    set_max_timestamp(buffer, 0, timestamp_ms)
    return RecordBatch(buffer)


def _invalid(what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, what)


def _invalid_timestamp(what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_TIMESTAMP, what)


def _too_large(error: ErrorCode, size: int, limit: int) -> KafkaError:
    key = "max.message.bytes" if error is ErrorCode.MESSAGE_TOO_LARGE else "segment.bytes"
    return KafkaError(error, f"a batch of {size} bytes is above {key}={limit}")
