"""A produce in a transaction: the coordinator is asked about the partitions before the append."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final

from ottla.coordinator.transaction.transaction_verifier import TransactionVerifier
from ottla.errors import ErrorCode
from ottla.network.frame_buffer import lasting
from ottla.network.request_context import RequestContext
from ottla.protocol.produce import (
    FIRST_VERSION_THAT_ADDS,
    FIRST_VERSION_WITH_ABORTABLE,
    ProduceRequest,
)
from ottla.record.record import TRANSACTIONAL_FLAG
from ottla.replication.append_results import PartitionAppendResult
from ottla.replication.delayed_produce import AppendResults
from ottla.replication.replica_manager import ReplicaManager
from ottla.structs import INTERNAL_TOPICS, TopicPartition, TxnProducer

ATTRIBUTES_AND_PRODUCER: Final = Struct(">21xh20xqhi")

# Errors that pass with time. Producers know this error for them, and retry (KIP-890).
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
    """Appends, through the replica manager, batches that the verifier accepts.

    The partition must be in the producer's open transaction, which its coordinator knows (KIP-890);
    otherwise the batch came late, and is refused. The log makes sure that none gets by. From v12 on
    the request takes the partition into the transaction by itself (transaction.version 2).
    """

    def __init__(self, replica_manager: ReplicaManager, verifier: TransactionVerifier) -> None:
        self.replica_manager = replica_manager
        self.verifier = verifier

    def append(
        self,
        context: RequestContext,
        body: ProduceRequest,
        entries: dict[TopicPartition, memoryview],
        refuse: Callable[[], AppendResults],
        respond: Callable[[AppendResults], object],
    ) -> None:
        """The same as `append_records`, for the request of a producer with a transactional id.

        `refuse` names partitions that cannot be appended to any more when the coordinator answers.
        """
        producers, transactional = _transactional(entries)
        api_version = context.api_version
        is_answered = False

        def on_verified(errors: Mapping[TopicPartition, ErrorCode]) -> None:
            nonlocal is_answered
            is_answered = True
            refused = {tp: unverified(error, api_version) for tp, error in errors.items()}
            refused |= refuse()
            note_refusals(self.replica_manager, refused)
            self.replica_manager.append_records(
                body.timeout_ms,
                body.acks,
                {tp: records for tp, records in entries.items() if tp not in refused},
                lambda appended: respond({**refused, **appended}),
                wait_for=context.await_acknowledgement,
            )

        if not producers:
            on_verified({})
        elif len(producers) > 1:
            on_verified(dict.fromkeys(transactional, ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        else:
            asking = TxnProducer(body.transactional_id or "", *producers.pop())
            adds = api_version >= FIRST_VERSION_THAT_ADDS
            self.verifier.verify(asking, transactional, on_verified, adds=adds)
            if not is_answered:
                entries.update({tp: lasting(data) for tp, data in entries.items()})


def note_refusals(replica_manager: ReplicaManager, refused: AppendResults) -> None:
    """Batches that are refused may come again, while others of the same pipeline arrive."""
    for topic_partition, result in refused.items():
        partition = replica_manager.partitions.get(topic_partition)
        if result.error.retriable and partition and partition.leadership:
            partition.leadership.note_refusal()


def _transactional(
    entries: Mapping[TopicPartition, memoryview],
) -> tuple[set[tuple[int, int]], dict[TopicPartition, int]]:
    """The producers of transactional batches, by id and epoch, and each partition's sequence.

    Without those for internal topics: no transaction may take them in, and the append refuses them.
    """
    producers: set[tuple[int, int]] = set()
    sequences: dict[TopicPartition, int] = {}
    for topic_partition, records in entries.items():
        attributes, *producer, sequence = ATTRIBUTES_AND_PRODUCER.unpack_from(records)
        if attributes & TRANSACTIONAL_FLAG and topic_partition.topic not in INTERNAL_TOPICS:
            producers.add((producer[0], producer[1]))
            sequences[topic_partition] = sequence
    return producers, sequences


def unverified(error: ErrorCode, api_version: int) -> PartitionAppendResult:
    """The error for a producer whose transaction cannot continue."""
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
