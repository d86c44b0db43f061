"""Looks at all groups again and again, and keeps their lag in a `LagHistory`.

One collector runs in a process, however many browsers look. It times its own requests, and looks
so much less often that the brokers spend at most 1 % of their time on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Final

from ottla.clients.admin.admin_client import BulkError
from ottla.console.group_look import known_ends, lag_of
from ottla.console.lag_history import LOOK_MS, MOST_SERIES, LagHistory, Recent
from ottla.console.membership_log import MembershipLog, MembershipLook
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.scheduler import pause
from ottla.structs import NO_UUID, OFFSETS_TOPIC, NamedTuple, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.clients.admin.descriptions import GroupListing
    from ottla.clients.metadata import Cluster
    from ottla.console.console_cluster import ConsoleCluster
    from ottla.console.group_look import Committed
    from ottla.console.lag_causes import Rebalance

logger = logging.getLogger(__name__)

LIST_MS: Final = 10_000
GROUPS_A_LOOK: Final = 2_000
"""Where there are more groups, each look is at a part, so that six looks are at all."""
ROUNDS: Final = 6
RECORDED_AT_ONCE: Final = 50
DESCRIBED: Final = 20
"""The groups with most lag whose members are noted, to see rebalances."""


class GroupLag(NamedTuple):
    """A group as the last look has seen it; lag by topic."""

    group: str
    state: str
    type: str
    protocol: str
    lag: Mapping[str, int]
    seconds: float
    """The time for which the oldest unread record has waited, at least."""
    is_at_least: bool
    """Whether the record is older than the history, so that its time is not known."""
    looked_ms: int
    unknown: int = 0
    """The partitions with offsets whose log end was never known: they are not in the lag."""

    @property
    def total(self) -> int:
        """The lag of all topics together."""
        return sum(self.lag.values())


class LagCollector:
    """The looks at all groups; it lives on the loop of its cluster."""

    def __init__(self, cluster: ConsoleCluster) -> None:
        self.history = LagHistory()
        self.groups: dict[str, GroupLag] = {}
        """The groups by id, as far as they have been looked at."""
        self.looked_ms = 0
        """When the last look ended; 0 before the first one."""
        self.failure: KafkaError | None = None
        """Why the newest look has failed; then the groups are as of `looked_ms`."""
        self._cluster = cluster
        self._listed: dict[str, GroupListing] = {}
        self._listed_ms: int | None = None
        self._next = 0
        self._ends: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, UUID] = {}
        self._former: dict[tuple[str, TopicPartition], int] = {}
        self._members: Recent[str, MembershipLog] = Recent(MOST_SERIES)

    async def run(self) -> None:
        """Look until it is cancelled; a look that fails is logged and tried again."""
        runtime = self._cluster.runtime
        while True:
            began_ms = runtime.clock.monotonic_ms()
            took_ms = 0
            try:
                await self.look()
                took_ms = runtime.clock.monotonic_ms() - began_ms
                self.failure = None
            except KafkaError as error:
                self.failure = error
                logger.info("groups could not be looked at: %s", error.message)
            await pause(runtime.scheduler, self._cluster.pause_ms(took_ms, LOOK_MS))

    async def look(self) -> None:
        """One look: groups every 10 s, their offsets, and the ends of the logs that they read."""
        clock = self._cluster.runtime.clock
        is_listing = self._listed_ms is None or clock.monotonic_ms() - self._listed_ms >= LIST_MS
        if is_listing:
            await self._list()
        await self._look_at(self._part())
        if is_listing:
            await self._note_members(self.looked_ms)

    async def look_at_all(self) -> dict[str, KafkaError]:
        """One look at all groups, however many they are; the errors of what does not answer.

        That is a broker, or the coordinator of a group; KafkaError where no broker answers.
        """
        silent: dict[str, KafkaError] = {}
        try:
            await self._list()
        except BulkError as error:
            lists = {k: each for k, each in error.results.items() if isinstance(each, list)}
            if not lists:
                raise
            self._keep(group for each in lists.values() for group in each)
            silent = {f"broker {k}": error.results[k] for k in error.results.keys() - lists}
        silent |= await self._look_at(sorted(self._listed))
        return silent | without_coordinator(await self._cluster.snapshot())

    async def _look_at(self, asked: Sequence[str]) -> dict[str, KafkaError]:
        """The offsets of groups, and the ends of the logs that they read; the errors of others."""
        found = await self._cluster.offsets.list_groups_offsets(asked) if asked else {}
        committed = {group: each for group, each in found.items() if isinstance(each, dict)}
        known = await self._cluster.snapshot()
        self._notice_recreated(known, committed)
        ends = await self._find_ends(known, {p for offsets in committed.values() for p in offsets})
        now_ms = self._cluster.runtime.clock.now_ms()
        self.history.record_ends(now_ms, ends)
        came = self._new_records(ends)
        for number, (group, offsets) in enumerate(committed.items()):
            if group in self._listed:  # another look may have missed it meanwhile
                self._record(now_ms, group, self._lags(known, group, offsets), offsets, came)
                self._count_unknown(known, group, offsets)
            if number % RECORDED_AT_ONCE == RECORDED_AT_ONCE - 1:
                await asyncio.sleep(0)  # pages are not kept waiting for all of them
        self.looked_ms = now_ms
        return {f"group '{k}'": e for k, e in found.items() if isinstance(e, KafkaError)}

    def rebalances(self, group: str, since_ms: int) -> list[Rebalance]:
        """The rebalances of a group that were seen since a moment."""
        log = self._members.get(group)
        return [] if log is None else log.since(since_ms)

    def note_membership(self, time_ms: int, group: str, membership: MembershipLook) -> None:
        """Note the members of a group that was looked at for a page."""
        log = self._members.touch(group, MembershipLog, time_ms)
        if log is not None:
            log.note(time_ms, membership)

    def is_former(self, group: str, partition: TopicPartition, offset: int) -> bool:
        """Whether an offset was committed to a topic that was deleted and made again since."""
        return self._former.get((group, partition)) == offset

    async def _list(self) -> None:
        self._keep(await self._cluster.groups.list_groups([]))

    def _keep(self, listed: Iterable[GroupListing]) -> None:
        """These are the groups; others are forgotten."""
        self._listed = {each.group_id: each for each in listed}
        self._listed_ms = self._cluster.runtime.clock.monotonic_ms()
        self.groups = {name: each for name, each in self.groups.items() if name in self._listed}
        self._former = {key: at for key, at in self._former.items() if key[0] in self._listed}

    def _part(self) -> list[str]:
        """The groups of this look: all of them, or the next part of very many."""
        names = sorted(self._listed)
        if len(names) <= GROUPS_A_LOOK:
            return names
        size = ceil(len(names) / ROUNDS)
        first = self._next % len(names)
        self._next = first + size
        return (names + names)[first : first + size]

    def _notice_recreated(self, known: Cluster, committed: Mapping[str, Committed]) -> None:
        """Forget topics whose id has changed, and remember the offsets that are of before."""
        for name, topic in known.topics.items():
            before = self._topic_ids.get(name, topic.topic_id)
            if NO_UUID not in (before, topic.topic_id) and before != topic.topic_id:
                self.history.forget_topic(name)
                self._ends = {p: end for p, end in self._ends.items() if p.topic != name}
                for group, offsets in committed.items():
                    self._former |= {
                        (group, p): each.offset for p, each in offsets.items() if p.topic == name
                    }
        self._topic_ids = {name: topic.topic_id for name, topic in known.topics.items()}
        self._ends = {p: end for p, end in self._ends.items() if p.topic in known.topics}

    async def _find_ends(
        self, known: Cluster, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The log ends of the partitions that have a leader."""
        led = sorted(each for each in partitions if known.leader(each) in known.nodes)
        return await known_ends(self._cluster, led)

    def _new_records(self, ends: Mapping[TopicPartition, int]) -> dict[str, int]:
        """The records that have come into each topic since the last look, if there was one."""
        came: dict[str, int] = {}
        for partition in ends.keys() & self._ends.keys():
            new = max(0, ends[partition] - self._ends[partition])
            came[partition.topic] = came.get(partition.topic, 0) + new
        self._ends |= ends
        return came

    def _lags(self, known: Cluster, group: str, offsets: Committed) -> dict[TopicPartition, int]:
        """The lag of each partition of a group, where it is known, and is any."""
        found = {
            partition: lag_of(each, self._ends.get(partition), known.leader_epoch(partition))
            for partition, each in offsets.items()
            if not self.is_former(group, partition, each.offset)
        }
        return {partition: lag for partition, lag in found.items() if lag is not None}

    def _record(
        self,
        now_ms: int,
        group: str,
        lags: Mapping[TopicPartition, int],
        offsets: Committed,
        came: Mapping[str, int],
    ) -> None:
        """Add a look at a group to the history, and keep it as the newest one."""
        valid = {partition: offsets[partition].offset for partition in lags}
        self.history.record_commits(now_ms, group, valid)
        of_topics: dict[str, int] = {}
        for partition, lag in lags.items():
            of_topics[partition.topic] = of_topics.get(partition.topic, 0) + lag
        for topic, lag in of_topics.items():
            self.history.record_lag(now_ms, group, topic, lag, came.get(topic))
        waits = [self.history.wait(each, valid[each], now_ms) for each, lag in lags.items() if lag]
        seconds = max((each.seconds for each in waits), default=0.0)
        is_at_least = any(each.is_at_least for each in waits)
        listed = self._listed[group]
        self.groups[group] = GroupLag(
            group,
            listed.state,
            listed.type,
            listed.protocol_type,
            of_topics,
            seconds,
            is_at_least,
            now_ms,
        )

    def _count_unknown(self, known: Cluster, group: str, offsets: Committed) -> None:
        """Count the partitions that no leader has answered for yet."""
        unasked = (each for each in offsets if each not in self._ends)
        unknown = sum(known.partition(each) is not None for each in unasked)
        self.groups[group] = self.groups[group]._replace(unknown=unknown)

    async def _note_members(self, now_ms: int) -> None:
        """Look at the members of the groups with most lag."""
        most = sorted(self.groups.values(), key=lambda each: -each.total)[:DESCRIBED]
        names: Sequence[str] = [each.group for each in most if each.total]
        described = await self._cluster.groups.describe_groups(names) if names else {}
        for name, group in described.items():
            if not isinstance(group, KafkaError):
                members = {each.member_id: each.client_id for each in group.members}
                self.note_membership(
                    now_ms, name, MembershipLook(group.state, members, group.group_epoch)
                )


def without_coordinator(known: Cluster) -> dict[str, KafkaError]:
    """The error of the groups that no broker lists, as theirs has no leader."""
    topic = known.topics.get(OFFSETS_TOPIC)
    numbers = sorted(topic.partitions.keys() - {*topic.available}) if topic is not None else []
    if not numbers:
        return {}
    what = f"the groups of partitions {', '.join(map(str, numbers))} of {OFFSETS_TOPIC}"
    return {what: KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "they have no leader")}
