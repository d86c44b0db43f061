"""A broker that is about to stop, and the controller that has others lead in its place."""

from __future__ import annotations

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.controller.broker_registration import ensure_persistent_paths, register_broker
from ottla.protocol.leader_and_isr import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from ottla.registry import paths
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.znodes import encode_controller
from ottla.server.cluster_link import ClusterLink

BROKER_EPOCH = 11
LED = ControlledShutdownResponse(
    remaining_partitions=[RemainingPartition(topic_name="t", partition_index=0)]
)


class LeavingWorld:
    """Broker 1 is to stop; broker 2 is the controller."""

    def __init__(self, cluster, **settings) -> None:
        self.cluster = cluster
        self.runtime = cluster.runtime
        keys = {name.replace("_", "."): value for name, value in settings.items()}
        config = BrokerConfig.parse({"zookeeper.connect": "here:2181", **keys})
        self.registry = EmbeddedRegistry(self.runtime, "/registry")
        self.link = ClusterLink(
            self.runtime, config, self.registry, cluster.cache, 1, lambda: BROKER_EPOCH
        )
        cluster.cache.update([], [cluster.broker(1), cluster.broker(2)])
        cluster.serve(2)
        self.runtime.scheduler.run(self.start())
        self.answer(ControlledShutdownResponse())

    async def start(self) -> None:
        await self.registry.start()
        await ensure_persistent_paths(self.registry)
        await register_broker(self.registry, 2, self.cluster.broker(2).endpoints, 0)
        await self.registry.create(paths.CONTROLLER, encode_controller(2, 0), ephemeral=True)

    def answer(self, *answers: ControlledShutdownResponse) -> None:
        """One after the other; the last one again and again."""
        left = list(answers)
        self.cluster.answers[ControlledShutdownRequest] = lambda broker_id, body: (
            left.pop(0) if len(left) > 1 else left[0]
        )

    def leave(self):
        return self.runtime.scheduler.spawn(self.link.controlled_shutdown(), "leave")

    @property
    def asked(self) -> list[tuple[int, int]]:
        return [(body.broker_id, body.broker_epoch) for _, body in self.cluster.asked]


@pytest.fixture
def leaving(cluster_world):
    """Makes the world; the link is closed after the test."""
    worlds = []

    def make(**settings) -> LeavingWorld:
        worlds.append(LeavingWorld(cluster_world, **settings))
        return worlds[-1]

    yield make
    for world in worlds:
        world.link.close()
        world.runtime.advance(0)


def test_controller_with_very_much_to_move_is_asked_once(leaving):
    """It was asked again after each session that it took, and moved everything anew."""
    world = leaving(zookeeper_session_timeout_ms="2000")
    world.cluster.delays_ms[2] = 20_000
    task = world.leave()
    world.runtime.advance(19_000)
    assert not task.done()
    world.runtime.advance(2_000)

    assert task.done()
    assert world.asked == [(1, BROKER_EPOCH)]


def test_broker_that_leads_still_asks_again(leaving, caplog):
    """controlled.shutdown.max.retries times at most, with a pause before each."""
    world = leaving(controlled_shutdown_retry_backoff_ms="300")
    world.answer(LED, ControlledShutdownResponse())
    first = world.leave()
    world.runtime.advance(200)
    assert len(world.asked) == 1
    world.runtime.advance(200)
    assert first.done()
    assert len(world.asked) == 2
    world.answer(LED)
    second = world.leave()
    world.runtime.advance(2_000)

    assert second.done()
    assert len(world.asked) == 5
    assert "nobody else can lead 1 partitions yet" in caplog.text
    assert "others will be elected" in caplog.text


def test_broker_without_others_asks_nobody(leaving):
    """There is nobody who could lead."""
    world = leaving()
    world.cluster.cache.update([], [world.cluster.broker(1)])
    task = world.leave()
    world.runtime.advance(0)

    assert task.done()
    assert world.asked == []


def test_controlled_shutdown_may_be_switched_off(leaving):
    """controlled.shutdown.enable=false: others are elected when the broker is gone."""
    world = leaving(controlled_shutdown_enable="false")
    task = world.leave()
    world.runtime.advance(0)

    assert task.done()
    assert world.asked == []
