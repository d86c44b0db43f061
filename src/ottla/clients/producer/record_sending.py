"""How both kinds of producers make records of an application's values, and queue them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, SupportsIndex

from ottla.clients.producer.bulk import (
    DEFAULT_BATCH_BYTES,
    BulkFuture,
    RowSender,
    largest_size,
    serialized,
)
from ottla.clients.producer.partitioner import CustomPartitioner, partition_for_key
from ottla.clients.producer.producer_batch import (
    RECORD_OVERHEAD,
    Headers,
    ProducerBatch,
    RecordFuture,
    headers_size,
)
from ottla.clients.producer.producer_interceptors import ProducerInterceptors
from ottla.clients.serialization import encoded_text, serializer_of, to_bytes
from ottla.compiled import mypyc_attr
from ottla.config.client_config import ProducerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.topic_name import validate_topic_name
from ottla.record.record_batch import BATCH_OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clients.producer.producer_core import ProducerCore
    from ottla.clients.producer.record_accumulator import (
        PartitionQueue,
        RecordAccumulator,
        TopicQueues,
    )
    from ottla.clients.producer.transactions import Transactions
    from ottla.record.rows import EncodedRecords
    from ottla.runtime import Runtime

HeadersLike = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | str | None]]
MAX_TIMESTAMP_MS = 2**63 - 1
MAX_FIRST_PARTITION: Final = 2**16
"""Calls of `send_values` begin with one partition or another, so that topics fill evenly."""


@mypyc_attr(allow_interpreted_subclasses=True)  # producers, which programs extend
class RecordSending(ABC):
    """A producer but for its waiting: `_learn` and `_new_partition` get metadata that are missing.

    A subclass sets `_core`, and the parts of it that each record needs, when it opens.
    """

    _core: ProducerCore
    _accumulator: RecordAccumulator
    _topics: dict[str, TopicQueues]
    _transactions: Transactions | None
    _now_ms: Callable[[], int]
    _is_closed = False

    def __init__(self, given: dict[str, Any]) -> None:
        """ConfigError if one of the given settings is wrong."""
        self._config = config = ProducerConfig.parse(given)
        self._serialize_key = serializer_of("key.serializer", config.key_serializer)
        self._serialize_value = serializer_of("value.serializer", config.value_serializer)
        self._partitioner = (
            None
            if config.partitioner_class is None
            else CustomPartitioner(config.partitioner_class, given)
        )
        self._interceptors = ProducerInterceptors.of(config.interceptor_classes)
        # With the batch around it, or a broker with the same limit would refuse the record.
        self._max_record_size = min(config.max_request_size, config.buffer_memory) - BATCH_OVERHEAD

    def _use(self, core: ProducerCore) -> None:
        """Send by a core from now on."""
        self._core = core
        self._accumulator = core.accumulator
        self._topics = core.accumulator.topics
        self._transactions = core.transactions
        self._now_ms = core.runtime.clock.now_ms

    @abstractmethod
    def _learn(self, topic: Any) -> TopicQueues:
        """The queues of a topic that is used for the first time; KafkaError if it cannot be one."""

    @abstractmethod
    def _new_partition(self, queues: TopicQueues, partition: int) -> PartitionQueue:
        """The queue of an unknown partition, which may have been added; KafkaError if it was not"""

    @abstractmethod
    def _post(self, callback: Callable[[], object]) -> None:
        """Have the loop call `callback`."""

    def _put(
        self,
        topic: Any,
        value: Any,
        key: Any,
        headers: HeadersLike,
        partition: Any,
        timestamp_ms: Any,
        on_delivery: Any,
    ) -> RecordFuture:
        """Queue a record; an error means that the open transaction must be aborted.

        A program may give anything, and is told by an error of ours what is wrong with it.
        """
        try:
            given_key, given_value = key, value
            if self._serialize_key is not None:
                key = self._serialize_key(topic, key)
            elif key is not None and type(key) is not bytes:
                key = to_bytes("key", key)
            if self._serialize_value is not None:
                value = self._serialize_value(topic, value)
            elif value is not None and type(value) is not bytes:
                value = to_bytes("value", value)
            if self._is_closed:
                raise RuntimeError("the producer is closed")
            if self._transactions is not None:
                self._transactions.check_may_send()
            size = RECORD_OVERHEAD
            if key is not None:
                size += len(key)
            if value is not None:
                size += len(value)
            pairs: Headers = ()
            if headers:
                pairs = checked_headers(headers)
                size += headers_size(pairs)
            if size > self._max_record_size:
                raise too_large(topic, size, self._config)
            queues = self._topics.get(topic) or self._learn(topic)
            if partition is None and self._partitioner is not None:
                record = (topic, given_key, key, given_value, value)
                partition = self._partitioner.choose(record, self._core.metadata.cluster)
            if on_delivery is not None and not callable(on_delivery):
                reason = f"on_delivery={on_delivery!r}: must be a function of metadata and error"
                raise KafkaError(ErrorCode.INVALID_RECORD, reason)
            is_sticky = partition is None and key is None
            queue = None if is_sticky else self._queue(queues, partition, key)
            stamp = self._now_ms() if timestamp_ms is None else checked_timestamp(timestamp_ms)
            record_of_batch = (stamp, key, value, pairs)
            return self._accumulator.append(queues, queue, record_of_batch, size, on_delivery)
        except KafkaError as error:
            self._note_refusal(error)
            raise
        except TypeError:
            with self._refusals_noted():
                check_place(topic, partition)
            raise

    def _queue(
        self, queues: TopicQueues, partition: Any, key: bytes | None
    ) -> PartitionQueue | None:
        """The queue for a record that has a partition or a key; None for the sticky one."""
        if partition is None:
            if key is None or self._config.partitioner_ignore_keys:
                return None
            else:
                partition = partition_for_key(key, len(queues.partitions))
        queue = queues.queues.get(partition)
        return self._new_partition(queues, partition) if queue is None else queue

    # Many at once

    def _wants_each(self) -> bool:
        """Whether somebody has a say in each record, which then goes its way alone."""
        return (
            self._interceptors is not None
            or self._partitioner is not None
            or self._config.partitioner_ignore_keys
        )

    def _plain(
        self, topic: str, values: Iterable[Any], keys: Iterable[Any] | None
    ) -> tuple[list[bytes | None], list[bytes | None] | None]:
        """Values and keys as bytes; KafkaError if one of the records is too large."""
        plain = serialized(topic, "value", values, self._serialize_value)
        plain_keys = None
        if keys is not None:
            plain_keys = serialized(topic, "key", keys, self._serialize_key)
        self._check_size(topic, largest_size(plain, plain_keys))
        return plain, plain_keys

    def _check_size(self, topic: str, size: int) -> None:
        if size > self._max_record_size:
            raise too_large(topic, size, self._config)

    def _check_encoded(self, topic: str, content: EncodedRecords) -> None:
        """Refuse a batch that cannot be queued."""
        if self._is_closed:
            raise RuntimeError("the producer is closed")
        if self._transactions is not None:
            self._transactions.check_may_send()
        self._check_size(topic, len(memoryview(content.payload)))

    def _partitions(self, topic: str) -> tuple[int, Sequence[int]]:
        """How many partitions a topic has, and those with a leader; known ones are not asked for.

        A callback in the I/O thread may send to known topics.
        """
        queues = self._topics.get(topic) or self._learn(topic)
        return len(queues.partitions), queues.available

    def _row_sender(
        self, send_encoded: Callable[[str, EncodedRecords], ProducerBatch]
    ) -> RowSender:
        config, first = self._config, self._runtime.random.randrange(MAX_FIRST_PARTITION)
        size = config.batch_size if config.is_given("batch.size") else DEFAULT_BATCH_BYTES
        return RowSender(self._partitions, send_encoded, size, self._max_record_size, first)

    def _stamp(self, timestamp_ms: Any) -> int:
        return self._now_ms() if timestamp_ms is None else checked_timestamp(timestamp_ms)

    def _bulk(self, parts: Sequence[ProducerBatch | RecordFuture]) -> BulkFuture:
        return BulkFuture(self._runtime.clock, parts)

    @property
    def _runtime(self) -> Runtime:
        return self._core.runtime

    # Records that were refused

    @contextmanager
    def _refusals_noted(self) -> Iterator[None]:
        """An open transaction can only be aborted after some of the records were refused."""
        try:
            yield
        except KafkaError as error:
            self._note_refusal(error)
            raise
        except (TypeError, ValueError) as error:
            self._note_refusal(KafkaError(ErrorCode.INVALID_RECORD, str(error)))
            raise

    def _note_refusal(self, error: KafkaError) -> None:
        """A record was not taken: if a transaction is open, it can only be aborted.

        Nothing is waited for: this may be the I/O thread, and the transaction ends later.
        """
        if self._transactions is not None:
            self._post(partial(self._transactions.note_refusal, error))


def check_place(topic: object, partition: object) -> None:
    """Raise a KafkaError unless these can be a topic's name and a partition's number, or None."""
    validate_topic_name(topic)
    if partition is not None and not isinstance(partition, SupportsIndex):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"partition={partition!r}: must be the number of a partition, or None",
        )


def no_partition(queues: TopicQueues, partition: object) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"partition={partition!r}: topic {queues.topic} has {len(queues.partitions)}",
    )


def checked_headers(headers: HeadersLike) -> Headers:
    """Headers as pairs of str and bytes or None; values may be given as text."""
    pairs: Iterable[Any] = headers.items() if isinstance(headers, Mapping) else headers
    try:
        return tuple([checked_header(pair) for pair in pairs])
    except TypeError:
        reason = f"headers={headers!r}: must be a mapping, or pairs of a key and a value"
        raise KafkaError(ErrorCode.INVALID_RECORD, reason) from None


def checked_header(pair: Any) -> tuple[str, bytes | None]:
    try:
        name, value = pair
    except (TypeError, ValueError):
        reason = f"header {pair!r}: must be a pair of a key and a value"
        raise KafkaError(ErrorCode.INVALID_RECORD, reason) from None
    if not isinstance(name, str):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"header key {name!r}: must be a str")
    if type(name) is not str or not name.isascii():
        name = encoded_text("header key", name).decode()  # or the batch would fail with it
    if value is not None and type(value) is not bytes:
        value = to_bytes(f"header {name}", value)
    return name, value


def checked_timestamp(timestamp_ms: object) -> int:
    if not isinstance(timestamp_ms, int) or not 0 <= timestamp_ms <= MAX_TIMESTAMP_MS:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp_ms={timestamp_ms!r}: must be a whole number of milliseconds since 1970",
        )
    return timestamp_ms


def too_large(topic: str, size: int, config: ProducerConfig) -> KafkaError:
    size += BATCH_OVERHEAD
    name = "max.request.size" if size > config.max_request_size else "buffer.memory"
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a record of {size} bytes for topic {topic} is larger than {name}={config.text_of(name)}",
    )
