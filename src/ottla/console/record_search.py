"""Searches in a process of their own, so that pages stay quick, and "stop" is its end.

The worker says four times a second how far it is, and at last which records it has found.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Final

from ottla.console.masks import mask_text
from ottla.console.newest_first import FoundRecords
from ottla.console.record_source import FoundRecord
from ottla.console.refusals import Refused
from ottla.console.worker_process import WorkerProcess, module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.console.console_cluster import ConsoleCluster
    from ottla.console.masks import Mask
    from ottla.console.record_query import RecordQuery

SEARCH_MS: Final = 10_000
"""A worker stops by itself after this time, and says how far it is."""
SEARCH_GRACE_MS: Final = 5_000
"""The time for a worker's start, and for the step at its end; then it is killed."""
WORKER: Final = WorkerProcess(module("search_worker"), ("records",), "search")


async def search(
    cluster: ConsoleCluster,
    masks: Iterable[Mask],
    query: RecordQuery,
    count: int,
    on_progress: Callable[[dict[str, int]], object] = lambda progress: None,
) -> FoundRecords:
    """The newest records that pass the condition of a query; two searches run at once at most.

    The worker ends with the task that waits for it.
    """
    read, limit_s = 0, (SEARCH_MS + SEARCH_GRACE_MS) / 1000

    def note(said: dict[str, int]) -> None:
        nonlocal read
        read = said.get("read", read)
        on_progress(said)

    async with cluster.limits.searching(cluster.user):
        try:
            return decoded(await WORKER.run(job_of(cluster, masks, query, count), limit_s, note))
        except TimeoutError:
            raise Refused(
                f"The search was stopped after {limit_s:.0f} s, when it had read "
                f"{read:,} records: a shorter time, one partition or a simpler condition takes "
                "less."
            ) from None


def job_of(
    cluster: ConsoleCluster, masks: Iterable[Mask], query: RecordQuery, count: int
) -> dict[str, Any]:
    """All that a worker has to know."""
    return {
        "client": cluster.client_settings,
        "topic": query.topic.name,
        "text": query.text,
        "now_ms": cluster.runtime.clock.now_ms(),
        "isolation": int(query.isolation),
        "spans": [[each.partition, *span] for each, span in query.spans.items()],
        "count": count,
        "masks": [mask_text(each) for each in masks],
    }


def encoded(found: FoundRecords) -> dict[str, Any]:
    """A result as JSON has it; bytes in base64."""
    return {**found._asdict(), "records": [_row(each) for each in found.records]}


def _row(record: FoundRecord) -> list[Any]:
    headers = [[name, _text(data)] for name, data in record.headers]
    return [*record[:3], _text(record.key), _text(record.value), headers]


def decoded(said: dict[str, Any]) -> FoundRecords:
    """The result of `encoded`."""
    rows = [
        FoundRecord(
            partition,
            offset,
            timestamp_ms,
            _bytes(key),
            _bytes(value),
            tuple((name, _bytes(data)) for name, data in headers),
        )
        for partition, offset, timestamp_ms, key, value, headers in said["records"]
    ]
    by_partition = {
        name: {int(key): value for key, value in said[name].items()} for name in ("left", "errors")
    }
    return FoundRecords(**{**said, **by_partition, "records": rows})


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
