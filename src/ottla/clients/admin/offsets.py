"""Offsets: those of partitions by timestamp, and the committed offsets of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clients.committed_offsets import (
    commit_offsets,
    delete_offsets,
    fetch_offsets,
    fetch_offsets_of_groups,
)
from ottla.clients.topic_offsets import ListOffsetsResult, OffsetAndMetadata, list_offsets
from ottla.structs import IsolationLevel, Node, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.clients.admin.admin_client import AdminClient
    from ottla.errors import KafkaError
    from ottla.runtime.timing import Deadline

Committed = dict[TopicPartition, OffsetAndMetadata]


class OffsetAdmin:
    """Requests about offsets; they go to leaders and to the groups' coordinators."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], isolation: IsolationLevel
    ) -> dict[TopicPartition, ListOffsetsResult | KafkaError]:
        admin = self._admin

        async def attempt(
            pending: list[TopicPartition], deadline: Deadline
        ) -> dict[TopicPartition, ListOffsetsResult | KafkaError]:
            admin.metadata.set_topics({partition.topic for partition in pending})
            await admin.metadata.update(deadline)
            wanted = {partition: timestamps[partition] for partition in pending}
            return await list_offsets(admin.client, admin.metadata, wanted, isolation)

        return await admin.for_each(timestamps, attempt)

    async def list_group_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition] | None, require_stable: bool
    ) -> dict[str, Committed | KafkaError]:
        admin = self._admin

        async def attempt(
            pending: list[str], deadline: Deadline
        ) -> dict[str, Committed | KafkaError]:
            node = await admin.coordinator(group_id, deadline)
            committed = await fetch_offsets(
                admin.client, node.id, group_id, partitions, require_stable=require_stable
            )
            return {group_id: committed}

        return await admin.for_each([group_id], attempt)

    async def list_groups_offsets(
        self, group_ids: Sequence[str]
    ) -> dict[str, Committed | KafkaError]:
        return await self._admin.for_each(group_ids, self._fetch_of_groups)

    async def _fetch_of_groups(
        self, pending: list[str], deadline: Deadline
    ) -> dict[str, Committed | KafkaError]:
        async def ask(node: Node, groups: list[str]) -> dict[str, Committed | KafkaError]:
            return await fetch_offsets_of_groups(self._admin.client, node.id, groups)

        return await self._admin.ask_coordinators(pending, deadline, ask)

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, KafkaError | None]:
        admin = self._admin

        async def attempt(
            pending: list[TopicPartition], deadline: Deadline
        ) -> dict[TopicPartition, KafkaError | None]:
            coordinator = await admin.coordinator(group_id, deadline)
            wanted = {partition: offsets[partition] for partition in pending}
            return await commit_offsets(admin.client, coordinator.id, group_id, wanted)

        return await admin.for_each(offsets, attempt)

    async def delete_group_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        admin = self._admin

        async def attempt(
            pending: list[TopicPartition], deadline: Deadline
        ) -> dict[TopicPartition, KafkaError | None]:
            coordinator = await admin.coordinator(group_id, deadline)
            return await delete_offsets(admin.client, coordinator.id, group_id, pending)

        return await admin.for_each(partitions, attempt)
