"""A producer's core in a virtual world, with a leader that keeps a log."""

from __future__ import annotations

from typing import Any

from mock_kafka import MockCluster

from ottla.clients.producer.producer_batch import record_size
from ottla.clients.producer.producer_core import ProducerCore
from ottla.config.client_config import ProducerConfig
from ottla.errors import ErrorCode
from ottla.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.transactions import InitProducerIdRequest, InitProducerIdResponse
from ottla.record.record_batch import RecordBatch

PRODUCER_ID = 42


class ProducerWorld:
    """`send` queues a value for partition 0 of `pages`; `log` is what the leader has appended."""

    def __init__(self, runtime, cluster: MockCluster, **settings: Any) -> None:
        self.runtime = runtime
        self.cluster = cluster
        self.log: list[bytes] = []
        self.batches: list[tuple[int, int, int]] = []  # producer epoch, sequence, count
        self.expected: dict[int, tuple[int, int]] = {}  # epoch and next sequence by partition
        for broker in cluster.brokers.values():
            broker.on(ProduceRequest, self.append)
            broker.on(InitProducerIdRequest, InitProducerIdResponse(producer_id=PRODUCER_ID))
        defaults = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0}
        config = ProducerConfig.parse(defaults, **settings)
        self.core = runtime.scheduler.run(self._build(config))
        self.queues = runtime.scheduler.run(self.core.queues_of("pages", 1000))

    async def _build(self, config) -> ProducerCore:
        return ProducerCore(self.runtime, config, self.runtime.scheduler.call_soon)

    def send(self, value: str, partition: int = 0):
        record = (0, None, value.encode(), ())
        queue = self.queues.queues[partition]
        size = record_size(record)
        return self.core.accumulator.append(self.queues, queue, record, size)

    def append(self, request: ProduceRequest, version: int) -> ProduceResponse:
        """What a leader does that finds nothing wrong."""
        return self.answer(request, 0)

    def refuse(self, code: int):
        """An answer that refuses the batches with an error."""
        return lambda request, version: self.answer(request, code)

    def answer(self, request: ProduceRequest, code: int) -> ProduceResponse:
        response = ProduceResponse()
        for topic in request.topic_data:
            entry = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            response.responses.append(entry)
            for data in topic.partition_data:
                batch = RecordBatch(data.records)
                batch.verify()
                offset = len(self.log)
                code = code or self.check_sequence(data.index, batch)
                if not code:
                    self.log += [record.value for record in batch.records()]
                    self.batches.append(
                        (batch.producer_epoch, batch.base_sequence, batch.record_count)
                    )
                entry.partition_responses.append(
                    PartitionProduceResponse(
                        index=data.index, error_code=code, base_offset=-1 if code else offset
                    )
                )
        return response

    def check_sequence(self, partition: int, batch: RecordBatch) -> int:
        """What a leader says to the numbers of a batch: only the next one will do."""
        epoch, expected = self.expected.get(partition, (0, 0))
        if batch.producer_epoch > epoch:
            expected = 0
        if batch.base_sequence not in (-1, expected):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.expected[partition] = batch.producer_epoch, expected + batch.record_count
        return 0

    def run(self, ms: int = 0) -> None:
        self.runtime.advance(ms)

    def sent(self) -> list[ProduceRequest]:
        return [r for broker in self.cluster.brokers.values() for r in broker.sent(ProduceRequest)]
