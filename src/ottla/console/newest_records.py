"""The newest records of a few partitions, such as of topics that keep the newest of each key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.console.group_look import offset_of
from ottla.console.lag_evidence import SAMPLE_BYTES, range_fetcher, records_between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.console.console_cluster import ConsoleCluster
    from ottla.record.record import Record
    from ottla.structs import TopicPartition

NEWEST: Final = 2_000
"""So many records of each partition are read."""


async def newest_records(
    cluster: ConsoleCluster, partitions: Sequence[TopicPartition]
) -> list[tuple[TopicPartition, Record]]:
    """The newest records, each partition's in order; those that cannot be read are left out."""
    if not partitions:
        return []
    starts, ends = await cluster.starts(partitions), await cluster.ends(partitions)
    found = []
    async with range_fetcher(cluster, SAMPLE_BYTES) as fetcher:
        for each in partitions:
            start, end = offset_of(starts.get(each)) or 0, offset_of(ends.get(each)) or 0
            first = max(start, end - NEWEST)
            found += [(each, r) async for r in records_between(fetcher, each, first, end)]
    return found
