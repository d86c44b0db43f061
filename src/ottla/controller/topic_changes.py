"""Topics come, grow and go: by requests of clients, and by any other writer of the registry."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from ottla.controller.broker_registration import random_uuid
from ottla.controller.controller_context import LOOKS_AT_ONCE, PARTITIONS_AT_ONCE, TopicContext
from ottla.controller.controller_core import ControllerCore
from ottla.controller.entity_configs import TOPICS
from ottla.controller.leader_election import elect_offline
from ottla.controller.racks import Assignment
from ottla.controller.requested_topic import (
    INTERNAL_TOPIC_PLANS,
    UNASSIGNED,
    CreatedTopic,
    MorePartitions,
    Replicas,
    RequestedTopic,
    check_new_topic,
    plan_assignment,
)
from ottla.controller.topic_assignment import (
    MAX_PARTITIONS_PER_REQUEST,
    assign_more_partitions,
    check_assignment,
    check_partition_count,
)
from ottla.controller.topic_names import refuse_internal
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.topic_name import validate_topic_name
from ottla.registry import paths
from ottla.registry.tree import NodeExistsError, NoNodeError, RegistryFailedError, Watch
from ottla.registry.znodes import TopicNode
from ottla.runtime.scheduler import gather_each
from ottla.structs import NO_UUID, TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")
U = TypeVar("U")

Admit = Callable[[int], object]
"""Is told how many partitions are about to be created or deleted; raises if that is too many."""


def free(count: int) -> None:
    """Admit any number of partitions."""


class TopicChanges:
    """Follows and writes /brokers/topics, the node of each topic, and /admin/delete_topics."""

    def __init__(self, core: ControllerCore) -> None:
        self.core = core
        self.context = core.context
        self._watches: dict[str, Watch] = {}

    async def load(self) -> list[TopicPartition]:
        """Load every topic and state; returns the partitions whose leaders are new processes.

        Their states are older than the registration of the leading broker, which did not learn that
        it leads. By the next epoch readers see that the end of the log may have moved.
        """
        core, context = self.core, self.context
        await self._read(await core.store.names())
        core.deletion.mark(await self._marked())
        renewed = []
        async for part in core.slices.parts(context.all_partitions(), LOOKS_AT_ONCE):
            for partition, stored in (await core.store.read_states(part)).items():
                context.set_state(partition, stored.state)
                leader = context.brokers.get(stored.state.leader)
                if (
                    leader is not None
                    and leader.epoch > stored.modified_id
                    and not context.is_to_be_deleted(partition)
                ):
                    renewed.append(partition)
        return renewed

    async def tell_of_new(self) -> None:
        """Have brokers read the settings of topics that a predecessor created but did not begin."""
        known = list(self.context.topics.items())
        async for name, topic in self.core.slices.over(known, LOOKS_AT_ONCE):
            if not topic.states and name not in self.context.topics_to_delete:
                await self.core.configs.notify(TOPICS, name)

    async def refresh(self) -> None:
        """The list of topics has changed: some are new, or have been removed."""
        names = await self.core.store.names()
        present = set(names)
        self.context.unreadable &= present
        for name in [name for name in self.context.topics if name not in present]:
            logger.warning("topic %s was removed from the registry by somebody else", name)
            self.core.batch.add_deleted_topic(name)
            self.context.remove_topic(name)
        new = [name for name in names if name not in self.context.topics]
        topics = await self._read(new)
        await self.begin([partition for topic in topics for partition in topic.partitions])

    async def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions that are new to the controller: give them leaders, and begin.

        Replicas of a large topic begin part by part; clients learn of it when all have.
        """
        core = self.core
        known = list(partitions)
        for place in range(0, len(known), PARTITIONS_AT_ONCE):
            part = known[place : place + PARTITIONS_AT_ONCE]
            if place:
                await core.slices.do(core.batch.send_leader_and_isr())
            replicas = self.context.replicas_of(part)
            core.partitions.begin(part)
            core.replicas.start_new(replicas)
            await core.partitions.bring_online(part, elect_offline)
            core.replicas.bring_online(replicas)

    async def refresh_topic(self, name: str) -> None:
        """The topic's node was written: it may have more partitions."""
        topic = self.context.topics.get(name)
        if topic is None or name in self.context.topics_to_delete:
            return
        try:
            node = await self.core.store.read(name)
        except NoNodeError:
            return
        added = {
            index: replicas
            for index, replicas in sorted(node.assignment.items())
            if index not in topic.assignment
        }
        if added:
            topic.assignment |= added
        if node.topic_id != topic.topic_id:  # the tools of Kafka 2.3 know no ids (2.8)
            await self.core.store.update(name, topic.node())
        await self.begin([TopicPartition(name, index) for index in added])

    async def refresh_deletions(self) -> None:
        """Topics have been marked for deletion: begin."""
        names = await self._marked()
        new = [name for name in names if name not in self.context.topics_to_delete]
        if new:
            self.core.deletion.mark(new)
            await self.core.deletion.resume()

    async def _marked(self) -> list[str]:
        """The topics to be deleted.

        Marks of topics that do not exist are removed, and all where deletion is disabled.
        """
        names = await self.core.store.marked_for_deletion()
        wanted = [name for name in names if name in self.context.topics]
        if not self.core.config.delete_topic_enable:
            wanted = []
        unwanted = [name for name in names if name not in wanted]
        if unwanted:
            await self.core.store.unmark_for_deletion(unwanted)
        return wanted

    async def _read(self, names: Iterable[str]) -> list[TopicContext]:
        found = await gather_each(self._read_topic, names)
        topics = [topic for topic in found if topic is not None]
        async for topic in self.core.slices.over(topics, PARTITIONS_AT_ONCE):
            self.add(topic)
        return topics

    async def _read_topic(self, name: str) -> TopicContext | None:
        try:
            node = await self.core.store.read(name)
        except NoNodeError:
            return None  # it was removed between the two calls
        except RegistryFailedError:
            raise
        except KafkaError as error:
            logger.error("topic %s is ignored: %s", name, error)
            self.context.unreadable.add(name)
            return None
        if node.topic_id == NO_UUID:  # written before topics had ids (2.8)
            topic_id = random_uuid(self.core.runtime.random.getrandbits)
            node = TopicNode(node.assignment, topic_id, node.adding, node.removing)
            await self.core.store.update(name, node)
        return TopicContext(
            name,
            node.topic_id,
            dict(sorted(node.assignment.items())),
            adding={index: each for index, each in node.adding.items() if each},
            removing={index: each for index, each in node.removing.items() if each},
        )

    def add(self, topic: TopicContext) -> None:
        """The topic is known from now on, and its node watched."""
        self.context.add_topic(topic)
        if topic.name not in self._watches:
            self._watches[topic.name] = self.core.fenced.registry.watch_data(
                paths.topic(topic.name), self._on_change(topic.name)
            )

    def _on_change(self, name: str) -> Callable[[], object]:
        refresh = partial(self.refresh_topic, name)
        return lambda: self.core.enqueue_once(f"partitions of {name}", refresh)

    def unwatch_removed(self) -> None:
        """Stop watching deleted topics."""
        for name in self._watches.keys() - self.context.topics.keys():
            self._watches.pop(name).cancel()

    def unwatch_all(self) -> None:
        for watch in self._watches.values():
            watch.cancel()
        self._watches.clear()

    async def create_topics(
        self, topics: Sequence[RequestedTopic], *, validate_only: bool = False, admit: Admit = free
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Create topics; by name, the topic or the reason why it was not created."""

        left = MAX_PARTITIONS_PER_REQUEST

        async def create(topic: RequestedTopic) -> CreatedTopic:
            nonlocal left
            refuse_internal(topic.name, "created")
            created = await self._create_topic(topic, validate_only, left, admit)
            left -= created.num_partitions
            return created

        return await _each(topics, lambda topic: topic.name, create)

    async def auto_create_topic(self, name: str, assignment: Replicas = UNASSIGNED) -> None:
        """Create a topic on first use, with the broker's defaults, if it does not exist yet."""
        if name in self.context.topics:
            return
        if name in INTERNAL_TOPIC_PLANS:
            topic = INTERNAL_TOPIC_PLANS[name](self.core.config, self.context.brokers)
        else:
            topic = RequestedTopic(name, assignment=assignment)
        await self._create_topic(topic, validate_only=False)

    async def _create_topic(
        self,
        new: RequestedTopic,
        validate_only: bool,
        max_partitions: int = MAX_PARTITIONS_PER_REQUEST,
        admit: Admit = free,
    ) -> CreatedTopic:
        core = self.core
        if new.name in self.context.topics_to_delete:
            raise KafkaError(
                ErrorCode.TOPIC_ALREADY_EXISTS,
                f"topic {new.name!r} is being deleted, and a broker that has a part of it is away",
            )
        check_new_topic(new, self.context.topics)
        assignment = plan_assignment(new, core.config, self._racks(), core.runtime.random.randrange)
        check_partition_count(len(assignment), max_partitions)
        config = {key: value for key, value in new.config.items() if value is not None}
        topic_id = NO_UUID if validate_only else random_uuid(core.runtime.random.getrandbits)
        topic = TopicContext(new.name, topic_id, assignment)
        if not validate_only:
            admit(len(assignment))
            await self._write(topic, config)
            self.add(topic)
            await self.begin(topic.partitions)
            logger.info("created topic %s with %d partitions", new.name, len(assignment))
        return CreatedTopic(topic_id, len(assignment), topic.replication_factor, config)

    async def _write(self, topic: TopicContext, config: Mapping[str, str]) -> None:
        """Write the topic and its overrides at once: no older overrides of its name apply.

        Brokers are notified of the overrides before the partitions begin, whose logs use them.
        """
        core = self.core
        overrides = await core.configs.plan(TOPICS, topic.name, config)
        try:
            await core.store.create(topic.name, topic.node(), overrides.operations)
        except NodeExistsError:
            if topic.name not in await core.store.names():
                raise  # another writer has just written the overrides
            raise KafkaError(
                ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.name!r} has just been made"
            ) from None
        if overrides.has_news:
            await core.configs.notify(TOPICS, topic.name)

    async def create_partitions(
        self, wishes: Sequence[MorePartitions], *, validate_only: bool = False, admit: Admit = free
    ) -> dict[str, KafkaError | None]:
        """Give topics more partitions; by name None, or why it was refused."""

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
            admit(len(added))
            node = topic.node()
            node = type(node)(
                {**node.assignment, **added}, node.topic_id, node.adding, node.removing
            )
            await self.core.store.update(topic.name, node)
            topic.assignment |= added
            await self.begin([TopicPartition(topic.name, index) for index in added])
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

    async def delete_topics(
        self, names: Sequence[str], admit: Admit = free
    ) -> dict[str, KafkaError | None]:
        """Begin to delete topics with their records; by name None, or why it was refused."""

        async def delete(name: str) -> None:
            refuse_internal(name, "deleted")
            topic = self._topic(name)
            if not self.core.config.delete_topic_enable:
                raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
            admit(len(topic.assignment))
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
    items: Sequence[T], name_of: Callable[[T], str], operation: Callable[[T], Awaitable[U]]
) -> dict[str, U | KafkaError]:
    """Do the operation for each item in turn; a name that is there twice is not touched."""
    counts = Counter(map(name_of, items))
    results: dict[str, U | KafkaError] = {}
    for item in items:
        name = name_of(item)
        if counts[name] > 1 and name not in results:
            text = f"topic {name!r} is there {counts[name]} times"
            results[name] = KafkaError(ErrorCode.INVALID_REQUEST, text)
        if name in results:
            continue
        try:
            results[name] = await operation(item)
        except RegistryFailedError:
            raise  # the changes that were made have to be read again
        except KafkaError as error:
            if error.error is ErrorCode.NOT_CONTROLLER:
                raise
            results[name] = error
    return results
