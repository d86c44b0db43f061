"""The answers of the replica manager to batches of producers and coordinators, by partition."""

from __future__ import annotations

import logging
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError, RefusedRecordsError
from ottla.log.log_results import LogAppendInfo
from ottla.log.log_validator import AppendOrigin
from ottla.network.refusal_log import RefusalLog
from ottla.runtime import Clock
from ottla.structs import INTERNAL_TOPICS, NO_OFFSET, NO_TIMESTAMP, TopicPartition, Value, field

logger = logging.getLogger(__name__)

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1


class PartitionAppendResult(Value):
    """Where a batch was appended, or why it was not."""

    error: ErrorCode
    base_offset: int = NO_OFFSET
    last_offset: int = NO_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    log_start_offset: int = NO_OFFSET
    error_message: str | None = None
    awaits_flush: bool = False
    record_errors: dict[int, str] | None = None
    tenure: Any = field(default=None, compare=False, repr=False)
    """The partition's when it was appended: the log of a later one may be without the batch."""


def check_may_write(topic_partition: TopicPartition, origin: AppendOrigin) -> None:
    """Raise KafkaError where a client would write to an internal topic."""
    if topic_partition.topic in INTERNAL_TOPICS and origin is AppendOrigin.CLIENT:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{topic_partition.topic} is written by the broker only",
        )


def acceptance(info: LogAppendInfo, tenure: object) -> PartitionAppendResult:
    """The answer to a producer for a batch that was appended."""
    return PartitionAppendResult(
        ErrorCode.NONE,
        info.first_offset,
        info.last_offset,
        info.log_append_time_ms,
        info.log_start_offset,
        awaits_flush=info.awaits_flush,
        tenure=tenure,
    )


class Refusals:
    """The refused batches of one request, for one line of the log: it may have thousands.

    A producer may send such requests without end: each partition and error has a line now and then.
    """

    __slots__ = ("_cause", "_first", "_log", "count")

    def __init__(self, clock: Clock) -> None:
        self.count = 0
        self._log = RefusalLog(clock)

    def note(self, topic_partition: TopicPartition, error: KafkaError) -> None:
        """A batch is refused; the first one is named in the line."""
        if not self.count:
            self._cause = str(topic_partition), error.error.name
            self._first = f"{topic_partition}: {error}"
        self.count += 1

    def log(self) -> None:
        """Write the line, if there is anything to say."""
        if self.count and self._log.is_news(*self._cause):
            others = f" (and {self.count - 1} more batches)" if self.count > 1 else ""
            logger.info("refused a batch for %s%s", self._first, others)
        self.count = 0


def refusal(error: KafkaError) -> PartitionAppendResult:
    """The answer to a producer for a batch that was refused."""
    refused = error.record_errors if isinstance(error, RefusedRecordsError) else None
    return PartitionAppendResult(error.error, error_message=error.message, record_errors=refused)
