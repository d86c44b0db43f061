"""What replication needs to know of the other brokers, and its ways to reach them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from ottla.protocol.message import Request, Response
from ottla.replication.isr_channel import IsrChannel
from ottla.structs import Node


class LeaderConnection(Protocol):
    """A connection to the broker that leads: opened when needed, requests in order."""

    async def ready(self) -> None: ...

    def send(self, request: Request, version: int, timeout_ms: int) -> asyncio.Future[Response]: ...

    def version_of(self, request: type[Request], low: int = 0, high: int = 1 << 15) -> int: ...

    def close(self, reason: str) -> None: ...


class Cluster(NamedTuple):
    """The rest of the cluster as one broker's replicas see it.

    `live_brokers` are those that the controller has told of, by id; `broker_epoch` is that of this
    broker's own registration.
    """

    isr_channel: IsrChannel
    connect: Callable[[Node], LeaderConnection]
    live_brokers: Callable[[], Mapping[int, Node]]
    broker_epoch: Callable[[], int]
