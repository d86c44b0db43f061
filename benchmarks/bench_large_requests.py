"""Small requests about large states: the longest step of the broker's loop while each is served.

A group has ten thousand members or half a million offsets, a cluster ten thousand topics, as many
ACLs and half as many clients; a broker coordinates a hundred thousand groups and transactions. The
number is, as in `large_states`, the processor time of the longest step; the promise is 50 ms.
"""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

from benchmarks.bench_large_states import (
    LARGE_GROUP,
    TOPICS,
    coordinator_found,
    measure,
    page_read,
    put_large_group,
    topics_known,
)
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer.consumer_member import MemberDetails
from ottla.coordinator.group.consumer.group_changes import GroupChanges
from ottla.coordinator.group.offsets import CommittedOffset
from ottla.coordinator.transaction.transaction import Transaction
from ottla.coordinator.transaction.transaction_metadata import TransactionMetadata
from ottla.extensions.measures.measures import Measures
from ottla.log.producer_state_entry import ProducerStateEntry
from ottla.network.connection import IN_FLIGHT, STOPPING, Connection
from ottla.network.frame_buffer import BufferPool, FrameBuffer
from ottla.protocol.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from ottla.protocol.configs import (
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from ottla.protocol.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from ottla.protocol.group import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from ottla.protocol.transactions import (
    DescribeProducersRequest,
    ListTransactionsRequest,
    TopicRequest,
)
from ottla.runtime import FullCollections
from ottla.structs import ClientEntity, TopicPartition
from ottla.testing import InProcessBroker, wait_until, wait_until_async

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.protocol.message import Request
    from ottla.runtime import Buffer, File
    from ottla.server.parts import Parts

MANY = 100_000
MEMBERS = 10_000
CLIENTS = 5_000
NAMES = 10_000
MADE_TOPICS = 2_000
QUOTAS = {"producer_byte_rate": "1000000000", "request_percentage": "100"}
SUBSCRIBED = ("t0", "t1", "t2", "t3", "t4")


class LocalClient:
    """A connection without a socket; `answer` is the last answer."""

    identify = None
    max_request_bytes = 2**31 - 1

    def __init__(self) -> None:
        frames = FrameBuffer(self.max_request_bytes, BufferPool())
        self.connection = Connection(
            self, self, frames, "one-1", "PLAINTEXT", ("10.0.0.1", 1), None
        )
        self.answer: list[bytes] = []

    def is_waiting(self) -> bool:
        """Whether a request of it is not answered."""
        return bool(self.connection.muted & IN_FLIGHT)

    def has_output(self, connection: Connection) -> None:
        self.answer.clear()
        connection.outgoing.flush(self, self.max_request_bytes)
        if connection.muted & STOPPING:
            connection.close(connection.close_reason)

    def begin_close(self, connection: Connection) -> None:
        """Nothing is left to do."""

    def throttle(self, connection: Connection, deadline_ms: int) -> None:
        """It does not wait."""

    def send(self, data: Buffer) -> int:
        self.answer.append(bytes(data))
        return len(data)

    def send_all_of(self, buffers: Iterable[Buffer], more_follows: bool) -> int:
        return sum(map(self.send, buffers))

    def send_file(self, file: File, position: int, count: int) -> int:
        return self.send(file.pread(count, position))


class Asker:
    """Has requests served by a broker, and prints a row for each."""

    def __init__(self, broker: InProcessBroker) -> None:
        self.broker = broker

    def row(self, name: str, request: Request, version: int) -> Any:
        """A row; returns the answer."""
        client = LocalClient()
        self.rows(name, [(client, request)], version)
        _, response = decode_response(type(request), version, b"".join(client.answer)[4:])
        return response

    def rows(self, name: str, asked: list[tuple[LocalClient, Request]], version: int) -> None:
        """One row for many requests, each in a step of its own."""
        apis = self.broker.broker.apis
        frames = [
            (client, memoryview(bytearray(encode_request(version, 1, "app", request)[4:])))
            for client, request in asked
        ]

        async def ask() -> None:
            loop = asyncio.get_running_loop()
            await asyncio.sleep(0)
            for client, frame in frames:
                client.connection.muted |= IN_FLIGHT
                loop.call_soon(apis.on_request, client.connection, frame)
                await asyncio.sleep(0)
                self.broker.broker.replica_manager.complete_delayed()
            clients = [client for client, _ in frames]
            await wait_until_async(lambda: not any(map(LocalClient.is_waiting, clients)), name)

        measure(name, self.broker, ask)


async def put_groups(broker: Parts) -> None:
    """A hundred thousand groups with an offset each, in the log."""
    manager = broker.coordinators.groups.manager
    left = MANY
    for number in range(MANY):
        group = manager.get_or_create_group(f"s{number}")
        offset = {TopicPartition("t0", number % 100): CommittedOffset(0, commit_timestamp_ms=2**50)}

        def stored(error: object) -> None:
            nonlocal left
            left -= 1

        manager.store_offsets(group, offset, stored)
        if not number % 1000:
            await asyncio.sleep(0)
    await wait_until_async(lambda: not left, "the groups are in the log")


def offsets(broker: InProcessBroker, asker: Asker) -> None:
    """Rows of committed offsets."""
    broker.run(put_large_group(broker.broker, LARGE_GROUP))
    name = f"OffsetFetch, all of {LARGE_GROUP:,}"
    asker.row(f"{name}, v7", OffsetFetchRequest(group_id="one", topics=None), 7)
    groups = [OffsetFetchRequestGroup(group_id="one", topics=None)]
    asker.row(f"{name}, v9", OffsetFetchRequest(groups=groups), 9)
    manager = broker.broker.coordinators.groups.manager
    group = manager.get_or_create_group("one")
    for number in range(10):
        other = manager.get_or_create_group(f"o{number}")
        for place, each in enumerate(group.offsets.known()[: LARGE_GROUP // 10]):
            other.offsets.put(place, each, CommittedOffset(1))
    groups = [OffsetFetchRequestGroup(group_id=f"o{n}", topics=None) for n in range(10)]
    asker.row(f"{name}, ten groups", OffsetFetchRequest(groups=groups), 9)
    measure("it is deleted", broker, lambda: manager.delete_group(group, lambda error: None))


def groups(broker: InProcessBroker, asker: Asker) -> None:
    """Rows of a hundred thousand groups."""
    coordinator = broker.broker.coordinators.groups
    broker.run(put_groups(broker.broker))
    asker.row(f"ListGroups, {MANY:,}", ListGroupsRequest(), 5)
    names = [f"s{number}" for number in range(20_000)]
    pages(f"{MANY:,} groups")(broker, asker)
    asker.row("DescribeGroups, 20,000", DescribeGroupsRequest(groups=names), 5)
    asker.row("ConsumerGroupDescribe, 20,000", ConsumerGroupDescribeRequest(group_ids=names), 1)
    asker.row("DeleteGroups, 20,000", DeleteGroupsRequest(groups_names=names), 2)
    broker.run(unloaded(broker.broker))
    measure("80,000 groups are loaded", broker, lambda: coordinator.on_election(0))
    drop = coordinator.manager.drop_topics
    measure("80,000 groups: a topic of theirs is deleted", broker, lambda: drop({"t0"}))


async def unloaded(broker: Parts) -> None:
    broker.coordinators.groups.on_resignation(0)
    await wait_until_async(lambda: broker.runtime.slices.is_idle, "they are given up")


def joining(member_id: str) -> JoinGroupRequest:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\1\0\2t0\0\0\0\0")
    return JoinGroupRequest(
        group_id="classic",
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )


def classic_members(broker: InProcessBroker, asker: Asker) -> None:
    """Rows of a classic group with ten thousand members."""
    clients = [LocalClient() for _ in range(MEMBERS)]
    name = f"{MEMBERS:,} members"
    asker.rows(f"{name} join a classic group", [(each, joining("")) for each in clients], 3)
    joined: list[Any] = [
        decode_response(JoinGroupRequest, 3, b"".join(each.answer)[4:])[1] for each in clients
    ]
    given = [
        SyncGroupRequestAssignment(member_id=each.member_id, assignment=bytes(100))
        for each in joined
    ]

    def sync(joined: list[Any]) -> list[tuple[LocalClient, Request]]:
        return [
            (
                client,
                SyncGroupRequest(
                    group_id="classic",
                    generation_id=answer.generation_id,
                    member_id=answer.member_id,
                    assignments=given if answer.member_id == answer.leader else [],
                ),
            )
            for client, answer in zip(clients, joined, strict=True)
        ]

    asked = sync(joined)
    asker.rows(f"{name} sync, the leader first", asked, 2)
    asker.row(f"{name} are described", DescribeGroupsRequest(groups=["classic"]), 4)
    beats = [
        (
            client,
            HeartbeatRequest(
                group_id="classic", generation_id=answer.generation_id, member_id=answer.member_id
            ),
        )
        for client, answer in list(zip(clients, joined, strict=True))[:100]
    ]
    asker.rows("100 heartbeats", beats, 3)
    again = [
        (client, joining(answer.member_id)) for client, answer in zip(clients, joined, strict=True)
    ]
    asker.rows(f"{name} join again, the leader first", again, 3)
    joined = [
        decode_response(JoinGroupRequest, 3, b"".join(each.answer)[4:])[1] for each in clients
    ]
    asked = sync(joined)
    asker.rows(f"{name} sync, the leader last", [*asked[1:], asked[0]], 2)
    coordinator = broker.broker.coordinators.groups
    measure(f"{name} are unloaded", broker, lambda: coordinator.on_resignation(0))
    measure(f"{name} are loaded", broker, lambda: coordinator.on_election(0))
    leaving = [MemberIdentity(member_id=each.member_id) for each in joined[:1990]]
    leave = LeaveGroupRequest(group_id="classic", members=leaving)
    asker.row(f"{len(leaving):,} of them leave", leave, 3)


def consumer_members(broker: InProcessBroker, asker: Asker) -> None:
    """Rows of a consumer group (KIP-848) with ten thousand members."""

    def beating(number: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id="consumers",
            member_id=f"m{number}",
            rebalance_timeout_ms=300_000,
            subscribed_topic_names=list(SUBSCRIBED),
            topic_partitions=[],
        )

    few = 2
    name = f"{MEMBERS:,} members"
    broker.run(put_consumers(broker.broker, MEMBERS - few))
    asked = [(LocalClient(), beating(n)) for n in range(MEMBERS - few, MEMBERS)]
    asker.rows(f"{name}: the last {few} join a consumer group", asked, 1)
    described = ConsumerGroupDescribeRequest(group_ids=["consumers"])
    asker.row(f"{name} are described", described, 1)
    asker.row("ListGroups", ListGroupsRequest(), 5)
    coordinator = broker.broker.coordinators.groups
    measure(f"{name} are unloaded", broker, lambda: coordinator.on_resignation(0))
    measure(f"{name} are loaded", broker, lambda: coordinator.on_election(0))


async def put_consumers(broker: Parts, count: int) -> None:
    """Members that have joined since the last target was made."""
    coordinator = broker.coordinators.groups
    rebalancer = coordinator.consumer_rebalancer
    group = coordinator.manager.add_consumer_group(ConsumerGroup("consumers"))
    details = MemberDetails("app", "/10.0.0.1", topic_names=SUBSCRIBED, rebalance_timeout_ms=1000)
    changes = GroupChanges(group)
    for number in range(count):
        member = rebalancer.new_member(f"m{number}", details)
        changes.add_member(member)
        rebalancer.keep_alive(group, member)
        if not number % 500:
            changes.bump_epoch()
            coordinator.manager.store_records(group, changes.records, lambda error: None)
            changes = GroupChanges(group)
            await asyncio.sleep(0)
    coordinator.manager.store_records(group, changes.records, lambda error: None)


def transactions(broker: InProcessBroker, asker: Asker) -> None:
    """Rows of transactional ids and producers."""
    asker.row("FindCoordinator", FindCoordinatorRequest(key="x", key_type=1), 1)
    manager = broker.broker.coordinators.transactions.manager
    wait_until(lambda: not manager.availability("x"), "the coordinator")

    async def put() -> None:
        for number in range(MANY):
            manager.add(TransactionMetadata(f"x{number}", Transaction(number, 0, 60_000)))
        log = broker.broker.replica_manager.partition(TopicPartition("records", 0)).log
        for number in range(MANY):
            log.producer_state_manager.producers[number] = ProducerStateEntry(number)

    broker.run(put())
    asker.row(f"ListTransactions, {MANY:,}", ListTransactionsRequest(), 1)
    topics = [TopicRequest(name="records", partition_indexes=[0])]
    asker.row(f"DescribeProducers, {MANY:,}", DescribeProducersRequest(topics=topics), 0)


def topics(broker: InProcessBroker, asker: Asker) -> None:
    """Rows of ten thousand topics with ten partitions."""
    broker.run(topics_known(broker.broker, "many", NAMES, 10))
    names = [MetadataRequestTopic(name=f"many{number}") for number in range(NAMES)]
    asker.row("Metadata of all, v12", MetadataRequest(topics=None), 12)
    asker.row("Metadata of all, v1", MetadataRequest(topics=None), 1)
    asker.row(f"Metadata of {NAMES:,} names", MetadataRequest(topics=names), 12)
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name=each.name) for each in names
    ]
    asker.row(f"DescribeConfigs, {NAMES:,}", DescribeConfigsRequest(resources=resources), 4)
    made = [
        CreatableTopic(name=f"made{n}", num_partitions=1, replication_factor=1)
        for n in range(MADE_TOPICS)
    ]
    asker.row(
        f"CreateTopics, {MADE_TOPICS:,}", CreateTopicsRequest(topics=made, timeout_ms=60_000), 5
    )
    more = [CreatePartitionsTopic(name=each.name, count=2) for each in made]
    request = CreatePartitionsRequest(topics=more, timeout_ms=60_000)
    asker.row(f"CreatePartitions, {MADE_TOPICS:,}", request, 3)


def deleted_topics(asker: Asker) -> None:
    names = [f"made{n}" for n in range(MADE_TOPICS)]
    request = DeleteTopicsRequest(topic_names=names, timeout_ms=60_000)
    asker.row(f"DeleteTopics, {MADE_TOPICS:,}", request, 5)


def acls(broker: InProcessBroker, asker: Asker) -> None:
    """Rows of ten thousand ACLs."""
    creations = [
        AclCreation(
            resource_type=2,
            resource_name=f"r{number}",
            resource_pattern_type=3,
            principal="User:bob",
            host="*",
            operation=3,
            permission_type=3,
        )
        for number in range(NAMES)
    ]
    for kind, made in (
        ("resources", creations),
        ("principals", [named(number) for number in range(NAMES)]),
    ):
        name = f"{len(made):,} {kind}"
        asker.row(f"CreateAcls, {name}", CreateAclsRequest(creations=made), 2)
        any_of = {"pattern_type_filter": 1, "operation": 1, "permission_type": 1}
        asker.row(f"DescribeAcls, {name}", DescribeAclsRequest(resource_type_filter=1, **any_of), 2)
        filters = [DeleteAclsFilter(resource_type_filter=2, **any_of)]
        asker.row(f"DeleteAcls, {name}", DeleteAclsRequest(filters=filters), 2)


def named(number: int) -> AclCreation:
    """An ACL of the one resource that has very many."""
    return AclCreation(
        resource_type=2,
        resource_name="*",
        resource_pattern_type=3,
        principal=f"User:u{number}",
        host="*",
        operation=3,
        permission_type=3,
    )


async def put_clients(broker: Parts) -> None:
    for number in range(CLIENTS):
        await broker.dynamic_config.entities.change_client(
            ClientEntity(client_id=f"c{number}"),
            lambda before: QUOTAS,
        )


def clients(broker: InProcessBroker, asker: Asker) -> None:
    """Rows of five thousand clients with quotas."""
    measure(f"{CLIENTS:,} quotas are set", broker, lambda: put_clients(broker.broker))
    apis = broker.broker.apis

    async def connect() -> None:
        for number in range(CLIENTS):
            client = LocalClient()
            client.connection.muted |= IN_FLIGHT
            frame = encode_request(1, 1, f"c{number}", MetadataRequest(topics=[]))[4:]
            apis.on_request(client.connection, memoryview(bytearray(frame)))
            if not number % 100:
                await asyncio.sleep(0)

    measure(f"{CLIENTS:,} client ids", broker, connect)
    asker.row("DescribeClientQuotas", DescribeClientQuotasRequest(), 1)


def pages(name: str) -> Callable[[InProcessBroker, Asker], None]:
    def read(broker: InProcessBroker, asker: Asker) -> None:
        url = f"{broker.broker.find(Measures).listener.end_point}/metrics"
        measure(f"GET /metrics, {name}", broker, lambda: page_read(url))

    return read


def main() -> None:
    settings = {
        "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
        "super_users": "User:ANONYMOUS",
        "metrics_listener": "http://127.0.0.1:0",
        "group_initial_rebalance_delay_ms": 3_000,
    }
    gc.callbacks.append(FullCollections().on_collection)  # as in a process of a broker
    for rows in PARTS:
        with InProcessBroker(**settings) as broker:
            gc.collect()
            gc.freeze()
            broker.create_topic("records")
            broker.run(coordinator_found(broker.broker))
            broker.run(topics_known(broker.broker, "t", TOPICS, 2_000))
            wait_until(lambda: not broker.broker.coordinators.groups.availability("g"), "groups")
            asker = Asker(broker)
            for each in rows:
                each(broker, asker)


PARTS: list[list[Callable[[InProcessBroker, Asker], None]]] = [
    [offsets],
    [groups],
    [classic_members],
    [consumer_members],
    [transactions],
    [
        topics,
        pages(f"{NAMES:,} topics"),
        lambda broker, asker: deleted_topics(asker),
    ],
    [acls],
    [clients, pages(f"{CLIENTS:,} client ids")],
]

if __name__ == "__main__":
    main()
