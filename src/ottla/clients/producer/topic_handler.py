"""Log records of Python's `logging` as records of a topic.

An application must not wait for a broker because it logs, nor fail because none is there. So
`emit` puts a line into a queue, and a thread of the handler's own sends the lines with a
`Producer`. While that is not possible the thread tries again with growing pauses and the queue
fills; lines beyond its size are counted, and the topic says so as soon as it can be written.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from ottla.clients.client_settings import Servers, merge_settings
from ottla.clients.producer.producer import Producer
from ottla.clients.producer.producer_batch import RecordMetadata
from ottla.config.client_config import ProducerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.clock import SystemClock
from ottla.runtime.io_thread import Condition, run_in_thread
from ottla.structs import NamedTuple

FIRST_PAUSE_S: Final = 0.1
LAST_PAUSE_S: Final = 10.0
NEVER_SENT: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD)
MAX_BLOCK_MS: Final = 1000
"""Where no setting says it; the handler asks again, and looks at whether it is closed meanwhile."""
DROPPED: Final = "%d log records before this one were dropped"
CLOCK: Final = SystemClock()

KeyOf = Callable[[logging.LogRecord], Any]


class Line(NamedTuple):
    """One log record as it is sent, and how many between it and the one before were dropped."""

    timestamp_ms: int
    key: Any
    value: bytes
    dropped_count: int = 0


class TopicHandler(logging.Handler):
    """A `logging.Handler` that sends each log record, formatted, to a topic.

        logging.getLogger().addHandler(TopicHandler("logs", "localhost:9092"))

    In `logging.config.dictConfig` its class is `ottla.TopicHandler`, and the arguments are further
    entries: `topic`, `bootstrap_servers`, `queue_size`, and every setting of a producer as a
    keyword (`acks`, `compression_type`, `security_protocol`) or, with dots, in `settings`.

    Neither logging nor leaving the program raises an error of the brokers, and only leaving it
    waits: for at most `timeout_s` seconds, until queued records are sent. `queue_size` log records
    wait while brokers cannot be reached; `dropped_count` says how many did not fit, were larger
    than max.request.size or could not be delivered. `key` makes the key of a log record; without
    one the records are spread over all partitions. The timestamp is that of the log record.
    """

    def __init__(
        self,
        topic: str,
        bootstrap_servers: Servers = None,
        settings: Mapping[str, Any] | None = None,
        *,
        key: KeyOf | None = None,
        queue_size: int = 10_000,
        timeout_s: float = 5.0,
        **keywords: Any,
    ) -> None:
        super().__init__()
        if queue_size < 1:
            raise ValueError(f"queue_size={queue_size}: must be at least 1")
        given = merge_settings(bootstrap_servers, settings, keywords)
        own = {"client.id": f"{topic}-log-handler", "max.block.ms": MAX_BLOCK_MS}
        self._settings = own | given
        config = ProducerConfig.parse(self._settings)  # now, and not when the first line is sent
        self.topic = topic
        self.queue_size = queue_size
        self.timeout_s = timeout_s
        self._key_of = key
        # The log records of these threads are about sending, and would be sent, and so on.
        self._own_threads = (f"{config.client_id}-sender", f"{config.client_id}-producer")
        self._begin()

    def _begin(self) -> None:
        """Nothing is queued; the thread starts with the first line."""
        self._process_id = os.getpid()
        self._changed = Condition()
        self._waiting: deque[Line] = deque()
        self._thread: Future[None] | None = None
        self._end_ms: int | None = None
        """When all must have been sent, once the handler is closed."""
        self.sent_count = self.dropped_count = 0
        self._taken_count = self._open_count = 0
        """Lines taken from the queue, and those of them that the producer has."""
        self._unsaid_count = 0
        """Lines that were dropped since the last one that was queued."""

    def filter(self, record: logging.LogRecord) -> Any:
        """False also for log records of the handler's own threads."""
        return record.threadName not in self._own_threads and super().filter(record)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the log record; never waits for a broker."""
        if self._process_id != os.getpid():
            self._begin()  # neither thread nor connection has followed into this child
        try:
            line = self._line(record)
            with self._changed:
                if self._end_ms is not None or len(self._waiting) >= self.queue_size:
                    self.dropped_count += 1
                    self._unsaid_count += 1
                    return
                self._waiting.append(line._replace(dropped_count=self._unsaid_count))
                self._unsaid_count = 0
                if self._thread is None:
                    self._thread = run_in_thread(self._send_all, self._own_threads[0])
                self._changed.notify_all()
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Wait until all that is queued is delivered, for at most `timeout_s` seconds."""
        if self._process_id == os.getpid():
            with self._changed:
                count = self._taken_count + len(self._waiting)
                self._changed.wait_for(
                    lambda: self._taken_count - self._open_count >= count, self.timeout_s
                )

    def close(self) -> None:
        """Send the queued records, for at most `timeout_s` seconds; the rest counts as dropped."""
        if self._process_id == os.getpid():
            with self._changed:
                if self._end_ms is None:
                    self._end_ms = CLOCK.monotonic_ms() + int(self.timeout_s * 1000)
                self._changed.notify_all()
            if self._thread is not None:
                try:
                    self._thread.result(self.timeout_s + 2 * MAX_BLOCK_MS / 1000)
                except TimeoutError:
                    pass  # it is a daemon, and keeps no process alive
        super().close()

    def _line(self, record: logging.LogRecord) -> Line:
        key = None if self._key_of is None else self._key_of(record)
        return Line(int(record.created * 1000), key, self.format(record).encode(errors="replace"))

    # In the thread

    def _send_all(self) -> None:
        """Hand one line after the other to a producer, until the handler is closed."""
        producer: Producer | None = None
        pause_s = FIRST_PAUSE_S
        while (line := self._first_waiting()) is not None:
            try:
                producer = producer or Producer(self._settings)
                self._hand_over(producer, line)
                pause_s = FIRST_PAUSE_S
            except KafkaError as error:
                if error.error in NEVER_SENT:
                    self._drop_first()
                    continue
                with self._changed:
                    self._changed.wait_for(lambda: self._end_ms is not None, pause_s)
                pause_s = min(2 * pause_s, LAST_PAUSE_S)
            except Exception:  # such as a key that is none: the others must not wait behind it
                self._drop_first()
        with self._changed:
            self.dropped_count += len(self._waiting)
            self._waiting.clear()
        if producer is not None:
            producer.close(self._left_ms / 1000)

    def _first_waiting(self) -> Line | None:
        """The line that is next; None once the handler is closed and empty, or out of time."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._end_ms is not None)
            if not self._waiting or not self._left_ms:
                return None
            return self._waiting[0]

    def _hand_over(self, producer: Producer, line: Line) -> None:
        if line.dropped_count:
            producer.send(self.topic, self._notice(line.dropped_count))
            with self._changed:
                line = self._waiting[0] = line._replace(dropped_count=0)
        producer.send(
            self.topic,
            line.value,
            key=line.key,
            timestamp_ms=line.timestamp_ms,
            on_delivery=self._on_delivery,
        )
        with self._changed:
            self._waiting.popleft()
            self._taken_count += 1
            self._open_count += 1  # which a delivery may have counted off already

    def _notice(self, count: int) -> bytes:
        record = logging.makeLogRecord({"msg": DROPPED, "args": (count,)})
        record.name, record.levelno, record.levelname = __name__, logging.WARNING, "WARNING"
        try:
            return self.format(record).encode(errors="replace")
        except Exception:  # a formatter may want fields that only the application's records have
            return record.getMessage().encode()

    def _on_delivery(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        with self._changed:
            self._open_count -= 1
            if error is None:
                self.sent_count += 1
            else:
                self.dropped_count += 1
                self._unsaid_count += 1
            self._changed.notify_all()

    def _drop_first(self) -> None:
        with self._changed:
            self._waiting.popleft()
            self._taken_count += 1
            self.dropped_count += 1
            self._unsaid_count += 1
            self._changed.notify_all()

    @property
    def _left_ms(self) -> int:
        """How long may be worked on still, once the handler is closed."""
        return 1 if self._end_ms is None else max(0, self._end_ms - CLOCK.monotonic_ms())
