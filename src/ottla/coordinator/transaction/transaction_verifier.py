"""Has partitions confirmed by a transaction's coordinator before its first batch reaches them.

A delayed batch may arrive after its transaction has ended. If it were appended, it would be in no
transaction, or in one that is never ended; so the coordinator is asked first (KIP-890). The log
refuses batches without a confirmation, and a marker that comes in between cancels the confirmation.

Producers that follow transaction.version 2 do not name partitions before they write to them: the
coordinator is then asked to add them, which it can do as soon as the transaction before has all of
its markers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from ottla.errors import ErrorCode
from ottla.log.producer_state_manager import Verification
from ottla.replication.replica_manager import ReplicaManager
from ottla.runtime import Runtime
from ottla.structs import TopicPartition, TxnProducer

# How often, and for how long, adding partitions to a transaction that cannot begin yet is retried.
# After that the producer has to try again.
RETRY_MS: Final = 20
RETRY_LIMIT_MS: Final = 100

OnVerified = Callable[[Mapping[TopicPartition, ErrorCode]], object]


class AskCoordinator(Protocol):
    """Asks the coordinator of a transactional id, wherever it is, about partitions."""

    def __call__(
        self,
        producer: TxnProducer,
        partitions: Collection[TopicPartition],
        on_answer: OnVerified,
        *,
        adds: bool,
    ) -> None:
        """`on_answer` gets an error code for each; with `adds`, missing ones are added."""
        ...


class TransactionVerifier:
    """Asks about the partitions in which the producer has no open transaction yet."""

    def __init__(
        self, runtime: Runtime, replica_manager: ReplicaManager, ask: Callable[[], AskCoordinator]
    ) -> None:
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._replica_manager = replica_manager
        self._ask = ask
        self.failure_count = 0
        """How many partitions were not confirmed."""
        self.on_answer: Callable[[int], object] | None = None
        """Called with how many milliseconds a coordinator took to answer."""

    def verify(
        self,
        producer: TxnProducer,
        partitions: Mapping[TopicPartition, int],
        on_verified: OnVerified,
        *,
        adds: bool = False,
    ) -> None:
        """`on_verified` gets the errors by partition; the other partitions may be appended to.

        `partitions` says with which sequence number the batch for each begins. With `adds` the
        partitions are added to the transaction, if they are not in it.
        """
        limit_ms = self._clock.monotonic_ms() + RETRY_LIMIT_MS if adds else 0
        self._verify(producer, partitions, on_verified, limit_ms)

    def _verify(
        self,
        producer: TxnProducer,
        partitions: Mapping[TopicPartition, int],
        on_verified: OnVerified,
        add_until_ms: int,
    ) -> None:
        asked: dict[TopicPartition, Verification] = {}
        for topic_partition, sequence in partitions.items():
            # A transaction that adds partitions by itself has an epoch of its own: it begins at 0.
            lowest = 0 if add_until_ms else sequence
            verification = self._begin(producer, topic_partition, lowest)
            if verification is not None:
                asked[topic_partition] = verification
        if not asked:
            on_verified({})
            return

        asked_ms = self._clock.monotonic_ms()

        def on_answer(errors: Mapping[TopicPartition, ErrorCode]) -> None:
            if self.on_answer is not None:
                self.on_answer(self._clock.monotonic_ms() - asked_ms)
            is_early = ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
            if is_early and self._clock.monotonic_ms() < add_until_ms:
                # The awaited marker cancels this verification, so the retry begins another.
                self._scheduler.call_later(
                    RETRY_MS, lambda: self._verify(producer, partitions, on_verified, add_until_ms)
                )
                return
            if add_until_ms and any(
                not errors[tp] and verification.is_cancelled for tp, verification in asked.items()
            ):
                # That marker came when the question was on its way.
                self._verify(producer, partitions, on_verified, add_until_ms)
                return
            self.failure_count += sum(map(bool, errors.values()))
            for topic_partition, verification in asked.items():
                if not errors[topic_partition]:
                    verification.is_confirmed = True
            on_verified({tp: error for tp, error in errors.items() if error})

        self._ask()(producer, list(asked), on_answer, adds=bool(add_until_ms))

    def _begin(
        self, producer: TxnProducer, topic_partition: TopicPartition, sequence: int
    ) -> Verification | None:
        """A partition that is not here is not verified: the append refuses it in any case."""
        partition = self._replica_manager.partitions.get(topic_partition)
        if partition is None:
            return None
        return partition.begin_verification(producer.producer_id, producer.producer_epoch, sequence)
