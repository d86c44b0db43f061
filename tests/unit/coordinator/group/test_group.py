"""The group's own rules: states, votes, leaders, static places."""

from types import SimpleNamespace
from uuid import UUID

import pytest
from group_world import Reply

from ottla.coordinator.group.classic_group import NEXT_STATES, ClassicGroup, GroupState, group_key
from ottla.coordinator.group.group import Committer, differences, is_too_long, is_valid_group_id
from ottla.coordinator.group.member_metadata import ClientContext, MemberMetadata, SupportedProtocol
from ottla.coordinator.group.member_requests import JoinAttempt
from ottla.coordinator.group.offsets import CommittedOffset
from ottla.coordinator.group.subscribed_topics import MAX_SUBSCRIPTION_NAMES
from ottla.errors import ErrorCode
from ottla.protocol.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.group import JoinGroupRequest
from ottla.protocol.message import encode_versioned
from ottla.structs import TopicPartition

READS_T = encode_versioned(ConsumerProtocolSubscription(topics=["t"]), 0)
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def make_member(member_id="m", instance=None, protocols=("range",), metadata=b""):
    """A member that offers the protocols."""
    return MemberMetadata(
        member_id=member_id,
        group_instance_id=instance,
        client_id="app",
        client_host="/10.0.0.1",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[SupportedProtocol(name, metadata) for name in protocols],
    )


def make_group(*members):
    """A group with these members."""
    group = ClassicGroup("g", now_ms=1)
    for member in members:
        group.add(member)
    return group


@pytest.mark.parametrize("state", GroupState)
@pytest.mark.parametrize("following", GroupState)
def test_transition_is_refused_unless_the_table_has_it(state, following):
    """A state is only left for one that the table lists."""
    group = make_group()
    group.state = state

    if following in NEXT_STATES[state]:
        group.transition_to(following, now_ms=7)
        assert (group.state, group.state_timestamp_ms) == (following, 7)
    else:
        with pytest.raises(AssertionError, match="cannot go from"):
            group.transition_to(following, now_ms=7)


def test_first_member_leads_and_the_next_one_after_it():
    """Leadership goes to the earliest member when the leader leaves."""
    group = make_group(make_member("a"), make_member("b"), make_member("c"))

    assert group.leader_id == "a"
    group.remove("a")
    assert group.leader_id == "b"
    group.remove("c")
    group.remove("b")
    assert group.leader_id is None


def test_leader_is_replaced_by_a_member_that_joined():
    """A leader that has not joined again loses the lead to one that has."""
    group = make_group(make_member("a"), make_member("b"))
    group.await_join(group.members["b"], Reply())

    assert group.elect_joined_leader()
    assert group.leader_id == "b"


def test_no_leader_is_elected_when_nobody_joined():
    """Without joined members there is nobody to lead."""
    assert not make_group(make_member("a")).elect_joined_leader()
    assert not make_group().elect_joined_leader()
    group = make_group(make_member("a"))
    group.await_join(group.members["a"], Reply())
    assert group.elect_joined_leader()


@pytest.mark.parametrize(
    ("offers", "selected"),
    [
        ([("range", "sticky"), ("range", "sticky"), ("sticky", "range")], "range"),
        ([("range", "sticky"), ("sticky", "range"), ("sticky", "range")], "sticky"),
        ([("range",), ("sticky", "range"), ("sticky", "range")], "range"),
        ([("sticky", "range"), ("range", "sticky")], "sticky"),
    ],
)
def test_protocol_is_selected_by_vote_among_the_common_ones(offers, selected):
    """Most votes win, the earliest vote on a tie, and only what all support is voted for."""
    members = [make_member(f"m{i}", protocols=names) for i, names in enumerate(offers)]

    assert make_group(*members).select_protocol() == selected


def test_newcomer_without_a_common_protocol_is_not_supported():
    """A newcomer must share a protocol with all, and the protocol type."""
    group = make_group(make_member("a", protocols=("range", "sticky")), make_member("b"))

    assert group.supports_protocols("consumer", [SupportedProtocol("range", b"")])
    assert not group.supports_protocols("consumer", [SupportedProtocol("sticky", b"")])
    assert not group.supports_protocols("connect", [SupportedProtocol("range", b"")])


def test_empty_group_takes_any_protocol_but_none():
    """The first member decides the type; it must offer something."""
    assert make_group().supports_protocols("connect", [SupportedProtocol("x", b"")])
    assert not make_group().supports_protocols("connect", [])
    assert not make_group().supports_protocols("", [SupportedProtocol("x", b"")])


def test_votes_follow_members_that_leave_or_change():
    """Candidates are always what all present members support."""
    group = make_group(make_member("a", protocols=("range", "sticky")), make_member("b"))
    group.update_protocols(group.members["b"], [SupportedProtocol("sticky", b"")])
    assert group.candidate_protocols() == {"sticky"}

    group.remove("b")
    assert group.candidate_protocols() == {"range", "sticky"}


def test_replaced_static_member_fences_the_old_one():
    """The instance keeps lead and place; requests under the old id are answered as fenced."""
    group = make_group(make_member("old", instance="i"), make_member("b"))
    join, sync = Reply(), Reply()
    group.await_join(group.members["old"], join)
    group.await_sync(group.members["old"], sync)
    group.replace_static_member(group.members["old"], "new")

    assert (join.error, sync.error) == (ErrorCode.FENCED_INSTANCE_ID,) * 2
    assert (list(group.members), group.leader_id) == (["new", "b"], "new")
    assert group.static_members == {"i": "new"}
    assert group.awaiting_join_count == 0


def test_second_join_of_a_member_answers_the_first():
    """A member waits once; the request that it gave up is answered."""
    group = make_group(make_member("a"))
    first, second = Reply(), Reply()
    group.await_join(group.members["a"], first)
    group.await_join(group.members["a"], second)

    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.is_open
    assert group.awaiting_join_count == 1


@pytest.mark.parametrize(
    ("last", "following"),
    [(0, 1), (2**31 - 2, 2**31 - 1), (2**31 - 1, 1), (-(2**31), -(2**31) + 1)],
)
def test_generations_begin_again_after_the_last(last, following):
    """A request cannot carry a larger one: the rebalance would never have ended."""
    group = make_group(make_member())
    group.generation_id = last
    group.state = GroupState.PREPARING_REBALANCE
    group.init_next_generation(now_ms=2)

    assert group.generation_id == following


def test_pending_members_are_waited_for():
    """All have joined only when nobody is on the way back with a member id."""
    group = make_group(make_member("a"))
    group.await_join(group.members["a"], Reply())
    group.pending_members.add("p")
    assert not group.has_all_members_joined

    group.remove("p")
    assert group.has_all_members_joined
    group.pending_members.add("b")
    group.add(make_member("b"), Reply())
    assert group.has_all_members_joined


def subscription_to(count):
    names = b"".join(b"\0\5%05d" % number for number in range(count))
    return b"\0\0" + count.to_bytes(4, "big") + names + b"\xff" * 4


def test_topics_are_unknown_where_members_name_too_many():
    """A rebalance does not wait until all of them are read; those of one text count once."""
    half = subscription_to(MAX_SUBSCRIPTION_NAMES // 2)
    group = make_group(make_member("a", metadata=half))
    group.protocol_name = "range"
    group.add(make_member("b", metadata=half))
    group.add(make_member("c", metadata=half))
    assert len(group.compute_subscribed_topics()) == MAX_SUBSCRIPTION_NAMES // 2

    group.add(make_member("d", metadata=subscription_to(MAX_SUBSCRIPTION_NAMES // 2 + 1)))
    assert group.compute_subscribed_topics() is None


def test_topics_are_known_only_of_readable_consumer_subscriptions():
    """Subscriptions of another kind leave the topics unknown."""
    subscription = bytes.fromhex("0000 00000002 000161 000162 ffffffff")
    group = make_group(make_member("a", metadata=subscription))
    group.protocol_name = "range"
    assert group.compute_subscribed_topics() == {"a", "b"}

    group.add(make_member("b", metadata=b"\x00\x00\xff"))
    assert group.compute_subscribed_topics() is None
    group.remove("b")
    group.add(make_member("same", metadata=subscription))
    assert group.compute_subscribed_topics() == {"a", "b"}
    group.remove("same")
    group.protocol_name = None
    assert group.compute_subscribed_topics() is None
    group.protocol_name, group.protocol_type = "range", "connect"
    assert group.compute_subscribed_topics() is None


def test_member_ids_carry_the_name_and_are_never_long():
    """A member id begins with the instance or the client, cut so that records have room for it."""
    group, uuid = make_group(), UUID(int=1)

    assert group.new_member_id("app", None, uuid) == f"app-{uuid}"
    assert group.new_member_id("app", "i", uuid) == f"i-{uuid}"
    assert len(group.new_member_id("x" * 30_000, None, uuid)) == 255 + 37


# -- what a group is without its members


def stable_group(now_ms=1):
    """Two members that both read topic t."""
    group = make_group(make_member("a", metadata=READS_T), make_member("b", "i", metadata=READS_T))
    group.transition_to(GroupState.PREPARING_REBALANCE, now_ms)
    group.init_next_generation(now_ms)
    group.transition_to(GroupState.STABLE, now_ms)
    return group


def emptied_group(now_ms=1):
    """All have left."""
    group = stable_group()
    for member_id in ("a", "b"):
        group.remove(member_id)
    group.transition_to(GroupState.PREPARING_REBALANCE, now_ms)
    group.init_next_generation(now_ms)
    return group


def test_group_without_members_or_offsets_is_over():
    """Not while a member id is pending, nor while it has offsets beside those to be deleted."""
    assert make_group().is_over
    assert make_group().is_unused
    assert make_group().subscribed_topics == frozenset()
    assert not stable_group().is_over
    group = emptied_group()
    assert (group.is_over, group.is_unused) == (True, False), "the log has its generation"
    group.pending_members.add("p")
    assert not group.is_over
    group.pending_members.clear()
    group.offsets.put(1, T0, CommittedOffset(5))
    assert not group.is_over
    assert group.is_over_without({T0})
    assert not group.is_over_without({T1})
    owing = make_group()
    owing.owed_tombstones[b"k"] = None
    assert not owing.is_unused


def test_group_that_is_deleted_owes_tombstones_for_what_the_log_has():
    """Its own record once there was a generation, and what it has been before."""
    group = make_group()
    assert group.tombstone_keys() == []
    group.owed_tombstones[b"k"] = None
    assert group.tombstone_keys() == [b"k"]
    group.generation_id = 1
    assert group.tombstone_keys() == [b"k", group_key("g")]


def test_dead_group_dies_once():
    """A dead group dies once, and says so."""
    group = stable_group()
    for now_ms in (5, 9):
        group.die(now_ms)

    assert (group.state_name, group.state_timestamp_ms) == ("Dead", 5)


def test_sender_is_the_member_that_it_says_it_is():
    """An instance is its last member, and a generation the present one."""
    group = stable_group()
    fenced, unknown = ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID
    found = [group.check_member(*each) for each in (
        ("a", None), ("b", None), ("b", "i"), ("a", "i"), ("a", "j"), ("x", None), ("x", "i"),
    )]  # fmt: skip
    none = ErrorCode.NONE
    assert found == [none, none, none, fenced, unknown, unknown, fenced]
    generations = [group.check_generation(Committer("a", each), ()) for each in (0, 1, 2)]

    assert generations == [ErrorCode.ILLEGAL_GENERATION, none, ErrorCode.ILLEGAL_GENERATION]
    assert group.check_generation(Committer("x", 1), ()) is unknown
    assert group.check_reader(Committer("x", 1)) is none


@pytest.mark.parametrize(
    ("make", "now_ms", "expired"),
    [
        (make_group, 149, []),
        (make_group, 150, [T0]),
        (stable_group, 10_000, [U0]),
        (lambda: emptied_group(200), 299, []),
        (lambda: emptied_group(200), 300, [T0, U0]),
        (lambda: emptied_group(60), 160, [T0]),
        (lambda: emptied_group(60), 170, [T0, U0]),
    ],
)
def test_offsets_expire_by_the_state_of_the_group(make, now_ms, expired):
    """From the later of their commit and of when all had left; never those that members read."""
    group = make()
    group.offsets.put(1, T0, CommittedOffset(5, commit_timestamp_ms=50))
    group.offsets.put(2, U0, CommittedOffset(5, commit_timestamp_ms=70))

    assert group.expired_offsets(now_ms, 100, group.offsets.known()) == expired


def test_no_offset_expires_during_a_rebalance_or_where_topics_are_unknown():
    """An old group without a time of its own goes by its commits."""
    group = stable_group()
    group.offsets.put(1, U0, CommittedOffset(5, commit_timestamp_ms=50))
    group.subscribed_topics = None
    assert group.expired_offsets(10_000, 100, [U0]) == []
    group.transition_to(GroupState.PREPARING_REBALANCE, 1)
    assert group.expired_offsets(10_000, 100, [U0]) == []
    emptied = emptied_group(9_999)
    emptied.offsets.put(1, U0, CommittedOffset(5, commit_timestamp_ms=50))
    emptied.state_timestamp_ms = None

    assert emptied.expired_offsets(149, 100, [U0]) == []
    assert emptied.expired_offsets(150, 100, [U0, T0]) == [U0]


def test_differences_between_memory_and_log_are_named():
    """Of members and epochs, offsets, and offsets in transactions; none where both are alike."""

    def of(known, replayed):
        return list(differences(known, replayed))

    assert of(None, None) == of(stable_group(), stable_group()) == of(make_group(), None) == []
    assert of(stable_group(), emptied_group())[0].startswith("in memory (")
    assert of(None, stable_group())[0].startswith("only the log has it: (")
    assert of(stable_group(), None)[0].startswith("the log does not have it: (")
    under_way = stable_group()
    under_way.transition_to(GroupState.PREPARING_REBALANCE, 1)
    assert of(under_way, emptied_group()) == of(under_way, None) == []
    one, other = stable_group(), stable_group()
    one.offsets.put(1, T0, CommittedOffset(5))
    assert [len(of(*each)) for each in ((one, other), (other, one), (one, one))] == [1, 1, 0]
    other.offsets.put(9, T0, CommittedOffset(5))
    other.offsets.stage(10, 7, T0, CommittedOffset(6))
    assert of(one, other)[0].startswith("in transactions in memory {}")
    assert len(of(other, None)) == 3


# -- requests


def attempt(version=9, **fields):
    values = {"group_id": "g", "session_timeout_ms": 10, "rebalance_timeout_ms": 20, **fields}
    request = JoinGroupRequest(protocol_type="consumer", protocols=[], **values)
    return JoinAttempt(request, ClientContext("app", "/10.0.0.1", version), lambda _: None)


def test_join_is_read_by_its_version():
    """Which of them understand member ids, skipped assignments, and times for a rebalance."""
    assert [attempt(v).needs_member_id for v in (3, 4)] == [False, True]
    assert not attempt(4, group_instance_id="i").needs_member_id
    assert [attempt(v).can_skip_assignment for v in (8, 9)] == [False, True]
    assert [attempt(member_id=each).is_new for each in ("", "m")] == [True, False]
    reasons = [attempt(reason=each).reason.rpartition(": ")[2] for each in (None, "", "why")]
    assert reasons == ["not provided", "not provided", "why"]
    timeouts = [attempt(rebalance_timeout_ms=ms).rebalance_timeout_ms for ms in (-1, 0, 5)]

    assert timeouts == [10, 0, 5]


def test_commit_claims_membership_with_anything_that_members_have():
    """A generation, an id, or an instance."""
    claims = [Committer(), Committer("m"), Committer("", 0), Committer("", -1, "i")]

    assert [each.claims_membership for each in claims] == [False, True, True, True]


def test_member_is_kept_alive_while_it_waits_for_an_answer():
    """Unless it is new: nobody would speak for it."""
    group = make_group(make_member("a"), make_member("b"))
    a, b = group.members.values()
    assert not a.is_kept_alive
    group.await_join(a, Reply())
    group.await_sync(b, Reply())
    assert [a.is_kept_alive, b.is_kept_alive] == [True, True]
    a.is_new = True

    assert not a.is_kept_alive


@pytest.mark.parametrize(
    ("name", "is_long"),
    [(None, False), ("x" * 32_767, False), ("x" * 32_768, True), ("é" * 16_384, True)],
)
def test_name_is_too_long_by_its_bytes(name, is_long):
    """As the records of the offsets topic hold it."""
    assert is_too_long(name) is is_long
    assert is_valid_group_id(name or "", may_be_empty=True) is not is_long


def test_group_id_may_be_empty_where_old_clients_keep_offsets():
    """Only there."""
    assert is_valid_group_id("", may_be_empty=True)
    assert not is_valid_group_id("", may_be_empty=False)
    assert is_valid_group_id("g", may_be_empty=False)


def test_everybody_has_joined_when_each_member_waits_once():
    """Whoever leaves or is answered no longer counts, and a second join takes the place of one."""
    group = make_group(make_member("a"), make_member("b", "i"))
    a, b = group.members.values()
    group.await_join(a, Reply())
    group.await_join(a, Reply())
    assert (group.awaiting_join_count, group.has_all_members_joined) == (1, False)
    assert group.members_not_joined() == [b]
    group.await_join(b, Reply())
    assert group.has_all_members_joined
    group.replace_static_member(b, "c")
    assert (group.awaiting_join_count, list(group.members)) == (1, ["a", "c"])
    group.pending_sync_members.update(("a", "c"))
    group.replace_static_member(b, "d")
    assert group.pending_sync_members == {"a", "d"}
    group.remove("a")
    assert (group.awaiting_join_count, group.is_leader("d")) == (0, True)
    assert group.pending_sync_members == {"d"}
    assert group.rebalance_timeout_ms == 60_000
    group.remove("d")
    assert (group.rebalance_timeout_ms, group.static_members) == (0, {})
    assert group.remove("d") is None


def test_session_of_a_member_ends_with_its_membership():
    """Nothing of it wakes up later."""
    cancelled = []
    member = make_member("a")
    member.session_timer = SimpleNamespace(cancel=lambda: cancelled.append(True))
    make_group(member).remove("a")

    assert (cancelled, member.session_timer) == ([True], None)
