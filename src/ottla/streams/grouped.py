"""Records by key, and the ways to aggregate them: over all time, or over windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.streams.aggregates import Aggregation, aggregated
from ottla.streams.functions import Function, is_python, returned_serde
from ottla.streams.ktable import KTable
from ottla.streams.records import Build
from ottla.streams.serdes import Serde, Serdes
from ottla.streams.windows import SessionWindows, Windows

if TYPE_CHECKING:
    from ottla.streams.builder import StreamsBuilder


class KGroupedStream:
    """Records by key. Those without a key or a value are left out, as by Kafka."""

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
