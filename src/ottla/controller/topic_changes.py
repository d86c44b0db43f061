"""Topics and partitions that have come into being, whoever wrote them, and that are to go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial

from ottla.controller.broker_registration import random_uuid
from ottla.controller.controller_context import TopicContext
from ottla.controller.controller_core import ControllerCore
from ottla.controller.entity_configs import TOPICS
from ottla.controller.leader_election import elect_offline
from ottla.errors import KafkaError
from ottla.registry import paths
from ottla.registry.tree import NoNodeError, RegistryFailedError, Watch
from ottla.registry.znodes import TopicNode
from ottla.structs import NO_UUID, TopicPartition

logger = logging.getLogger(__name__)


class TopicChanges:
    """Follows /brokers/topics, the node of each topic, and /admin/delete_topics."""

    def __init__(self, core: ControllerCore) -> None:
        self.core = core
        self.context = core.context
        self._watches: dict[str, Watch] = {}

    async def load(self) -> list[TopicPartition]:
        """Every topic and state; returned are the partitions whose leaders are new processes.

        Their states are older than the registration of the broker that leads them: nobody told it
        that it does. The next epoch tells readers that the end of the log may not be where it was.
        """
        core, context = self.core, self.context
        await self._read(await core.store.names())
        core.deletion.mark(await self._marked())
        renewed = []
        for partition, stored in (await core.store.read_states(context.all_partitions())).items():
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
        """Have brokers read the settings of topics that a predecessor made and did not begin."""
        for name, topic in list(self.context.topics.items()):
            if not topic.states and name not in self.context.topics_to_delete:
                await self.core.configs.notify(TOPICS, name)

    async def refresh(self) -> None:
        """The list of topics has changed: there are new ones, or somebody has removed some."""
        names = await self.core.store.names()
        present = set(names)
        self.context.unreadable &= present
        for name in [name for name in self.context.topics if name not in present]:
            logger.warning("topic %s was removed from the registry by somebody else", name)
            self.core.batch.add_deleted_topic(name)
            self._unwatch(name)
            self.context.remove_topic(name)
        new = [name for name in names if name not in self.context.topics]
        topics = await self._read(new)
        await self.begin([partition for topic in topics for partition in topic.partitions])

    async def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions that are new to the controller: give them leaders, and begin."""
        core = self.core
        known = list(partitions)
        replicas = self.context.replicas_of(known)
        core.partitions.begin(known)
        core.replicas.start_new(replicas)
        await core.partitions.bring_online(known, elect_offline)
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
        """Somebody has marked topics for deletion."""
        names = await self._marked()
        new = [name for name in names if name not in self.context.topics_to_delete]
        if new:
            self.core.deletion.mark(new)
            await self.core.deletion.resume()

    async def _marked(self) -> list[str]:
        """The topics to be deleted. The mark is taken from those that there are not."""
        names = await self.core.store.marked_for_deletion()
        wanted = [name for name in names if name in self.context.topics]
        if not self.core.config.delete_topic_enable:
            wanted = []
        unwanted = [name for name in names if name not in wanted]
        if unwanted:
            await self.core.store.unmark_for_deletion(unwanted)
        return wanted

    async def _read(self, names: Iterable[str]) -> list[TopicContext]:
        found = await asyncio.gather(*(self._read_topic(name) for name in names))
        topics = [topic for topic in found if topic is not None]
        for topic in topics:
            self.add(topic)
        return topics

    async def _read_topic(self, name: str) -> TopicContext | None:
        try:
            node = await self.core.store.read(name)
        except NoNodeError:
            return None  # it went between the two calls
        except RegistryFailedError:
            raise
        except KafkaError as error:
            logger.error("topic %s is ignored: %s", name, error)
            self.context.unreadable.add(name)
            return None
        if node.topic_id == NO_UUID:  # written before topics had ids (2.8)
            topic_id = random_uuid(self.core.runtime.random)
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
        return lambda: self.core.turn(f"partitions of {name}", refresh)

    def _unwatch(self, name: str) -> None:
        watch = self._watches.pop(name, None)
        if watch is not None:
            watch.cancel()

    def unwatch_removed(self) -> None:
        """Deleted topics are watched no more."""
        for name in [name for name in self._watches if name not in self.context.topics]:
            self._unwatch(name)

    def unwatch_all(self) -> None:
        for name in list(self._watches):
            self._unwatch(name)
