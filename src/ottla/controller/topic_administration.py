"""What clients may do to topics: create them, give them partitions, delete them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from ottla.controller.broker_registration import random_uuid
from ottla.controller.controller_context import TopicContext
from ottla.controller.controller_core import ControllerCore
from ottla.controller.entity_configs import TOPICS
from ottla.controller.new_topic import (
    INTERNAL_TOPIC_PLANS,
    CreatedTopic,
    MorePartitions,
    NewTopic,
    check_new_topic,
    plan_assignment,
)
from ottla.controller.rack_assignment import Assignment
from ottla.controller.topic_assignment import (
    MAX_PARTITIONS_PER_REQUEST,
    assign_more_partitions,
    check_assignment,
    check_partition_count,
)
from ottla.controller.topic_changes import TopicChanges
from ottla.controller.topic_names import refuse_internal, validate_topic_name
from ottla.errors import ErrorCode, KafkaError
from ottla.registry.tree import NodeExistsError, RegistryFailedError
from ottla.structs import NO_UUID, TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")
U = TypeVar("U")


class TopicAdministration:
    """Each topic of a request succeeds or fails alone; what succeeded is in the registry."""

    def __init__(self, core: ControllerCore, changes: TopicChanges) -> None:
        self.core = core
        self.context = core.context
        self.changes = changes

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic | KafkaError]:
        """By name what each topic became, or why it did not."""

        left = MAX_PARTITIONS_PER_REQUEST

        async def create(topic: NewTopic) -> CreatedTopic:
            nonlocal left
            refuse_internal(topic.name, "created")
            created = await self._create_topic(topic, validate_only, left)
            left -= created.num_partitions
            return created

        return await _each(topics, lambda topic: topic.name, create)

    async def auto_create_topic(self, name: str) -> None:
        """Create a topic that somebody uses, with the broker's defaults, if it is not there yet."""
        if name in self.context.topics:
            return
        if name in INTERNAL_TOPIC_PLANS:
            topic = INTERNAL_TOPIC_PLANS[name](self.core.config, self.context.brokers)
        else:
            refuse_internal(name, "created")
            topic = NewTopic(name)
        await self._create_topic(topic, validate_only=False)

    async def _create_topic(
        self,
        new: NewTopic,
        validate_only: bool,
        max_partitions: int = MAX_PARTITIONS_PER_REQUEST,
    ) -> CreatedTopic:
        core = self.core
        if new.name in self.context.topics_to_delete:
            raise KafkaError(
                ErrorCode.TOPIC_ALREADY_EXISTS,
                f"topic {new.name!r} is being deleted, and a broker that has a part of it is away",
            )
        check_new_topic(new, self.context.topics)
        assignment = plan_assignment(new, core.config, self._racks(), core.runtime.random)
        check_partition_count(len(assignment), max_partitions)
        config = {key: value for key, value in new.config.items() if value is not None}
        topic_id = NO_UUID if validate_only else random_uuid(core.runtime.random)
        topic = TopicContext(new.name, topic_id, assignment)
        if not validate_only:
            await self._write(topic, config)
            self.changes.add(topic)
            await self.changes.begin(topic.partitions)
            logger.info("created topic %s with %d partitions", new.name, len(assignment))
        return CreatedTopic(topic_id, len(assignment), topic.replication_factor, config)

    async def _write(self, topic: TopicContext, config: Mapping[str, str]) -> None:
        """The topic and its overrides at once: they are not those of another one of its name.

        The brokers hear of the overrides before the partitions begin, whose logs take them.
        """
        core = self.core
        overrides = await core.configs.plan(TOPICS, topic.name, config)
        try:
            await core.store.create(topic.name, topic.node(), overrides.operations)
        except NodeExistsError:
            if topic.name not in await core.store.names():
                raise  # it is the overrides that somebody else has written at this moment
            raise KafkaError(
                ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.name!r} has just been made"
            ) from None
        if overrides.has_news:
            await core.configs.notify(TOPICS, topic.name)

    async def create_partitions(
        self, wishes: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """By name None, or why the topic got no more partitions."""

        left = MAX_PARTITIONS_PER_REQUEST

        async def create(wish: MorePartitions) -> None:
            nonlocal left
            refuse_internal(wish.name, "given more partitions")
            topic = self._topic(wish.name)
            if topic.name in self.context.topics_to_delete:
                raise KafkaError.of(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r} is being deleted"
                )
            added = self._plan_more_partitions(topic, wish)
            check_partition_count(len(added), left)
            left -= len(added)
            if validate_only:
                return
            node = topic.node()
            node = type(node)(
                {**node.assignment, **added}, node.topic_id, node.adding, node.removing
            )
            await self.core.store.update(topic.name, node)
            topic.assignment |= added
            await self.changes.begin([TopicPartition(topic.name, index) for index in added])
            logger.info("topic %s has %d partitions now", topic.name, wish.total)

        return await _each(wishes, lambda wish: wish.name, create)

    def _plan_more_partitions(self, topic: TopicContext, wish: MorePartitions) -> Assignment:
        existing = topic.assignment
        if topic.adding or topic.removing:
            raise KafkaError.of(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"topic {topic.name!r} is being reassigned; it gets no partitions before the end",
            )
        if not 0 < wish.total - len(existing) <= MAX_PARTITIONS_PER_REQUEST:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {topic.name!r} has {len(existing)} partitions; the number must grow, by "
                f"at most {MAX_PARTITIONS_PER_REQUEST} at once, and not become {wish.total}",
            )
        if wish.assignment is None:
            return assign_more_partitions(self._racks(), existing, wish.total)
        added = dict(enumerate(wish.assignment, start=len(existing)))
        partitions = range(len(existing), wish.total)
        check_assignment(added, partitions, self.context.brokers, topic.replication_factor)
        return added

    async def delete_topics(self, names: Sequence[str]) -> dict[str, KafkaError | None]:
        """Begin to delete topics with their records; by name None, or why it was refused."""

        async def delete(name: str) -> None:
            refuse_internal(name, "deleted")
            self._topic(name)
            if not self.core.config.delete_topic_enable:
                raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
            await self.core.store.mark_for_deletion((name,))
            self.core.deletion.mark((name,))

        results = await _each(names, str, delete)
        await self.core.deletion.release(name for name in names if results[name] is None)
        return results

    def _racks(self) -> dict[int, str | None]:
        return {broker.id: broker.rack for broker in self.context.brokers.values()}

    def _topic(self, name: str) -> TopicContext:
        topic = self.context.topics.get(name)
        if topic is None:
            validate_topic_name(name)
            raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic


async def _each(
    items: Sequence[T],
    name_of: Callable[[T], str],
    operation: Callable[[T], Awaitable[U]],
) -> dict[str, U | KafkaError]:
    """Do the operation for each item in turn; a name that is there twice is not touched."""
    counts = Counter(map(name_of, items))
    results: dict[str, U | KafkaError] = {}
    for item in items:
        name = name_of(item)
        if counts[name] > 1:
            results[name] = KafkaError(
                ErrorCode.INVALID_REQUEST, f"topic {name!r} is there {counts[name]} times"
            )
            continue
        try:
            results[name] = await operation(item)
        except RegistryFailedError:
            raise  # what was done and what was not has to be read again
        except KafkaError as error:
            if error.error is ErrorCode.NOT_CONTROLLER:
                raise
            results[name] = error
    return results
