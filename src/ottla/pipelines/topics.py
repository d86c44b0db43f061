"""The topics of a pipeline: created, filled and deleted."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ottla import Admin, NewTopic, Producer
from ottla.pipelines.pipeline import Event, Pipeline

if TYPE_CHECKING:
    from ottla.clients.producer.producer_batch import RecordFuture

MAX_FUTURES = 50_000
PACE_S = 0.05


def create_topics(servers: str, pipeline: Pipeline) -> list[str]:
    """Create those topics of the pipeline that do not exist; returns their names."""
    outputs = {
        output.topic: NewTopic(output.topic, output.partitions, configs=output.settings)
        for output in pipeline.outputs
        if not output.is_table
    }
    inputs = {
        source.topic: NewTopic(
            source.topic,
            source.partitions,
            configs={"cleanup.policy": "compact"} if source.is_table or source.is_compacted else {},
        )
        for source in pipeline.fed_topics
    }
    with Admin(servers) as admin:
        there = admin.list_topics()
        missing = [new for name, new in {**inputs, **outputs}.items() if name not in there]
        admin.create_topics(missing)
    return [new.name for new in missing]


def delete_outputs(servers: str, pipeline: Pipeline) -> list[str]:
    """Delete the outputs that exist; returns their names."""
    with Admin(servers) as admin:
        there = admin.list_topics()
        names = [each.topic for each in pipeline.outputs if each.topic in there]
        admin.delete_topics(names)
    return names


def publish(
    servers: str,
    events: Iterable[Event],
    *,
    per_second: float | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> Mapping[str, int]:
    """Publish events, no faster than asked; returns how many each topic has acknowledged."""
    counts: dict[str, int] = {}
    futures: deque[RecordFuture] = deque()
    started_s = time.monotonic()
    with Producer(servers, acks="all", linger_ms=20, batch_size=256 * 1024) as producer:
        for number, event in enumerate(events):
            while per_second and number > (time.monotonic() - started_s) * per_second:
                if is_over():
                    break
                time.sleep(PACE_S)
            if is_over():
                break
            futures.append(producer.send(event.topic, event.value, key=event.key))
            counts[event.topic] = counts.get(event.topic, 0) + 1
            if len(futures) >= MAX_FUTURES:
                futures.popleft().result()
        producer.flush()
        for future in futures:
            future.result()
    return counts
