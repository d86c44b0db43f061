"""The broker: builds all parts of one Ottla process, and starts them in order.

locks and ids of the log directories -> registry -> overrides -> logs (recovery)
    -> listeners -> registration -> controller: leaders and groups -> clients are served
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.config.broker_config import BrokerConfig
from ottla.config.network_config import LOOPBACK_NAME
from ottla.config.topic_config import TopicConfig
from ottla.controller.broker_registration import (
    ensure_cluster_id,
    ensure_persistent_paths,
    generate_broker_id,
)
from ottla.controller.controller import Controller
from ottla.controller.log_dir_contents import (
    check_with_registry,
    check_without_registry,
    reserve_producer_ids,
)
from ottla.log.log_manager import LogManager
from ottla.network.broker_tls import BrokerTls
from ottla.network.listener_security import BrokerLogins, UserSettings
from ottla.network.processor import Processor
from ottla.network.socket_config import network_config
from ottla.registry.tree import Registry
from ottla.replication.replica_manager import ReplicaManager
from ottla.runtime import Runtime
from ottla.server.apis import Apis
from ottla.server.broker_listeners import BrokerListeners
from ottla.server.broker_settings import BrokerSettings
from ottla.server.brokers_only import keep_to_brokers
from ottla.server.controller_orders import ControllerOrders, OrdersToOwnBroker
from ottla.server.coordinators import Coordinators
from ottla.server.dynamic_config import DynamicConfig
from ottla.server.extension import Extension, attach, late_families
from ottla.server.fetch_session import FetchSessionCache
from ottla.server.handlers import families
from ottla.server.handlers.api_versions import Features
from ottla.server.log_dir_failure_handler import LogDirFailureHandler
from ottla.server.membership import BrokerState, ClusterMembership, cluster_registry
from ottla.server.metadata_cache import MetadataCache
from ottla.server.parts import Parts
from ottla.structs import ClientEntity, EndPoint

if TYPE_CHECKING:
    from ottla.log.log_dir import MetaProperties
    from ottla.server.cluster_link import ClusterLink

logger = logging.getLogger(__name__)

STOP_TIMEOUT_MS: Final = 5_000
MakeProcessor = Callable[..., Any]
"""The class `Processor`, or what takes its place where there are no sockets."""


class Broker(Parts):
    """One member of a cluster, which it finds through the registry; it may be the only one.

    With the embedded registry it is: the controller, and the leader of every partition.
    """

    extensions: Mapping[str, Extension]

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        *,
        registry: Registry | None = None,
        make_processor: MakeProcessor = Processor,
    ) -> None:
        self.config = config
        self.runtime = runtime
        self.registry = registry or cluster_registry(runtime, config)
        self._make_processor = make_processor
        self.broker_id = config.broker_id
        self.log_dir_failures = LogDirFailureHandler(runtime, config)
        self.state = BrokerState.NOT_RUNNING
        self.tls = BrokerTls(config)  # bad keys are reported before anything begins
        self.extensions = attach(self)
        self.logins = BrokerLogins(config, self._users())

    @property
    def end_points(self) -> list[EndPoint]:
        """The addresses that the broker advertises, with real ports."""
        return self.listeners.end_points

    def _users(self) -> UserSettings:
        """Quotas and credentials of users, as they are at each look."""
        return UserSettings(
            lambda name: self.dynamic_config.client_overrides(ClientEntity(user=name)),
            lambda: [each.user for each in self.dynamic_config.client_entities if each.user],
            self.find_token,
            lambda: self.dynamic_config.client_change_count,
        )

    async def startup(self) -> None:
        """Take the log directories over, recover them, and serve clients."""
        self.state = BrokerState.STARTING
        try:
            for extension in self.extensions.values():
                await extension.start()
            await self._start_parts()
        except BaseException:
            await self.registry.close()  # or the cluster would think that the broker lives
            await self.close_extensions()
            raise
        self.state = BrokerState.RUNNING

    async def close_extensions(self) -> None:
        """Let features show the end, once all else has ended."""
        for extension in self.extensions.values():
            await extension.close()

    async def _start_parts(self) -> None:
        config, runtime = self.config, self.runtime
        failures = self.log_dir_failures
        check_without_registry(runtime.disk, config)
        self.log_manager = LogManager(runtime, config, self._topic_config, failures.on_failure)
        for extension in self.extensions.values():
            extension.before_logs()
        owner = self.log_manager.acquire()
        failures.check_registry_dir(self.log_manager)
        await self.registry.start()
        cluster_id = await self._identify(owner)
        await check_with_registry(runtime.disk, config, self.registry)
        self.dynamic_config = DynamicConfig(runtime, self.registry, config, self.broker_id)
        self.dynamic_config.check_key_stores = self.tls.check
        for extension in self.extensions.values():
            await extension.before_clients()
        await self.dynamic_config.start()
        self.features = Features(runtime, self.registry)
        await self.features.start()
        self.log_manager.update_all_configs(self.dynamic_config.broker_config)
        self.state = BrokerState.RECOVERY
        await self.log_manager.startup()
        self.state = BrokerState.STARTING
        await reserve_producer_ids(self.registry, self.broker_id, self.log_manager.all_logs())
        for extension in self.extensions.values():
            await extension.after_logs()
        self.cache = MetadataCache(cluster_id)
        slots = config.max_incremental_fetch_session_cache_slots
        is_other = partial(self.cache.is_other, self.broker_id)
        self.fetch_sessions = FetchSessionCache(runtime, slots, self.cache.topic_name, is_other)
        self.replica_manager = ReplicaManager(
            runtime, self.log_manager, self.broker_id, self.cache.contains
        )
        if config.zookeeper_connect is not None:
            from ottla.server.lost_logs import LostLogs  # a single broker has nobody to wait for

            self.replica_manager.lost_logs = await LostLogs(self).wait()
        self.apis = Apis(runtime)
        self._listen()
        await self._join_cluster()
        self.logins.start(runtime)
        self.processor.start()
        self.tls.start(runtime)
        if self.link is not None:
            await self.link.wait_for_metadata()

    async def _identify(self, owner: MetaProperties | None) -> str:
        """Take the broker's id, of the settings, of the log directories or a new one.

        The answer is the cluster's id; the log directories are claimed for both.
        """
        config = self.config
        await ensure_persistent_paths(self.registry)
        known_id = owner.cluster_id if owner and config.zookeeper_connect is None else None
        random = self.runtime.random.getrandbits
        cluster_id = await ensure_cluster_id(self.registry, random, known_id)
        if self.broker_id < 0 and owner is not None:
            self.broker_id = owner.broker_id
        if self.broker_id < 0:
            self.broker_id = await generate_broker_id(self.registry, config)
        self.log_manager.claim(self.broker_id, cluster_id)
        return cluster_id

    def _listen(self) -> None:
        """Open the listeners; clients wait there until all parts are made."""
        network = network_config(self.config, self.tls, self.logins)
        self.processor = self._make_processor(
            self.runtime, network, self.apis.on_request, self.replica_manager.complete_delayed
        )
        self.processor.max_frame_bytes = self.apis.max_frame_bytes
        self.listeners = BrokerListeners(
            self.runtime, self.processor, network, self.tls, self.logins
        )
        self.listeners.open(self.config)
        if not self.config.is_given("listeners") and self.config.listeners[0].host == LOOPBACK_NAME:
            logger.info(
                "This machine alone is served, as no listeners are set; a line such as "
                "listeners=PLAINTEXT://:9092 in the broker's file lets others in"
            )

    async def _join_cluster(self) -> None:
        """Build coordinators, controller and handlers; then register and stand for election."""
        config, runtime = self.config, self.runtime
        link = self.link = self._cluster_link()
        replicas, group_config = self.replica_manager, self.dynamic_config.group_config
        self.coordinators = coordinators = Coordinators(
            runtime, config, replicas, self.cache, self.registry, group_config
        )
        orders = ControllerOrders(self.replica_manager, self.cache, coordinators, runtime.scheduler)
        local = OrdersToOwnBroker(orders, self.broker_id)
        to_all = local if link is None else link.orders_to_brokers(local)
        self.controller = Controller(runtime, self.registry, config, to_all, self.broker_id)
        create_topic = self.controller.auto_create_topic
        if link is not None:
            create_topic = link.create_topic
            link.serve(self.controller)
            self.replica_manager.join_cluster(link.replication())
        self.orders, self.create_topic = orders, create_topic
        for family in (*families(self), *late_families(self)):
            self.apis.register(family)
        more = map(str.upper, config.ottla_inter_broker_listener_names)
        between = config.inter_broker_listener_name, *more
        keep_to_brokers(self.apis, *between, has_rights=config.enforces_rights)
        for extension in self.extensions.values():
            extension.wrap()
        BrokerSettings(self, self.listeners, self.tls).follow()
        for extension in self.extensions.values():
            extension.begin()
        coordinators.startup()
        self.replica_manager.startup()
        self.membership = ClusterMembership(
            runtime,
            self.registry,
            config,
            self.controller,
            self.listeners.end_points,
            self.cache.cluster_id,
        )
        await self.membership.join()
        self.replica_manager.absences.ask(runtime.scheduler, self.membership.has_own_node)
        self.log_dir_failures.serve(self.replica_manager, self.controller)

    def _cluster_link(self) -> ClusterLink | None:
        """The parts that a broker needs where the cluster may have others."""
        if self.config.zookeeper_connect is None:
            return None
        # Imported only here: a single broker saves the time and the memory.
        from ottla.server.cluster_link import ClusterLink

        tls = self.tls.of_brokers
        return ClusterLink(
            self.runtime,
            self.config,
            self.registry,
            self.cache,
            self.broker_id,
            lambda: self.membership.broker_epoch,
            None if tls is None else tls.current,
        )

    async def shutdown(self) -> None:
        """Hand leaders over, stop serving, flush the logs and leave the mark of a clean stop."""
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self.replica_manager.is_leaving = True
        if self.link is not None and not self.log_dir_failures.is_fatal:
            await self.link.controlled_shutdown()
        self.state = BrokerState.SHUTTING_DOWN
        for extension in self.extensions.values():
            await extension.leave()
        self.membership.leave()
        self.controller.shutdown()
        # Waiting clients are answered first; else the processor would wait for them.
        self.coordinators.shutdown()
        self.replica_manager.shutdown()
        await self.processor.stop(STOP_TIMEOUT_MS)
        self.dynamic_config.stop()
        self.tls.stop()
        self.features.stop()
        for extension in self.extensions.values():
            extension.stop()
        if self.link is not None:
            self.link.close()
        await self.registry.close()
        await self.log_manager.shutdown()
        await self.close_extensions()
        await self.runtime.close()

    def _topic_config(self, topic: str) -> TopicConfig:
        return self.dynamic_config.topic_config(topic)
