"""The offsets of clients of before 0.8.1: numbers in the registry, which no coordinator knows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from ottla.coordinator.group.offsets import CommittedOffset
from ottla.errors import ErrorCode, KafkaError
from ottla.registry import paths
from ottla.registry.tree import NoNodeError, Registry, create_or_set, ensure_path
from ottla.registry.znodes import decode_offset, encode_offset
from ottla.structs import TopicPartition


class RegistryOffsets:
    """Offsets as Kafka 0.8 kept them: a number at /consumers/[group]/offsets/[topic]/[partition].

    Only versions 0 of OffsetCommit and OffsetFetch write and read them.
    """

    def __init__(self, registry: Registry, metadata_max_bytes: int) -> None:
        self.registry = registry
        self.metadata_max_bytes = metadata_max_bytes

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, ErrorCode]:
        """Write each offset; its metadata must not be too long, and is not kept."""
        if not group or "/" in group:
            return dict.fromkeys(offsets, ErrorCode.INVALID_GROUP_ID)
        return {
            partition: await self._write(group, partition, offsets[partition])
            for partition in offsets
        }

    async def fetch(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | KafkaError | None]:
        """The offset of each partition, None where there is none, or why it cannot be read."""
        if not group or "/" in group:
            return dict.fromkeys(partitions, KafkaError(ErrorCode.INVALID_GROUP_ID))
        found = await asyncio.gather(*(self._read(group, each) for each in partitions))
        return dict(zip(partitions, found, strict=True))

    async def _write(
        self, group: str, partition: TopicPartition, offset: CommittedOffset
    ) -> ErrorCode:
        if len(offset.metadata.encode("utf-8", "surrogatepass")) > self.metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        path = paths.group_offset(group, *partition)
        try:
            await ensure_path(self.registry, paths.group_offsets(group, partition.topic))
            await create_or_set(self.registry, path, encode_offset(offset.offset))
        except KafkaError as error:
            return error.error
        return ErrorCode.NONE

    async def _read(self, group: str, partition: TopicPartition) -> int | KafkaError | None:
        path = paths.group_offset(group, *partition)
        try:
            data, _ = await self.registry.get(path)
            return decode_offset(path, data)
        except NoNodeError:
            return None
        except KafkaError as error:
            return error
