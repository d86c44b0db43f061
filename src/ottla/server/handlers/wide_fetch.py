"""A consumer's fetch of more partitions than one turn of the loop may read.

It is read in slices. No append wakes it: a partition may have grown behind its slice, before any
watch could begin, so one that has to wait looks again every so often instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ottla.replication.delayed_fetch import FetchResults, is_satisfied, unknown_to_consumer
from ottla.replication.replica_manager import ReplicaManager
from ottla.replication.replica_requests import READ_AT_ONCE, FetchParams, PartitionFetch
from ottla.runtime.scheduler import pause
from ottla.structs import replace

LOOK_AGAIN_MS: Final = 500


class WideFetch:
    """One such fetch; `is_wanted` says whether its reader is still there."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        params: FetchParams,
        requests: Sequence[PartitionFetch],
        is_wanted: Callable[[], bool],
    ) -> None:
        self.runtime, self.reads = replica_manager.runtime, replica_manager.reads
        self.params = params
        self.requests = requests
        self.is_wanted = is_wanted

    async def run(self, respond: Callable[[FetchResults], object]) -> None:
        """Read; `respond` gets the results once there are enough bytes, or news, or no time."""
        results = await self._read_once()
        unknown = unknown_to_consumer(self.params, results)
        left_ms = self.params.max_wait_ms if len(unknown) < len(results) else 0
        while left_ms > 0 and not is_satisfied(self.params, results, unknown):
            await pause(self.runtime.scheduler, min(left_ms, LOOK_AGAIN_MS))
            left_ms -= LOOK_AGAIN_MS
            if not self.is_wanted():
                break
            results = await self._read_once()
        self.reads.answer(self.params, self.requests, respond, results)

    async def _read_once(self) -> FetchResults:
        results: FetchResults = {}
        params = replace(self.params)
        for start in range(0, len(self.requests), READ_AT_ONCE):
            requests = self.requests[start : start + READ_AT_ONCE]
            is_first = params.max_bytes == self.params.max_bytes
            found = self.reads.read(params, requests, is_first=is_first)
            params.max_bytes -= sum(result.size_in_bytes for result in found.values())
            results |= found
            await self.runtime.slices.pause()
        return results
