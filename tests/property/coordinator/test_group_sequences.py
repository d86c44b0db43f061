"""Random clients, restarts and failing writes against the promises of a group coordinator.

Memory is what a fresh load of the log gives; a partition has one owner per generation; an offset
that was acknowledged is not lost; a request is answered once (`Reply` checks that), and in the end
every request is answered.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from breadth import examples
from group_world import IN_THE_LOG, INITIAL_DELAY_MS, MemoryOffsetsLog, Reply, World
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.coordinator.group.classic_group import GroupState
from ottla.coordinator.group.member_sessions import EMPTY_RETRY_MS, NEW_MEMBER_JOIN_TIMEOUT_MS
from ottla.errors import ErrorCode

PARTITIONS = range(6)
CLIENTS = 4
STARTS_ANEW = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
client_numbers = st.integers(0, CLIENTS - 1)


@dataclass
class Client:
    """A consumer of the group: does what the answers tell it to do."""

    number: int
    instance: str | None = None
    version: int = 3
    member_id: str = ""
    generation: int = -1
    is_lost: bool = False
    """A load of the log had not its generation: another one may have the same number later."""
    is_assigned: bool = False
    join: Reply | None = None
    sync: Reply | None = None
    members: list[str] = field(default_factory=list)

    @property
    def owner(self) -> str:
        """Who owns partitions: a static member keeps them under a new member id."""
        return self.instance or self.member_id

    def forget_requests(self) -> None:
        """The connection broke: open requests are gone."""
        self.join = self.sync = None
        self.generation = -1


class GroupSequences(RuleBasedStateMachine):
    """The world, its clients, and what they were promised."""

    @initialize(static_count=st.integers(0, CLIENTS), version=st.sampled_from([3, 5, 9]))
    def start(self, static_count: int, version: int) -> None:
        self.world = World(log=MemoryOffsetsLog())
        self.clients = [
            Client(i, f"instance-{i}" if i < static_count else None, version)
            for i in range(CLIENTS)
        ]
        self.owners: dict[tuple[int, int], str] = {}
        self.commits: list[tuple[int, Reply]] = []

    @rule(number=client_numbers, subscription=st.sampled_from([b"a", b"b"]))
    def join(self, number: int, subscription: bytes) -> None:
        client = self.clients[number]
        client.sync = None
        client.generation = -1
        client.is_assigned = False
        client.join = self.world.join(
            client.member_id,
            instance=client.instance,
            version=client.version,
            protocols=(("range", subscription),),
        )
        self.read_answers()

    @rule(number=client_numbers)
    def sync(self, number: int) -> None:
        client = self.clients[number]
        if client.generation < 0 or client.join is not None:
            return
        assignment: dict[str, bytearray] = {member: bytearray() for member in client.members}
        for partition in PARTITIONS:
            if client.members:
                assignment[client.members[partition % len(client.members)]].append(partition)
        parts = {member: bytes(part) for member, part in assignment.items()}
        client.sync = self.world.sync(
            client.member_id, client.generation, parts, group_instance_id=client.instance
        )
        self.read_answers()

    @rule(turns=st.lists(client_numbers, min_size=4, max_size=16))
    def follow_the_protocol(self, turns: list[int]) -> None:
        """Some clients do what they should do next."""
        for number in turns:
            client = self.clients[number]
            if client.join is None and client.sync is None:
                self.take_turn(client)

    @rule()
    def settle(self) -> None:
        """All clients do what they should do, for as long as a first rebalance takes."""
        for _ in range(4):
            self.follow_the_protocol([client.number for client in self.clients] * 2)
            self.advance(INITIAL_DELAY_MS)
        if not self.world.log.hold and not self.world.log.error:
            self.world.advance(EMPTY_RETRY_MS)
            self.check_replay()

    def check_replay(self) -> None:
        """Memory is what a fresh load of the log gives, except for a rebalance under way."""
        assert self.world.coordinator.manager.differences(0) == []

    def take_turn(self, client: Client) -> None:
        if client.generation < 0:
            self.join(client.number, b"a")
        elif not client.is_assigned:
            self.sync(client.number)
        else:
            self.heartbeat(client.number)
            self.commit(client.number)

    @rule(number=client_numbers)
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        error = self.world.heartbeat(
            client.member_id, client.generation, group_instance_id=client.instance
        )
        if error in STARTS_ANEW:
            client.member_id = ""
        if error:
            client.generation = -1
        self.read_answers()

    @rule(number=client_numbers)
    def leave(self, number: int) -> None:
        client = self.clients[number]
        self.world.leave((client.member_id, client.instance))
        client.member_id, client.generation = "", -1
        self.read_answers()

    @rule(number=client_numbers)
    def crash(self, number: int) -> None:
        """The client comes back without its member id."""
        client = self.clients[number]
        client.forget_requests()
        client.member_id = ""

    @rule(number=client_numbers)
    def commit(self, number: int) -> None:
        client = self.clients[number]
        value = len(self.commits)
        reply = self.world.commit(
            value, client.member_id, client.generation, instance=client.instance
        )
        self.commits.append((value, reply))
        self.read_answers()

    @rule(ms=st.sampled_from([1, INITIAL_DELAY_MS, 9_000, 60_000]))
    def advance(self, ms: int) -> None:
        self.world.advance(ms)
        self.read_answers()

    @rule()
    def hold_writes(self) -> None:
        self.world.log.hold = True

    @rule(in_order=st.booleans())
    def release_writes(self, in_order: bool) -> None:
        self.world.log.hold = False
        self.world.log.release(in_order)
        self.read_answers()

    @precondition(lambda self: self.world.log.held_count)
    @rule()
    def acknowledge_one_write(self) -> None:
        self.world.log.release_first()
        self.read_answers()

    @rule(number=client_numbers, times=st.integers(1, 3), loses_power=st.booleans())
    def restart_client(self, number: int, times: int, loses_power: bool) -> None:
        """The client of a settled group comes back, again and again; the log has one write soon."""
        self.release_writes(in_order=True)
        self.settle()
        self.hold_writes()
        for _ in range(times):
            self.crash(number)
            self.join(number, b"a")
        if self.world.log.held_count:
            self.acknowledge_one_write()
        if loses_power:
            self.lose_power()
        self.release_writes(in_order=True)

    @rule(error=st.sampled_from([ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS, *IN_THE_LOG]))
    def set_write_error(self, error: ErrorCode) -> None:
        self.world.log.error = error
        self.world.log.is_replicated = error is not ErrorCode.REQUEST_TIMED_OUT

    @precondition(lambda self: not self.world.log.hold)
    @rule()
    def restart_broker(self) -> None:
        self.world.coordinator.shutdown()
        self.world.start()
        for client in self.clients:
            client.join = client.sync = None
        self.check_generations()
        self.read_answers()

    @rule()
    def lose_power(self) -> None:
        """What members were told of the generation that the log has is in the log."""
        self.world.coordinator.shutdown()
        self.read_answers()
        self.world.log.lose_power()
        self.commits = [each for each in self.commits if not each[1].is_open]
        self.release_writes(in_order=True)
        self.world.start()
        for client in self.clients:
            client.join = client.sync = None
        self.check_generations()

    def check_generations(self) -> None:
        """The group, as it was just loaded, has the members that its generation was told to."""
        group = self.world.coordinator.manager.group("g")
        for client in self.clients:
            if group is None or client.generation != group.generation_id:
                client.is_lost = True
            elif not client.is_lost:
                assert client.member_id in group.members

    @rule()
    def move_away_and_back(self) -> None:
        self.world.move_away_and_back()
        self.check_generations()
        self.read_answers()

    def read_answers(self) -> None:
        """Clients take in what they were answered."""
        for client in self.clients:
            if client.join is not None and not client.join.is_open:
                self.read_join(client, client.join)
            if client.sync is not None and not client.sync.is_open:
                self.read_sync(client, client.sync)

    def read_join(self, client: Client, join: Reply) -> None:
        client.join = None
        if join.error is ErrorCode.NONE:
            client.member_id = join.value.member_id
            client.generation = join.value.generation_id
            client.is_lost = False
            leads = join.value.leader == client.member_id and not join.value.skip_assignment
            client.members = [m.member_id for m in join.value.members] if leads else []
        elif join.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = join.value.member_id
        elif join.error in STARTS_ANEW:
            client.member_id = ""

    def read_sync(self, client: Client, sync: Reply) -> None:
        client.sync = None
        if sync.error is not ErrorCode.NONE:
            client.generation = -1
            return
        client.is_assigned = True
        for partition in sync.value.assignment:
            key = (client.generation, partition)
            owner = self.owners.setdefault(key, client.owner)
            assert owner == client.owner, f"partition {partition} is owned twice"

    @invariant()
    def group_is_sound(self) -> None:
        """The leader is a member, static places point to members, waiting members are counted."""
        group = self.world.coordinator.manager.group("g")
        if group is None:
            return
        assert (group.leader_id is None) == (not group.members)
        assert group.leader_id is None or group.leader_id in group.members
        assert set(group.static_members.values()) <= set(group.members)
        waiting = [m for m in group.members.values() if m.awaiting_join is not None]
        assert group.awaiting_join_count == len(waiting)
        assert (group.state is GroupState.EMPTY) <= (not group.members)
        for member in group.members.values():
            assert member.session_timer is not None or member.is_kept_alive

    @invariant()
    def acknowledged_offsets_are_there(self) -> None:
        """The newest acknowledged offset, or one that was written after it."""
        acknowledged = [v for v, reply in self.commits if reply.value is ErrorCode.NONE]
        committed = self.world.committed()
        if acknowledged:
            assert committed is not None
            assert committed >= acknowledged[-1]

    def teardown(self) -> None:
        """Left alone, the coordinator answers everything that is still open."""
        if not hasattr(self, "world"):
            return
        self.set_write_error(ErrorCode.NONE)
        self.release_writes(in_order=True)
        self.world.advance(NEW_MEMBER_JOIN_TIMEOUT_MS + 200_000)
        self.read_answers()

        self.check_replay()
        assert not any(client.join or client.sync for client in self.clients)
        assert not any(reply.is_open for _, reply in self.commits)


TestGroupSequences = GroupSequences.TestCase
TestGroupSequences.settings = settings(
    max_examples=examples(100), stateful_step_count=30, deadline=None
)
