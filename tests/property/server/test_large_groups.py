"""What a coordinator does with a group of ten thousand members is done in short steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from counted_calls import calls
from request_fuzzer import Watch, steps_measured

from ottla.coordinator.group.classic_group import ClassicGroup, GroupState
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer.consumer_member import CurrentAssignment, MemberDetails
from ottla.coordinator.group.consumer.group_changes import GroupChanges
from ottla.coordinator.group.consumer.heartbeat_checks import MAX_TOPICS
from ottla.coordinator.group.member_metadata import MemberMetadata, SupportedProtocol
from ottla.protocol.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from ottla.protocol.consumer_protocol import encode_assignment, encode_subscription
from ottla.protocol.group import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from ottla.protocol.header import encode_request
from ottla.record.kernel import COMPILED
from ottla.security.principal import KafkaPrincipal
from ottla.structs import LeaderAndIsr, PartitionState, TopicPartition
from ottla.testing import InProcessBroker, wait_until, wait_until_async

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ADMIN = KafkaPrincipal.user("admin")
MEMBERS = 10_000
MOST_CALLS = {
    "join": 200_000,  # the votes of all, and the answer to the leader, which has them all
    "sync": 60_000,  # of the leader, with all that follows
    "describe": 100_000,
    "describe the other": 100_000,
    "unload": 80_000,
    "load": 400_000,  # the record of all members is decoded: short calls
    "beat": 2_000,
    "leave": 2_000,
    "wide": 480_000,  # the hash of an id counts twice, and is short
    # One batch has three records of each, which the kernel encodes, compiled or not.
    "upgrade": 150_000 if COMPILED else 950_000,
    "downgrade": 200_000 if COMPILED else 750_000,
}
"""Of functions in one step, the built-in ones among them: some 20 ms."""


def member(number: int) -> MemberMetadata:
    return MemberMetadata(
        member_id=f"m{number}",
        group_instance_id=None,
        client_id="app",
        client_host="/10.0.0.1",
        rebalance_timeout_ms=300_000,
        session_timeout_ms=300_000,
        protocol_type="consumer",
        protocols=[SupportedProtocol("range", b"\0\0\0\0\0\1\0\1t\0\0\0\0")],
    )


async def fill(broker: InProcessBroker) -> None:
    """As if the members had joined."""
    groups = broker.broker.coordinators.groups
    classic = groups.manager.group_to_join("classic", is_new=True)
    assert isinstance(classic, ClassicGroup)
    for number in range(MEMBERS):
        classic.add(member(number))
    classic.state, classic.protocol_name = GroupState.STABLE, "range"
    changes = GroupChanges(groups.manager.add_consumer_group(ConsumerGroup("consumers")))
    for number in range(MEMBERS):
        details = MemberDetails("app", "/10.0.0.1", topic_names=("t",), rebalance_timeout_ms=1)
        each = groups.consumer_rebalancer.new_member(f"m{number}", details)
        changes.add_member(each)
    changes.bump_epoch()
    groups.manager.store_records(changes.group, changes.records, lambda error: None)


@pytest.fixture
def broker() -> Iterator[InProcessBroker]:
    """A coordinator of a large group of either protocol."""
    with InProcessBroker(group_consumer_migration_policy="bidirectional") as broker:
        broker.create_topic("t")
        frame = encode_request(1, 1, "app", FindCoordinatorRequest(key="classic"))[4:]
        Watch(broker).send(frame, ADMIN)
        groups = broker.broker.coordinators.groups
        wait_until(lambda: not groups.availability("classic"), "the coordinator")
        broker.run(fill(broker))
        yield broker


class Life:
    """The group of the classic protocol in the steps of its life, each with its longest step."""

    def __init__(self, broker: InProcessBroker) -> None:
        self.broker, self.watch = broker, Watch(broker)
        self.groups = broker.broker.coordinators.groups
        self.group: Any = self.groups.manager.group("classic")
        self.answers: list[Any] = []
        self.worst: dict[str, float] = {}

    def do(self, name: str, act: Callable[[], object], is_over: Callable[[], bool]) -> None:
        """Measure the steps until it is over."""

        async def run() -> None:
            act()
            await wait_until_async(is_over, name)

        self.watch.worst = 0
        with steps_measured(self.watch, calls):
            self.broker.run(run())
        self.worst[name] = self.watch.worst

    def ask(self, name: str, request: Any, version: int) -> None:
        self.watch.worst = 0
        with steps_measured(self.watch, calls):
            self.watch.send(encode_request(version, 1, "app", request)[4:], ADMIN)
        self.worst[name] = self.watch.worst

    def await_joins(self) -> None:
        for each in self.group.members.values():
            self.group.await_join(each, self.answers.append)

    def await_assignments(self) -> None:
        for each in self.group.members.values():
            self.group.await_sync(each, self.answers.append)

    def lead(self, assignment: dict[str, bytes]) -> None:
        """The leader brings the assignment, for which all others wait."""
        given = [
            SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in assignment.items()
        ]
        request = SyncGroupRequest(
            group_id="classic",
            generation_id=self.group.generation_id,
            member_id=self.group.leader_id,
            assignments=given,
        )
        leader = self.group.members[self.group.leader_id]
        leader.awaiting_sync = None
        self.ask("sync", request, 3)
        self.answers.append(SyncGroupResponse(assignment=leader.assignment))

    def all_answered(self) -> bool:
        return len(self.answers) == MEMBERS

    def upgrade(self) -> None:
        """A member of the newer protocol joins a group whose members have a partition each."""
        for number, each in enumerate(self.group.members.values()):
            each.assignment = encode_assignment([TopicPartition("t", number)], 0)
        join = ConsumerGroupHeartbeatRequest(
            group_id="classic",
            member_id="new",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        self.ask("upgrade", join, 1)


async def call(act: Callable[[], object]) -> None:
    act()


def catch_up(group: ConsumerGroup) -> None:
    """As if each member had got its target."""
    group.assignment_epoch = group.group_epoch
    for member_id, member in group.members.items():
        target, epoch = group.target[member_id], group.assignment_epoch
        member.current = CurrentAssignment(epoch, epoch, assigned=target)


async def make_topics(broker: InProcessBroker) -> None:
    """As if the controller had told of as many topics as a member may name."""
    cache, state = broker.broker.cache, LeaderAndIsr(0, 0, (0,))
    states = [
        PartitionState(TopicPartition(f"many{n}", 0), UUID(int=n + 1), 1, state, (0,))
        for n in range(MAX_TOPICS)
    ]
    cache.update(states, list(cache.brokers.values()))


class Wide:
    """Members of a consumer group that read very many topics, each with its longest steps."""

    def __init__(self, broker: InProcessBroker) -> None:
        self.watch = Watch(broker)
        self.groups = broker.broker.coordinators.groups
        self.worst: dict[str, float] = {}

    def ask(self, name: str, request: Any, version: int) -> None:
        self.watch.worst = 0
        with steps_measured(self.watch, calls):
            self.watch.send(encode_request(version, 1, "app", request)[4:], ADMIN)
        self.worst[f"{len(self.worst)}: {name}"] = self.watch.worst

    def load(self, group_id: str) -> None:
        """The coordinator moves, and comes back."""

        async def run() -> None:
            self.groups.on_resignation(0)
            self.groups.on_election(0)
            await wait_until_async(lambda: not self.groups.availability(group_id), "the load")

        self.watch.worst = 0
        with steps_measured(self.watch, calls):
            self.watch.broker.run(run())
        self.worst[f"{len(self.worst)}: load"] = self.watch.worst

    @property
    def members(self) -> dict[str, Any]:
        found: dict[str, Any] = self.groups.manager.group("wide").members
        return found

    def beat(self, member_id: str, *, confirms: bool = False, **fields: Any) -> None:
        """A heartbeat, in which the member may say that it has done what it was told."""
        epoch = 0
        if "rebalance_timeout_ms" not in fields:
            epoch = self.members[member_id].current.member_epoch
        if confirms:
            fields["topic_partitions"] = [
                ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=each, partitions=[*numbers])
                for each, numbers in self.members[member_id].current.assigned.topics.items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id="wide", member_id=member_id, **{"member_epoch": epoch, **fields}
        )
        self.ask(f"{member_id} {[*fields]}", request, 1)


@pytest.mark.parametrize("by_name", [True, False], ids=["names", "pattern"])
def test_no_step_is_long_for_members_with_very_many_topics(broker, by_name):
    """They join, share, take over, and look for others."""
    broker.run(make_topics(broker))
    wide = Wide(broker)
    joining: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topic_partitions": []}
    if by_name:
        joining["subscribed_topic_names"] = [f"many{n}" for n in range(MAX_TOPICS)]
    else:
        joining["subscribed_topic_regex"] = "many.*"
    wide.beat("a", **joining)
    wide.beat("b", **joining)
    wide.beat("a")
    wide.beat("a", confirms=True)
    wide.beat("b")
    wide.beat("b", confirms=True)
    shares = {name: len(each.current.assigned) for name, each in wide.members.items()}
    assert shares == {"a": MAX_TOPICS // 2, "b": MAX_TOPICS // 2}
    wide.ask("describe", ConsumerGroupDescribeRequest(group_ids=["wide"]), 1)
    before = {name: each.current for name, each in wide.members.items()}
    wide.load("wide")
    assert {name: each.current for name, each in wide.members.items()} == before
    wide.beat("b", member_epoch=-1)
    wide.beat("a")
    assert len(wide.members["a"].current.assigned) == MAX_TOPICS
    wide.beat("a", subscribed_topic_names=["many1"], subscribed_topic_regex="")
    wide.beat("a", confirms=True)
    assert len(wide.members["a"].current.assigned) == 1
    too_long = {name: most for name, most in wide.worst.items() if most > MOST_CALLS["wide"]}
    assert not too_long


def test_no_step_is_long_for_a_classic_member_with_very_many_topics(broker):
    """Its group is loaded, and becomes a consumer group, by one that reads as many."""
    broker.run(make_topics(broker))
    wide = Wide(broker)
    names = [f"many{n}" for n in range(MAX_TOPICS)]

    async def join() -> None:
        group = wide.groups.manager.group_to_join("old", is_new=True)
        assert isinstance(group, ClassicGroup)
        classic = member(0)
        classic.protocols = [SupportedProtocol("range", encode_subscription(names, [], -1, b""))]
        group.add(classic)
        group.state, group.protocol_name, group.generation_id = GroupState.STABLE, "range", 1
        classic.assignment = encode_assignment([TopicPartition(name, 0) for name in names], 0)
        wide.groups.manager.store_group(group, {"m0": classic.assignment}, lambda error: None)

    broker.run(join())
    wide.load("old")
    joining = ConsumerGroupHeartbeatRequest(
        group_id="old",
        member_id="new",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=names,
        topic_partitions=[],
    )
    wide.ask("upgrade", joining, 1)
    group = wide.groups.manager.consumer_group("old")
    assert group is not None
    assert len(group.members["m0"].current.assigned) == MAX_TOPICS
    wide.load("old")
    too_long = {name: most for name, most in wide.worst.items() if most > MOST_CALLS["wide"]}
    assert not too_long


def test_no_step_is_long_in_the_life_of_a_large_group(broker):
    """It rebalances, is described, moves to another coordinator and back, and is migrated."""
    life = Life(broker)
    rebalancer, group = life.groups.rebalancer, life.group
    broker.run(call(lambda: rebalancer.prepare_rebalance(group, "a test wants it")))
    broker.run(call(life.await_joins))
    life.do("join", lambda: rebalancer.try_complete_join(group), life.all_answered)
    assert [len(each.members) for each in life.answers if each.members] == [MEMBERS]
    life.answers.clear()
    broker.run(call(life.await_assignments))
    assignment = dict.fromkeys(group.members, b"a")
    life.lead(assignment)
    assert [each.assignment for each in life.answers] == [b"a"] * MEMBERS
    life.ask("describe", DescribeGroupsRequest(groups=["classic"]), 5)
    life.ask("describe the other", ConsumerGroupDescribeRequest(group_ids=["consumers"]), 1)
    store = life.groups.manager.store_group
    broker.run(call(lambda: store(group, assignment, life.answers.append)))
    life.do("unload", lambda: life.groups.on_resignation(0), lambda: not group.members)
    load = life.groups.on_election
    life.do("load", lambda: load(0), lambda: not life.groups.availability("classic"))

    assert group.is_in(GroupState.DEAD)
    loaded = {each.group_id: len(each.members) for each in life.groups.manager.groups()}
    assert loaded == {"classic": MEMBERS, "consumers": MEMBERS}
    life.group = life.groups.manager.group("classic")
    life.upgrade()
    mixed = life.groups.manager.consumer_group("classic")
    assert len(mixed.members) == MEMBERS + 1
    broker.run(call(lambda: catch_up(mixed)))
    beat = HeartbeatRequest(
        group_id="classic", generation_id=mixed.assignment_epoch, member_id="m7"
    )
    life.ask("beat", beat, 3)
    assert (mixed.state_name, mixed.members["m7"].rebalance_timer) == ("Stable", None)
    leave = ConsumerGroupHeartbeatRequest(group_id="classic", member_id="new", member_epoch=-1)
    life.ask("leave", leave, 1)
    broker.run(call(lambda: catch_up(mixed)))
    beat.generation_id = mixed.group_epoch
    life.ask("downgrade", beat, 3)
    after = life.groups.manager.group("classic")
    assert isinstance(after, ClassicGroup)
    assert len(after.members) == MEMBERS
    assert all(each.session_timer for each in after.members.values())
    too_long = {name: most for name, most in life.worst.items() if most > MOST_CALLS[name]}
    assert not too_long
