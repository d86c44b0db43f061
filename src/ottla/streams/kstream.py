"""A stream of records and its operations. Nothing runs until the application does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.streams import operations
from ottla.streams.functions import Function
from ottla.streams.grouped import KGroupedStream
from ottla.streams.joins import How, Joiner, joined_streams, joined_table
from ottla.streams.records import Build, Records
from ottla.streams.serdes import Serde
from ottla.streams.windows import JoinWindows

if TYPE_CHECKING:
    from ottla.streams.builder import StreamsBuilder
    from ottla.streams.ktable import KTable

Step = Callable[[Records], Records]


class KStream:
    """Records one after the other. Every method returns another stream and leaves this one as is.

    A `function` is an expression of SQL, a column of Spark, or a Python function of key and value.
    `serde` says what it returns; without it, its annotation does, or the column's type; else the
    serde stays what it was.
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
