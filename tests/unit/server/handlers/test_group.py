"""The group APIs in all their versions: what is asked, what is told, and that it can be encoded."""

import pytest
from apis_world import Context
from group_world import COMPLETING, EMPTY, STABLE, World

from ottla.errors import ErrorCode
from ottla.protocol.group import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from ottla.server.handlers.group import GroupHandlers


class Broker:
    """The handlers over a coordinator."""

    def __init__(self):
        self.world = World(group_initial_rebalance_delay_ms=0)
        self.handlers = GroupHandlers(self.world.coordinator, self.world.runtime.slices)

    def call(self, body, version):
        """The answer to a request, None while it is open."""
        context = Context(version)
        stem = type(body).__name__.removesuffix("Request")
        name = "".join(f"_{c.lower()}" if c.isupper() else c for c in stem)
        answer = getattr(self.handlers, f"handle{name}")(context, body)
        if answer is not None:
            context.respond(answer)
        return context.answer

    def join(self, version, **fields):
        values = {"group_id": "g", "session_timeout_ms": 10_000, **fields}
        values.setdefault("protocols", [JoinGroupRequestProtocol(name="range", metadata=b"m")])
        context = Context(version)
        body = JoinGroupRequest(protocol_type="consumer", **values)
        self.handlers.handle_join_group(context, body)
        self.world.advance(0)
        return context.answer


@pytest.fixture
def broker():
    """A broker with an empty offsets topic."""
    return Broker()


@pytest.mark.parametrize("version", range(10))
def test_join_succeeds_in_every_version(broker, version):
    """Since version 4 it takes two requests."""
    answer = broker.join(version)
    if version >= 4:
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        answer = broker.join(version, member_id=answer.member_id)

    assert (answer.error_code, answer.generation_id) == (0, 1)
    assert answer.protocol_name == "range"
    assert [member.metadata for member in answer.members] == [b"m"]
    (member,) = broker.world.group().members.values()
    assert (member.client_id, member.client_host) == ("app", "/10.0.0.1")


@pytest.mark.parametrize("version", range(10))
def test_refused_join_has_words_in_every_version(broker, version):
    """The protocol's name may only be null since version 7."""
    answer = broker.join(version, session_timeout_ms=1)

    assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert answer.protocol_name == ("" if version < 7 else None)


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_sync_names_type_and_protocol_since_version_5(broker, missing):
    """A member that leaves one of them out does not know what it takes part in."""
    member = broker.join(3).member_id
    named = {"protocol_type": "consumer", "protocol_name": "range", missing: None}
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=member, **named)

    assert broker.call(sync, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert broker.world.state is COMPLETING


@pytest.mark.parametrize("version", range(6))
def test_sync_and_heartbeat_succeed_in_every_version(broker, version):
    """The only member leads, assigns and goes on."""
    member = broker.join(3).member_id
    assert broker.world.state is COMPLETING
    sync = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=member,
        protocol_type="consumer" if version >= 5 else None,
        protocol_name="range" if version >= 5 else None,
    )
    assert broker.call(sync, version).error_code == 0
    assert broker.world.state is STABLE

    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
    assert broker.call(beat, min(version, 4)).error_code == 0


def test_sync_must_name_the_protocol_since_version_5(broker):
    """A member that does not say what it agreed to is refused (KIP-559)."""
    member = broker.join(3).member_id
    body = SyncGroupRequest(group_id="g", generation_id=1, member_id=member)

    assert broker.call(body, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert broker.call(body, 4).error_code == 0


@pytest.mark.parametrize("version", range(6))
def test_leave_succeeds_in_every_version(broker, version):
    """One member by name before version 3, a list since."""
    member = broker.join(3).member_id
    if version < 3:
        body = LeaveGroupRequest(group_id="g", member_id=member)
    else:
        body = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member)])
    answer = broker.call(body, version)
    broker.world.advance(0)

    assert answer.error_code == 0
    assert [m.error_code for m in answer.members] == ([] if version < 3 else [0])
    assert broker.world.group().members == {}


@pytest.mark.parametrize(("version", "top"), [(0, True), (2, True), (3, False), (5, False)])
def test_leave_of_a_stranger_is_told_where_the_version_has_room(broker, version, top):
    """The error of the one member is that of the answer before version 3."""
    stranger = {"members": [MemberIdentity(member_id="x")]} if version >= 3 else {"member_id": "x"}
    answer = broker.call(LeaveGroupRequest(group_id="g", **stranger), version)

    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert answer.error_code == (unknown if top else 0)
    assert [m.error_code for m in answer.members] == ([] if top else [unknown])


@pytest.mark.parametrize("version", range(7))
def test_describe_and_list_answer_in_every_version(broker, version):
    """State and members as far as the version shows them."""
    broker.join(3)
    described = broker.call(DescribeGroupsRequest(groups=["g", "nobody"]), version)
    listed = broker.call(ListGroupsRequest(), min(version, 5))

    assert [g.group_state for g in described.groups] == ["CompletingRebalance", "Dead"]
    missing = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    assert [g.error_code for g in described.groups] == [ErrorCode.NONE, missing]
    why = "Group nobody not found." if version >= 6 else None
    assert [g.error_message for g in described.groups] == [None, why]
    assert [g.authorized_operations for g in described.groups] == [-(2**31)] * 2
    assert [g.group_id for g in listed.groups] == ["g"]


def test_operations_on_groups_are_told_when_asked_for(broker):
    """READ, DELETE and DESCRIBE, as bits (KIP-430)."""
    body = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    (described,) = broker.call(body, 3).groups

    assert described.authorized_operations == 0b1_0100_1000


@pytest.mark.parametrize("version", range(3))
def test_delete_answers_in_every_version(broker, version):
    """An Empty group is deleted."""
    member = broker.join(3).member_id
    broker.world.leave(member)
    broker.world.advance(0)
    assert broker.world.state is EMPTY
    answer = broker.call(DeleteGroupsRequest(groups_names=["g", "nobody"]), version)

    assert [(r.group_id, r.error_code) for r in answer.results] == [
        ("g", 0),
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


def test_every_group_api_has_a_handler(broker):
    """The table of the family has the seven APIs of classic groups."""
    assert sorted(broker.handlers.apis()) == [11, 12, 13, 14, 15, 16, 42]
