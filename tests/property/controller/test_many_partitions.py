"""Controllers of very many partitions: short steps, and all that may come between them."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest
from controller_world import ControllerWorld
from counted_calls import worst_step

from ottla.controller.broker_registration import register_broker
from ottla.controller.broker_request_batch import STATES_IN_A_REQUEST, in_parts
from ottla.controller.requested_topic import RequestedTopic
from ottla.registry import paths
from ottla.registry.znodes import decode_partition_state
from ottla.runtime.scheduler import at_once
from ottla.structs import (
    NO_EPOCH,
    NO_UUID,
    ElectionType,
    EndPoint,
    LeaderAndIsr,
    PartitionState,
    TopicPartition,
)

if TYPE_CHECKING:
    pass

TOPICS, PARTITIONS, BROKERS = 40, 100, 4
MOST_CALLS = 200_000
"""Calls and returns of functions in one step, the built-in ones among them: some 20 ms."""


def new_world(topics: int) -> ControllerWorld:
    world = ControllerWorld(BROKERS, auto_leader_rebalance_enable=False)
    for number in range(topics):
        assignment = {
            index: tuple((number + index + step) % BROKERS for step in range(3))
            for index in range(PARTITIONS)
        }
        world.create(RequestedTopic(f"t{number}", assignment=assignment))
    assert len(list(world.controller.context.all_partitions())) == topics * PARTITIONS
    return world


@pytest.fixture(scope="module")
def world():
    """Four brokers, and 4,000 partitions with three replicas each."""
    return new_world(TOPICS)


def test_no_event_has_a_long_step(world):
    """Each event took all partitions in a few steps, three seconds of 100,000 in an election."""
    controller = world.controller

    def shrink() -> None:
        context = controller.context
        changes = {
            partition: state._replace(isr=(0,))
            for partition in context.all_partitions()
            if (state := context.state(partition)).leader == 0
        }
        assert len(changes) >= TOPICS * PARTITIONS // BROKERS
        world.run(controller.alter_partitions(0, NO_EPOCH, changes, {}))

    def elect() -> None:
        world.run(controller.elect_leaders(ElectionType.PREFERRED, None))

    steps = {
        "a broker dies": worst_step(lambda: world.kill(3)),
        "all are to be led by dead ones": worst_step(elect),
        "it returns": worst_step(lambda: world.come(3)),
        "in-sync replicas are lost": worst_step(shrink),
        "a broker shuts down": worst_step(
            lambda: world.run(controller.controlled_shutdown(0, NO_EPOCH))
        ),
        "an election": worst_step(lambda: resign_and_stand(world)),
    }

    assert max(steps.values()) < MOST_CALLS, steps
    check(world)
    told = [states for _, states in world.orders.leader_and_isr_calls]
    assert max(map(len, told)) == STATES_IN_A_REQUEST  # a broker has 3,000 replicas


def resign_and_stand(world: ControllerWorld) -> None:
    world.controller.resign()
    world.run(world.registry.delete(paths.CONTROLLER))
    world.run(world.controller.startup())
    world.settle()


def check(world: ControllerWorld) -> None:
    """The registry, the controller and what brokers were told are the same; live brokers lead."""
    context = world.controller.context
    registry = world.registry
    for partition in context.all_partitions():
        path = paths.partition_state(*partition)
        data, stat = world.run(registry.get(path))
        stored, _ = decode_partition_state(path, data, stat.version)
        assert stored == context.state(partition), partition
        told = world.orders.metadata[partition].leader_and_isr
        assert told[:3] == stored[:3], partition
        if any(replica in context.live_replicas(partition) for replica in stored.isr):
            assert context.has_live_leader(partition), partition


class Story:
    """Events of the registry and of clients, begun while another one is under way."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = new_world(15)
        self.dead: set[int] = set()
        self.made = 0

    async def play(self) -> None:
        for _ in range(2):
            await self.chance.choice([self.kill, self.come, self.elect, self.resign, self.shrink])()
            for _ in range(self.chance.choice([0, 3, 10, 30, 100])):
                await asyncio.sleep(0)
        await self.make()

    async def kill(self) -> None:
        left = [broker for broker in range(1, BROKERS) if broker not in self.dead]
        if len(left) > 1:
            broker = self.chance.choice(left)
            self.dead.add(broker)
            await self.world.registry.delete(paths.broker(broker))

    async def come(self) -> None:
        if self.dead:
            broker = self.dead.pop()
            end_point = EndPoint("PLAINTEXT", "PLAINTEXT", f"host-{broker}", 9092)
            await register_broker(self.world.registry, broker, [end_point], 0)

    async def elect(self) -> None:
        self.begin(self.world.controller.elect_leaders(ElectionType.PREFERRED, None))

    async def shrink(self) -> None:
        context = self.world.controller.context
        changes = {
            partition: state._replace(isr=(0,))
            for partition in context.all_partitions()
            if (state := context.state(partition)) is not None and state.leader == 0
        }
        self.begin(self.world.controller.alter_partitions(0, NO_EPOCH, changes, {}))

    async def resign(self) -> None:
        """In the middle of an event, maybe of its own election."""
        self.world.controller.resign()
        if await self.world.registry.exists(paths.CONTROLLER) is not None:
            await self.world.registry.delete(paths.CONTROLLER)
        self.begin(self.world.controller.startup())

    async def make(self) -> None:
        self.made += 1
        topic = RequestedTopic(f"new{self.made}", assignment={0: (0, 1)})
        self.begin(self.world.controller.create_topics([topic]))

    def begin(self, request: Any) -> None:
        """It may be refused: its controller may have resigned."""

        async def ask() -> None:
            await asyncio.gather(request, return_exceptions=True)

        self.world.runtime.scheduler.spawn(ask(), "request")


@pytest.mark.parametrize("sizes", [[], [1], [1999, 1], [1999, 2], [5000], [3, 5000, 2, 1000, 1500]])
def test_parts_of_a_change_have_whole_topics(sizes):
    """Of any order of its partitions; a topic that is larger than a part is one by itself."""
    states = [
        PartitionState(TopicPartition(f"t{n}", index), NO_UUID, 1, LeaderAndIsr(1, 0, (1,)), (1,))
        for n, size in enumerate(sizes)
        for index in range(size)
    ]
    random.Random(7).shuffle(states)
    parts = at_once(in_parts(states))

    assert sorted(each for part in parts for each in part) == sorted(states)
    topics = [{each.topic_partition.topic for each in part} for part in parts]
    assert sum(map(len, topics)) == len(sizes)
    for part, names in zip(parts, topics, strict=True):
        assert len(part) <= STATES_IN_A_REQUEST or len(names) == 1


@pytest.mark.parametrize("seed", range(4))
def test_events_between_slices_leave_no_difference(seed):
    """Of all that comes between two slices of an event, the outcome is one that all agree on."""
    story = Story(seed)
    for _ in range(12):
        story.world.run(story.play())
        story.world.runtime.advance(2_000)
        story.world.settle()
        assert story.world.controller.is_active
        check(story.world)
