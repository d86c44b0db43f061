"""A partition as this broker sees it: its log, who leads it, and how far it is committed.

The high watermark is the first offset that not every in-sync replica has. Consumers read below
it, an acks=all produce is answered once it has passed the appended batch.
"""

from __future__ import annotations

from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.log.log import FetchDataInfo, Log, LogAppendInfo
from ottla.log.log_validator import AppendOrigin
from ottla.log.producer_state import ProducerState
from ottla.log.producer_state_manager import Verification
from ottla.replication.exchange import (
    ACKS_ALL,
    CONSUMER_REPLICA_ID,
    NO_TIMESTAMP,
    FetchPartition,
    FetchPartitionResult,
    IsolationLevel,
    OffsetResult,
)
from ottla.structs import NO_EPOCH, NO_LEADER, PartitionState, TopicPartition

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2


class Partition:
    """One replica of a partition on this broker, and what the controller last said about it."""

    __slots__ = ("broker_id", "isr", "leader", "leader_epoch", "log", "replicas", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, log: Log, broker_id: int) -> None:
        self.topic_partition = topic_partition
        self.log = log
        self.broker_id = broker_id
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()

    @property
    def topic_id(self) -> UUID:
        return self.log.topic_id

    @property
    def is_leader(self) -> bool:
        return self.leader == self.broker_id

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The first offset of an open transaction, or the high watermark where none is open."""
        return self.log.last_stable_offset

    def make_leader(self, state: PartitionState) -> None:
        """Lead the partition in the epoch of `state`; what the log holds is what is committed."""
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.replicas = state.replicas
        self.isr = state.leader_and_isr.isr
        self.log.leader_epoch_cache.assign(state.leader_epoch, self.log.log_end_offset)
        self._maybe_increment_high_watermark()

    def append_records_to_leader(
        self,
        records: memoryview,
        required_acks: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> LogAppendInfo:
        """Append one produced batch; raises KafkaError with the code that the producer gets."""
        if self.leader != self.broker_id:
            raise self._not_leader()
        if required_acks == ACKS_ALL and len(self.isr) < self.log.config.min_insync_replicas:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition}: {len(self.isr)} in-sync replicas are fewer than "
                f"min.insync.replicas={self.log.config.min_insync_replicas}",
            )
        info = self.log.append_as_leader(records, self.leader_epoch, now_ms=now_ms, origin=origin)
        self._maybe_increment_high_watermark()
        return info

    def read_records(
        self,
        request: FetchPartition,
        max_bytes: int,
        replica_id: int,
        min_one_message: bool,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> FetchPartitionResult:
        """Read whole batches from the wanted offset, as far as the reader may see."""
        self.check_leader_epoch(request.current_leader_epoch)
        log = self.log
        high_watermark = log.high_watermark
        last_stable_offset = log.last_stable_offset
        if replica_id > CONSUMER_REPLICA_ID:
            max_offset = log.log_end_offset
        elif isolation is IsolationLevel.READ_COMMITTED:
            max_offset = last_stable_offset
        else:
            max_offset = high_watermark
        data = self._read(request.fetch_offset, max_bytes, max_offset, min_one_message)
        result = FetchPartitionResult(
            ErrorCode.NONE,
            high_watermark,
            last_stable_offset,
            log.log_start_offset,
            data.records,
        )
        if isolation is IsolationLevel.READ_COMMITTED and replica_id <= CONSUMER_REPLICA_ID:
            result.aborted_transactions = log.aborted_transactions(data, max_offset)
        return result

    def fetch_offset_for_timestamp(
        self, timestamp_ms: int, isolation: IsolationLevel, current_leader_epoch: int = NO_EPOCH
    ) -> OffsetResult:
        """The first record at or after a time; -1 asks for the end, as far as it is readable."""
        self.check_leader_epoch(current_leader_epoch)
        committed = isolation is IsolationLevel.READ_COMMITTED
        end = self.last_stable_offset if committed else self.high_watermark
        if timestamp_ms == LATEST_TIMESTAMP:
            return OffsetResult(ErrorCode.NONE, NO_TIMESTAMP, end, self.leader_epoch)
        found = self.log.fetch_offset_by_timestamp(timestamp_ms)
        if found is None or (found[1] >= end and timestamp_ms != EARLIEST_TIMESTAMP):
            return OffsetResult(ErrorCode.NONE)
        return OffsetResult(ErrorCode.NONE, *found)

    def end_offset_for_epoch(
        self, leader_epoch: int, current_leader_epoch: int = NO_EPOCH
    ) -> tuple[int, int]:
        """The largest epoch up to `leader_epoch` and where it ends here; -1 twice if unknown."""
        self.check_leader_epoch(current_leader_epoch)
        return self.log.leader_epoch_cache.end_offset_for(leader_epoch, self.log.log_end_offset)

    def begin_verification(self, producer_id: int, producer_epoch: int) -> Verification | None:
        """What the transaction's coordinator has to confirm before the next batch; None: nothing.

        Where this broker does not lead there is nothing to confirm: the append is refused anyway.
        """
        if not self.is_leader:
            return None
        return self.log.producer_state_manager.begin_verification(producer_id, producer_epoch)

    def active_producers(self) -> list[ProducerState]:
        """What is known of each producer that has written here, if this broker leads."""
        if not self.is_leader:
            raise self._not_leader()
        return list(self.log.producer_state_manager.producers.values())

    def delete_records(self, offset: int) -> int:
        """Move the log's start up to `offset` (-1: the high watermark); returns the new start."""
        if self.leader != self.broker_id:
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
        return self.log.log_start_offset

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a reader that knows another leader epoch, or that should ask another broker."""
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            older = current_leader_epoch < self.leader_epoch
            raise KafkaError.of(
                ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"{self.topic_partition}: the request has leader epoch {current_leader_epoch}, "
                f"the broker {self.leader_epoch}",
            )
        if self.leader != self.broker_id:
            raise self._not_leader()

    def _read(
        self, offset: int, max_bytes: int, max_offset: int, min_one_message: bool
    ) -> FetchDataInfo:
        return self.log.read(
            offset, max_bytes, max_offset=max_offset, min_one_message=min_one_message
        )

    def _maybe_increment_high_watermark(self) -> None:
        # The leader is the only in-sync replica of a partition without followers.
        self.log.update_high_watermark(self.log.log_end_offset)

    def _not_leader(self) -> KafkaError:
        return KafkaError.of(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"broker {self.broker_id} does not lead {self.topic_partition}; "
            f"broker {self.leader} does",
        )
