"""How a broker joins the cluster: the cluster's id, its own id, and its node in the registry."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.registry import paths
from ottla.registry.tree import (
    Create,
    NodeExistsError,
    NoNodeError,
    Registry,
    RegistryFailedError,
    ensure_path,
)
from ottla.registry.znodes import BrokerNode, decode_cluster_id, encode_cluster_id, unreadable
from ottla.structs import BrokerEndPoints, EndPoint, encode_uuid

logger = logging.getLogger(__name__)

PLAINTEXT: Final = "PLAINTEXT"


def random_uuid(getrandbits: Callable[[int], int]) -> UUID:
    """A random id whose text does not begin with a dash, which command lines would misread."""
    while True:
        value = UUID(int=getrandbits(128), version=4)
        if not encode_uuid(value).startswith("-"):
            return value


async def ensure_persistent_paths(registry: Registry) -> None:
    """Create the parent nodes of all others, where the cluster is new: all in one write."""
    wanted = dict.fromkeys(above for path in paths.PERSISTENT for above in _way_to(path))
    missing = [path for path in wanted if await registry.exists(path) is None]
    if not missing:
        return
    try:
        await registry.multi([Create(path, b"") for path in missing])
    except NodeExistsError:  # another broker starts too
        for path in missing:
            await ensure_path(registry, path)


def _way_to(path: str) -> list[str]:
    """The nodes above a node, the uppermost first, and the node itself."""
    return [path[:end] for end, letter in enumerate(path) if letter == "/" and end] + [path]


async def ensure_cluster_id(
    registry: Registry, getrandbits: Callable[[int], int], wanted: str | None = None
) -> str:
    """The id of the cluster: made by the first broker, and never changed.

    `wanted` is the id of an earlier cluster without this registry, whose logs are taken over.
    """
    try:
        data, _ = await registry.get(paths.CLUSTER_ID)
    except NoNodeError:
        cluster_id = wanted or encode_uuid(random_uuid(getrandbits))
        try:
            await registry.create(paths.CLUSTER_ID, encode_cluster_id(cluster_id))
            return cluster_id
        except NodeExistsError:  # another broker was faster
            data, _ = await registry.get(paths.CLUSTER_ID)
    return decode_cluster_id(data)


async def generate_broker_id(registry: Registry, config: BrokerConfig) -> int:
    """An id above reserved.broker.max.id that no broker of the cluster was given before."""
    stat = await registry.set(paths.BROKER_SEQUENCE, b"")
    return config.reserved_broker_max_id + stat.version


def broker_node(end_points: Sequence[EndPoint], now_ms: int, rack: str | None = None) -> bytes:
    """The content of a broker's node; `end_points` have real hosts and ports."""
    plain = next((end for end in end_points if end.security_protocol == PLAINTEXT), None)
    node = BrokerNode(
        endpoints=tuple(map(str, end_points)),
        protocols={end.listener_name: end.security_protocol for end in end_points},
        host=plain.host if plain else None,
        port=plain.port if plain else -1,
        timestamp_ms=now_ms,
        rack=rack,
    )
    return node.encode()


async def register_broker(
    registry: Registry,
    broker_id: int,
    end_points: Sequence[EndPoint],
    now_ms: int,
    rack: str | None = None,
) -> int:
    """Make the ephemeral node of this broker; returns the broker's epoch (KIP-380).

    DUPLICATE_BROKER_REGISTRATION where a broker of this id lives.
    """
    path = paths.broker(broker_id)
    data = broker_node(end_points, now_ms, rack)
    try:
        await registry.create(path, data, ephemeral=True)
    except NodeExistsError:
        raise id_taken(broker_id) from None
    stat = await registry.exists(path)
    assert stat is not None, "the node lives as long as this broker's session"
    return stat.created_id


def id_taken(broker_id: int) -> KafkaError:
    return KafkaError(
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        f"broker.id={broker_id}: a broker of this id is registered already",
    )


async def live_brokers(registry: Registry) -> dict[int, BrokerEndPoints]:
    """The registered brokers by id, each with its epoch and its listeners."""
    brokers = {}
    for name in await registry.children(paths.BROKER_IDS):
        if not name.isdecimal():
            logger.error("%s/%s is no broker: its name is no id", paths.BROKER_IDS, name)
            continue
        broker_id = int(name)
        try:
            data, stat = await registry.get(paths.broker(broker_id))
            brokers[broker_id] = broker_end_points(broker_id, data, stat.created_id)
        except NoNodeError:
            continue  # it went away between the two calls
        except RegistryFailedError:
            raise
        except KafkaError as error:
            logger.error("broker %d is taken for dead: %s", broker_id, error)
    return dict(sorted(brokers.items()))


def broker_end_points(broker_id: int, data: bytes, epoch: int) -> BrokerEndPoints:
    """A registered broker as its node describes it."""
    node = BrokerNode.decode(broker_id, data)
    end_points = []
    for text in node.endpoints:
        name, separator, address = text.partition("://")
        host, _, port = address.rpartition(":")
        if separator and port.isdecimal():
            protocol = node.protocols.get(name, PLAINTEXT)
            end_points.append(EndPoint(name, protocol, host.strip("[]"), int(port)))
    if not end_points:
        raise unreadable(f"broker {broker_id}", data)
    return BrokerEndPoints(broker_id, epoch, tuple(end_points), node.rack)
