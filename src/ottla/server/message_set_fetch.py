"""Fetch v0-3: stored batches for readers that know message sets only.

v0-1 read magic 0, v2-3 read magic 1. What is stored in a form that the reader knows is sent as it
lies in the file. The rest is read, and converted in the background, so that no other client waits
for it: at least one message, and at most about as many bytes as were asked for. v0-2 take a limit
at its word: a message above it is cut off there, which tells its reader to ask for more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ottla.errors import ErrorCode
from ottla.record.conversion import Converted, down_convert, needs_down_conversion
from ottla.replication.exchange import FetchParams, FetchPartition
from ottla.replication.replica_manager import DelayedFetch, FetchResults, ReplicaManager
from ottla.runtime import FileRegion
from ottla.structs import TopicPartition

FIRST_VERSION_WITH_MAGIC_1: Final = 2
FIRST_VERSION_WITH_WHOLE_MESSAGES: Final = 3
FIRST_VERSION_WITH_BATCHES: Final = 4
# What is read for a partition at most, unless a batch of its topic may be larger.
MAX_READ_BYTES: Final = 1 << 20

Records = FileRegion | bytes | memoryview
MessageSets = dict[TopicPartition, Records]


@dataclass(slots=True)
class Stored:
    """What was read of a partition and has to be converted."""

    request: FetchPartition
    data: memoryview


class MessageSetFetch:
    """One fetch. `respond` gets the results, and in place of their records the message sets."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        params: FetchParams,
        partitions: Sequence[FetchPartition],
        api_version: int,
        respond: Callable[[FetchResults, MessageSets], object],
        fail: Callable[[BaseException], object],
    ) -> None:
        self.replica_manager = replica_manager
        self.params = params
        self.partitions = [self._limited(request) for request in partitions]
        self.limits = {request.topic_partition: request.max_bytes for request in partitions}
        self.magic = 1 if api_version >= FIRST_VERSION_WITH_MAGIC_1 else 0
        self.cuts = api_version < FIRST_VERSION_WITH_WHOLE_MESSAGES
        self.respond = respond
        self.fail = fail
        self.results: FetchResults = {}
        self.message_sets: MessageSets = {}

    def start(self) -> DelayedFetch | None:
        """Read, and wait for data if there are none, as any fetch does; returns what waits."""
        return self.replica_manager.fetch_records(self.params, self.partitions, self._take)

    def _limited(self, request: FetchPartition) -> FetchPartition:
        partition = self.replica_manager.partitions.get(request.topic_partition)
        most = MAX_READ_BYTES
        if partition is not None:
            most = max(most, partition.log.config.max_message_bytes)
        return replace(request, max_bytes=min(request.max_bytes, most))

    def _take(self, results: FetchResults) -> None:
        """Read at once, for the files may be gone later, and convert what has to be."""
        self.results |= results
        waiting: list[Stored] = []
        for request in self.partitions:
            tp = request.topic_partition
            result = results.get(tp)
            if result is None or result.records is None or result.error is not ErrorCode.NONE:
                continue
            try:
                data = memoryview(result.records.read())
            except OSError:
                result.error = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            if needs_down_conversion(data, self.magic):
                waiting.append(Stored(request, data))
            else:
                self.message_sets[tp] = self._cut(tp, result.records)
        self._convert(waiting)

    def _convert(self, waiting: Sequence[Stored]) -> None:
        if not waiting:
            self.respond(self.results, self.message_sets)
            return
        magic, limits = self.magic, self.limits

        def convert() -> dict[TopicPartition, Converted]:
            return {
                stored.request.topic_partition: down_convert(
                    stored.data,
                    magic,
                    stored.request.fetch_offset,
                    limits[stored.request.topic_partition],
                )
                for stored in waiting
            }

        self.replica_manager.runtime.background.submit(convert, self._converted, self.fail)

    def _converted(self, converted: Mapping[TopicPartition, Converted]) -> None:
        """Read on where there was nothing but markers, or the reader would never pass them."""
        again: list[FetchPartition] = []
        for request in self.partitions:
            tp = request.topic_partition
            found = converted.get(tp)
            if found is None:
                continue
            if found.error is not ErrorCode.NONE:
                self.results[tp].error = found.error
            elif found.data:
                self.message_sets[tp] = self._cut(tp, found.data)
            elif found.next_offset > request.fetch_offset:
                again.append(replace(request, fetch_offset=found.next_offset))
        if again:
            self.partitions = again
            self._take(self.replica_manager.read_from_logs(self.params, again))
        else:
            self.respond(self.results, self.message_sets)

    def _cut(self, topic_partition: TopicPartition, records: Records) -> Records:
        limit = max(0, self.limits[topic_partition])
        if not self.cuts:
            return records
        if not isinstance(records, FileRegion):
            return records[:limit]
        if records.size <= limit:
            return records
        return FileRegion(records.file, records.position, limit) if limit else b""
