"""Streams, tables and the topology that they make up; nothing runs until the application does.

They stand in one file because each makes the others: a stream is grouped into a table, a table
has a stream of changes, and all of them add to the builder that they came from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count as count_from
from typing import Any

from ottla.streams import operations
from ottla.streams.aggregates import Aggregation, aggregated
from ottla.streams.joins import (
    How,
    Joiner,
    joined_changes,
    joined_streams,
    joined_table,
    joined_tables,
)
from ottla.streams.naming import check_application_id, internal_topic, is_internal
from ottla.streams.operations import Function, is_python, returned_serde
from ottla.streams.records import Build, Inputs, Records, Source
from ottla.streams.serdes import Serde, Serdes
from ottla.streams.windows import JoinWindows, SessionWindows, Windows


class KTable:
    """Rows by key. `build` makes the changes; a change without a value deletes its key.

    `lookup` is the table at a moment; only tables that are topics have it. `final` makes only the
    last change of each window; only windowed tables have it.
    """

    def __init__(
        self,
        builder: StreamsBuilder,
        build: Build,
        *,
        lookup: Build | None = None,
        final: Build | None = None,
    ) -> None:
        self._builder = builder
        self.build = build
        self._lookup = lookup
        self._final = final

    def lookup(self, inputs: Inputs) -> Records:
        """The table as it is when a micro-batch begins."""
        if self._lookup is None:
            raise ValueError("a table that is computed has to be joined through(topic)")
        return self._lookup(inputs)

    def filter(self, predicate: Function) -> KTable:
        """The rows for which it holds; a row for which it no longer does is deleted."""
        return self._step(partial(operations.emptied, predicate=predicate))

    def map_values(self, function: Function, serde: Serde | None = None) -> KTable:
        """Another value for each row; a Python function gets the value alone."""
        step = partial(operations.with_table_values, function=function, serde=serde)
        return self._step(step)

    def suppress(self) -> KTable:
        """Only the final result of each window, once the window and its grace are over."""
        if self._final is None:
            raise ValueError("suppress: only windows have final results")
        return KTable(self._builder, self._final, final=self._final)

    def join(self, other: KTable, joiner: Function, serde: Serde | None = None) -> KTable:
        """The keys that both tables have, with both values joined."""
        return self._joined(other, "inner", Joiner(joiner, serde))

    def left_join(self, other: KTable, joiner: Function, serde: Serde | None = None) -> KTable:
        """The keys of this table; null on the right where the other has none."""
        return self._joined(other, "left", Joiner(joiner, serde))

    def outer_join(self, other: KTable, joiner: Function, serde: Serde | None = None) -> KTable:
        """The keys of either table."""
        return self._joined(other, "full_outer", Joiner(joiner, serde))

    def to_stream(self) -> KStream:
        """The changes as records."""
        return KStream(self._builder, self.build)

    def to(self, topic: str, key: Serde | None = None, value: Serde | None = None) -> None:
        """Write the changes to a topic."""
        self.to_stream().to(topic, key, value)

    def through(self, topic: str, key: Serde | None = None, value: Serde | None = None) -> KTable:
        """Write the changes to a topic, and continue with the table of that topic."""
        self.to(topic, key, value)
        return self._builder.written_table(topic)

    def _step(self, step: Callable[[Records], Records]) -> KTable:
        def after(build: Build | None) -> Build | None:
            return None if build is None else lambda inputs: step(build(inputs))

        changes = self.build
        return KTable(
            self._builder,
            lambda inputs: step(changes(inputs)),
            lookup=after(self._lookup),
            final=after(self._final),
        )

    def _joined(self, other: KTable, how: How, joiner: Joiner) -> KTable:
        return KTable(
            self._builder,
            lambda inputs: joined_changes(
                self.build(inputs), other.build(inputs), how, joiner, inputs.is_streaming
            ),
            lookup=lambda inputs: joined_tables(
                self.lookup(inputs), other.lookup(inputs), how, joiner
            ),
        )


class KGroupedStream:
    """Records by key, and the ways to aggregate them: over all time, or over windows.

    Records without a key or a value are left out, as by Kafka.
    """

    def __init__(
        self, builder: StreamsBuilder, build: Build, windows: Windows | None = None
    ) -> None:
        self._builder = builder
        self._build = build
        self._windows = windows

    def windowed_by(self, windows: Windows) -> KGroupedStream:
        """The same records, by key and window."""
        return KGroupedStream(self._builder, self._build, windows)

    def count(self) -> KTable:
        """How many records each key has: a long."""
        return self._table(Aggregation("count(1)", Serdes.long()))

    def reduce(self, function: Function, serde: Serde | None = None) -> KTable:
        """One value for each key: `(aggregate, value)` in Python, or an aggregate of SQL."""
        if is_python(function):
            return self._table(
                Aggregation(lambda key, value, aggregate: function(aggregate, value), serde)
            )
        return self._table(Aggregation(function, serde))

    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        serde: Serde | None = None,
    ) -> KTable:
        """Fold in Python over key, value and aggregate, beginning with `initializer()`."""
        wanted = serde or returned_serde(aggregator)
        return self._table(Aggregation(aggregator, wanted, initializer))

    def _table(self, how: Aggregation) -> KTable:
        windows = self._windows
        # Spark merges sessions, and can emit them only when they are over.
        is_final = isinstance(windows, SessionWindows)

        def changes(is_final: bool) -> Build:
            return lambda inputs: aggregated(
                self._build(inputs), windows, how, is_final, inputs.is_streaming
            )

        final = changes(True) if windows is not None else None
        return KTable(self._builder, changes(is_final), final=final)


Step = Callable[[Records], Records]


class KStream:
    """Records one after the other. Every method returns another stream and leaves this one as is.

    A `function` is an expression of SQL, a column of Spark, or a Python function of key and value.
    `serde` names its result type; without it, its annotation does, or the column's type; else the
    serde stays the same.
    """

    def __init__(self, builder: StreamsBuilder, build: Build) -> None:
        self._builder = builder
        self.build = build

    def filter(self, predicate: Function) -> KStream:
        """The records for which it holds."""
        return self._step(lambda records: operations.kept(records, predicate))

    def filter_not(self, predicate: Function) -> KStream:
        """The records for which it does not hold."""
        return self._step(lambda records: operations.kept(records, predicate, False))

    def map_values(self, function: Function, serde: Serde | None = None) -> KStream:
        """Another value for each record; a Python function gets the value alone."""
        return self._step(lambda records: operations.with_values(records, function, serde))

    def select_key(self, function: Function, serde: Serde | None = None) -> KStream:
        """Another key for each record."""
        return self._step(lambda records: operations.with_keys(records, function, serde))

    def map(
        self, function: Function, key: Serde | None = None, value: Serde | None = None
    ) -> KStream:
        """Another key and value: a struct of `key` and `value`, or a tuple."""
        serdes = (key, value)
        return self._step(lambda records: operations.with_pairs(records, function, serdes))

    def flat_map_values(self, function: Function, serde: Serde | None = None) -> KStream:
        """A record for each value in a list; a Python function gets the value alone."""
        return self._step(lambda records: operations.with_many_values(records, function, serde))

    def flat_map(
        self, function: Function, key: Serde | None = None, value: Serde | None = None
    ) -> KStream:
        """A record for each key and value in a list: an array of structs, or tuples."""
        serdes = (key, value)
        return self._step(
            lambda records: operations.with_pairs(records, function, serdes, many=True)
        )

    def peek(self, action: Callable[[Any, Any], object]) -> KStream:
        """Call a Python function with each key and value, in the worker that has them.

        Records that are processed again after a failure are passed to it again.
        """
        return self._step(lambda records: operations.seen(records, action))

    def branch(self, *predicates: Function) -> list[KStream]:
        """A stream for each predicate: the records that match it and no predicate before it."""
        branches, rest = [], self
        for predicate in predicates:
            branches.append(rest.filter(predicate))
            rest = rest.filter_not(predicate)
        return branches

    def merge(self, other: KStream) -> KStream:
        """The records of both, which must have the same types."""
        return KStream(
            self._builder,
            lambda inputs: operations.merged(self.build(inputs), other.build(inputs)),
        )

    def group_by_key(self) -> KGroupedStream:
        """Records by key; those without key or value do not take part."""
        return KGroupedStream(self._builder, self.build)

    def group_by(self, function: Function, serde: Serde | None = None) -> KGroupedStream:
        """Records by another key."""
        return self.select_key(function, serde).group_by_key()

    def join(
        self,
        other: KStream | KTable,
        joiner: Function,
        windows: JoinWindows | None = None,
        serde: Serde | None = None,
    ) -> KStream:
        """Records with those of another stream within `windows`, or with the row of a table."""
        return self._joined(other, "inner", Joiner(joiner, serde), windows)

    def left_join(
        self,
        other: KStream | KTable,
        joiner: Function,
        windows: JoinWindows | None = None,
        serde: Serde | None = None,
    ) -> KStream:
        """The same, and records without a match with null on the right."""
        return self._joined(other, "left", Joiner(joiner, serde), windows)

    def outer_join(
        self, other: KStream, joiner: Function, windows: JoinWindows, serde: Serde | None = None
    ) -> KStream:
        """The same, and the records of either stream without a match."""
        return self._joined(other, "full_outer", Joiner(joiner, serde), windows)

    def to(self, topic: str, key: Serde | None = None, value: Serde | None = None) -> None:
        """Write the records to a topic: one query of the application, with its own checkpoint."""
        step = partial(operations.with_serdes, key=key, value=value)
        self._builder.add_sink(topic, self._step(step).build)

    def through(self, topic: str, key: Serde | None = None, value: Serde | None = None) -> KStream:
        """Write the records to a topic, and continue with the stream of that topic."""
        self.to(topic, key, value)
        return self._builder.written_stream(topic)

    def repartition(self, name: str) -> KStream:
        """The same, through a topic that belongs to the application."""
        return self.through(self._builder.internal_topic(name))

    def to_table(self, topic: str) -> KTable:
        """Write the records to a topic, and see it as a table."""
        self.to(topic)
        return self._builder.written_table(topic)

    def _step(self, step: Step) -> KStream:
        return KStream(self._builder, lambda inputs: step(self.build(inputs)))

    def _joined(
        self, other: KStream | KTable, how: How, joiner: Joiner, windows: JoinWindows | None
    ) -> KStream:
        if isinstance(other, KStream):
            if windows is None:
                raise TypeError("join: two streams are joined within JoinWindows")
            within = windows
            return KStream(
                self._builder,
                lambda inputs: joined_streams(
                    self.build(inputs), other.build(inputs), within, how, joiner
                ),
            )
        if windows is not None:
            raise TypeError("join: a table is joined as it is, without windows")
        return KStream(
            self._builder,
            lambda inputs: joined_table(self.build(inputs), other.lookup(inputs), how, joiner),
        )


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
        names = (f"{topic}-{number}" if number > 1 else topic for number in count_from(earlier + 1))
        taken = {each.name for each in self.sinks}
        name = next(each for each in names if each not in taken)
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
