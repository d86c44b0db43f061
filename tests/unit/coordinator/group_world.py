"""A group coordinator in virtual time, over an offsets log in memory, driven like a broker's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ottla.config.broker_config import BrokerConfig
from ottla.coordinator.coordinator_log import OnAppended
from ottla.coordinator.group.classic_group import ClassicGroup, GroupState
from ottla.coordinator.group.group import Committer
from ottla.coordinator.group.group_coordinator import GroupCoordinator
from ottla.coordinator.group.member_metadata import ClientContext
from ottla.coordinator.group.offsets import CommittedOffset
from ottla.errors import ErrorCode
from ottla.protocol.group import (
    DeleteGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.record.memory_records import batches
from ottla.record.record_batch import assign_offset
from ottla.runtime.scheduler import at_once
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import NO_OFFSET, TopicPartition
from ottla.testing import MockRuntime, mock_runtime

INITIAL_DELAY_MS = 3_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
CLIENT = ClientContext("app", "/10.0.0.1", 9)
EMPTY, PREPARING, COMPLETING, STABLE = (
    GroupState.EMPTY,
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.STABLE,
)


# A batch with such an answer is in the log nevertheless.
IN_THE_LOG = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


class Reply:
    """A callback that must be called once, and what it was called with."""

    def __init__(self) -> None:
        self.value: Any = None

    def __call__(self, value: Any) -> None:
        assert self.value is None, "a request is answered once"
        self.value = value

    @property
    def is_open(self) -> bool:
        return self.value is None

    @property
    def error(self) -> ErrorCode:
        assert self.value is not None, "the request is still open"
        return ErrorCode(self.value.error_code)


class MemoryOffsetsLog:
    """Partitions in memory. Writes may be refused (`error`) or held back (`hold`, `release`)."""

    def __init__(self, partition_count: int = 1) -> None:
        self.partition_count = partition_count
        self.partitions: list[list[bytes]] = [[] for _ in range(partition_count)]
        self._ends = [0] * partition_count
        self.error = ErrorCode.NONE
        self.hold = False
        self.is_replicated = True
        self._held: list[Callable[[], None]] = []
        self._acknowledged = [0] * partition_count
        """How many batches of each partition are acknowledged, and survive a loss of power."""

    def partition_for(self, group_id: str) -> int:
        return sum(group_id.encode()) % self.partition_count

    def is_leader(self, partition: int) -> bool:
        return True

    def leader_epoch(self, partition: int) -> int:
        return 0

    def is_committed(self, partition: int, offset: int) -> bool:
        return self.is_replicated

    def may_be_succeeded(self, since_ms: int) -> bool:
        return False

    @contextmanager
    def replicated(self) -> Iterator[None]:
        """The in-sync replicas have all that there is, which a new leader waits for."""
        before, self.is_replicated = self.is_replicated, True
        yield
        self.is_replicated = before

    def end_offset(self, partition: int) -> int:
        return self._ends[partition]

    def append(self, partition: int, batch: bytes, on_done: OnAppended) -> None:
        error, offset = self.error, NO_OFFSET
        if not error or error in IN_THE_LOG:
            offset = self._write(partition, batch)
        count = len(self.partitions[partition])

        def acknowledge() -> None:
            self._acknowledged[partition] = max(count, self._acknowledged[partition])
            on_done(error, offset)

        if self.hold:
            self._held.append(acknowledge)
        else:
            acknowledge()

    def lose_power(self) -> None:
        """All batches that were not acknowledged are gone, and nobody hears of them."""
        self._held = []
        for partition, count in enumerate(self._acknowledged):
            del self.partitions[partition][count:]
            last = self.partitions[partition][-1:]
            ends = [batch.next_offset for data in last for batch in batches(memoryview(data))]
            self._ends[partition] = ends[-1] if ends else 0

    def release(self, in_order: bool = True) -> None:
        """Acknowledge what was held back."""
        held, self._held = self._held, []
        for acknowledge in held if in_order else reversed(held):
            acknowledge()

    @property
    def held_count(self) -> int:
        """How many writes are held back."""
        return len(self._held)

    def release_first(self) -> None:
        """Acknowledge the oldest write that was held back."""
        self._held.pop(0)()

    def read(self, partition: int) -> Iterator[memoryview]:
        for batch in self.partitions[partition]:
            yield memoryview(batch)

    def records(self, partition: int = 0) -> list[tuple[bytes | None, bytes | None]]:
        """Keys and values of everything written."""
        return [
            (record.key, record.value)
            for view in self.read(partition)
            for batch in batches(view)
            for record in batch.records()
        ]

    def _write(self, partition: int, batch: bytes) -> int:
        buffer = bytearray(batch)
        offset = self._ends[partition]
        assign_offset(memoryview(buffer), 0, offset, 0)
        self.partitions[partition].append(bytes(buffer))
        self._ends[partition] = next(batches(memoryview(buffer))).next_offset
        return offset


class World:
    """One coordinator and shorthands for its requests; the group is "g" unless named."""

    def __init__(self, log: MemoryOffsetsLog | None = None, **config: Any) -> None:
        self.runtime: MockRuntime = mock_runtime()
        self.log = log or MemoryOffsetsLog()
        self.topics = MetadataCache("cluster")
        values = {"group_initial_rebalance_delay_ms": INITIAL_DELAY_MS, **config}
        self.config = BrokerConfig.parse(
            {key.replace("_", "."): value for key, value in values.items()}
        )
        self.start()

    def start(self) -> None:
        """A coordinator that has read what is in the log, as after the start of the broker."""
        self.coordinator = GroupCoordinator(self.runtime, self.config, self.log, self.topics)
        self.coordinator.startup()
        for partition in range(self.log.partition_count):
            self.coordinator.on_election(partition)
        with self.log.replicated():
            self.runtime.scheduler.run_ready()

    def move_away_and_back(self) -> None:
        """Another broker has led partition 0: only what is in the log is left."""
        self.coordinator.on_resignation(0)
        self.coordinator.on_election(0)
        with self.log.replicated():
            self.advance(0)

    def advance(self, ms: int) -> None:
        self.runtime.advance(ms)

    def fail_writes(self, error: ErrorCode) -> None:
        """Have writes end so from now on; with REQUEST_TIMED_OUT the replicas do not have them."""
        self.log.error = error
        self.log.is_replicated = error is not ErrorCode.REQUEST_TIMED_OUT

    def group(self, group_id: str = "g") -> ClassicGroup:
        group = self.coordinator.manager.group(group_id)
        assert group is not None
        return group

    @property
    def state(self) -> GroupState:
        return self.group().state

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        version: int = 3,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"meta"),),
        **fields: Any,
    ) -> Reply:
        """Version 3 joins at once; version 4 asks to come back with a member id."""
        values: dict[str, Any] = {
            "group_id": "g",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            **fields,
        }
        request = JoinGroupRequest(
            member_id=member_id,
            group_instance_id=instance,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols
            ],
            **values,
        )
        reply = Reply()
        client = CLIENT._replace(api_version=version)
        self.coordinator.join_group(request, client, reply)
        return reply

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        **fields: Any,
    ) -> Reply:
        parts = [
            SyncGroupRequestAssignment(member_id=name, assignment=assignment)
            for name, assignment in (assignments or {}).items()
        ]
        reply = Reply()
        request = SyncGroupRequest(
            member_id=member_id,
            generation_id=generation,
            assignments=parts,
            **{"group_id": "g", **fields},
        )
        self.coordinator.sync_group(request, reply)
        return reply

    def heartbeat(self, member_id: str, generation: int, **fields: Any) -> ErrorCode:
        request = HeartbeatRequest(
            member_id=member_id, generation_id=generation, **{"group_id": "g", **fields}
        )
        return ErrorCode(self.coordinator.heartbeat(request))

    def leave(self, *members: str | tuple[str, str | None], group: str = "g") -> list[ErrorCode]:
        """Members by id, or as (id, instance id)."""
        pairs = [member if isinstance(member, tuple) else (member, None) for member in members]
        identities = [MemberIdentity(member_id=m, group_instance_id=i) for m, i in pairs]
        response = self.coordinator.leave_group(
            LeaveGroupRequest(group_id=group, members=identities)
        )
        if response.error_code:
            return [ErrorCode(response.error_code)]
        return [ErrorCode(member.error_code) for member in response.members]

    def commit(
        self,
        offset: int | CommittedOffset,
        member_id: str = "",
        generation: int = -1,
        *,
        instance: str | None = None,
        topic: str = "t",
        partition: int = 0,
        group: str = "g",
    ) -> Reply:
        """Commit one offset; the reply's value is the error."""
        if isinstance(offset, int):
            offset = CommittedOffset(offset, commit_timestamp_ms=self.runtime.clock.now_ms())
        reply = Reply()
        key = TopicPartition(topic, partition)
        self.coordinator.commit_offsets(
            group,
            Committer(member_id, generation, instance),
            {key: offset},
            lambda errors: reply(ErrorCode(errors[key])),
        )
        return reply

    def committed(self, topic: str = "t", partition: int = 0, group: str = "g") -> int | None:
        key = TopicPartition(topic, partition)
        error, offsets = self.coordinator.fetch_offsets(group, [key])
        assert not error
        value = offsets[key]
        return None if value is None else value.offset

    def committed_error(self, group: str = "g") -> ErrorCode:
        return self.coordinator.fetch_offsets(group, None)[0]

    def delete(self, *groups: str) -> dict[str, ErrorCode]:
        reply = Reply()
        self.coordinator.delete_groups(DeleteGroupsRequest(groups_names=list(groups)), reply)
        if reply.value is None:
            self.runtime.scheduler.run_ready()
        return {r.group_id: ErrorCode(r.error_code) for r in reply.value.results}

    def listed(self, states: list[str] | None = None, types: list[str] | None = None) -> list[str]:
        request = ListGroupsRequest(states_filter=states or [], types_filter=types or [])
        return [group.group_id for group in at_once(self.coordinator.list_groups(request)).groups]

    def end_initial_delay(self) -> None:
        """Every newcomer has made the first rebalance wait for longer."""
        while self.state is PREPARING:
            self.advance(INITIAL_DELAY_MS)

    def stabilize(self, *joins: Reply) -> None:
        """Answer open joins, and have the leader give each member its own id as assignment."""
        self.end_initial_delay()
        members = [join.value.member_id for join in joins]
        generation = joins[0].value.generation_id
        leader = joins[0].value.leader
        assignment = {member: member.encode() for member in members}
        for member in members:
            self.sync(member, generation, assignment if member == leader else None)
        assert self.state is STABLE

    def stable_group(self, *instances: str | None) -> list[str]:
        """A Stable group of generation 1; returns the member ids, the leader first."""
        joins = [self.join(instance=instance, version=3) for instance in instances]
        self.stabilize(*joins)
        ids = [join.value.member_id for join in joins]
        leader = joins[0].value.leader
        return sorted(ids, key=lambda member_id: member_id != leader)
