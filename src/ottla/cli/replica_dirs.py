"""Moves of replicas between log directories of a broker, for `reassign-partitions`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.cli.command_error import CommandError
from ottla.clients.admin.log_dirs import TopicPartitionReplica
from ottla.errors import ErrorCode
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from ottla import Admin
    from ottla.clients.admin.log_dirs import LogDirs


Replica = tuple[TopicPartition, int]
TargetDirs = Mapping[Replica, str]


class ReplicaDirs:
    """The log directories that the replicas of a plan are in, and move to."""

    def __init__(self, admin: Admin) -> None:
        self.admin = admin

    def move(self, wanted: TargetDirs) -> list[str]:
        """Start the moves and return the names of the replicas that move.

        A replica that its broker does not have yet will be created in its directory.
        """
        targets = {
            TopicPartitionReplica(partition.topic, partition.partition, broker): path
            for (partition, broker), path in wanted.items()
        }
        outcomes = self.admin.alter_replica_log_dirs(targets)
        for replica, error in outcomes.items():
            if error is not None and error.error is not ErrorCode.REPLICA_NOT_AVAILABLE:
                raise CommandError(f"{replica} cannot move to {targets[replica]}: {error}")
        return sorted(str(replica) for replica, error in outcomes.items() if error is None)

    def cancel(self, replicas: Iterable[Replica]) -> list[str]:
        """Have those of the replicas that move stay where they are; returns their names."""
        wanted = set(replicas)
        described = self._described(wanted)
        moving = _places(described, wanted, are_future=True)
        here = _places(described, wanted, are_future=False)
        targets = {each: here[each] for each in moving if each in here}
        return self.move(targets) if targets else []

    def current(self, replicas: Iterable[Replica]) -> dict[Replica, str]:
        """The directories that replicas are in now, of those that can be found."""
        wanted = set(replicas)
        return _places(self._described(wanted), wanted, are_future=False)

    def statuses(self, wanted: TargetDirs) -> dict[str, str]:
        """The state of each replica's move, by the name of the replica."""
        described = self._described(wanted)
        return {
            f"{partition}-{broker}": _status(described.get(broker, {}), partition, path)
            for (partition, broker), path in sorted(wanted.items())
        }

    def _described(self, replicas: Iterable[Replica]) -> dict[int, LogDirs]:
        alive = {node.id for node in self.admin.describe_cluster().nodes}
        brokers = {broker for _, broker in replicas} & alive
        return self.admin.describe_log_dirs(sorted(brokers)) if brokers else {}


def _places(
    described: Mapping[int, LogDirs], wanted: Collection[Replica], *, are_future: bool
) -> dict[Replica, str]:
    """The directories of replicas, or those to which they move."""
    return {
        (partition, broker): path
        for broker, log_dirs in described.items()
        for path, log_dir in log_dirs.items()
        for partition, replica in log_dir.replicas.items()
        if replica.is_future is are_future and (partition, broker) in wanted
    }


IN_PROGRESS = "is still in progress"
COMPLETED = "completed successfully"


def _status(log_dirs: LogDirs, partition: TopicPartition, path: str) -> str:
    found = {
        each: described.replicas[partition]
        for each, described in log_dirs.items()
        if partition in described.replicas
    }
    wanted = path.rstrip("/") or "/"
    if wanted in found:
        return IN_PROGRESS if found[wanted].is_future else COMPLETED
    return "failed"
