"""A partition as this broker sees it: its log, its leader, and its high watermark.

The high watermark is the first offset that not every in-sync replica has. Consumers read below
it, an acks=all produce is answered once it has passed the appended batch. Where this broker leads,
a `PartitionLeader` moves it; where it follows, the leader's answers do.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.log.leader_epoch_cache import EpochEntry
from ottla.log.log import Log, LogAppendInfo
from ottla.log.log_validator import AppendOrigin, ValidBatch
from ottla.log.producer_state_entry import ProducerStateEntry
from ottla.log.producer_state_manager import Verification
from ottla.replication.append_results import ACKS_ALL
from ottla.replication.cluster_view import ClusterView
from ottla.replication.partition_leader import PartitionLeader
from ottla.replication.replica_requests import (
    FetchParams,
    FetchPartitionResult,
    OffsetResult,
    PartitionFetch,
)
from ottla.replication.replica_stats import TopicStats
from ottla.runtime import Clock
from ottla.runtime.scheduler import Work
from ottla.structs import (
    CONSUMER_REPLICA_ID,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_EPOCH,
    NO_LEADER,
    NO_TIMESTAMP,
    IsolationLevel,
    PartitionState,
    TopicPartition,
)


class Partition:
    """One replica of a partition on this broker, and its state in the controller's last order.

    Invariant: `leadership` is set exactly while this broker leads.
    """

    __slots__ = (
        "broker_id",
        "idle_fetches",
        "leader",
        "leader_epoch",
        "leadership",
        "log",
        "replicas",
        "stats",
        "tenure",
        "topic_partition",
        "version",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: Log,
        broker_id: int,
        stats: TopicStats | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.log = log
        self.stats = stats or TopicStats()
        self.broker_id = broker_id
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.version = -1
        self.replicas: tuple[int, ...] = ()
        self.leadership: PartitionLeader | None = None
        self.tenure = object()
        """Another one once this broker follows: what it appended as the leader may be cut off."""
        self.idle_fetches: dict[int, PartitionFetch] = {}
        """The requests of followers that have no news yet, by broker id."""

    @property
    def topic_id(self) -> UUID:
        return self.log.topic_id

    @property
    def is_leader(self) -> bool:
        return self.leadership is not None

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The first offset of an open transaction, or the high watermark where none is open."""
        return self.log.last_stable_offset

    def make_leader(
        self,
        state: PartitionState,
        clock: Clock,
        cluster: ClusterView | None,
        lag_ms: int,
        on_progress: Callable[[TopicPartition], object],
    ) -> None:
        """Lead the partition in the epoch of `state`, or keep leading it with other replicas."""
        leadership = self.leadership
        if leadership is not None and leadership.leader_epoch == state.leader_epoch:
            leadership.update(state)
        else:
            leadership = PartitionLeader(state, self.log, clock, cluster, lag_ms, on_progress)
        self._take_over(state, leadership)

    def make_follower(self, state: PartitionState) -> None:
        """Follow the leader of `state`, if there is one."""
        # An epoch in which we led and wrote nothing would make the logs diverge forever.
        self.log.leader_epoch_cache.truncate_from_end(self.log.log_end_offset)
        self.tenure = object()
        self._take_over(state, None)

    def _take_over(self, state: PartitionState, leadership: PartitionLeader | None) -> None:
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.version = state.leader_and_isr.version
        self.replicas = state.replicas
        self.leadership = leadership
        self.wake_followers()

    def wake_followers(self) -> None:
        """Make the followers' fetches look here again, because there is something new."""
        if self.idle_fetches:
            idle_fetches, self.idle_fetches = self.idle_fetches, {}
            for request in idle_fetches.values():
                if request.session is not None:
                    request.session.wake(request)

    def has_news_for(self, request: PartitionFetch) -> bool:
        """Whether a follower's fetch has to look here: False if it waits where it has before."""
        log = self.log
        return (
            request.noted_by is not self.leadership
            or request.noted_by is None
            or request.fetch_offset != log.log_end_offset
            or request.told_high_watermark != log.high_watermark
            or request.told_log_start_offset != log.log_start_offset
        )

    def on_follower_fetch(self, request: PartitionFetch, params: FetchParams) -> tuple[bool, bool]:
        """A follower has been served: whether that commits something, and moves its log start."""
        leadership = self.leadership
        if leadership is None:
            raise self._not_leader()
        replica = leadership.follower(params.replica_id, request.current_leader_epoch != NO_EPOCH)
        log_start_offset = replica.log_start_offset
        rises = leadership.on_fetch(
            replica,
            request.fetch_offset,
            request.log_start_offset,
            self.log.log_end_offset,
            params.replica_epoch,
        )
        return rises, replica.log_start_offset != log_start_offset

    def append_records_to_leader(
        self,
        records: memoryview | ValidBatch,
        required_acks: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> LogAppendInfo:
        """Append one produced batch; raises KafkaError with the code that the producer gets."""
        leadership = self.leadership
        if leadership is None:
            raise self._not_leader()
        if required_acks == ACKS_ALL and len(leadership.in_sync.committed) < leadership.min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition}: {len(leadership.in_sync.committed)} in-sync replicas are "
                f"fewer than min.insync.replicas={leadership.min_isr}",
            )
        info = self.log.append_as_leader(
            records,
            self.leader_epoch,
            now_ms=now_ms,
            origin=origin,
            refused_end=leadership.refused_end(),
        )
        leadership.maybe_increment_high_watermark()
        return info

    def read_records(
        self, request: PartitionFetch, params: FetchParams, max_bytes: int, min_one_message: bool
    ) -> FetchPartitionResult:
        """Read whole batches from the wanted offset, as far as the reader may see."""
        self._check_topic_id(request.topic_id)
        if params.may_read_from_follower:
            self.check_known_epoch(request.current_leader_epoch)
        else:
            self.check_leader_epoch(request.current_leader_epoch)
        log = self.log
        high_watermark = log.high_watermark
        last_stable_offset = log.last_stable_offset
        is_committed_only = params.isolation is IsolationLevel.READ_COMMITTED
        is_follower = params.replica_id > CONSUMER_REPLICA_ID
        if is_follower:
            max_offset = log.log_end_offset
            is_committed_only = False
        else:
            max_offset = last_stable_offset if is_committed_only else high_watermark
        result = FetchPartitionResult(
            ErrorCode.NONE, high_watermark, last_stable_offset, log.log_start_offset
        )
        if request.last_fetched_epoch != NO_EPOCH:
            result.diverging_epoch = self._divergence(request)
            if result.diverging_epoch is not None:
                return result
        data = log.read(
            request.fetch_offset,
            max_bytes,
            max_offset=max_offset,
            min_one_message=min_one_message,
            skips_empty=not is_follower,
        )
        result.records, result.is_cut = data.records, data.is_cut
        if is_committed_only:
            result.aborted_transactions = log.aborted_transactions(data, max_offset)
        return result

    def _divergence(self, request: PartitionFetch) -> EpochEntry | None:
        """Where the reader's log, which ends in another epoch than ours there, diverges from it."""
        log = self.log
        epoch, end_offset = log.leader_epoch_cache.end_offset_for(
            request.last_fetched_epoch, log.log_end_offset
        )
        if epoch == NO_EPOCH or request.fetch_offset < log.log_start_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition}: offset {request.fetch_offset} of epoch "
                f"{request.last_fetched_epoch} is not in the log",
            )
        if epoch < request.last_fetched_epoch or end_offset < request.fetch_offset:
            return EpochEntry(epoch, end_offset)
        return None

    def fetch_offset_for_timestamp(
        self,
        timestamp_ms: int,
        isolation: IsolationLevel,
        current_leader_epoch: int = NO_EPOCH,
        replica_id: int = CONSUMER_REPLICA_ID,
    ) -> Work[OffsetResult]:
        """The first record at or after a time; -1 asks for the end, as far as it is readable.

        Replicas, and with replica id -2 tools, get the end of the log.
        """
        self.check_leader_epoch(current_leader_epoch)
        if replica_id != CONSUMER_REPLICA_ID:
            end = self.log.log_end_offset
        elif isolation is IsolationLevel.READ_COMMITTED:
            end = self.last_stable_offset
        else:
            end = self.high_watermark
        if timestamp_ms == LATEST_TIMESTAMP:
            self._check_end_is_known(replica_id)
            return OffsetResult(ErrorCode.NONE, NO_TIMESTAMP, end, self.leader_epoch)
        found = yield from self.log.fetch_offset_by_timestamp(timestamp_ms)
        if found is None or (found[1] >= end and timestamp_ms != EARLIEST_TIMESTAMP):
            self._check_end_is_known(replica_id)
            return OffsetResult(ErrorCode.NONE)
        return OffsetResult(ErrorCode.NONE, *found)

    def _check_end_is_known(self, replica_id: int) -> None:
        """A new leader does not know at once how far its predecessor had committed (KIP-207)."""
        leadership = self.leadership
        if (
            replica_id == CONSUMER_REPLICA_ID
            and leadership is not None
            and self.high_watermark < leadership.epoch_start_offset
        ):
            raise KafkaError.of(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"{self.topic_partition}: the high watermark {self.high_watermark} has not come up "
                f"to {leadership.epoch_start_offset}, where the leader's epoch begins",
            )

    def end_offset_for_epoch(
        self, leader_epoch: int, current_leader_epoch: int = NO_EPOCH
    ) -> tuple[int, int]:
        """The largest epoch up to `leader_epoch` and where it ends here; -1 twice if unknown."""
        self.check_leader_epoch(current_leader_epoch)
        return self.log.leader_epoch_cache.end_offset_for(leader_epoch, self.log.log_end_offset)

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int
    ) -> Verification | None:
        """The transaction that its coordinator has to confirm before the next batch, if any.

        Where this broker does not lead there is nothing to confirm: the append is refused anyway.
        """
        if not self.is_leader:
            return None
        known = self.log.producer_state_manager
        return known.begin_verification(producer_id, producer_epoch, sequence)

    def has_open_txn(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has an open transaction in this epoch, if this broker leads."""
        known = self.log.producer_state_manager
        return self.is_leader and known.has_open_txn(producer_id, producer_epoch)

    def active_producers(self) -> list[ProducerStateEntry]:
        """The state of each producer that has written here; a follower has it as well."""
        return list(self.log.producer_state_manager.producers.values())

    def delete_records(self, offset: int) -> int:
        """Move the log's start up to `offset` (-1: the high watermark); returns the new start."""
        if not self.is_leader:
            raise self._not_leader()
        if self.log.config.cleanup_policy == ("compact",):
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{self.topic_partition}: records of a topic with cleanup.policy=compact "
                "go by compaction only",
            )
        wanted = self.high_watermark if offset == -1 else offset
        if wanted < 0 or wanted > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition}: cannot delete records before offset {offset}; "
                f"the high watermark is {self.high_watermark}",
            )
        self.log.maybe_increment_log_start_offset(wanted)
        return wanted

    @property
    def low_watermark(self) -> int:
        """Before this offset no live replica keeps anything; raises where another broker leads."""
        if self.leadership is None:
            raise self._not_leader()
        return self.leadership.low_watermark

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a reader that knows another leader epoch, or that should ask another broker."""
        self.check_known_epoch(current_leader_epoch)
        if self.leadership is None:
            raise self._not_leader()

    def check_known_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a reader that knows another leader epoch than this broker."""
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            older = current_leader_epoch < self.leader_epoch
            raise KafkaError.of(
                ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"{self.topic_partition}: the request has leader epoch {current_leader_epoch}, "
                f"the broker {self.leader_epoch}",
            )

    def _check_topic_id(self, topic_id: UUID) -> None:
        """Refuse a reader of an older topic of the same name, whose fetch session continues."""
        asked, known = topic_id.int, self.log.topic_id.int
        if asked != known and asked and known:
            raise KafkaError.of(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{self.topic_partition}: the request has topic id {topic_id}, the log "
                f"{self.log.topic_id}",
            )

    def _not_leader(self) -> KafkaError:
        return KafkaError.of(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"broker {self.broker_id} does not lead {self.topic_partition}; "
            f"broker {self.leader} does",
        )
