"""How a group shares its partitions: the assignors that the group's leader may run.

The sticky ones divide evenly and move as few partitions as they can.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import cycle, groupby
from typing import Any, ClassVar

from ottla.errors import ConfigError
from ottla.structs import NO_GENERATION, NamedTuple, TopicPartition, Value

Assignment = dict[str, list[TopicPartition]]


class MemberSubscription(Value):
    """The topics and partitions of a member; it reported `owned` for `generation`."""

    topics: Sequence[str]
    owned: Sequence[TopicPartition] = ()
    generation: int = NO_GENERATION
    instance_id: str | None = None
    user_data: bytes | None = None


class Assignor(ABC):
    """Divides partitions among members: every partition of a wanted topic has exactly one owner.

    A cooperative assignor may leave a partition out for one round, until its owner has released it.
    """

    name: ClassVar[str]
    cooperative: ClassVar[bool] = False

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        """The user data that this member sends to the leader's assignor, besides its topics."""
        return None

    @abstractmethod
    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> Assignment:
        """The partitions of each member; topics without partitions do not exist (yet)."""


def sorted_members(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Member ids in the order that decides which of them get the remainder: static members first.

    Static members (KIP-345) are ordered by instance id: a restart does not move their partitions.
    """

    def order(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, instance_id or member_id

    return sorted(members, key=order)


def wanted_partitions(
    partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
) -> list[TopicPartition]:
    """All partitions of all topics that any member wants, topic by topic."""
    topics = {topic for member in members.values() for topic in member.topics}
    return [
        TopicPartition(topic, partition)
        for topic in sorted(topics)
        for partition in range(partition_counts.get(topic, 0))
    ]


class RangeAssignor(Assignor):
    """Topic by topic, floor(partitions / members) to each; the first members take the remainder.

    Nine partitions, three members: 0-2, 3-5, 6-8. Topics with equal counts are divided alike, so
    that partition n of one and partition n of the other have the same owner.
    """

    name = "range"

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> Assignment:
        assignment: Assignment = {member_id: [] for member_id in members}
        ordered = sorted_members(members)
        for topic in sorted({topic for member in members.values() for topic in member.topics}):
            wanting = [member_id for member_id in ordered if topic in members[member_id].topics]
            share, remainder = divmod(partition_counts.get(topic, 0), len(wanting))
            start = 0
            for index, member_id in enumerate(wanting):
                end = start + share + (index < remainder)
                assignment[member_id] += [TopicPartition(topic, p) for p in range(start, end)]
                start = end
        return assignment


class RoundRobinAssignor(Assignor):
    """All partitions in order, each to the next member that wants its topic.

    Nine partitions, three members: 0 3 6, 1 4 7, 2 5 8.
    """

    name = "roundrobin"

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> Assignment:
        assignment: Assignment = {member_id: [] for member_id in members}
        turns = cycle(sorted_members(members))
        for partition in wanted_partitions(partition_counts, members):
            owner = next(turns)
            while partition.topic not in members[owner].topics:
                owner = next(turns)
            assignment[owner].append(partition)
        return assignment


class Ownership(NamedTuple):
    """The partitions that a member owned, and the generation of the group in which it did."""

    partitions: Sequence[TopicPartition]
    generation: int


class StickyAssignor(Assignor):
    """Members keep their partitions; orphaned and surplus ones go to members with fewer.

    Nine partitions of three members, the third leaves: the first has 0-2 and 6-7, the second 3-5
    and 8. Invariant: no member has two partitions more than another that could take one of them.
    """

    name = "sticky"

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        return encode_ownership(owned, generation)

    def ownership(self, member: MemberSubscription) -> Ownership:
        """The partitions that the member reports; an eager member reports them in its user data."""
        if member.user_data is None:
            return Ownership(member.owned, member.generation)
        return decode_ownership(member.user_data)

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> Assignment:
        partitions = wanted_partitions(partition_counts, members)
        owners = {member_id: self.ownership(member) for member_id, member in members.items()}
        assignment = _kept(partitions, members, owners)
        kept = {partition for share in assignment.values() for partition in share}
        orphans = [partition for partition in partitions if partition not in kept]
        if len({frozenset(member.topics) for member in members.values()}) == 1:
            _fill_to_quota(assignment, orphans)
        else:
            _give_to_smallest(assignment, orphans, members)
            _even_out(assignment, members)
        return {member_id: sorted(share) for member_id, share in assignment.items()}


def _kept(
    partitions: Sequence[TopicPartition],
    members: Mapping[str, MemberSubscription],
    owners: Mapping[str, Ownership],
) -> Assignment:
    """The partitions that members keep: of two claims the newer one wins, equal ones both lose."""
    existing = set(partitions)
    claims: dict[TopicPartition, list[tuple[int, str]]] = {}
    for member_id, owned in owners.items():
        for partition in set(owned.partitions) & existing:
            if partition.topic in members[member_id].topics:
                claims.setdefault(partition, []).append((owned.generation, member_id))
    assignment: Assignment = {member_id: [] for member_id in sorted_members(members)}
    for partition, claimants in sorted(claims.items()):
        newest, member_id = max(claimants)
        if sum(generation == newest for generation, _ in claimants) == 1:
            assignment[member_id].append(partition)
    return assignment


def _fill_to_quota(assignment: Assignment, orphans: list[TopicPartition]) -> None:
    """Give each member its quota, if all want the same topics; the remainder goes to the largest.

    Partitions above a member's quota become orphans.
    """
    count = len(orphans) + sum(map(len, assignment.values()))
    share, remainder = divmod(count, len(assignment))
    by_size = sorted(assignment, key=lambda member_id: -len(assignment[member_id]))
    quotas = {member_id: share + (i < remainder) for i, member_id in enumerate(by_size)}
    for member_id, owned in assignment.items():
        orphans += owned[quotas[member_id] :]
        del owned[quotas[member_id] :]
    orphans.sort()
    start = 0
    for member_id, owned in assignment.items():
        end = start + quotas[member_id] - len(owned)
        owned += orphans[start:end]
        start = end


def _give_to_smallest(
    assignment: Assignment,
    orphans: Sequence[TopicPartition],
    members: Mapping[str, MemberSubscription],
) -> None:
    for partition in orphans:
        wanting = [m for m in assignment if partition.topic in members[m].topics]
        assignment[min(wanting, key=lambda m: len(assignment[m]))].append(partition)


def _even_out(assignment: Assignment, members: Mapping[str, MemberSubscription]) -> None:
    """Move single partitions from members with more to members with less while that helps.

    Each move makes the sum of the squares of the sizes smaller, so it ends.
    """
    while move := _next_move(assignment, members):
        giver, taker, partition = move
        assignment[giver].remove(partition)
        assignment[taker].append(partition)


def _next_move(
    assignment: Assignment, members: Mapping[str, MemberSubscription]
) -> tuple[str, str, TopicPartition] | None:
    by_size = sorted(assignment, key=lambda m: len(assignment[m]))
    for giver in reversed(by_size):
        for taker in by_size:
            if len(assignment[giver]) < len(assignment[taker]) + 2:
                break
            for partition in assignment[giver]:
                if partition.topic in members[taker].topics:
                    return giver, taker, partition
    return None


def encode_ownership(owned: Sequence[TopicPartition], generation: int) -> bytes:
    """The sticky assignor's user data: [topic [partition]] and the generation."""
    topics = [(t, [p.partition for p in g]) for t, g in groupby(sorted(owned), lambda p: p.topic)]
    parts = [struct.pack(">i", len(topics))]
    for topic, partitions in topics:
        name = topic.encode()
        parts.append(struct.pack(">h", len(name)) + name)
        parts.append(struct.pack(f">i{len(partitions)}i", len(partitions), *partitions))
    parts.append(struct.pack(">i", generation))
    return b"".join(parts)


def decode_ownership(data: bytes) -> Ownership:
    """Both versions of the user data; unreadable data count as owning nothing.

    It comes from another member and is only a preference: bad data must not stop the group.
    """
    try:
        return _decode_ownership(data)
    except (struct.error, UnicodeDecodeError):
        return Ownership((), NO_GENERATION)


def _decode_ownership(data: bytes) -> Ownership:
    owned = []
    (topic_count,) = struct.unpack_from(">i", data)
    position = 4
    for _ in range(topic_count):
        (length,) = struct.unpack_from(">h", data, position)
        topic = data[position + 2 : position + 2 + length].decode()
        position += 2 + length
        (count,) = struct.unpack_from(">i", data, position)
        partitions = struct.unpack_from(f">{max(count, 0)}i", data, position + 4)
        position += 4 + 4 * len(partitions)
        owned += [TopicPartition(topic, partition) for partition in partitions]
    has_generation = len(data) >= position + 4
    generation = struct.unpack_from(">i", data, position)[0] if has_generation else NO_GENERATION
    return Ownership(owned, generation)


class CooperativeStickyAssignor(StickyAssignor):
    """Sticky in two rounds: a partition that must move is left out until its owner released it.

    Members keep reading meanwhile (KIP-429).
    The owner sees that it lost the partition, revokes it and joins again; then it is given away.
    """

    name = "cooperative-sticky"
    cooperative = True

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        return struct.pack(">i", generation)

    def ownership(self, member: MemberSubscription) -> Ownership:
        if member.generation != NO_GENERATION or len(member.user_data or b"") < 4:
            return Ownership(member.owned, member.generation)
        return Ownership(member.owned, struct.unpack_from(">i", member.user_data or b"")[0])

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> Assignment:
        assignment = super().assign(partition_counts, members)
        claimants: dict[TopicPartition, set[str]] = {}
        for member_id, member in members.items():
            for partition in member.owned:
                claimants.setdefault(partition, set()).add(member_id)
        return {
            member_id: [p for p in share if claimants.get(p, set()) <= {member_id}]
            for member_id, share in assignment.items()
        }


_BY_NAME: dict[str, type[Assignor]] = {
    assignor.name: assignor
    for assignor in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}


def assignors_of(settings: Sequence[Any]) -> list[Assignor]:
    """The assignors that `partition.assignment.strategy` names, by wire name or Kafka's class."""
    return [_assignor_of(setting) for setting in settings]


def _assignor_of(setting: Any) -> Assignor:
    if isinstance(setting, Assignor):
        return setting
    if isinstance(setting, type) and issubclass(setting, Assignor):
        return setting()
    for name, assignor in _BY_NAME.items():
        if setting == name or str(setting).rpartition(".")[2] == assignor.__name__:
            return assignor()
    raise ConfigError(
        f"partition.assignment.strategy={setting}: must be one of {', '.join(_BY_NAME)}"
    )
