"""Known bugs, planted one at a time into the code that the simulated world runs.

Each was a real one in a system of this kind. A world that did not notice them would prove nothing.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable

import pytest

from ottla.clients.consumer.position_validator import PositionValidator
from ottla.controller.controller import Controller
from ottla.controller.fenced_registry import FencedRegistry
from ottla.controller.stored_states import StoredStates
from ottla.coordinator.group.consumer import classic_members
from ottla.coordinator.group.consumer.classic_members import ClassicMembers
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer.consumer_rebalancer import ConsumerRebalancer
from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager
from ottla.coordinator.group.offsets import CommittedOffset, GroupOffsets
from ottla.coordinator.transaction.marker_sender import MarkerSender, TxnMarker
from ottla.coordinator.transaction.marker_writer import MarkerWriter
from ottla.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from ottla.coordinator.transaction.transaction_metadata import TransactionMetadata
from ottla.errors import ErrorCode
from ottla.extensions.cleaner.offset_map import OffsetMap
from ottla.extensions.rights import access_checks
from ottla.log import producer_state_manager, recovery
from ottla.log.follower_append import UnexpectedAppendOffsetError, append_as_follower
from ottla.log.leader_epoch_cache import LeaderEpochCache
from ottla.log.log import Log
from ottla.log.log_dir import LogDir
from ottla.log.log_manager import LogManager
from ottla.protocol.api_keys import ApiKey
from ottla.record.memory_records import batches
from ottla.record.plain_compaction import KeptRecords
from ottla.record.record_batch import assign_offset
from ottla.registry.tree import Set
from ottla.replication import follower_partition, replica_requests
from ottla.replication.follower_partition import FollowerPartition
from ottla.replication.follower_session import FollowerSession
from ottla.replication.in_sync_replicas import InSyncReplicas
from ottla.replication.leader_questions import LeaderQuestions
from ottla.replication.partition import Partition
from ottla.replication.partition_leader import PartitionLeader
from ottla.security.acls import AclTable
from ottla.server import fetch_session
from ottla.server.controller_orders import ControllerOrders
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import INTERNAL_TOPICS, NO_OFFSET, NO_TIMESTAMP, NO_UUID, TopicPartition
from ottla.testing.simulation import story
from ottla.testing.simulation.append_story import AppendStory
from ottla.testing.simulation.copy_story import CopyStory
from ottla.testing.simulation.crowd_story import CrowdStory
from ottla.testing.simulation.group_story import GroupStory
from ottla.testing.simulation.guarded_story import GuardedStory
from ottla.testing.simulation.lives_story import LivesStory
from ottla.testing.simulation.operations_story import OperationsStory
from ottla.testing.simulation.pipeline_story import PipelineStory
from ottla.testing.simulation.stories import kind_of, tell
from ottla.testing.simulation.story import Story
from ottla.testing.simulation.unclean_story import UncleanStory

Plant = Callable[[pytest.MonkeyPatch], None]

PATIENCE_MS = 60_000
"""How long a world with a bug may take to heal: the seeds below heal sooner without one, and a
world that never does would take seconds of a core each."""

SEEDS = range(1, 401)
"""Each bug shows in one of a few stories of its kind; the first that goes wrong ends the search."""


def truncate_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """Before KIP-101 a follower cut its log where it knew of commits, not where the logs part."""

    async def ask_epoch_ends(self, followers):
        for follower in followers:
            await follower.truncate_without_epochs()

    async def take_epoch_end(self, end):
        await self.truncate_without_epochs()

    patch.setattr(LeaderQuestions, "ask_epoch_ends", ask_epoch_ends)
    patch.setattr(FollowerPartition, "take_epoch_end", take_epoch_end)


def acknowledge_before_the_in_sync_replicas_have_it(patch: pytest.MonkeyPatch) -> None:
    """The leader commits what it has alone."""
    patch.setattr(PartitionLeader, "_smallest_end", lambda self, offset: offset)


def controllers_without_epochs(patch: pytest.MonkeyPatch) -> None:
    """A controller that was replaced goes on, and neither ZooKeeper nor the brokers stop it."""
    elect = Controller._elect

    async def elect_once(self):
        if self._active is None:
            await elect(self)

    async def write(self, *operations):
        anyway = (op._replace(version=-1) if isinstance(op, Set) else op for op in operations)
        return await self.registry.multi(tuple(anyway))

    async def read_again(self, partitions):
        for partition, stored in (await self.store.read_states(partitions)).items():
            self.context.set_state(partition, stored.state)

    patch.setattr(Controller, "_elect", elect_once)
    patch.setattr(Controller, "resign", lambda self: None)
    patch.setattr(Controller, "_lose", lambda self, active, reason: None)
    patch.setattr(FencedRegistry, "write", write)
    patch.setattr(StoredStates, "read_again", read_again)
    patch.setattr(ControllerOrders, "_check_epoch", lambda self, controller_epoch: None)


def batch_is_cut_off_that_the_leaders_log_begins_within(patch: pytest.MonkeyPatch) -> None:
    """A new replica of a log whose first records were deleted never gets to its end."""

    async def append(self, records, now_ms):
        try:
            return append_as_follower(self.log, records, self.leader_epoch, now_ms)
        except UnexpectedAppendOffsetError as error:
            await self._truncate(error.base_offset)
            raise

    patch.setattr(FollowerPartition, "append", append)


def no_fencing_of_transactional_ids(patch: pytest.MonkeyPatch) -> None:
    """Whoever names a transactional id may go on with its transaction, in whichever epoch."""

    def identify(self, producer, *, may_repeat=False):
        error = self.availability(producer.transactional_id)
        metadata = None if error else self.manager.get(producer.transactional_id)
        if metadata is None:
            return error or ErrorCode.INVALID_PRODUCER_ID_MAPPING, None
        return ErrorCode.NONE, metadata

    patch.setattr(TransactionCoordinator, "_identify", identify)


def markers_before_the_decision_is_in_the_log(patch: pytest.MonkeyPatch) -> None:
    """Partitions are told how a transaction has ended while that may still be forgotten."""
    decide = TransactionCoordinator._decide

    def tell_first(self, metadata, ended, on_decided):
        marker = TxnMarker(
            ended.producer_id,
            ended.producer_epoch,
            ended.is_commit,
            self.manager.coordinator_epoch(metadata),
        )
        near = [tp for tp in ended.partitions if tp.topic not in INTERNAL_TOPICS]
        self._markers._leaders.write_markers(marker, near, lambda errors: None)
        self._scheduler.call_later(500, lambda: decide(self, metadata, ended, on_decided))

    patch.setattr(TransactionCoordinator, "_decide", tell_first)


def partitions_given_away_before_they_are_revoked(patch: pytest.MonkeyPatch) -> None:
    """A partition goes to its next owner while the member that has it still reads (KIP-848)."""

    def free(self, member_id, partitions):
        for topic_id, number in partitions:
            if self._owners[topic_id].get(number) == member_id:
                del self._owners[topic_id][number]

    def own(self, member_id, partitions):
        for topic_id, number in partitions:
            self._owners[topic_id][number] = member_id

    patch.setattr(ConsumerGroup, "free_for", lambda self, partitions, member_id: partitions)
    patch.setattr(ConsumerGroup, "_free", free)
    patch.setattr(ConsumerGroup, "_own", own)


def commits_of_stale_epochs_are_taken(patch: pytest.MonkeyPatch) -> None:
    """Who was a member of a consumer group may commit, whatever has become of its partitions."""
    patch.setattr(
        ConsumerGroup, "check_generation", lambda group, committer, partitions: ErrorCode.NONE
    )


def forgotten_partitions_stay_in_fetch_sessions(patch: pytest.MonkeyPatch) -> None:
    """One that was named again after its topic had gone got two entries, of which one could go.

    The leader answered with the error of the other at once, and no follower ended the session.
    """
    accept = FollowerSession.accept

    def by_name(topic_partition, topic_id):
        return topic_partition

    def accept_what_was_asked_for(self, response):
        for topic in response.responses:
            name = self.names.get(topic.topic_id, topic.topic)
            topic.partitions = [
                data
                for data in topic.partitions
                if TopicPartition(name, data.partition_index) in self.known
            ]
        return accept(self, response)

    patch.setattr(replica_requests, "partition_key", by_name)
    patch.setattr(fetch_session, "partition_key", by_name)
    patch.setattr(FollowerSession, "accept", accept_what_was_asked_for)


def gap_after_refused_batches_looks_like_a_lost_record(patch: pytest.MonkeyPatch) -> None:
    """Of a pipeline that meets a new leader the first batch is refused, and the next for the gap.

    librdkafka then raises its epoch, and writes again what was appended and not acknowledged.
    """
    patch.setattr(PartitionLeader, "refused_end", lambda self: NO_OFFSET)


def produce_forgets_to_ask(patch: pytest.MonkeyPatch) -> None:
    """One handler has no check of rights: who is unknown to the ACLs writes."""
    patch.setitem(access_checks.CHECKS, ApiKey.PRODUCE, access_checks.free)


def decisions_outlive_their_acls(patch: pytest.MonkeyPatch) -> None:
    """What was allowed once stays allowed on a broker that has read of the denial."""
    put = AclTable.put

    def forget_denials_only(self, pattern, entries):
        allowed = {asked: True for asked, is_allowed in self._decided.items() if is_allowed}
        put(self, pattern, entries)
        self._decided.update(allowed)

    patch.setattr(AclTable, "put", forget_denials_only)


# One for each thing that is compared when the cluster is at rest, or at each look and each poll.


def followers_write_their_own_epoch(patch: pytest.MonkeyPatch) -> None:
    """A follower stamps the epoch that it is in on batches of an older one: no CRC covers it."""

    def append_restamped(log, records, leader_epoch, now_ms):
        data, position = bytearray(records), 0
        for batch in batches(bytes(data)):
            assign_offset(data, position, batch.base_offset, leader_epoch)
            position += batch.size_in_bytes
        return append_as_follower(log, data, leader_epoch, now_ms)

    patch.setattr(follower_partition, "append_as_follower", append_restamped)


def leaders_shrink_by_themselves(patch: pytest.MonkeyPatch) -> None:
    """A leader commits without a replica from the moment on that it wants it out (KIP-497)."""

    def propose(self, isr):
        self.is_in_flight = True
        self.maximal = frozenset(isr)

    patch.setattr(InSyncReplicas, "propose", propose)


def epochs_begin_too_late(patch: pytest.MonkeyPatch) -> None:
    """The first record of an epoch counts for the one before."""
    assign = LeaderEpochCache.assign

    def assign_late(self, epoch, start_offset):
        assign(self, epoch, start_offset + bool(self.entries))

    patch.setattr(LeaderEpochCache, "assign", assign_late)


def producers_are_known_from_the_snapshot_only(patch: pytest.MonkeyPatch) -> None:
    """What was written behind the last snapshot is not read when a log is loaded."""
    patch.setattr(recovery, "_replay_segment", lambda manager, segment, end_offset: None)


def refused_commits_count(patch: pytest.MonkeyPatch) -> None:
    """Offsets are in the memory of the coordinator that did not get into its log."""
    settle = GroupOffsets.settle

    def settle_anyway(self, write, base_offset):
        settle(self, write, 1 << 40 if base_offset == NO_OFFSET else base_offset)

    patch.setattr(GroupOffsets, "settle", settle_anyway)


def offsets_outlive_their_topic(patch: pytest.MonkeyPatch) -> None:
    """A topic that is made again has the committed offsets of the deleted one.

    Each of the two alone is hidden by the other: offsets are deleted with their topic, and those
    that are not count by its id. (A seed that showed the second alone was one of 1,200.)
    """
    current = GroupOffsets.current

    def by_name(
        self: GroupOffsets, is_deleted: object, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        return current(self, lambda partition, topic_id: False, partitions)

    patch.setattr(GroupOffsets, "current", by_name)
    patch.setattr(GroupMetadataManager, "drop_topics", lambda self, topics: None)
    patch.setattr(GroupMetadataManager, "drop_deleted_topics", lambda self: None)


def refused_states_of_transactions_count(patch: pytest.MonkeyPatch) -> None:
    """A transactional id goes on with a state that did not get into the log."""
    patch.setattr(TransactionMetadata, "give_up", TransactionMetadata.complete)


def deleted_replicas_keep_their_logs(patch: pytest.MonkeyPatch) -> None:
    """A broker answers that a replica is deleted, and has its directory still."""
    patch.setattr(LogManager, "delete_log", lambda self, partition: self._note_deletion())


def clients_are_told_of_deleted_topics(patch: pytest.MonkeyPatch) -> None:
    """What a broker tells its clients still has the topics that are gone."""
    patch.setattr(MetadataCache, "_forget", lambda self, name: None)


def marker_is_left_out(patch: pytest.MonkeyPatch) -> None:
    """One of several partitions never gets its marker, and the transaction hangs there."""
    send = MarkerSender._send

    def send_to_the_first(self, metadata, marker, partitions):
        send(self, metadata, marker, frozenset(sorted(partitions)[:1]))

    patch.setattr(MarkerSender, "_send", send_to_the_first)


def marker_has_the_wrong_outcome(patch: pytest.MonkeyPatch) -> None:
    """A transaction is committed in one partition and aborted in another."""
    write = MarkerWriter.write

    def write_odd(self, marker, partitions, on_written):
        if any(each.partition and each.topic not in INTERNAL_TOPICS for each in partitions):
            marker = marker._replace(is_commit=False)
        write(self, marker, partitions, on_written)

    patch.setattr(MarkerWriter, "write", write_odd)


def aborted_records_are_shown(patch: pytest.MonkeyPatch) -> None:
    """Readers of committed records are not told which transactions were aborted."""
    patch.setattr(Log, "aborted_transactions", lambda self, data, max_offset: [])


def open_records_are_shown(patch: pytest.MonkeyPatch) -> None:
    """Readers of committed records get all that is replicated."""
    patch.setattr(Log, "last_stable_offset", property(lambda self: self.high_watermark))


def new_leader_tells_an_old_end(patch: pytest.MonkeyPatch) -> None:
    """Before KIP-207 a new leader told the end that it knew of, which was lower than before."""
    patch.setattr(Partition, "_check_end_is_known", lambda self, replica_id: None)


def compaction_forgets_keys(patch: pytest.MonkeyPatch) -> None:
    """The cleaner leaves out a batch with several records, whatever their keys are."""
    keep = OffsetMap.keep

    def keep_single(self, batch, payload, keep_tombstones):
        if batch.record_count > 1:
            return KeptRecords(b"", 0, NO_TIMESTAMP, False, 0)
        return keep(self, batch, payload, keep_tombstones)

    patch.setattr(OffsetMap, "keep", keep_single)


def log_start_goes_back(patch: pytest.MonkeyPatch) -> None:
    """A replica takes the start of its leader's log although its own is behind that."""

    def start_at(self, offset):
        if offset <= self.high_watermark:
            self._start_at(offset)

    patch.setattr(Log, "maybe_increment_log_start_offset", start_at)


def disk_errors_are_passed_over(patch: pytest.MonkeyPatch) -> None:
    """A log directory stays in service in the middle of what has failed."""
    patch.setattr(LogDir, "fail", lambda self, error: None)


def sequences_do_not_wrap(patch: pytest.MonkeyPatch) -> None:
    """The sequence number behind the largest one is not 0."""
    patch.setattr(producer_state_manager, "next_sequence", lambda sequence: sequence + 1)


def topic_is_known_by_its_name(patch: pytest.MonkeyPatch) -> None:
    """A consumer keeps its position when the topic was made again."""

    def stay(self, state):
        state.topic_id = NO_UUID

    patch.setattr(PositionValidator, "begin_again", stay)


def unclean_elections_are_not_told(patch: pytest.MonkeyPatch) -> None:
    """Nobody hears that a replica leads which was not in sync."""
    patch.setattr(Controller, "unclean_elections", property(lambda self: 0))


# Each leaves out a second look behind a pause of work that is done in slices.


def protocols_are_compared_before_a_pause_only(patch: pytest.MonkeyPatch) -> None:
    """Two classic members come at once that have no protocol in common, and both are let in."""
    check, compared = classic_members.check_protocols, set()

    def check_once(group, attempt):
        if attempt not in compared:
            compared.add(attempt)
            check(group, attempt)

    patch.setattr(classic_members, "check_protocols", check_once)


def room_is_looked_for_before_a_pause_only(patch: pytest.MonkeyPatch) -> None:
    """More members come at once than a group may have."""
    find, found = ClassicMembers._find_place, set()

    def find_once(self, group, attempt):
        if attempt not in found:
            found.add(attempt)
            return find(self, group, attempt)
        classic_members.check_protocols(group, attempt)
        return classic_members.find_rejoining(group, attempt)

    patch.setattr(ClassicMembers, "_find_place", find_once)


def changes_before_a_pause_are_stored_behind_those_in_it(patch: pytest.MonkeyPatch) -> None:
    """The log has the older state of a group last."""
    patch.setattr(ConsumerRebalancer, "_store_so_far", lambda self, changes: None)


PLANTS: dict[Plant, type[Story]] = {
    truncate_to_the_high_watermark: Story,
    acknowledge_before_the_in_sync_replicas_have_it: Story,
    controllers_without_epochs: Story,
    batch_is_cut_off_that_the_leaders_log_begins_within: OperationsStory,
    forgotten_partitions_stay_in_fetch_sessions: OperationsStory,
    no_fencing_of_transactional_ids: CopyStory,
    markers_before_the_decision_is_in_the_log: CopyStory,
    partitions_given_away_before_they_are_revoked: GroupStory,
    commits_of_stale_epochs_are_taken: GroupStory,
    gap_after_refused_batches_looks_like_a_lost_record: PipelineStory,
    produce_forgets_to_ask: GuardedStory,
    decisions_outlive_their_acls: GuardedStory,
    followers_write_their_own_epoch: Story,
    leaders_shrink_by_themselves: Story,
    epochs_begin_too_late: Story,
    producers_are_known_from_the_snapshot_only: AppendStory,
    new_leader_tells_an_old_end: Story,
    disk_errors_are_passed_over: CopyStory,
    sequences_do_not_wrap: PipelineStory,
    refused_commits_count: GroupStory,
    refused_states_of_transactions_count: CopyStory,
    compaction_forgets_keys: CopyStory,
    marker_is_left_out: AppendStory,
    marker_has_the_wrong_outcome: AppendStory,
    aborted_records_are_shown: AppendStory,
    open_records_are_shown: AppendStory,
    deleted_replicas_keep_their_logs: OperationsStory,
    clients_are_told_of_deleted_topics: OperationsStory,
    log_start_goes_back: OperationsStory,
    offsets_outlive_their_topic: LivesStory,
    topic_is_known_by_its_name: LivesStory,
    unclean_elections_are_not_told: UncleanStory,
    protocols_are_compared_before_a_pause_only: CrowdStory,
    room_is_looked_for_before_a_pause_only: CrowdStory,
    changes_before_a_pause_are_stored_behind_those_in_it: CrowdStory,
}
"""Each bug, and the kind of story that would show it."""

SHOWN_BY: dict[Plant, int] = {
    truncate_to_the_high_watermark: 97,
    acknowledge_before_the_in_sync_replicas_have_it: 49,
    controllers_without_epochs: 1,
    batch_is_cut_off_that_the_leaders_log_begins_within: 29,
    forgotten_partitions_stay_in_fetch_sessions: 21,
    no_fencing_of_transactional_ids: 84,
    markers_before_the_decision_is_in_the_log: 4,
    partitions_given_away_before_they_are_revoked: 34,
    commits_of_stale_epochs_are_taken: 2,
    gap_after_refused_batches_looks_like_a_lost_record: 107,
    produce_forgets_to_ask: 57,
    decisions_outlive_their_acls: 9,
    followers_write_their_own_epoch: 1,
    leaders_shrink_by_themselves: 65,
    epochs_begin_too_late: 1,
    producers_are_known_from_the_snapshot_only: 24,
    new_leader_tells_an_old_end: 97,
    disk_errors_are_passed_over: 48,
    sequences_do_not_wrap: 3,
    refused_commits_count: 34,
    refused_states_of_transactions_count: 220,
    compaction_forgets_keys: 68,
    marker_is_left_out: 8,
    marker_has_the_wrong_outcome: 8,
    aborted_records_are_shown: 8,
    open_records_are_shown: 8,
    deleted_replicas_keep_their_logs: 5,
    clients_are_told_of_deleted_topics: 21,
    log_start_goes_back: 53,
    offsets_outlive_their_topic: 42,
    topic_is_known_by_its_name: 154,
    unclean_elections_are_not_told: 63,
    protocols_are_compared_before_a_pause_only: 6,
    room_is_looked_for_before_a_pause_only: 6,
    changes_before_a_pause_are_stored_behind_those_in_it: 54,
}
"""A seed that has shown the bug, with which the search for it begins. Whatever changes how a world
goes may take the bug away from it: then the others are searched, from the first one on."""


def first_seed_that_fails(plant: Plant, kind: type[Story]) -> int | None:
    """Plant the bug and tell the stories of one kind until one goes wrong."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(story, "PEACE_LIMIT_MS", PATIENCE_MS)
        plant(patch)
        order = (SHOWN_BY.get(plant, SEEDS[0]), *SEEDS)
        seeds = (seed for seed in dict.fromkeys(order) if kind_of(seed) is kind)
        return next((seed for seed in seeds if goes_wrong(seed)), None)


def goes_wrong(seed: int) -> bool:
    """Whether a promise is broken, or a check finds no file where a log has one."""
    try:
        return bool(tell(seed).violations)
    except FileNotFoundError:
        return True


def main(name: str) -> None:
    """Print a seed that shows the bug of this name, or None."""
    logging.disable()
    plant = next(plant for plant in PLANTS if plant.__name__ == name)
    print(first_seed_that_fails(plant, PLANTS[plant]))


if __name__ == "__main__":
    main(sys.argv[1])
