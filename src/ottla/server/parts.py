"""The parts of a broker, by the names under which handlers and extensions find them.

The broker fills them in while it starts (`Broker.startup`): each hook of an extension says which of
them it may count on. A part that a broker may lack is None there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.config.broker_config import BrokerConfig
    from ottla.controller.controller import Controller
    from ottla.log.log_manager import LogManager
    from ottla.network.processor import Processor
    from ottla.network.request_context import RequestContext
    from ottla.registry.tree import Registry
    from ottla.replication.replica_manager import ReplicaManager
    from ottla.runtime import Runtime
    from ottla.security.scram import FindToken
    from ottla.server.apis import Apis
    from ottla.server.cluster_link import ClusterLink
    from ottla.server.controller_orders import ControllerOrders
    from ottla.server.coordinators import Coordinators
    from ottla.server.dynamic_config import DynamicConfig
    from ottla.server.fetch_session import FetchSessionCache
    from ottla.server.handlers.api_versions import Features
    from ottla.server.handlers.metadata import CreateTopic
    from ottla.server.membership import BrokerState, ClusterMembership
    from ottla.server.metadata_cache import MetadataCache

    MayRead = Callable[[RequestContext, str], bool]

Kind = TypeVar("Kind")


class Parts:
    """Names and types; the one class below it is `Broker`."""

    runtime: Runtime
    config: BrokerConfig
    registry: Registry
    apis: Apis
    processor: Processor
    broker_id: int
    features: Features
    dynamic_config: DynamicConfig
    log_manager: LogManager
    replica_manager: ReplicaManager
    cache: MetadataCache
    fetch_sessions: FetchSessionCache
    coordinators: Coordinators
    controller: Controller
    membership: ClusterMembership
    state: BrokerState
    orders: ControllerOrders
    create_topic: CreateTopic
    link: ClusterLink | None
    """The ways to other brokers; a single broker has none."""
    extensions: Mapping[str, Any]
    """The features of this broker, by the setting that wants each."""
    may_read: MayRead | None = None
    """Whether a client may read a topic; None where rights are not asked for."""
    find_token: FindToken | None = None
    """The login of a delegation token; None where there are none."""

    def find(self, cls: type[Kind]) -> Kind | None:
        """The feature of this class; None where the broker's settings do not want it."""
        return next((each for each in self.extensions.values() if isinstance(each, cls)), None)

    def named(self, name: str) -> Any:
        """The feature whose class has this name, for tools of tests: they import no feature."""
        return next(
            (each for each in self.extensions.values() if type(each).__name__ == name), None
        )
