"""A large group changes its protocol in slices: whatever comes between them, nothing is lost.

One member is a slice here. In each pause, of each direction, something else happens. The log has
the group as a whole behind each of its batches, and the members go on from there.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from consumer_group_world import HEARTBEAT_MS, ConsumerWorld
from group_world import MemoryOffsetsLog, World
from migration_clients import PARTITIONS, ClassicClient, ConsumerClient

from ottla.coordinator.group import group_records, rebalancer
from ottla.coordinator.group.classic_group import ClassicGroup
from ottla.coordinator.group.consumer import group_migration
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.group import Group
from ottla.errors import ErrorCode
from ottla.protocol.offsets_topic import GroupMetadataKey, OffsetCommitKey, decode_key
from ottla.record.batch_builder import build_end_transaction_marker
from ottla.record.control_record import CONTROL_KEY, ControlRecordType, EndTransactionMarker
from ottla.runtime import Slices
from ottla.structs import TopicPartition, TxnProducer

if TYPE_CHECKING:
    from collections.abc import Callable

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
MEMBERS = 3
PRODUCER = TxnProducer("x", 7, 0)
GONE, STAGED = TopicPartition("gone", 0), TopicPartition("t", 4)


class Story:
    """A world with a group of classic members, and a newcomer of the other protocol."""

    def __init__(self) -> None:
        self.world = ConsumerWorld({"t": len(PARTITIONS), "gone": 1})
        self.classic = [ClassicClient(self.world) for _ in range(MEMBERS)]
        self.newcomer = ConsumerClient(self.world, "new")
        self.replies: list[Any] = []
        self.put_out: set[str] = set()
        self.held = 0
        for each in self.classic:
            each.is_in = True
        self.live_on()
        first = self.classic[0].peer
        commit = self.world.commit(3, first.member_id, first.generation, topic="gone")
        assert commit.value is ErrorCode.NONE
        value = self.group.offsets.get(GONE)._replace(offset=5)
        self.manager.store_offsets_in_transaction(
            self.group, PRODUCER, {STAGED: value}, lambda error: None
        )

    @property
    def manager(self) -> Any:
        return self.world.coordinator.manager

    @property
    def group(self) -> Any:
        return self.manager.group("g")

    @property
    def clients(self) -> list[Any]:
        return [each for each in (*self.classic, self.newcomer) if each.is_in]

    @property
    def is_calm(self) -> bool:
        """Whether each partition has its holder, in a group of the right kind."""
        held = [partition for client in self.clients for partition in client.held]
        return (
            sorted(held) == sorted(PARTITIONS)
            and isinstance(self.group, ConsumerGroup) == self.newcomer.is_in
            and self.group.state_name == "Stable"
        )

    def live_on(self) -> None:
        """Everybody has turns, and time goes on, until nothing is left to be done."""
        for _ in range(60):
            if self.is_calm:
                return
            for client in self.clients:
                client.step()
            self.world.advance(HEARTBEAT_MS // 2)
        raise AssertionError(f"{self.group} does not settle: {self.group.state_name}")

    def upgrade(self) -> None:
        """The newcomer joins."""
        self.newcomer.is_in = True
        self.join("new")
        self.world.advance(0)

    def downgrade(self) -> None:
        """The newcomer has left, and the others do what they are asked to."""
        for client in self.classic * 20:
            client.step()
            self.world.advance(0)
            if isinstance(self.group, ClassicGroup):
                return

    def join(self, member_id: str) -> None:
        """A member of the consumer protocol joins, and may have to come again."""
        reply = self.world.send(
            member_id=member_id,
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            topic_partitions=[],
            subscribed_topic_names=["t"],
        )
        self.replies.append(reply)

    def is_whole(self, length: int) -> bool:
        """Whether the log has the group as a whole, as far as it has so many batches."""
        log = MemoryOffsetsLog()
        log.partitions[0] = self.world.log.partitions[0][:length]
        group: Any = World(log=log).coordinator.manager.group("g")
        if isinstance(group, ConsumerGroup):
            stored = [each for each in group.members.values() if each.is_classic]
            assert all(each.current.member_epoch for each in stored)
            assert all(each.member_id in group.target for each in stored)
            return len(stored) >= MEMBERS - 1
        return len(group.members) >= MEMBERS - 1


def identity(group: Any) -> object:
    """Kind, members, and generation or epoch of a group."""
    is_consumer = isinstance(group, ConsumerGroup)
    number = group.group_epoch if is_consumer else group.generation_id
    return group.type, set(group.members), number


def kinds_in(log: MemoryOffsetsLog) -> set[type[Group]]:
    """The kinds of groups that the last values in the log are of."""
    values = {k: v for k, v in log.records() if k is not None and len(k) > CONTROL_KEY.size}
    keys = [decode_key(key) for key, value in values.items() if value is not None]
    return {
        ClassicGroup if isinstance(key, GroupMetadataKey) else ConsumerGroup
        for key in keys
        if not isinstance(key, OffsetCommitKey)
    }


def requests(story: Story) -> None:
    """Members and others ask for things that are for later."""
    world, is_held = story.world, story.group is not None and story.group.is_dying
    story.held += is_held
    peers = [client.peer for client in story.classic]
    errors = [world.heartbeat(peer.member_id, peer.generation) for peer in peers]
    commit = world.commit(9, peers[0].member_id, peers[0].generation)
    if is_held:
        assert errors == [ErrorCode.NONE] * MEMBERS
        assert commit.value is LOADING
        assert peers[0].join().error is LOADING
        assert peers[1].sync().error is ErrorCode.REBALANCE_IN_PROGRESS
        assert world.leave(peers[2].member_id) == [LOADING]
        assert world.delete("g") == {"g": LOADING}


def other_joins(story: Story) -> None:
    """It would have the group change its protocol as well."""
    story.join("new")


def session_ends(story: Story) -> None:
    group, coordinator = story.group, story.world.coordinator
    if group is None or not group.members:
        return
    member = next(iter(group.members.values()))
    story.put_out.add(member.member_id)
    if isinstance(group, ConsumerGroup):
        coordinator.consumer_rebalancer.take_out(group, [member], "a test", lambda error: None)
    else:
        coordinator.rebalancer.remove_member(group, member, "a test")


def topic_comes(story: Story) -> None:
    """Members that send heartbeats have the group look at it."""
    story.world.create("other", 1)
    requests(story)


def topic_goes(story: Story) -> None:
    """The group has an offset of it."""
    story.world.drop("gone")
    story.manager.drop_topics({"gone"})


def transaction_ends(story: Story) -> None:
    marker = EndTransactionMarker(ControlRecordType.COMMIT, 0)
    batch = build_end_transaction_marker(marker, 0, PRODUCER.producer_id, 0)

    def written(error: ErrorCode, place: int) -> None:
        story.manager.end_transaction(0, place, PRODUCER.producer_id, commit=True)

    story.world.log.append(0, batch, written)


def coordinator_moves(story: Story) -> None:
    """Away, and back."""
    story.world.coordinator.on_resignation(0)
    story.world.coordinator.on_election(0)


def log_fails(story: Story) -> None:
    story.world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS


def log_is_slow(story: Story) -> None:
    story.world.log.hold = True


def nothing(story: Story) -> None:
    """The group is only large."""


EVENTS = [
    nothing,
    requests,
    other_joins,
    session_ends,
    topic_comes,
    topic_goes,
    transaction_ends,
    coordinator_moves,
    log_fails,
    log_is_slow,
]


def convert(
    story: Story, monkeypatch: pytest.MonkeyPatch, is_upgrade: bool, events: dict[int, Any]
) -> int:
    """Convert the group, with something else in some of the pauses; returns how many these are."""
    pauses = 0
    pause = Slices.pause

    async def watched(slices: Slices) -> None:
        nonlocal pauses
        pauses += 1
        if pauses in events:
            events[pauses](story)
        await pause(slices)

    with monkeypatch.context() as patched:
        for module in (group_migration, group_records, rebalancer):
            patched.setattr(module, "MEMBERS_IN_A_SLICE", 1)
        patched.setattr(group_migration, "ADOPTED_IN_A_SLICE", 1)
        patched.setattr(Slices, "pause", watched)
        (story.upgrade if is_upgrade else story.downgrade)()
    story.world.log.error = ErrorCode.NONE
    story.world.log.hold = False
    story.world.log.release()
    story.world.advance(0)
    return pauses


def prepared(is_upgrade: bool) -> Story:
    """A story that is about to convert the group."""
    story = Story()
    if not is_upgrade:
        story.newcomer.is_in = True
        story.live_on()
        story.newcomer.leave()
    return story


@pytest.mark.usefixtures("core_source")
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
@pytest.mark.parametrize("is_upgrade", [True, False], ids=["upgrade", "downgrade"])
def test_group_is_whole_whatever_comes_in_a_pause(
    monkeypatch: pytest.MonkeyPatch, is_upgrade: bool, event: Callable[[Story], None]
) -> None:
    """In memory, in the log behind each batch, and for the members, which live on."""
    for place in count(1):
        story = prepared(is_upgrade)
        before = len(story.world.log.partitions[0])
        pauses = convert(story, monkeypatch, is_upgrade, {place: event})
        assert pauses >= MEMBERS
        if place > pauses:
            break
        assert not any(reply.is_open for reply in story.replies)
        assert story.group is not None
        assert not story.group.is_dying
        after = len(story.world.log.partitions[0])
        assert all(story.is_whole(length) for length in range(before, after + 1))
        assert not story.put_out & story.group.members.keys()
        if event in (requests, topic_comes) and place <= MEMBERS:
            assert story.held
        assert all(member.session_timer for member in story.group.members.values())
        # A classic group that has lost a member is written when the others have joined again.
        is_complete = event is not session_ends or isinstance(story.group, ConsumerGroup)
        if is_complete and event is not log_fails:
            assert identity(World(log=story.world.log).group()) == identity(story.group)
        story.live_on()
        assert story.manager.differences(0) == []
        assert kinds_in(story.world.log) == {type(story.group)}
        staged = None if event is not transaction_ends else 5
        assert story.world.committed(partition=STAGED.partition) == staged
        assert story.world.committed("gone") == (None if event is topic_goes else 3)
        again = World(log=story.world.log)
        again.topics = story.world.topics
        assert again.group().type is story.group.type
