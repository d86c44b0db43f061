"""Calls about topics, records, leaders and replicas: what is asked of whom, and what comes back."""

from __future__ import annotations

from uuid import UUID

import pytest
from admin_world import (
    CONTROLLER,
    REQUEST_TIMEOUT_MS,
    Call,
    OldBroker,
    asked,
)

from ottla import KafkaError, NewTopic, TopicPartition
from ottla.clients.admin.descriptions import TopicDescription, TopicPartitionInfo
from ottla.clients.admin.topics import PartitionReassignment, uses_default
from ottla.errors import ErrorCode
from ottla.protocol.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersPartitionResult,
    ElectLeadersReplicaElectionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicPartitions,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from ottla.protocol.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.structs import ElectionType

FIRST, SECOND = TopicPartition("pages", 0), TopicPartition("pages", 1)
TOPIC_ID = UUID(int=7)


def created(*codes: int) -> CreateTopicsResponse:
    """An answer about topics t0, t1 and so on."""
    topics = [CreatableTopicResult(name=f"t{n}", error_code=code) for n, code in enumerate(codes)]
    return CreateTopicsResponse(topics=topics)


def elected(code: int = 0, error: int = 0) -> ElectLeadersResponse:
    row = ElectLeadersPartitionResult(partition_id=1, error_code=code)
    topic = ElectLeadersReplicaElectionResult(topic="pages", partition_result=[row])
    return ElectLeadersResponse(error_code=error, replica_election_results=[topic])


def reassigned(code: int = 0, error: int = 0) -> AlterPartitionReassignmentsResponse:
    row = ReassignablePartitionResponse(partition_index=1, error_code=code)
    topic = ReassignableTopicResponse(name="pages", partitions=[row])
    return AlterPartitionReassignmentsResponse(error_code=error, responses=[topic])


def reassignment(replicas: list[int] | None) -> AlterPartitionReassignmentsRequest:
    row = ReassignablePartition(partition_index=1, replicas=replicas)
    return AlterPartitionReassignmentsRequest(
        timeout_ms=REQUEST_TIMEOUT_MS, topics=[ReassignableTopic(name="pages", partitions=[row])]
    )


TIMEOUT = {"timeout_ms": REQUEST_TIMEOUT_MS}
CALLS = {
    "create": Call(
        lambda admin: admin.create_topics(
            [NewTopic("t0", 3, 2, configs={"retention.ms": "5"}), "t1"], validate_only=True
        ),
        CONTROLLER,
        CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name="t0",
                    num_partitions=3,
                    replication_factor=2,
                    configs=[CreatableTopicConfig(name="retention.ms", value="5")],
                ),
                CreatableTopic(name="t1", num_partitions=-1, replication_factor=-1),
            ],
            validate_only=True,
            **TIMEOUT,
        ),
        created(0, 0),
        None,
    ),
    "create with an assignment": Call(
        lambda admin: admin.create_topics([NewTopic("t0", 9, 9, {0: [2, 1], 1: [1, 2]})]),
        CONTROLLER,
        CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name="t0",
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        CreatableReplicaAssignment(partition_index=0, broker_ids=[2, 1]),
                        CreatableReplicaAssignment(partition_index=1, broker_ids=[1, 2]),
                    ],
                )
            ],
            **TIMEOUT,
        ),
        created(int(ErrorCode.INVALID_REPLICA_ASSIGNMENT)),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
    "delete": Call(
        lambda admin: admin.delete_topics(["t0", "t1"]),
        CONTROLLER,
        DeleteTopicsRequest(
            topics=[DeleteTopicState(name="t0"), DeleteTopicState(name="t1")], **TIMEOUT
        ),
        DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(name="t0"),
                DeletableTopicResult(name="t1", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            ]
        ),
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
    "create partitions": Call(
        lambda admin: admin.create_partitions({"t0": 4, "t1": 3}, {"t1": [[1, 2], [2, 0]]}),
        CONTROLLER,
        CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name="t0", count=4, assignments=None),
                CreatePartitionsTopic(
                    name="t1",
                    count=3,
                    assignments=[
                        CreatePartitionsAssignment(broker_ids=[1, 2]),
                        CreatePartitionsAssignment(broker_ids=[2, 0]),
                    ],
                ),
            ],
            **TIMEOUT,
        ),
        CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name="t0"),
                CreatePartitionsTopicResult(name="t1", error_code=ErrorCode.INVALID_PARTITIONS),
            ]
        ),
        ErrorCode.INVALID_PARTITIONS,
    ),
    "delete records": Call(
        lambda admin: admin.delete_records({SECOND: 40}),
        1,
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name="pages", partitions=[DeleteRecordsPartition(partition_index=1, offset=40)]
                )
            ],
            **TIMEOUT,
        ),
        DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    name="pages",
                    partitions=[DeleteRecordsPartitionResult(partition_index=1, low_watermark=39)],
                )
            ]
        ),
        {SECOND: 39},
    ),
    "elect preferred leaders of all": Call(
        lambda admin: admin.elect_leaders(),
        CONTROLLER,
        ElectLeadersRequest(topic_partitions=None, **TIMEOUT),
        elected(),
        {SECOND: None},
    ),
    "elect any leader of one": Call(
        lambda admin: list(admin.elect_leaders(ElectionType.UNCLEAN, [SECOND])),
        CONTROLLER,
        ElectLeadersRequest(
            election_type=1,
            topic_partitions=[ElectLeadersTopicPartitions(topic="pages", partitions=[1])],
            **TIMEOUT,
        ),
        elected(int(ErrorCode.ELECTION_NOT_NEEDED)),
        [SECOND],
    ),
    "an election is refused": Call(
        lambda admin: admin.elect_leaders(),
        CONTROLLER,
        ElectLeadersRequest(topic_partitions=None, **TIMEOUT),
        elected(error=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)),
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ),
    "reassign": Call(
        lambda admin: admin.alter_partition_reassignments({SECOND: (2, 0)}),
        CONTROLLER,
        reassignment([2, 0]),
        reassigned(),
        None,
    ),
    "cancel a reassignment": Call(
        lambda admin: admin.alter_partition_reassignments({SECOND: None}),
        CONTROLLER,
        reassignment(None),
        reassigned(int(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)),
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ),
    "a reassignment is refused": Call(
        lambda admin: admin.alter_partition_reassignments({SECOND: (2,)}),
        CONTROLLER,
        reassignment([2]),
        reassigned(error=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)),
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ),
    "list all reassignments": Call(
        lambda admin: admin.list_partition_reassignments(),
        CONTROLLER,
        ListPartitionReassignmentsRequest(topics=None, **TIMEOUT),
        ListPartitionReassignmentsResponse(
            topics=[
                OngoingTopicReassignment(
                    name="pages",
                    partitions=[
                        OngoingPartitionReassignment(
                            partition_index=1,
                            replicas=[0, 1, 2],
                            adding_replicas=[2],
                            removing_replicas=[0],
                        )
                    ],
                )
            ]
        ),
        {SECOND: PartitionReassignment((0, 1, 2), (2,), (0,))},
    ),
    "list some reassignments": Call(
        lambda admin: admin.list_partition_reassignments([FIRST, SECOND]),
        CONTROLLER,
        ListPartitionReassignmentsRequest(
            topics=[ListPartitionReassignmentsTopics(name="pages", partition_indexes=[0, 1])],
            **TIMEOUT,
        ),
        ListPartitionReassignmentsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_each_call_asks_for_what_it_was_given(virtual_admin, cluster, call):
    """One request, to the broker that decides, with everything in it; its answer is returned."""
    call.check(virtual_admin, cluster)


OLD = {
    "counts left to the broker": OldBroker(
        lambda admin: admin.create_topics([NewTopic("t0", 3, 1), "t1"]), CreateTopicsRequest, 4
    ),
    "unclean elections": OldBroker(
        lambda admin: admin.elect_leaders(ElectionType.UNCLEAN), ElectLeadersRequest, 1
    ),
}


@pytest.mark.parametrize("call", OLD.values(), ids=OLD)
def test_calls_that_a_broker_is_too_old_for_are_not_sent(virtual_admin, cluster, call):
    """The error says which versions this client needs."""
    call.check(virtual_admin, cluster)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (NewTopic("t"), True),
        (NewTopic("t", 1), True),
        (NewTopic("t", replication_factor=1), True),
        (NewTopic("t", 1, 1), False),
        (NewTopic("t", replica_assignment={0: [1]}), False),
    ],
)
def test_topic_uses_a_default_where_a_count_is_left_out(topic, expected):
    """An assignment says both counts."""
    assert uses_default(topic) is expected


def test_old_brokers_delete_topics_by_name_alone(virtual_admin, cluster):
    """Before version 6 the request has names, and no ids."""
    cluster[CONTROLLER].versions[DeleteTopicsRequest.api_key] = (0, 5)
    answer = DeleteTopicsResponse(responses=[DeletableTopicResult(name="t0")])
    cluster[CONTROLLER].on(DeleteTopicsRequest, answer)
    virtual_admin.delete_topics(["t0"])

    ((_, request),) = asked(cluster, DeleteTopicsRequest)
    assert request.topic_names == ["t0"]


def test_records_are_deleted_on_their_leaders(virtual_admin, cluster):
    """Each leader is asked about its own partitions; an error is that of the partition."""

    def answer(request, version):
        ((partition,),) = [topic.partitions for topic in request.topics]
        result = DeleteRecordsPartitionResult(
            partition_index=partition.partition_index,
            low_watermark=partition.offset,
            error_code=ErrorCode.OFFSET_OUT_OF_RANGE if partition.offset > 100 else 0,
        )
        return DeleteRecordsResponse(
            topics=[DeleteRecordsTopicResult(name="pages", partitions=[result])]
        )

    for broker in cluster.brokers.values():
        broker.on(DeleteRecordsRequest, answer)
    with pytest.raises(KafkaError, match="records of pages-1") as caught:
        virtual_admin.delete_records({FIRST: 4, SECOND: 400})

    assert [node_id for node_id, _ in asked(cluster, DeleteRecordsRequest)] == [0, 1]
    assert caught.value.results[FIRST] == 4
    assert caught.value.results[SECOND].error is ErrorCode.OFFSET_OUT_OF_RANGE


def metadata_of(code: int = 0, **fields) -> MetadataResponse:
    """Metadata with a topic, whose partitions come in any order."""
    partitions = [
        MetadataResponsePartition(
            partition_index=index,
            leader_id=1,
            leader_epoch=5,
            replica_nodes=[1, 2, 0],
            isr_nodes=[1, 2],
            offline_replicas=[0],
        )
        for index in (1, 0)
    ]
    topic = MetadataResponseTopic(name="orders", error_code=code, partitions=partitions, **fields)
    return MetadataResponse(topics=[topic])


def test_topic_is_described_with_all_that_the_metadata_say(virtual_admin, cluster):
    """Its partitions come in order; a partition without a leader is not an error."""
    fields = {"topic_id": TOPIC_ID, "is_internal": True, "topic_authorized_operations": 6}
    answer = metadata_of(int(ErrorCode.LEADER_NOT_AVAILABLE), **fields)
    for broker in cluster.brokers.values():
        broker.on(MetadataRequest, answer)
    described = virtual_admin.describe_topics(["orders"], include_authorized_operations=True)

    rows = [TopicPartitionInfo(n, 1, 5, [1, 2, 0], [1, 2], [0]) for n in (0, 1)]
    assert described == {"orders": TopicDescription("orders", TOPIC_ID, True, rows, 6)}
    ((_, request),) = asked(cluster, MetadataRequest)
    assert request == MetadataRequest(
        topics=[MetadataRequestTopic(name="orders")],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )


def test_operations_are_there_only_where_they_were_asked_for(virtual_admin, cluster):
    """Brokers without the question say nothing about them either."""
    for broker in cluster.brokers.values():
        broker.on(MetadataRequest, metadata_of())
        broker.versions[MetadataRequest.api_key] = (0, 7)
    described = virtual_admin.describe_topics(["orders"], include_authorized_operations=True)

    assert described["orders"].authorized_operations is None
    ((_, request),) = asked(cluster, MetadataRequest)
    assert not request.include_topic_authorized_operations
    assert not request.allow_auto_topic_creation


@pytest.mark.parametrize(
    ("version", "creates", "asks"),
    [(3, True, False), (4, False, False), (7, False, False), (8, False, True)],
)
def test_old_brokers_are_asked_for_metadata_as_they_can(
    virtual_admin, cluster, version, creates, asks
):
    """Version 4 can be told to create nothing, and version 8 to say what is permitted."""
    for broker in cluster.brokers.values():
        broker.on(MetadataRequest, metadata_of())
        broker.versions[MetadataRequest.api_key] = (0, version)

    described = virtual_admin.describe_topics(["orders"], include_authorized_operations=True)
    assert list(described) == ["orders"]
    ((_, request),) = asked(cluster, MetadataRequest)
    assert request.allow_auto_topic_creation is creates
    assert request.include_topic_authorized_operations is asks


def test_all_topics_are_described_by_name(virtual_admin, cluster):
    """A call without names describes the listed topics, in the order of their names."""
    names = [f"topic-{letter}" for letter in "abcdefghijklmnop"]
    cluster.topics = dict.fromkeys(reversed(names), 1)

    assert list(virtual_admin.describe_topics()) == names
    assert virtual_admin.list_topics() == set(names)
    assert [request.topics for _, request in asked(cluster, MetadataRequest)].count(None) == 2


def test_topics_are_described_in_the_order_in_which_they_were_given(virtual_admin, cluster):
    """It need not be that of their names."""
    cluster.topics = {"ant": 1, "zebra": 1}

    assert list(virtual_admin.describe_topics(["zebra", "ant"])) == ["zebra", "ant"]
