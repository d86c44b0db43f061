"""A cluster on three racks loses a disk, gets a broker, and lets it go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_load import SESSION_MS, ClusterView, SteadyLoad
from command_here import run_here

from ottla import Admin, NewTopic
from ottla.clients.admin.descriptions import AlterConfigOp, ConfigResource
from ottla.structs import TopicPartition
from ottla.testing import wait_until
from ottla.testing.processes import ClusterProcess, ZooKeeperProcess

RACKS = {1: "red", 2: "green", 3: "blue", 4: "red"}
SAME_RACK = {1, 4}
NOTICED_SOON_MS = 500


class GrowingCluster(ClusterProcess):
    """Brokers on racks, each with two disks."""

    def add(self, broker_id, **overrides):
        broker = super().add(broker_id, broker_rack=RACKS[broker_id], **overrides)
        broker.overrides["log.dirs"] = ",".join(map(str, self.disks(broker_id)))
        return broker

    def disks(self, broker_id: int) -> list[Path]:
        return [self.data_dir / f"broker-{broker_id}-{name}" for name in ("one", "two")]

    def replicas_on_disk(self, broker_id: int, disk: Path | None = None) -> list[str]:
        """The partitions whose logs a broker has, but for those that are being deleted."""
        disks = self.disks(broker_id) if disk is None else [disk]
        found = (path.name for each in disks for path in each.glob("[!_]*-[0-9]*"))
        return sorted(name for name in found if not name.endswith("-delete"))


@pytest.fixture(scope="module")
def cluster(
    zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GrowingCluster]:
    """Brokers 1, 2 and 3."""
    running = GrowingCluster(
        tmp_path_factory.mktemp("growth"),
        zookeeper=zookeeper,
        chroot="/growth",
        replica_high_watermark_checkpoint_interval_ms=NOTICED_SOON_MS,
        zookeeper_session_timeout_ms=SESSION_MS,
    ).start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def grown(cluster: GrowingCluster) -> GrowingCluster:
    """Broker 4 as well, on the rack of broker 1."""
    cluster.add(4)
    cluster.start_broker(4)
    view = ClusterView(cluster.bootstrap_servers)
    wait_until(lambda: view.brokers() == [1, 2, 3, 4], "broker 4 is known")
    view.create("racks", partitions=8)
    return cluster


@pytest.fixture
def view(cluster: GrowingCluster) -> ClusterView:
    return ClusterView(cluster.bootstrap_servers)


@pytest.fixture
def admin(cluster: GrowingCluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers) as client:
        yield client


def replicas_of(admin: Admin, *topics: str) -> dict[TopicPartition, list[int]]:
    return {
        TopicPartition(name, each.partition): list(each.replicas)
        for name, topic in admin.describe_topics(list(topics)).items()
        for each in topic.partitions
    }


def test_failed_disk_of_a_leader_moves_its_partitions_only(cluster, view):
    """A remote controller hears of it; the broker lives and leads from its other disk."""
    view.create("disks", partitions=6)
    victim = next(each for each in (1, 2, 3) if each != view.controller())
    with SteadyLoad(cluster.bootstrap_servers, "disks", 6) as load:
        led = [index for index, leader in view.leaders("disks").items() if leader == victim]
        disk = cluster.disks(victim)[0]
        on_disk = {int(name.rpartition("-")[2]) for name in cluster.replicas_on_disk(victim, disk)}
        load.until_more()
        disk.rename(disk.with_suffix(".broken"))
        disk.write_bytes(b"a path that goes through a file is an error, to root as well")
        lost = set(on_disk)
        wait_until(
            lambda: {p for p, isr in view.in_sync("disks").items() if victim not in isr} == lost,
            "replicas on the disk are out of sync, those on the other one are in sync",
        )
        wait_until(
            lambda: leads(view, victim) == set(led) - lost and leads(view, -1) == set(),
            "the broker leads what is on its other disk, and others lead the rest",
        )
        load.until_more()
    load.check()

    assert lost
    assert cluster.brokers[victim].process.poll() is None
    cluster.kill_broker(victim)
    disk.unlink()
    cluster.start_broker(victim)
    view.until_all_in_sync("disks", [1, 2, 3])


def leads(view: ClusterView, broker_id: int) -> set[int] | None:
    """The partitions that a broker leads; None while that is not known."""
    leaders = view.leaders("disks")
    return {index for index, leader in leaders.items() if leader == broker_id} if leaders else None


def test_unclean_leader_is_elected_as_soon_as_it_is_allowed(cluster, view, admin):
    """By a setting of the topic, while nobody in sync lives."""
    admin.create_topics(
        [NewTopic("unclean", replica_assignment={0: [2, 3]}, configs={"min.insync.replicas": "1"})]
    )
    cluster.stop_broker(3)
    wait_until(lambda: view.in_sync("unclean") == {0: [2]}, "broker 3 is out of sync")
    cluster.kill_broker(2)
    cluster.start_broker(3)
    wait_until(lambda: view.leaders("unclean") == {0: -1}, "nobody leads")
    resource = ConfigResource.topic("unclean")
    operation = AlterConfigOp("unclean.leader.election.enable", "true", "SET")
    admin.incremental_alter_configs({resource: [operation]})
    wait_until(lambda: view.leaders("unclean") == {0: 3}, "the one that was out of sync leads")
    cluster.start_broker(2)
    view.until_all_in_sync("unclean", [2, 3])


def test_new_broker_gets_new_partitions_by_its_rack(grown, admin, tmp_path):
    """A rack has one replica of each, unless racks are forgotten; what there was stays put."""
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"topics": [{"topic": "racks"}], "version": 1}))
    aware = proposed(grown, topics)
    unaware = proposed(grown, topics, "--disable-rack-aware")

    wait_until(lambda: grown.replicas_on_disk(4), "broker 4 has replicas")
    assert {name.rpartition("-")[0] for name in grown.replicas_on_disk(4)} == {"racks"}
    for replicas in [*replicas_of(admin, "racks").values(), *aware]:
        assert len(SAME_RACK & set(replicas)) == 1
    assert {broker for replicas in aware for broker in replicas} == set(RACKS)
    assert any(set(replicas) >= SAME_RACK for replicas in unaware)


def proposed(cluster: GrowingCluster, topics: Path, *words: str) -> list[list[int]]:
    """The replicas of each partition, as --generate plans them."""
    done = run_here(
        *("reassign-partitions", "--generate"),
        *("--zookeeper", cluster.zookeeper.connect + cluster.chroot, "--broker-list", "1,2,3,4"),
        *("--topics-to-move-json-file", topics, *words),
    )
    assert done.returncode == 0, done.stderr
    return [row["replicas"] for row in json.loads(done.stdout.splitlines()[-1])["partitions"]]


@pytest.mark.wide
def test_broker_is_emptied_and_goes(grown, view, admin):
    """Under load: what it had is elsewhere, nothing is lost, and nobody misses it."""
    with SteadyLoad(grown.bootstrap_servers, "racks", 8) as load:
        load.until_more()
        plan = {
            partition: [1 if broker == 4 else broker for broker in replicas]
            for partition, replicas in replicas_of(admin, "racks").items()
            if 4 in replicas
        }
        admin.alter_partition_reassignments(plan)
        wait_until(lambda: not admin.list_partition_reassignments(), "all has moved")
        wait_until(lambda: grown.replicas_on_disk(4) == [], "nothing is left on its disks")
        load.until_more()
        assert grown.brokers.pop(4).stop() == 0
        load.until_more()
    load.check()

    view.until_all_in_sync("racks", [1, 2, 3])
    assert {broker for each in replicas_of(admin, "racks").values() for broker in each} == {1, 2, 3}
