"""A transactional producer's core in a virtual world, with a coordinator that agrees to all."""

from __future__ import annotations

from typing import Any

from producer_world import PRODUCER_ID, ProducerWorld

from ottla.protocol.produce import ProduceRequest
from ottla.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.runtime.timing import Deadline

CONVERSATION = {
    AddPartitionsToTxnRequest: "add",
    AddOffsetsToTxnRequest: "offsets",
    TxnOffsetCommitRequest: "commit offsets",
    ProduceRequest: "produce",
}
LIMIT_MS = 5000


def add_answer(code: int = 0):
    """An answer to AddPartitionsToTxn with one code for all of the partitions."""

    def answer(request: AddPartitionsToTxnRequest, version: int) -> AddPartitionsToTxnResponse:
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=number, partition_error_code=code
                        )
                        for number in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    return answer


def offsets_answer(code: int = 0):
    """An answer to TxnOffsetCommit with one code for all of the partitions."""

    def answer(request: TxnOffsetCommitRequest, version: int) -> TxnOffsetCommitResponse:
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        TxnOffsetCommitResponsePartition(
                            partition_index=p.partition_index, error_code=code
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return answer


class TransactionWorld(ProducerWorld):
    """`call` runs one of the application's calls, as `ottla.Producer` does it."""

    def __init__(self, runtime, cluster, **settings: Any) -> None:
        super().__init__(runtime, cluster, transactional_id="till", **settings)
        self.transactions = self.core.transactions
        self.epoch = -1
        for broker in cluster.brokers.values():
            broker.on(InitProducerIdRequest, self.init)
            broker.on(AddPartitionsToTxnRequest, add_answer())
            broker.on(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse())
            broker.on(TxnOffsetCommitRequest, offsets_answer())
            broker.on(EndTxnRequest, EndTxnResponse())

    def init(self, request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
        self.epoch += 1
        return InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    def end_with_bump(self, request: EndTxnRequest, version: int) -> EndTxnResponse:
        """As a coordinator answers in transaction.version 2."""
        self.epoch = request.producer_epoch + 1
        return EndTxnResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    def call(self, name: str, *arguments: Any, limit_ms: int = LIMIT_MS) -> None:
        deadline = Deadline(self.runtime.clock, limit_ms)
        method = getattr(self.transactions, name)
        call = method() if name == "begin" else method(*arguments, deadline)
        self.runtime.scheduler.run(call)

    def begun(self) -> TransactionWorld:
        """The same, in its first transaction."""
        self.call("init")
        self.call("begin")
        return self

    @property
    def state(self) -> str:
        return self.transactions.machine.state.name

    def conversation(self) -> list[str]:
        """The requests of transactions that came so far, to whichever broker, in short."""
        said = []
        for broker in self.cluster.brokers.values():
            for request, _ in broker.requests:
                if isinstance(request, EndTxnRequest):
                    said.append("commit" if request.committed else "abort")
                elif isinstance(request, InitProducerIdRequest):
                    said.append(f"init {request.producer_epoch}")
                elif type(request) in CONVERSATION:
                    said.append(CONVERSATION[type(request)])
        return said
