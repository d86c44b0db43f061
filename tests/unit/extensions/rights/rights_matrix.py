"""What is asked of every API, the rights that it needs, and the codes of Kafka 3.9 without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.protocol import (
    acls,
    configs,
    consumer_group,
    controller_requests,
    delegation_tokens,
    fetch,
    group,
    leader_and_isr,
    leader_epoch,
    list_offsets,
    log_dirs,
    metadata,
    offsets,
    produce,
    reassignments,
    scram_users,
    telemetry,
    topics,
    transactions,
    update_metadata,
)
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.record.batch_builder import build_batch
from ottla.security.acls import AclOperation, ResourceType
from ottla.security.principal import KafkaPrincipal
from ottla.structs import NO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.protocol.message import Request

Op = AclOperation
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TXID = ResourceType.TRANSACTIONAL_ID
THERE, MISSING = "there", "missing"
KAFKA_CLUSTER = "kafka-cluster"
ALICE, ADMIN = KafkaPrincipal.user("alice"), KafkaPrincipal.user("admin")
DENIED = {29, 30, 31, 53, 65}
TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TXID_DENIED = {29}, {30}, {31}, {53}
TOKEN_DENIED = {65}
NOTHING: set[int] = set()

Right = tuple[AclOperation, ResourceType, str]


def records(is_transactional: bool = False) -> bytes:
    record = (1_700_000_000_000, None, b"x", ())
    if not is_transactional:
        return build_batch([record])
    return build_batch(
        [record], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )


class Row(NamedTuple):
    """An API: what is asked, the rights that it needs, and the denials without them."""

    key: ApiKey
    body: Callable[[int, str], Request]
    full: Callable[[str], list[Right]]
    none: set[int]
    describe: set[int]
    first_version: int = 0
    last_version: int = 99
    name: str = ""


def on_topic(*operations: AclOperation) -> Callable[[str], list[Right]]:
    return lambda topic: [(operation, TOPIC, topic) for operation in operations]


def on(operation: AclOperation, type_: ResourceType, name: str) -> Callable[[str], list[Right]]:
    return lambda topic: [(operation, type_, name)]


def on_cluster(operation: AclOperation) -> Callable[[str], list[Right]]:
    return on(operation, CLUSTER, KAFKA_CLUSTER)


def all_of(*rights: Callable[[str], list[Right]]) -> Callable[[str], list[Right]]:
    return lambda topic: [right for each in rights for right in each(topic)]


def produce_request(version: int, topic: str) -> Request:
    data = produce.PartitionProduceData(index=0, records=records())
    return produce.ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[produce.TopicProduceData(name=topic, partition_data=[data])],
    )


def transactional_produce(version: int, topic: str) -> Request:
    data = produce.PartitionProduceData(index=0, records=records(is_transactional=True))
    return produce.ProduceRequest(
        transactional_id="t",
        acks=-1,
        timeout_ms=1000,
        topic_data=[produce.TopicProduceData(name=topic, partition_data=[data])],
    )


def fetch_request(version: int, topic: str, replica_id: int = -1) -> Request:
    partition = fetch.FetchPartition(partition=0, partition_max_bytes=1000)
    return fetch.FetchRequest(
        replica_id=replica_id,
        max_bytes=1000,
        session_epoch=-1,
        topics=[fetch.FetchTopic(topic=topic, partitions=[partition])],
    )


def latest_offset(version: int, topic: str) -> Request:
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    return list_offsets.ListOffsetsRequest(
        replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name=topic, partitions=[partition])]
    )


def metadata_request(version: int, topic: str) -> Request:
    return metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=topic)],
        allow_auto_topic_creation=version < 4,
    )


def offset_commit(version: int, topic: str) -> Request:
    partition = offsets.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return offsets.OffsetCommitRequest(
        group_id="g",
        topics=[offsets.OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )


def offset_fetch(version: int, topic: str) -> Request:
    if version < 8:
        asked = offsets.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
        return offsets.OffsetFetchRequest(group_id="g", topics=[asked])
    named = offsets.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
    wanted = offsets.OffsetFetchRequestGroup(group_id="g", topics=[named])
    return offsets.OffsetFetchRequest(groups=[wanted])


def find_coordinator(key_type: int, key: str) -> Callable[[int, str], Request]:
    def body(version: int, topic: str) -> Request:
        if version < 4:
            return group.FindCoordinatorRequest(key=key, key_type=key_type)
        return group.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])

    return body


def leave_group(version: int, topic: str) -> Request:
    if version < 3:
        return group.LeaveGroupRequest(group_id="g", member_id="m")
    return group.LeaveGroupRequest(group_id="g", members=[group.MemberIdentity(member_id="m")])


def delete_topics(version: int, topic: str) -> Request:
    if version < 6:
        return topics.DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000)
    named = topics.DeleteTopicState(name=topic, topic_id=NO_UUID)
    return topics.DeleteTopicsRequest(topics=[named], timeout_ms=1000)


def add_partitions(version: int, topic: str) -> Request:
    asked = transactions.AddPartitionsToTxnTopic(name=topic, partitions=[0])
    if version < 4:
        return transactions.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t", v3_and_below_topics=[asked]
        )
    transaction = transactions.AddPartitionsToTxnTransaction(
        transactional_id="t", topics=[asked], verify_only=True
    )
    return transactions.AddPartitionsToTxnRequest(transactions=[transaction])


def write_markers(version: int, topic: str) -> Request:
    named = transactions.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])
    marker = transactions.WritableTxnMarker(producer_id=1, topics=[named])
    return transactions.WriteTxnMarkersRequest(markers=[marker])


def txn_offset_commit(version: int, topic: str) -> Request:
    partition = transactions.TxnOffsetCommitRequestPartition(partition_index=0)
    named = transactions.TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])
    return transactions.TxnOffsetCommitRequest(transactional_id="t", group_id="g", topics=[named])


def describe_config(type_: int, name: str | None = None) -> Callable[[int, str], Request]:
    return lambda version, topic: configs.DescribeConfigsRequest(
        resources=[
            configs.DescribeConfigsResource(
                resource_type=type_,
                resource_name=topic if name is None else name,
                configuration_keys=["retention.ms"],
            )
        ]
    )


def alter_config(version: int, topic: str) -> Request:
    return configs.AlterConfigsRequest(
        resources=[configs.AlterConfigsResource(resource_type=2, resource_name=topic)],
        validate_only=True,
    )


def increment_config(version: int, topic: str) -> Request:
    return configs.IncrementalAlterConfigsRequest(
        resources=[configs.IncrementalAlterConfigsResource(resource_type=2, resource_name=topic)],
        validate_only=True,
    )


def move_log(version: int, topic: str) -> Request:
    named = log_dirs.AlterReplicaLogDirTopic(name=topic, partitions=[0])
    return log_dirs.AlterReplicaLogDirsRequest(
        dirs=[log_dirs.AlterReplicaLogDir(path="/nowhere", topics=[named])]
    )


def elect(version: int, topic: str) -> Request:
    named = reassignments.ElectLeadersTopicPartitions(topic=topic, partitions=[0])
    return reassignments.ElectLeadersRequest(topic_partitions=[named], timeout_ms=1000)


READ_GROUP = on(Op.READ, GROUP, "g")
WRITE_TXID = on(Op.WRITE, TXID, "t")
DESCRIBE_GROUP = on(Op.DESCRIBE, GROUP, "g")
BROKER = on_cluster(Op.CLUSTER_ACTION)

ROWS = [
    Row(
        ApiKey.PRODUCE,
        produce_request,
        on_topic(Op.WRITE),
        TOPIC_DENIED,
        TOPIC_DENIED,
        last_version=12,  # later ones name topics by their ids
    ),
    Row(
        ApiKey.PRODUCE,
        transactional_produce,
        all_of(WRITE_TXID, on_topic(Op.WRITE)),
        TXID_DENIED,
        TXID_DENIED,
        first_version=3,
        last_version=12,
        name="in a transaction",
    ),
    Row(
        ApiKey.FETCH,
        fetch_request,
        on_topic(Op.READ),
        TOPIC_DENIED,
        TOPIC_DENIED,
        last_version=12,  # later ones name topics by their ids
    ),
    Row(
        ApiKey.FETCH,
        lambda version, topic: fetch_request(version, topic, replica_id=2),
        BROKER,
        TOPIC_DENIED,
        TOPIC_DENIED,
        last_version=12,
        name="as a follower",
    ),
    Row(ApiKey.LIST_OFFSETS, latest_offset, on_topic(Op.DESCRIBE), TOPIC_DENIED, NOTHING),
    Row(
        ApiKey.METADATA,
        metadata_request,
        all_of(on_topic(Op.DESCRIBE), on_topic(Op.CREATE)),
        TOPIC_DENIED,
        NOTHING,
        first_version=4,
    ),
    Row(
        ApiKey.OFFSET_COMMIT,
        offset_commit,
        all_of(READ_GROUP, on_topic(Op.READ)),
        GROUP_DENIED,
        GROUP_DENIED,
    ),
    Row(
        ApiKey.OFFSET_FETCH,
        offset_fetch,
        all_of(DESCRIBE_GROUP, on_topic(Op.DESCRIBE)),
        GROUP_DENIED,
        NOTHING,
    ),
    Row(ApiKey.FIND_COORDINATOR, find_coordinator(0, "g"), DESCRIBE_GROUP, GROUP_DENIED, NOTHING),
    Row(
        ApiKey.FIND_COORDINATOR,
        find_coordinator(1, "t"),
        on(Op.DESCRIBE, TXID, "t"),
        TXID_DENIED,
        NOTHING,
        first_version=1,
        name="of a transactional id",
    ),
    Row(
        ApiKey.JOIN_GROUP,
        lambda version, topic: group.JoinGroupRequest(
            group_id="g", member_id="m", session_timeout_ms=10000, protocol_type="consumer"
        ),
        READ_GROUP,
        GROUP_DENIED,
        GROUP_DENIED,
    ),
    Row(
        ApiKey.HEARTBEAT,
        lambda version, topic: group.HeartbeatRequest(group_id="g", member_id="m"),
        READ_GROUP,
        GROUP_DENIED,
        GROUP_DENIED,
    ),
    Row(ApiKey.LEAVE_GROUP, leave_group, READ_GROUP, GROUP_DENIED, GROUP_DENIED),
    Row(
        ApiKey.SYNC_GROUP,
        lambda version, topic: group.SyncGroupRequest(
            group_id="g", member_id="m", protocol_type="consumer", protocol_name="range"
        ),
        READ_GROUP,
        GROUP_DENIED,
        GROUP_DENIED,
    ),
    Row(
        ApiKey.DESCRIBE_GROUPS,
        lambda version, topic: group.DescribeGroupsRequest(groups=["g"]),
        DESCRIBE_GROUP,
        GROUP_DENIED,
        NOTHING,
    ),
    Row(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        lambda version, topic: consumer_group.ConsumerGroupDescribeRequest(group_ids=["g"]),
        DESCRIBE_GROUP,
        GROUP_DENIED,
        NOTHING,
    ),
    Row(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        lambda version, topic: consumer_group.ConsumerGroupHeartbeatRequest(
            group_id="k", member_id="m", member_epoch=-1
        ),
        on(Op.READ, GROUP, "k"),
        GROUP_DENIED,
        GROUP_DENIED,
    ),
    Row(
        ApiKey.DELETE_GROUPS,
        lambda version, topic: group.DeleteGroupsRequest(groups_names=["x"]),
        on(Op.DELETE, GROUP, "x"),
        GROUP_DENIED,
        GROUP_DENIED,
    ),
    Row(
        ApiKey.OFFSET_DELETE,
        lambda version, topic: offsets.OffsetDeleteRequest(
            group_id="g",
            topics=[
                offsets.OffsetDeleteRequestTopic(
                    name=topic, partitions=[offsets.OffsetDeleteRequestPartition(partition_index=0)]
                )
            ],
        ),
        all_of(on(Op.DELETE, GROUP, "g"), on_topic(Op.READ)),
        GROUP_DENIED,
        GROUP_DENIED,
    ),
    Row(
        ApiKey.CREATE_TOPICS,
        lambda version, topic: topics.CreateTopicsRequest(
            topics=[topics.CreatableTopic(name=topic, num_partitions=1, replication_factor=1)],
            timeout_ms=1000,
            validate_only=version > 0,
        ),
        on_topic(Op.CREATE),
        TOPIC_DENIED,
        TOPIC_DENIED,
        first_version=1,
    ),
    Row(ApiKey.DELETE_TOPICS, delete_topics, on_topic(), TOPIC_DENIED, TOPIC_DENIED),
    Row(
        ApiKey.DELETE_RECORDS,
        lambda version, topic: topics.DeleteRecordsRequest(
            topics=[
                topics.DeleteRecordsTopic(
                    name=topic,
                    partitions=[topics.DeleteRecordsPartition(partition_index=0, offset=0)],
                )
            ],
            timeout_ms=1000,
        ),
        on_topic(Op.DELETE),
        TOPIC_DENIED,
        TOPIC_DENIED,
    ),
    Row(
        ApiKey.CREATE_PARTITIONS,
        lambda version, topic: topics.CreatePartitionsRequest(
            topics=[topics.CreatePartitionsTopic(name=topic, count=2, assignments=None)],
            timeout_ms=1000,
            validate_only=True,
        ),
        on_topic(Op.ALTER),
        TOPIC_DENIED,
        TOPIC_DENIED,
    ),
    Row(
        ApiKey.INIT_PRODUCER_ID,
        lambda version, topic: transactions.InitProducerIdRequest(transactional_id=None),
        on_cluster(Op.IDEMPOTENT_WRITE),
        CLUSTER_DENIED,
        CLUSTER_DENIED,
    ),
    Row(
        ApiKey.INIT_PRODUCER_ID,
        lambda version, topic: transactions.InitProducerIdRequest(transactional_id=None),
        on_topic(Op.WRITE),
        CLUSTER_DENIED,
        CLUSTER_DENIED,
        name="by the right to write some topic",
    ),
    Row(
        ApiKey.INIT_PRODUCER_ID,
        lambda version, topic: transactions.InitProducerIdRequest(
            transactional_id="t", transaction_timeout_ms=1000
        ),
        WRITE_TXID,
        TXID_DENIED,
        TXID_DENIED,
        name="with a transactional id",
    ),
    Row(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        lambda version, topic: leader_epoch.OffsetForLeaderEpochRequest(
            topics=[
                leader_epoch.OffsetForLeaderTopic(
                    topic=topic, partitions=[leader_epoch.OffsetForLeaderPartition(partition=0)]
                )
            ]
        ),
        BROKER,
        TOPIC_DENIED,
        NOTHING,
    ),
    Row(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        add_partitions,
        all_of(WRITE_TXID, on_topic(Op.WRITE)),
        TXID_DENIED,
        TXID_DENIED,
        last_version=3,
    ),
    Row(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        add_partitions,
        BROKER,
        CLUSTER_DENIED,
        CLUSTER_DENIED,
        first_version=4,
        name="as a broker",
    ),
    Row(
        ApiKey.ADD_OFFSETS_TO_TXN,
        lambda version, topic: transactions.AddOffsetsToTxnRequest(
            transactional_id="t", group_id="g"
        ),
        all_of(WRITE_TXID, READ_GROUP),
        TXID_DENIED,
        TXID_DENIED,
    ),
    Row(
        ApiKey.END_TXN,
        lambda version, topic: transactions.EndTxnRequest(transactional_id="t"),
        WRITE_TXID,
        TXID_DENIED,
        TXID_DENIED,
    ),
    Row(ApiKey.WRITE_TXN_MARKERS, write_markers, on_cluster(Op.ALTER), CLUSTER_DENIED, {31}),
    Row(
        ApiKey.TXN_OFFSET_COMMIT,
        txn_offset_commit,
        all_of(WRITE_TXID, READ_GROUP, on_topic(Op.READ)),
        TXID_DENIED,
        TXID_DENIED,
    ),
    Row(
        ApiKey.DESCRIBE_ACLS,
        lambda version, topic: acls.DescribeAclsRequest(
            resource_type_filter=1,
            pattern_type_filter=1 if version else 3,
            operation=1,
            permission_type=1,
            resource_name_filter=None,
            principal_filter=None,
            host_filter=None,
        ),
        on_cluster(Op.DESCRIBE),
        CLUSTER_DENIED,
        NOTHING,
    ),
    Row(
        ApiKey.CREATE_ACLS,
        lambda version, topic: acls.CreateAclsRequest(
            creations=[
                acls.AclCreation(
                    resource_type=2,
                    resource_name=topic,
                    principal="User:carol",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ]
        ),
        on_cluster(Op.ALTER),
        CLUSTER_DENIED,
        CLUSTER_DENIED,
    ),
    Row(
        ApiKey.DELETE_ACLS,
        lambda version, topic: acls.DeleteAclsRequest(
            filters=[
                acls.DeleteAclsFilter(
                    resource_type_filter=2,
                    resource_name_filter="no such topic",
                    operation=1,
                    permission_type=1,
                    principal_filter=None,
                    host_filter=None,
                )
            ]
        ),
        on_cluster(Op.ALTER),
        CLUSTER_DENIED,
        CLUSTER_DENIED,
    ),
    Row(
        ApiKey.DESCRIBE_CONFIGS,
        describe_config(2),
        on_topic(Op.DESCRIBE_CONFIGS),
        TOPIC_DENIED,
        TOPIC_DENIED,
    ),
    Row(
        ApiKey.DESCRIBE_CONFIGS,
        describe_config(4, "0"),
        on_cluster(Op.DESCRIBE_CONFIGS),
        CLUSTER_DENIED,
        CLUSTER_DENIED,
        name="of a broker",
    ),
    Row(
        ApiKey.DESCRIBE_CONFIGS,
        describe_config(32, "g"),
        on(Op.DESCRIBE_CONFIGS, GROUP, "g"),
        GROUP_DENIED,
        GROUP_DENIED,
        name="of a group",
    ),
    Row(
        ApiKey.LIST_CLIENT_METRICS_RESOURCES,
        lambda version, topic: telemetry.ListConfigResourcesRequest(),
        on_cluster(Op.DESCRIBE_CONFIGS),
        CLUSTER_DENIED,
        CLUSTER_DENIED,
    ),
    Row(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        lambda version, topic: configs.DescribeClientQuotasRequest(),
        on_cluster(Op.DESCRIBE_CONFIGS),
        CLUSTER_DENIED,
        CLUSTER_DENIED,
    ),
    Row(
        ApiKey.ALTER_CLIENT_QUOTAS,
        lambda version, topic: configs.AlterClientQuotasRequest(
            entries=[
                configs.QuotaAlteration(
                    entity=[configs.QuotaEntity(entity_type="user", entity_name="u")],
                    ops=[configs.QuotaOperation(key="producer_byte_rate", value=1.0, remove=False)],
                )
            ],
            validate_only=True,
        ),
        on_cluster(Op.ALTER_CONFIGS),
        CLUSTER_DENIED,
        CLUSTER_DENIED,
    ),
    Row(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        lambda version, topic: scram_users.DescribeUserScramCredentialsRequest(users=None),
        on_cluster(Op.DESCRIBE),
        CLUSTER_DENIED,
        NOTHING,
    ),
    Row(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        lambda version, topic: scram_users.AlterUserScramCredentialsRequest(
            deletions=[scram_users.ScramCredentialDeletion(name="nobody", mechanism=1)]
        ),
        on_cluster(Op.ALTER),
        CLUSTER_DENIED,
        CLUSTER_DENIED,
    ),
    Row(
        ApiKey.CREATE_DELEGATION_TOKEN,
        lambda version, topic: delegation_tokens.CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name="bob"
        ),
        on(Op.CREATE_TOKENS, ResourceType.USER, "User:bob"),
        TOKEN_DENIED,
        TOKEN_DENIED,
        first_version=3,
    ),
    Row(
        ApiKey.ALTER_CONFIGS,
        alter_config,
        on_topic(Op.ALTER_CONFIGS),
        TOPIC_DENIED,
        TOPIC_DENIED,
    ),
    Row(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        increment_config,
        on_topic(Op.ALTER_CONFIGS),
        TOPIC_DENIED,
        TOPIC_DENIED,
    ),
    Row(ApiKey.ALTER_REPLICA_LOG_DIRS, move_log, on_cluster(Op.ALTER), {31}, {31}),
    Row(
        ApiKey.DESCRIBE_LOG_DIRS,
        lambda version, topic: log_dirs.DescribeLogDirsRequest(topics=None),
        on_cluster(Op.DESCRIBE),
        CLUSTER_DENIED,
        NOTHING,
        first_version=3,
    ),
    Row(ApiKey.ELECT_LEADERS, elect, on_cluster(Op.ALTER), CLUSTER_DENIED, CLUSTER_DENIED),
    Row(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        lambda version, topic: reassignments.AlterPartitionReassignmentsRequest(timeout_ms=1000),
        on_cluster(Op.ALTER),
        CLUSTER_DENIED,
        CLUSTER_DENIED,
    ),
    Row(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        lambda version, topic: reassignments.ListPartitionReassignmentsRequest(timeout_ms=1000),
        on_cluster(Op.DESCRIBE),
        CLUSTER_DENIED,
        NOTHING,
    ),
    Row(
        ApiKey.UPDATE_FEATURES,
        lambda version, topic: UpdateFeaturesRequest(
            feature_updates=[FeatureUpdateKey(feature="x", max_version_level=1)]
        ),
        on_cluster(Op.ALTER),
        CLUSTER_DENIED,
        CLUSTER_DENIED,
    ),
    Row(
        ApiKey.DESCRIBE_PRODUCERS,
        lambda version, topic: transactions.DescribeProducersRequest(
            topics=[transactions.TopicRequest(name=topic, partition_indexes=[0])]
        ),
        on_topic(Op.READ),
        TOPIC_DENIED,
        TOPIC_DENIED,
    ),
    Row(
        ApiKey.DESCRIBE_TRANSACTIONS,
        lambda version, topic: transactions.DescribeTransactionsRequest(transactional_ids=["t"]),
        on(Op.DESCRIBE, TXID, "t"),
        TXID_DENIED,
        NOTHING,
    ),
    Row(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        lambda version, topic: metadata.DescribeTopicPartitionsRequest(
            topics=[metadata.TopicRequest(name=topic)]
        ),
        on_topic(Op.DESCRIBE),
        TOPIC_DENIED,
        NOTHING,
    ),
    *(
        Row(key, lambda version, topic, of=body: of(), BROKER, CLUSTER_DENIED, CLUSTER_DENIED)
        for key, body in {
            ApiKey.LEADER_AND_ISR: leader_and_isr.LeaderAndIsrRequest,
            ApiKey.STOP_REPLICA: leader_and_isr.StopReplicaRequest,
            ApiKey.UPDATE_METADATA: update_metadata.UpdateMetadataRequest,
            ApiKey.CONTROLLED_SHUTDOWN: controller_requests.ControlledShutdownRequest,
            ApiKey.ALTER_PARTITION: controller_requests.AlterPartitionRequest,
        }.items()
    ),
]
