"""A crowd in one group: members of both protocols come, go and change at the same moments.

Work that is done in slices pauses all the time here, and pauses are long enough for others to come:
two members join in one pause, or leave or read something else while a rebalance is made; instances
are replaced, topics come and go. The coordinator's memory is looked at meanwhile (`group_rules`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from ottla.clients.admin.admin_client import AdminClient
from ottla.clients.admin.groups import GroupAdmin
from ottla.clients.admin.offsets import OffsetAdmin
from ottla.config.client_config import CONSUMER_PROTOCOL, AdminConfig
from ottla.coordinator.group.classic_group import ClassicGroup
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.errors import KafkaError
from ottla.protocol.consumer_group import LEAVE_EPOCH, ConsumerGroupHeartbeatRequest
from ottla.protocol.group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.message import Request
from ottla.structs import TopicPartition
from ottla.testing.simulation.administrator import API_TIMEOUT_MS, Administrator
from ottla.testing.simulation.group_ledger import GROUP, GroupReader
from ottla.testing.simulation.group_rules import broken_rules, groups_of
from ottla.testing.simulation.group_story import CLASSIC, GroupStory
from ottla.testing.simulation.operations_story import MAX_PASSING_MS
from ottla.testing.simulation.story import PARTITIONS, REPLICAS, TOPIC
from ottla.testing.simulation.workload import SimulatedClient

if TYPE_CHECKING:
    from ottla.testing.simulation.cluster import SimulatedCluster
    from ottla.testing.simulation.invariants import History


CROWD: Final = 7
"""So many processes are members, and so many members fit into the group."""


class CrowdStory(GroupStory):
    """Parts of a crowd do things at once, besides the usual faults."""

    always_pauses: ClassVar[bool] = True
    trouble_ms: ClassVar[int] = 20_000
    settings: ClassVar[Mapping[str, str | int]] = {
        "group.consumer.max.size": CROWD,
        "auto.create.topics.enable": "false",
        "offsets.topic.segment.bytes": 65_536,  # the changes of a crowd may be one batch
    }

    def __init__(self, seed: int) -> None:
        self._strategies: dict[GroupReader, str] = {}
        super().__init__(seed)
        self._protocols = self.world.random.choice(PROTOCOLS)
        self._administrator = Administrator(self.cluster, "administrator", self.history)
        self._groups = GroupAdministrator(self.cluster, "group-administrator", self.history)
        self._looks = 0
        self._passing: set[str] = set()
        self._passing_count = 0

    def _begin(self) -> None:
        for topic in (TOPIC, *OTHER_TOPICS):
            self._make_topic(topic)
        self._start_writer("writer0", interval_ms=600)
        chance = self.nemesis.random
        self._members += [self._start_one(index, chance) for index in range(CROWD)]
        self._let_turns_take(LONG_TURNS)
        self.world.loop.add_timer(ACT_INTERVAL_MS[1], self._act)

    def _let_turns_take(self, turns: tuple[float, int]) -> None:
        assert self.world.turns is not None
        self.world.turns.share, self.world.turns.max_ms = turns

    def _start_one(
        self, index: int, chance: random.Random, strategies: str | None = None
    ) -> GroupReader:
        """Start a process of a member; half of them are instances, which keep their names."""
        protocol = CLASSIC if strategies else chance.choice(self._protocols)
        settings: dict[str, object] = {}
        if index % 2:
            settings["group_instance_id"] = f"instance{index}"
        if protocol == CLASSIC:
            settings["partition_assignment_strategy"] = strategies or COMMON_STRATEGIES
        name = f"member{index}"
        member = GroupReader(self.cluster, name, self._ledger, TOPIC, protocol, **settings)
        if strategies:
            self._strategies[member] = strategies
        member.topics = MANY_NAMES if strategies else self._some_topics(chance)
        member.process.spawn(member.run(), "read in a group")
        return member

    def _some_topics(self, chance: random.Random) -> tuple[str, ...]:
        others = [*OTHER_TOPICS, *sorted(self._passing)]
        return (TOPIC, *sorted(chance.sample(others, chance.randint(0, len(others)))))

    def _more_faults(self) -> list[Callable[[random.Random], str]]:
        return [self._pause_member]

    def _act(self) -> None:
        """Something that several members do at once, and the next one after a while."""
        if self.nemesis.is_stopped:
            return
        chance = self.nemesis.random
        acts = self._crowd, self._disagree, self._pass_topic
        act = chance.choices(acts, ACT_WEIGHTS)[0]
        self.nemesis.log.append(f"{self.world.now_ms} ms: {act(chance)}")
        self.world.loop.add_timer(chance.randint(*ACT_INTERVAL_MS), self._act)

    def _crowd(self, chance: random.Random) -> str:
        """Have some members do something, all within a moment."""
        indexes = chance.sample(range(CROWD), chance.randint(3, CROWD))
        acts = (self._kill, self._stop, self._take_over, self._read_others, self._read_others)
        act = chance.choice((None, *acts))
        for index in indexes:
            do = partial(act or chance.choice(acts), index, chance)
            self.world.loop.add_timer(chance.randint(0, MOMENT_MS), do)
        if chance.random() < SHARE_ADMINISTERED:
            delay_ms = chance.randint(0, MOMENT_MS * 2)
            self.world.loop.add_timer(delay_ms, lambda: self._groups.do_something(chance))
        return f"members {indexes} at once: {act.__name__[1:] if act else 'this and that'}"

    def _kill(self, index: int, chance: random.Random) -> None:
        self._members[index].process.kill()
        self._members[index] = self._start_one(index, chance)

    def _stop(self, index: int, chance: random.Random, strategies: str | None = None) -> None:
        self._members[index].is_told_to_stop = True
        self._members[index] = self._start_one(index, chance, strategies)

    def _take_over(self, index: int, chance: random.Random) -> None:
        """Start another process first; of an instance it takes the place."""
        before, self._members[index] = self._members[index], self._start_one(index, chance)
        delay_ms = chance.randint(*TOGETHER_MS)
        self.world.loop.add_timer(delay_ms, lambda: setattr(before, "is_told_to_stop", True))

    def _read_others(self, index: int, chance: random.Random) -> None:
        self._members[index].topics = self._some_topics(chance)

    def _disagree(self, chance: random.Random) -> str:
        """Have classic members join at once who cannot both be in the group, for a while."""
        indexes = chance.sample(range(CROWD), len(SINGLE_STRATEGIES))
        for index, strategies in zip(indexes, SINGLE_STRATEGIES, strict=True):
            self._stop(index, chance, strategies)
            delay_ms = chance.randint(*TOGETHER_MS)
            self.world.loop.add_timer(delay_ms, partial(self._stop, index, chance))
        return f"members {indexes} join at once, and have nothing in common"

    def _pass_topic(self, chance: random.Random) -> str:
        self._passing_count += 1
        topic, life_ms = f"passing{self._passing_count}", chance.randint(500, MAX_PASSING_MS)
        self._passing.add(topic)
        self._administrator.process.spawn(self._let_pass(topic, life_ms), "let it pass")
        return f"make topic {topic}, and delete it after {life_ms} ms"

    async def _let_pass(self, topic: str, life_ms: int) -> None:
        await self._administrator.make(topic, PARTITIONS, REPLICAS)
        await self._administrator.pause(life_ms)
        await self._administrator.delete(topic)
        self._passing.remove(topic)

    def _is_whole(self) -> bool:
        return not self._passing and super()._is_whole()

    def _look(self) -> None:
        super()._look()
        self._looks += 1
        if self._looks % LOOK_AT_GROUPS_EVERY == 0:
            self._start_fenced()
            for host in self.cluster.hosts:
                for group in groups_of(host):
                    self.history.violations += [
                        f"{self.world.now_ms} ms: {host.name}: group {group.group_id}: {text}"
                        for text in broken_rules(group, CROWD)
                    ]

    def _start_fenced(self) -> None:
        """Start an instance again whose former process has joined once more before it has ended."""
        for index, member in enumerate(self._members):
            if member.is_done and not member.is_told_to_stop:
                self._members[index] = self._start_one(index, self.nemesis.random)

    def _end(self) -> None:
        """All who could not be members of one classic group have others in their places."""
        self._let_turns_take(SHORT_TURNS)
        for index, member in enumerate(self._members):
            if self._strategies.get(member, COMMON_STRATEGIES) != COMMON_STRATEGIES:
                member.is_told_to_stop = True
                self._members[index] = self._start_one(index, self.nemesis.random)
        super()._end()
        if self.history.violations:
            return
        if not self._is_reached(self._has_settled):
            owned = {member.name: sorted(member.owned) for member in self._members}
            groups = [group for host in self.cluster.hosts for group in groups_of(host)]
            states = [(group.group_id, group.state_name, len(group.members)) for group in groups]
            self.history.violations.append(f"the group does not settle: {states}, {owned}")

    def _has_settled(self) -> bool:
        """Whether all are members, and have the partitions that they subscribe to, each once."""
        topics = {topic for member in self._members for topic in member.topics}
        known = [each for each in (TOPIC, *OTHER_TOPICS) if each in topics]
        wanted = Counter(TopicPartition(each, n) for each in known for n in range(PARTITIONS))
        owned = Counter(each for member in self._members for each in member.owned)
        states = [
            (group.state_name, len(group.members))
            for host in self.cluster.hosts
            for group in groups_of(host)
            if group.group_id == GROUP
        ]
        return owned == wanted and states == [("Stable", CROWD)]


class GroupAdministrator(SimulatedClient):
    """Sends requests about a group; most of them are refused while it has members."""

    def __init__(self, cluster: SimulatedCluster, name: str, history: History) -> None:
        super().__init__(cluster, name, history)
        config = AdminConfig.parse(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "request.timeout.ms": 5_000,
                "default.api.timeout.ms": API_TIMEOUT_MS,
            }
        )
        self._admin = AdminClient(self.process.runtime, config)
        self._groups, self._offsets = GroupAdmin(self._admin), OffsetAdmin(self._admin)

    def do_something(self, chance: random.Random) -> None:
        """Describe or delete the group, or an offset, or take out some of its members."""
        partition = TopicPartition(chance.choice(OTHER_TOPICS), 0)
        requests: tuple[Callable[[], Awaitable[object]], ...] = (
            partial(self._groups.describe_groups, [GROUP]),
            partial(self._groups.delete_groups, [GROUP]),
            partial(self._offsets.delete_group_offsets, GROUP, [partition]),
            *[partial(self._take_out, chance)] * TAKE_OUT_WEIGHT,
        )
        self.process.spawn(self._ask(chance.choice(requests)()), "ask about the group")

    async def _take_out(self, chance: random.Random) -> None:
        """Let some members leave at any moment: their clients learn of that later."""
        hosts = self.cluster.hosts
        groups = [each for host in hosts for each in groups_of(host) if each.group_id == GROUP]
        for group in groups[:1]:
            assert isinstance(group, ConsumerGroup | ClassicGroup)
            known = list(group.members)
            leaving = chance.sample(known, min(len(known), 2))
            coordinator = await self._admin.coordinator(GROUP, self._admin.deadline())
            requests: list[Request] = [
                LeaveGroupRequest(
                    group_id=GROUP,
                    members=[MemberIdentity(member_id=each, group_instance_id=None)],
                )
                for each in leaving
            ]
            requests += [
                ConsumerGroupHeartbeatRequest(
                    group_id=GROUP, member_id=each, member_epoch=LEAVE_EPOCH
                )
                for each in leaving
            ]
            for request in requests:
                await self._admin.client.send(coordinator.id, request)

    async def _ask(self, request: Awaitable[object]) -> None:
        try:
            await request
        except KafkaError:
            pass  # there may be no coordinator


OTHER_TOPICS: Final = ("a", "b", "c", "d")
MANY_NAMES: Final = (TOPIC, *OTHER_TOPICS, *(f"missing{number}" for number in range(40)))
"""A subscription that takes long to read, mostly of topics that do not exist."""
COMMON_STRATEGIES: Final = "range,roundrobin"
SINGLE_STRATEGIES: Final = ("range", "roundrobin")
"""How classic members want partitions to be shared."""
PROTOCOLS: Final = ((CLASSIC,), (CONSUMER_PROTOCOL,), *[(CLASSIC, CONSUMER_PROTOCOL)] * 4)
ACT_WEIGHTS: Final = (3, 2, 1)
ACT_INTERVAL_MS: Final = (600, 1_600)
TOGETHER_MS: Final = (400, 1_000)
SHORT_TURNS: Final = (0.1, 3)
LONG_TURNS: Final = (0.4, 20)
"""The share of turns that take time while a crowd is at work, and how long at most."""
TAKE_OUT_WEIGHT: Final = 3
"""How much likelier it is than another request that an administrator takes members out."""
MOMENT_MS: Final = 20
SHARE_ADMINISTERED: Final = 0.3
LOOK_AT_GROUPS_EVERY: Final = 5
