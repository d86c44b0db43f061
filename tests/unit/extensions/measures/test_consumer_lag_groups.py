"""The lag of groups over partitions that are led here, elsewhere or nowhere, in virtual time."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.measures.consumer_lag import (
    MAX_MARKS,
    REMOTE_INTERVAL_MS,
    ConsumerLag,
    EndHistory,
)
from ottla.metrics.metrics_registry import MetricsRegistry
from ottla.metrics.sensors import TICK_MS
from ottla.protocol.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import LeaderAndIsr, PartitionState, TopicPartition
from ottla.testing import mock_runtime

HERE, THERE, FAR, NOWHERE = (TopicPartition("t", index) for index in range(4))
LEADERS = {HERE: 1, THERE: 2, FAR: 3}


class World:
    """A group has committed 5 everywhere; partitions end at 8 unless `ends` says otherwise."""

    def __init__(self, *, in_cluster=True):
        self.runtime = mock_runtime()
        self.runtime.clock.advance(10**6)
        self.registry = MetricsRegistry(self.runtime)
        self.ends = dict.fromkeys((HERE, THERE, FAR, NOWHERE), 8)
        self.committed = dict.fromkeys(self.ends, 5)
        self.asked, self.failing, self.held = [], set(), None
        self.errors = {}
        self.cache = MetadataCache("cluster")
        for tp, leader in LEADERS.items():
            state = LeaderAndIsr(leader, 0, (leader,))
            self.cache.update([PartitionState(tp, UUID(int=5), 1, state, (leader,))], [])
        self.own = SimpleNamespace(is_leader=True, high_watermark=8)
        followed = SimpleNamespace(is_leader=False, high_watermark=3)
        self.partitions = {HERE: self.own, THERE: followed}
        group = SimpleNamespace(group_id="g", offsets=self, members={"m": None})
        manager = SimpleNamespace(groups=lambda: iter([group]))
        parts = SimpleNamespace(
            runtime=self.runtime,
            coordinators=SimpleNamespace(groups=SimpleNamespace(manager=manager)),
            replica_manager=self,
            cache=self.cache,
            link=SimpleNamespace(connections=self) if in_cluster else None,
        )
        self.lag = ConsumerLag(parts, self.registry)
        self.registry.start()

    def known(self):
        return list(self.committed)

    def current(self, is_deleted, partitions):
        return {tp: SimpleNamespace(offset=self.committed[tp]) for tp in partitions}

    def node(self, leader):
        return leader

    async def ask(self, leader, purpose, request, *, low):
        tps = [
            TopicPartition(topic.name, each.partition_index)
            for topic in request.topics
            for each in topic.partitions
        ]
        self.asked.append((leader, tps))
        if self.held is not None:
            await self.held
        if leader in self.failing:
            raise KafkaError.of(ErrorCode.NETWORK_EXCEPTION, "planted")
        lines = [
            ListOffsetsPartitionResponse(
                partition_index=tp.partition,
                offset=self.ends[tp],
                error_code=int(self.errors.get(tp, 0)),
            )
            for tp in tps
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=lines)])

    def read(self, name="lag"):
        return {
            dict(tags).get("partition", dict(tags).get("topic")): value
            for family, tags, value in filter(None, self.registry.read())
            if family.name.name == name
        }


@pytest.fixture
def world() -> World:
    return World()


def test_own_partitions_end_at_their_high_watermark_now(world):
    """Without a tick, too; one whose end is not known has no lag."""
    assert world.read() == {"0": 3}
    world.own.high_watermark = 9
    assert world.read() == {"0": 4}
    world.own.is_leader, world.own.high_watermark = False, 20

    assert world.read() == {"0": 4}


def test_others_may_run_where_no_end_is_known(world):
    """A reader of metrics goes through all offsets of a broker, of which it may show none."""
    world.own.is_leader = False
    shown = [
        each for each in world.registry.read() if each is None or each.family.name.name == "lag"
    ]

    assert [each for each in shown if each] == []
    assert len(shown) >= 4


def test_ends_of_others_are_asked_of_their_leaders_now_and_then(world):
    """Each leader once, for all of its partitions; not at each tick."""
    world.runtime.advance(TICK_MS)
    assert sorted(world.asked) == [(-1, [NOWHERE]), (2, [THERE]), (3, [FAR])]
    assert world.read() == {"0": 3, "1": 3, "2": 3, "3": 3}
    world.runtime.advance(REMOTE_INTERVAL_MS - TICK_MS)
    assert len(world.asked) == 3
    world.ends[THERE] = 20
    world.runtime.advance(TICK_MS)

    assert len(world.asked) == 6
    assert world.read() == {"0": 3, "1": 15, "2": 3, "3": 3}
    assert world.read("lag_sum") == {"t": 24}
    assert world.read("current_offset") == dict.fromkeys("0123", 5)


def test_broker_alone_asks_nobody():
    """It leads all that there is."""
    world = World(in_cluster=False)
    world.runtime.advance(3 * REMOTE_INTERVAL_MS)

    assert world.asked == []


def test_nothing_is_asked_where_all_is_led_here(world):
    """A broker that leads all partitions asks nobody, and shows no question under way."""
    world.committed = {HERE: 5}
    world.runtime.advance(3 * REMOTE_INTERVAL_MS)
    assert world.asked == []
    world.committed = {THERE: 5}
    world.runtime.advance(REMOTE_INTERVAL_MS)

    assert world.asked == [(2, [THERE])]


def test_question_is_not_asked_again_while_it_is_under_way(world):
    """A leader may be slow."""
    world.held = world.runtime.scheduler.loop.create_future()
    world.runtime.advance(5 * REMOTE_INTERVAL_MS)
    assert len(world.asked) == 1
    world.held.set_result(None)
    world.runtime.advance(0)
    assert len(world.asked) == 3
    world.runtime.advance(REMOTE_INTERVAL_MS)

    assert len(world.asked) == 6


def test_leader_that_does_not_answer_keeps_no_other_back(world):
    """Its partitions have no lag until it does; nor has one with an error."""
    world.failing = {2}
    world.errors = {FAR: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    world.runtime.advance(TICK_MS)
    assert world.read() == {"0": 3, "3": 3}
    world.failing, world.errors = set(), {}
    world.runtime.advance(REMOTE_INTERVAL_MS)

    assert world.read().keys() == {"0", "1", "2", "3"}


def test_partition_without_a_committed_offset_is_forgotten(world):
    """What it was long ago does not tell how old its records are now."""
    world.runtime.advance(TICK_MS)
    world.committed = {}
    world.runtime.advance(TICK_MS)
    world.committed = {FAR: 5}

    assert world.read() == {}


def test_group_that_is_ahead_of_what_is_known_has_no_lag(world):
    """The end was asked for a moment before."""
    world.committed = {HERE: 12}

    assert world.read() == {"0": 0}
    assert world.read("lag_seconds") == {"0": 0}
    assert world.read("members") == {None: 1}


@pytest.mark.parametrize(
    ("marks", "offset", "age_s"),
    [
        ([(100, 50), (110, 100)], 50, 20),
        ([(100, 50), (110, 100)], 75, 15),
        ([(100, 50), (110, 100)], 49, 20),
        ([(100, 50), (110, 100), (112, 200)], 100, 10),
        ([(100, 50), (110, 50), (115, 50), (118, 150)], 50, 5),
    ],
)
def test_age_is_reckoned_from_the_marks_around_an_offset(marks, offset, age_s):
    """At 120 seconds; while nothing comes the last mark moves on."""
    history = EndHistory()
    for seconds, end in marks:
        history.note(end, seconds * 1000)

    assert history.age_ms(offset, 120_000) == age_s * 1000


def test_marks_are_thinned_out_when_they_are_too_many():
    """As many as there may be are all kept."""
    history = EndHistory()
    for number in range(MAX_MARKS):
        history.note(number, number)
    assert len(history.marks) == MAX_MARKS
    history.note(MAX_MARKS, MAX_MARKS)

    assert len(history.marks) < MAX_MARKS
    assert (history.marks[0], history.marks[-1]) == ((0, 0), (MAX_MARKS, MAX_MARKS))


def test_log_that_is_cut_back_to_where_it_was_keeps_its_history():
    """Only an end before the last one begins a new history."""
    history = EndHistory()
    for end, now_ms in ((5, 1_000), (9, 2_000), (9, 3_000)):
        history.note(end, now_ms)
    assert len(history.marks) == 3
    history.note(8, 4_000)

    assert history.marks == [(4_000, 8)]
