"""Known bugs, planted one at a time into the code that the simulated world runs.

Each was a real one in a system of this kind. A world that did not notice them would prove nothing.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

import pytest

from ottla.controller.controller import Controller
from ottla.controller.fenced_registry import FencedRegistry
from ottla.controller.partition_state_machine import StoredStates
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.transaction.marker_sender import TxnMarker
from ottla.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from ottla.errors import ErrorCode
from ottla.log.log import UnexpectedAppendOffsetError, append_as_follower
from ottla.protocol.api_keys import ApiKey
from ottla.registry.tree import Set
from ottla.replication import replica_requests
from ottla.replication.follower_partition import FollowerPartition, FollowerSession, LeaderQuestions
from ottla.replication.partition_leader import PartitionLeader
from ottla.security.acls import AclTable
from ottla.server import access_checks, fetch_session
from ottla.server.controller_orders import ControllerOrders
from ottla.structs import INTERNAL_TOPICS, NO_OFFSET, TopicPartition
from ottla.testing.simulation.copy_story import CopyStory
from ottla.testing.simulation.group_story import GroupStory
from ottla.testing.simulation.guarded_story import GuardedStory
from ottla.testing.simulation.operations_story import OperationsStory
from ottla.testing.simulation.pipeline_story import PipelineStory
from ottla.testing.simulation.stories import kind_of, tell
from ottla.testing.simulation.story import Story

Plant = Callable[[pytest.MonkeyPatch], None]

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
        for partition in partitions:
            if self._owners.get(partition) == member_id:
                del self._owners[partition]

    patch.setattr(ConsumerGroup, "is_free_for", lambda self, partition, member_id: True)
    patch.setattr(ConsumerGroup, "_free", free)


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
    change = AclTable._after_change

    def forget_denials_only(self):
        allowed = {asked: True for asked, is_allowed in self._decided.items() if is_allowed}
        change(self)
        self._decided.update(allowed)

    patch.setattr(AclTable, "_after_change", forget_denials_only)


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
}
"""Each bug, and the kind of story that would show it."""

SHOWN_BY: dict[Plant, int] = {
    truncate_to_the_high_watermark: 177,
    acknowledge_before_the_in_sync_replicas_have_it: 49,
    batch_is_cut_off_that_the_leaders_log_begins_within: 93,
    forgotten_partitions_stay_in_fetch_sessions: 13,
    no_fencing_of_transactional_ids: 116,
    markers_before_the_decision_is_in_the_log: 12,
    partitions_given_away_before_they_are_revoked: 26,
    commits_of_stale_epochs_are_taken: 74,
    gap_after_refused_batches_looks_like_a_lost_record: 275,
    produce_forgets_to_ask: 57,
    decisions_outlive_their_acls: 57,
}
"""A seed that has shown the bug, with which the search for it begins. Whatever changes how a world
goes may take the bug away from it: then the others are searched, from the first one on."""


def first_seed_that_fails(plant: Plant, kind: type[Story]) -> int | None:
    """Plant the bug and tell the stories of one kind until one goes wrong."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        order = (SHOWN_BY.get(plant, SEEDS[0]), *SEEDS)
        seeds = (seed for seed in dict.fromkeys(order) if kind_of(seed) is kind)
        return next((seed for seed in seeds if tell(seed).violations), None)


def main(name: str) -> None:
    """Print a seed that shows the bug of this name, or None."""
    logging.disable()
    plant = next(plant for plant in PLANTS if plant.__name__ == name)
    print(first_seed_that_fails(plant, PLANTS[plant]))


if __name__ == "__main__":
    main(sys.argv[1])
