"""The parts of a broker, by the names under which handlers and extensions find them.

The broker fills them in while it starts (`Broker.startup`): each hook of an extension says which of
them it may count on. A part that a broker may lack is None there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.config.broker_config import BrokerConfig
    from ottla.controller.controller import Controller
    from ottla.log.log_manager import LogManager
    from ottla.log.replica_moves import ReplicaMoves
    from ottla.registry.token_store import TokenStore
    from ottla.registry.tree import Registry
    from ottla.replication.replica_manager import ReplicaManager
    from ottla.runtime import Runtime
    from ottla.server.apis import Apis
    from ottla.server.authorizer import Authorizer
    from ottla.server.cluster_link import ClusterLink
    from ottla.server.controller_orders import ControllerOrders
    from ottla.server.coordinators import Coordinators
    from ottla.server.dynamic_config import DynamicConfig
    from ottla.server.fetch_session import FetchSessionCache
    from ottla.server.handlers.api_versions import Features
    from ottla.server.handlers.metadata import CreateTopic
    from ottla.server.metadata_cache import MetadataCache


class Parts:
    """Names and types alone; the one class below it is `Broker`."""

    runtime: Runtime
    config: BrokerConfig
    registry: Registry
    apis: Apis
    broker_id: int
    features: Features
    dynamic_config: DynamicConfig
    log_manager: LogManager
    replica_moves: ReplicaMoves
    replica_manager: ReplicaManager
    cache: MetadataCache
    fetch_sessions: FetchSessionCache
    coordinators: Coordinators
    controller: Controller
    orders: ControllerOrders
    create_topic: CreateTopic
    link: ClusterLink | None
    """The ways to other brokers; a single broker has none."""
    authorizer: Authorizer | None
    tokens: TokenStore | None
