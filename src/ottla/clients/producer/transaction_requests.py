"""The requests of a transaction, each sent again until it is answered, refused, or too late.

Where the cluster has transaction.version at level 2 (KIP-890), partitions and groups are not named
beforehand, since Produce and TxnOffsetCommit do that, and EndTxn answers as whom to go on. Below
that these requests must not be sent in the versions that mean it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from ottla.clients.committed_offsets import ConsumerGroupMetadata
from ottla.clients.group_coordination import CoordinatorLink
from ottla.clients.metadata import Metadata
from ottla.clients.network_client import NetworkClient, response_error
from ottla.clients.topic_offsets import OffsetAndMetadata, by_topic
from ottla.config.producer_config import ProducerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.network.timing import Backoff, Deadline, pause, within
from ottla.protocol.group import KEY_TYPE_GROUP, KEY_TYPE_TRANSACTION
from ottla.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.structs import NO_EPOCH, NO_PRODUCER_ID, TopicPartition

T = TypeVar("T")

LAST_VERSION_FOR_CLIENTS = 3  # of AddPartitionsToTxn; newer ones are for brokers (KIP-890)
TRANSACTION_VERSION = "transaction.version"
LEVEL_WITH_BUMP = 2
FIRST_END_WITH_BUMP = 5
FIRST_OFFSET_COMMIT_THAT_ADDS = 5
FIRST_VERSION_WITH_EPOCH = 3  # of InitProducerId (KIP-360)
FIRST_VERSION_WITH_MEMBER = 3  # of TxnOffsetCommit (KIP-447)
# The markers of the transaction before are about to be written: that takes no longer than this.
MARKERS_BACKOFF_MS = 20


class ProducerIdentity(NamedTuple):
    """As whom the producer writes."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class TransactionRequests:
    """Talks to the coordinator of one transactional id, and to those of groups."""

    def __init__(
        self,
        client: NetworkClient,
        metadata: Metadata,
        config: ProducerConfig,
        transactional_id: str,
    ) -> None:
        self.transactional_id = transactional_id
        self._client = client
        self._metadata = metadata
        self._config = config
        self._runtime = client.runtime
        self._link = self._link_to(self.transactional_id, KEY_TYPE_TRANSACTION)
        self._groups: dict[str, CoordinatorLink] = {}
        self.level = 0  # of transaction.version, as the coordinator has said last
        self._backoff = Backoff(
            config.retry_backoff_ms, config.retry_backoff_max_ms, self._runtime.random.random
        )

    async def init_producer_id(
        self, present: ProducerIdentity, deadline: Deadline
    ) -> ProducerIdentity:
        """The next epoch; one who has an epoch gets the one after that, and only that (KIP-360)."""
        has_epoch = present.producer_id != NO_PRODUCER_ID
        low = FIRST_VERSION_WITH_EPOCH if has_epoch else 0
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._config.transaction_timeout_ms,
        )
        if has_epoch:
            request.producer_id, request.producer_epoch = present

        async def attempt(node_id: int) -> ProducerIdentity:
            connection = await self._client.ready(node_id)
            self.level = connection.features.get(TRANSACTION_VERSION, 0)
            version = connection.version_of(InitProducerIdRequest, low)
            response = await self._client.send_on(connection, request, version)
            self._check(response.error_code, "init_transactions")
            return ProducerIdentity(response.producer_id, response.producer_epoch)

        return await self._persist(self._link, attempt, deadline)

    async def add_partitions(
        self,
        identity: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        deadline: Deadline,
    ) -> None:
        """Name partitions to which records are about to be sent."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=numbers)
                for topic, numbers in by_topic(partitions).items()
            ],
        )

        async def attempt(node_id: int) -> None:
            connection = await self._client.ready(node_id)
            version = connection.version_of(
                AddPartitionsToTxnRequest, high=LAST_VERSION_FOR_CLIENTS
            )
            response = await self._client.send_on(connection, request, version)
            self._check_all(
                {
                    f"{result.name}-{p.partition_index}": p.partition_error_code
                    for result in response.results_by_topic_v3_and_below
                    for p in result.results_by_partition
                },
                "the transaction cannot have the partition",
            )

        await self._persist(self._link, attempt, deadline)

    async def add_offsets(
        self, identity: ProducerIdentity, group_id: str, deadline: Deadline
    ) -> None:
        """Name the group whose offsets are about to be committed."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            group_id=group_id,
        )

        async def attempt(node_id: int) -> None:
            response = await self._client.send(node_id, request)
            self._check(response.error_code, f"the transaction cannot have group {group_id}")

        await self._persist(self._link, attempt, deadline)

    async def commit_offsets(
        self,
        identity: ProducerIdentity,
        group: ConsumerGroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: Deadline,
        *,
        adds: bool = False,
    ) -> None:
        """Hand the offsets to the group's coordinator, which keeps them until the end."""
        generation, member_id, instance_id = group.membership
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            topics=_offsets_by_topic(offsets),
        )
        low, high = 0, FIRST_OFFSET_COMMIT_THAT_ADDS - 1
        if adds:
            low = high = FIRST_OFFSET_COMMIT_THAT_ADDS
        elif member_id or instance_id is not None:
            low = FIRST_VERSION_WITH_MEMBER
        if low >= FIRST_VERSION_WITH_MEMBER:
            request.generation_id = generation
            request.member_id = member_id
            request.group_instance_id = instance_id

        async def attempt(node_id: int) -> None:
            connection = await self._client.ready(node_id)
            version = connection.version_of(TxnOffsetCommitRequest, low, high)
            response = await self._client.send_on(connection, request, version)
            self._check_all(
                {
                    f"{result.name}-{p.partition_index}": p.error_code
                    for result in response.topics
                    for p in result.partitions
                },
                f"group {group.group_id} cannot have the offset",
            )

        if group.group_id not in self._groups:
            self._groups[group.group_id] = self._link_to(group.group_id, KEY_TYPE_GROUP)
        await self._persist(self._groups[group.group_id], attempt, deadline)

    async def end(
        self, identity: ProducerIdentity, commit: bool, deadline: Deadline, *, bumps: bool = False
    ) -> ProducerIdentity:
        """Have it decided; asked twice, the coordinator gives the same answer twice.

        Returns as whom to go on: in the next epoch, if the end `bumps` it.
        """
        low, high = 0, FIRST_END_WITH_BUMP - 1
        if bumps:
            low = high = FIRST_END_WITH_BUMP
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            committed=commit,
        )

        async def attempt(node_id: int) -> ProducerIdentity:
            connection = await self._client.ready(node_id)
            version = connection.version_of(EndTxnRequest, low, high)
            response = await self._client.send_on(connection, request, version)
            self._check(response.error_code, "commit" if commit else "abort")
            if not bumps:
                return identity
            return ProducerIdentity(response.producer_id, response.producer_epoch)

        return await self._persist(self._link, attempt, deadline)

    def _link_to(self, key: str, key_type: int) -> CoordinatorLink:
        return CoordinatorLink(self._metadata, self._client, key, key_type)

    async def _persist(
        self, link: CoordinatorLink, attempt: Callable[[int], Awaitable[T]], deadline: Deadline
    ) -> T:
        """Try until it works; raises what is no use trying again, or KafkaTimeoutError."""
        failures = 0
        what = f"the coordinator of {link.group_id} did not carry it out"
        while True:
            try:
                node_id = await link.node_id(deadline)
                scheduler = self._runtime.scheduler
                return await within(scheduler, deadline.left_ms, attempt(node_id), what)
            except KafkaError as error:
                link.note(error)
                if not error.retriable:
                    raise
                if deadline.has_passed:
                    raise deadline.timeout(f"{what} ({error.message})") from error
                failures += 1
                await self._pause(error, failures, deadline)

    async def _pause(self, error: KafkaError, failures: int, deadline: Deadline) -> None:
        delay_ms = self._backoff.delay_ms(failures)
        if error.error is ErrorCode.CONCURRENT_TRANSACTIONS:
            delay_ms = min(delay_ms, MARKERS_BACKOFF_MS)
        await pause(self._runtime.scheduler, min(delay_ms, deadline.left_ms))
        if error.error.refresh_metadata:
            self._metadata.request_update()

    def _check(self, code: int, what: str) -> None:
        error = response_error(code, f"transactional id {self.transactional_id}: {what}")
        if error is not None:
            raise error

    def _check_all(self, codes: Mapping[str, int], what: str) -> None:
        """Raise the worst of several errors: one that stays before one that may pass."""
        failed = [(name, code) for name, code in codes.items() if code]
        attempted = [entry for entry in failed if entry[1] != ErrorCode.OPERATION_NOT_ATTEMPTED]
        worst = sorted(attempted or failed, key=lambda entry: ErrorCode.of(entry[1]).retriable)
        for name, code in worst[:1]:
            self._check(code, f"{what} {name}")


def _offsets_by_topic(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> list[TxnOffsetCommitRequestTopic]:
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for (topic, number), offset in offsets.items():
        entry = topics.setdefault(topic, TxnOffsetCommitRequestTopic(name=topic))
        entry.partitions.append(
            TxnOffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    return list(topics.values())
