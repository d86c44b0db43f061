"""All transactional ids of this broker: a cache in memory over `__transaction_state`.

A partition is loaded when this broker becomes its leader, and its ids are refused with
COORDINATOR_LOAD_IN_PROGRESS until that is done. An id changes when the change is in the log on all
in-sync replicas, so that a crash cannot undo an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ottla.coordinator.coordinator_log import CoordinatorLog, for_each
from ottla.coordinator.coordinator_partitions import CoordinatorPartitions
from ottla.coordinator.coordinator_writer import CoordinatorWriter
from ottla.coordinator.transaction.transaction import IDLE, Transaction, TransactionState
from ottla.coordinator.transaction.transaction_loader import IDS_IN_A_STEP, TransactionLoader
from ottla.coordinator.transaction.transaction_metadata import TransactionMetadata
from ottla.coordinator.transaction.transaction_records import transaction_batch
from ottla.errors import ErrorCode
from ottla.runtime import Runtime
from ottla.runtime.scheduler import Work, at_once, emptied
from ottla.structs import NO_OFFSET, TRANSACTIONS_TOPIC

logger = logging.getLogger(__name__)


STEPS_IN_A_SLICE: Final = 3000
STEPS_OF_AN_ACT: Final = 20
"""A batch of records, or a marker, takes about so much longer than a look at an id."""
IDS_OF_A_MARKER: Final = 20
"""So many ids begin while a marker is written, as for those whose transaction had been decided."""

OnStored = Callable[[ErrorCode], object]

# The error of a failed write of the log for a producer.
STORE_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class TransactionStateManager:
    """The ids of the loaded partitions, and how they are written to the log and loaded."""

    def __init__(self, runtime: Runtime, log: CoordinatorLog) -> None:
        self.log = log
        self._writer = CoordinatorWriter(runtime, log)
        self._runtime = runtime
        self._clock = runtime.clock
        self._by_partition: dict[int, dict[str, TransactionMetadata]] = {}
        self.partitions: CoordinatorPartitions[TransactionLoader] = CoordinatorPartitions(
            runtime, log, TRANSACTIONS_TOPIC
        )

    @property
    def is_loading(self) -> bool:
        return self.partitions.is_loading

    def availability(self, transactional_id: str) -> ErrorCode:
        """NONE if this broker can answer for the id now, else the error for the client."""
        return self.partitions.availability(self.log.partition_for(transactional_id))

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """The id, if it is known here."""
        cache = self._by_partition.get(self.log.partition_for(transactional_id), {})
        return cache.get(transactional_id)

    def add(self, metadata: TransactionMetadata) -> TransactionMetadata:
        """Add an id that is new; its partition is loaded."""
        partition = self.log.partition_for(metadata.transactional_id)
        return self._by_partition[partition].setdefault(metadata.transactional_id, metadata)

    def all(self) -> Iterator[TransactionMetadata]:
        """Every id that is known here; ids may come and go during the iteration."""
        for cache in list(self._by_partition.values()):
            yield from list(cache.values())

    def coordinator_epoch(self, metadata: TransactionMetadata) -> int:
        """The epoch that markers carry, so that those of a former coordinator are refused."""
        return self.log.leader_epoch(self.log.partition_for(metadata.transactional_id))

    def is_current(self, metadata: TransactionMetadata) -> bool:
        """Whether this broker has coordinated the id without a break since it was loaded."""
        return self.get(metadata.transactional_id) is metadata

    def store(
        self,
        metadata: TransactionMetadata,
        following: Transaction,
        on_stored: OnStored,
        then: Callable[[], object] = lambda: None,
    ) -> None:
        """Write the next state of the id, which takes effect before `on_stored` is called.

        `then` is called after both. If the replicas do not have the write in time, `on_stored` gets
        an error first, and the id stays pending until the state of the log is known.
        """
        batch = transaction_batch(metadata.transactional_id, following, self._clock.now_ms())
        prepared = metadata.prepare(following)
        is_answered = is_stored = False

        def on_settled(offset: int) -> None:
            nonlocal is_stored
            is_stored = offset != NO_OFFSET and self.is_current(metadata)
            if not is_stored:
                metadata.give_up(prepared)
                return
            self._take_effect(metadata, prepared)
            if is_answered:
                then()

        def on_answer(error: ErrorCode) -> None:
            nonlocal is_answered
            is_answered = True
            if not self.is_current(metadata) and prepared.state is not TransactionState.DEAD:
                error = error or ErrorCode.NOT_COORDINATOR
            if error:
                _log_refusal(metadata, prepared.state, error)
            on_stored(STORE_ERRORS.get(error, error))
            if is_stored:
                then()

        partition = self.log.partition_for(metadata.transactional_id)
        self._writer.append(partition, batch, on_settled, on_answer)

    def _take_effect(self, metadata: TransactionMetadata, prepared: Transaction) -> None:
        metadata.refusal = None
        is_new = metadata.current.state is not TransactionState.ONGOING
        metadata.complete(prepared)
        if is_new and prepared.state is TransactionState.ONGOING:
            metadata.begin_time_limit(0, self._clock.monotonic_ms())
        if prepared.state is TransactionState.DEAD:
            self._forget(metadata)

    def attend(
        self,
        is_due: Callable[[TransactionMetadata], bool],
        act: Callable[[TransactionMetadata], object],
    ) -> Work[int]:
        """Act on each id that is due, in slices; returns how many they were.

        An id of a partition that is being loaded has no time limit yet.
        """
        count = steps = 0
        for metadata in self.all():
            steps += 1
            name = metadata.transactional_id
            if is_due(metadata) and self.get(name) is metadata and not self.availability(name):
                markers = len(metadata.current.partitions)
                for_each((metadata,), act)
                count += 1
                steps += STEPS_OF_AN_ACT * (1 + markers)
            if steps >= STEPS_IN_A_SLICE:
                steps = 0
                yield
        return count

    def expire(self, expiration_ms: int) -> Work[int]:
        """Forget the ids that were unused for so long; returns how many they were."""

        def is_expired(metadata: TransactionMetadata) -> bool:
            present = metadata.current
            return (
                not metadata.is_pending
                and present.state in IDLE
                and present.updated_ms <= self._clock.now_ms() - expiration_ms
            )

        def forget(metadata: TransactionMetadata) -> None:
            dead = metadata.current.dead(self._clock.now_ms())
            self.store(metadata, dead, lambda error: None)

        return self.attend(is_expired, forget)

    def differences(self, partition: int) -> list[str]:
        """The differences between the ids of a partition and a fresh load of its log.

        It reads the whole partition: for tests and simulated clusters. An id with a change that is
        on its way into the log is not compared.
        """
        loader = TransactionLoader(partition, self.log.read(partition))
        while loader.step():
            pass
        replayed = at_once(loader.transactions())
        known = self._by_partition.get(partition, {})
        found = []
        for transactional_id in sorted(known.keys() | replayed.keys()):
            metadata = known.get(transactional_id)
            if metadata is not None and metadata.is_pending:
                continue
            before = None if metadata is None else metadata.stored_state
            after = replayed.get(transactional_id)
            if before != after:
                found.append(f"id {transactional_id}: in memory {before}, in the log {after}")
        return found

    def load(self, partition: int, on_loaded: Callable[[TransactionMetadata], object]) -> None:
        """This broker leads the partition now: read its ids, in steps."""
        self.partitions.load(
            partition,
            lambda: TransactionLoader(partition, self.log.read(partition)),
            lambda loader: self._finish_loading(loader, on_loaded),
        )

    def unload(self, partition: int) -> None:
        """Another broker leads the partition now."""
        self.partitions.unload(partition)
        gone = self._by_partition.pop(partition, {})
        self._runtime.begin(emptied((gone,)), f"free the ids of partition {partition}")

    def _finish_loading(
        self, loader: TransactionLoader, on_loaded: Callable[[TransactionMetadata], object]
    ) -> Work[None]:
        loaded: dict[str, TransactionMetadata] = {}
        transactions = yield from loader.transactions()
        for count, (transactional_id, transaction) in enumerate(transactions.items(), 1):
            loaded[transactional_id] = TransactionMetadata(transactional_id, transaction)
            if not count % IDS_IN_A_STEP:
                yield
        self._by_partition[loader.partition] = loaded
        if loaded:
            text = "Transaction partition %d is loaded: %d ids from %d records"
            logger.info(text, loader.partition, len(loaded), loader.record_count)
        left = IDS_IN_A_STEP
        for metadata in list(loaded.values()):
            if left <= 0:
                left = IDS_IN_A_STEP
                yield
            left -= 1 + IDS_OF_A_MARKER * len(metadata.current.partitions)
            age_ms = metadata.current.age_ms(self._clock.now_ms())
            metadata.begin_time_limit(age_ms, self._clock.monotonic_ms())
            try:
                on_loaded(metadata)
            except Exception as error:
                loader.report(f"how {metadata} goes on", error)

    def _forget(self, metadata: TransactionMetadata) -> None:
        partition = self.log.partition_for(metadata.transactional_id)
        self._by_partition.get(partition, {}).pop(metadata.transactional_id, None)


def _log_refusal(metadata: TransactionMetadata, state: TransactionState, error: ErrorCode) -> None:
    """Once for each state and error: the write is tried again ten times a second."""
    if metadata.refusal != (state, error):
        metadata.refusal = state, error
        logger.info(
            "Transactional id %r stays %s, as %s cannot be written: %s",
            metadata.transactional_id,
            metadata.current.state.title,
            state.title,
            error.name,
        )
