"""Request handlers, one file for each family of APIs, and the table of the parts that each of them
needs.

A class names in `apis()` the APIs that it serves. It stands in the table below, once, with the
parts of the broker that it works with: a handler is made nowhere else.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.topic_name import validate_topic_name
from ottla.server.api import LateFamily
from ottla.server.handlers.api_versions import ApiVersionsHandler, FeaturesHandler
from ottla.server.handlers.fetch import FetchHandler
from ottla.server.handlers.metadata import MetadataHandler
from ottla.server.handlers.produce import ProduceHandler
from ottla.server.handlers.transactional_produce import TransactionalProduce
from ottla.server.metadata_cache import CurrentLeaders

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.coordinator.group.registry_offsets import RegistryOffsets
    from ottla.server.api import ApiFamily, WholeFamily
    from ottla.server.cluster_link import ClusterLink
    from ottla.server.controller_orders import ControllerOrders
    from ottla.server.coordinators import Coordinators
    from ottla.server.handlers.metadata import CreateTopic
    from ottla.server.parts import Parts


TOPICS: Final = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.CREATE_PARTITIONS,
)
CONFIGS: Final = (
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.LIST_CLIENT_METRICS_RESOURCES,
)
GROUPS: Final = (
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.DELETE_GROUPS,
)
CONSUMER_GROUPS: Final = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE)
TRANSACTIONS: Final = (
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT,
)


def families(has: Parts) -> tuple[ApiFamily, ...]:
    """The table: every family of handlers, made of the parts it needs.

    The requests of every client are served by the first; the others are imported when they are
    asked.
    """
    config, cache, replicas = has.config, has.cache, has.replica_manager
    leaders = CurrentLeaders(replicas, cache)
    transactional = TransactionalProduce(replicas, has.coordinators.verifier)
    return (
        ApiVersionsHandler(has.apis.supported, has.features),
        FeaturesHandler(has.features),
        ProduceHandler(replicas, transactional, leaders, cache.topic_name),
        FetchHandler(replicas, has.fetch_sessions, leaders, config.fetch_max_bytes, has.may_read),
        MetadataHandler(
            cache,
            config.auto_create_topics_enable,
            has.create_topic,
            validate_topic_name,
            config.max_request_partition_size_limit,
            has.apis.slices,
            None if has.link is None else has.link.until_told,
        ),
        *of_topics(has),
        *of_groups(has.coordinators, has.create_topic, partial(registry_offsets, has)),
        *of_transactions(has.coordinators),
        *(() if has.link is None else of_cluster(has.link, has.orders)),
    )


def of_topics(has: Parts) -> tuple[ApiFamily, ...]:
    """The rows of topics, of their settings and those of all else, and of where they are."""

    def topics() -> WholeFamily:
        from ottla.server.handlers.topics import TopicsHandler

        return TopicsHandler(has.runtime, has.controller, has.replica_manager, has.dynamic_config)

    def list_offsets() -> WholeFamily:
        from ottla.server.handlers.list_offsets import ListOffsetsHandler

        return ListOffsetsHandler(has.replica_manager, has.apis.slices)

    def leader_epochs() -> WholeFamily:
        from ottla.server.handlers.leader_epochs import LeaderEpochHandler

        return LeaderEpochHandler(has.replica_manager)

    def configs() -> WholeFamily:
        from ottla.server.handlers.configs import ConfigsHandler

        return ConfigsHandler(has.dynamic_config, has.cache)

    def log_dirs() -> WholeFamily:
        from ottla.server.handlers.log_dirs import LogDirsHandler

        return LogDirsHandler(has.log_manager, has.apis.slices)

    def elections() -> WholeFamily:
        from ottla.server.handlers.elections import ElectionsHandler

        return ElectionsHandler(has.controller, has.apis.slices)

    return (
        LateFamily(topics, *TOPICS),
        LateFamily(list_offsets, ApiKey.LIST_OFFSETS),
        LateFamily(leader_epochs, ApiKey.OFFSET_FOR_LEADER_EPOCH),
        LateFamily(configs, *CONFIGS),
        LateFamily(log_dirs, ApiKey.DESCRIBE_LOG_DIRS, narrowed={ApiKey.DESCRIBE_LOG_DIRS: (0, 4)}),
        LateFamily(elections, ApiKey.ELECT_LEADERS),
    )


def registry_offsets(has: Parts) -> RegistryOffsets:
    """The offsets of requests of version 0, which are kept in the registry."""
    from ottla.coordinator.group.registry_offsets import RegistryOffsets

    return RegistryOffsets(has.registry, has.config.offset_metadata_max_bytes)


def of_groups(
    coordinators: Coordinators,
    create_topic: CreateTopic,
    offsets_of_version_0: Callable[[], RegistryOffsets],
) -> tuple[ApiFamily, ...]:
    """The rows of groups and their offsets, and of where they and transactions are."""
    runtime, cache = coordinators.runtime, coordinators.cache

    def find_coordinator() -> WholeFamily:
        from ottla.server.handlers.find_coordinator import of_broker

        return of_broker(coordinators, create_topic)

    def groups() -> WholeFamily:
        from ottla.server.handlers.group import GroupHandlers

        return GroupHandlers(coordinators.groups, runtime.slices)

    def consumer_groups() -> WholeFamily:
        from ottla.server.handlers.consumer_group import ConsumerGroupHandlers

        return ConsumerGroupHandlers(coordinators.groups, runtime.slices)

    def offsets() -> WholeFamily:
        from ottla.server.handlers.offsets import OffsetHandlers

        old = offsets_of_version_0()
        names = cache.topic_id, cache.topic_name
        return OffsetHandlers(coordinators.groups, runtime.clock, *names, old, runtime.slices)

    return (
        LateFamily(find_coordinator, ApiKey.FIND_COORDINATOR),
        LateFamily(groups, *GROUPS),
        *(
            [LateFamily(consumer_groups, *CONSUMER_GROUPS)]
            if coordinators.serves_consumer_protocol
            else ()
        ),
        LateFamily(offsets, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE),
    )


def of_transactions(coordinators: Coordinators) -> tuple[ApiFamily, ...]:
    """The rows of transactions and of the ids of producers."""
    clock = coordinators.runtime.clock

    def producer_ids() -> WholeFamily:
        from ottla.server.handlers.producer_ids import ProducerIdHandlers

        return ProducerIdHandlers(coordinators.producer_ids, coordinators.transactions)

    def transactions() -> WholeFamily:
        from ottla.server.handlers.transactions import TransactionHandlers

        return TransactionHandlers(
            coordinators.transactions,
            coordinators.groups,
            coordinators.verifier,
            coordinators.markers,
            clock,
            coordinators.cache.topic_id,
            coordinators.cache.topic_name,
        )

    def views() -> WholeFamily:
        from ottla.server.handlers.transaction_views import TransactionViewHandlers

        replicas = coordinators.replica_manager
        return TransactionViewHandlers(coordinators.transactions, replicas, coordinators.runtime)

    return (
        LateFamily(producer_ids, ApiKey.INIT_PRODUCER_ID),
        LateFamily(transactions, *TRANSACTIONS),
        LateFamily(
            views,
            ApiKey.DESCRIBE_PRODUCERS,
            ApiKey.DESCRIBE_TRANSACTIONS,
            ApiKey.LIST_TRANSACTIONS,
        ),
    )


def of_cluster(link: ClusterLink, orders: ControllerOrders) -> tuple[ApiFamily, ...]:
    """The rows of requests between brokers and the controller."""
    # Imported only here: a single broker saves the time and the memory.
    from ottla.server.handlers.controller_orders import ControllerOrdersHandler

    return (ControllerOrdersHandler(orders, link.broker_epoch), link.requests_of_brokers)
