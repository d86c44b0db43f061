"""Brokers in a simulated world that are nothing but members, candidates for controller, and told.

ZooKeeper, sessions and processes are those of `ottla.testing.simulation`; the controllers are
real. A broker obeys as those of Kafka do, fences old epochs, and, where it leads, brings followers
that live into the ISR. `RegistryWitness` sees every write and checks it.
"""

from __future__ import annotations

import json
from collections import deque
from functools import partial

from ottla.config.broker_config import BrokerConfig
from ottla.controller.broker_registration import ensure_persistent_paths, register_broker
from ottla.controller.controller import Controller
from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.moves.reassignment import PartitionReassigner
from ottla.registry import paths
from ottla.registry.node_tree import WriteKind
from ottla.registry.tree import SessionState
from ottla.registry.znodes import TopicNode, decode_partition_state
from ottla.structs import EndPoint, LeaderAndIsr, TopicPartition
from ottla.testing.simulation.world import SimulatedProcess, World
from ottla.testing.simulation.zookeeper import SimulatedRegistry, SimulatedZooKeeper

SESSION_MS = 3_000
RETRY_MS = 500
LEADER_MS = 700
MAX_DELAY_MS = 60

SETTINGS = {
    "zookeeper.connect": "zookeeper:2181",
    "leader.imbalance.check.interval.seconds": 4,
    "leader.imbalance.per.broker.percentage": 0,
}


class RegistryWitness:
    """Looks at every write of a partition's state: who may have made it, and what it may say."""

    def __init__(self, zookeeper: SimulatedZooKeeper) -> None:
        self.zookeeper = zookeeper
        self.violations: list[str] = []
        self.states: dict[str, LeaderAndIsr] = {}
        self.elections = 0
        self._announce = zookeeper.shared.announce
        zookeeper.shared.announce = self.on_write

    def on_write(self, write) -> None:
        if write.path.endswith("/state"):
            if write.kind is WriteKind.DELETE:
                self.states.pop(write.path, None)
            else:
                self._check(write.path, write.data)
        self._announce(write)

    def _check(self, path: str, data: bytes) -> None:
        state, controller_epoch = decode_partition_state(path, data, 0)
        before = self.states.get(path)
        self.states[path] = state
        current = int(self.zookeeper.tree.find(paths.CONTROLLER_EPOCH).data)
        if controller_epoch != current:
            self._report(path, f"written in controller epoch {controller_epoch} of {current}")
        if state.leader >= 0 and state.leader not in state.isr:
            self._report(path, f"leader {state.leader} is not in the ISR {state.isr}")
        if not state.isr:
            self._report(path, "nobody is in sync")
        if before is None:
            return
        if state.leader_epoch < before.leader_epoch:
            self._report(path, f"epoch {state.leader_epoch} after {before.leader_epoch}")
        if state.leader != before.leader:
            self.elections += 1
            if state.leader_epoch == before.leader_epoch:
                self._report(path, f"{before.leader} and {state.leader} lead in the same epoch")
            if state.leader >= 0 and state.leader not in before.isr:
                self._report(path, f"{state.leader} leads and was not in {before.isr}")

    def _report(self, path: str, what: str) -> None:
        self.violations.append(f"{path}: {what}")


class DelayedChannel:
    """The controller's requests, each delivered after a while, in order for each broker."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self._epochs: dict[int, int] = {}
        self._queues: dict[int, deque] = {}

    def add_broker(self, broker) -> None:
        self._epochs[broker.id] = broker.epoch
        self._queues[broker.id] = deque()

    def remove_broker(self, broker_id) -> None:
        self._epochs.pop(broker_id, None)
        self._queues.pop(broker_id, None)

    def leader_and_isr(self, controller_epoch, broker_id, states, brokers, on_answer) -> None:
        known = {node.id for node in brokers}
        assert all(state.leader < 0 or state.leader in known for state in states)
        self._send(broker_id, controller_epoch, partial(_obey_leader, states=states), on_answer)

    def stop_replica(self, controller_epoch, broker_id, partitions, on_answer) -> None:
        order = partial(_obey_stop, partitions=partitions)
        self._send(broker_id, controller_epoch, order, on_answer)

    async def settle(self):
        """Every order is carried out at once."""

    def update_metadata(self, controller_epoch, broker_ids, update) -> None:
        order = partial(_obey_metadata, update=update)
        for broker_id in broker_ids:
            self._send(broker_id, controller_epoch, order, lambda answers: None)

    def _send(self, broker_id, controller_epoch, order, on_answer) -> None:
        if broker_id == self.member.broker_id:
            on_answer(self.member.obey(controller_epoch, None, order))
            return
        queue = self._queues[broker_id]
        queue.append((controller_epoch, self._epochs[broker_id], order, on_answer))
        if len(queue) == 1:
            self._later(broker_id, queue)

    def _later(self, broker_id, queue) -> None:
        world = self.member.world
        delay_ms = world.random.randint(1, MAX_DELAY_MS)
        world.loop.add_timer(delay_ms, lambda: self._deliver(broker_id, queue))

    def _deliver(self, broker_id, queue) -> None:
        """On the way: the broker may be away, then it is tried again."""
        if self._queues.get(broker_id) is not queue or not self.member.process.is_alive:
            return
        target = self.member.cluster.members[broker_id]
        if not (target.is_serving and target.process.is_running):
            self._later(broker_id, queue)
            return
        controller_epoch, broker_epoch, order, on_answer = queue[0]
        answers = target.obey(controller_epoch, broker_epoch, order)
        if answers is not None:
            self.member.process.scheduler.call_soon(
                lambda: self._queues.get(broker_id) is queue and on_answer(answers)
            )
        queue.popleft()
        if queue:
            self._later(broker_id, queue)


def _obey_leader(member, states):
    for state in states:
        known = member.hosted.get(state.topic_partition)
        is_other_topic = known is not None and known.topic_id != state.topic_id
        if known is None or is_other_topic or known.leader_epoch <= state.leader_epoch:
            member.hosted[state.topic_partition] = state
            member.asked.pop(state.topic_partition, None)
    return {state.topic_partition: ErrorCode.NONE for state in states}


def _obey_stop(member, partitions):
    for each in partitions:
        member.hosted.pop(each.topic_partition, None)
    return {each.topic_partition: ErrorCode.NONE for each in partitions}


def _obey_metadata(member, update):
    if update.is_full:
        member.metadata.clear()
    for each in [each for each in member.metadata if each.topic in update.deleted_topics]:
        del member.metadata[each]
    member.metadata |= {state.topic_partition: state for state in update.states}
    return {}


class Member:
    """A broker: one life after the other."""

    def __init__(self, cluster: ControllersWorld, broker_id: int) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.broker_id = broker_id
        self.is_serving = False
        self.start()

    def start(self) -> None:
        self.process = SimulatedProcess(self.world, f"broker-{self.broker_id}")
        self.registry = SimulatedRegistry(self.process, SESSION_MS)
        self.epoch = -1
        self.controller_epoch = 0
        self.hosted: dict[TopicPartition, object] = {}
        self.metadata: dict[TopicPartition, object] = {}
        self.asked: dict[TopicPartition, LeaderAndIsr] = {}
        self.controller = Controller(
            self.process.runtime,
            self.registry,
            BrokerConfig.parse({**SETTINGS, "broker.id": self.broker_id}),
            DelayedChannel(self),
            self.broker_id,
        )
        self.controller.features.append(PartitionReassigner)
        self.process.spawn(self._start(), "start")
        self.process.scheduler.call_every(LEADER_MS, self._lead)

    async def _start(self) -> None:
        await self.registry.start()
        self.registry.watch_session(self._on_session)
        await self._join()

    async def _join(self) -> None:
        try:
            await ensure_persistent_paths(self.registry)
            end_point = EndPoint("PLAINTEXT", "PLAINTEXT", f"broker-{self.broker_id}", 9092)
            self.epoch = await register_broker(self.registry, self.broker_id, [end_point], 0)
            self.is_serving = True
            await self.controller.startup()
        except KafkaError:
            self.process.scheduler.call_later(RETRY_MS, self._join_again)

    def _join_again(self) -> None:
        self.process.spawn(self._join(), "join again")

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self.controller.resign()
        elif state is SessionState.RENEWED:
            self._join_again()

    def kill(self) -> None:
        self.is_serving = False
        self.process.kill()

    def obey(self, controller_epoch, broker_epoch, order):
        """Do as the controller says; None if it is not the latest, or means another process."""
        if controller_epoch < self.controller_epoch or broker_epoch not in (None, self.epoch):
            return None
        self.controller_epoch = controller_epoch
        return order(self)

    def _lead(self) -> None:
        """As a leader: have followers in the ISR that live and know whom to follow."""
        changes = {}
        for topic_partition, state in self.hosted.items():
            if state.leader != self.broker_id:
                continue
            current = self.asked.get(topic_partition, state.leader_and_isr)
            isr = tuple(
                broker_id
                for broker_id in state.replicas
                if broker_id in current.isr or self._is_followed(broker_id, topic_partition, state)
            )
            if set(isr) != set(current.isr):
                changes[topic_partition] = current._replace(isr=isr)
        if changes:
            self.cluster.ask_controller(self, changes)

    def _is_followed(self, broker_id, topic_partition, state) -> bool:
        follower = self.cluster.members[broker_id]
        known = follower.hosted.get(topic_partition)
        return (
            follower.is_serving
            and follower.process.is_running
            and known is not None
            and (known.topic_id, known.leader_epoch) == (state.topic_id, state.leader_epoch)
        )

    def on_altered(self, outcomes) -> None:
        for topic_partition, outcome in outcomes.items():
            known = self.hosted.get(topic_partition)
            if (
                isinstance(outcome, LeaderAndIsr)
                and known is not None
                and outcome.leader_epoch == known.leader_epoch
            ):
                self.asked[topic_partition] = outcome


class ControllersWorld:
    """ZooKeeper and some members."""

    def __init__(self, seed: int, count: int) -> None:
        self.world = World(seed)
        self.zookeeper = SimulatedZooKeeper(self.world)
        self.witness = RegistryWitness(self.zookeeper)
        self.members: dict[int, Member] = {}
        for broker_id in range(count):
            self.members[broker_id] = Member(self, broker_id)

    @property
    def controllers(self) -> list[Controller]:
        """Whoever takes itself for the controller, in processes that run."""
        return [
            member.controller
            for member in self.members.values()
            if member.process.is_running and member.controller.is_active
        ]

    def ask(self, operation) -> None:
        """Have an active controller do something; nobody waits for it."""
        active = [each for each in self.members.values() if each.controller in self.controllers]
        if active:
            member = self.world.random.choice(active)
            member.process.spawn(_quietly(operation, member.controller), "ask")

    def ask_controller(self, leader: Member, changes) -> None:
        life = leader.process

        async def alter(controller) -> None:
            outcomes = await controller.alter_partitions(
                leader.broker_id, leader.epoch, changes, {}
            )
            if leader.process is life:
                life.scheduler.call_soon(lambda: leader.on_altered(outcomes))

        self.ask(alter)

    def topics(self) -> dict[str, TopicNode]:
        found = self.zookeeper.tree.find(paths.TOPICS).children
        return {name: TopicNode.decode(name, node.data) for name, node in found.items()}

    def children(self, path: str) -> list[str]:
        return sorted(self.zookeeper.tree.find(path).children)

    def state(self, topic_partition: TopicPartition) -> LeaderAndIsr:
        path = paths.partition_state(*topic_partition)
        node = self.zookeeper.tree.find(path)
        return decode_partition_state(path, node.data, node.version)[0]

    def controller_of_registry(self) -> int:
        return int(json.loads(self.zookeeper.tree.find(paths.CONTROLLER).data)["brokerid"])


async def _quietly(operation, controller) -> None:
    """What it refuses is part of the story."""
    try:
        await operation(controller)
    except KafkaError:
        pass
