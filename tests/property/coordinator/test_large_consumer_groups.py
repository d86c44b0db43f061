"""What happens to a large consumer group while its next target is being made, in slices.

Every slice is as small as it can be here, and others come between any two of them: members join,
leave, subscribe to other topics and are put out; topics come, grow and go; the coordinator fails.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from consumer_group_world import REVOCATION_MS, SESSION_MS, ConsumerWorld, Peer, partitions_of, wire
from group_world import Reply

from ottla.coordinator.group.consumer import assignors, consumer_rebalancer, topic_matches
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer.consumer_rebalancer import ConsumerRebalancer
from ottla.errors import ErrorCode, KafkaError

TOPICS = ("a", "b", "c", "d")
SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"subscribed_topic_names": ["a", "b"], "subscribed_topic_regex": ""},
    {"subscribed_topic_names": ["b", "c"], "subscribed_topic_regex": ""},
    {"subscribed_topic_names": [], "subscribed_topic_regex": "[a-d]"},
    {"subscribed_topic_names": ["a"], "subscribed_topic_regex": "c|d"},
]
STARTS_ANEW = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
IS_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Turns:
    """Plays the loop: the work of each request continues when the test says so."""

    def __init__(self) -> None:
        self.works: list[Any] = []

    def do(self, work: Any, refuse: Any) -> None:
        self.works.append((work, refuse))
        self.step(-1)

    def step(self, place: int) -> None:
        work, refuse = self.works.pop(place)
        try:
            next(work)
        except StopIteration:
            return
        except KafkaError as error:
            refuse(error)
            return
        self.works.append((work, refuse))

    def finish(self) -> None:
        while self.works:
            self.step(0)


class Story:
    """Peers with at most one open request each, of a group whose work is done bit by bit."""

    def __init__(self, seed: int, turns: Turns) -> None:
        self.chance = random.Random(seed)
        self.turns = turns
        self.world = ConsumerWorld({"a": 3, "b": 5, "c": 1})
        self.peers = [Peer(f"m{number}") for number in range(5)]
        self.open: dict[str, Reply] = {}
        self.unsure: set[str] = set()
        self.names = 0
        self.paused = 0

    def play(self) -> None:
        acts = [self.go_on] * 8 + [self.ask] * 6
        acts += [self.leave, self.change_topic, self.pass_time, self.subscribe, self.fail]
        self.chance.choice(acts)()
        self.hear()
        self.paused += bool(self.turns.works)
        assert self.world.coordinator.manager.differences(0) == []
        held = [partition for peer in self.peers for partition in peer.held]
        assert len(held) == len(set(held))

    def go_on(self) -> None:
        if self.turns.works:
            self.turns.step(self.chance.randrange(len(self.turns.works)))

    def ask(self) -> None:
        peer = self.chance.choice(self.peers)
        if peer.member_id not in self.open:
            self.send(peer)

    def send(self, peer: Peer) -> None:
        fields: dict[str, Any] = {"topic_partitions": wire(peer.held)}
        peer.subscription = peer.subscription or self.chance.choice(SUBSCRIPTIONS)
        if not peer.epoch or peer.member_id in self.unsure:
            fields |= {"rebalance_timeout_ms": REVOCATION_MS, **peer.subscription}
        self.open[peer.member_id] = self.world.send(
            member_id=peer.member_id, member_epoch=peer.epoch, **fields
        )

    def hear(self) -> None:
        """What has been answered; a member that was put out knows by its own clock."""
        group = self.group
        for peer in self.peers:
            reply = self.open.get(peer.member_id)
            if reply is not None and not reply.is_open:
                del self.open[peer.member_id]
                self.take(peer, reply)
            if group is None or peer.member_id not in group.members:
                peer.epoch, peer.held = 0, frozenset()

    def take(self, peer: Peer, reply: Reply) -> None:
        if reply.error:
            assert reply.error in (*STARTS_ANEW, *IS_MOVED)
            if reply.error in STARTS_ANEW:
                peer.epoch, peer.held = 0, frozenset()
            self.unsure.add(peer.member_id)  # what it was to be told is said in full next time
            return
        self.unsure.discard(peer.member_id)
        assert reply.value.member_epoch > 0
        peer.epoch = reply.value.member_epoch
        if reply.value.assignment is not None:
            peer.held = partitions_of(reply.value.assignment)

    def leave(self) -> None:
        """The member leaves, also while a request of it is open, and comes back as another one."""
        peer = self.chance.choice(self.peers)
        if self.group is not None and peer.member_id in self.group.members:
            assert self.world.send(member_id=peer.member_id, member_epoch=-1).error in (
                ErrorCode.NONE,
                *IS_MOVED,
            )
        self.open.pop(peer.member_id, None)
        self.names += 1
        peer.member_id, peer.epoch, peer.held = f"n{self.names}", 0, frozenset()

    def subscribe(self) -> None:
        """The member joins again with another subscription: it has given all up."""
        peer = self.chance.choice(self.peers)
        if peer.member_id not in self.open:
            peer.subscription = self.chance.choice(SUBSCRIPTIONS)
            peer.epoch, peer.held = 0, frozenset()

    def change_topic(self) -> None:
        name = self.chance.choice(TOPICS)
        topic = self.world.topics.topic(name)
        if topic is None:
            self.world.create(name, 2)
        elif len(topic.partitions) < 6:
            self.world.extend(name, 6)
        else:
            self.world.drop(name)

    def pass_time(self) -> None:
        self.world.advance(self.chance.choice([1_000, SESSION_MS // 2]))

    def fail(self) -> None:
        if self.chance.random() < 0.3:
            self.world.reload()

    def settle(self) -> None:
        for _ in range(12):  # a member that has left before it was let in is put out
            self.world.advance(SESSION_MS // 4)
            self.turns.finish()
            self.hear()
            for peer in self.peers:
                self.send(peer)
                self.turns.finish()
                self.hear()

    @property
    def group(self) -> ConsumerGroup | None:
        group = self.world.coordinator.manager.group("g")
        assert group is None or isinstance(group, ConsumerGroup)
        return group


@pytest.fixture
def turns(monkeypatch):
    """Work pauses wherever it can, and continues when the test says so."""
    turns = Turns()
    monkeypatch.setattr(assignors, "SLICE_STEPS", 1)
    monkeypatch.setattr(topic_matches, "SLICE_STEPS", 1)
    monkeypatch.setattr(consumer_rebalancer, "MANY_PARTITIONS", 1)
    monkeypatch.setattr(ConsumerRebalancer, "do", lambda self, work, refuse: turns.do(work, refuse))
    return turns


@pytest.mark.parametrize("seed", range(10))
def test_group_that_changes_in_the_pauses_is_what_its_log_says(turns, seed):
    """In each pause; and when all is calm every partition has one holder."""
    story = Story(seed, turns)
    for _ in range(250):
        story.play()
    story.settle()

    group = story.group
    assert story.paused > 50
    assert group is not None
    assert group.state_name == "Stable"
    wanted = [
        (topic.topic_id, number)
        for topic in group.topics.values()
        for number in range(topic.partition_count)
    ]
    assert sorted(p for peer in story.peers for p in peer.held) == sorted(wanted)
    assert story.world.coordinator.manager.differences(0) == []


def test_one_target_is_made_for_all_that_have_come_meanwhile(turns, monkeypatch):
    """Who joins while a target is made waits for the next one, which is for all of them."""
    made = []
    uniform = assignors.assign_uniform
    monkeypatch.setitem(
        assignors.ASSIGNORS,
        "uniform",
        lambda group: made.append(len(group.members)) or uniform(group),
    )
    world = ConsumerWorld({"t": 12})
    replies = [
        world.send(
            member_id=f"m{number}",
            rebalance_timeout_ms=REVOCATION_MS,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        for number in range(6)
    ]
    assert all(reply.is_open for reply in replies)
    turns.finish()

    assert made == [1, 6]
    assert [reply.error for reply in replies] == [ErrorCode.NONE] * 6
