"""Lag for a program that blocks, such as a command: the console's looks at groups, one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.clients.client_settings import ClosedOnExit
from ottla.console.console_cluster import ConsoleCluster
from ottla.console.console_settings import ConsoleSettings
from ottla.console.group_look import GroupLook, look_at, observations
from ottla.console.lag_causes import Cause, Observations, explain
from ottla.console.lag_collector import GroupLag, LagCollector
from ottla.console.lag_evidence import seconds_waited, with_evidence
from ottla.console.membership_log import MembershipLog
from ottla.errors import KafkaError
from ottla.runtime.io_thread import MARGIN_MS, IoThread
from ottla.structs import NamedTuple, TopicPartition

LIMIT_MS = 60_000


class Explanation(NamedTuple):
    """What was seen of a group, and the causes of its lag, the leading one first."""

    seen: Observations
    causes: list[Cause]


class AllLags(NamedTuple):
    """The lag of groups, and the errors of the brokers and groups that it is not known of."""

    groups: list[GroupLag]
    unknown: Mapping[str, KafkaError]


class LagReader(ClosedOnExit):
    """Reads the lag of groups; it joins none of them, and creates nothing."""

    def __init__(self, bootstrap_servers: str, settings: Mapping[str, str]) -> None:
        """Settings are those of clients, by Kafka's names."""
        self._settings = ConsoleSettings(bootstrap_servers, settings)
        self._io = IoThread("lag")
        self._cluster = self._io.begin_with(self._connect())

    def groups(self) -> AllLags:
        """All groups that have committed offsets, those with most lag first."""
        return self._io.run(self._groups(), LIMIT_MS + MARGIN_MS)

    def group_ids(self) -> list[str]:
        """The ids of all groups."""
        listed = self._io.run(self._cluster.groups.list_groups([]), LIMIT_MS + MARGIN_MS)
        return [each.group_id for each in listed]

    def look(self, group_id: str) -> GroupLook:
        """One look at a group, with new metadata; a group that does not exist is Dead."""
        return self._io.run(self._look(group_id), LIMIT_MS + MARGIN_MS)

    def seconds(self, look: GroupLook) -> dict[TopicPartition, float | None]:
        """The time for which each partition's next record has waited, by its timestamp."""
        waited = seconds_waited(self._cluster, look, {})
        return self._io.run(waited, LIMIT_MS + MARGIN_MS)

    def explain(self, looks: Sequence[GroupLook]) -> Explanation:
        """The causes of a group's lag, by several looks at it, the oldest first."""
        members = MembershipLog()
        for look in looks:
            members.note(look.time_ms, look.membership)
        seen = observations(looks, members.since(looks[0].time_ms))
        seen = self._io.run(with_evidence(self._cluster, seen), LIMIT_MS + MARGIN_MS)
        return Explanation(seen, explain(seen))

    def close(self) -> None:
        """Close the connections and end the I/O thread. Closing twice does nothing."""
        self._io.close(self._cluster.close)

    async def _connect(self) -> ConsoleCluster:
        return ConsoleCluster(self._io.runtime, self._settings)

    async def _groups(self) -> AllLags:
        collector = LagCollector(self._cluster)
        unknown = await collector.look_at_all()
        found = sorted(collector.groups.values(), key=lambda each: (-each.total, each.group))
        return AllLags(found, unknown)

    async def _look(self, group_id: str) -> GroupLook:
        await self._cluster.changed()
        return await look_at(self._cluster, group_id)
