"""Random members of both protocols in one group, time limits, restarts and failing writes.

At no time do two members hold a partition, whatever the group is just then; and when things have
calmed down every partition has one holder, and the group is of the protocol of its members.
"""

from __future__ import annotations

from breadth import examples
from consumer_group_world import HEARTBEAT_MS, REVOCATION_MS, SESSION_MS, ConsumerWorld
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from migration_clients import PARTITIONS, ClassicClient, ConsumerClient

from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.errors import ErrorCode

CLIENTS = 3
numbers = st.integers(0, CLIENTS - 1)


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
