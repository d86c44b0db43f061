"""Clients without rights, and their attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.acls import AclCreation, CreateAclsRequest
from ottla.protocol.configs import (
    ConfigResourceType,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from ottla.protocol.fetch import LAST_VERSION_WITH_NAMES, FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.produce import (
    FIRST_VERSION_WITH_IDS,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from ottla.record.batch_builder import build_batch
from ottla.security.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.testing.simulation.administrator import Administrator
from ottla.testing.simulation.story import REPLICAS, TOPIC
from ottla.testing.simulation.workload import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.protocol.message import Request
    from ottla.record.consumer_record import ConsumerRecord
    from ottla.structs import TopicPartition
    from ottla.testing.simulation.cluster import SimulatedCluster
    from ottla.testing.simulation.invariants import History

KEEPER, GUEST, STRANGER = "keeper", "guest", "stranger"
FORBIDDEN_TOPIC: Final = "of-the-stranger"
MAX_BETWEEN_ATTEMPTS_MS: Final = 400
DENIED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)


class Stranger(Administrator):
    """Has no right, and asks one broker after another for everything, records and changes."""

    async def run(self) -> None:
        """Try until the end; any response that is no denial is a violation."""
        chance = self.process.runtime.random
        while not self.is_told_to_stop:
            try:
                brokers = await self._admin.brokers(self._admin.deadline())
                if brokers:  # a broker that has just begun to serve knows of none
                    await self._try(chance.choice(ATTEMPTS), chance.choice(brokers))
            except KafkaError:
                pass  # no broker has answered
            await self.pause(chance.randint(1, MAX_BETWEEN_ATTEMPTS_MS))
        self._admin.close()
        self.is_done = True

    async def _try(self, attempt: Attempt, broker_id: int) -> None:
        request, client = attempt.request(), self._admin.client
        connection = await client.ready(broker_id)
        version = attempt.version or connection.version_of(type(request))
        answer = await client.send_on(connection, request, version)
        errors = set(attempt.errors(answer))
        if not errors or not errors <= DENIED:
            self.history.violations.append(
                f"{self.cluster.world.now_ms} ms: broker {broker_id} has answered the "
                f"{type(request).__name__} of a user without rights with errors {sorted(errors)}"
            )


class Attempt(NamedTuple):
    """A request that needs a right, and the errors in its answer that say so."""

    request: Callable[[], Request]
    errors: Callable[[Any], Iterable[int]]
    version: int | None = None
    """The last version that names topics; later ones have ids, which the stranger cannot get."""


def of(results: str) -> Callable[[Any], Iterable[int]]:
    """The errors of the entries of a list."""
    return lambda answer: [each.error_code for each in getattr(answer, results)]


def of_partitions(topics: str, partitions: str) -> Callable[[Any], Iterable[int]]:
    """The errors of partitions, which are in a list of topics."""
    return lambda answer: [
        each.error_code for topic in getattr(answer, topics) for each in getattr(topic, partitions)
    ]


def _produce() -> Request:
    records = build_batch([(0, None, STRANGER.encode(), ())])
    data = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name=TOPIC, partition_data=[data])
    return ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[topic])


def _fetch() -> Request:
    partition = FetchPartition(partition=0, partition_max_bytes=1_000_000)
    topic = FetchTopic(topic=TOPIC, partitions=[partition])
    return FetchRequest(max_bytes=1_000_000, session_epoch=-1, topics=[topic])


def _list_offsets() -> Request:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = ListOffsetsTopic(name=TOPIC, partitions=[partition])
    return ListOffsetsRequest(replica_id=-1, topics=[topic])


def _delete_records() -> Request:
    partition = DeleteRecordsPartition(partition_index=0, offset=-1)
    topic = DeleteRecordsTopic(name=TOPIC, partitions=[partition])
    return DeleteRecordsRequest(topics=[topic], timeout_ms=1_000)


def _commit() -> Request:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    return OffsetCommitRequest(group_id=STRANGER, topics=[topic])


def _create_topic() -> Request:
    topic = CreatableTopic(name=FORBIDDEN_TOPIC, num_partitions=1, replication_factor=REPLICAS)
    return CreateTopicsRequest(topics=[topic], timeout_ms=1_000)


def _alter_configs() -> Request:
    config = IncrementalAlterableConfig(name="retention.ms", value="1")
    resource = IncrementalAlterConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name=TOPIC, configs=[config]
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


def _create_acl() -> Request:
    creation = AclCreation(
        resource_type=int(ResourceType.TOPIC),
        resource_name=TOPIC,
        resource_pattern_type=int(PatternType.LITERAL),
        principal=f"User:{STRANGER}",
        host="*",
        operation=int(AclOperation.ALL),
        permission_type=int(AclPermissionType.ALLOW),
    )
    return CreateAclsRequest(creations=[creation])


ATTEMPTS: Final = (
    Attempt(
        _produce, of_partitions("responses", "partition_responses"), FIRST_VERSION_WITH_IDS - 1
    ),
    Attempt(_fetch, of_partitions("responses", "partitions"), LAST_VERSION_WITH_NAMES),
    Attempt(_list_offsets, of_partitions("topics", "partitions")),
    Attempt(lambda: MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), of("topics")),
    Attempt(_commit, of_partitions("topics", "partitions")),
    Attempt(_delete_records, of_partitions("topics", "partitions")),
    Attempt(_create_topic, of("topics")),
    Attempt(
        lambda: DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=1_000),
        of("responses"),
    ),
    Attempt(_alter_configs, of("responses")),
    Attempt(_create_acl, of("results")),
)


class Guest(Reader):
    """A reader whose right is taken and given back while it reads."""

    def __init__(self, cluster: SimulatedCluster, name: str, history: History) -> None:
        super().__init__(cluster, name, history)
        self.read_count = 0

    def may_meet(self, error: KafkaError) -> bool:
        return error.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def _note(self, partition: TopicPartition, record: ConsumerRecord) -> None:
        self.read_count += 1
        super()._note(partition, record)
