"""The throttle of moves: which replicas it names, and that it is in force before they begin."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla.cli import reassignment_throttle
from ottla.cli.command_error import CommandError
from ottla.cli.reassignment_throttle import FOLLOWERS, LEADERS, RATES, ReassignmentThrottle
from ottla.clients.admin.descriptions import ConfigResource
from ottla.structs import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class SlowCluster:
    """Brokers 1 and 2, the second of which hears of changes late."""

    def __init__(self, late_answers: float) -> None:
        self.late_answers = late_answers
        self.changes = {}

    def describe_cluster(self):
        return SimpleNamespace(nodes=[SimpleNamespace(id=1), SimpleNamespace(id=2)])

    def incremental_alter_configs(self, changes):
        for resource, operations in changes.items():
            self.changes[resource] = {each.name: each.value for each in operations}

    def describe_configs(self, resources):
        self.late_answers -= 1
        late = {ConfigResource.broker(2)} if self.late_answers >= 0 else set()
        return {
            each: {
                key: SimpleNamespace(value="1" if each in late else self.changes[each][key])
                for key in RATES
            }
            for each in resources
        }


def test_old_replicas_give_and_new_ones_take(monkeypatch):
    """Every broker has the rate when it returns."""
    pauses = []
    monkeypatch.setattr(reassignment_throttle.time, "sleep", pauses.append)
    cluster = SlowCluster(late_answers=2)
    ReassignmentThrottle(cluster).limit(500, {T0: (1,), T1: (1, 2)}, {T0: (2,), T1: (2, 1)})

    assert cluster.changes == {
        ConfigResource.topic("t"): {LEADERS: "0:1,1:1,1:2", FOLLOWERS: "0:2"},
        ConfigResource.broker(1): dict.fromkeys(RATES, "500"),
        ConfigResource.broker(2): dict.fromkeys(RATES, "500"),
    }
    assert len(pauses) == 2


def test_broker_that_does_not_hear_of_it_is_named(monkeypatch):
    """Nothing begins to move without a limit."""
    monkeypatch.setattr(reassignment_throttle, "LIMIT_S", 0.0)
    monkeypatch.setattr(reassignment_throttle.time, "sleep", lambda seconds: None)
    with pytest.raises(CommandError, match="brokers 2 do not know of the throttle yet"):
        ReassignmentThrottle(SlowCluster(float("inf"))).limit(500, {T0: (1,)}, {T0: (2,)})
