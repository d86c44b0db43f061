"""Attaches moves to a broker: those between its log directories, and those that it decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.extensions.moves.reassignment import PartitionReassigner, alter_reassignments
from ottla.extensions.moves.replica_moves import ReplicaMoves
from ottla.server.extension import Extension
from ottla.structs import TopicPartition


class Moves(Extension):
    """The moves between the log directories of a broker, and of partitions, as the controller."""

    replica_moves: ReplicaMoves

    def before_logs(self) -> None:
        logs = self.broker.log_manager
        self.replica_moves = ReplicaMoves(logs)
        logs.attach(self.replica_moves)

    def wrap(self) -> None:
        self.broker.controller.features.append(PartitionReassigner)

    async def reassign(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        """Move partitions, where this broker is the controller."""
        await alter_reassignments(self.broker.controller, targets)
