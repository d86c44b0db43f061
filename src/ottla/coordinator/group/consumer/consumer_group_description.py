"""Consumer groups as ConsumerGroupDescribe shows them."""

from __future__ import annotations

from ottla.config.broker_config import BrokerConfig
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer.member import Assignment, ConsumerMember, by_topic
from ottla.coordinator.group.consumer.topics import ClusterTopics
from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager
from ottla.errors import ErrorCode
from ottla.protocol.consumer_group import (
    MEMBER_TYPE_CLASSIC,
    MEMBER_TYPE_CONSUMER,
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedConsumerGroupMember,
    DescribedTopicPartitions,
)


class ConsumerGroupDescription:
    """Looks at consumer groups from outside."""

    def __init__(
        self, config: BrokerConfig, manager: GroupMetadataManager, topics: ClusterTopics
    ) -> None:
        self._default_assignor = config.group_consumer_assignors[0]
        self._manager = manager
        self._topics = topics

    def describe(self, group_id: str, error: ErrorCode) -> DescribedConsumerGroup:
        """The group; GROUP_ID_NOT_FOUND if there is none, or one of another protocol."""
        if error:
            return DescribedConsumerGroup(group_id=group_id, error_code=error)
        group = self._manager.group(group_id)
        if not isinstance(group, ConsumerGroup):
            return DescribedConsumerGroup(
                group_id=group_id,
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=f"Group {group_id} not found."
                if group is None
                else f"Group {group_id} is not a consumer group.",
            )
        return DescribedConsumerGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.preferred_assignor(self._default_assignor),
            members=[self._member(group, member) for member in group.members.values()],
        )

    def _member(self, group: ConsumerGroup, member: ConsumerMember) -> DescribedConsumerGroupMember:
        details = member.details
        return DescribedConsumerGroupMember(
            member_id=member.member_id,
            instance_id=details.instance_id,
            rack_id=details.rack_id,
            member_epoch=member.current.member_epoch,
            client_id=details.client_id,
            client_host=details.client_host,
            subscribed_topic_names=list(details.topic_names),
            subscribed_topic_regex=details.topic_regex,
            assignment=self._assignment(member.current.assigned),
            target_assignment=self._assignment(group.target[member.member_id]),
            member_type=MEMBER_TYPE_CLASSIC if member.is_classic else MEMBER_TYPE_CONSUMER,
        )

    def _assignment(self, partitions: Assignment) -> DescribedAssignment:
        """Partitions of topics that have gone are left out: they have no name any more."""
        return DescribedAssignment(
            topic_partitions=[
                DescribedTopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
                for topic_id, numbers in by_topic(partitions).items()
                if (name := self._topics.topic_name(topic_id)) is not None
            ]
        )
