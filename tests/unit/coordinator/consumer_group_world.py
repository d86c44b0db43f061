"""Members of consumer groups in virtual time: heartbeats in shorthand, over `group_world.World`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from group_world import Reply, World

from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.member_metadata import ClientContext
from ottla.errors import ErrorCode
from ottla.protocol.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
)
from ottla.protocol.message import decode_versioned, encode_versioned
from ottla.structs import LeaderAndIsr, PartitionState, TopicPartition

HEARTBEAT_MS = 5_000
SESSION_MS = 45_000
REVOCATION_MS = 60_000
CLIENT = ClientContext("app", "/10.0.0.1", 1)
NAME_BYTES = 12
Partitions = frozenset[tuple[UUID, int]]


def topic_id_of(name: str, number: int) -> UUID:
    """An id that tells the name of its topic."""
    return UUID(bytes=name.encode().ljust(NAME_BYTES, b"\0") + number.to_bytes(4, "big"))


def named(partitions: Partitions) -> frozenset[tuple[str, int]]:
    """The partitions by the names of their topics."""
    return frozenset(
        (topic_id.bytes[:NAME_BYTES].rstrip(b"\0").decode(), number)
        for topic_id, number in partitions
    )


def embedded(topic_names: tuple[str, ...], held: frozenset[tuple[str, int]], version: int) -> bytes:
    """A subscription as classic members pack it."""
    owned: dict[str, list[int]] = {}
    for name, number in sorted(held):
        owned.setdefault(name, []).append(number)
    parts = [ConsumerProtocolTopicPartition(topic=t, partitions=p) for t, p in owned.items()]
    value = ConsumerProtocolSubscription(topics=list(topic_names), owned_partitions=parts)
    return encode_versioned(value, version)


def packed(held: frozenset[tuple[str, int]], user_data: bytes | None = None) -> bytes:
    """An assignment as a leader packs it."""
    parts = [ConsumerProtocolTopicPartition(topic=t, partitions=[n]) for t, n in sorted(held)]
    value = ConsumerProtocolAssignment(assigned_partitions=parts, user_data=user_data)
    return encode_versioned(value, 1)


@dataclass
class ClassicPeer:
    """A client of the classic protocol: eager ones hold nothing while they join."""

    world: ConsumerWorld
    is_eager: bool = True
    topics: tuple[str, ...] = ("t",)
    instance: str | None = None
    member_id: str = ""
    generation: int = -1
    owned: frozenset[tuple[str, int]] = frozenset()
    wants_to_join: bool = True

    def join(self, **fields: Any) -> Reply:
        """Begin to join: in a classic group the answer comes when all have."""
        if self.is_eager:
            self.owned = frozenset()
        data = embedded(self.topics, self.owned, 1)
        fields = {"protocols": (("range", data), ("sticky", data)), **fields}
        return World.join(self.world, self.member_id, instance=self.instance, **fields)

    def take(self, reply: Reply) -> ErrorCode:
        """What the answer to JoinGroup says."""
        if not reply.error:
            self.member_id = reply.value.member_id
            self.generation = reply.value.generation_id
            self.wants_to_join = False
        return reply.error

    def sync(self, assignments: dict[str, bytes] | None = None) -> Reply:
        """Ask for the assignment; a cooperative client gives up, and joins once more."""
        fields = {"protocol_type": "consumer", "group_instance_id": self.instance}
        return self.world.sync(self.member_id, self.generation, assignments, **fields)

    def receive(self, reply: Reply) -> ErrorCode:
        """Take over the assignment."""
        if reply.error:
            self.wants_to_join = True
            return reply.error
        given = decode_versioned(ConsumerProtocolAssignment, reply.value.assignment)
        now = frozenset((t.topic, n) for t in given.assigned_partitions for n in t.partitions)
        self.wants_to_join = bool(self.owned - now)
        self.owned = now
        return ErrorCode.NONE

    def rejoin(self) -> ErrorCode:
        """Join a consumer group and take what it gives."""
        return self.take(self.join()) or self.receive(self.sync())

    def beat(self) -> ErrorCode:
        """A heartbeat, and what it asks for."""
        error = self.world.heartbeat(
            self.member_id, self.generation, group_instance_id=self.instance
        )
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.wants_to_join = True
        return error

    def live(self) -> None:
        """One turn in a consumer group."""
        if self.wants_to_join or self.beat() is ErrorCode.REBALANCE_IN_PROGRESS:
            assert self.rejoin() is ErrorCode.NONE


@dataclass
class Peer:
    """A client: it holds what it was told, and gives up at once what it is not told any more."""

    member_id: str
    instance: str | None = None
    epoch: int = 0
    held: Partitions = frozenset()
    subscription: dict[str, Any] = field(default_factory=dict)

    @property
    def owned(self) -> frozenset[tuple[str, int]]:
        return named(self.held)


def partitions_of(assignment: Any) -> Partitions:
    """The partitions of an answer."""
    return frozenset(
        (topic.topic_id, number)
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )


def wire(partitions: Partitions) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
    """The partitions as a heartbeat has them."""
    found: dict[UUID, list[int]] = {}
    for topic_id, number in sorted(partitions):
        found.setdefault(topic_id, []).append(number)
    return [
        ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in found.items()
    ]


class ConsumerWorld(World):
    """A world with topics in it; the group is "g" unless named."""

    def __init__(self, topics: dict[str, int] | None = None, **config: Any) -> None:
        super().__init__(**config)
        self.next_topic_id = 0
        for name, count in (topics or {}).items():
            self.create(name, count)

    def create(self, name: str, count: int) -> None:
        """Make a topic, or one more of the same name after its deletion."""
        self.next_topic_id += 1
        self._tell(name, topic_id_of(name, self.next_topic_id), range(count))

    def extend(self, name: str, count: int) -> None:
        topic = self.topics.topic(name)
        assert topic is not None
        self._tell(name, topic.topic_id, range(len(topic.partitions), count))

    def drop(self, name: str) -> None:
        self.topics.update([], [], [name])

    def _tell(self, name: str, topic_id: UUID, numbers: range) -> None:
        leads = LeaderAndIsr(0, 0, (0,))
        self.topics.update(
            [PartitionState(TopicPartition(name, n), topic_id, 0, leads, (0,)) for n in numbers],
            [],
        )

    @property
    def consumers(self) -> ConsumerGroup:
        group = self.coordinator.manager.group("g")
        assert isinstance(group, ConsumerGroup)
        return group

    def send(self, *, version: int = 1, **fields: Any) -> Reply:
        """One heartbeat, word for word."""
        reply = Reply()
        request = ConsumerGroupHeartbeatRequest(**{"group_id": "g", **fields})
        self.coordinator.consumer_group_heartbeat(
            request, CLIENT._replace(api_version=version), reply
        )
        return reply

    def join(self, peer: Peer, *topics: str, regex: str | None = None, **fields: Any) -> ErrorCode:
        """Subscribe and join; "t" unless named."""
        names = list(topics) if topics or regex is not None else ["t"]
        peer.subscription = {"subscribed_topic_names": names, "subscribed_topic_regex": regex}
        return self.rejoin(peer, **fields)

    def rejoin(self, peer: Peer, **fields: Any) -> ErrorCode:
        """Give all up and join."""
        peer.epoch, peer.held = 0, frozenset()
        values = {"rebalance_timeout_ms": REVOCATION_MS, "topic_partitions": []}
        return self.beat(peer, **{**values, **peer.subscription, **fields})

    def beat(self, peer: Peer, **fields: Any) -> ErrorCode:
        """A heartbeat that says what the peer owns; it takes over what the answer says."""
        values: dict[str, Any] = {"topic_partitions": wire(peer.held), **fields}
        reply = self.send(
            member_id=peer.member_id,
            member_epoch=peer.epoch,
            instance_id=peer.instance,
            **values,
        )
        answer: ConsumerGroupHeartbeatResponse = reply.value
        if answer.error_code:
            return ErrorCode(answer.error_code)
        assert answer.heartbeat_interval_ms == HEARTBEAT_MS
        peer.epoch = answer.member_epoch
        if answer.assignment is not None:
            peer.held = partitions_of(answer.assignment)
        return ErrorCode.NONE

    def quit(self, peer: Peer, epoch: int = -1) -> ErrorCode:
        """Leave: for good (-1), or as a static member that will be back (-2)."""
        reply = self.send(member_id=peer.member_id, member_epoch=epoch, instance_id=peer.instance)
        if not reply.error:
            assert reply.value.member_epoch == epoch
        return reply.error

    def settle(self, *peers: Peer) -> None:
        """Heartbeats in turn until nobody is told anything new."""
        for _ in range(4):
            for peer in peers:
                assert self.beat(peer) is ErrorCode.NONE

    def members(self, *names: str, topics: tuple[str, ...] = ("t",)) -> list[Peer]:
        """A settled group of these members."""
        peers = [Peer(name) for name in names]
        for peer in peers:
            assert self.join(peer, *topics) is ErrorCode.NONE
        self.settle(*peers)
        return peers

    def reload(self) -> None:
        """The coordinator stops, and one that reads the log takes its place."""
        self.coordinator.shutdown()
        self.start()
