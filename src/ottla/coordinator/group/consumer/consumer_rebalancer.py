"""Carries the members of a consumer group to their targets, whichever protocol they speak.

A change of members, subscriptions or topics brings a new group epoch and a target assignment, by
one of the assignors `range` and `uniform`. Each member then moves towards its target on its own
(`next_assignment`), with each heartbeat or JoinGroup.

Wing: attaches to `group_coordinator`, for the newer group protocol (KIP-848); the core works
without it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from heapq import heapify, heappop, heappush
from re import _constants as codes  # type: ignore[attr-defined]  # no public module shows how
from re import _parser as parser  # type: ignore[attr-defined]  # Python parses an expression
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.config.broker_config import BrokerConfig
from ottla.config.coordinator_config import ConsumerGroupConfig
from ottla.coordinator.group.consumer.consumer_group import (
    ConsumerGroup,
    GroupChanges,
    has_unrevoked,
)
from ottla.coordinator.group.consumer.consumer_group_records import (
    NO_PARTITIONS,
    Assignment,
    AssignmentEpochs,
    ClusterTopics,
    ConsumerMember,
    CurrentAssignment,
    MemberDetails,
    MemberState,
    TopicIdPartition,
    look_up,
)
from ottla.coordinator.group.group import GroupRebalancer
from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager, OnStored
from ottla.coordinator.group.rebalancer import MemberSessions
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime import Runtime


class MemberSpec(NamedTuple):
    """A member: the topics it reads, and the target that it had before."""

    topic_ids: frozenset[UUID]
    target: Assignment
    instance_id: str | None = None


class GroupSpec(NamedTuple):
    """The members by id, and the partition count of each topic that exists."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[UUID, int]


Assignor = Callable[[GroupSpec], dict[str, Assignment]]
"""Gives each partition of the topics that are read to exactly one member that reads its topic."""


# The range assignor: neighbouring partitions of each topic, the same numbers of every topic.
#
# Members that read the same topics get partitions of the same numbers, so that records with equal
# keys reach the same member. The first members get one more if the division leaves a remainder.


def assign_range(group: GroupSpec) -> dict[str, Assignment]:
    """Members are sorted by id; static ones by instance id, so they keep their place."""
    order = sorted(group.members, key=lambda member: group.members[member].instance_id or member)
    given: dict[str, list[TopicIdPartition]] = {member: [] for member in group.members}
    for topic_id, count in group.partition_counts.items():
        readers = [member for member in order if topic_id in group.members[member].topic_ids]
        if not readers:
            continue
        size, rest = divmod(count, len(readers))
        start = 0
        for place, member in enumerate(readers):
            end = start + size + (place < rest)
            given[member] += [TopicIdPartition(topic_id, number) for number in range(start, end)]
            start = end
    return {member: frozenset(partitions) for member, partitions in given.items()}


# The uniform assignor: as even as the subscriptions allow, with as few moves as possible.


Given = dict[str, set[TopicIdPartition]]


def assign_uniform(group: GroupSpec) -> dict[str, Assignment]:
    """Keep what members have, deal out the rest, then even out where it helps."""
    if not group.members:
        return {}
    given = _kept(group)
    if len({member.topic_ids for member in group.members.values()}) == 1:
        _assign_to_equals(group, given)
    else:
        _assign_to_unequals(group, given)
    return {member: frozenset(partitions) for member, partitions in given.items()}


def _kept(group: GroupSpec) -> Given:
    """What members had that still exists and that they still read; each partition once."""
    taken: set[TopicIdPartition] = set()
    given: Given = {}
    for member, spec in group.members.items():
        kept = {
            partition
            for partition in spec.target
            if partition.topic_id in spec.topic_ids
            and partition.partition < group.partition_counts.get(partition.topic_id, 0)
            and partition not in taken
        }
        given[member] = kept
        taken |= kept
    return given


def _all_partitions(group: GroupSpec, topic_ids: Collection[UUID]) -> Iterator[TopicIdPartition]:
    for topic_id in sorted(topic_ids):
        for number in range(group.partition_counts.get(topic_id, 0)):
            yield TopicIdPartition(topic_id, number)


def _assign_to_equals(group: GroupSpec, given: Given) -> None:
    """All read the same topics: members' partition counts differ by at most one."""
    topic_ids = next(iter(group.members.values())).topic_ids
    partitions = list(_all_partitions(group, topic_ids))
    quota, rest = divmod(len(partitions), len(given))
    # Members that have most may keep one more, so that fewer partitions move.
    for member in sorted(given, key=lambda member: (-len(given[member]), member)):
        limit = quota + (rest > 0 and len(given[member]) > quota)
        rest -= limit > quota
        for partition in sorted(given[member])[limit:]:
            given[member].discard(partition)
    taken = set().union(*given.values())
    free = iter([partition for partition in partitions if partition not in taken])
    for member in sorted(given):
        limit = quota + (rest > 0 and len(given[member]) <= quota)
        rest -= limit > quota
        for _ in range(limit - len(given[member])):
            given[member].add(next(free))


def _assign_to_unequals(group: GroupSpec, given: Given) -> None:
    """Deal each partition to the reader with the fewest, topics with few readers first."""
    readers: dict[UUID, list[str]] = {}
    for member in sorted(group.members):
        for topic_id in group.members[member].topic_ids:
            readers.setdefault(topic_id, []).append(member)
    taken = set().union(*given.values())
    for topic_id in sorted(readers, key=lambda topic_id: (len(readers[topic_id]), topic_id)):
        free = [p for p in _all_partitions(group, [topic_id]) if p not in taken]
        _deal(free, readers[topic_id], given)
    _even_out(readers, given)


def _deal(free: list[TopicIdPartition], readers: list[str], given: Given) -> None:
    heap = [(len(given[member]), member) for member in readers]
    heapify(heap)
    for partition in free:
        count, member = heappop(heap)
        given[member].add(partition)
        heappush(heap, (count + 1, member))


def _even_out(readers: Mapping[UUID, list[str]], given: Given) -> None:
    """Move partitions to readers of their topic that have at least two fewer, until none has.

    Each move brings the counts of two members closer together, so it comes to an end.
    """
    has_moved = True
    while has_moved:
        has_moved = False
        for member in sorted(given, key=lambda member: (-len(given[member]), member)):
            for partition in sorted(given[member]):
                least = min(readers[partition.topic_id], key=lambda other: len(given[other]))
                if len(given[member]) - len(given[least]) > 1:
                    given[member].discard(partition)
                    given[least].add(partition)
                    has_moved = True


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""By the names that `group.consumer.assignors` and members use."""


logger = logging.getLogger(__name__)


# Makes the target assignment of a group epoch.


def assign_partitions(changes: GroupChanges, default_assignor: str) -> None:
    """Give every partition of the group's topics a member, for the present group epoch."""
    group = changes.group
    targets = ASSIGNORS[group.preferred_assignor(default_assignor)](group_spec(group))
    for member_id, target in targets.items():
        if target != group.target[member_id]:
            changes.set_target(member_id, target)
    changes.set_assignment_epoch(group.group_epoch)


def group_spec(group: ConsumerGroup) -> GroupSpec:
    """The group as an assignor sees it."""
    topics = group.topics
    return GroupSpec(
        members={
            member.member_id: MemberSpec(
                topic_ids=frozenset(
                    topics[name].topic_id for name in group.topics_of(member) if name in topics
                ),
                target=group.target[member.member_id],
                instance_id=member.details.instance_id,
            )
            for member in group.members.values()
        },
        partition_counts={topic.topic_id: topic.partition_count for topic in topics.values()},
    )


# How a member gets from its current assignment to its target, step by step.
#
# First it gives up the partitions that its target lacks, and keeps its epoch until it has confirmed
# that. Then it moves to the epoch of the target, with those partitions that no other member owns;
# the others follow when their owners have given them up. So a partition never has two owners.


def next_assignment(
    current: CurrentAssignment,
    target: Assignment,
    target_epoch: int,
    is_free: Callable[[TopicIdPartition], bool],
    owned: Assignment | None,
) -> CurrentAssignment:
    """The member's next assignment; `owned` is what it reports to have, None if unchanged."""
    if current.state is MemberState.UNREVOKED_PARTITIONS:
        if owned is None or owned & current.pending_revocation:
            return current
    elif current.is_reconciled_to(target_epoch):
        return current
    kept = current.assigned & target
    leaving = current.assigned - kept
    if leaving and (owned is None or owned & leaving):
        return CurrentAssignment(
            member_epoch=current.member_epoch,
            previous_member_epoch=current.member_epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending_revocation=leaving,
            assignment_epochs=_epochs(current, current.assigned, target_epoch),
        )
    free = frozenset(filter(is_free, target - kept))
    has_all = len(kept) + len(free) == len(target)
    following = CurrentAssignment(
        member_epoch=target_epoch,
        previous_member_epoch=current.member_epoch,
        state=MemberState.STABLE if has_all else MemberState.UNRELEASED_PARTITIONS,
        assigned=kept | free,
        pending_revocation=NO_PARTITIONS,
        assignment_epochs=_epochs(current, kept | free, target_epoch),
    )
    # A member that still waits in the same epoch is not written again.
    is_same = following._replace(previous_member_epoch=current.previous_member_epoch) == current
    return current if is_same else following


def _epochs(current: CurrentAssignment, partitions: Assignment, epoch: int) -> AssignmentEpochs:
    """The known epochs; partitions that are new, or whose epoch is unknown, get `epoch`."""
    return {partition: current.assignment_epochs.get(partition, epoch) for partition in partitions}


# The regular expressions that members subscribe to, and the topics that they match.
#
# Kafka uses RE2, which reads each character once. Python's matcher may backtrack almost without
# end, and a client could stop the broker with that. So Python only parses an expression here; it is
# matched by an automaton, whose sets of places are made when a name first leads to them. What RE2
# does not support is refused, and so is what needs more places or more steps than the limits below.


MAX_LENGTH: Final = 4096
MAX_REPEAT: Final = 1000
MAX_PLACES: Final = 5_000
"""Of one automaton, repeats written out."""
MAX_STEPS: Final = 50_000
"""To make the sets that one search needs; a step is a place that is looked at."""
MAX_KEPT_STEPS: Final = 20_000
"""An automaton whose sets took more forgets them before the next search."""
WORD: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
CATEGORIES: Final = {
    codes.CATEGORY_DIGIT: frozenset("0123456789"),
    codes.CATEGORY_SPACE: frozenset(" \t\n\r\f\v"),
    codes.CATEGORY_WORD: WORD,
}
OTHER_CATEGORIES: Final = {
    codes.CATEGORY_NOT_DIGIT: CATEGORIES[codes.CATEGORY_DIGIT],
    codes.CATEGORY_NOT_SPACE: CATEGORIES[codes.CATEGORY_SPACE],
    codes.CATEGORY_NOT_WORD: CATEGORIES[codes.CATEGORY_WORD],
}


class _RefusedError(Exception):
    """The expression could take long, or is of a kind that RE2 does not support."""


class CharacterSet(NamedTuple):
    """The characters that one place of an automaton takes."""

    characters: frozenset[str]
    ranges: tuple[tuple[str, str], ...] = ()
    complements: tuple[frozenset[str], ...] = ()
    is_negated: bool = False
    ignores_case: bool = False

    def accepts(self, character: str) -> bool:
        """Whether the character is one of them."""
        found = self._has(character)
        if self.ignores_case and not found:
            found = self._has(character.lower()) or self._has(character.upper())
        return found is not self.is_negated

    def _has(self, character: str) -> bool:
        return (
            character in self.characters
            or any(first <= character <= last for first, last in self.ranges)
            or any(character not in complement for complement in self.complements)
        )


class Assertion(NamedTuple):
    """What a place of an automaton asks of the characters on its two sides; "" is an end."""

    code: Any
    is_multiline: bool

    def holds(self, before: str, after: str) -> bool:
        """Whether it is true between these two."""
        if self.code is codes.AT_BEGINNING or self.code is codes.AT_BEGINNING_STRING:
            is_line = self.is_multiline and self.code is codes.AT_BEGINNING
            return not before or (is_line and before == "\n")
        if self.code is codes.AT_END or self.code is codes.AT_END_STRING:
            is_line = self.is_multiline and self.code is codes.AT_END
            return not after or (is_line and after == "\n")
        is_boundary = (before in WORD) is not (after in WORD)
        return is_boundary is (self.code is codes.AT_BOUNDARY)


class Automaton:
    """The places of an expression: each takes a character, asserts something, or only leads on."""

    def __init__(self, text: str) -> None:
        tree = parser.parse(text)
        self.takes: list[CharacterSet | Assertion | None] = []
        self.next: list[tuple[int, ...]] = []
        self.end = self._place(None)
        self.start = self._sequence(tree, tree.state.flags, self.end)
        self.has_assertions = any(isinstance(each, Assertion) for each in self.takes)

    def reachable(self, places: Collection[int], before: str, after: str) -> tuple[list[int], int]:
        """The places that take a character, or are the end, and how many were looked at."""
        seen = set(places)
        waiting = list(seen)
        found = []
        while waiting:
            place = waiting.pop()
            takes = self.takes[place]
            if isinstance(takes, CharacterSet) or place == self.end:
                found.append(place)
            elif takes is None or takes.holds(before, after):
                new = [each for each in self.next[place] if each not in seen]
                seen.update(new)
                waiting += new
        return found, len(seen)

    def _place(self, takes: CharacterSet | Assertion | None, *following: int) -> int:
        if len(self.takes) >= MAX_PLACES:
            raise _RefusedError("it is too large with its repeats written out")
        self.takes.append(takes)
        self.next.append(following)
        return len(self.takes) - 1

    def _sequence(self, tree: Any, flags: int, end: int) -> int:
        """Add what leads to `end`, from the last item back; returns where it begins."""
        for code, argument in reversed(list(tree)):
            end = self._item(code, argument, flags, end)
        return end

    def _item(self, code: Any, argument: Any, flags: int, end: int) -> int:
        if code is codes.AT:
            return self._place(Assertion(argument, bool(flags & re.MULTILINE)), end)
        if code is codes.BRANCH:
            return self._place(None, *[self._sequence(each, flags, end) for each in argument[1]])
        if code is codes.SUBPATTERN:
            _, added, removed, body = argument
            return self._sequence(body, (flags | added) & ~removed, end)
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            return self._repeat(argument, flags, end)
        return self._place(character_set(code, argument, flags), end)

    def _repeat(self, argument: Any, flags: int, end: int) -> int:
        least, most, body = argument
        if least > MAX_REPEAT or MAX_REPEAT < most < codes.MAXREPEAT:
            raise _RefusedError(f"more than {MAX_REPEAT} repeats are not supported")
        start = end
        if most == codes.MAXREPEAT:
            start = self._place(None)
            self.next[start] = (self._sequence(body, flags, start), end)
        else:
            for _ in range(most - least):
                start = self._place(None, self._sequence(body, flags, start), end)
        for _ in range(least):  # a place of its own, as a body may have none
            start = self._place(None, self._sequence(body, flags, start))
        return start


def character_set(code: Any, argument: Any, flags: int) -> CharacterSet:
    """The characters that an item of an expression takes."""
    ignores_case = bool(flags & re.IGNORECASE)
    if code is codes.ANY:
        taken = () if flags & re.DOTALL else ("\n",)
        return CharacterSet(frozenset(taken), is_negated=True)
    if code in (codes.LITERAL, codes.NOT_LITERAL):
        is_negated = code is codes.NOT_LITERAL
        items = [(codes.LITERAL, argument)]
    elif code is codes.IN:
        is_negated = argument[0][0] is codes.NEGATE
        items = argument[is_negated:]
    else:
        raise _RefusedError("look-around, references and atomic groups are not supported")
    characters: set[str] = set()
    for kind, value in items:
        if kind is codes.LITERAL:
            characters.add(chr(value))
        elif kind is codes.CATEGORY:
            characters |= CATEGORIES.get(value, frozenset())
    ranges = [value for kind, value in items if kind is codes.RANGE]
    complements = [
        OTHER_CATEGORIES[value]
        for kind, value in items
        if kind is codes.CATEGORY and value in OTHER_CATEGORIES
    ]
    return CharacterSet(
        frozenset(characters),
        tuple((chr(first), chr(last)) for first, last in ranges),
        tuple(complements),
        is_negated,
        ignores_case,
    )


class PlaceSet(dict[str, "PlaceSet"]):
    """The places that a name may have led to, and by character the set that comes next.

    `before` stands for the character in front, where assertions ask for it.
    """

    __slots__ = ("before", "is_end", "pattern", "places", "reached")

    def __init__(self, pattern: NamePattern, places: frozenset[int], before: str) -> None:
        self.pattern = pattern
        self.places = places
        self.before = before
        self.is_end: bool | None = None
        self.reached: list[int] | None = None
        """From these places without a character, where no assertion asks for the next one."""

    def __missing__(self, character: str) -> PlaceSet:
        following = self[character] = self.pattern.following(self, character)
        return following


class NamePattern:
    """A regular expression that matches whole names, in time that grows with their length only."""

    def __init__(self, text: str) -> None:
        self.pattern = text
        self._automaton = Automaton(text)
        self._kept_steps = 0
        self._sets: dict[tuple[frozenset[int], str], PlaceSet] = {}

    def fullmatch(self, name: str) -> bool:
        """Whether the expression matches the name as a whole.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION where that takes more steps than a search may.
        """
        return self.matching([name]) == [name]

    def matching(self, names: Iterable[str]) -> list[str]:
        """The names that the expression matches, by one search; raises as `fullmatch`."""
        if self._kept_steps > MAX_KEPT_STEPS:
            self._sets.clear()
            self._kept_steps = 0
        self._steps_left = MAX_STEPS
        start = self._set(frozenset([self._automaton.start]), "")
        found = []
        for name in names:
            current = start
            for character in name:
                current = current[character]
            if self._ends(current):
                found.append(name)
        return found

    def following(self, current: PlaceSet, character: str) -> PlaceSet:
        """The places after one more character."""
        automaton = self._automaton
        reached = self._reached(current, character)
        places: set[int] = set()
        cost = len(reached)
        for place in reached:
            takes = automaton.takes[place]
            if isinstance(takes, CharacterSet):
                cost += len(takes.ranges)
                if takes.accepts(character):
                    places.add(automaton.next[place][0])
        self._spend(cost)
        return self._set(frozenset(places), before(character) if automaton.has_assertions else "")

    def _set(self, places: frozenset[int], before: str) -> PlaceSet:
        key = (places, before)
        found = self._sets.get(key)
        if found is None:
            found = self._sets[key] = PlaceSet(self, places, before)
        return found

    def _ends(self, current: PlaceSet) -> bool:
        if current.is_end is None:
            current.is_end = self._automaton.end in self._reached(current, "")
        return current.is_end

    def _reached(self, current: PlaceSet, after: str) -> list[int]:
        if current.reached is not None:
            return current.reached
        reached, steps = self._automaton.reachable(current.places, current.before, after)
        self._spend(steps + 1)
        if not self._automaton.has_assertions:
            current.reached = reached
        return reached

    def _spend(self, steps: int) -> None:
        self._kept_steps += steps
        self._steps_left -= steps
        if self._steps_left < 0:
            raise invalid_regex(self.pattern, "it takes too long to match")


def before(character: str) -> str:
    """One that is the same to all assertions about what comes after it."""
    if character == "\n":
        return character
    return "a" if character in WORD else "-"


def invalid_regex(text: str, why: object) -> KafkaError:
    """The error of an expression that is malformed or refused."""
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex {text[:100]!r} is not a valid regular expression: {why}",
    )


@lru_cache(maxsize=64)
def compile_regex(text: str) -> NamePattern:
    """The compiled expression; INVALID_REGULAR_EXPRESSION if it is malformed or refused."""
    try:
        if len(text) > MAX_LENGTH:
            raise _RefusedError(f"it is longer than {MAX_LENGTH} characters")
        return NamePattern(text)
    except (re.error, _RefusedError, RecursionError, OverflowError) as error:
        raise invalid_regex(text, error) from None


def matching_topics(text: str, topics: ClusterTopics) -> frozenset[str]:
    """The names of the topics that the expression matches as a whole."""
    names = [topic.name for topic in topics.topics()]
    return frozenset(compile_regex(text).matching(names))


# Keeps what a group knows of its topics up to date with the cluster.


def refresh_topics(
    changes: GroupChanges, topics: ClusterTopics, now_ms: int, *, asks_rights: bool
) -> bool:
    """Look up the subscribed topics again; True if the group needs a new assignment.

    Topics that come, go, or get partitions change `version`, which each heartbeat compares.
    """
    group = changes.group
    _refresh_regexes(changes, topics, now_ms, asks_rights)
    group.seen_topics_version = topics.version
    group.subscribed_topics = group.compute_subscribed_topics()
    found = look_up(topics, group.subscribed_topics)
    if found == group.topics:
        return False
    changes.set_topics(found)
    return True


def _refresh_regexes(
    changes: GroupChanges, topics: ClusterTopics, now_ms: int, asks_rights: bool
) -> None:
    """Match the members' expressions: new ones, or all if topics or what is seen may differ."""
    group = changes.group
    has_changed = group.seen_topics_version != topics.version
    used = {member.details.topic_regex for member in group.members.values()} - {""}
    for regex in [regex for regex in group.regexes if regex not in used]:
        changes.drop_regex(regex)
    for regex in sorted(used):
        if regex in group.regexes and not has_changed and not asks_rights:
            continue
        names = _names_in_sight(group, regex, topics, asks_rights)
        if group.regexes.get(regex) != names:
            changes.set_regex(regex, names, topics.version, now_ms)


def _names_in_sight(
    group: ConsumerGroup, regex: str, topics: ClusterTopics, asks_rights: bool
) -> frozenset[str]:
    """The topics that the expression matches, and that all members with it may see.

    Where no member has said since this broker coordinates the group who it is, no topic is added.
    """
    known = group.regexes.get(regex, frozenset())
    try:
        names = matching_topics(regex, topics)
    except KafkaError as error:  # new topics have made it harder than it was when it was taken
        logger.warning("Group %s keeps the topics it has: %s", group.group_id, error)
        return known
    users = [each for each in group.members.values() if each.details.topic_regex == regex]
    sights = [each.in_sight for each in users if each.in_sight is not None]
    if asks_rights and not sights:
        return names & known
    return frozenset(name for name in names if all(in_sight(name) for in_sight in sights))


ConfigOfGroup = Callable[[str], ConsumerGroupConfig]


class ConsumerRebalancer(GroupRebalancer[ConsumerGroup]):
    """Applies joins, heartbeats, leaves and time limits to a group."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        config_of: ConfigOfGroup,
        manager: GroupMetadataManager,
        topics: ClusterTopics,
    ) -> None:
        self.config_of = config_of
        self.topics = topics
        self._config = config
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._random = runtime.random
        self._manager = manager
        self._sessions: MemberSessions[ConsumerGroup, ConsumerMember] = MemberSessions(
            runtime, self._on_session_expired
        )

    def resume(self, group: ConsumerGroup) -> None:
        """The group was read from the log: start the time limits of its members again."""
        for member in group.members.values():
            self.keep_alive(group, member)
            if has_unrevoked(member) and not member.is_classic:
                self._expect_revocation(group, member)

    def abandon(self, group: ConsumerGroup, error: ErrorCode) -> None:
        """Make the group Dead: this broker no longer coordinates it."""
        group.die(self._clock.now_ms())
        group.writes.abandon(error)

    def check_room(self, member_count: int) -> None:
        """GROUP_MAX_SIZE_REACHED if a group of so many members cannot have one more."""
        limit = self._config.group_consumer_max_size
        if member_count >= limit:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def new_member(self, member_id: str, details: MemberDetails) -> ConsumerMember:
        """A member that is in no group yet; one without an id gets one."""
        return ConsumerMember(member_id or self.new_member_id(), details)

    def new_member_id(self) -> str:
        """A new unique member id."""
        return str(UUID(int=self._random.getrandbits(128), version=4))

    def keep_alive(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Restart the member's session, with the group's timeout or a classic member's own."""
        classic = member.details.classic
        member.session_timeout_ms = (
            self.config_of(group.group_id).consumer_session_timeout_ms
            if classic is None
            else classic.session_timeout_ms
        )
        self._sessions.restart(group, member)

    def advance(self, changes: GroupChanges) -> None:
        """Begin a new epoch, with a target assignment, if something calls for that."""
        group = changes.group
        if changes.needs_assignment or group.seen_topics_version != self.topics.version:
            changes.needs_assignment |= self._refresh_topics(changes)
        if changes.needs_assignment:
            changes.bump_epoch()
        if group.group_epoch > group.assignment_epoch:
            assign_partitions(changes, self._config.group_consumer_assignors[0])

    def reconcile(
        self, changes: GroupChanges, member: ConsumerMember, owned: Assignment | None
    ) -> None:
        """The member's next step to its target; `owned` is what it says that it has."""
        group = changes.group
        following = next_assignment(
            member.current,
            group.target[member.member_id],
            group.assignment_epoch,
            lambda partition: group.is_free_for(partition, member.member_id),
            owned,
        )
        if following == member.current:
            return
        changes.set_current(member, following)
        if member.is_classic:
            return
        if has_unrevoked(member):
            self._expect_revocation(group, member)
        else:
            member.cancel_rebalance_timer()

    def notice_topics(self, group: ConsumerGroup) -> None:
        """Begin a new epoch if topics have come, gone or grown; no member waits for that."""
        if group.seen_topics_version == self.topics.version:
            return
        changes = GroupChanges(group)
        if self._refresh_topics(changes):
            changes.bump_epoch()
        self._manager.store_records(group, changes.records, _nothing_waits)

    def take_out(
        self,
        group: ConsumerGroup,
        members: Collection[ConsumerMember],
        reason: str,
        on_stored: OnStored,
    ) -> None:
        """Remove members; the others learn of it with their next heartbeats."""
        changes = GroupChanges(group)
        for member in members:
            logger.info(
                "Member %s is out of group %s: %s", member.member_id, group.group_id, reason
            )
            changes.remove_member(member)
        if members:
            self._refresh_topics(changes)
            changes.bump_epoch()
        self._manager.store_records(group, changes.records, on_stored)

    def _refresh_topics(self, changes: GroupChanges) -> bool:
        """See `refresh_topics`."""
        asks_rights = self._config.enforces_rights
        now_ms = self._clock.now_ms()
        return refresh_topics(changes, self.topics, now_ms, asks_rights=asks_rights)

    def expect(self, group: ConsumerGroup, member: ConsumerMember, action: str) -> None:
        """Remove the member unless it does `action` within its rebalance timeout."""
        member.cancel_rebalance_timer()

        def on_timeout() -> None:
            member.rebalance_timer = None
            if group.members.get(member.member_id) is member:
                self.take_out(group, [member], f"it did not {action} in time", _nothing_waits)

        member.rebalance_timer = self._scheduler.call_later(
            member.details.rebalance_timeout_ms, on_timeout
        )

    def _expect_revocation(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self.expect(group, member, "revoke its partitions")

    def _on_session_expired(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self.take_out(group, [member], "its session has expired", _nothing_waits)


def _nothing_waits(error: ErrorCode) -> None:
    """No request waits for this write; if it fails, the next change repeats it."""
