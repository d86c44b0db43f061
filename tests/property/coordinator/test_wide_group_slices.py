"""Members with very many topics are told in slices: whatever comes between them, nothing is lost.

One topic, one part of a record, one step of an assignor is a slice here. In each pause of a
heartbeat something else happens; then all go on until each partition has its reader.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from consumer_group_world import CLIENT, HEARTBEAT_MS, REVOCATION_MS, ConsumerWorld, Peer
from group_world import Reply

from ottla.coordinator.group.consumer import (
    assignors,
    cluster_topics,
    consumer_group_records,
    consumer_rebalancer,
    target_assignment,
)
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.errors import ErrorCode
from ottla.protocol.consumer_group import ConsumerGroupHeartbeatRequest
from ottla.runtime import Slices
from ottla.runtime.scheduler import at_once

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = [f"t{number}" for number in range(4)]
LATER, OWN = "later", "own"
"""A topic that is still to come, and one that only one of the members reads."""
STARTS_ANEW = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}
COMES_AGAIN = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


class Story:
    """Two members that share all topics, and others that may come."""

    def __init__(self) -> None:
        self.world = ConsumerWorld(dict.fromkeys([*NAMES, OWN], 2))
        self.peers = {name: Peer(name) for name in "ab"}
        self.names = {name: [*NAMES, LATER] for name in "abcd"}
        self.names["b"].append(OWN)
        self.replies: list[Reply] = []
        self.live_on()

    @property
    def group(self) -> ConsumerGroup:
        return self.world.consumers

    @property
    def readable(self) -> list[tuple[str, int]]:
        """The partitions of the topics that some member reads."""
        names = {each for peer in self.peers for each in self.names[peer]}
        topics = [topic for topic in self.world.topics.topics() if topic.name in names]
        return sorted((each.name, n) for each in topics for n in range(len(each.partitions)))

    def live_on(self) -> None:
        """Heartbeats in turn, until each partition has its reader."""
        for _ in range(30):
            held = sorted(p for each in self.peers.values() for p in each.owned)
            if self.peers and held == self.readable and self.group.state_name == "Stable":
                return
            for peer in self.peers.values():
                self.beat(peer)
            self.world.advance(HEARTBEAT_MS // 2)
        raise AssertionError(f"{held} of {self.readable} are held")

    def beat(self, peer: Peer) -> None:
        if peer.epoch:
            error = self.world.beat(peer, rebalance_timeout_ms=REVOCATION_MS, **self.said(peer))
        else:
            error = self.world.join(peer, *self.names[peer.member_id])
        if error in STARTS_ANEW:
            peer.epoch, peer.held = 0, frozenset()
        else:
            assert not error or error in COMES_AGAIN

    def said(self, peer: Peer) -> dict[str, Any]:
        return {"subscribed_topic_names": self.names[peer.member_id]}

    def send(self, name: str) -> None:
        """A full heartbeat, of a member or of one that joins; its answer gets lost."""
        peer = self.peers.setdefault(name, Peer(name))
        reply = self.world.send(
            member_id=name,
            member_epoch=peer.epoch,
            rebalance_timeout_ms=REVOCATION_MS,
            topic_partitions=[],
            **self.said(peer),
        )
        self.replies.append(reply)

    def leave(self, name: str) -> None:
        del self.peers[name]
        self.world.send(member_id=name, member_epoch=-1)


def newcomer(story: Story) -> None:
    story.send("c")


def fewer_names(story: Story) -> None:
    story.names["a"] = [NAMES[1]]
    story.send("a")


def new_topic(story: Story) -> None:
    story.world.create(LATER, 3)
    story.send("a")


def one_less(story: Story) -> None:
    story.leave("b")
    story.send("a")


def nothing(story: Story) -> None:
    """The member only has very many topics."""


def other_leaves(story: Story) -> None:
    if "b" in story.peers:
        story.leave("b")


def other_joins(story: Story) -> None:
    story.names["d"] = NAMES[:2]
    story.send("d")


def other_joins_at_once(story: Story) -> None:
    """Its partitions are few: it has what was free before the first one's record is made."""
    peer = story.peers.setdefault("d", Peer("d"))
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="d",
        rebalance_timeout_ms=REVOCATION_MS,
        topic_partitions=[],
        subscribed_topic_names=story.names["d"],
    )
    if peer.epoch == 0 and not story.group.is_advancing:
        beat = story.world.coordinator._consumers._beat
        story.replies.append(Reply())
        at_once(beat(request, CLIENT, story.replies[-1]))


def same_again(story: Story) -> None:
    """It was slow, and the client has tried again."""
    story.send("a")


def topic_goes(story: Story) -> None:
    story.world.drop(NAMES[2])


def topic_grows(story: Story) -> None:
    story.world.extend(NAMES[1], 4)


def coordinator_moves(story: Story) -> None:
    story.world.coordinator.on_resignation(0)
    story.world.coordinator.on_election(0)


def log_fails(story: Story) -> None:
    story.world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS


def log_is_slow(story: Story) -> None:
    story.world.log.hold = True


EVENTS = [
    nothing,
    other_leaves,
    other_joins,
    other_joins_at_once,
    same_again,
    topic_goes,
    topic_grows,
    coordinator_moves,
    log_fails,
    log_is_slow,
]


def act_in_slices(
    story: Story,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[Story], None],
    events: dict[int, Callable[[Story], None]],
) -> int:
    """Have a heartbeat served, with something else in some pauses; returns how many these are."""
    pauses, pause = 0, Slices.pause

    async def watched(slices: Slices) -> None:
        nonlocal pauses
        pauses += 1
        if pauses in events:
            events[pauses](story)
        await pause(slices)

    with monkeypatch.context() as patched:
        patched.setattr(assignors, "SLICE_STEPS", 4)
        patched.setattr(cluster_topics, "LOOKED_UP_AT_ONCE", 1)
        patched.setattr(consumer_group_records, "PARTS_IN_A_SLICE", 1)
        patched.setattr(target_assignment, "PARTS_IN_A_SLICE", 1)
        patched.setattr(consumer_rebalancer, "MANY_PARTITIONS", 1)
        patched.setattr(Slices, "pause", watched)
        act(story)
        story.world.advance(0)
    story.world.log.error = ErrorCode.NONE
    story.world.log.hold = False
    story.world.log.release()
    story.world.advance(0)
    return pauses


@pytest.mark.usefixtures("core_source")
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
@pytest.mark.parametrize(
    "act", [newcomer, fewer_names, new_topic, one_less], ids=lambda act: act.__name__
)
def test_all_partitions_are_read_whatever_comes_in_a_pause(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[Story], None], event: Callable[[Story], None]
) -> None:
    """Each has one reader, of the topics that there are; memory is what the log has."""
    for place in count(1):
        story = Story()
        pauses = act_in_slices(story, monkeypatch, act, {place: event})
        assert pauses >= 2 * len(NAMES) or event is coordinator_moves
        errors = {reply.error for reply in story.replies}  # of none that is open
        assert ErrorCode.UNKNOWN_SERVER_ERROR not in errors
        group = story.world.coordinator.manager.group("g")
        assert group is not None
        assert group.topics.keys() <= group.compute_subscribed_topics()
        assert group.target.keys() == group.members.keys()
        story.live_on()
        manager = story.world.coordinator.manager
        assert manager.differences(0) == []
        counts = {name: topic.partition_count for name, topic in story.group.topics.items()}
        assert sorted((each, n) for each in counts for n in range(counts[each])) == story.readable
        if place > pauses:
            break
