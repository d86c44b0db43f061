"""Random members of both protocols in one group, time limits, restarts and failing writes.

At no time do two members hold a partition, whatever the group is just then; and when things have
calmed down every partition has one holder, and the group is of the protocol of its members.
"""

from __future__ import annotations

from breadth import examples
from consumer_group_world import (
    HEARTBEAT_MS,
    REVOCATION_MS,
    SESSION_MS,
    ClassicPeer,
    ConsumerWorld,
    Peer,
    named,
    packed,
)
from group_world import Reply
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.errors import ErrorCode

CLIENTS = 3
PARTITIONS = frozenset(("t", number) for number in range(5))
STARTS_ANEW = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.ILLEGAL_GENERATION,
}
JOINS_AGAIN = {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
numbers = st.integers(0, CLIENTS - 1)


class ClassicClient:
    """A client of the classic protocol that does one thing at a time, and leads if it has to."""

    def __init__(self, world: ConsumerWorld) -> None:
        self.peer = ClassicPeer(world)
        self.is_in = False
        self.joining: Reply | None = None
        self.syncing: Reply | None = None

    @property
    def member_id(self) -> str:
        return self.peer.member_id

    @property
    def held(self) -> frozenset[tuple[str, int]]:
        return self.peer.owned

    @property
    def has_assignment(self) -> bool:
        """Whether it has one, or one has arrived that it has not looked at."""
        return bool(self.held) or self.syncing is not None

    def forget(self) -> None:
        """Hold nothing, and join as somebody new."""
        self.peer = ClassicPeer(self.peer.world)
        self.joining = self.syncing = None

    def step(self) -> None:
        if not self.is_in:
            return
        if self.joining is not None:
            self.finish_join(self.joining)
        elif self.syncing is not None:
            self.finish_sync(self.syncing)
        elif self.peer.wants_to_join:
            self.joining = self.peer.join(version=4)
        else:
            self.judge(self.peer.beat())

    def finish_join(self, reply: Reply) -> None:
        if reply.is_open:
            return
        self.joining = None
        if reply.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.peer.member_id = reply.value.member_id
            return
        self.judge(self.peer.take(reply))
        if not reply.error:
            dealt = None
            if reply.value.leader == self.member_id:
                ids = sorted(member.member_id for member in reply.value.members)
                shares = sorted(PARTITIONS)
                dealt = {m: packed(frozenset(shares[n :: len(ids)])) for n, m in enumerate(ids)}
            self.syncing = self.peer.sync(dealt)

    def finish_sync(self, reply: Reply) -> None:
        if not reply.is_open:
            self.syncing = None
            self.judge(self.peer.receive(reply))

    def judge(self, error: ErrorCode) -> None:
        if error in STARTS_ANEW:
            self.forget()
        else:
            assert not error or error in JOINS_AGAIN, error

    def leave(self) -> None:
        self.peer.world.leave(self.member_id)
        self.forget()
        self.is_in = False


class ConsumerClient:
    """A client of the consumer protocol."""

    def __init__(self, world: ConsumerWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.lives = 0
        self.is_in = False
        self.is_unsure = False
        self.peer = Peer(name)

    @property
    def member_id(self) -> str:
        return self.peer.member_id

    @property
    def held(self) -> frozenset[tuple[str, int]]:
        return named(self.peer.held)

    @property
    def has_assignment(self) -> bool:
        return bool(self.held)

    def forget(self) -> None:
        self.peer.epoch, self.peer.held = 0, frozenset()
        self.is_unsure = False

    def step(self) -> None:
        if not self.is_in:
            return
        if not self.peer.epoch:
            error = self.world.join(self.peer)
        elif self.is_unsure:
            full = {"rebalance_timeout_ms": REVOCATION_MS, **self.peer.subscription}
            error = self.world.beat(self.peer, **full)
        else:
            error = self.world.beat(self.peer)
        if error in STARTS_ANEW:
            self.forget()
            return
        self.is_unsure = bool(error)
        assert not error or error in JOINS_AGAIN, error

    def leave(self) -> None:
        self.world.quit(self.peer)
        self.forget()
        self.lives += 1
        self.peer = Peer(f"{self.name}-{self.lives}")
        self.is_in = False


class GroupMigrationSequences(RuleBasedStateMachine):
    """The world and its clients. A client that was put out holds nothing any more, as its own
    session has ended when the coordinator's has."""

    @initialize()
    def start(self) -> None:
        self.world = ConsumerWorld({"t": len(PARTITIONS)})
        self.classic = [ClassicClient(self.world) for _ in range(CLIENTS)]
        self.consumers = [ConsumerClient(self.world, f"c{n}") for n in range(CLIENTS)]

    @property
    def clients(self) -> list[ClassicClient | ConsumerClient]:
        return [*self.classic, *self.consumers]

    @rule(number=numbers, is_classic=st.booleans())
    def join(self, number: int, is_classic: bool) -> None:
        client = (self.classic if is_classic else self.consumers)[number]
        client.is_in = True
        client.step()

    @rule(number=st.integers(0, 2 * CLIENTS - 1))
    def step(self, number: int) -> None:
        self.clients[number].step()

    @rule()
    def step_all(self) -> None:
        for client in self.clients:
            client.step()
            self.no_partition_has_two_holders()

    @rule(number=st.integers(0, 2 * CLIENTS - 1))
    def leave(self, number: int) -> None:
        self.clients[number].leave()

    @rule(ms=st.sampled_from([1_000, HEARTBEAT_MS, SESSION_MS // 2, REVOCATION_MS]))
    def pass_time(self, ms: int) -> None:
        self.world.advance(ms)
        self.forget_those_put_out()

    @rule()
    def restart(self) -> None:
        self.world.log.error = ErrorCode.NONE
        self.world.reload()
        self.forget_those_put_out()

    @rule(fails=st.booleans())
    def break_log(self, fails: bool) -> None:
        self.world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS if fails else ErrorCode.NONE

    @invariant()
    def no_partition_has_two_holders(self) -> None:
        held = [partition for client in self.clients for partition in client.held]
        assert len(held) == len(set(held)), held

    @invariant()
    def group_knows_the_protocols_of_its_members(self) -> None:
        group = self.world.coordinator.manager.group("g") if hasattr(self, "world") else None
        if isinstance(group, ConsumerGroup):
            are_classic = [member.is_classic for member in group.members.values()]
            assert group.has_only_classic_members == all(are_classic)

    def teardown(self) -> None:
        """All is well again: everything finds exactly one holder, in a group of the right kind."""
        if not hasattr(self, "world"):
            return
        self.world.log.error = ErrorCode.NONE
        for _ in range(60):
            self.step_all()
            self.world.advance(HEARTBEAT_MS // 2)
            self.forget_those_put_out()
        present = [client for client in self.clients if client.is_in]
        if not present:
            return
        held = [partition for client in present for partition in client.held]
        assert sorted(held) == sorted(PARTITIONS)
        group = self.world.coordinator.manager.group("g")
        has_consumers = any(isinstance(client, ConsumerClient) for client in present)
        assert isinstance(group, ConsumerGroup) == has_consumers
        assert group is not None
        assert group.state_name == "Stable"
        assert self.world.coordinator.manager.differences(0) == []
        before = group.type
        self.world.reload()
        after = self.world.coordinator.manager.group("g")
        assert after is not None
        assert after.type is before

    def forget_those_put_out(self) -> None:
        group = self.world.coordinator.manager.group("g")
        for client in self.clients:
            ids = () if group is None else group.members
            if client.has_assignment and client.member_id not in ids:
                client.forget()


TestGroupMigrationSequences = GroupMigrationSequences.TestCase
TestGroupMigrationSequences.settings = settings(
    max_examples=examples(50), stateful_step_count=40, deadline=None
)
