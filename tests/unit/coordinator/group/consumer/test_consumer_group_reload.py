"""The next coordinator of a group reads from the log just what this one has in memory."""

from __future__ import annotations

import random

import pytest
from consumer_group_world import ClassicPeer, ConsumerWorld, Peer

from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.group import differences
from ottla.errors import ErrorCode


class Life:
    """Members of both protocols, of which one does something at a time."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = ConsumerWorld({"t": 6, "u": 2})
        self.peers = [Peer(f"c{number}") for number in range(3)]
        self.peers += [Peer(f"s{number}", instance=f"i{number % 2}") for number in range(3)]
        self.classic = [ClassicPeer(self.world, is_eager=bool(number)) for number in range(2)]
        self.created = 0

    def step(self) -> None:
        kind = self.chance.randrange(12)
        if kind < 4:
            self.beat(self.chance.choice(self.peers))
        elif kind < 6:
            self.join(self.chance.choice(self.peers))
        elif kind == 6:
            self.world.quit(self.chance.choice(self.peers), self.chance.choice((-1, -2)))
        elif kind < 9:
            self.live(self.chance.choice(self.classic))
        elif kind == 9:
            self.created += 1
            self.world.create(f"t{self.created}", self.chance.randrange(1, 4))
        elif kind == 10:
            self.world.extend("u", 2 + self.created)
        else:
            self.world.advance(self.chance.choice((1_000, 20_000, 60_000)))

    def beat(self, peer: Peer) -> None:
        if self.world.beat(peer) is not ErrorCode.NONE:
            peer.epoch, peer.held = 0, frozenset()

    def join(self, peer: Peer) -> None:
        regex = self.chance.choice((None, None, "t.*", "t[0-9]"))
        topics = self.chance.choice((("t",), ("t", "u"), ("u", "later"))) if regex is None else ()
        self.world.join(peer, *topics, regex=regex)

    @property
    def is_consumer_group(self) -> bool:
        group = self.world.coordinator.manager.group("g")
        return isinstance(group, ConsumerGroup) and bool(group.members)

    def live(self, peer: ClassicPeer) -> None:
        """A turn of a classic member in a consumer group; it is none in any other."""
        if self.is_consumer_group and not peer.wants_to_join:
            peer.wants_to_join = peer.beat() is not ErrorCode.NONE
        if self.is_consumer_group and peer.wants_to_join:
            peer.take(peer.join())
        if self.is_consumer_group and not peer.wants_to_join:
            peer.receive(peer.sync())


@pytest.mark.parametrize("seed", range(3))
def test_reloaded_group_is_the_one_that_was_there(seed):
    """After each step: members, epochs, targets, topics and expressions."""
    life = Life(seed)
    kinds: set[str] = set()
    for _ in range(80):
        life.step()
        known = life.world.coordinator.manager.group("g")
        replayed = ConsumerWorld(log=life.world.log).coordinator.manager.group("g")
        assert list(differences(known, replayed)) == []
        assert life.world.coordinator.manager.differences(0) == []
        kinds.add("none" if known is None else f"{known.type.value} {known.state_name}")

    assert {"consumer Stable", "consumer Reconciling"} <= kinds


@pytest.mark.parametrize("seed", range(4))
def test_members_hold_what_the_group_says_and_nobody_holds_it_beside_them(seed):
    """Whatever happens, no partition is read by two members that are up to date."""
    life = Life(seed + 100)
    for _ in range(200):
        life.step()
        group = life.world.coordinator.manager.group("g")
        if not isinstance(group, ConsumerGroup):
            continue
        owned = [each for member in group.members.values() for each in member.current.owned]
        assert len(owned) == len(set(owned))
        for member in group.members.values():
            assert group.are_free_for(member.current.owned, member.member_id)
            assert member.current.member_epoch <= group.group_epoch
        assert group.assignment_epoch <= group.group_epoch
        assert set(group.target) == set(group.members)
        instances = {m.details.instance_id: m.member_id for m in group.members.values()}
        instances.pop(None, None)
        assert group.static_members == instances
