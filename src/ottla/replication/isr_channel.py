"""How a leader has the in-sync replicas of its partition changed: only the controller can."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.structs import LeaderAndIsr, TopicPartition

OnIsrChanged = Callable[[LeaderAndIsr | ErrorCode], object]


class IsrChannel(Protocol):
    """Carries AlterPartition (KIP-497) to the controller, whichever broker that is."""

    def alter_isr(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        state: LeaderAndIsr,
        broker_epochs: Mapping[int, int],
        on_done: OnIsrChanged,
    ) -> None:
        """Ask for the in-sync replicas of `state`, whose version is the one that they replace.

        `on_done` is called once: with the state that the controller has written, its version
        included, or with the reason why it did not. Errors that a retry may mend are retried below.
        `broker_epochs` has the registration of each proposed replica, -1 where it is not known
        (KIP-903).
        """
        ...
