"""Random members, topics, time limits, restarts and failing writes against KIP-848's promises.

At no time do two members hold a partition; epochs never fall; what the log says is the group; and
when things have calmed down, every partition that somebody subscribes to has exactly one holder.
"""

from __future__ import annotations

from breadth import examples
from consumer_group_world import REVOCATION_MS, SESSION_MS, ConsumerWorld, Peer, named
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.errors import ErrorCode

CLIENTS = 4
TOPICS = ("a", "b", "c")
PATTERNS = ("a|b", "[bc]", "")
STARTS_ANEW = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}
client_numbers = st.integers(0, CLIENTS - 1)


class ConsumerGroupSequences(RuleBasedStateMachine):
    """The world and its clients. A client that was put out holds nothing any more, as its own
    session has ended when the coordinator's has."""

    @initialize(statics=st.integers(0, CLIENTS))
    def start(self, statics: int) -> None:
        self.world = ConsumerWorld({"a": 3, "b": 2})
        self.peers = [Peer(f"m{n}", f"i{n}" if n < statics else None) for n in range(CLIENTS)]
        self.joined: set[str] = set()
        self.unsure: set[str] = set()
        self.group_epoch = 0
        self.lives = 0

    @rule(
        number=client_numbers,
        names=st.sets(st.sampled_from(TOPICS)),
        regex=st.sampled_from(PATTERNS),
        assignor=st.sampled_from([None, "range", "uniform"]),
    )
    def join(self, number: int, names: set[str], regex: str, assignor: str | None) -> None:
        peer = self.peers[number]
        peer.subscription = {
            "subscribed_topic_names": sorted(names),
            "subscribed_topic_regex": regex,
            "server_assignor": assignor,
        }
        self.take(peer, self.world.rejoin(peer), joins=True)

    @rule(number=client_numbers, gives_up=st.booleans())
    def beat(self, number: int, gives_up: bool) -> None:
        peer = self.peers[number]
        if peer.member_id in self.joined:
            self.beat_of(peer, gives_up)

    @rule(number=client_numbers)
    def lose_an_answer(self, number: int) -> None:
        """The request arrives, the answer does not; the client says everything next time."""
        peer = self.peers[number]
        if peer.member_id in self.joined and peer.epoch:
            ghost = Peer(peer.member_id, peer.instance, peer.epoch, peer.held)
            self.take(ghost, self.world.beat(ghost), joins=False)
            self.unsure.add(peer.member_id)

    @rule(number=client_numbers, names=st.sets(st.sampled_from(TOPICS)))
    def subscribe(self, number: int, names: set[str]) -> None:
        peer = self.peers[number]
        if peer.member_id in self.joined:
            peer.subscription = {**peer.subscription, "subscribed_topic_names": sorted(names)}
            self.unsure.add(peer.member_id)
            self.beat_of(peer, True)

    @rule(number=client_numbers, is_restart=st.booleans())
    def leave(self, number: int, is_restart: bool) -> None:
        """A static member that is restarted comes back under another member id."""
        peer = self.peers[number]
        if peer.member_id not in self.joined:
            return
        error = self.world.quit(peer, -2 if is_restart and peer.instance else -1)
        if error in {ErrorCode.COORDINATOR_NOT_AVAILABLE, *STARTS_ANEW, ErrorCode.NONE}:
            self.forget(peer)
        self.lives += 1
        peer.member_id = f"m{number}-{self.lives}"

    @rule(ms=st.sampled_from([1_000, SESSION_MS // 2, REVOCATION_MS]))
    def pass_time(self, ms: int) -> None:
        self.world.advance(ms)
        self.forget_those_put_out()

    @rule(name=st.sampled_from(TOPICS))
    def change_topic(self, name: str) -> None:
        topic = self.world.topics.topic(name)
        if topic is None:
            self.world.create(name, 2)
        elif len(topic.partitions) < 4:
            self.world.extend(name, 4)
        else:
            self.world.drop(name)

    @rule()
    def restart(self) -> None:
        self.world.log.error = ErrorCode.NONE
        before = self.group()
        owed = before is not None and before.writes.unsaved
        self.world.reload()
        if before is not None and not owed:
            assert_same(before, self.group())
        self.forget_those_put_out()
        if owed:
            self.group_epoch = 0

    @rule(fails=st.booleans())
    def break_log(self, fails: bool) -> None:
        self.world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS if fails else ErrorCode.NONE

    @invariant()
    def no_partition_has_two_holders(self) -> None:
        held = [partition for peer in self.peers for partition in peer.held]
        assert len(held) == len(set(held))

    @invariant()
    def epochs_do_not_fall(self) -> None:
        group = self.group()
        if group is None:
            self.group_epoch = 0
            return
        assert group.group_epoch >= self.group_epoch
        assert group.assignment_epoch <= group.group_epoch
        self.group_epoch = group.group_epoch
        for member in group.members.values():
            assert member.current.member_epoch <= group.assignment_epoch

    def teardown(self) -> None:
        """All is well again: everything finds exactly one holder."""
        if not hasattr(self, "world"):
            return
        self.world.log.error = ErrorCode.NONE
        for _ in range(12):  # who does not give up in its time is put out, and joins again
            for peer in self.peers:
                if peer.member_id in self.joined:
                    self.beat_of(peer, True)
                elif peer.subscription:
                    self.take(peer, self.world.rejoin(peer), joins=True)
            self.world.advance(SESSION_MS // 4)
            self.forget_those_put_out()
        group = self.group()
        if group is None:
            return
        wanted = {
            (name, number)
            for name, topic in group.topics.items()
            for number in range(topic.partition_count)
        }
        assert sorted(p for peer in self.peers for p in named(peer.held)) == sorted(wanted)
        if group.members:
            assert group.state_name == "Stable"
        assert self.world.coordinator.manager.differences(0) == []
        self.world.reload()
        assert_same(group, self.group())

    def beat_of(self, peer: Peer, gives_up: bool) -> None:
        """A heartbeat; a client that is slow to give up does not say what it holds."""
        if not peer.epoch:
            self.take(peer, self.world.rejoin(peer), joins=True)
            return
        before = peer.held
        fields = {} if gives_up else {"topic_partitions": None}
        if peer.member_id in self.unsure:
            gives_up = True
            fields = {"rebalance_timeout_ms": REVOCATION_MS, **peer.subscription}
        error = self.world.beat(peer, **fields)
        if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            self.unsure.add(peer.member_id)
        elif not error:
            self.unsure.discard(peer.member_id)
        if not error and not gives_up:
            peer.held = peer.held | before
        self.take(peer, error, joins=False)

    def take(self, peer: Peer, error: ErrorCode, joins: bool) -> None:
        if not error:
            self.joined.add(peer.member_id)
        elif error in STARTS_ANEW:
            self.forget(peer)
        else:
            expected = {ErrorCode.COORDINATOR_NOT_AVAILABLE}
            if joins:
                expected.add(ErrorCode.UNRELEASED_INSTANCE_ID)
            assert error in expected, error

    def forget(self, peer: Peer) -> None:
        for one in self.peers:
            if one.member_id == peer.member_id:
                one.held, one.epoch = frozenset(), 0
        self.joined.discard(peer.member_id)
        self.unsure.discard(peer.member_id)

    def forget_those_put_out(self) -> None:
        group = self.group()
        for peer in self.peers:
            if group is None or peer.member_id not in group.members:
                self.forget(peer)

    def group(self) -> ConsumerGroup | None:
        group = self.world.coordinator.manager.group("g")
        assert group is None or isinstance(group, ConsumerGroup)
        return group


def assert_same(before: ConsumerGroup, after: ConsumerGroup | None) -> None:
    """What was read from the log is the group that wrote it."""
    assert after is not None
    for name in ("group_epoch", "assignment_epoch", "target", "topics", "regexes"):
        assert getattr(after, name) == getattr(before, name), name
    assert {m.member_id: (m.details, m.current) for m in after.members.values()} == {
        m.member_id: (m.details, m.current) for m in before.members.values()
    }


TestConsumerGroupSequences = ConsumerGroupSequences.TestCase
TestConsumerGroupSequences.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)
