"""The transactional part of Produce: batches that belong to a transaction are verified first.

The partition must be in the producer's open transaction, which its coordinator knows (KIP-890);
otherwise the batch came late, and is refused. The log makes sure that none gets by. From v12 on the
request takes the partition into the transaction by itself (transaction.version 2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final

from ottla.coordinator.transaction.transaction_coordinator import TxnProducer
from ottla.coordinator.transaction.transaction_verifier import TransactionVerifier
from ottla.errors import ErrorCode
from ottla.network.connection import RequestContext
from ottla.protocol.produce import ProduceRequest
from ottla.record.record_batch import TRANSACTIONAL_FLAG
from ottla.replication.exchange import PartitionAppendResult
from ottla.replication.replica_manager import AppendResults, ReplicaManager
from ottla.structs import TopicPartition

FIRST_VERSION_WITH_ABORTABLE: Final = 11
FIRST_VERSION_THAT_ADDS: Final = 12
ATTRIBUTES_AND_PRODUCER: Final = Struct(">21xh20xqh")

# What passes by waiting. Producers know this word for it, and try again (KIP-890).
RETRIED_AS_NOT_ENOUGH_REPLICAS: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class TransactionalProduce:
    """Appends through the replica manager what the verifier has nothing against."""

    def __init__(self, replica_manager: ReplicaManager, verifier: TransactionVerifier) -> None:
        self.replica_manager = replica_manager
        self.verifier = verifier

    def append(
        self,
        context: RequestContext,
        body: ProduceRequest,
        entries: dict[TopicPartition, memoryview],
        respond: Callable[[AppendResults], object],
    ) -> None:
        """The same as `append_records`, for the request of a producer with a transactional id."""
        producers: set[tuple[int, int]] = set()
        transactional: list[TopicPartition] = []
        for topic_partition, records in entries.items():
            attributes, *producer = ATTRIBUTES_AND_PRODUCER.unpack_from(records)
            if attributes & TRANSACTIONAL_FLAG:
                producers.add((producer[0], producer[1]))
                transactional.append(topic_partition)
        api_version = context.api_version
        is_answered = False

        def on_verified(errors: Mapping[TopicPartition, ErrorCode]) -> None:
            nonlocal is_answered
            is_answered = True
            refused = {tp: unverified(error, api_version) for tp, error in errors.items()}
            operation = self.replica_manager.append_records(
                body.timeout_ms,
                body.acks,
                {tp: records for tp, records in entries.items() if tp not in refused},
                lambda appended: respond({**refused, **appended}),
            )
            context.wait_for(operation)

        if not producers:
            on_verified({})
        elif len(producers) > 1:
            on_verified(dict.fromkeys(transactional, ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        else:
            asking = TxnProducer(body.transactional_id or "", *producers.pop())
            adds = api_version >= FIRST_VERSION_THAT_ADDS
            self.verifier.verify(asking, transactional, on_verified, adds=adds)
            if not is_answered:  # the bytes of the request are not ours any longer than this call
                entries.update({tp: memoryview(bytearray(data)) for tp, data in entries.items()})


def unverified(error: ErrorCode, api_version: int) -> PartitionAppendResult:
    """What a producer is told when its transaction cannot be gone on with."""
    if error in RETRIED_AS_NOT_ENOUGH_REPLICAS:
        told = ErrorCode.NOT_ENOUGH_REPLICAS
    elif error is ErrorCode.PRODUCER_FENCED:
        told = ErrorCode.INVALID_PRODUCER_EPOCH
    elif error is ErrorCode.INVALID_TXN_STATE and api_version >= FIRST_VERSION_WITH_ABORTABLE:
        told = ErrorCode.TRANSACTION_ABORTABLE
    else:
        told = error
    return PartitionAppendResult(
        told, error_message=f"the transaction of the batch was not confirmed: {error.name}"
    )
