"""The topology of an application: what it reads and what it writes. Pure: no Spark runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.streams.kstream import KStream
from ottla.streams.ktable import KTable
from ottla.streams.naming import check_application_id, internal_topic, is_internal
from ottla.streams.records import Build, Inputs, Source
from ottla.streams.serdes import Serde, Serdes


@dataclass(frozen=True)
class Sink:
    """A topic that is written, by one query. `name` is unique in its application."""

    name: str
    topic: str
    build: Build


@dataclass
class StreamsBuilder:
    """Collects the sinks of an application, in the order in which they are declared."""

    application_id: str
    sinks: list[Sink] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        check_application_id(self.application_id)

    def stream(
        self,
        topic: str,
        key: Serde | None = None,
        value: Serde | None = None,
        *,
        timestamp: str | None = None,
        skip_malformed: bool = False,
    ) -> KStream:
        """The records of a topic; keys and values are strings unless serdes are given."""
        source = _source(topic, key, value, timestamp, skip_malformed)
        return self._stream(topic, lambda inputs: source)

    def table(
        self,
        topic: str,
        key: Serde | None = None,
        value: Serde | None = None,
        *,
        timestamp: str | None = None,
        skip_malformed: bool = False,
    ) -> KTable:
        """The newest value of each key of a topic."""
        source = _source(topic, key, value, timestamp, skip_malformed)
        return self._table(topic, lambda inputs: source)

    def internal_topic(self, name: str) -> str:
        """The name of a topic that belongs to the application, and goes when it is reset."""
        return internal_topic(self.application_id, name)

    @property
    def internal_topics(self) -> list[str]:
        """The topics that the application makes for itself."""
        return [each.topic for each in self.sinks if is_internal(each.topic, self.application_id)]

    def add_sink(self, topic: str, build: Build) -> None:
        """Add a topic to write."""
        earlier = sum(each.topic == topic for each in self.sinks)
        name = f"{topic}-{earlier + 1}" if earlier else topic
        self.sinks.append(Sink(name, topic, build))

    def written_stream(self, topic: str) -> KStream:
        """The records of the topic that the last sink writes."""
        return self._stream(topic, self._source_of_last_sink())

    def written_table(self, topic: str) -> KTable:
        """The table that the last sink writes."""
        return self._table(topic, self._source_of_last_sink())

    def _stream(self, topic: str, source: Callable[[Inputs], Source]) -> KStream:
        return KStream(self, lambda inputs: source(inputs).records(inputs.stream(topic)))

    def _table(self, topic: str, source: Callable[[Inputs], Source]) -> KTable:
        return KTable(
            self,
            lambda inputs: source(inputs).records(inputs.stream(topic)),
            lookup=lambda inputs: source(inputs).newest(inputs.table(topic)),
        )

    def _source_of_last_sink(self) -> Callable[[Inputs], Source]:
        sink = self.sinks[-1]

        def source(inputs: Inputs) -> Source:
            records = sink.build(inputs)  # for its serdes, which depend on the column types
            return Source(sink.topic, records.key, records.value)

        return source


def _source(
    topic: str, key: Serde | None, value: Serde | None, timestamp: str | None, skip_malformed: bool
) -> Source:
    string = Serdes.string()
    return Source(topic, key or string, value or string, timestamp, skip_malformed)
