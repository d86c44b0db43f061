"""A small request about a large state is served in short steps.

The state is made of requests that are each allowed: large topics, many ACLs, many quotas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from counted_calls import calls
from request_fuzzer import Watch, memory_of, steps_measured

from ottla.extensions.rights.rights import Rights
from ottla.log.producer_state_entry import ProducerStateEntry
from ottla.protocol.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from ottla.protocol.configs import DescribeClientQuotasRequest
from ottla.protocol.consumer_group import ConsumerGroupHeartbeatRequest
from ottla.protocol.group import DeleteGroupsRequest, FindCoordinatorRequest, ListGroupsRequest
from ottla.protocol.header import encode_request
from ottla.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.metadata import (
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from ottla.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from ottla.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.transactions import (
    DescribeProducersRequest,
    ListTransactionsRequest,
    TopicRequest,
)
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePattern,
    ResourceType,
)
from ottla.security.principal import KafkaPrincipal
from ottla.structs import ClientEntity, LeaderAndIsr, PartitionState, TopicPartition
from ottla.testing import InProcessBroker, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ADMIN, EVE = KafkaPrincipal.user("admin"), KafkaPrincipal.user("eve")
MANY = 6_000
MOST_CALLS = 100_000
"""Of functions in one step, the built-in ones among them: some 20 ms."""
ANY: dict[str, Any] = {
    "resource_type_filter": 1,
    "pattern_type_filter": 1,
    "operation": 1,
    "permission_type": 1,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    """A broker of a cluster where there is much of everything."""
    settings = {
        "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
        "super_users": "User:admin",
    }
    with InProcessBroker(**settings) as broker:
        broker.run(fill(broker))
        broker.create_topic("records")
        batch = build_batch(
            [(1000 + (n == 10 * MANY - 1), None, b"", ()) for n in range(10 * MANY)],
            CompressionType.GZIP,
        )
        data = TopicProduceData(name="records")
        data.partition_data = [PartitionProduceData(index=0, records=batch)]
        request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data])
        ask(broker, request, 9)
        log = broker.broker.replica_manager.partition(TopicPartition("records", 0)).log
        known = log.producer_state_manager.producers
        known.update((each, ProducerStateEntry(each)) for each in range(1, 2 * MANY))
        ask(broker, FindCoordinatorRequest(key="many"), 1)
        coordinators = broker.broker.coordinators
        wait_until(lambda: not coordinators.groups.availability("many"), "the coordinator")
        commit(broker, "many", range(MANY))
        for number in range(MANY // 3):
            commit(broker, f"g{number}", [0])
        yield broker


def commit(broker: InProcessBroker, group: str, partitions: Iterable[int]) -> None:
    """Commit offsets of the large topic, in steps, as a group's tool does."""
    rows = [OffsetCommitRequestPartition(partition_index=n, committed_offset=1) for n in partitions]
    topic = OffsetCommitRequestTopic(name="large", partitions=rows)
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[topic]
    )
    ask(broker, request, 8)


def ask(broker: InProcessBroker, request: Any, version: int) -> None:
    Watch(broker).send(encode_request(version, 1, "fill", request)[4:], ADMIN)


async def fill(broker: InProcessBroker) -> None:
    """As if others had made it all: straight where the broker looks."""
    cache, server = broker.broker.cache, broker.broker
    brokers = list(cache.brokers.values())
    state = LeaderAndIsr(0, 0, (0,))
    for number, (name, count) in enumerate(
        {"large": MANY, **{f"m{n}": 400 for n in range(20)}}.items()
    ):
        partitions = [TopicPartition(name, n) for n in range(count)]
        cache.update(
            [PartitionState(each, UUID(int=number + 1), 1, state, (0,)) for each in partitions],
            brokers,
        )
    read = (AclOperation.READ, AclPermissionType.ALLOW)
    patterns = [ResourcePattern(ResourceType.TOPIC, f"r{n}") for n in range(MANY)]
    one = ResourcePattern(ResourceType.TOPIC, "*")
    assert server.find(Rights).authorizer is not None
    server.find(Rights).authorizer.table.add(
        AclBinding(each, AccessControlEntry("User:bob", "*", *read)) for each in patterns
    )
    await server.find(Rights).authorizer.store.add(
        [AclBinding(one, AccessControlEntry(f"User:u{n}", "*", *read)) for n in range(MANY // 2)]
    )
    for number in range(MANY):
        entity = ClientEntity(client_id=f"c{number}")
        await server.dynamic_config.entities.change_client(
            entity, lambda before: {"producer_byte_rate": "1000"}
        )


async def updated(broker: InProcessBroker) -> None:
    """The controller has told of a change."""
    cache = broker.broker.cache
    cache.update([], list(cache.brokers.values()))


CREATION = AclCreation(
    resource_type=2,
    resource_name="*",
    resource_pattern_type=3,
    principal="User:one-more",
    host="*",
    operation=3,
    permission_type=3,
)


def offset_of_time(timestamp_ms: int) -> ListOffsetsRequest:
    """A search for the last of many records, which are one batch."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp_ms)
    topics = [ListOffsetsTopic(name="records", partitions=[partition])]
    return ListOffsetsRequest(replica_id=-1, topics=topics)


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (MetadataRequest(topics=[MetadataRequestTopic(name="large")]), 9),
        (MetadataRequest(topics=[MetadataRequestTopic(name="large")]), 1),
        (MetadataRequest(topics=[MetadataRequestTopic(name=f"m{n}") for n in range(20)]), 12),
        (MetadataRequest(topics=None), 12),
        (DescribeTopicPartitionsRequest(response_partition_limit=2000), 0),
        (DescribeAclsRequest(**ANY), 2),
        (DeleteAclsRequest(filters=[DeleteAclsFilter(resource_name_filter="no", **ANY)] * 15), 2),
        (CreateAclsRequest(creations=[CREATION]), 2),
        (DescribeClientQuotasRequest(), 1),
        (offset_of_time(1001), 7),
        (offset_of_time(-3), 7),
        (
            DescribeProducersRequest(topics=[TopicRequest(name="records", partition_indexes=[0])]),
            0,
        ),
        (OffsetFetchRequest(group_id="many", topics=None), 7),
        (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="many", topics=None)]), 8),
        (ListGroupsRequest(), 5),
        (ListTransactionsRequest(producer_id_filters=list(range(1900))), 2),
        (DeleteGroupsRequest(groups_names=["many"]), 2),
        (FindCoordinatorRequest(coordinator_keys=[f"g{n}" for n in range(MANY)]), 4),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, int) else str(value),
)
@pytest.mark.parametrize("principal", [ADMIN, EVE], ids=["admin", "eve"])
def test_no_step_does_more_than_a_slice_of_it(broker, request_, version, principal):
    """Whoever asks, with or without rights; the metadata have just changed."""
    broker.run(updated(broker))
    watch = Watch(broker)
    with steps_measured(watch, calls):
        watch.send(encode_request(version, 1, "small", request_)[4:], principal)

    assert watch.worst <= MOST_CALLS


def test_search_for_a_time_takes_the_memory_of_a_piece(broker):
    """However much the batch unpacks to."""
    watch = Watch(broker)
    frame = encode_request(7, 1, "small", offset_of_time(1001))[4:]
    most = memory_of(lambda: watch.send(frame, ADMIN))

    assert most < 2_000_000


def heartbeats() -> Iterator[tuple[str, ConsumerGroupHeartbeatRequest]]:
    """Members of two subscriptions join a group, and one of them leaves."""
    for number in range(8):
        yield (
            f"join {number}",
            ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id=f"m{number}",
                rebalance_timeout_ms=30_000,
                subscribed_topic_regex="large|m1.*" if number % 3 else "m.*",
                topic_partitions=[],
            ),
        )
    leaving = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m0", member_epoch=-1)
    yield "leave", leaving


def test_heartbeat_of_a_large_consumer_group_is_served_in_slices(broker):
    """Of the first member too, which gets all partitions."""
    groups = broker.broker.coordinators.groups
    wait_until(lambda: not groups.availability("g"), "the coordinator")
    watch, worst = Watch(broker), {}
    for name, request in heartbeats():
        watch.worst = 0
        with steps_measured(watch, calls):
            watch.send(encode_request(1, 1, "small", request)[4:], ADMIN)
        worst[name] = watch.worst

    targets = groups.manager.group("g").target
    assert sorted(targets) == [f"m{number}" for number in range(1, 8)]
    assert all(len(targets[member]) > 100 for member in targets), targets
    # The hash of each id counts twice, and is short.
    assert max(worst.values()) <= 2 * MOST_CALLS, worst
