"""The metrics of a producer or consumer, under the names of Kafka's clients.

Counts are taken for each request and each batch, never for a record. Rates are those of the last
30 to 60 seconds, as with Kafka's metrics.sample.window.ms and metrics.num.samples; a metric
without a value yet is NaN.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.metrics.sensors import WINDOW_MS, Counted, WindowedValues
from ottla.protocol.api_keys import ApiKey
from ottla.runtime import Runtime
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from ottla.clients.producer.producer_batch import ProducerBatch

Metrics = dict[str, dict[str, float]]
"""The values of metrics, by the name of a group, such as `producer-metrics`, and their own."""

LATENCIES: Final[dict[ApiKey, tuple[str, str]]] = {
    ApiKey.FETCH: ("consumer-fetch-manager-metrics", "fetch"),
    ApiKey.OFFSET_COMMIT: ("consumer-coordinator-metrics", "commit"),
    ApiKey.JOIN_GROUP: ("consumer-coordinator-metrics", "join"),
    ApiKey.SYNC_GROUP: ("consumer-coordinator-metrics", "sync"),
    ApiKey.HEARTBEAT: ("consumer-coordinator-metrics", "heartbeat"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ("consumer-coordinator-metrics", "heartbeat"),
}
"""The requests that have a metric of their own: its group, and the beginning of its name."""

THROTTLED: Final = {
    ApiKey.PRODUCE: ("producer-metrics", "produce"),
    ApiKey.FETCH: ("consumer-fetch-manager-metrics", "fetch"),
}


class RequestTimes:
    """The requests of a client: how many there were, and how long their answers took.

    `throttled` are the delays in the responses of brokers.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.clock
        self.sent = self.answered = 0
        self.latency = WindowedValues()
        self.by_api: dict[ApiKey, WindowedValues] = {}
        self.throttled: dict[ApiKey, WindowedValues] = {}

    def watch(self, api_key: ApiKey, answer: asyncio.Future[object]) -> None:
        """A request was sent."""
        self.sent += 1
        answer.add_done_callback(partial(self._note, api_key, self._clock.monotonic_ms()))

    def _note(self, api_key: ApiKey, began_ms: int, answer: asyncio.Future[object]) -> None:
        if answer.cancelled() or answer.exception() is not None:
            return
        now_ms = self._clock.monotonic_ms()
        self.answered += 1
        self.latency.record(now_ms - began_ms, now_ms)
        if api_key in LATENCIES:
            by_api = self.by_api.setdefault(api_key, WindowedValues())
            by_api.record(now_ms - began_ms, now_ms)
        delay_ms = getattr(answer.result(), "throttle_time_ms", None)
        if delay_ms is not None:
            throttled = self.throttled.setdefault(api_key, WindowedValues())
            throttled.record(delay_ms, now_ms)


def average_and_maximum(name: str, values: WindowedValues, now_ms: int) -> dict[str, float]:
    """The values of `...-avg` and `...-max`."""
    return {f"{name}-avg": values.average(now_ms), f"{name}-max": values.maximum(now_ms)}


class ClientMetrics:
    """The metrics that producers and consumers have in common: requests and connections."""

    def __init__(
        self,
        runtime: Runtime,
        group: str,
        times: RequestTimes,
        connection_count: Callable[[], int],
        in_flight: Callable[[], int],
    ) -> None:
        self.group = group
        self._clock = runtime.clock
        self._times = times
        self._connection_count, self._in_flight = connection_count, in_flight
        self._requests = Counted(
            self.now_ms, request=lambda: times.sent, response=lambda: times.answered
        )
        self._all = [self._requests]
        self._timer = runtime.scheduler.call_every(WINDOW_MS, self._tick)

    @property
    def now_ms(self) -> int:
        return self._clock.monotonic_ms()

    def count(self, **reads: Callable[[], float]) -> Counted:
        """Numbers whose windows are kept from now on."""
        counted = Counted(self.now_ms, **reads)
        self._all.append(counted)
        return counted

    def _tick(self) -> None:
        for counted in self._all:
            counted.tick(self.now_ms)

    def read(self) -> Metrics:
        """Everything, as it is now."""
        now_ms, times = self.now_ms, self._times
        own = {
            **self._requests.shown(now_ms),
            **average_and_maximum("request-latency", times.latency, now_ms),
            "connection-count": self._connection_count(),
            "requests-in-flight": self._in_flight(),
        }
        found: Metrics = {self.group: own}
        for api_key, values in times.by_api.items():
            group, name = LATENCIES[api_key]
            shown = average_and_maximum(f"{name}-latency", values, now_ms)
            found.setdefault(group, {}).update(shown, **{f"{name}-total": values.count})
        for api_key, (group, name) in THROTTLED.items():
            if api_key in times.throttled:
                values = times.throttled[api_key]
                shown = average_and_maximum(f"{name}-throttle-time", values, now_ms)
                found.setdefault(group, {}).update(shown)
        return found

    def close(self) -> None:
        self._timer.cancel()


class TopicCounts:
    """The records that a producer has sent to one topic."""

    __slots__ = ("byte_count", "error_count", "record_count", "retry_count")

    def __init__(self) -> None:
        self.record_count = self.byte_count = self.error_count = self.retry_count = 0


class ProducerMetrics:
    """Records and batches that a producer sends, in all and by topic."""

    def __init__(
        self, common: ClientMetrics, buffer_bytes: int, available: Callable[[], int]
    ) -> None:
        self._common = common
        self._buffer_bytes, self._available = buffer_bytes, available
        self._batch_size = WindowedValues()
        self._queue_time = WindowedValues()
        self._records_per_batch = WindowedValues()
        self._by_topic: dict[str, tuple[TopicCounts, Counted]] = {}
        self._total = TopicCounts()
        self._counted = self._count(self._total)

    def _count(self, counts: TopicCounts) -> Counted:
        return self._common.count(
            record_send=lambda: counts.record_count,
            byte=lambda: counts.byte_count,
            record_error=lambda: counts.error_count,
            record_retry=lambda: counts.retry_count,
        )

    def _counts_of(self, topic: str) -> tuple[TopicCounts, TopicCounts]:
        if topic not in self._by_topic:
            counts = TopicCounts()
            self._by_topic[topic] = counts, self._count(counts)
        return self._total, self._by_topic[topic][0]

    def on_sent(self, batch: ProducerBatch) -> None:
        """A batch is on its way, for the first time or again."""
        record_count = batch.record_count
        for counts in self._counts_of(batch.topic_partition.topic):
            if batch.attempts > 1:
                counts.retry_count += record_count
            else:
                counts.record_count += record_count
                counts.byte_count += len(batch.encoded or b"")
        if batch.attempts == 1:
            now_ms = self._common.now_ms
            self._batch_size.record(len(batch.encoded or b""), now_ms)
            self._queue_time.record(now_ms - batch.created_ms, now_ms)
            self._records_per_batch.record(record_count, now_ms)

    def on_failed(self, batch: ProducerBatch) -> None:
        """The records of a batch were given up."""
        for counts in self._counts_of(batch.topic_partition.topic):
            counts.error_count += batch.record_count

    def read(self) -> Metrics:
        """`producer-metrics`, and `producer-topic-metrics.<topic>` for each topic."""
        now_ms = self._common.now_ms
        found = self._common.read()
        found[self._common.group].update(
            {
                **self._counted.shown(now_ms),
                **average_and_maximum("batch-size", self._batch_size, now_ms),
                **average_and_maximum("record-queue-time", self._queue_time, now_ms),
                "records-per-request-avg": self._records_per_batch.average(now_ms),
                "buffer-total-bytes": self._buffer_bytes,
                "buffer-available-bytes": self._available(),
            }
        )
        for topic, (_, counted) in self._by_topic.items():
            found[f"producer-topic-metrics.{topic}"] = counted.shown(now_ms)
        return found


class ConsumerMetrics:
    """Records and fetches of a consumer, and how far it is behind."""

    GROUP: Final = "consumer-fetch-manager-metrics"

    def __init__(
        self, common: ClientMetrics, lags: Callable[[], dict[TopicPartition, int]]
    ) -> None:
        self._common = common
        self._lags = lags
        self.record_count = self.byte_count = self.fetch_count = 0
        self._fetch_size = WindowedValues()
        self._records_per_poll = WindowedValues()
        self._last_poll_ms = common.now_ms
        self._between_polls = WindowedValues()
        self._counted = common.count(
            records_consumed=lambda: self.record_count,
            bytes_consumed=lambda: self.byte_count,
            fetch=lambda: self.fetch_count,
        )

    def on_poll(self) -> None:
        """The application asks for records."""
        now_ms = self._common.now_ms
        self._between_polls.record(now_ms - self._last_poll_ms, now_ms)
        self._last_poll_ms = now_ms

    @property
    def ms_since_poll(self) -> int:
        return self._common.now_ms - self._last_poll_ms

    def on_records(self, count: int) -> None:
        """The application gets records."""
        if count:
            self.record_count += count
            self._records_per_poll.record(count, self._common.now_ms)

    def on_fetched(self, size: int) -> None:
        """An answer to a fetch has come, with so many bytes of records."""
        self.fetch_count += 1
        self.byte_count += size
        self._fetch_size.record(size, self._common.now_ms)

    def read(self, assigned_count: int) -> Metrics:
        """The groups of a consumer; those of partitions are `<group>.<topic>-<partition>`."""
        now_ms = self._common.now_ms
        found = self._common.read()
        found[self._common.group].update(
            {
                **average_and_maximum("time-between-poll", self._between_polls, now_ms),
                "last-poll-seconds-ago": (now_ms - self._last_poll_ms) / 1000,
            }
        )
        lags = self._lags()
        found.setdefault(self.GROUP, {}).update(
            {
                **self._counted.shown(now_ms),
                **average_and_maximum("fetch-size", self._fetch_size, now_ms),
                "records-per-request-avg": self._records_per_poll.average(now_ms),
                "records-lag-max": max(lags.values(), default=float("nan")),
            }
        )
        for partition, lag in lags.items():
            name = f"{self.GROUP}.{partition.topic}-{partition.partition}"
            found[name] = {"records-lag": lag}
        found.setdefault("consumer-coordinator-metrics", {})["assigned-partitions"] = assigned_count
        return found


def metric_lines(metrics: Metrics) -> list[str]:
    """The lines that Kafka's performance tests print for --print-metrics."""
    found = [
        (f"{group}:{name}", value)
        for group, named in sorted(metrics.items())
        for name, value in sorted(named.items())
    ]
    width = max((len(name) for name, _ in found), default=0)
    return [
        f"{'Metric Name':<{width}}  Value",
        *(f"{name:<{width}} : {value:.3f}" for name, value in found),
    ]
