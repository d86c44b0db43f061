"""The group's own rules: states, votes, leaders, static places."""

from uuid import UUID

import pytest
from group_world import Reply

from ottla.coordinator.group.group import (
    NEXT_STATES,
    ClassicGroup,
    GroupState,
    MemberMetadata,
    SupportedProtocol,
)
from ottla.errors import ErrorCode


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


def test_topics_are_known_only_of_readable_consumer_subscriptions():
    """Subscriptions of another kind leave the topics unknown."""
    subscription = bytes.fromhex("0000 00000002 000161 000162 ffffffff")
    group = make_group(make_member("a", metadata=subscription))
    group.protocol_name = "range"
    assert group.compute_subscribed_topics() == {"a", "b"}

    group.add(make_member("b", metadata=b"\x00\x00\xff"))
    assert group.compute_subscribed_topics() is None


def test_member_ids_carry_the_name_and_are_never_long():
    """A member id begins with the instance or the client, cut so that records have room for it."""
    group, uuid = make_group(), UUID(int=1)

    assert group.new_member_id("app", None, uuid) == f"app-{uuid}"
    assert group.new_member_id("app", "i", uuid) == f"i-{uuid}"
    assert len(group.new_member_id("x" * 30_000, None, uuid)) == 255 + 37
