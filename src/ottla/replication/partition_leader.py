"""The leader of a partition: it tracks its followers, and commits.

    leader's log    0 1 2 3 4 5 6 7 8 |        end 9
    follower 2      0 1 2 3 4 5 6 7   |        fetches from 8
    follower 3      0 1 2 3 4         |        fetches from 5
                              ^ high watermark 5: every in-sync replica has all records before

A follower fetches from the end of its log, and so shows how much it has. One that is in sync and
has not caught up for `replica.lag.time.max.ms` is proposed for removal; one that has come up to the
high watermark, and to where the leader's epoch begins, is proposed for addition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ottla.errors import ErrorCode, KafkaError
from ottla.log.log import Log
from ottla.replication.cluster_view import ClusterView
from ottla.replication.follower_state import FollowerState
from ottla.replication.in_sync_replicas import InSyncReplicas
from ottla.runtime import Clock
from ottla.structs import NO_EPOCH, NO_OFFSET, LeaderAndIsr, PartitionState, TopicPartition

logger = logging.getLogger(__name__)

RETRY_BACKOFF_MS: Final = 1_000
"""The controller has refused a change: it is not asked again with every fetch."""
# Requests that a client had sent before it heard of a refusal are answered, or given up, within its
# request.timeout.ms, which is 30 s by default.
PIPELINE_MS: Final = 30_000


class PartitionLeader:
    """The leadership of one partition in one leader epoch.

    Invariant: the high watermark never falls, and every replica of the maximal in-sync set has all
    records before it. `on_progress` is called when it rises for another reason than a call of
    `maybe_increment_high_watermark` or `on_fetch`.
    """

    __slots__ = (
        "_clock",
        "_cluster",
        "_lag_ms",
        "_may_propose_at_ms",
        "_on_progress",
        "_refused_at_ms",
        "_refused_end",
        "broker_id",
        "epoch_start_offset",
        "followers",
        "in_sync",
        "leader_epoch",
        "log",
        "topic_partition",
    )

    def __init__(
        self,
        state: PartitionState,
        log: Log,
        clock: Clock,
        cluster: ClusterView | None,
        lag_ms: int,
        on_progress: Callable[[TopicPartition], object],
    ) -> None:
        self.topic_partition: TopicPartition = state.topic_partition
        self.log = log
        self.broker_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.epoch_start_offset = log.log_end_offset
        self.in_sync = InSyncReplicas(state.leader_and_isr)
        self.followers: dict[int, FollowerState] = {}
        self._clock = clock
        self._cluster = cluster
        self._lag_ms = lag_ms
        self._on_progress = on_progress
        self._may_propose_at_ms = clock.monotonic_ms()
        self._refused_end, self._refused_at_ms = NO_OFFSET, self._may_propose_at_ms
        if not state.is_new or log.log_end_offset:
            self.note_refusal()  # another broker led until now, or this one before it was stopped
        log.leader_epoch_cache.assign(state.leader_epoch, log.log_end_offset)
        self._set_followers(state)
        self.maybe_increment_high_watermark()

    def update(self, state: PartitionState) -> None:
        """Take over replicas or in-sync replicas that changed within the epoch.

        An answer of the controller may have overtaken this order.
        """
        if state.leader_and_isr.version > self.in_sync.version:
            self.in_sync = InSyncReplicas(state.leader_and_isr)
        self._set_followers(state)
        self.maybe_increment_high_watermark()

    def _set_followers(self, state: PartitionState) -> None:
        now_ms = self._clock.monotonic_ms()
        ids = [replica for replica in state.replicas if replica != self.broker_id]
        known = self.followers
        self.followers = {
            replica: known.get(replica)
            or FollowerState(replica, now_ms, replica in self.in_sync.maximal)
            for replica in ids
        }

    def maybe_increment_high_watermark(self) -> bool:
        """Commit all that every in-sync replica has; True if that is more than before.

        Replicas that are about to get in sync are waited for, too: under a steady load they would
        otherwise never come up to the high watermark.
        """
        log = self.log
        offset = log.safe_end_offset
        if self.followers:
            offset = self._smallest_end(offset)
        if offset <= log.high_watermark:
            return False
        log.update_high_watermark(offset)
        return True

    def _smallest_end(self, offset: int) -> int:
        leader_end = self.log.log_end_offset
        for replica in self.followers.values():
            if replica.log_end_offset < offset and (
                replica.broker_id in self.in_sync.maximal or self._may_join(replica, leader_end)
            ):
                offset = replica.log_end_offset
        return offset

    def _may_join(self, replica: FollowerState, leader_end: int) -> bool:
        now_ms = self._clock.monotonic_ms()
        return (
            now_ms >= self._may_propose_at_ms  # the controller refuses one that is shutting down
            and replica.is_caught_up(leader_end, now_ms, self._lag_ms)
            and self._is_live(replica.broker_id)
        )

    def _is_live(self, broker_id: int) -> bool:
        return self._cluster is not None and broker_id in self._cluster.live_brokers()

    @property
    def min_isr(self) -> int:
        return self.log.config.min_insync_replicas

    @property
    def has_enough_replicas(self) -> bool:
        """Whether a write with acks=all may be acknowledged, now that it is committed."""
        return len(self.in_sync.maximal) >= self.min_isr

    def note_refusal(self) -> None:
        """Batches are refused until now: others of the same pipeline may come later."""
        self._refused_end = self.log.log_end_offset
        self._refused_at_ms = self._clock.monotonic_ms()

    def refused_end(self) -> int:
        """Where the log ended when batches were last refused here.

        -1 if that is `PIPELINE_MS` ago: no client has a batch on its way that it sent before.
        """
        if (
            self._refused_end != NO_OFFSET
            and self._clock.monotonic_ms() - self._refused_at_ms > PIPELINE_MS
        ):
            self._refused_end = NO_OFFSET
        return self._refused_end

    def follower(self, replica_id: int, knows_epoch: bool) -> FollowerState:
        """A follower that is assigned the partition, or the error for one that is not (yet)."""
        replica = self.followers.get(replica_id)
        if replica is None:
            raise KafkaError.of(
                ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self.topic_partition}: broker {replica_id} is not one of its replicas here",
            )
        return replica

    def on_fetch(
        self,
        replica: FollowerState,
        offset: int,
        log_start_offset: int,
        leader_end: int,
        broker_epoch: int,
    ) -> bool:
        """A follower has fetched from `offset`; True if that commits something.

        `leader_end` was the log's end when it was read for the follower.
        """
        if NO_EPOCH < broker_epoch < replica.broker_epoch:
            raise KafkaError.of(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self.topic_partition}: a fetch of broker {replica.broker_id} from before its "
                "newest registration",
            )
        replica.broker_epoch = max(replica.broker_epoch, broker_epoch)
        replica.on_fetch(offset, log_start_offset, leader_end, self._clock.monotonic_ms())
        if replica.broker_id not in self.in_sync.committed:
            self._maybe_expand(replica)
        elif self.in_sync.is_uncertain:
            self._ask_again()
        return self.maybe_increment_high_watermark()

    def _maybe_expand(self, replica: FollowerState) -> None:
        end = replica.log_end_offset
        if (
            self._may_propose
            and end >= self.log.high_watermark
            and end >= self.epoch_start_offset
            and self._is_live(replica.broker_id)
        ):
            self._propose((*self.in_sync.committed, replica.broker_id))

    def _ask_again(self) -> None:
        """Propose the committed ISR again, to learn the current one after an unknown outcome.

        Otherwise a replica that the controller may have added is waited for, even forever if dead.
        """
        if self._may_propose:
            self._propose(self.in_sync.committed)

    def maybe_shrink(self) -> None:
        """Propose the removal of in-sync replicas that have not caught up for too long."""
        if not self.followers or not self._may_propose:
            return
        now_ms, leader_end = self._clock.monotonic_ms(), self.log.log_end_offset
        kept = tuple(
            broker_id
            for broker_id in self.in_sync.committed
            if broker_id == self.broker_id
            or (
                broker_id in self.followers
                and self.followers[broker_id].is_caught_up(leader_end, now_ms, self._lag_ms)
            )
        )
        if len(kept) < len(self.in_sync.committed):
            logger.info(
                "%s: shrinking its in-sync replicas from %s to %s at high watermark %d",
                self.topic_partition,
                self.in_sync.committed,
                kept,
                self.log.high_watermark,
            )
            self._propose(kept)
        elif self.in_sync.is_uncertain:
            self._ask_again()

    @property
    def low_watermark(self) -> int:
        """Before this offset no live replica keeps anything."""
        starts = [
            replica.log_start_offset
            for replica in self.followers.values()
            if self._is_live(replica.broker_id)
        ]
        return min([self.log.log_start_offset, *starts])

    @property
    def _may_propose(self) -> bool:
        return (
            self._cluster is not None
            and not self.in_sync.is_in_flight
            and self._clock.monotonic_ms() >= self._may_propose_at_ms
        )

    def _propose(self, isr: tuple[int, ...]) -> None:
        assert self._cluster is not None  # `_may_propose`
        in_sync = self.in_sync
        in_sync.propose(isr)
        state = LeaderAndIsr(self.broker_id, self.leader_epoch, isr, in_sync.version)
        epochs = {
            broker_id: self.followers[broker_id].broker_epoch
            for broker_id in isr
            if broker_id in self.followers
        }
        if self.broker_id in isr:
            epochs[self.broker_id] = self._cluster.broker_epoch()
        self._cluster.alter_isr(
            self.topic_partition,
            self.log.topic_id,
            state,
            epochs,
            lambda answer: self._on_isr_changed(in_sync, answer),
        )

    def _on_isr_changed(self, in_sync: InSyncReplicas, answer: LeaderAndIsr | ErrorCode) -> None:
        if isinstance(answer, LeaderAndIsr) and answer.leader_epoch != self.leader_epoch:
            answer = ErrorCode.NEW_LEADER_ELECTED
        if in_sync is not self.in_sync:
            # The controller has sent another state meanwhile: perhaps an older one.
            if isinstance(answer, ErrorCode) or answer.version <= self.in_sync.version:
                return
            in_sync = self.in_sync = InSyncReplicas(answer)
        if isinstance(answer, LeaderAndIsr):
            if in_sync.accept(answer):
                logger.info("%s: its in-sync replicas are %s", self.topic_partition, answer.isr)
        else:
            logger.info("%s: in-sync replicas not changed: %s", self.topic_partition, answer.name)
            in_sync.refuse(answer)
            self._may_propose_at_ms = self._clock.monotonic_ms() + RETRY_BACKOFF_MS
        self.maybe_increment_high_watermark()
        self._on_progress(self.topic_partition)
