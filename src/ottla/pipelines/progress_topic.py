"""The topic in which runs of pipelines tell of their batches: for the console, and for any reader.

A record is a JSON object with the key `RUN/QUERY`; the topic is compacted, so that the newest of
each query stays. A reader needs no contact with the driver, and it outlives the driver.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

from ottla import Admin, KafkaError, NewTopic, Producer
from ottla.clients.admin.missing_topics import create_missing_topics
from ottla.structs import PROGRESS_TOPIC

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from ottla.pipelines.execution import Batch

logger = logging.getLogger(__name__)

RUNNING, ENDED, FAILED = "running", "ended", "failed"
SETTINGS: Final = {
    "client.id": "pipeline-progress",
    "max.block.ms": "1000",
    "request.timeout.ms": "10000",
    "delivery.timeout.ms": "20000",
}
"""A run does not wait for its progress to be known: a record that cannot be sent is left out."""


class ProgressTopic:
    """Writes the batches of one run, and its end with the block that it is used in."""

    def __init__(self, servers: str, pipeline: str, report: Path) -> None:
        """Creates the topic if it is missing; KafkaError where that is not possible."""
        self._pipeline = pipeline
        self._report = str(report)
        self._run = uuid.uuid4().hex[:12]
        self._began_ms = _now_ms()
        self._last: dict[str, dict[str, Any]] = {}
        with Admin(servers) as admin:
            compacted = {"cleanup.policy": "compact"}
            create_missing_topics(admin, [NewTopic(PROGRESS_TOPIC, 1, configs=compacted)])
        self._producer = Producer(servers, SETTINGS)

    def batch(self, batch: Batch) -> None:
        """Write a batch, as that of a query that runs."""
        counts = batch.observed.values()
        self._last[batch.query] = {
            "batch": batch.number,
            "rows": batch.rows,
            "seconds": batch.seconds,
            "lag": batch.lag,
            "late": batch.late,
            "state_rows": batch.state_rows,
            "malformed": sum(each.get("malformed", 0) for each in counts),
        }
        self._send(batch.query, RUNNING)

    def _send(self, query: str, state: str) -> None:
        value = {
            "pipeline": self._pipeline,
            "run": self._run,
            "query": query,
            "state": state,
            "began_ms": self._began_ms,
            "at_ms": _now_ms(),
            "report": self._report,
            **self._last[query],
        }
        try:
            self._producer.send(
                PROGRESS_TOPIC, json.dumps(value).encode(), key=f"{self._run}/{query}".encode()
            )
        except KafkaError as error:
            logger.warning("a batch of %s is not in %s: %s", query, PROGRESS_TOPIC, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for query in self._last:
            self._send(query, FAILED if isinstance(error, Exception) else ENDED)
        self._producer.close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
