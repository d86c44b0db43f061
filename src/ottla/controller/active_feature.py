"""The contract of features that attach to the active controller, as reassignments do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from ottla.controller.controller_core import ControllerCore
from ottla.structs import TopicPartition


class ActiveFeature:
    """A feature of the active controller, in one epoch; every hook does nothing by default.

    A hook is a part of an event: it reads the context, writes the registry, then changes the
    context. Its additions to the batch are sent at the end of the event.
    """

    def __init__(self, core: ControllerCore) -> None:
        self.core = core
        self.context = core.context

    def nodes(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """The nodes by which tools make requests, and the reader of each."""
        return {}

    async def load(self) -> None:
        """Continue a predecessor's work: all is known, and leaders are elected."""

    async def on_replicas_online(self, partitions: Iterable[TopicPartition]) -> None:
        """Brokers have come that have replicas of these partitions."""

    async def on_isr_changes(self, partitions: Iterable[TopicPartition]) -> None:
        """Leaders have changed the in-sync replicas of these partitions."""

    def after_event(self) -> None:
        """An event has ended; it may have changed the context."""


NewFeature = Callable[[ControllerCore], ActiveFeature]
