"""The controller of the cluster: elected through the registry, it owns topics and leadership.

One operation after the other: an operation reads the context, writes the registry, then changes
the context and tells the brokers. What is acknowledged to a client is in the registry.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from ottla.config.broker_config import BrokerConfig
from ottla.controller.broker_channel import BrokerChannel
from ottla.controller.broker_registration import live_brokers, random_uuid
from ottla.controller.controller_context import ControllerContext, TopicContext
from ottla.controller.election import elect_leader, initial_state
from ottla.controller.entity_configs import TOPICS, EntityConfigs
from ottla.controller.new_topic import (
    INTERNAL_TOPICS,
    CreatedTopic,
    MorePartitions,
    NewTopic,
    check_new_topic,
    plan_assignment,
)
from ottla.controller.topic_assignment import (
    MAX_PARTITIONS_PER_REQUEST,
    Assignment,
    assign_more_partitions,
    check_assignment,
    check_partition_count,
)
from ottla.controller.topic_names import (
    refuse_internal,
    validate_topic_name,
)
from ottla.controller.topic_store import TopicStore
from ottla.errors import ErrorCode, KafkaError
from ottla.registry import paths
from ottla.registry.tree import (
    BadVersionError,
    Create,
    NodeExistsError,
    NoNodeError,
    Registry,
    Set,
)
from ottla.registry.znodes import decode_epoch, encode_controller, encode_epoch
from ottla.runtime import Runtime
from ottla.structs import (
    EPOCH_DURING_DELETE,
    NO_LEADER,
    NO_UUID,
    Node,
    PartitionState,
    StopReplicaPartition,
    TopicPartition,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")
U = TypeVar("U")


class Controller:
    """The one broker that decides; `is_active` where this broker is it.

    Invariant: the context holds what the registry holds, and every broker was told of it.
    """

    def __init__(
        self,
        runtime: Runtime,
        registry: Registry,
        broker_config: BrokerConfig,
        channel: BrokerChannel,
        broker_id: int,
    ) -> None:
        self.runtime = runtime
        self.registry = registry
        self.config = broker_config
        self.channel = channel
        self.broker_id = broker_id
        self.context = ControllerContext()
        self.topics = TopicStore(registry)
        self.configs = EntityConfigs(registry)
        self.is_active = False
        # Not for state, which has one thread, but for order: an operation awaits the registry
        # several times, and the next one must not begin before it has come to its end.
        self._turn = asyncio.Lock()

    async def startup(self) -> None:
        """Try to become the controller; if so, load the topics, elect leaders, tell the brokers.

        The broker has registered itself before.
        """
        async with self._turn:
            if not await self._elect():
                return
            self.context.brokers = await live_brokers(self.registry)
            for broker in self.context.brokers.values():
                self.channel.add_broker(broker)
            deleted = await self._complete_deletions()
            names = await self.topics.names()
            await asyncio.gather(*(self._load_topic(name) for name in names))
            await self._tell_everything(deleted)
            logger.info(
                "broker %d is the controller in epoch %d; it knows %d topics",
                self.broker_id,
                self.context.epoch,
                len(self.context.topics),
            )

    def resign(self) -> None:
        """Decide nothing any more: the session that made this broker the controller has ended."""
        self.is_active = False
        self.context = ControllerContext()

    async def _elect(self) -> bool:
        """Take /controller if nobody has it, and raise the epoch that fences predecessors.

        Both or nothing: there is no controller whose epoch another one has, too (KAFKA-6082).
        """
        try:
            data, stat = await self.registry.get(paths.CONTROLLER_EPOCH)
            epoch, version = decode_epoch(data), stat.version
        except NoNodeError:
            await self.registry.create(paths.CONTROLLER_EPOCH, encode_epoch(0))
            epoch, version = 0, 0
        claim = encode_controller(self.broker_id, self.runtime.clock.now_ms())
        try:
            await self.registry.multi(
                (
                    Create(paths.CONTROLLER, claim, ephemeral=True),
                    Set(paths.CONTROLLER_EPOCH, encode_epoch(epoch + 1), version),
                )
            )
        except (NodeExistsError, BadVersionError):
            logger.info("another broker is the controller")
            return False
        self.context.epoch = epoch + 1
        self.is_active = True
        return True

    async def _complete_deletions(self) -> list[str]:
        """Finish what a predecessor began; the topics' names."""
        names = await self.topics.marked_for_deletion()
        for name in names:
            try:
                node = await self.topics.read(name)
            except NoNodeError:
                assignment: Assignment = {}
            else:
                assignment = dict(node.assignment)
            await self._remove(name, assignment)
        return names

    async def _load_topic(self, name: str) -> None:
        """Take a topic over from the registry, with a leader for each of its partitions."""
        node = await self.topics.read(name)
        topic_id = node.topic_id
        if topic_id == NO_UUID:  # written before topics had ids (2.8)
            topic_id = random_uuid(self.runtime.random)
            await self.topics.update(name, topic_id, node.assignment)
        topic = TopicContext(name, topic_id, dict(sorted(node.assignment.items())))
        topic.states = await self.topics.read_states(name, topic.assignment)
        self.context.add_topic(topic)
        await self._start_partitions(topic, set(topic.assignment) - set(topic.states))
        await self._elect_leaders(topic)

    async def _start_partitions(self, topic: TopicContext, partitions: Iterable[int]) -> None:
        """Give partitions without a state their first one, where a replica of them lives."""
        states = {}
        for partition in sorted(partitions):
            state = initial_state(topic.assignment[partition], self.context.brokers)
            if state is not None:
                states[partition] = state
        await self.topics.create_states(topic.name, states, self.context.epoch)
        topic.states |= states

    async def _elect_leaders(self, topic: TopicContext) -> None:
        """New leaders where the leader is dead, or is this broker, whose process is a new one.

        The new epoch tells readers that the end of the log may not be where it was (KIP-320).
        """
        elections = {
            partition: state
            for partition, state in topic.states.items()
            if state.leader == self.broker_id or state.leader not in self.context.brokers
        }
        if not elections:
            return
        unclean_allowed = await self._unclean_election_allowed(topic.name)
        changed = {}
        for partition, state in elections.items():
            replicas = topic.assignment[partition]
            elected = elect_leader(state, replicas, self.context.brokers, unclean_allowed)
            if elected.leader != NO_LEADER or state.leader != NO_LEADER:
                changed[partition] = elected
        topic.states |= await self.topics.write_states(topic.name, changed, self.context.epoch)

    async def _unclean_election_allowed(self, topic: str) -> bool:
        key = "unclean.leader.election.enable"
        overrides = await self.configs.read(TOPICS, topic)
        if key in overrides:
            return overrides[key].lower() == "true"
        return self.config.unclean_leader_election_enable

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Create each topic that can be; by name, what it became or why it did not."""

        left = MAX_PARTITIONS_PER_REQUEST

        async def create(topic: NewTopic) -> CreatedTopic:
            nonlocal left
            refuse_internal(topic.name, "created")
            created = await self._create_topic(topic, validate_only, left)
            left -= created.num_partitions
            return created

        return await self._each(topics, lambda topic: topic.name, create)

    async def auto_create_topic(self, name: str) -> None:
        """Create a topic that somebody uses, with the broker's defaults, if it is not there yet.

        The topics of the coordinators come into being in this way only.
        """
        async with self._turn:
            self._require_active()
            if name in self.context.topics:
                return
            if name in INTERNAL_TOPICS:
                topic = INTERNAL_TOPICS[name](self.config, self.context.brokers)
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
        check_new_topic(new, self.context.topics)
        brokers = self.context.brokers
        assignment = plan_assignment(new, self.config, brokers, self.runtime.random)
        check_partition_count(len(assignment), max_partitions)
        config = {key: value for key, value in new.config.items() if value is not None}
        topic_id = NO_UUID if validate_only else random_uuid(self.runtime.random)
        topic = TopicContext(new.name, topic_id, assignment)
        if not validate_only:
            # First the overrides: the log takes them when the partitions begin.
            if config:
                await self.configs.write(TOPICS, new.name, config)
            else:
                await self.configs.remove(TOPICS, new.name)
            await self.topics.create(new.name, topic_id, assignment)
            self.context.add_topic(topic)
            await self._start_partitions(topic, assignment)
            await self._tell_of(topic, assignment)
            logger.info("created topic %s with %d partitions", new.name, len(assignment))
        return CreatedTopic(topic_id, len(assignment), topic.replication_factor, config)

    async def create_partitions(
        self, wishes: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Give topics more partitions; by name None, or why it was refused."""

        left = MAX_PARTITIONS_PER_REQUEST

        async def create(wish: MorePartitions) -> None:
            nonlocal left
            refuse_internal(wish.name, "given more partitions")
            topic = self._topic(wish.name)
            added = self._plan_more_partitions(topic, wish)
            check_partition_count(len(added), left)
            left -= len(added)
            if validate_only:
                return
            assignment = topic.assignment | added
            await self.topics.update(topic.name, topic.topic_id, assignment)
            topic.assignment = assignment
            await self._start_partitions(topic, added)
            await self._tell_of(topic, added)
            logger.info("topic %s has %d partitions now", topic.name, wish.total)

        return await self._each(wishes, lambda wish: wish.name, create)

    def _plan_more_partitions(self, topic: TopicContext, wish: MorePartitions) -> Assignment:
        existing = topic.assignment
        if not 0 < wish.total - len(existing) <= MAX_PARTITIONS_PER_REQUEST:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {topic.name!r} has {len(existing)} partitions; the number must grow, by "
                f"at most {MAX_PARTITIONS_PER_REQUEST} at once, and not become {wish.total}",
            )
        brokers = self.context.brokers
        if wish.assignment is None:
            return assign_more_partitions(sorted(brokers), existing, wish.total)
        added = dict(enumerate(wish.assignment, start=len(existing)))
        partitions = range(len(existing), wish.total)
        check_assignment(added, partitions, brokers, topic.replication_factor)
        return added

    async def delete_topics(self, names: Sequence[str]) -> dict[str, KafkaError | None]:
        """Delete topics with their records; by name None, or why it was refused."""

        async def delete(name: str) -> None:
            refuse_internal(name, "deleted")
            topic = self._topic(name)
            if not self.config.delete_topic_enable:
                raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
            await self.topics.mark_for_deletion(name)
            self.context.remove_topic(name)
            await self._remove(name, topic.assignment)
            logger.info("deleted topic %s", name)

        return await self._each(names, str, delete)

    async def _remove(self, name: str, assignment: Assignment) -> None:
        """Nobody is told of the topic any more, its logs go, and last what the registry knows."""
        epoch, brokers = self.context.epoch, list(self.context.brokers.values())
        for broker_id in self.context.brokers:
            self.channel.update_metadata(epoch, broker_id, (), brokers, (name,))
            partitions = [
                StopReplicaPartition(TopicPartition(name, partition), EPOCH_DURING_DELETE, True)
                for partition, replicas in assignment.items()
                if broker_id in replicas
            ]
            if partitions:
                self.channel.stop_replica(epoch, broker_id, partitions, lambda errors: None)
        await self.configs.remove(TOPICS, name)
        await self.topics.remove(name)

    async def _each(
        self,
        items: Sequence[T],
        name_of: Callable[[T], str],
        operation: Callable[[T], Awaitable[U]],
    ) -> dict[str, U | KafkaError]:
        """Do the operation for each item in turn; a name that is there twice is not touched."""
        async with self._turn:
            self._require_active()
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
                except KafkaError as error:
                    results[name] = error
            return results

    def _topic(self, name: str) -> TopicContext:
        topic = self.context.topics.get(name)
        if topic is None:
            validate_topic_name(name)
            raise KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    def _require_active(self) -> None:
        if not self.is_active:
            raise KafkaError.of(
                ErrorCode.NOT_CONTROLLER, f"broker {self.broker_id} is not the controller"
            )

    async def on_log_dir_event(self, broker_id: int) -> None:
        """A log directory of a broker has failed: ask for its partitions, lead them elsewhere.

        Kafka's brokers say so with a node below /log_dir_event_notification; this one calls.
        """
        async with self._turn:
            if self.is_active and broker_id in self.context.brokers:
                await self._tell_everything()

    async def _lead_elsewhere(
        self, states: Sequence[PartitionState], offline: Collection[TopicPartition]
    ) -> list[PartitionState]:
        """The states, with new leaders where the log of the leader is offline; nobody may be."""
        context = self.context
        for name in {topic_partition.topic for topic_partition in offline}:
            topic = context.topics[name]
            unclean_allowed = await self._unclean_election_allowed(name)
            changed = {}
            for partition, state in topic.states.items():
                live = context.live_replicas(TopicPartition(name, partition))
                if state.leader not in (*live, NO_LEADER):
                    replicas = topic.assignment[partition]
                    changed[partition] = elect_leader(state, replicas, live, unclean_allowed)
            topic.states |= await self.topics.write_states(name, changed, context.epoch)
        named = [state.topic_partition for state in states]
        renewed = []
        for name, partition in named:
            renewed += context.partition_states(context.topics[name], [partition])
        return renewed

    def _nodes(self) -> list[Node]:
        """The live brokers as other brokers reach them."""
        listener = self.config.inter_broker_listener_name
        nodes = [broker.node(listener) for broker in self.context.brokers.values()]
        return [node for node in nodes if node is not None]

    async def _tell_of(self, topic: TopicContext, partitions: Iterable[int]) -> None:
        """Tell the replicas to begin with new partitions, then everybody who leads them."""
        states = self.context.partition_states(topic, partitions, is_new=True)
        await self._tell(states, ())

    async def _tell_everything(self, deleted: Sequence[str] = ()) -> None:
        states = [
            state
            for topic in self.context.topics.values()
            for state in self.context.partition_states(topic, topic.assignment)
        ]
        await self._tell(states, deleted)

    async def _tell(self, states: Sequence[PartitionState], deleted: Sequence[str]) -> None:
        offline: set[TopicPartition] = set()
        for broker_id in self.context.brokers:
            hosted = [state for state in states if broker_id in state.replicas]
            failed = self._lead_and_follow(broker_id, hosted)
            self.context.offline.setdefault(broker_id, set()).update(failed)
            offline.update(failed)
        if offline:
            states = await self._lead_elsewhere(states, offline)
            for broker_id in self.context.brokers:
                hosted = [s for s in states if broker_id in {*s.replicas} - {*s.offline_replicas}]
                self._lead_and_follow(broker_id, hosted)
        brokers = list(self.context.brokers.values())
        for broker_id in self.context.brokers:
            self.channel.update_metadata(self.context.epoch, broker_id, states, brokers, deleted)

    def _lead_and_follow(
        self, broker_id: int, states: Sequence[PartitionState]
    ) -> set[TopicPartition]:
        """Tell a broker; the partitions that it cannot have, for their log directory has failed."""
        failed: set[TopicPartition] = set()

        def on_answer(errors: Mapping[TopicPartition, ErrorCode]) -> None:
            failed.update(tp for tp, error in errors.items() if error)

        epoch = self.context.epoch
        self.channel.leader_and_isr(epoch, broker_id, states, self._nodes(), on_answer)
        return failed
