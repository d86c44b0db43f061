"""`ottla reassign-partitions`: the end of moves, and of their throttle."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from ottla.cli.reassignment_throttle import RATES
from ottla.clients.admin.descriptions import (
    ConfigResource,
    TopicDescription,
    TopicPartitionInfo,
)
from ottla.clients.admin.log_dirs import LogDirDescription, ReplicaInfo
from ottla.errors import ErrorCode
from ottla.structs import Node, TopicPartition

T0 = TopicPartition("t", 0)


class MovingCluster:
    """Partition t-0 on brokers 1 and 2; those of `away` do not answer.

    The replicas of `moves` are in /a, and copy themselves to /b.
    """

    def __init__(self) -> None:
        self.away: set[int] = set()
        self.moves: set[int] = set()
        self.altered: list[tuple[str, str]] = []
        self.throttled = {1, 2}

    def __enter__(self) -> MovingCluster:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def alive(self) -> list[int]:
        return [each for each in (1, 2) if each not in self.away]

    def describe_cluster(self):
        return SimpleNamespace(nodes=[Node(each, "localhost", 9092) for each in self.alive])

    def list_topics(self):
        return {"t"}

    def describe_topics(self, names):
        return {
            name: TopicDescription(
                name, partitions=[TopicPartitionInfo(0, 1, 0, (1, 2), tuple(self.alive))]
            )
            for name in names
        }

    def list_partition_reassignments(self):
        return {}

    def describe_log_dirs(self, brokers):
        return {
            broker: {
                path: LogDirDescription(ErrorCode.NONE, {T0: ReplicaInfo(1, 0, is_future)})
                for path, is_future in (("/a", False), ("/b", True))
                if not is_future or broker in self.moves
            }
            for broker in brokers
        }

    def alter_replica_log_dirs(self, targets):
        self.altered += [(str(replica), path) for replica, path in targets.items()]
        return dict.fromkeys(targets)

    def describe_configs(self, resources):
        return {
            each: {
                key: SimpleNamespace(is_default=int(each.name) not in self.throttled)
                for key in RATES
                if each.name.isdecimal()
            }
            for each in resources
        }

    def incremental_alter_configs(self, changes):
        self.throttled -= {
            int(each.name) for each in changes if each == ConfigResource.broker(int(each.name))
        }


@pytest.fixture
def cluster(clients) -> MovingCluster:
    clients.client = MovingCluster()
    return clients.client


@pytest.fixture
def end(ottla, tmp_path, cluster):
    """End moves of t-0 to /b by --cancel or --verify."""
    path = tmp_path / "plan.json"
    row = {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["/b", "/b"]}
    path.write_text(json.dumps({"version": 1, "partitions": [row]}))

    def run(action: str):
        words = ("--bootstrap-server", "x:1", "--reassignment-json-file", path, action)
        return ottla("reassign-partitions", *words)

    return run


def test_moves_to_directories_are_cancelled(cluster, end):
    """They went on, and without their throttle; the replicas stay where they are."""
    cluster.moves = {2}

    outcome = end("--cancel")

    assert cluster.altered == [("t-0-2", "/a")]
    assert outcome.out == (
        "Successfully cancelled log directory moves for: t-0-2\nThrottle was removed.\n"
    )
    assert (outcome.status, outcome.err, cluster.throttled) == (0, "", set())


def test_nothing_to_cancel_is_a_line(cluster, end):
    """And no directory is asked for."""
    outcome = end("--cancel")

    assert cluster.altered == []
    assert outcome.lines[0] == "None of the specified partition moves are active."


@pytest.mark.parametrize("action", ["--cancel", "--verify"])
def test_broker_that_is_away_is_said_to_keep_its_throttle(cluster, end, action):
    """It said that the throttle was removed; the broker came back with it."""
    cluster.away = {2}
    outcome = end(action)

    assert cluster.throttled == {2}
    assert outcome.err == (
        "Brokers 2 do not answer: a throttle that they have stays. Verify again once they are "
        "back.\n"
    )
    cluster.away = set()
    outcome = end(action)
    assert (outcome.err, cluster.throttled) == ("", set())
