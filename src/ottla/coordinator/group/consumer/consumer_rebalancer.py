"""Carries the members of a consumer group to their targets, whichever protocol they speak.

A change of members, subscriptions or topics brings a new group epoch and a target assignment, by
one of the assignors `range` and `uniform`. Each member then moves towards its target on its own
(`next_assignment`), with each heartbeat or JoinGroup.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import closing
from functools import lru_cache
from re import _constants as codes  # type: ignore[attr-defined]  # no public module shows how
from re import _parser as parser  # type: ignore[attr-defined]  # Python parses an expression
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from ottla.config.broker_config import BrokerConfig
from ottla.config.coordinator_config import ConsumerGroupConfig
from ottla.coordinator.group.consumer.assignors import (
    ASSIGNORS,
    SLICE_STEPS,
    GroupSpec,
    MemberSpec,
    SlicePace,
)
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
    current_assignment_value,
    look_up,
)
from ottla.coordinator.group.deletion import OnStored
from ottla.coordinator.group.group import GroupRebalancer
from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager
from ottla.coordinator.group.rebalancer import MemberSessions
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime import Runtime
from ottla.runtime.scheduler import Work

T = TypeVar("T")


logger = logging.getLogger(__name__)


# Makes the target assignment of a group epoch.


def assign_partitions(changes: GroupChanges, default_assignor: str) -> Work[None]:
    """Give every partition of the group's topics a member, for the present group epoch.

    In a pause the group may change, and have a later epoch. Its targets are then those of this
    epoch, those of newer members are empty, and the next assignment is for the later one.
    """
    group, pace = changes.group, SlicePace()
    epoch = group.group_epoch
    assign = ASSIGNORS[group.preferred_assignor(default_assignor)]
    spec = yield from group_spec(group)
    targets = yield from assign(spec)
    for member_id, target in targets.items():
        if target != group.target.get(member_id, target):
            changes.set_target(member_id, target)
            if pace.is_over(len(target)):
                yield
    if group.assignment_epoch < epoch <= group.group_epoch:
        changes.set_assignment_epoch(epoch)


def group_spec(group: ConsumerGroup) -> Work[GroupSpec]:
    """The group as an assignor sees it; members that come meanwhile may be in it or not."""
    pace = SlicePace()
    topics = group.topics
    read: dict[tuple[tuple[str, ...], str], frozenset[UUID]] = {}
    members = {}
    for member_id, member in list(group.members.items()):
        subscription = member.details.topic_names, member.details.topic_regex
        topic_ids = read.get(subscription)
        if topic_ids is None:
            names = group.topics_of(member)
            topic_ids = frozenset(topics[name].topic_id for name in names if name in topics)
            read[subscription] = topic_ids
        members[member_id] = MemberSpec(
            topic_ids,
            group.target.get(member_id, NO_PARTITIONS),
            member.details.instance_id,
        )
        if pace.is_over(1 + len(member.details.topic_names)):
            yield
    counts = {topic.topic_id: topic.partition_count for topic in topics.values()}
    return GroupSpec(members, counts)


# How a member gets from its current assignment to its target, step by step.
#
# First it gives up the partitions that its target lacks, and keeps its epoch until it has confirmed
# that. Then it moves to the epoch of the target, with those partitions that no other member owns;
# the others follow when their owners have given them up. So a partition never has two owners.


def next_assignment(
    current: CurrentAssignment,
    target: Assignment,
    target_epoch: int,
    free_of: Callable[[Assignment], Assignment],
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
    free = free_of(target - kept)
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
    epochs = dict.fromkeys(partitions, epoch)
    for partition, since in current.assignment_epochs.items():
        if partition in epochs:
            epochs[partition] = since
    return epochs


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
MAX_KEPT_NAMES: Final = 200_000
"""Of the topics that all remembered expressions match."""
STEPS_OF_SEARCH: Final = 200
"""What the search for an expression among many topics is worth, at least."""
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


MANY_PARTITIONS: Final = 500
"""A member that is to have so many is told in slices."""


class TopicMatches:
    """The topics that expressions match, remembered until topics come, go, or get partitions."""

    def __init__(self, topics: ClusterTopics) -> None:
        self._topics = topics
        self._version: int | None = None
        self._names: list[str] = []
        self._found: dict[str, frozenset[str]] = {}
        self._kept = 0

    def matching(self, text: str) -> Work[frozenset[str]]:
        """The names of the topics that the expression matches as a whole.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION where the search takes more steps than it may.
        """
        if self._version != self._topics.version:
            self._version = self._topics.version
            self._names = [topic.name for topic in self._topics.topics()]
            self._forget()
        found = self._found.get(text)
        if found is not None:
            return found
        names, matched = self._names, []
        for first in range(0, len(names), SLICE_STEPS):
            if first:
                yield
            matched += compile_regex(text).matching(names[first : first + SLICE_STEPS])
        found = frozenset(matched)
        if names is self._names:
            self._keep(text, found)
        return found

    def _keep(self, text: str, found: frozenset[str]) -> None:
        self._kept += 1 + len(found)
        if self._kept > MAX_KEPT_NAMES:
            self._forget()
            self._kept = 1 + len(found)
        self._found[text] = found

    def _forget(self) -> None:
        self._found.clear()
        self._kept = 0


# Keeps what a group knows of its topics up to date with the cluster.


def refresh_topics(
    changes: GroupChanges,
    topics: ClusterTopics,
    matches: TopicMatches,
    now_ms: int,
    *,
    asks_rights: bool,
) -> Work[bool]:
    """Look up the subscribed topics again; True if the group needs a new assignment.

    Topics that come, go, or get partitions change `version`, which each heartbeat compares.
    """
    group, version = changes.group, topics.version
    has_changed = group.seen_topics_version != version
    pace = SlicePace()
    for regex in group.used_regexes:
        if has_changed or asks_rights or regex not in group.regexes:
            names = yield from _names_in_sight(group, regex, matches, asks_rights)
            if group.regexes.get(regex) != names:
                changes.set_regex(regex, names, version, now_ms)
            if pace.is_over(STEPS_OF_SEARCH + len(names) + len(group.members)):
                yield
    drop_unused_regexes(changes)
    subscribed = group.compute_subscribed_topics()
    if not has_changed and subscribed == group.subscribed_topics:
        return False
    group.seen_topics_version = version
    group.subscribed_topics = subscribed
    found = look_up(topics, subscribed)
    if found == group.topics:
        return False
    changes.set_topics(found)
    return True


def drop_unused_regexes(changes: GroupChanges) -> None:
    """Forget the expressions that no member has now."""
    used = frozenset(changes.group.used_regexes)
    for regex in [regex for regex in changes.group.regexes if regex not in used]:
        changes.drop_regex(regex)


def drop_unused_topics(changes: GroupChanges) -> None:
    """Members have left: forget the topics that only they have read."""
    group = changes.group
    drop_unused_regexes(changes)
    subscribed = group.compute_subscribed_topics()
    if subscribed != group.subscribed_topics:
        group.subscribed_topics = subscribed
        changes.set_topics(
            {name: group.topics[name] for name in group.topics if name in subscribed}
        )


def _names_in_sight(
    group: ConsumerGroup, regex: str, matches: TopicMatches, asks_rights: bool
) -> Work[frozenset[str]]:
    """The topics that the expression matches, and that all members with it may see.

    Where no member has said since this broker coordinates the group who it is, no topic is added.
    """
    known = group.regexes.get(regex, frozenset())
    try:
        names = yield from matches.matching(regex)
    except KafkaError as error:  # new topics have made it harder than it was when it was taken
        logger.warning("Group %s keeps the topics it has: %s", group.group_id, error)
        return known
    if not asks_rights:
        return names
    users = [each for each in group.members.values() if each.details.topic_regex == regex]
    # Most members of a group are of one principal, and see the same.
    sights = dict.fromkeys(each.in_sight for each in users if each.in_sight is not None)
    if not sights:
        return names & known
    return (yield from _seen(names, sights))


def _seen(names: frozenset[str], sights: Iterable[Callable[[str], bool]]) -> Work[frozenset[str]]:
    """Those of the names that are in all these sights."""
    pace = SlicePace()
    for in_sight in sights:
        seen = set()
        for name in names:
            if in_sight(name):
                seen.add(name)
            if pace.is_over(1):
                yield
        names = frozenset(seen)
    return names


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
        self.matches = TopicMatches(topics)
        self._config = config
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._random = runtime.random
        self._manager = manager
        self._slices = runtime.slices
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

    def advance(self, changes: GroupChanges, member: ConsumerMember) -> Work[None]:
        """Begin a new epoch, with a target assignment, if something calls for that.

        The work pauses where the group is large, and waits where it is done already for another
        member, who may have come a little sooner. The caller tries again what this member began.
        """
        group = changes.group
        if changes.needs_assignment:
            changes.bump_epoch()
        epoch = group.group_epoch
        is_outdated = group.seen_topics_version != self.topics.version
        while is_outdated or group.assignment_epoch < min(epoch, group.group_epoch):
            if group.is_advancing:
                yield from self._in_slices(changes, _pause(), member)
                continue
            is_outdated = False
            group.is_advancing = True
            try:
                yield from self._in_slices(changes, self._advance(changes), member)
            finally:
                group.is_advancing = False

    def _advance(self, changes: GroupChanges) -> Work[None]:
        group = changes.group
        has_changed = yield from self._refresh_topics(changes)
        if has_changed and group.group_epoch == group.assignment_epoch:
            changes.bump_epoch()
        if group.group_epoch > group.assignment_epoch:
            yield from assign_partitions(changes, self._config.group_consumer_assignors[0])

    def _in_slices(
        self, changes: GroupChanges, work: Work[T], member: ConsumerMember | None
    ) -> Work[T]:
        """Do work in whose pauses others change the group: what it has changed is stored before.

        So the log always has the changes in the order in which memory has them.
        """
        group = changes.group
        with closing(work):
            while True:
                try:
                    next(work)
                except StopIteration as end:
                    result: T = end.value
                    return result
                self._store_so_far(changes)
                yield
                self._check_present(group, member)

    def _check_present(self, group: ConsumerGroup, member: ConsumerMember | None) -> None:
        """Whether group and member are still there, after a pause."""
        if group.is_dead:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "The group is no longer here.")
        is_here = self._manager.group(group.group_id) is group
        if member is not None:
            is_here &= group.members.get(member.member_id) is member
        if not is_here:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "The member has been taken out.")

    def _store_so_far(self, changes: GroupChanges) -> None:
        if changes.records:
            self._manager.store_records(changes.group, changes.records, _nothing_waits)
            changes.records = {}

    def reconcile(
        self, changes: GroupChanges, member: ConsumerMember, owned: Assignment | None
    ) -> Work[None]:
        """The member's next step to its target; `owned` is what it says that it has.

        A step of many partitions is made ready in slices, and once more if it is another one after
        the pauses.
        """
        group, record = changes.group, None
        following = self._following(group, member, owned)
        while record is None and is_large(following) and following != member.current:
            work = _record_of(following)
            record = yield from self._in_slices(changes, work, member)
            planned, following = following, self._following(group, member, owned)
            if following != planned:
                record = None
        if following == member.current:
            return
        changes.set_current(member, following, record)
        if member.is_classic:
            return
        if has_unrevoked(member):
            self._expect_revocation(group, member)
        else:
            member.cancel_rebalance_timer()

    def _following(
        self, group: ConsumerGroup, member: ConsumerMember, owned: Assignment | None
    ) -> CurrentAssignment:
        return next_assignment(
            member.current,
            group.target[member.member_id],
            group.assignment_epoch,
            lambda partitions: group.free_for(partitions, member.member_id),
            owned,
        )

    def notice_topics(self, group: ConsumerGroup) -> None:
        """Begin a new epoch if topics have come, gone or grown; no member waits for that."""
        if group.seen_topics_version != self.topics.version and not group.is_advancing:
            self.do(self._notice_topics(GroupChanges(group)), lambda error: None)

    def _notice_topics(self, changes: GroupChanges) -> Work[None]:
        changes.group.is_advancing = True
        try:
            work = self._refresh_topics(changes)
            if (yield from self._in_slices(changes, work, None)):
                changes.bump_epoch()
        finally:
            changes.group.is_advancing = False
        self._manager.store_records(changes.group, changes.records, _nothing_waits)

    def do(self, work: Work[None], refuse: Callable[[KafkaError], object]) -> None:
        """Do the work of a request at once, or in slices where it pauses."""
        try:
            rest = self._slices.begin(work)
        except KafkaError as error:
            refuse(error)
            return
        if rest is not None:
            self._scheduler.spawn(_finish(rest, refuse), "a change of a large consumer group")

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
            drop_unused_topics(changes)
            changes.bump_epoch()
        self._manager.store_records(group, changes.records, on_stored)

    def _refresh_topics(self, changes: GroupChanges) -> Work[bool]:
        """See `refresh_topics`."""
        return refresh_topics(
            changes,
            self.topics,
            self.matches,
            self._clock.now_ms(),
            asks_rights=self._config.enforces_rights,
        )

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


async def _finish(rest: Coroutine[Any, Any, None], refuse: Callable[[KafkaError], object]) -> None:
    try:
        await rest
    except KafkaError as error:
        refuse(error)
    except Exception:
        refuse(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The broker has failed."))
        raise


def _pause() -> Work[None]:
    yield


def is_large(current: CurrentAssignment) -> bool:
    """Whether it takes long to tell a member of it."""
    return len(current.owned) >= MANY_PARTITIONS


def _record_of(current: CurrentAssignment) -> Work[bytes]:
    yield
    record = current_assignment_value(current)
    yield
    return record


def _nothing_waits(error: ErrorCode) -> None:
    """No request waits for this write; if it fails, the next change repeats it."""
