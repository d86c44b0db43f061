"""Groups without members change from one protocol to the other, and keep their offsets."""

from __future__ import annotations

import pytest
from consumer_group_world import ConsumerWorld, Peer
from group_world import World

from ottla.errors import ErrorCode


def classic_join(world, member_id=""):
    return World.join(world, member_id)


def test_empty_classic_group_becomes_a_consumer_group():
    """Its offsets stay, also after a restart."""
    world = ConsumerWorld({"t": 1})
    join = classic_join(world)
    world.end_initial_delay()
    world.commit(5)
    world.leave(join.value.member_id)
    assert world.commit(7).value is ErrorCode.NONE

    assert world.join(Peer("a")) is ErrorCode.NONE
    assert world.committed() == 7
    world.reload()

    assert world.listed(types=["consumer"]) == ["g"]
    assert world.committed() == 7


def test_empty_consumer_group_becomes_a_classic_one():
    """Its offsets stay, also after a restart."""
    world = ConsumerWorld({"t": 1})
    (a,) = world.members("a")
    assert world.commit(7, "a", a.epoch).value is ErrorCode.NONE
    world.quit(a)

    classic_join(world)
    world.end_initial_delay()
    assert world.committed() == 7
    world.reload()

    assert world.listed(types=["classic"]) == ["g"]
    assert world.committed() == 7


def test_generations_go_on_where_epochs_ended_and_the_other_way_round():
    """No number comes twice: two members would have a partition in one generation."""
    world = ConsumerWorld({"t": 1})
    (a,) = world.members("a")
    last_epoch = a.epoch
    world.quit(a)

    join = classic_join(world)
    world.end_initial_delay()
    generation = join.value.generation_id
    world.leave(join.value.member_id)
    (b,) = world.members("b")

    assert 0 < last_epoch < generation < b.epoch


def test_failed_conversion_is_made_up_for():
    """The classic group's record is deleted when the log can be written again."""
    world = ConsumerWorld({"t": 1})
    join = classic_join(world)
    world.end_initial_delay()
    world.leave(join.value.member_id)
    a = Peer("a")
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.join(a)
    world.log.error = ErrorCode.NONE
    world.rejoin(a)

    world.reload()

    assert world.listed(types=["consumer"]) == ["g"]
    assert world.listed(types=["classic"]) == []


@pytest.mark.parametrize("is_written", [True, False])
def test_what_a_consumer_group_leaves_in_the_log_is_deleted_once(is_written):
    """With the first generation of the classic group, where it could not be written before."""
    world = ConsumerWorld({"t": 1})
    (a,) = world.members("a")
    world.quit(a)
    world.log.error = ErrorCode.NONE if is_written else ErrorCode.NOT_ENOUGH_REPLICAS
    join = classic_join(world)
    group = world.coordinator.manager.group("g")
    owed = dict(group.owed_tombstones)
    world.log.error = ErrorCode.NONE
    world.stabilize(join)

    assert bool(owed) is not is_written
    assert group.owed_tombstones == {}
    world.reload()
    assert world.listed(types=["classic"]) == ["g"]
    assert world.listed(types=["consumer"]) == []


def test_protocol_can_be_switched_off():
    """group.coordinator.rebalance.protocols without consumer: the APIs are not served."""
    world = World(group_coordinator_rebalance_protocols="classic")

    assert not world.coordinator.serves_consumer_protocol
    assert ConsumerWorld().coordinator.serves_consumer_protocol
