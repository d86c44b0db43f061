"""The replica manager: every partition of this broker, and the requests that wait for them.

One call appends the batches of a produce request, one reads for a fetch. What cannot be answered
at once becomes a delayed operation, watched under the partitions that can complete it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ottla.errors import ErrorCode, KafkaError
from ottla.log.log_dir import LogDir
from ottla.log.log_manager import LogManager
from ottla.log.log_validator import AppendOrigin
from ottla.replication.delayed_fetch import DelayedFetch, FetchResults, is_satisfied
from ottla.replication.delayed_produce import AppendResults, DelayedProduce
from ottla.replication.exchange import (
    ACKS_ALL,
    ACKS_NONE,
    UNKNOWN_OFFSET,
    DeleteRecordsResult,
    FetchParams,
    FetchPartition,
    FetchPartitionResult,
    IsolationLevel,
    OffsetResult,
    PartitionAppendResult,
)
from ottla.replication.partition import Partition
from ottla.runtime import DelayedOperationPurgatory, Runtime
from ottla.structs import (
    INTERNAL_TOPICS,
    Node,
    PartitionState,
    StopReplicaPartition,
    TopicPartition,
)

logger = logging.getLogger(__name__)


class ReplicaManager:
    """Owns the partitions of one broker; the handlers' only way to their logs."""

    def __init__(self, runtime: Runtime, log_manager: LogManager, broker_id: int) -> None:
        self.runtime = runtime
        self.log_manager = log_manager
        self.broker_id = broker_id
        self.partitions: dict[TopicPartition, Partition] = {}
        # Partitions of this broker in log directories that have failed.
        self.offline_partitions: set[TopicPartition] = set()
        self.delayed_fetches = DelayedOperationPurgatory[TopicPartition]("Fetch", runtime.scheduler)
        self.delayed_produces = DelayedOperationPurgatory[TopicPartition](
            "Produce", runtime.scheduler
        )
        self._appended: set[TopicPartition] = set()

    def partition(self, topic_partition: TopicPartition) -> Partition:
        """The partition, or UNKNOWN_TOPIC_OR_PARTITION; KAFKA_STORAGE_ERROR if it is offline."""
        partition = self.partitions.get(topic_partition)
        if partition is None:
            if topic_partition in self.offline_partitions:
                raise KafkaError.of(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"the log directory of {topic_partition} is offline",
                )
            raise KafkaError.of(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic_partition} is not on this broker"
            )
        return partition

    def append_records(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: Mapping[TopicPartition, memoryview],
        respond: Callable[[AppendResults], object],
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> None:
        """Append one batch to each partition; `respond` is called once `required_acks` have it.

        The memoryviews are written to (offset and epoch are stamped in place) and are not kept.
        """
        now_ms = self.runtime.clock.now_ms()
        results = {
            tp: self._append(tp, records, required_acks, now_ms, origin)
            for tp, records in entries.items()
        }
        is_pending = self._is_unsafe if required_acks == ACKS_ALL else self._is_unflushed
        if required_acks != ACKS_NONE and any(is_pending(tp, results[tp]) for tp in results):
            operation = DelayedProduce(timeout_ms, results, is_pending, respond)
            self.delayed_produces.watch(operation, list(results))
        else:
            respond(results)

    def _append(
        self,
        topic_partition: TopicPartition,
        records: memoryview,
        required_acks: int,
        now_ms: int,
        origin: AppendOrigin,
    ) -> PartitionAppendResult:
        try:
            if topic_partition.topic in INTERNAL_TOPICS and origin is AppendOrigin.CLIENT:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"{topic_partition.topic} is written by the broker only",
                )
            partition = self.partition(topic_partition)
            info = partition.append_records_to_leader(records, required_acks, now_ms, origin)
        except KafkaError as error:
            if not error.retriable:
                logger.info("refused a batch for %s: %s", topic_partition, error)
            return PartitionAppendResult(error.error, error_message=error.message)
        self._appended.add(topic_partition)
        return PartitionAppendResult(
            ErrorCode.NONE,
            info.first_offset,
            info.last_offset,
            info.log_append_time_ms,
            info.log_start_offset,
            awaits_flush=info.awaits_flush,
        )

    def _is_unflushed(self, topic_partition: TopicPartition, result: PartitionAppendResult) -> bool:
        """Whether the batch waits for a flush that it has asked for (flush.messages)."""
        if not result.awaits_flush or result.error is not ErrorCode.NONE:
            return False
        partition = self._still_led(topic_partition, result)
        if partition is None or not partition.log.awaits_flush(result.last_offset):
            return False
        if not partition.log.is_available:
            result.error = ErrorCode.KAFKA_STORAGE_ERROR
            return False
        return True

    def _is_unsafe(self, topic_partition: TopicPartition, result: PartitionAppendResult) -> bool:
        """Whether acks=all has to wait: for the in-sync replicas, or for the disk."""
        if result.error is not ErrorCode.NONE:
            return False
        partition = self._still_led(topic_partition, result)
        if partition is None:
            return False
        if partition.high_watermark <= result.last_offset:
            return True
        return self._is_unflushed(topic_partition, result)

    def _still_led(
        self, topic_partition: TopicPartition, result: PartitionAppendResult
    ) -> Partition | None:
        """The partition, if it can still acknowledge the batch; else the result says why not."""
        partition = self.partitions.get(topic_partition)
        if topic_partition in self.offline_partitions:
            result.error = ErrorCode.KAFKA_STORAGE_ERROR
            return None
        if partition is None or not partition.is_leader:
            result.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return None
        return partition

    def _on_flushed(self, topic_partition: TopicPartition) -> None:
        self.delayed_produces.check_and_complete(topic_partition)

    def complete_delayed(self) -> None:
        """Serve what waits for the partitions appended to since the last call.

        The processor calls this once a turn, after all requests of the turn were handled, so that
        one answer to a long poll carries all that arrived, and no handler runs inside another.
        """
        if not self._appended:
            return
        appended, self._appended = self._appended, set()
        for topic_partition in appended:
            self.delayed_produces.check_and_complete(topic_partition)
            self.delayed_fetches.check_and_complete(topic_partition)

    def fetch_records(
        self,
        params: FetchParams,
        partitions: Sequence[FetchPartition],
        respond: Callable[[FetchResults], object],
    ) -> None:
        """Read from the partitions; waits up to `max_wait_ms` while there is too little."""
        results = self.read_from_logs(params, partitions)
        if params.max_wait_ms <= 0 or not partitions or is_satisfied(params, results):
            respond(results)
            return
        read = partial(self.read_from_logs, params, partitions)
        operation = DelayedFetch(params, read, respond)
        keys = [request.topic_partition for request in partitions]
        self.delayed_fetches.watch(operation, keys)

    def read_from_logs(
        self, params: FetchParams, partitions: Sequence[FetchPartition]
    ) -> FetchResults:
        """Read each partition in the order asked for, within the limits of the request.

        The first partition with data gives at least one whole batch, whatever its size (KIP-74).
        """
        results: FetchResults = {}
        left = params.max_bytes
        for request in partitions:
            max_bytes = min(request.max_bytes, left)
            minimum_served = left < params.max_bytes
            result = self._read(request, params, max_bytes, not minimum_served)
            left = max(0, left - result.size_in_bytes)
            results[request.topic_partition] = result
        return results

    def _read(
        self, request: FetchPartition, params: FetchParams, max_bytes: int, min_one_message: bool
    ) -> FetchPartitionResult:
        try:
            partition = self.partition(request.topic_partition)
            return partition.read_records(
                request, max_bytes, params.replica_id, min_one_message, params.isolation
            )
        except KafkaError as error:
            return FetchPartitionResult(error.error)

    def fetch_offset(
        self,
        topic_partition: TopicPartition,
        timestamp_ms: int,
        isolation: IsolationLevel,
        current_leader_epoch: int,
    ) -> OffsetResult:
        """The offset of the first record at or after a time (ListOffsets)."""
        try:
            partition = self.partition(topic_partition)
            return partition.fetch_offset_for_timestamp(
                timestamp_ms, isolation, current_leader_epoch
            )
        except KafkaError as error:
            return OffsetResult(error.error)

    def delete_records(
        self,
        timeout_ms: int,
        offsets: Mapping[TopicPartition, int],
        respond: Callable[[dict[TopicPartition, DeleteRecordsResult]], object],
    ) -> None:
        """Move log start offsets up; answered at once, for there are no followers to wait for."""
        results = {}
        for topic_partition, offset in offsets.items():
            try:
                low_watermark = self.partition(topic_partition).delete_records(offset)
                results[topic_partition] = DeleteRecordsResult(low_watermark, ErrorCode.NONE)
            except KafkaError as error:
                results[topic_partition] = DeleteRecordsResult(UNKNOWN_OFFSET, error.error)
        respond(results)

    def shutdown(self) -> None:
        """Answer everything that waits, with what there is."""
        self.delayed_produces.complete_all()
        self.delayed_fetches.complete_all()

    def become_leader_or_follower(
        self, states: Sequence[PartitionState], brokers: Mapping[int, Node]
    ) -> dict[TopicPartition, ErrorCode]:
        """Take over the leadership that the controller gives; logs are created where missing.

        KAFKA_STORAGE_ERROR is the answer where the log is in a directory that has failed.
        """
        errors = {}
        for state in states:
            errors[state.topic_partition] = ErrorCode.NONE
            try:
                self._take_over(state)
            except KafkaError as error:
                if error.error is not ErrorCode.KAFKA_STORAGE_ERROR:
                    raise
                if state.topic_partition not in self.offline_partitions:
                    logger.error("%s is offline: %s", state.topic_partition, error)
                    self.offline_partitions.add(state.topic_partition)
                errors[state.topic_partition] = error.error
        return errors

    def _take_over(self, state: PartitionState) -> None:
        topic_partition = state.topic_partition
        partition = self.partitions.get(topic_partition)
        if partition is None:
            if topic_partition in self.offline_partitions:  # until the broker is started again
                self.partition(topic_partition)
            log = self.log_manager.get_or_create_log(
                topic_partition, state.topic_id, is_new=state.is_new
            )
            partition = Partition(topic_partition, log, self.broker_id)
            log.on_flushed = partial(self._on_flushed, topic_partition)
            self.partitions[topic_partition] = partition
        if state.leader_epoch > partition.leader_epoch:
            partition.make_leader(state)

    def on_log_dir_failure(self, log_dir: LogDir) -> list[TopicPartition]:
        """Take the partitions of a failed directory offline; whoever waits for one is told so."""
        gone = [tp for tp, each in self.partitions.items() if each.log.log_dir is log_dir]
        for topic_partition in gone:
            del self.partitions[topic_partition]
            self.offline_partitions.add(topic_partition)
        for topic_partition in gone:
            self.delayed_produces.check_and_complete(topic_partition)
            self.delayed_fetches.check_and_complete(topic_partition)
        return gone

    def stop_replica(
        self, partitions: Sequence[StopReplicaPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Give partitions up; whoever waits for one of them is told so."""
        for topic_partition, _, delete in partitions:
            self.offline_partitions.discard(topic_partition)
            if self.partitions.pop(topic_partition, None) is not None:
                self.delayed_produces.check_and_complete(topic_partition)
                self.delayed_fetches.check_and_complete(topic_partition)
            if delete:
                self.log_manager.delete_log(topic_partition)
        return {each.topic_partition: ErrorCode.NONE for each in partitions}
