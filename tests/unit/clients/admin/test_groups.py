"""Calls about groups and their offsets: what is asked of whom, and what comes back."""

from __future__ import annotations

import pytest
from admin_world import COORDINATOR, Call, OldBroker, admin_of, asked

from ottla import KafkaError, OffsetAndMetadata, OffsetSpec, TopicPartition
from ottla.clients.admin.descriptions import GroupDescription, GroupListing, MemberDescription
from ottla.clients.topic_offsets import ListOffsetsResult
from ottla.errors import ErrorCode
from ottla.protocol.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedConsumerGroupMember,
    DescribedTopicPartitions,
)
from ottla.protocol.consumer_protocol import encode_assignment
from ottla.protocol.group import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from ottla.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from ottla.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.structs import Node

FIRST, SECOND = TopicPartition("pages", 0), TopicPartition("pages", 1)
NODE = Node(COORDINATOR, "mock", 9000 + COORDINATOR)
DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED


def classic(code: int = 0, state: str = "Stable", protocol_type: str = "consumer"):
    member = DescribedGroupMember(
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="/10.0.0.1",
        member_assignment=encode_assignment([FIRST, SECOND]),
    )
    waiting = DescribedGroupMember(member_id="n", client_id="c", client_host="/10.0.0.2")
    group = DescribedGroup(
        error_code=code,
        group_id="g",
        group_state=state,
        protocol_type=protocol_type,
        protocol_data="range",
        members=[member, waiting] if state == "Stable" else [],
    )
    return DescribeGroupsResponse(groups=[group])


def description(*assignment: TopicPartition, protocol_type: str = "consumer") -> GroupDescription:
    members = [
        MemberDescription("m", "i", "c", "/10.0.0.1", list(assignment)),
        MemberDescription("n", None, "c", "/10.0.0.2"),
    ]
    return GroupDescription("g", "Stable", protocol_type, "range", NODE, members)


def assignment(*partitions: int) -> DescribedAssignment:
    topic = DescribedTopicPartitions(topic_name="pages", partitions=list(partitions))
    return DescribedAssignment(topic_partitions=[topic])


def modern(code: int = 0) -> ConsumerGroupDescribeResponse:
    member = DescribedConsumerGroupMember(
        member_id="m",
        instance_id="i",
        member_epoch=4,
        client_id="c",
        client_host="/10.0.0.1",
        assignment=assignment(0),
        target_assignment=assignment(0, 1),
    )
    group = DescribedConsumerGroup(
        error_code=code,
        group_id="g",
        group_state="Reconciling",
        group_epoch=6,
        assignment_epoch=5,
        assignor_name="uniform",
        members=[member],
    )
    return ConsumerGroupDescribeResponse(groups=[group])


def deletion(code: int = 0) -> OffsetDeleteResponse:
    row = OffsetDeleteResponsePartition(partition_index=1, error_code=code)
    return OffsetDeleteResponse(topics=[OffsetDeleteResponseTopic(name="pages", partitions=[row])])


def commits(code: int = 0) -> OffsetCommitResponse:
    row = OffsetCommitResponsePartition(partition_index=1, error_code=code)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="pages", partitions=[row])])


def fetched(code: int = 0, row_code: int = 0) -> OffsetFetchResponse:
    """Partition 0 has no committed offset, partition 1 has one."""
    rows = [
        OffsetFetchResponsePartitions(partition_index=0, committed_offset=-1),
        OffsetFetchResponsePartitions(
            partition_index=1,
            committed_offset=7,
            committed_leader_epoch=3,
            metadata="seven",
            error_code=row_code,
        ),
    ]
    topics = [OffsetFetchResponseTopics(name="pages", partitions=rows)]
    group = OffsetFetchResponseGroup(group_id="g", error_code=code, topics=topics)
    return OffsetFetchResponse(groups=[group])


def group_question(*partitions: int, **fields) -> OffsetFetchRequest:
    """A question for some partitions, or for all."""
    group = OffsetFetchRequestGroup(group_id="g", topics=None)
    if partitions:
        group.topics = [OffsetFetchRequestTopics(name="pages", partition_indexes=list(partitions))]
    return OffsetFetchRequest(groups=[group], **fields)


def time_question(timestamp: int, **fields) -> ListOffsetsRequest:
    row = ListOffsetsPartition(partition_index=1, current_leader_epoch=0, timestamp=timestamp)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="pages", partitions=[row])], **fields
    )


def found(code: int = 0) -> ListOffsetsResponse:
    row = ListOffsetsPartitionResponse(
        partition_index=1, error_code=code, timestamp=1000, offset=40, leader_epoch=3
    )
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="pages", partitions=[row])])


DELETE = OffsetDeleteRequest(
    group_id="g",
    topics=[
        OffsetDeleteRequestTopic(
            name="pages", partitions=[OffsetDeleteRequestPartition(partition_index=1)]
        )
    ],
)
COMMITTED = {SECOND: OffsetAndMetadata(7, "seven", 3)}
CALLS = {
    "describe": Call(
        lambda admin: admin.describe_groups(iter(["g"])),
        COORDINATOR,
        DescribeGroupsRequest(groups=["g"]),
        classic(),
        {"g": description(FIRST, SECOND)},
    ),
    "describe a group that is not of consumers": Call(
        lambda admin: admin.describe_groups(["g"]),
        COORDINATOR,
        DescribeGroupsRequest(groups=["g"]),
        classic(protocol_type="connect"),
        {"g": description(protocol_type="connect")},
    ),
    "describe in vain": Call(
        lambda admin: admin.describe_groups(["g"]),
        COORDINATOR,
        DescribeGroupsRequest(groups=["g"]),
        classic(int(DENIED), "Dead"),
        DENIED,
    ),
    "delete": Call(
        lambda admin: admin.delete_groups(iter(["g"])),
        COORDINATOR,
        DeleteGroupsRequest(groups_names=["g"]),
        DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g")]),
        None,
    ),
    "delete in vain": Call(
        lambda admin: admin.delete_groups(["g"]),
        COORDINATOR,
        DeleteGroupsRequest(groups_names=["g"]),
        DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id="g", error_code=ErrorCode.NON_EMPTY_GROUP)]
        ),
        ErrorCode.NON_EMPTY_GROUP,
    ),
    "forget offsets": Call(
        lambda admin: admin.delete_group_offsets("g", iter([SECOND])),
        COORDINATOR,
        DELETE,
        deletion(),
        None,
    ),
    "forget offsets that are in use": Call(
        lambda admin: admin.delete_group_offsets("g", [SECOND]),
        COORDINATOR,
        DELETE,
        deletion(int(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)),
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    ),
    "forget offsets in vain": Call(
        lambda admin: admin.delete_group_offsets("g", [SECOND]),
        COORDINATOR,
        DELETE,
        OffsetDeleteResponse(error_code=DENIED),
        DENIED,
    ),
    "commit": Call(
        lambda admin: admin.alter_group_offsets("g", {SECOND: OffsetAndMetadata(7, "seven", 3)}),
        COORDINATOR,
        OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequestTopic(
                    name="pages",
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=1,
                            committed_offset=7,
                            committed_leader_epoch=3,
                            committed_metadata="seven",
                        )
                    ],
                )
            ],
        ),
        commits(),
        None,
    ),
    "commit in vain": Call(
        lambda admin: admin.alter_group_offsets("g", {SECOND: 7}),
        COORDINATOR,
        OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequestTopic(
                    name="pages",
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=1, committed_offset=7, committed_metadata=""
                        )
                    ],
                )
            ],
        ),
        commits(int(ErrorCode.UNKNOWN_MEMBER_ID)),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "committed offsets of all": Call(
        lambda admin: admin.list_group_offsets("g"),
        COORDINATOR,
        group_question(),
        fetched(),
        COMMITTED,
    ),
    "committed offsets of some, when they are stable": Call(
        lambda admin: admin.list_group_offsets("g", iter([FIRST, SECOND]), require_stable=True),
        COORDINATOR,
        group_question(0, 1, require_stable=True),
        fetched(),
        COMMITTED,
    ),
    "committed offsets in vain": Call(
        lambda admin: admin.list_group_offsets("g"),
        COORDINATOR,
        group_question(),
        fetched(int(DENIED)),
        DENIED,
    ),
    "committed offsets of a topic that is denied": Call(
        lambda admin: admin.list_group_offsets("g"),
        COORDINATOR,
        group_question(),
        fetched(0, int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)),
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
    "offset of a time": Call(
        lambda admin: admin.list_offsets({SECOND: 900}),
        1,
        time_question(900),
        found(),
        {SECOND: ListOffsetsResult(40, 1000, 3)},
    ),
    "offset that is committed": Call(
        lambda admin: admin.list_offsets({SECOND: OffsetSpec.LATEST}, "read_committed"),
        1,
        time_question(-1, isolation_level=1),
        found(int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)),
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_each_call_asks_for_what_it_was_given(virtual_admin, cluster, call):
    """One request, to the coordinator or the leader; its answer is returned."""
    call.check(virtual_admin, cluster)


OLD = {
    "states": OldBroker(lambda admin: admin.list_groups(["Stable"]), ListGroupsRequest, 4),
    "types": OldBroker(lambda admin: admin.list_groups(types=["classic"]), ListGroupsRequest, 5),
    "all offsets": OldBroker(lambda admin: admin.list_group_offsets("g"), OffsetFetchRequest, 2),
    "committed offsets alone": OldBroker(
        lambda admin: admin.list_offsets({SECOND: -1}, "read_committed"), ListOffsetsRequest, 2
    ),
    "the newest record": OldBroker(
        lambda admin: admin.list_offsets({SECOND: OffsetSpec.MAX_TIMESTAMP}), ListOffsetsRequest, 7
    ),
    "times": OldBroker(lambda admin: admin.list_offsets({SECOND: 900}), ListOffsetsRequest, 1),
}


@pytest.mark.parametrize("call", OLD.values(), ids=OLD)
def test_calls_that_a_broker_is_too_old_for_are_not_sent(virtual_admin, cluster, call):
    """The error says which versions this client needs."""
    call.check(virtual_admin, cluster)


@pytest.mark.parametrize("version", [1, 6, 7])
def test_old_coordinators_are_asked_for_one_group(virtual_admin, cluster, version):
    """Before version 8 a request is about one group; before 7 it cannot ask for stable offsets."""
    rows = [OffsetFetchResponsePartition(partition_index=1, committed_offset=7, metadata=None)]
    topics = [OffsetFetchResponseTopic(name="pages", partitions=rows)]
    cluster[COORDINATOR].versions[OffsetFetchRequest.api_key] = (0, version)
    cluster[COORDINATOR].on(OffsetFetchRequest, OffsetFetchResponse(topics=topics))

    committed = virtual_admin.list_group_offsets("g", [SECOND], require_stable=True)

    assert committed == {SECOND: OffsetAndMetadata(7)}
    ((_, request),) = asked(cluster, OffsetFetchRequest)
    assert (request.group_id, request.require_stable) == ("g", version >= 7)
    assert [(each.name, each.partition_indexes) for each in request.topics] == [("pages", [1])]


def test_groups_are_described_by_one_request(virtual_admin, cluster):
    """Another one is about those that may be of the newer kind."""
    groups = [
        DescribedGroup(group_id=name, group_state=state, protocol_type="consumer")
        for name, state in (("f", "Empty"), ("g", "Dead"), ("h", "Dead"))
    ]
    cluster[COORDINATOR].on(DescribeGroupsRequest, DescribeGroupsResponse(groups=groups))
    newer = modern()
    gone = DescribedConsumerGroup(error_code=ErrorCode.GROUP_ID_NOT_FOUND, group_id="h")
    newer.groups.append(gone)
    cluster[COORDINATOR].on(ConsumerGroupDescribeRequest, newer)
    found = virtual_admin.describe_groups(["f", "g", "h"])

    assert {name: each.state for name, each in found.items()} == {
        "f": "Empty",
        "g": "Reconciling",
        "h": "Dead",
    }
    assert [each.groups for _, each in asked(cluster, DescribeGroupsRequest)] == [["f", "g", "h"]]
    ((_, second),) = asked(cluster, ConsumerGroupDescribeRequest)
    assert second.group_ids == ["g", "h"]


def group_offsets(*answers: tuple[str, int, int]) -> OffsetFetchResponse:
    """An answer for several groups: their ids, error codes and offsets."""
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(
                group_id=group,
                error_code=code,
                topics=[
                    OffsetFetchResponseTopics(
                        name="pages",
                        partitions=[
                            OffsetFetchResponsePartitions(
                                partition_index=0, committed_offset=offset, metadata=None
                            )
                        ],
                    )
                ],
            )
            for group, code, offset in answers
        ]
    )


def test_offsets_of_groups_are_one_request(virtual_admin, cluster):
    """Groups that a broker has listed are asked of it, without a look-up of their coordinator."""
    for broker in cluster.brokers.values():
        broker.on(ListGroupsRequest, ListGroupsResponse())
    listed = [ListedGroup(group_id=name, protocol_type="consumer") for name in ("g", "h")]
    cluster[0].on(ListGroupsRequest, ListGroupsResponse(groups=listed))
    cluster[0].on(OffsetFetchRequest, group_offsets(("g", 0, 7), ("h", 0, 8)))
    virtual_admin.list_groups()
    committed = virtual_admin.list_groups_offsets(iter(["g", "h"]))

    assert committed == {
        "g": {FIRST: OffsetAndMetadata(7)},
        "h": {FIRST: OffsetAndMetadata(8)},
    }
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("g", "h")]
    assert asked(cluster, OffsetFetchRequest) == [(0, OffsetFetchRequest(groups=groups))]
    assert asked(cluster, FindCoordinatorRequest) == []


def test_offsets_of_groups_are_known_where_one_is_denied(virtual_admin, cluster):
    """The error of the one has the offsets of the others in its results."""
    answer = group_offsets(("g", 0, 7), ("h", int(DENIED), -1))
    cluster[COORDINATOR].on(OffsetFetchRequest, answer)
    with pytest.raises(KafkaError, match="offsets of group h") as caught:
        virtual_admin.list_groups_offsets(["g", "h"])

    assert caught.value.results["g"] == {FIRST: OffsetAndMetadata(7)}


def test_old_coordinator_is_asked_for_each_group(virtual_admin, cluster):
    """Before version 8 a request is about one group."""
    rows = [OffsetFetchResponsePartition(partition_index=1, committed_offset=7, metadata=None)]
    topics = [OffsetFetchResponseTopic(name="pages", partitions=rows)]
    cluster[COORDINATOR].versions[OffsetFetchRequest.api_key] = (0, 7)
    cluster[COORDINATOR].on(OffsetFetchRequest, OffsetFetchResponse(topics=topics))
    committed = virtual_admin.list_groups_offsets(["g", "h"])

    assert committed == {name: {SECOND: OffsetAndMetadata(7)} for name in ("g", "h")}
    assert [each.group_id for _, each in asked(cluster, OffsetFetchRequest)] == ["g", "h"]


def test_groups_are_listed_by_all_brokers(virtual_admin, cluster):
    """One list, by id; each broker is asked for the states and types."""
    for node_id, broker in cluster.brokers.items():
        group = ListedGroup(
            group_id=f"g{9 - node_id}",
            protocol_type="consumer",
            group_state="Stable",
            group_type="classic",
        )
        broker.on(ListGroupsRequest, ListGroupsResponse(groups=[group]))

    assert virtual_admin.list_groups(iter(["Stable"]), iter(["classic"])) == [
        GroupListing(f"g{number}", "consumer", "Stable", "classic") for number in (7, 8, 9)
    ]
    assert asked(cluster, ListGroupsRequest) == [
        (node_id, ListGroupsRequest(states_filter=["Stable"], types_filter=["classic"]))
        for node_id in (0, 1, 2)
    ]


def test_list_without_a_broker_is_an_error(virtual_admin, cluster):
    """Part of the groups would be missing; the error has those of the other brokers."""
    for node_id, broker in cluster.brokers.items():
        group = ListedGroup(group_id=f"g{node_id}", protocol_type="consumer")
        broker.on(ListGroupsRequest, ListGroupsResponse(groups=[group]))
    cluster[1].on(ListGroupsRequest, ListGroupsResponse(error_code=DENIED))
    with pytest.raises(KafkaError, match="groups of broker 1") as caught:
        virtual_admin.list_groups()

    assert caught.value.error is DENIED
    assert [each.group_id for each in caught.value.results[2]] == ["g2"]
    assert caught.value.results.keys() == {0, 1, 2}


MEMBER = MemberDescription("m", "i", "c", "/10.0.0.1", [FIRST], 4, [FIRST, SECOND])


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            modern(),
            GroupDescription("g", "Reconciling", "consumer", "uniform", NODE, [MEMBER], 6, 5),
        ),
        (
            modern(int(ErrorCode.GROUP_ID_NOT_FOUND)),
            GroupDescription("g", "Dead", "consumer", "range", NODE),
        ),
    ],
    ids=["it is one", "there is none"],
)
def test_group_that_is_dead_may_be_one_of_the_newer_kind(virtual_admin, cluster, answer, expected):
    """Coordinators describe groups of KIP-848 to another request."""
    cluster[COORDINATOR].on(DescribeGroupsRequest, classic(state="Dead"))
    cluster[COORDINATOR].on(ConsumerGroupDescribeRequest, answer)

    assert virtual_admin.describe_groups(["g"]) == {"g": expected}
    ((_, request),) = asked(cluster, ConsumerGroupDescribeRequest)
    assert request == ConsumerGroupDescribeRequest(group_ids=["g"])


def test_group_that_is_not_found_is_dead_or_of_the_newer_kind(virtual_admin, cluster):
    """Since version 6 of DescribeGroups it is an error (KIP-1043)."""
    missing = classic(int(ErrorCode.GROUP_ID_NOT_FOUND), "Dead")
    cluster[COORDINATOR].on(DescribeGroupsRequest, missing, missing)
    cluster[COORDINATOR].on(
        ConsumerGroupDescribeRequest, modern(), modern(int(ErrorCode.GROUP_ID_NOT_FOUND))
    )

    states = [virtual_admin.describe_groups(["g"])["g"].state for _ in range(2)]
    assert states == ["Reconciling", "Dead"]


def test_error_of_the_newer_kind_is_that_of_the_group(virtual_admin, cluster):
    """Other than that there is no such group."""
    cluster[COORDINATOR].on(DescribeGroupsRequest, classic(state="Dead"))
    cluster[COORDINATOR].on(ConsumerGroupDescribeRequest, modern(int(DENIED)))
    with pytest.raises(KafkaError, match="group g") as caught:
        virtual_admin.describe_groups(["g"])

    assert caught.value.error is DENIED


def test_old_brokers_have_no_groups_of_the_newer_kind(virtual_admin, cluster):
    """A group that is dead for an old broker is dead."""
    cluster[COORDINATOR].versions[ConsumerGroupDescribeRequest.api_key] = (0, -1)
    cluster[COORDINATOR].on(DescribeGroupsRequest, classic(state="Dead"))

    assert virtual_admin.describe_groups(["g"])["g"].state == "Dead"


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.describe_groups(["g"]),
        lambda admin: admin.delete_groups(["g"]),
        lambda admin: admin.list_group_offsets("g"),
        lambda admin: admin.alter_group_offsets("g", {SECOND: 7}),
        lambda admin: admin.delete_group_offsets("g", [SECOND]),
    ],
)
def test_group_without_a_coordinator_is_an_error(virtual_admin, cluster, call):
    """It names the group."""

    def answer(request, version):
        response = cluster[0]._find_coordinator(request, version)
        response.coordinators[0].error_code = DENIED
        return response

    for broker in cluster.brokers.values():
        broker.on(FindCoordinatorRequest, answer)
    with pytest.raises(KafkaError, match="coordinator of group g") as caught:
        call(virtual_admin)

    assert caught.value.error is DENIED


@pytest.mark.parametrize("version", [0, 3, 4])
def test_old_brokers_are_asked_for_one_coordinator(virtual_admin, cluster, version):
    """Before version 4 a request has one key, and before 1 it is that of a group."""
    for broker in cluster.brokers.values():
        broker.versions[FindCoordinatorRequest.api_key] = (0, version)
    answer = DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g")])
    cluster[COORDINATOR].on(DeleteGroupsRequest, answer)
    virtual_admin.delete_groups(["g"])

    ((_, request),) = asked(cluster, FindCoordinatorRequest)
    assert (request.key, request.coordinator_keys) == (("g", []) if version < 4 else ("", ["g"]))
    assert request.key_type == 0


@pytest.mark.parametrize(
    ("partition", "error", "words"),
    [
        (("pages", 9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition pages-9"),
        (("pages", 1), ErrorCode.LEADER_NOT_AVAILABLE, "partition pages-1 has no leader"),
        (("missing", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic missing: "),
    ],
)
def test_partition_that_nobody_can_be_asked_about_is_an_error(
    runtime, cluster, monkeypatch, partition, error, words
):
    """It says what is missing: the topic, the partition, or its leader."""
    cluster.leaders["pages", 1] = -1
    where = TopicPartition(*partition)
    limits = {"default_api_timeout_ms": 2000, "request_timeout_ms": 1000}
    with (
        admin_of(runtime, cluster, monkeypatch, **limits) as admin,
        pytest.raises(KafkaError, match=words) as caught,
    ):
        admin.list_offsets({where: 5})

    assert caught.value.error is error
