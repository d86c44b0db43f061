"""A table: the newest value of each key, seen as its changes or as it is at a moment."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.streams import operations
from ottla.streams.functions import Function
from ottla.streams.joins import How, Joiner
from ottla.streams.records import Build, Inputs, Records
from ottla.streams.serdes import Serde
from ottla.streams.table_joins import joined_changes, joined_tables

if TYPE_CHECKING:
    from ottla.streams.builder import StreamsBuilder
    from ottla.streams.kstream import KStream


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
        from ottla.streams.kstream import KStream

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
