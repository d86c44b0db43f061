"""Controllers that die in the middle of something, or sleep and wake up as zombies."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest
from broker_requests import order_errors
from chaos_load import LIMIT_S
from chaos_story import HUNG_S
from chaos_world import BROKERS, ChaosWorld

from ottla import Admin, KafkaError, NewTopic
from ottla.errors import ErrorCode
from ottla.structs import TopicPartition
from ottla.testing import wait_until

COUNT = 30


@contextlib.contextmanager
def underway(world: ChaosWorld, ask: Callable[[Admin], object]) -> Iterator[None]:
    """Somebody asks the cluster for something, and may never hear an answer."""

    def run() -> None:
        admin = Admin(world.bootstrap_servers, request_timeout_ms=5000)
        with admin, contextlib.suppress(KafkaError):
            ask(admin)

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join(LIMIT_S)
    assert not thread.is_alive(), "the request has no end"


def kill_controller(world: ChaosWorld) -> None:
    """The controller dies; returns when there is another one."""
    controller = world.controller
    world.kill_broker(controller)
    wait_until(
        lambda: world.controller not in (controller, -1), "there is another controller", LIMIT_S
    )


def exists(admin: Admin, topic: NewTopic) -> bool:
    """Whether it is there; if not, it is asked for, and refused while too few brokers are known."""
    try:
        admin.create_topics([topic])
    except KafkaError as error:
        if error.error is ErrorCode.TOPIC_ALREADY_EXISTS:
            return True
        if error.error is not ErrorCode.INVALID_REPLICATION_FACTOR:
            raise
    return False


def test_controller_dies(story, world):
    """The next one takes over all that there is."""
    with story("killed controller") as told:
        kill_controller(world)
        told.load.until_more()


def test_controller_dies_while_topics_are_made(story, world):
    """Each topic is there whole, or can still be made."""
    with story("killed while creating") as told:
        names = [f"{told.topic}-new-{number}" for number in range(3)]
        topics = [NewTopic(name, COUNT, 3) for name in names]
        with underway(world, lambda admin: admin.create_topics(topics)):
            told.last(0, 0.2)
            dead = world.controller
            kill_controller(world)
        world.start_broker(dead)
        with Admin(world.bootstrap_servers) as admin:
            told.until(
                lambda: all(exists(admin, topic) for topic in topics), "all topics are there"
            )
        for name in names:
            told.until(
                lambda name=name: all(world.leader(name, p) != -1 for p in range(COUNT)),
                f"all partitions of {name} have leaders",
            )


def test_controller_dies_while_topics_are_deleted(story, world):
    """They are gone in the end, and can be made again."""
    with story("killed while deleting") as told:
        name = f"{told.topic}-old"
        with Admin(world.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(name, COUNT, 3)])
        told.until(lambda: all(world.leader(name, p) != -1 for p in range(COUNT)), "it has leaders")
        with underway(world, lambda admin: admin.delete_topics([name])):
            told.last(0, 0.2)
            dead = world.controller
            kill_controller(world)
        told.load.until_more()
        world.start_broker(dead)
        if world.znode(f"/brokers/topics/{name}") is not None:
            with Admin(world.bootstrap_servers) as admin, contextlib.suppress(KafkaError):
                admin.delete_topics([name])
        told.until(lambda: world.znode(f"/brokers/topics/{name}") is None, f"{name} is gone")
        with Admin(world.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(name, 1, 3)])
        told.until(lambda: world.leader(name) != -1, f"{name} is there again")


def test_controller_dies_while_partitions_move(story, world):
    """The next controller finishes what was begun."""
    with story("killed while reassigning") as told:
        name = f"{told.topic}-moved"
        with Admin(world.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(name, replica_assignment={p: [1] for p in range(9)})])
        target = [2, 3]
        moves = {TopicPartition(name, p): target for p in range(9)}
        with underway(world, lambda admin: admin.alter_partition_reassignments(moves)):
            told.last(0, 0.2)
            dead = world.controller
            kill_controller(world)
        world.start_broker(dead)
        with Admin(world.bootstrap_servers) as admin:
            admin.alter_partition_reassignments(moves)
        told.until(
            lambda: all(world.in_sync(name, p) == set(target) for p in range(9)),
            "all partitions have moved",
        )
        told.until(
            lambda: not world.znode(f"/brokers/topics/{name}")["adding_replicas"], "it is over"
        )


@pytest.mark.parametrize("leads", [False, True])
def test_zombie_controller(story, world, leads):
    """One that slept past its session gives no orders: its epoch is over.

    What it may have sent before arrives late, and is refused.
    """
    controller = world.controller
    others = [each for each in BROKERS if each != controller]
    replicas = [controller, *others] if leads else [*others, controller]
    name = f"zombie controller{' and leader' if leads else ''}"
    with story(name, assignment=dict.fromkeys(range(3), replicas)) as told:
        told.gap_limit_s = HUNG_S
        epoch = world.znode("/controller_epoch")
        world.pause_broker(controller)
        told.until(lambda: world.controller not in (controller, -1), "there is another controller")
        told.last(1, 4)
        world.resume_broker(controller)
        told.until(lambda: told.in_sync() == told.brokers, "the zombie follows")
        assert world.controller != controller
        assert world.znode("/controller_epoch") == epoch + 1
        for broker_id in BROKERS:
            late = order_errors(
                world.own_ports[broker_id], controller, epoch, world.registration(broker_id)
            )
            assert late == [ErrorCode.STALE_CONTROLLER_EPOCH] * 2
