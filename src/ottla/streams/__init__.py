"""Streams: a small API for users of Kafka Streams, over Spark's Structured Streaming.

A `Streams` is an application: it transforms the records of topics, and runs. The names
are imported when they are first used; Spark is not needed to reset an application.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.streams.application import Streams
    from ottla.streams.builder import KGroupedStream, KStream, KTable, StreamsBuilder
    from ottla.streams.serdes import Serde, Serdes
    from ottla.streams.topology_test import StreamsTest
    from ottla.streams.windows import JoinWindows, SessionWindows, TimeWindows, Windowed

__all__ = [
    "JoinWindows",
    "KGroupedStream",
    "KStream",
    "KTable",
    "Serde",
    "Serdes",
    "SessionWindows",
    "Streams",
    "StreamsBuilder",
    "StreamsTest",
    "TimeWindows",
    "Windowed",
]

_HOMES = {
    "JoinWindows": "windows",
    "KGroupedStream": "builder",
    "KStream": "builder",
    "KTable": "builder",
    "Serde": "serdes",
    "Serdes": "serdes",
    "SessionWindows": "windows",
    "Streams": "application",
    "StreamsBuilder": "builder",
    "StreamsTest": "topology_test",
    "TimeWindows": "windows",
    "Windowed": "windows",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ottla.streams' has no attribute {name!r}")
    value = getattr(import_module(f"ottla.streams.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
