"""Streams: a small API for users of Kafka Streams, over Spark's Structured Streaming.

A `Streams` is an application: it transforms the records of topics, and runs. The names
are imported when they are first used; Spark is not needed to reset an application.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.late_names import late_names

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

__getattr__, __dir__ = late_names(
    __name__,
    {
        "application": "Streams",
        "builder": "KGroupedStream KStream KTable StreamsBuilder",
        "serdes": "Serde Serdes",
        "topology_test": "StreamsTest",
        "windows": "JoinWindows SessionWindows TimeWindows Windowed",
    },
)
