"""The types of groups, and the coordinator of each: a table.

A request of a member goes to the coordinator of its group's present type. A group changes its type
with its members, so that each side knows what it may hand over (`group_migration`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.config.broker_config import BrokerConfig
from ottla.config.coordinator_config import ConsumerGroupConfig
from ottla.coordinator.group.classic_group_coordinator import ClassicGroupCoordinator
from ottla.coordinator.group.consumer.classic_members import ClassicMembers
from ottla.coordinator.group.consumer.cluster_topics import ClusterTopics
from ottla.coordinator.group.consumer.consumer_group_coordinator import ConsumerGroupCoordinator
from ottla.coordinator.group.consumer.consumer_rebalancer import ConfigOfGroup, ConsumerRebalancer
from ottla.coordinator.group.consumer.group_migration import GroupMigration
from ottla.coordinator.group.group import GroupType
from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager
from ottla.coordinator.group.member_requests import GroupRebalancer, MemberRequests
from ottla.coordinator.group.rebalancer import Rebalancer
from ottla.runtime import Runtime


class GroupTypes:
    """The coordinators of groups, by the type that they serve."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        manager: GroupMetadataManager,
        topics: ClusterTopics,
        config_of: ConfigOfGroup | None,
    ) -> None:
        broker_defaults = ConsumerGroupConfig.of(config, {})
        self.classic = Rebalancer(runtime, config, manager)
        self.consumer = ConsumerRebalancer(
            runtime, config, config_of or (lambda group_id: broker_defaults), manager, topics
        )
        migration = GroupMigration(runtime, config, manager, self.classic, self.consumer)
        self.heartbeats = ConsumerGroupCoordinator(config, manager, self.consumer, migration)
        """What answers the requests that only members of consumer groups have (KIP-848)."""

        self.rebalancers: Final[Mapping[GroupType, GroupRebalancer[Any]]] = {
            GroupType.CLASSIC: self.classic,
            GroupType.CONSUMER: self.consumer,
        }
        self.requests: Final[Mapping[GroupType, MemberRequests[Any]]] = {
            GroupType.CLASSIC: ClassicGroupCoordinator(runtime, config, manager, self.classic),
            GroupType.CONSUMER: ClassicMembers(manager, self.consumer, migration),
        }
        """What answers the requests of the classic protocol, which both types get."""
