"""Fetch v0-3: stored batches, converted for readers that know message sets only.

v0-1 read magic 0, v2-3 read magic 1. Batches in a form that the reader knows are sent as they are
in the file. The rest is read, and converted in the background, so that no other client waits for
it: at least one message, and at most about as many bytes as were asked for. In v0-2 a limit is
strict: a message above it is cut off there, by which its reader knows to ask for more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ottla.errors import ErrorCode
from ottla.record.conversion import Converted, down_convert, needs_down_conversion
from ottla.replication.delayed_fetch import DelayedFetch, FetchResults
from ottla.replication.replica_manager import ReplicaManager
from ottla.replication.replica_requests import FetchParams, PartitionFetch
from ottla.runtime import FileRegion
from ottla.structs import TopicPartition, replace

FIRST_VERSION_WITH_MAGIC_1: Final = 2
FIRST_VERSION_WITH_WHOLE_MESSAGES: Final = 3
# The most that is read for a partition, unless a batch of its topic may be larger.
MAX_READ_BYTES: Final = 1 << 20
# Where an answer has so many converted bytes, no further partition is converted for it.
MAX_CONVERTED_BYTES: Final = 4 << 20

Records = FileRegion | bytes | memoryview
MessageSets = dict[TopicPartition, Records]


class MessageSetFetch:
    """One fetch. `respond` gets the results, and in place of their records the message sets."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        params: FetchParams,
        partitions: Sequence[PartitionFetch],
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
        self._waiting: deque[PartitionFetch] = deque()
        self._again: list[PartitionFetch] = []
        self._room = MAX_CONVERTED_BYTES

    def start(self) -> DelayedFetch | None:
        """Read, and wait for data if there is none, like any fetch; returns the pending one."""
        return self.replica_manager.fetch_records(self.params, self.partitions, self._take)

    def _limited(self, request: PartitionFetch) -> PartitionFetch:
        config = self.replica_manager.log_config(request.topic_partition)
        most = MAX_READ_BYTES
        if config is not None:
            most = max(most, config.max_message_bytes)
        return replace(request, max_bytes=min(request.max_bytes, most))

    def _take(self, results: FetchResults) -> None:
        """Convert the batches of a read: one partition after the other, in the background."""
        self.results |= results
        readable = [request for request in self.partitions if self._has_records(request, results)]
        # Whoever was left out for the limit of an answer must not be left out each time.
        first = self.replica_manager.runtime.random.randrange(len(readable)) if readable else 0
        self._waiting = deque(readable[first:] + readable[:first])
        self._again = []
        self._convert_next()

    @staticmethod
    def _has_records(request: PartitionFetch, results: FetchResults) -> bool:
        result = results.get(request.topic_partition)
        return result is not None and result.records is not None and not result.error

    def _convert_next(self) -> None:
        if self._waiting and self._room > 0:
            request = self._waiting.popleft()
            done = partial(self._converted, request)
            self.replica_manager.runtime.background.submit(self._job(request), done, self.fail)
        elif self._again and not self._waiting:
            # Read further where there were only markers, or the reader would never pass them.
            self.partitions = self._again
            self._take(self.replica_manager.reads.read(self.params, self._again))
        else:
            for request in self._waiting:
                self.message_sets[request.topic_partition] = b""
            self.respond(self.results, self.message_sets)

    def _job(self, request: PartitionFetch) -> Callable[[], Converted | None]:
        """Reads stored batches, and converts them; None if the reader can be given the file."""
        records, magic = self.results[request.topic_partition].records, self.magic
        limit = min(self.limits[request.topic_partition], self._room)
        assert records is not None

        def convert() -> Converted | None:
            try:
                data = memoryview(records.read())
            except OSError:
                return Converted(b"", request.fetch_offset, ErrorCode.KAFKA_STORAGE_ERROR)
            if not needs_down_conversion(data, magic):
                return None
            return down_convert(data, magic, request.fetch_offset, limit)

        return convert

    def _converted(self, request: PartitionFetch, found: Converted | None) -> None:
        tp = request.topic_partition
        if found is None:
            stored = self.results[tp].records
            assert stored is not None
            self.message_sets[tp] = self._cut(tp, stored)
        elif found.error is not ErrorCode.NONE:
            self.results[tp].error = found.error
        elif found.data:
            self._room -= len(found.data)
            self.message_sets[tp] = self._cut(tp, found.data)
        elif found.next_offset > request.fetch_offset:
            self._again.append(replace(request, fetch_offset=found.next_offset))
        self._convert_next()

    def _cut(self, topic_partition: TopicPartition, records: Records) -> Records:
        limit = max(0, self.limits[topic_partition])
        if not self.cuts:
            return records
        if not isinstance(records, FileRegion):
            return records[:limit]
        if records.size <= limit:
            return records
        return FileRegion(records.file, records.position, limit) if limit else b""
