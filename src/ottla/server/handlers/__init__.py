"""Request handlers, one file for each family of APIs, and the table of what each of them needs.

A class says in `apis()` what it serves. It stands in the table below, once, with the parts of the
broker that it works with: a handler is made nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.offsets import RegistryOffsets
from ottla.log.log_dir import validate_topic_name
from ottla.protocol.group import KEY_TYPE_GROUP, KEY_TYPE_TRANSACTION
from ottla.server.handlers.acls import AclsHandler
from ottla.server.handlers.api_versions import ApiVersionsHandler, FeaturesHandler
from ottla.server.handlers.client_quotas import ClientQuotasHandler
from ottla.server.handlers.configs import ConfigsHandler
from ottla.server.handlers.delegation_tokens import DelegationTokensHandler
from ottla.server.handlers.fetch import FetchHandler
from ottla.server.handlers.group import (
    ConsumerGroupHandlers,
    FindCoordinatorHandler,
    GroupHandlers,
    KeyType,
)
from ottla.server.handlers.log_dirs import LogDirsHandler
from ottla.server.handlers.metadata import CreateTopic, MetadataHandler
from ottla.server.handlers.offsets import LeaderEpochHandler, ListOffsetsHandler, OffsetHandlers
from ottla.server.handlers.produce import ProduceHandler, TransactionalProduce
from ottla.server.handlers.reassignments import ReassignmentsHandler
from ottla.server.handlers.sasl import SaslHandlers, ScramUsersHandler
from ottla.server.handlers.topics import TopicsHandler
from ottla.server.handlers.transactions import (
    ProducerIdHandlers,
    TransactionHandlers,
    TransactionViewHandlers,
)
from ottla.server.metadata_cache import CurrentLeaders, MetadataCache
from ottla.structs import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Value

if TYPE_CHECKING:
    from ottla.config.broker_config import BrokerConfig
    from ottla.controller.controller import Controller
    from ottla.log.log_manager import LogManager
    from ottla.log.replica_moves import ReplicaMoves
    from ottla.registry.token_store import TokenStore
    from ottla.registry.tree import Registry
    from ottla.replication.replica_manager import ReplicaManager
    from ottla.runtime import Runtime
    from ottla.server.apis import ApiFamily, Apis
    from ottla.server.authorizer import Authorizer
    from ottla.server.cluster_link import ClusterLink
    from ottla.server.controller_orders import ControllerOrders
    from ottla.server.coordinators import Coordinators
    from ottla.server.dynamic_config import DynamicConfig
    from ottla.server.fetch_session import FetchSessionCache
    from ottla.server.handlers.api_versions import Features


class Parts(Value, frozen=True):
    """The parts of a broker that handlers work with; a single broker has no link to a cluster."""

    runtime: Runtime
    config: BrokerConfig
    registry: Registry
    apis: Apis
    features: Features
    settings: DynamicConfig
    logs: LogManager
    moves: ReplicaMoves
    replicas: ReplicaManager
    cache: MetadataCache
    fetch_sessions: FetchSessionCache
    coordinators: Coordinators
    controller: Controller
    orders: ControllerOrders
    create_topic: CreateTopic
    link: ClusterLink | None
    authorizer: Authorizer | None
    tokens: TokenStore | None


def families(has: Parts) -> tuple[ApiFamily, ...]:
    """The table: every family of handlers, made of what it needs."""
    runtime, config, cache, replicas = has.runtime, has.config, has.cache, has.replicas
    leaders = CurrentLeaders(replicas, cache)
    transactional = TransactionalProduce(replicas, has.coordinators.verifier)
    return (
        ApiVersionsHandler(has.apis.supported, has.features),
        FeaturesHandler(has.features),
        ProduceHandler(replicas, transactional, leaders),
        FetchHandler(replicas, has.fetch_sessions, leaders, config.fetch_max_bytes, has.authorizer),
        ListOffsetsHandler(replicas),
        LeaderEpochHandler(replicas),
        MetadataHandler(
            cache,
            config.auto_create_topics_enable,
            has.create_topic,
            validate_topic_name,
            config.max_request_partition_size_limit,
        ),
        AclsHandler(has.authorizer),
        SaslHandlers(),
        ScramUsersHandler(has.settings, lambda: has.controller.is_active),
        DelegationTokensHandler(
            has.tokens,
            runtime.clock,
            config.delegation_token_max_lifetime_ms,
            config.delegation_token_expiry_time_ms,
        ),
        ReassignmentsHandler(has.controller),
        TopicsHandler(runtime, has.controller, replicas, has.settings),
        ConfigsHandler(has.settings, cache),
        ClientQuotasHandler(has.settings),
        LogDirsHandler(has.logs, has.moves, replicas),
        *of_coordinators(
            has.coordinators,
            has.create_topic,
            RegistryOffsets(has.registry, config.offset_metadata_max_bytes),
        ),
        *(() if has.link is None else of_cluster(has.link, has.orders)),
    )


def of_coordinators(
    coordinators: Coordinators,
    create_topic: CreateTopic,
    offsets: RegistryOffsets,
) -> tuple[ApiFamily, ...]:
    """The rows of groups and transactions; requests of version 0 have offsets of their own."""
    runtime, cache = coordinators.runtime, coordinators.cache
    groups, transactions = coordinators.groups, coordinators.transactions
    key_types = {
        KEY_TYPE_GROUP: KeyType(OFFSETS_TOPIC, groups.partition_for, may_be_empty=True),
        KEY_TYPE_TRANSACTION: KeyType(TRANSACTIONS_TOPIC, transactions.partition_for),
    }
    return (
        FindCoordinatorHandler(key_types, cache, runtime.scheduler, create_topic),
        GroupHandlers(groups),
        ConsumerGroupHandlers(groups),
        OffsetHandlers(groups, runtime.clock, cache.contains, offsets),
        ProducerIdHandlers(coordinators.producer_ids, transactions),
        TransactionHandlers(
            transactions,
            groups,
            coordinators.verifier,
            coordinators.markers,
            runtime.clock,
            cache.contains,
        ),
        TransactionViewHandlers(transactions, coordinators.replica_manager, runtime.clock),
    )


def of_cluster(link: ClusterLink, orders: ControllerOrders) -> tuple[ApiFamily, ...]:
    """The rows of what brokers and the controller ask of each other."""
    # Imported only here: a single broker saves the time and the memory.
    from ottla.server.handlers.controller_orders import ControllerOrdersHandler

    return (ControllerOrdersHandler(orders, link.broker_epoch), link.requests_of_brokers)
