"""The process of one search: `python -m ottla.console.search_worker`, see `record_search`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.metadata import Metadata
from ottla.clients.network_client import NetworkClient
from ottla.config.client_config import ConsumerConfig
from ottla.console.conditions import condition_of
from ottla.console.decoding import Hiding
from ottla.console.masks import mask_of, masks_of
from ottla.console.newest_first import FoundRecords, Limits, NewestFirst, Wanted, found_by
from ottla.console.record_search import SEARCH_MS, encoded
from ottla.console.record_source import RecordSource, Span
from ottla.console.worker_process import do_job
from ottla.runtime.runtime import real_runtime
from ottla.runtime.timing import Deadline
from ottla.structs import IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.runtime import Runtime

LIMITS: Final = Limits(records=1_000_000, bytes=256 * 1024 * 1024, ms=SEARCH_MS)
STEP: Final = 32_768
"""Records of a step over all partitions."""
MOST_MEMORY: Final = 512 * 1024 * 1024
SAY_EVERY_MS: Final = 250


async def run(job: dict[str, Any], say: Callable[[dict[str, Any]], object]) -> FoundRecords:
    """Search as a job says; `say` gets the progress."""
    runtime = real_runtime(asyncio.get_running_loop(), background_workers=1)
    client = NetworkClient(runtime, ConsumerConfig.parse(job["client"]))
    metadata = Metadata(client, allow_auto_topic_creation=False)
    try:
        metadata.set_topics([job["topic"]])
        await metadata.update(Deadline(runtime.clock, client.config.request_timeout_ms))
        source = RecordSource(client, lambda: metadata.cluster, IsolationLevel(job["isolation"]))
        return await _walk(job, source, runtime, say)
    finally:
        metadata.close()
        client.close()
        await runtime.close()


async def _walk(
    job: dict[str, Any],
    source: RecordSource,
    runtime: Runtime,
    say: Callable[[dict[str, Any]], object],
) -> FoundRecords:
    clock = runtime.clock
    began_ms = said_ms = clock.monotonic_ms()
    spans = {TopicPartition(job["topic"], each): Span(*span) for each, *span in job["spans"]}
    step = max(1_000, STEP // max(1, len(spans)))
    walk = NewestFirst(source, clock, spans, LIMITS, wanted_by(job), step)

    def on_step() -> None:
        nonlocal said_ms
        if clock.monotonic_ms() - said_ms >= SAY_EVERY_MS:
            said_ms = clock.monotonic_ms()
            say({"read": walk.read_records, "bytes": walk.read_bytes, "ms": said_ms - began_ms})

    taken = await walk.take(job["count"], on_step)
    return found_by(walk, taken, clock.monotonic_ms() - began_ms)


def wanted_by(job: dict[str, Any]) -> Wanted:
    """The test that a record must pass; it sees nothing that is masked."""
    condition = condition_of(job["text"], job["now_ms"])
    hide = Hiding(masks_of(map(mask_of, job["masks"]), job["topic"]))
    if not hide.is_needed:
        return Wanted(condition.test, condition.may_have if condition.narrows else None)
    return Wanted(lambda record: condition.test(hide(record)))


def work(job: dict[str, Any], say: Callable[[dict[str, Any]], object]) -> None:
    """Search, and say which records were found."""
    say(encoded(asyncio.run(run(job, say))))


if __name__ == "__main__":
    do_job(MOST_MEMORY, work)
