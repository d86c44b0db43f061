"""Several brokers' replicas in one process, on one virtual clock; the test is their controller.

A request goes by a direct call to the handler of the broker that leads, but as bytes, in the
version that the follower has chosen. A broker that is down, or cut off, does not answer.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from apis_world import Context

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.log.log_manager import LogManager
from ottla.protocol.message import decode, encode
from ottla.record.batch_builder import build_batch
from ottla.record.memory_records import batches
from ottla.replication.append_results import ACKS_ALL
from ottla.replication.cluster_view import ClusterView
from ottla.replication.replica_manager import ReplicaManager
from ottla.replication.replica_requests import FetchParams, PartitionFetch
from ottla.runtime import FileRegion
from ottla.server.fetch_session import FetchSessionCache
from ottla.server.handlers.fetch import FetchHandler
from ottla.server.handlers.leader_epochs import LeaderEpochHandler
from ottla.server.handlers.list_offsets import ListOffsetsHandler
from ottla.server.metadata_cache import CurrentLeaders, MetadataCache
from ottla.structs import (
    CONSUMER_REPLICA_ID,
    NO_EPOCH,
    IsolationLevel,
    LeaderAndIsr,
    Node,
    PartitionState,
    TopicPartition,
)
from ottla.testing import MemoryDisk, mock_runtime
from ottla.testing.runtime import MockRuntime

TOPIC_ID = UUID(int=7)
T0 = TopicPartition("t", 0)
LAG_MS = 10_000


class Answering(Context):
    """The context of one request: the answer becomes bytes, and then the follower's response.

    A follower that hangs up is not noticed here; its fetch ends with its time.
    """

    def __init__(self, api_version, future):
        super().__init__(api_version, client_id="follower")
        self.future = future

    def respond(self, response):
        if self.future.done():
            return  # the follower has hung up
        parts = encode(response, self.api_version)
        data = parts if isinstance(parts, bytes | bytearray) else b"".join(map(as_bytes, parts))
        self.future.set_result(decode(type(response), self.api_version, memoryview(data)))


def as_bytes(part):
    return part.read() if isinstance(part, FileRegion) else bytes(part)


class DirectConnection:
    """What a follower has in place of a socket."""

    def __init__(self, world, source, node):
        self.world = world
        self.source = source
        self.node = node
        self.open = []
        self.requests = []
        """What was sent, each with its version and the time that the answer may take."""
        self.target = None

    async def ready(self):
        await asyncio.sleep(0)
        self._check()
        self.target = self.world.brokers[self.node.id].handlers

    def _check(self):
        target = self.world.brokers.get(self.node.id)
        if target is None or not self.world.reaches(self.source, self.node.id):
            raise KafkaError.of(ErrorCode.NETWORK_EXCEPTION, f"{self.node} cannot be reached")
        if self.target is not None and self.target is not target.handlers:
            self.target = None
            raise KafkaError.of(ErrorCode.NETWORK_EXCEPTION, f"{self.node} has been restarted")

    def version_of(self, request, low=0, high=1 << 15):
        return min(high, self.world.newest.get(request, request.max_version))

    def send(self, request, version, timeout_ms):
        future = asyncio.get_running_loop().create_future()
        self.open.append(future)
        self.requests.append((request, version, timeout_ms))
        try:
            self._check()
        except KafkaError as error:
            future.set_exception(error)
            return future
        deliver = self.world.later(self._deliver)
        self.world.runtime.scheduler.call_soon(lambda: deliver(request, version, future))
        return future

    def _deliver(self, request, version, future):
        try:
            self._check()
        except KafkaError as error:
            if not future.done():
                future.set_exception(error)
            return
        body = decode(type(request), version, memoryview(as_bytes_of(request, version)))
        broker = self.world.brokers[self.node.id]
        context = Answering(version, future)
        answer = broker.handlers[request.api_key](context, body)
        if answer is not None:
            context.respond(answer)
        broker.manager.complete_delayed()

    def close(self, reason):
        self.drop(reason)

    def drop(self, reason):
        for future in self.open:
            if not future.done():
                future.set_exception(KafkaError.of(ErrorCode.NETWORK_EXCEPTION, reason))
                future.exception()
        self.open = []


def as_bytes_of(request, version):
    parts = encode(request, version)
    return parts if isinstance(parts, bytes | bytearray) else b"".join(map(as_bytes, parts))


class ReplicaBroker:
    """One broker's logs and replicas, over its own disk."""

    def __init__(self, world, broker_id, disk, epoch):
        self.world = world
        self.broker_id = broker_id
        self.disk = disk
        self.epoch = epoch
        shared = world.runtime
        self.runtime = MockRuntime(
            shared.clock, shared.scheduler, shared.background, disk, shared.network, shared.random
        )
        self.connections = []
        self.config = BrokerConfig.parse(
            {"log.dirs": "/data", "replica.lag.time.max.ms": str(LAG_MS), **world.settings}
        )
        settings = TopicConfig.of(self.config, world.topic_settings)
        self.log_manager = LogManager(self.runtime, self.config, lambda topic: settings)
        self.log_manager.acquire()
        shared.scheduler.run(self.log_manager.startup())
        self.manager = ReplicaManager(
            self.runtime, self.log_manager, broker_id, world.states.__contains__
        )
        self.manager.join_cluster(
            ClusterView(IsrOverWorld(world), self.connect, world.live_brokers, lambda: epoch)
        )
        self.manager.startup()
        leaders = CurrentLeaders(self.manager, MetadataCache("cluster"))
        sessions = FetchSessionCache(
            self.runtime, 100, world.topic_names.get, world.brokers.__contains__
        )
        families = (
            FetchHandler(self.manager, sessions, leaders, self.config.fetch_max_bytes),
            LeaderEpochHandler(self.manager),
            ListOffsetsHandler(self.manager, self.runtime.slices),
        )
        self.handlers = {key: each for family in families for key, each in family.apis().items()}

    def connect(self, node):
        connection = DirectConnection(self.world, self.broker_id, node)
        self.connections.append(connection)
        return connection

    def log(self, topic_partition=T0):
        return self.log_manager.get_log(topic_partition)

    def stop(self):
        """The process is gone, as after kill -9."""
        self.manager.shutdown()
        for timer in self.log_manager._timers:
            timer.cancel()
        self.disk.end_process()


class IsrOverWorld:
    """AlterPartition to the test, which is the controller."""

    def __init__(self, world):
        self.world = world

    def __call__(self, topic_partition, topic_id, state, broker_epochs, on_done):
        world = self.world
        world.isr_changes.append(
            (topic_partition, state, dict(broker_epochs), world.later(on_done))
        )
        if world.answers_isr_changes:
            world.later(world.answer_isr_changes)()


class ReplicaWorld:
    """Brokers 1 to n and the state of the partitions, as ZooKeeper would have it."""

    def __init__(self, count=3, settings=None, topic_settings=None):
        self.runtime = mock_runtime()
        self.settings = settings or {}
        self.topic_settings = {"retention.ms": "-1", **(topic_settings or {})}
        self.topic_names = {TOPIC_ID: "t"}
        self.states = {}
        self.isr_changes = []
        self.answers_isr_changes = True
        self.cuts = set()
        self.latency_ms = 0
        self.racks = {}
        self.newest = {}
        """Of requests: the newest version that a leader knows, if that is not the newest of all."""
        self.brokers = {}
        self.epochs = 0
        self.disks = {broker_id: MemoryDisk() for broker_id in range(1, count + 1)}
        for broker_id in self.disks:
            self.start(broker_id)

    # -- brokers

    def start(self, broker_id):
        self.epochs += 1
        disk = self.disks[broker_id]
        disk.now_ms = self.runtime.clock.now_ms
        self.brokers[broker_id] = ReplicaBroker(self, broker_id, disk, self.epochs)

    def kill(self, broker_id, lose_unsynced=False):
        """End a broker's process; the disk loses what was not synced if the power went, too."""
        broker = self.brokers.pop(broker_id)
        broker.stop()
        for other in self.brokers.values():
            for connection in other.connections:
                if connection.node.id == broker_id:
                    connection.drop("the broker is down")
        if lose_unsynced:
            self.disks[broker_id].crash()
        self.run()

    def live_brokers(self):
        return {broker_id: self.node(broker_id) for broker_id in self.brokers}

    def node(self, broker_id):
        return Node(broker_id, f"host{broker_id}", 9092, self.racks.get(broker_id))

    def cut_off(self, broker_id):
        """No request gets to or from a broker, and no answer either."""
        for other in self.disks:
            self.cuts |= {(broker_id, other), (other, broker_id)}
        for broker in self.brokers.values():
            for connection in broker.connections:
                if broker_id in (broker.broker_id, connection.node.id):
                    connection.drop("the network is cut")
        self.run()

    def heal(self):
        """The network is whole again."""
        self.cuts.clear()

    def reaches(self, source, target):
        return (source, target) not in self.cuts

    # -- the controller

    def create(self, replicas=(1, 2, 3), topic_partition=T0, topic_id=TOPIC_ID):
        """A new partition, led by its first replica."""
        isr = LeaderAndIsr(replicas[0], 0, tuple(replicas), 0)
        self.states[topic_partition] = PartitionState(
            topic_partition, topic_id, 1, isr, tuple(replicas), True
        )
        self.tell(topic_partition)

    def elect(self, leader, isr=None, topic_partition=T0):
        """A new leader epoch, written and told to all replicas that are up."""
        state = self.states[topic_partition]
        known = state.leader_and_isr
        changed = LeaderAndIsr(
            leader, known.leader_epoch + 1, tuple(isr or known.isr), known.version + 1
        )
        self.states[topic_partition] = state._replace(leader_and_isr=changed, is_new=False)
        self.tell(topic_partition)

    def tell(self, topic_partition=T0, only=None):
        """LeaderAndIsr to the replicas; returns their answers."""
        state = self.states[topic_partition]
        answers = {
            broker_id: self.brokers[broker_id].manager.become_leader_or_follower(
                [state], self.live_brokers()
            )[topic_partition]
            for broker_id in state.replicas
            if broker_id in self.brokers and only in (None, broker_id)
        }
        self.run()
        return answers

    def answer_isr_changes(self):
        """Write what the leaders propose, if it replaces the version that is written."""
        changes, self.isr_changes = self.isr_changes, []
        for topic_partition, proposed, _, on_done in changes:
            state = self.states[topic_partition]
            known = state.leader_and_isr
            if proposed.leader_epoch != known.leader_epoch:
                on_done(ErrorCode.FENCED_LEADER_EPOCH)
            elif proposed.version != known.version:
                on_done(ErrorCode.INVALID_UPDATE_VERSION)
            elif not set(proposed.isr) <= set(self.brokers):
                on_done(ErrorCode.INELIGIBLE_REPLICA)
            else:
                changed = proposed._replace(version=known.version + 1)
                self.states[topic_partition] = state._replace(leader_and_isr=changed)
                on_done(changed)

    def later(self, call):
        """The call, as it comes to somebody over the network: in a moment."""
        if not self.latency_ms:
            return call
        scheduler, chance = self.runtime.scheduler, self.runtime.random

        def delayed(*arguments):
            scheduler.call_later(chance.randrange(self.latency_ms), lambda: call(*arguments))

        return delayed

    # -- time and clients

    def run(self):
        """What can run now runs; whoever waits for a partition is served."""
        self.runtime.scheduler.run_ready()
        for broker in self.brokers.values():
            broker.manager.complete_delayed()
        self.runtime.scheduler.run_ready()

    def advance(self, ms):
        """Time passes."""
        for _ in range(max(1, ms // 100)):
            self.runtime.advance(min(ms, 100))
            self.run()

    def append(
        self, broker_id, *values, acks=ACKS_ALL, timeout_ms=5_000, topic_partition=T0, **header
    ):
        """Produce one batch; returns the list that the answer goes to."""
        answers = []
        batch = build_batch([(1_000, None, value, ()) for value in values], **header)
        self.brokers[broker_id].manager.append_records(
            timeout_ms,
            acks,
            {topic_partition: memoryview(bytearray(batch))},
            lambda results: answers.append(results[topic_partition]),
        )
        self.run()
        return answers

    def values(self, broker_id, topic_partition=T0):
        """What the whole log of a broker holds."""
        return log_values(self.brokers[broker_id].log(topic_partition))

    def fetch(self, broker_id, offset, rack="", may_read_from_follower=False, epoch=NO_EPOCH):
        """What a consumer gets from a broker."""
        params = FetchParams(
            CONSUMER_REPLICA_ID,
            0,
            1,
            1 << 20,
            IsolationLevel.READ_UNCOMMITTED,
            may_read_from_follower=may_read_from_follower,
            client_rack=rack,
        )
        answers = []
        request = PartitionFetch(T0, TOPIC_ID, offset, 1 << 20, epoch)
        self.brokers[broker_id].manager.fetch_records(params, [request], answers.append)
        return answers[0][request.key]

    def close(self):
        """End all brokers."""
        for broker_id in list(self.brokers):
            self.kill(broker_id)


def log_values(log):
    """Offset and value of each record of a log."""
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, max_offset=log.log_end_offset, min_one_message=True)
        if data.records is None:
            break
        for batch in batches(data.records.read()):
            found += [(r.offset, r.value) for r in batch.records() if r.offset >= offset]
            end = batch.next_offset
        offset = end
    return found
