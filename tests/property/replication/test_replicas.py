"""A leader and two followers through whatever befalls them: what was committed is never lost."""

from __future__ import annotations

import random
from functools import partial

import pytest
from breadth import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from replica_world import LAG_MS, T0, ReplicaWorld

from ottla.errors import ErrorCode
from ottla.replication.append_results import ACKS_ALL, ACKS_LEADER

BROKERS = (1, 2, 3)
broker_ids = st.sampled_from(BROKERS)


class ReplicaMachine(RuleBasedStateMachine):
    """Appends, cut networks, crashes that lose what was not synced, elections, passing time.

    The leader is always elected from the in-sync replicas. A broker loses its unsynced tail only
    while another in-sync replica is up, and leaves the in-sync replicas before it does, as when
    its session with ZooKeeper ends: what all replicas lose at once nobody can keep.
    """

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.acknowledged: dict[int, bytes] = {}
        self.high_watermarks: dict[int, int] = {}
        self.waiting: list[tuple[list[object], bytes]] = []

    @initialize(
        segment_bytes=st.sampled_from([150, 1000, 1 << 20]), fetch_bytes=st.sampled_from([1, 1000])
    )
    def begin(self, segment_bytes: int, fetch_bytes: int) -> None:
        self.world = ReplicaWorld(
            settings={"replica.fetch.max.bytes": str(fetch_bytes)},
            topic_settings={"segment.bytes": str(segment_bytes)},
        )
        self.world.latency_ms = 40
        self.world.create()

    @property
    def state(self):
        return self.world.states[T0].leader_and_isr

    @property
    def leader(self) -> int:
        """The broker that leads, or -1 if it is down."""
        return self.state.leader if self.state.leader in self.world.brokers else -1

    @rule(
        to=st.sampled_from([0, 0, *BROKERS]),
        acks=st.sampled_from([ACKS_ALL, ACKS_LEADER]),
        count=st.integers(1, 3),
    )
    def append(self, to: int, acks: int, count: int) -> None:
        """A producer may still write to a broker that has been the leader; 0 is the one that is."""
        to = to or self.leader
        if to not in self.world.brokers:
            return
        values = [b"%d-%d" % (self.number, index) for index in range(count)]
        self.number += 1
        answers = self.world.append(to, *values, acks=acks, timeout_ms=3 * LAG_MS)
        if acks == ACKS_ALL:
            self.waiting.append((answers, values))

    @rule(ms=st.sampled_from([15, 30, 60, 90, 120, 600, 2 * LAG_MS]))
    def let_time_pass(self, ms: int) -> None:
        self.world.advance(ms)

    @rule(broker_id=broker_ids)
    def cut_off(self, broker_id: int) -> None:
        self.world.cut_off(broker_id)

    @rule()
    def heal(self) -> None:
        self.world.heal()

    @rule(leader=broker_ids, tells_old_leader=st.booleans(), ends=st.booleans())
    def elect(self, leader: int, tells_old_leader: bool, ends: bool) -> None:
        """The old leader may not hear of it, and may have left the in-sync replicas."""
        old = self.state.leader
        if leader not in self.world.brokers or leader not in self.state.isr:
            return
        isr = [each for each in self.state.isr if each == leader or each != old or not ends]
        state = self.world.states[T0]
        changed = self.state._replace(
            leader=leader,
            leader_epoch=self.state.leader_epoch + 1,
            isr=tuple(isr),
            version=self.state.version + 1,
        )
        self.world.states[T0] = state._replace(leader_and_isr=changed, is_new=False)
        for broker_id in BROKERS:
            if broker_id in self.world.brokers and (broker_id != old or tells_old_leader):
                self.world.tell(only=broker_id)

    @rule()
    def tell_all(self) -> None:
        self.world.tell()

    @rule(broker_id=broker_ids, loses_power=st.booleans())
    def crash(self, broker_id: int, loses_power: bool) -> None:
        others = [
            each for each in self.state.isr if each != broker_id and each in self.world.brokers
        ]
        if broker_id not in self.world.brokers:
            return
        is_in_sync = broker_id in self.state.isr
        if loses_power and is_in_sync:
            if not others:
                return
            self.world.kill(broker_id)
            self.world.elect(
                others[0] if broker_id == self.state.leader else self.state.leader,
                isr=[each for each in self.state.isr if each != broker_id],
            )
            self.world.disks[broker_id].crash()
        else:
            self.world.kill(broker_id, lose_unsynced=loses_power)

    @rule(broker_id=broker_ids)
    def start(self, broker_id: int) -> None:
        if broker_id in self.world.brokers:
            return
        self.high_watermarks.pop(broker_id, None)  # its checkpoint may be older
        self.world.start(broker_id)
        if broker_id == self.state.leader:
            self.world.elect(broker_id)
        else:
            self.world.tell(only=broker_id)

    def _take_answers(self) -> None:
        waiting, self.waiting = self.waiting, []
        for answers, values in waiting:
            if not answers:
                self.waiting.append((answers, values))
            elif answers[0].error is ErrorCode.NONE:
                for index, value in enumerate(values):
                    self.acknowledged[answers[0].base_offset + index] = value

    @invariant()
    @precondition(lambda self: hasattr(self, "world"))
    def acknowledged_records_are_on_all_in_sync_replicas(self) -> None:
        self._take_answers()
        for broker_id in self.state.isr:
            if broker_id in self.world.brokers:
                log = self.world.brokers[broker_id].log()
                held = dict(self.world.values(broker_id))
                missing = {
                    offset: value
                    for offset, value in self.acknowledged.items()
                    if held.get(offset) != value
                }
                assert not missing, f"broker {broker_id} with {log} has lost {missing}"

    @invariant()
    @precondition(lambda self: hasattr(self, "world"))
    def logs_are_equal_below_the_high_watermark(self) -> None:
        leader = self.leader
        if leader < 0:
            return
        ours = self.world.values(leader)
        for broker_id, broker in self.world.brokers.items():
            end = min(broker.log().high_watermark, self.world.brokers[leader].log().log_end_offset)
            theirs = [each for each in self.world.values(broker_id) if each[0] < end]
            assert theirs == [each for each in ours if each[0] < end], f"{broker_id} and {leader}"

    @invariant()
    @precondition(lambda self: hasattr(self, "world"))
    def high_watermark_of_a_replica_never_falls(self) -> None:
        for broker_id, broker in self.world.brokers.items():
            found = broker.log().high_watermark
            assert found >= self.high_watermarks.get(broker_id, 0)
            self.high_watermarks[broker_id] = found

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.heal()
        for broker_id in BROKERS:
            self.start(broker_id)
        self.world.elect(self.state.leader)
        self.world.advance(3 * LAG_MS)
        self.acknowledged_records_are_on_all_in_sync_replicas()
        assert set(self.state.isr) == set(BROKERS), "a replica did not come back in sync"
        values = [self.world.values(broker_id) for broker_id in BROKERS]
        assert values[0] == values[1] == values[2]
        self.world.close()


ReplicaMachine.TestCase.settings = settings(
    max_examples=examples(40), stateful_step_count=30, deadline=None
)
TestReplicas = ReplicaMachine.TestCase


@pytest.mark.parametrize("seed", range(examples(100)))
def test_story_by_chance_loses_nothing(seed):
    """The same machine by weighted chance, which comes to more elections in bad moments."""
    chance = random.Random(seed)
    machine = ReplicaMachine()
    machine.begin(chance.choice([150, 1 << 20]), 1000)
    machine.world.runtime.random.seed(seed)
    some_broker = partial(chance.choice, BROKERS)
    steps = [
        (30, lambda: machine.append(0, chance.choice([ACKS_ALL, ACKS_LEADER]), 2)),
        (30, lambda: machine.let_time_pass(chance.choice([15, 30, 60, 90, 120, 600, 20_000]))),
        (15, lambda: machine.elect(some_broker(), chance.random() < 0.8, chance.random() < 0.3)),
        (5, lambda: machine.cut_off(some_broker())),
        (8, machine.heal),
        (6, lambda: machine.crash(some_broker(), chance.random() < 0.5)),
        (6, lambda: machine.start(some_broker())),
    ]
    weights = [weight for weight, _ in steps]
    for _, step in chance.choices(steps, weights, k=40):
        step()
        machine.acknowledged_records_are_on_all_in_sync_replicas()
        machine.logs_are_equal_below_the_high_watermark()
        machine.high_watermark_of_a_replica_never_falls()
    machine.teardown()
