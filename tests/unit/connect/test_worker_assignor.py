"""How work is dealt: little moves, nothing is lost, and nothing runs twice (KIP-415)."""

from __future__ import annotations

import random

import pytest

from ottla.connect.connect_protocol import CONNECTOR
from ottla.connect.worker_assignor import IncrementalAssignor, deal_all
from ottla.connect.worker_task import TaskId


def work(*names, tasks=2):
    return {TaskId(name, number) for name in names for number in (CONNECTOR, *range(tasks))}


class Group:
    """Members that do as they are told, round after round."""

    def __init__(self, delay_ms=0):
        self.assignor = IncrementalAssignor(delay_ms)
        self.running = {}
        self.generation = 0
        self.now_ms = 1000
        self.last = None

    def join(self, *members):
        for member in members:
            self.running[member] = frozenset()

    def leave(self, member):
        del self.running[member]

    def round(self, configured, joining_ms=0):
        """One rebalance, in which the leader waits so long for the others to join.

        The outcome says whether another one is due.
        """
        since_ms, self.now_ms = self.now_ms, self.now_ms + joining_ms
        self.last = self.assignor.deal(
            self.running, configured, self.generation, self.now_ms, since_ms
        )
        self.generation += 1
        self.assignor.remember_generation(self.generation)
        for member in self.running:
            kept = self.running[member] - self.last.revoked.get(member, frozenset())
            self.running[member] = kept | self.last.assigned.get(member, frozenset())
        return any(self.last.revoked.values())

    def settle(self, configured):
        """Rounds until nothing moves."""
        for _ in range(30):
            if not self.round(configured) and not self.last.delay_ms:
                return
            self.now_ms += self.last.delay_ms
        raise AssertionError("it does not settle")

    def all(self):
        return [each for work in self.running.values() for each in work]


def test_eager_deals_everything_round_robin():
    """Connectors first, over the members in order."""
    dealt = deal_all(["b", "a"], work("c", "d", tasks=1)).assigned
    assert dealt == {
        "a": {TaskId("c", CONNECTOR), TaskId("c", 0)},
        "b": {TaskId("d", CONNECTOR), TaskId("d", 0)},
    }


def test_first_round_is_even():
    """Connectors and tasks apart."""
    group = Group()
    group.join("a", "b")
    group.settle(work("c", "d"))

    assert sorted(map(len, group.running.values())) == [3, 3]


def test_new_member_gets_its_share_and_the_rest_stays():
    """Only what moves is revoked."""
    group = Group(delay_ms=5)
    group.join("a")
    group.settle(work("c", "d"))
    before = group.running["a"]
    group.join("b")
    group.settle(work("c", "d"))

    assert sorted(group.all()) == sorted(work("c", "d"))
    assert sorted(map(len, group.running.values())) == [3, 3]
    assert group.running["a"] < before


def test_work_of_a_lost_member_waits():
    """For scheduled.rebalance.max.delay.ms, then it is dealt."""
    group = Group(delay_ms=300)
    group.join("a", "b")
    group.settle(work("c", "d"))
    gone = group.running["b"]
    group.leave("b")
    group.round(work("c", "d"))

    assert group.last.delay_ms == 300
    assert not set(group.all()) & gone
    group.now_ms += 300
    group.settle(work("c", "d"))
    assert sorted(group.all()) == sorted(work("c", "d"))


def test_waiting_for_members_to_join_is_part_of_the_delay():
    """Work of a lost member is away for the delay, and not for the joining beside it."""
    group = Group(delay_ms=300)
    group.join("a", "b", "c")
    group.settle(work("c", "d"))
    group.leave("b")
    group.round(work("c", "d"), joining_ms=200)
    assert group.last.delay_ms == 100
    group.leave("c")
    group.now_ms += 100
    group.settle(work("c", "d"))
    assert sorted(group.all()) == sorted(work("c", "d"))


def test_joining_that_takes_longer_than_the_delay_is_all_there_is():
    """What was lost is dealt in the same round."""
    group = Group(delay_ms=300)
    group.join("a", "b")
    group.settle(work("c", "d"))
    group.leave("b")
    group.round(work("c", "d"), joining_ms=400)

    assert group.last.delay_ms == 0
    assert sorted(group.all()) == sorted(work("c", "d"))


def test_member_that_comes_back_gets_the_work_that_waits():
    """Nothing moves between the others."""
    group = Group(delay_ms=300)
    group.join("a", "b")
    group.settle(work("c", "d"))
    kept, gone = group.running["a"], group.running["b"]
    group.leave("b")
    group.round(work("c", "d"))
    group.join("b2")
    group.round(work("c", "d"))
    group.now_ms += 300
    group.settle(work("c", "d"))

    assert (group.running["a"], group.running["b2"]) == (kept, gone)


def test_without_a_delay_lost_work_is_dealt_at_once():
    """As created (KAFKA-15693)."""
    group = Group(delay_ms=0)
    group.join("a", "b")
    group.settle(work("c"))
    group.leave("b")
    group.round(work("c"))

    assert sorted(group.all()) == sorted(work("c"))


def test_deleted_connectors_are_revoked():
    """Wherever they run."""
    group = Group()
    group.join("a", "b")
    group.settle(work("c", "d"))
    group.settle(work("c"))

    assert sorted(group.all()) == sorted(work("c"))


def test_work_that_runs_twice_is_taken_from_both():
    """Work that two workers run is taken from both, and dealt in the next round (KAFKA-9849)."""
    group = Group()
    group.join("a", "b")
    group.running = {"a": frozenset(work("c")), "b": frozenset({TaskId("c", 0)})}
    assert group.round(work("c"))
    assert TaskId("c", 0) not in group.all()
    group.settle(work("c"))
    assert sorted(group.all()) == sorted(work("c"))


def test_assignment_that_did_not_arrive_is_dealt_again():
    """The same members, so that nobody is waited for (KAFKA-9848)."""
    group = Group(delay_ms=300)
    group.join("a")
    group.round(work("c"))
    group.running["a"] = frozenset()
    group.round(work("c"))

    assert (group.last.delay_ms, sorted(group.all())) == (0, sorted(work("c")))


@pytest.mark.parametrize("seed", range(60))
def test_random_histories_end_even_and_complete(seed):
    """Members and connectors come and go; in the end all runs, once, and evenly."""
    chance = random.Random(seed)
    group = Group(delay_ms=chance.choice([0, 50]))
    members, configured = 0, set()
    for _ in range(12):
        what = chance.choice(["join", "leave", "create", "delete", "round"])
        if what == "join" or not group.running:
            members += 1
            group.join(f"m{members}")
        elif what == "leave" and len(group.running) > 1:
            group.leave(chance.choice(sorted(group.running)))
        elif what == "create":
            configured |= work(f"c{len(configured)}", tasks=chance.randint(0, 3))
        elif what == "delete" and configured:
            gone = chance.choice(sorted(configured)).connector
            configured = {each for each in configured if each.connector != gone}
        group.round(configured)
        assert len(group.all()) == len(set(group.all()))
        group.now_ms += 20
    group.now_ms += 1000
    group.settle(configured)
    group.settle(configured)

    assert sorted(group.all()) == sorted(configured)
    for is_connector in (True, False):
        counts = [
            sum((each.task == CONNECTOR) is is_connector for each in found)
            for found in group.running.values()
        ]
        assert max(counts) - min(counts) <= 1
