"""The coordinators of a broker over real logs on a disk in memory, driven by their handlers."""

from __future__ import annotations

from apis_world import Context

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.log.log_manager import LogManager
from ottla.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.record.batch_builder import build_batch
from ottla.replication.replica_manager import ReplicaManager
from ottla.replication.replica_requests import FetchParams, PartitionFetch
from ottla.server.controller_orders import ControllerOrders, OrdersToOwnBroker
from ottla.server.coordinators import Coordinators
from ottla.server.handlers import of_groups, of_transactions
from ottla.server.handlers.produce import ProduceHandler
from ottla.server.handlers.transactional_produce import TransactionalProduce
from ottla.server.metadata_cache import CurrentLeaders, MetadataCache
from ottla.structs import (
    NO_UUID,
    BrokerEndPoints,
    EndPoint,
    IsolationLevel,
    LeaderAndIsr,
    MetadataUpdate,
    PartitionState,
    TopicPartition,
)
from ottla.testing import mock_runtime

T0 = TopicPartition("t", 0)
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


class Ids:
    """Producer ids from 100 on."""

    next_id = 99

    async def generate_producer_id(self):
        self.next_id += 1
        return self.next_id


class TransactionBroker:
    """One broker that leads "t" and both internal topics, with one partition each."""

    def __init__(self):
        self.runtime = mock_runtime()
        self.ids = Ids()
        self.start()

    def start(self):
        runtime = self.runtime
        self.config = BrokerConfig.parse({"log.dirs": "/data"})
        topic_config = TopicConfig.of(self.config, {})
        self.log_manager = LogManager(runtime, self.config, lambda topic: topic_config)
        self.log_manager.acquire()
        runtime.scheduler.run(self.log_manager.startup())
        self.cache = MetadataCache("cluster")
        self.replica_manager = ReplicaManager(runtime, self.log_manager, 1, self.cache.contains)
        self.coordinators = Coordinators(
            runtime, self.config, self.replica_manager, self.cache, None
        )
        self.coordinators.producer_ids = self.ids
        self.coordinators.startup()
        self.produce_handler = ProduceHandler(
            self.replica_manager,
            TransactionalProduce(self.replica_manager, self.coordinators.verifier),
            CurrentLeaders(self.replica_manager, self.cache),
            self.cache.topic_name,
        )
        families = (
            self.produce_handler,
            *of_groups(self.coordinators, None, lambda: None),
            *of_transactions(self.coordinators),
        )
        self.handlers = {
            key: entry[0] if isinstance(entry, tuple) else entry
            for family in families
            for key, entry in family.apis().items()
        }
        topics = ("t", "__consumer_offsets", "__transaction_state")
        states = [
            PartitionState(
                TopicPartition(topic, 0), NO_UUID, 1, LeaderAndIsr(1, 0, (1,)), (1,), True
            )
            for topic in topics
        ]
        orders = ControllerOrders(
            self.replica_manager, self.cache, self.coordinators, runtime.scheduler
        )
        to_broker = OrdersToOwnBroker(orders, 1)
        to_broker.leader_and_isr(1, 1, states, [], lambda errors: None)
        end_point = EndPoint("PLAINTEXT", "PLAINTEXT", "host", 9092)
        brokers = [BrokerEndPoints(1, 1, (end_point,))]
        to_broker.update_metadata(1, [1], MetadataUpdate(states, brokers, is_full=True))
        runtime.scheduler.run_ready()

    def kill_and_restart(self):
        """As after kill -9: what was written to the page cache is there."""
        for timer in self.log_manager._timers:
            timer.cancel()
        self.coordinators.shutdown()
        self.runtime.disk.locked.clear()
        self.start()

    def call(self, body, version, session=1, **client):
        """The answer to a request; None while it is open."""
        return self.begin(body, version, session, **client).answer

    def begin(self, body, version, session=1, **client):
        """The context of a request, which has the answer when there is one."""
        context = Context(version, **client)
        context.connection.id = f"127.0.0.1:9092-127.0.0.1:4711-{session}"
        answer = self.handlers[type(body).api_key](context, body)
        if hasattr(answer, "send"):
            answer = self.runtime.scheduler.run(answer)
        if answer is not None:
            context.respond(answer)
        return context

    def log(self, topic="t"):
        return self.replica_manager.partition(TopicPartition(topic, 0)).log

    # -- a producer

    def init(self, version=4, **fields):
        body = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000, **fields)
        answer = self.call(body, version)
        return answer.error_code, answer.producer_id, answer.producer_epoch

    def add(self, producer, *partitions, version=3, session=1, topic="t"):
        """Error codes of the partitions of "t", or of another topic."""
        body = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        (result,) = self.call(body, version, session).results_by_topic_v3_and_below
        return [each.partition_error_code for each in result.results_by_partition]

    def add_offsets(self, producer, version=3):
        body = AddOffsetsToTxnRequest(
            transactional_id="x",
            producer_id=producer[0],
            producer_epoch=producer[1],
            group_id="g",
        )
        return self.call(body, version).error_code

    def commit_offset(self, producer, offset, version=3, session=1, **fields):
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        body = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
            **fields,
        )
        return self.call(body, version, session).topics[0].partitions[0].error_code

    def end(self, producer, commit=True, version=3, session=1):
        body = EndTxnRequest(
            transactional_id="x",
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commit,
        )
        return self.call(body, version, session).error_code

    def produce(self, producer, sequence, value, version=9, transactional_id="x", **header):
        """The error code of a batch of one record for T0; None while the request is open."""
        context = self.begin_produce(producer, sequence, value, version, transactional_id, **header)
        answer = context.answer
        return None if answer is None else answer.responses[0].partition_responses[0].error_code

    def begin_produce(
        self, producer, sequence, value, version=9, transactional_id="x", topic="t", **header
    ):
        """The context of the same request."""
        values = {"is_transactional": transactional_id is not None, **header}
        batch = build_batch(
            [(0, None, value, ())],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            **values,
        )
        data = PartitionProduceData(index=0, records=memoryview(bytearray(batch)))
        body = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        return self.begin(body, version)

    # -- a consumer

    def fetch(self, offset=0, isolation=COMMITTED):
        """What partition T0 answers."""
        params = FetchParams(-1, 0, 1, 1 << 20, isolation)
        wanted = PartitionFetch(T0, NO_UUID, offset, 1 << 20)
        return self.replica_manager.reads.read(params, [wanted])[T0]
