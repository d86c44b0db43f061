"""Rights to very many names are asked for in short steps, and nothing refused is kept.

The client has some of the rights: each of its requests names as much as one may, or asks for a list
of everything, and what is denied or left out of it is decided anew for each name.
"""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from counted_calls import calls
from request_fuzzer import WITHOUT, RequestFuzzer, Watch, steps_measured

from ottla.coordinator.group.consumer.assigned_partitions import AssignedPartitions
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer.consumer_member import CurrentAssignment, MemberDetails
from ottla.coordinator.group.consumer.group_changes import GroupChanges
from ottla.coordinator.transaction.transaction import TransactionState
from ottla.coordinator.transaction.transaction_partitions import TransactionPartitions
from ottla.extensions.rights.rights import Rights
from ottla.extensions.tokens.tokens import Tokens
from ottla.protocol.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from ottla.protocol.delegation_tokens import DescribeDelegationTokenRequest, TokenOwner
from ottla.protocol.group import FindCoordinatorRequest
from ottla.protocol.header import encode_request
from ottla.protocol.log_dirs import DescribeLogDirsRequest
from ottla.protocol.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    TopicRequest,
)
from ottla.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from ottla.protocol.reassignments import ElectLeadersRequest
from ottla.protocol.scram_users import DescribeUserScramCredentialsRequest
from ottla.protocol.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
)
from ottla.protocol.types import String
from ottla.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from ottla.security.delegation_tokens import DelegationToken
from ottla.security.principal import KafkaPrincipal
from ottla.security.scram import ScramCredential
from ottla.structs import ClientEntity, LeaderAndIsr, PartitionState, TopicPartition
from ottla.testing import InProcessBroker, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ADMIN, ANN, EVE = map(KafkaPrincipal.user, ("admin", "ann", "eve"))
TOPICS = 12_000
MEMBERS = 2_000
TOKENS = 3_000
USERS = 8_000
NAMES = [f"s{number}" for number in range(TOPICS)]
"""Half of them are topics that ann may see, by a prefix; eve sees none."""
MOST_CALLS = 100_000
"""Of functions in one step, the built-in ones among them: some 20 ms."""
KEPT_BYTES = 16 * 1024 * 1024


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    """A broker of a cluster with many topics, wide groups, tokens and users."""
    with InProcessBroker(
        authorizer_class_name="kafka.security.authorizer.AclAuthorizer",
        super_users="User:admin",
        delegation_token_secret_key="of all brokers",
    ) as broker:
        broker.run(fill(broker))
        coordinators = broker.broker.coordinators
        for key, kind in (("wide", 0), ("tx", 1)):
            ask(broker, FindCoordinatorRequest(key=key, key_type=kind), 1)
        wait_until(lambda: not coordinators.groups.availability("wide"), "the groups")
        wait_until(lambda: not coordinators.transactions.availability("tx"), "the transactions")
        for first in range(0, TOPICS // 2, 500):
            commit(broker, "wide", NAMES[first : first + 500])
        broker.run(fill_group(broker))
        # Its end is a long step of its own, and none of a request that is measured.
        ask(broker, InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=900_000), 4)
        wait_until(lambda: coordinators.transactions.manager.get("tx") is not None, "the id")
        begin_wide_transaction(broker)
        yield broker


def ask(broker: InProcessBroker, request: Any, version: int) -> None:
    Watch(broker).send(encode_request(version, 1, "fill", request)[4:], ADMIN)


def commit(broker: InProcessBroker, group: str, names: list[str]) -> None:
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [OffsetCommitRequestTopic(name=name, partitions=[row]) for name in names]
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics
    )
    ask(broker, request, 8)


async def fill(broker: InProcessBroker) -> None:
    """As if others had made it all: straight where the broker looks."""
    server = broker.broker
    cache, table = server.cache, server.find(Rights).authorizer.table
    brokers, state = list(cache.brokers.values()), LeaderAndIsr(0, 0, (0,))
    for first in range(0, TOPICS, 1000):
        states = [
            PartitionState(TopicPartition(name, 0), UUID(int=first + n + 1), 1, state, (0,))
            for n, name in enumerate(NAMES[first : first + 1000])
        ]
        cache.update(states, brokers)
    for type_, name in ((ResourceType.TOPIC, "s"), (ResourceType.GROUP, "")):
        pattern = (
            ResourcePattern(type_, name, PatternType.PREFIXED)
            if name
            else ResourcePattern(type_, "*")
        )
        for operation in (AclOperation.DESCRIBE, AclOperation.READ):
            entry = AccessControlEntry("User:ann", "*", operation, AclPermissionType.ALLOW)
            table.add([AclBinding(pattern, entry)])
    for type_ in (ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
        for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE):
            entry = AccessControlEntry("User:*", "*", operation, AclPermissionType.ALLOW)
            table.add([AclBinding(ResourcePattern(type_, "*"), entry)])
    text = ScramCredential(b"salt", b"s" * 32, b"k" * 32, 4096).format()
    for number in range(USERS):
        await server.dynamic_config.entities.change_client(
            ClientEntity(user=f"u{number}"), lambda before: {"SCRAM-SHA-256": text}
        )
    tokens = server.find(Tokens).table
    for number in range(TOKENS):
        token_id = tokens.new_id()
        owner = KafkaPrincipal.user(f"u{number}")
        tokens.put(
            DelegationToken(
                token_id, owner, owner, (owner,) * 20, 0, 1 << 60, 1 << 60, tokens.hmac_of(token_id)
            )
        )


async def fill_group(broker: InProcessBroker) -> None:
    """A consumer group whose members have five topics each."""
    groups = broker.broker.coordinators.groups
    changes = GroupChanges(groups.manager.add_consumer_group(ConsumerGroup("consumers")))
    for number in range(MEMBERS):
        details = MemberDetails("app", "/10.0.0.1", topic_names=("s1",), rebalance_timeout_ms=1)
        each = groups.consumer_rebalancer.new_member(f"m{number}", details)
        changes.add_member(each)
        ids = [UUID(int=1 + (5 * number + n) % TOPICS) for n in range(5)]
        assigned = AssignedPartitions.of((each_id, [0]) for each_id in ids)
        changes.set_current(each, CurrentAssignment(member_epoch=1, assigned=assigned))


def begin_wide_transaction(broker: InProcessBroker) -> None:
    """As if its producer had added one topic after the other."""

    async def begin() -> None:
        metadata = broker.broker.coordinators.transactions.manager.get("tx")
        partitions = TransactionPartitions.of(TopicPartition(name, 0) for name in NAMES)
        metadata.current = metadata.current._replace(
            state=TransactionState.ONGOING, partitions=partitions
        )
        metadata.begin_time_limit(0, broker.broker.runtime.clock.monotonic_ms())

    broker.run(begin())


def deletions() -> DeleteRecordsRequest:
    rows = [DeleteRecordsPartition(partition_index=0)]
    topics = [DeleteRecordsTopic(name=name, partitions=rows) for name in NAMES[:990]]
    return DeleteRecordsRequest(topics=topics, timeout_ms=1000)


def joining(names: list[str]) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=names,
        topic_partitions=[],
    )


def added(topic_count: int, partition_count: int) -> AddPartitionsToTxnRequest:
    partitions = [*range(partition_count)]
    topics = [
        AddPartitionsToTxnTopic(name=name, partitions=partitions) for name in NAMES[:topic_count]
    ]
    return AddPartitionsToTxnRequest(v3_and_below_transactional_id="tx", v3_and_below_topics=topics)


OWNERS = [TokenOwner(principal_type="User", principal_name=f"x{n}") for n in range(490)]
WIDE = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("wide", "x", "y")]


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (MetadataRequest(topics=None), 12),
        (DescribeTopicPartitionsRequest(response_partition_limit=2000), 0),
        (
            DescribeTopicPartitionsRequest(
                response_partition_limit=5, cursor=Cursor(topic_name="s5", partition_index=0)
            ),
            0,
        ),
        (DescribeTopicPartitionsRequest(topics=[TopicRequest(name=n) for n in NAMES[:24_990]]), 0),
        (joining([f"s-{number}" for number in range(4_500)]), 1),  # none of them is there
        (joining([NAMES[0]] * 100_000), 1),
        (deletions(), 2),
        (added(1_990, 0), 3),
        (added(11_990, 0), 3),  # too many
        (ConsumerGroupDescribeRequest(group_ids=["consumers"]), 1),
        (ConsumerGroupDescribeRequest(group_ids=["consumers", *map(str, range(30))]), 1),
        (DescribeTransactionsRequest(transactional_ids=["tx"]), 0),
        (DescribeTransactionsRequest(transactional_ids=["tx", *map(str, range(120))]), 0),
        (OffsetFetchRequest(groups=WIDE), 8),
        (OffsetFetchRequest(groups=[*WIDE, *WIDE] * 100), 8),
        (DescribeDelegationTokenRequest(owners=None), 3),
        (DescribeDelegationTokenRequest(owners=OWNERS), 3),
        (DescribeUserScramCredentialsRequest(users=None), 0),
        (DescribeLogDirsRequest(topics=None), 4),
        (ElectLeadersRequest(topic_partitions=None, timeout_ms=1000), 2),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, int) else str(value),
)
@pytest.mark.parametrize("principal", [ADMIN, ANN, EVE], ids=["admin", "ann", "eve"])
def test_no_step_asks_for_more_than_a_slice_of_rights(broker, request_, version, principal):
    """Of no name is known whether the client may see it: ACLs have just changed."""
    broker.broker.find(Rights).authorizer.table.add(
        [
            AclBinding(
                ResourcePattern(ResourceType.TOPIC, "other"),
                AccessControlEntry(
                    f"User:{id(request_)}", "*", AclOperation.READ, AclPermissionType.ALLOW
                ),
            )
        ]
    )
    frame = encode_request(version, 1, "wide", request_)[4:]
    watch = Watch(broker)
    with steps_measured(watch, calls):
        watch.send(frame, principal)

    assert watch.worst <= MOST_CALLS


@pytest.mark.parametrize(("topics", "partitions"), [(30, 390), (1_990, 5), (1_990, 1)])
@pytest.mark.parametrize("principal", [ADMIN, EVE], ids=["admin", "eve"])
def test_partitions_of_a_transaction_are_added_in_a_short_step(
    broker, topics, partitions, principal
):
    """Some 1.2 us for each, and 18 calls: as a whole, and librdkafka names all of a flush."""
    watch = Watch(broker)
    with steps_measured(watch, calls):
        watch.send(encode_request(3, 1, "wide", added(topics, partitions))[4:], principal)

    assert watch.worst <= 2.3 * MOST_CALLS


class NewLongNames(RequestFuzzer):
    """No two strings are the same, and each is about as long as one may be."""

    count = 0

    def _scalar(self, type_: Any) -> Any:
        if type_ is not String:
            return super()._scalar(type_)
        self.count += 1
        return f"{self.count}-".ljust(30_000, "x")


@pytest.fixture(scope="module")
def small_broker() -> Iterator[InProcessBroker]:
    """A broker with a topic, where most may do nothing."""
    with InProcessBroker(
        authorizer_class_name="kafka.security.authorizer.AclAuthorizer",
        super_users="User:admin",
        delegation_token_secret_key="of all brokers",
    ) as broker:
        broker.create_topic("t")
        yield broker


def test_nothing_is_kept_of_names_that_are_refused(small_broker):
    """Decisions, denials and sessions had any number of letters: of a few thousand names a broker
    kept a hundred megabytes."""
    served = [api for api in small_broker.broker.apis.supported() if api[0] not in WITHOUT]
    fuzzer, watch = NewLongNames(3, served, [40]), Watch(small_broker)

    def ask_all(times: int) -> None:
        for fuzzer.served in [[api] for api in served] * times:
            watch.send(fuzzer.frame()[0], EVE)
        gc.collect()

    ask_all(1)  # so that all families and codecs are made
    tracemalloc.start()
    try:
        ask_all(8)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert fuzzer.count * 30_000 > 10 * KEPT_BYTES
    assert kept < KEPT_BYTES
