"""Three brokers on ZooKeeper, each with two disks, for peers that need a cluster."""

from __future__ import annotations

from pathlib import Path

from ottla.testing.processes import BrokerProcess, ClusterProcess

QUICK = {
    "group.min.session.timeout.ms": 1000,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.session.timeout.ms": 10_000,
    "group.consumer.min.session.timeout.ms": 10_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}
"""Nobody who is dead, and nothing that is too late, is waited for long."""


class PeerCluster(ClusterProcess):
    """A cluster whose disks can be looked at."""

    def __init__(self, data_dir: Path, **settings: object) -> None:
        super().__init__(data_dir, **{**QUICK, **settings})

    def add(self, broker_id: int, **overrides: str | int) -> BrokerProcess:
        broker = super().add(broker_id, **overrides)
        broker.overrides["log.dirs"] = ",".join(map(str, self.disks(broker_id)))
        return broker

    def disks(self, broker_id: int) -> list[Path]:
        return [self.data_dir / f"broker-{broker_id}-{name}" for name in ("one", "two")]

    def folder(self, broker_id: int, partition: str) -> Path:
        """Where a broker has a partition, as `topic-0`."""
        places = [disk / partition for disk in self.disks(broker_id)]
        (found,) = [place for place in places if place.exists()]
        return found
