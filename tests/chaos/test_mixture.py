"""All faults at random, several at once, with every kind of client: run by `make chaos MIX=1`."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from shutil import copytree

import pytest
from chaos_story import Story
from chaos_world import BROKERS, ChaosWorld
from mixed_faults import MixedFaults
from mixture import Mixture, check
from small_disk import SmallDisk, reason_for_no_disks

from ottla.testing.processes import ZooKeeperProcess

SECONDS = float(os.environ.get("MIX_SECONDS", "300"))
SEEDS = [int(seed) for seed in os.environ.get("MIX_SEEDS", "1").split()]
KEEP = os.environ.get("MIX_KEEP", "")
"""A folder for what is on the disks in the end: they are in memory, and gone afterwards."""
MOST_S = 1200
"""For the peace after it, and what was read and written, on a machine with much else to do."""
DISK_MB = 64
SETTINGS = {
    "auto.create.topics.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "4000",
    # A broker that is started while ZooKeeper is gone waits for it, as long as that may take.
    "zookeeper.connection.timeout.ms": "120000",
    # Small files, which are rolled and deleted, so that a full disk meets every kind of write.
    "offsets.topic.segment.bytes": "100000",
    "transaction.state.log.segment.bytes": "100000",
    "log.cleaner.backoff.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
}


@pytest.fixture
def mixed_world(java, tmp_path) -> Iterator[ChaosWorld]:
    """Three brokers, not yet started, and a ZooKeeper server that may be killed."""
    zookeeper = ZooKeeperProcess(tmp_path / "zookeeper").start()
    world = ChaosWorld(tmp_path / "brokers", zookeeper, "/mixture")
    for broker_id in BROKERS:
        world.brokers[broker_id].overrides.update(SETTINGS)
    yield world
    world.recover_zookeeper()
    world.close()
    zookeeper.stop()


@pytest.fixture
def no_disks(tmp_path) -> str:
    """Why brokers cannot have small disks of their own here; empty if they can."""
    return reason_for_no_disks(tmp_path / "disk")


@pytest.fixture
def disks(mixed_world, no_disks) -> Iterator[dict[int, SmallDisk]]:
    """A small disk for each broker, with all that it keeps."""
    brokers = {} if no_disks else mixed_world.brokers
    disks = {each: SmallDisk(broker.data_dir, DISK_MB) for each, broker in brokers.items()}
    yield disks
    for broker_id, disk in disks.items():
        if KEEP:
            copytree(disk.folder, f"{KEEP}/broker-{broker_id}", dirs_exist_ok=True)
        disk.close()


@pytest.mark.timeout(SECONDS + MOST_S)
@pytest.mark.parametrize("seed", SEEDS)
def test_mixture(mixed_world, disks, no_disks, seed):
    """Nothing is lost, torn, out of order, or shown too early, whatever befalls three brokers."""
    mixed_world.start()
    told = Story(mixed_world, "mixture", seed, timed=False, segment_bytes="200000")
    told.producer_settings = {"message.timeout.ms": 0}  # it is patient: nothing may be given up
    with told:
        mixture = Mixture(told)
        try:
            mixture.begin()
            topics = mixture.moving_topics
            chance, ends = random.Random(f"{seed}-mixture"), told.load.acked_ends
            faults = MixedFaults(mixed_world, topics, disks, chance, ends)
            faults.run(SECONDS)
            faults.make_peace()
            told.load.until_more(1)
            mixture.end()
        finally:
            mixture.stop()
        check(mixture, faults)
    if no_disks:
        pytest.skip(f"all that was done held, but no disk was full: {no_disks}")
