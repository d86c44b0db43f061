"""The replica manager: every partition of this broker, and the requests that wait for them.

One call appends the batches of a produce request, one reads for a fetch. A request that cannot be
answered at once becomes a delayed operation, watched under the partitions that can complete it. The
controller says which partitions this broker leads and which it follows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from ottla.compiled import mypyc_attr
from ottla.config.broker_config import BrokerConfig
from ottla.config.replication_config import RACK_AWARE_SELECTOR
from ottla.config.topic_config import TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.log.large_batches import LargeBatches, Waiting, without_frames
from ottla.log.log_dir import LogDir
from ottla.log.log_manager import LogManager
from ottla.log.log_validator import AppendOrigin, LargeBatchError, Validated
from ottla.log.producer_state_manager import OvertakingBatchError
from ottla.replication.absences import Absences
from ottla.replication.append_results import (
    ACKS_ALL,
    ACKS_NONE,
    PartitionAppendResult,
    Refusals,
    acceptance,
    check_may_write,
    refusal,
)
from ottla.replication.cluster_view import ClusterView
from ottla.replication.delayed_delete_records import DelayedDeleteRecords, DeleteResults
from ottla.replication.delayed_fetch import (
    DelayedFetch,
    FetchResults,
    is_satisfied,
    unknown_to_consumer,
)
from ottla.replication.delayed_operations import DelayedOperations
from ottla.replication.delayed_produce import AppendResults, DelayedProduce, Hold, Respond
from ottla.replication.fetch_reads import FetchReads
from ottla.replication.fetcher_manager import FetcherManager
from ottla.replication.in_sync_replicas import counted
from ottla.replication.partition import Partition
from ottla.replication.replica_requests import (
    DeleteRecordsResult,
    FetchParams,
    OffsetResult,
    PartitionFetch,
)
from ottla.replication.replica_stats import ReplicaStats
from ottla.replication.replication_quota import ReplicationQuota
from ottla.runtime import Runtime, Timer
from ottla.runtime.scheduler import Work
from ottla.structs import (
    CONSUMER_REPLICA_ID,
    EPOCH_DURING_DELETE,
    NO_EPOCH,
    NO_LEADER,
    NO_OFFSET,
    NO_UUID,
    IsolationLevel,
    Node,
    PartitionState,
    StopReplicaPartition,
    TopicPartition,
)

logger = logging.getLogger(__name__)


@mypyc_attr(allow_interpreted_subclasses=True)  # tests have managers without logs
class ReplicaManager:
    """Owns the partitions of one broker; the handlers' only way to their logs.

    `exists` says whether the cluster has a partition, on whichever broker. A broker that may have
    others beside it calls `join_cluster` before it is given partitions.
    """

    def __init__(
        self,
        runtime: Runtime,
        log_manager: LogManager,
        broker_id: int,
        exists: Callable[[TopicPartition], bool],
    ) -> None:
        self.runtime = runtime
        self.log_manager = log_manager
        self.broker_id = broker_id
        self.config = config = log_manager.config
        self.partitions: dict[TopicPartition, Partition] = {}
        # Partitions of this broker in log directories that have failed, or refused a new log.
        self.offline_partitions: set[TopicPartition] = set()
        self.lost_logs: set[TopicPartition] = set()  # made only once another broker leads
        self.is_leaving = False  # it stops soon, and copies nothing that it would get in sync with
        self.delayed = DelayedOperations(runtime.scheduler)
        self.stats = ReplicaStats()
        windows = config.replication_quota_window_num, config.replication_quota_window_size_seconds
        self.leader_quota = ReplicationQuota(runtime.clock, broker_id, *windows)
        self.follower_quota = ReplicationQuota(runtime.clock, broker_id, *windows)
        is_rack_aware = (config.replica_selector_class or "").endswith(RACK_AWARE_SELECTOR)
        self.reads = FetchReads(
            self.partitions, self.why_missing, self.leader_quota, is_rack_aware, self.stats
        )
        self._exists = exists
        self._large_batches = LargeBatches(runtime.background)
        self._refusals = Refusals(runtime.clock)
        self._cluster: ClusterView | None = None
        self.absences = Absences(runtime.clock, config.zookeeper_session_timeout_ms)
        self._timers: list[Timer] = []
        self.fetchers = FetcherManager(
            runtime, log_manager, config, broker_id, self.follower_quota, self._on_progress
        )
        self.update_config(config)

    def join_cluster(self, cluster: ClusterView) -> None:
        """Expect leaders and followers on other brokers from now on."""
        alter_isr = counted(cluster.alter_isr, self.stats, self._in_sync)
        self._cluster = self.reads.cluster = cluster._replace(alter_isr=alter_isr)

    def _in_sync(self, topic_partition: TopicPartition) -> Collection[int]:
        """The in-sync replicas of a partition that is led here."""
        partition = self.partitions.get(topic_partition)
        leadership = None if partition is None else partition.leadership
        return () if leadership is None else leadership.in_sync.committed

    def startup(self) -> None:
        """Begin to look for replicas that have fallen behind, where there can be any."""
        if self._cluster is not None and not self._timers:
            period_ms, scheduler = self.config.replica_lag_time_max_ms // 2, self.runtime.scheduler
            shrink = scheduler.call_every(max(1, period_ms), self._shrink_isrs)
            self._timers = [shrink, self.absences.watch(scheduler)]

    def update_config(self, config: BrokerConfig) -> None:
        """Follow changed rates of replication, and copy with `num.replica.fetchers` a leader."""
        self.leader_quota.bytes_per_second = config.leader_replication_throttled_rate
        self.follower_quota.bytes_per_second = config.follower_replication_throttled_rate
        self.fetchers.resize(config.num_replica_fetchers)

    def shutdown(self) -> None:
        """Stop copying, and answer every request that waits, with the records that are there."""
        while self._timers:
            self._timers.pop().cancel()
        self.fetchers.shutdown()
        self._large_batches.close()
        self.delayed.complete_all()

    def _shrink_isrs(self) -> None:
        for partition in self.partitions.values():
            if partition.leadership is not None:
                partition.leadership.maybe_shrink()

    def on_brokers_changed(self) -> None:
        """Other brokers live now than before: no request waits for a replica that is gone."""
        for topic_partition in self.delayed.produces.watched_keys():
            self._look_again(topic_partition)
        self.delayed.delete_records.check_all()

    def _on_progress(self, topic_partition: TopicPartition) -> None:
        """A high watermark has risen, on this leader or by an answer to this follower."""
        if (partition := self.partitions.get(topic_partition)) is not None:
            partition.wake_followers()
        self.delayed.note_progress(topic_partition)

    def partition(self, topic_partition: TopicPartition) -> Partition:
        """The partition; KafkaError with the error of `why_missing` if it is not here."""
        partition = self.partitions.get(topic_partition)
        if partition is None:
            raise KafkaError.of(
                self.why_missing(topic_partition),
                f"broker {self.broker_id} has no replica of {topic_partition} that it can use",
            )
        return partition

    def log_config(self, topic_partition: TopicPartition) -> TopicConfig | None:
        """The settings of a partition's log; None if it is not here."""
        partition = self.partitions.get(topic_partition)
        return None if partition is None else partition.log.config

    def why_missing(self, topic_partition: TopicPartition) -> ErrorCode:
        """The error of every request for a partition that this broker does not have."""
        if topic_partition in self.offline_partitions:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._exists(topic_partition):  # on another broker, as fresh metadata say
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def append_records(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: Mapping[TopicPartition, memoryview],
        respond: Respond,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        wait_for: Hold = lambda operation: None,
    ) -> None:
        """Append one batch to each partition; `respond` is called once `required_acks` have it.

        The memoryviews are written to (offset and epoch are stamped in place) and are not kept:
        large batches are copied, looked through in the background, and appended afterwards.
        `wait_for` gets the operation that waits for the acknowledgement, if one does.
        """
        results: AppendResults = {}
        large: dict[TopicPartition, LargeBatchError] = {}
        for tp, records in entries.items():
            try:
                results[tp] = self._append(tp, records, required_acks, origin)
            except LargeBatchError as batch:
                large[tp] = without_frames(batch)
        if self._refusals.count:
            self._refusals.log()
        if not large:
            self._acknowledge(timeout_ms, required_acks, results, respond, wait_for)
            return

        def on_validated(tp: TopicPartition, led: Partition, batch: Validated) -> None:
            if self.partitions.get(tp, led) is not led:  # another topic of the name
                batch = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{tp} was made again")
            results[tp] = self._append(tp, batch, required_acks, origin)
            self._refusals.log()
            del large[tp]
            if not large:
                self._acknowledge(timeout_ms, required_acks, results, respond, wait_for)
            self.complete_delayed()  # the turn of the request is over

        todo = [Waiting(large[tp], partial(on_validated, tp, self.partitions[tp])) for tp in large]
        self._large_batches.submit(todo)

    def _acknowledge(
        self, timeout_ms: int, acks: int, results: AppendResults, respond: Respond, hold: Hold
    ) -> None:
        """Respond once `acks` have the batches; `hold` gets the operation that waits for them."""
        is_pending = self._is_unsafe if acks == ACKS_ALL else self._is_unflushed
        if acks != ACKS_NONE:
            for topic_partition, result in results.items():
                if is_pending(topic_partition, result):
                    operation = DelayedProduce(timeout_ms, results, is_pending, respond)
                    self.delayed.produces.watch(operation, list(results))
                    hold(operation)
                    return
        respond(results)

    def _append(
        self,
        topic_partition: TopicPartition,
        records: memoryview | Validated,
        required_acks: int,
        origin: AppendOrigin,
    ) -> PartitionAppendResult:
        if isinstance(records, KafkaError):  # raised again, it would keep itself by its frame
            return refused(self._refusals, self.partitions, topic_partition, records)
        try:
            check_may_write(topic_partition, origin)
            partition = self.partitions.get(topic_partition) or self.partition(topic_partition)
            before = partition.log.high_watermark
            now_ms = self.runtime.clock.now_ms()
            info = partition.append_records_to_leader(records, required_acks, now_ms, origin)
        except KafkaError as error:
            size = len(records) if isinstance(records, memoryview) else 0
            error = self.absences.in_doubt(error)
            return refused(self._refusals, self.partitions, topic_partition, error, size)
        partition.stats.note_append(info)
        if partition.log.high_watermark > before:
            self.delayed.committed[topic_partition] = None
        self._note_news(partition)
        return acceptance(info, partition.tenure)

    def _note_news(self, partition: Partition) -> None:
        """Let the followers of the partition fetch, once this turn of the loop is over."""
        if partition.idle_fetches:
            partition.wake_followers()
        if partition.leadership is not None and partition.leadership.followers:
            self.delayed.followers.update(dict.fromkeys(partition.leadership.followers))

    def _is_unflushed(self, topic_partition: TopicPartition, result: PartitionAppendResult) -> bool:
        """Whether the batch waits for a flush that it has asked for (flush.messages)."""
        if not result.awaits_flush or result.error is not ErrorCode.NONE:
            return False
        partition = self._still_led(topic_partition, result)
        if partition is None or not partition.log.flusher.awaits(result.last_offset):
            return False
        if not partition.log.is_available:
            result.error = ErrorCode.KAFKA_STORAGE_ERROR
            return False
        return True

    def _is_unsafe(self, topic_partition: TopicPartition, result: PartitionAppendResult) -> bool:
        """Whether acks=all has to wait: for the in-sync replicas, or for the disk."""
        partition = None if result.error else self._still_led(topic_partition, result)
        if partition is None:
            return False
        if partition.high_watermark <= result.last_offset:
            return True
        if partition.leadership is not None and not partition.leadership.has_enough_replicas:
            result.error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            return False
        return self._is_unflushed(topic_partition, result)

    def _still_led(
        self, topic_partition: TopicPartition, result: PartitionAppendResult
    ) -> Partition | None:
        """The partition, if it can still acknowledge the batch; else the result says why not."""
        partition = self.partitions.get(topic_partition)
        if partition is None:
            result.error = self.why_missing(topic_partition)
        elif partition.tenure is not result.tenure:
            result.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            return partition
        return None

    def _look_again(self, topic_partition: TopicPartition) -> None:
        """Its log was flushed, or a replica that it waits for may be gone."""
        self.fetchers.on_flushed(topic_partition)
        partition = self.partitions.get(topic_partition)
        leadership = None if partition is None else partition.leadership
        if leadership is not None and leadership.maybe_increment_high_watermark():
            self._on_progress(topic_partition)
        self.delayed.produces.check((topic_partition,))

    def complete_delayed(self) -> None:
        """Serve requests that wait for partitions with news since the last call; once per turn."""
        self.delayed.complete_noted()

    def fetch_records(
        self,
        params: FetchParams,
        partitions: Collection[PartitionFetch],
        respond: Callable[[FetchResults], object],
    ) -> DelayedFetch | None:
        """Read from the partitions; waits up to `max_wait_ms` while there is too little.

        Where none of the partitions exists there is nothing to wait for. Returns the operation that
        waits; None where `respond` was called at once.
        """
        results = self.reads.read(params, partitions)
        unknown = unknown_to_consumer(params, results)
        if params.is_from_follower:
            self.reads.note_follower(params, partitions, results, self.delayed)
        respond = partial(self.reads.answer, params, partitions, respond)
        if (
            params.max_wait_ms <= 0
            or len(unknown) == len(partitions)
            or is_satisfied(params, results, unknown)
        ):
            respond(results)
            return None
        read = partial(self.reads.read, params, partitions)
        operation = DelayedFetch(params, read, respond, unknown)
        if params.is_from_follower:
            self.delayed.follower_fetches.watch(operation, (params.replica_id,))
        else:
            keys = dict.fromkeys(request.topic_partition for request in partitions)
            self.delayed.fetches.watch(operation, keys)
        return operation

    def fetch_offset(
        self,
        topic_partition: TopicPartition,
        timestamp_ms: int,
        isolation: IsolationLevel,
        current_leader_epoch: int,
        replica_id: int = CONSUMER_REPLICA_ID,
    ) -> Work[OffsetResult]:
        """The offset of the first record at or after a time (ListOffsets), by work in slices."""
        try:
            search = self.partition(topic_partition).fetch_offset_for_timestamp(
                timestamp_ms, isolation, current_leader_epoch, replica_id
            )
            return (yield from search)
        except KafkaError as error:
            return OffsetResult(error.error)

    def delete_records(
        self,
        timeout_ms: int,
        offsets: Mapping[TopicPartition, int],
        respond: Callable[[DeleteResults], object],
    ) -> DelayedDeleteRecords:
        """Move log start offsets up; answered once all live replicas have done so."""
        wanted: dict[TopicPartition, int] = {}
        refused: DeleteResults = {}
        for topic_partition, offset in offsets.items():
            try:
                partition = self.partition(topic_partition)
                wanted[topic_partition] = partition.delete_records(offset)
                self._note_news(partition)
            except KafkaError as error:
                refused[topic_partition] = DeleteRecordsResult(NO_OFFSET, error.error)
        operation = DelayedDeleteRecords(
            timeout_ms, wanted, refused, lambda tp: self.partition(tp).low_watermark, respond
        )
        self.delayed.delete_records.try_complete_else_watch(operation, list(wanted))
        return operation

    def become_leader_or_follower(
        self, states: Sequence[PartitionState], brokers: Mapping[int, Node]
    ) -> dict[TopicPartition, ErrorCode]:
        """Take over the roles that the controller gives; logs are created where missing.

        An older epoch than the known one is STALE_CONTROLLER_EPOCH. KAFKA_STORAGE_ERROR is the
        answer where the log is in a directory that has failed.
        """
        errors = {}
        for state in states:
            tp, is_known = state.topic_partition, state.topic_partition in self.offline_partitions
            take_over = partial(self._take_over, state, brokers)
            error = errors[tp] = outcome("taken over", tp, take_over, is_known=is_known)
            if error is ErrorCode.KAFKA_STORAGE_ERROR:
                self.offline_partitions.add(tp)
        # Waiting operations learn of the new epochs now: the logs may soon be truncated.
        self.delayed.check(errors)
        self.fetchers.close_idle()
        return errors

    def _take_over(self, state: PartitionState, brokers: Mapping[int, Node]) -> ErrorCode:
        topic_partition = state.topic_partition
        partition = self.partitions.get(topic_partition)
        if partition is None:
            partition = self._create(state)
        elif state.topic_id not in (NO_UUID, partition.topic_id) and partition.topic_id != NO_UUID:
            # The older topic was deleted while the controller could not reach this broker.
            self.fetchers.remove(topic_partition)
            self._drop(topic_partition)
            self.delayed.check((topic_partition,))  # the new one acknowledges none of its batches
            partition = self._create(state)
        known = partition.leader_epoch, partition.version
        if state.leader_epoch < known[0]:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if (state.leader_epoch, state.leader_and_isr.version) <= known:
            return ErrorCode.NONE  # already applied
        if state.leader == self.broker_id:
            self.fetchers.remove(topic_partition)
            partition.make_leader(
                state,
                self.runtime.clock,
                self._cluster,
                self.config.replica_lag_time_max_ms,
                self._on_progress,
            )
        else:
            self._follow(partition, state, brokers)
        return ErrorCode.NONE

    def _create(self, state: PartitionState) -> Partition:
        tp, logs = state.topic_partition, self.log_manager
        if tp in self.offline_partitions and logs.may_be_on_disk(tp):
            self.partition(tp)  # until the broker is started again
        if tp in self.lost_logs and not (state.is_new or is_led_by_others(state, self.broker_id)):
            raise KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {tp} is lost")
        logs.put_stray_away(tp, state.topic_id)
        is_led = not (state.is_new or is_led_by_others(state, self.broker_id))
        if is_led and logs.get_log(tp) is None:
            logger.warning("%s has no log in log.dirs, and begins empty here, where it is led", tp)
        log = logs.get_or_create_log(tp, state.topic_id, is_new=state.is_new)
        self.offline_partitions.discard(tp)
        self.lost_logs.discard(tp)
        partition = Partition(tp, log, self.broker_id, self.stats.join(tp.topic))
        log.flusher.on_flushed = partial(self._look_again, tp)
        self.partitions[tp] = partition
        return partition

    def _follow(
        self, partition: Partition, state: PartitionState, brokers: Mapping[int, Node]
    ) -> None:
        is_same = partition.leader_epoch == state.leader_epoch and not partition.is_leader
        partition.make_follower(state)
        is_given_up = self.is_leaving and self.broker_id not in state.leader_and_isr.isr
        if is_same and not is_given_up and self.fetchers.follower(state.topic_partition):
            return
        leader = None if is_given_up else brokers.get(state.leader)
        if leader is None or self._cluster is None:
            self.fetchers.remove(state.topic_partition)
        else:
            self.fetchers.add(partition, leader, self._cluster)

    def _drop(self, topic_partition: TopicPartition) -> None:
        if (partition := self.partitions.pop(topic_partition, None)) is not None:
            partition.wake_followers()
            self.stats.leave(topic_partition.topic)

    def on_log_dir_failure(self, log_dir: LogDir) -> list[TopicPartition]:
        """Take the partitions of a failed directory offline, and check the requests for them."""
        gone = [tp for tp, each in self.partitions.items() if each.log.log_dir is log_dir]
        for topic_partition in gone:
            self.fetchers.remove(topic_partition)
            self._drop(topic_partition)
            self.offline_partitions.add(topic_partition)
        self.delayed.check(gone)
        return gone

    def stop_replica(
        self, partitions: Sequence[StopReplicaPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Give partitions up, and their logs where asked; check the requests for them."""
        errors = {}
        for stopped in partitions:
            tp = stopped.topic_partition
            errors[tp] = outcome("stopped", tp, partial(self._stop, stopped))
        self.delayed.check(errors)
        self.fetchers.close_idle()
        return errors

    def _stop(self, stopped: StopReplicaPartition) -> ErrorCode:
        topic_partition = stopped.topic_partition
        partition = self.partitions.get(topic_partition)
        is_certain = stopped.leader_epoch in (NO_EPOCH, EPOCH_DURING_DELETE)
        if partition is not None:
            if not is_certain and stopped.leader_epoch < partition.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            self.fetchers.remove(topic_partition)
            self._drop(topic_partition)
        if stopped.delete:
            logs = self.log_manager
            if logs.get_log(topic_partition) is None and logs.may_be_on_disk(topic_partition):
                return ErrorCode.KAFKA_STORAGE_ERROR  # tried again after a restart
            logs.delete_log(topic_partition)
            self.offline_partitions.discard(topic_partition)
        return ErrorCode.NONE


def is_led_by_others(state: PartitionState, broker_id: int) -> bool:
    """Whether another broker leads, without this one in sync."""
    return not {broker_id, NO_LEADER} & {state.leader, *state.leader_and_isr.isr}


def outcome(
    done: str,
    topic_partition: TopicPartition,
    step: Callable[[], ErrorCode],
    *,
    is_known: bool = False,
) -> ErrorCode:
    """The error of a step with one partition, which does not keep the others from theirs.

    One that `is_known`, as the step is tried again every few seconds, was logged the first time.
    """
    try:
        return step()
    except KafkaError as error:
        level = logging.DEBUG if is_known else logging.ERROR
        logger.log(level, "%s cannot be %s: %s", topic_partition, done, error)
        return error.error
    except Exception:
        logger.exception("%s cannot be %s", topic_partition, done)
        return ErrorCode.UNKNOWN_SERVER_ERROR


def refused(
    refusals: Refusals,
    partitions: Mapping[TopicPartition, Partition],
    topic_partition: TopicPartition,
    error: KafkaError,
    size: int = 0,
) -> PartitionAppendResult:
    """The result of a batch of `size` bytes that was not taken; it is counted and logged.

    A producer's retries come behind other batches that it has sent already; these are refused in
    turn, and no reason to wait for longer.
    """
    if (partition := partitions.get(topic_partition)) is not None:
        is_first = error.retriable and not isinstance(error, OvertakingBatchError)
        if is_first and partition.leadership is not None:
            partition.leadership.note_refusal()
        partition.stats.note_refusal(error.error, size)
    if not error.retriable:
        refusals.note(topic_partition, error)
    return refusal(error)
