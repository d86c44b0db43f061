"""An administrator of the simulated cluster, with the requests of the admin client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from ottla.clients.admin.admin_client import AdminClient
from ottla.clients.admin.descriptions import NewTopic
from ottla.clients.admin.topics import FIRST_DELETE_BY_STATE, ReassignmentAdmin, TopicAdmin
from ottla.config.client_config import AdminConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.topics import DeleteTopicsRequest, DeleteTopicState
from ottla.structs import NO_UUID, ElectionType, TopicPartition
from ottla.testing.simulation.invariants import History
from ottla.testing.simulation.workload import SimulatedClient

if TYPE_CHECKING:
    from ottla.testing.simulation.cluster import SimulatedCluster

REQUEST_TIMEOUT_MS: Final = 5_000
API_TIMEOUT_MS: Final = 15_000
RETRY_MS: Final = 200

T = TypeVar("T")


class Administrator(SimulatedClient):
    """Sends admin requests; where no answer came, allows for both outcomes."""

    def __init__(self, cluster: SimulatedCluster, name: str, history: History) -> None:
        super().__init__(cluster, name, history)
        config = AdminConfig.parse(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "request.timeout.ms": REQUEST_TIMEOUT_MS,
                "default.api.timeout.ms": API_TIMEOUT_MS,
            }
        )
        self._admin = AdminClient(self.process.runtime, config)
        self._topics = TopicAdmin(self._admin)
        self._replicas = ReassignmentAdmin(self._admin)
        self._gone_id = NO_UUID

    def reassign(self, targets: Mapping[TopicPartition, tuple[int, ...] | None]) -> None:
        """Give partitions other replicas; None cancels a reassignment under way."""
        self._begin(self._replicas.alter_partition_reassignments(targets), "reassign")

    def elect_preferred_leaders(self) -> None:
        """Elect the preferred leaders of all partitions."""
        self._begin(self._replicas.elect_leaders(ElectionType.PREFERRED, None), "elect")

    def elect_unclean_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Elect leaders that are not in sync, for partitions that have none."""
        self._begin(self._replicas.elect_leaders(ElectionType.UNCLEAN, list(partitions)), "elect")

    def delete_records(self, partition: TopicPartition, offset: int) -> None:
        """Delete the records before an offset. From now on they need not be there."""
        self.history.note_deleted(partition, offset)
        self._begin(self._topics.delete_records({partition: offset}), "delete records")

    def grow(self, topic: str, partition_count: int) -> None:
        """Let a topic have so many partitions."""
        self._begin(self._topics.create_partitions({topic: partition_count}, None), "grow")

    def _begin(self, request: Awaitable[object], name: str) -> None:
        async def ask() -> None:
            try:
                await request
            except KafkaError:
                pass  # it may have been done, or not

        self.process.spawn(ask(), name)

    async def make(self, topic: str, partitions: int, replication_factor: int) -> None:
        """Create a topic, and retry until it exists."""
        wanted = NewTopic(topic, partitions, replication_factor)
        await self._until(lambda: self._create(wanted))

    async def delete(self, topic: str) -> UUID:
        """Delete a topic, which may have to wait for a broker; returns its id.

        It is deleted by its id: a late request cannot delete a new topic of the same name.
        """
        topic_id = await self._until(lambda: self._find(topic))
        await self._until(lambda: self._delete(topic_id))
        return topic_id

    async def make_again(self, topic: str, partitions: int, replication_factor: int) -> None:
        """Delete a topic, and make another of its name."""
        self._gone_id = await self.delete(topic)
        await self.make(topic, partitions, replication_factor)

    async def _until(self, ask: Callable[[], Awaitable[T | None]]) -> T:
        """Repeat a request until it has a result."""
        while True:
            try:
                found = await ask()
                if found is not None:
                    return found
            except KafkaError:
                pass  # there may be no controller
            self._admin.metadata.request_update(is_urgent=True)
            await self.pause(RETRY_MS)

    async def _find(self, topic: str) -> UUID | None:
        """The id of the topic; None while the broker that answers knows only the deleted one."""
        found = (await self._topics.describe_topics([topic], False))[topic]
        if isinstance(found, KafkaError) or found.topic_id == self._gone_id:
            return None
        return found.topic_id

    async def _delete(self, topic_id: UUID) -> bool | None:
        """Delete a topic: True once it is gone, None to ask again."""
        wanted = DeleteTopicState(name=None, topic_id=topic_id)
        request = DeleteTopicsRequest(topics=[wanted], timeout_ms=REQUEST_TIMEOUT_MS)
        answer = await self._admin.controller(
            request, self._admin.deadline(), low=FIRST_DELETE_BY_STATE
        )
        return answer.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID or None

    async def _create(self, wanted: NewTopic) -> bool | None:
        """Create a topic: True once it is there, None to ask again."""
        outcomes = await self._topics.create_topics([wanted], validate_only=False)
        error = outcomes[wanted.name]
        return error is None or error.error is ErrorCode.TOPIC_ALREADY_EXISTS or None
