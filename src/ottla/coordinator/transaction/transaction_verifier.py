"""Has partitions confirmed by a transaction's coordinator before its first batch reaches them.

A batch that was held up on its way may arrive after its transaction has ended. Taken in, it would
be in no transaction, or in one that nobody ends; so the coordinator is asked first (KIP-890). The
log refuses what is not confirmed, and takes a confirmation back when a marker comes in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from ottla.coordinator.transaction.transaction_coordinator import TxnProducer
from ottla.errors import ErrorCode
from ottla.log.producer_state_manager import Verification
from ottla.replication.replica_manager import ReplicaManager
from ottla.structs import TopicPartition

OnVerified = Callable[[Mapping[TopicPartition, ErrorCode]], object]


class AskCoordinator(Protocol):
    """Asks the coordinator of a transactional id, wherever it is, about partitions."""

    def __call__(
        self,
        producer: TxnProducer,
        partitions: Collection[TopicPartition],
        on_answer: OnVerified,
    ) -> None: ...


class TransactionVerifier:
    """Asks about the partitions in which the producer has no open transaction yet."""

    def __init__(self, replica_manager: ReplicaManager, ask: AskCoordinator) -> None:
        self._replica_manager = replica_manager
        self._ask = ask

    def verify(
        self,
        producer: TxnProducer,
        partitions: Collection[TopicPartition],
        on_verified: OnVerified,
    ) -> None:
        """`on_verified` hears what is wrong, by partition; the others may be appended to."""
        asked: dict[TopicPartition, Verification] = {}
        for topic_partition in partitions:
            verification = self._begin(producer, topic_partition)
            if verification is not None:
                asked[topic_partition] = verification
        if not asked:
            on_verified({})
            return

        def on_answer(errors: Mapping[TopicPartition, ErrorCode]) -> None:
            for topic_partition, verification in asked.items():
                if not errors[topic_partition]:
                    verification.is_confirmed = True
            on_verified({tp: error for tp, error in errors.items() if error})

        self._ask(producer, list(asked), on_answer)

    def _begin(self, producer: TxnProducer, topic_partition: TopicPartition) -> Verification | None:
        """Nothing is asked about a partition that is not here: it is refused in any case."""
        partition = self._replica_manager.partitions.get(topic_partition)
        if partition is None:
            return None
        return partition.begin_verification(producer.producer_id, producer.producer_epoch)
