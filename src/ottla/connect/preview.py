"""What a connector would do, without doing it: reads, transforms, converts, and writes nothing.

A source is read from its beginning, or from an offset that is given; a sink's topics are read by a
consumer without a group. Neither stores offsets, and a sink's `put` is not called. A source that
changes something by reading alone is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, Final, NamedTuple, cast

from ottla.clients.consumer.consumer import Consumer
from ottla.config.connect_config import SinkConnectorConfig, StandaloneConfig
from ottla.config.java_regex import java_pattern
from ottla.connect.connector import Place, SourceBatch, SourceConnector, SourceTaskContext
from ottla.connect.connector_settings import parse_connector
from ottla.connect.conversion import Conversion, make_converter, make_transforms
from ottla.connect.data import SourceRecord
from ottla.connect.offset_storage import partition_key
from ottla.connect.plugins import Plugins
from ottla.connect.tolerance import Operation, RecordFailure, SkippedRecordError, Stage, Tolerance
from ottla.errors import ConfigError
from ottla.metrics.metrics_registry import Beans
from ottla.runtime import Clock, Runtime
from ottla.runtime.io_thread import Event, IoThread
from ottla.runtime.timing import Deadline
from ottla.structs import TopicPartition

LOOK_MS: Final = 400


class PreviewedRecord(NamedTuple):
    """A record as it would arrive, or an error in its place."""

    topic: str
    key: Any
    value: Any
    place: str
    """Where it is from: the partition and offset of a source, or of Kafka."""


class PreviewContext(SourceTaskContext):
    """The context of a source that is only looked at."""

    transaction = None

    def __init__(
        self, properties: Mapping[str, str], offsets: Mapping[Any, Place], clock: Clock
    ) -> None:
        self.beans = Beans(clock)
        self.name = properties["name"]
        self.properties = properties
        self._offsets = offsets
        self.is_idle = False
        self._is_over = Event()

    @property
    def is_stopping(self) -> bool:
        return self._is_over.is_set()

    def wait(self, seconds: float) -> bool:
        """A source that waits has nothing more now: what there is was seen."""
        self.is_idle = True
        return self._is_over.is_set()

    def request_task_reconfiguration(self) -> None:
        """Nothing is split here."""

    def offset(self, partition: Place) -> dict[str, Any] | None:
        found = self._offsets.get(partition_key(partition))
        return None if found is None else dict(found)

    def fail(self, error: BaseException) -> None:
        raise error


class Preview:
    """Looks at one connector, with the converters of a worker's properties."""

    def __init__(self, worker: Mapping[str, str], properties: Mapping[str, str]) -> None:
        self._worker = (StandaloneConfig.parse(worker), worker)
        self._plugins = Plugins(self._worker[0].plugin_path)
        self._class = self._plugins.connector(properties.get("connector.class", ""))
        self._properties = {"name": self._class.__name__, **properties}
        if reason := getattr(self._class, "no_preview", ""):
            raise ConfigError(f"connector.class={self._class.__name__}: has no preview: {reason}")
        self._config, self._settings = parse_connector(self._class, self._properties)

    def records(self, most: int, limit_ms: int) -> Iterator[PreviewedRecord]:
        """The first records, at most so many; fewer if there are no more for now."""
        with closing(IoThread("connect-preview")) as io:
            read = self._of_source if self._class.kind == "source" else self._of_topics
            yield from islice(read(io.runtime, limit_ms), most)

    def _conversion(self) -> Conversion:
        made = (self._config, self._properties)
        key, value, header = (
            make_converter(self._plugins, kind, self._worker, made)
            for kind in ("key", "value", "header")
        )
        chain = make_transforms(self._plugins, self._config, self._properties)
        return Conversion((key, value, header), chain)

    def _tolerance(self, runtime: Runtime) -> Tolerance:
        return Tolerance(self._config, runtime, lambda seconds: True)

    def _of_source(self, runtime: Runtime, limit_ms: int) -> Iterator[PreviewedRecord]:
        conversion, tolerance = self._conversion(), self._tolerance(runtime)
        context = PreviewContext(self._properties, {}, runtime.clock)
        planned = self._class(self._settings, context).tasks(self._config.tasks_max)
        for task in planned:
            _, settings = parse_connector(self._class, {**self._properties, **task})
            context = PreviewContext(self._properties, {}, runtime.clock)
            source = cast(SourceConnector, self._class(settings, context))
            source.start()
            try:
                deadline = Deadline(runtime.clock, limit_ms)
                while not context.is_idle and not deadline.has_passed:
                    for record in source.poll() or ():
                        yield from _encoded(record, conversion, tolerance)
            finally:
                source.stop()

    def _of_topics(self, runtime: Runtime, limit_ms: int) -> Iterator[PreviewedRecord]:
        conversion, tolerance = self._conversion(), self._tolerance(runtime)
        config = cast(SinkConnectorConfig, self._config)
        servers = ",".join(self._worker[0].bootstrap_servers)
        with Consumer(servers, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
            partitions = _partitions(consumer, config)
            consumer.assign(partitions)
            ends = {p: n for p, n in consumer.end_offsets(partitions).items() if n > 0}
            deadline = Deadline(runtime.clock, limit_ms)
            while ends and not deadline.has_passed:
                for record in consumer.poll(LOOK_MS):
                    place = f"{record.topic}-{record.partition}@{record.offset}"
                    try:
                        made = conversion.decode(record, tolerance)
                    except SkippedRecordError:
                        continue
                    if made is not None:
                        yield PreviewedRecord(made.topic, made.key, made.value, place)
                ends = {p: n for p, n in ends.items() if consumer.position(p) < n}


def _encoded(
    record: SourceRecord | SourceBatch, conversion: Conversion, tolerance: Tolerance
) -> Iterator[PreviewedRecord]:
    place = f"{dict(record.source_partition)}@{dict(record.source_offset)}"
    if isinstance(record, SourceBatch):
        text = f"a batch of {record.content.record_count} records"
        yield PreviewedRecord(record.topic, None, text, place)
        return
    if record.error is not None:
        operation = Operation(Stage.TASK_POLL, "the source", record)
        tolerance.report(RecordFailure(operation, record.error, 1))
        return
    try:
        made = conversion.encode(record, tolerance)
    except SkippedRecordError:
        return
    if made is not None:
        yield PreviewedRecord(made.topic, _text(made.key), _text(made.value), place)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _partitions(consumer: Consumer, config: SinkConnectorConfig) -> Sequence[TopicPartition]:
    known = consumer.list_topics()
    if config.topics_regex:
        pattern: re.Pattern[str] = java_pattern(config.topics_regex)
        wanted = [topic for topic in known if pattern.fullmatch(topic)]
    else:
        wanted = list(config.topics)
    missing = [topic for topic in wanted if topic not in known]
    if missing:
        raise ConfigError(f"topics={','.join(missing)}: must be topics that are there")
    return [
        TopicPartition(topic, each.partition) for topic in sorted(wanted) for each in known[topic]
    ]
