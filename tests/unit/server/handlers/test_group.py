"""The group APIs in all their versions: what is asked, what is told, and that it can be encoded."""

import pytest
from group_world import COMPLETING, EMPTY, STABLE, Reply, World

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.group import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from ottla.protocol.message import encode
from ottla.server.handlers.group import GroupHandlers
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import NO_UUID, LeaderAndIsr, Node, PartitionState, TopicPartition

TRANSACTION_KEY, SHARE_KEY = 1, 2


class Context:
    """A request's context; every answer must have bytes in the version of the request."""

    client_id = "app"
    client_host = "10.0.0.1"
    listener_name = "PLAINTEXT"

    def __init__(self, api_version):
        self.api_version = api_version
        self.reply = Reply()

    def respond(self, response):
        encode(response, self.api_version)
        self.reply(response)


class Broker:
    """The handlers over a coordinator, in a cluster whose offsets topic may not exist yet."""

    def __init__(self):
        self.world = World(group_initial_rebalance_delay_ms=0)
        self.cache = MetadataCache("cluster")
        self.creations = 0
        self.creation_error = None
        self.handlers = GroupHandlers(
            self.world.coordinator, self.cache, self.world.runtime.scheduler, self.create
        )

    async def create(self):
        self.creations += 1
        if self.creation_error is not None:
            raise self.creation_error
        self.lead(1)

    def lead(self, broker_id):
        """The offsets topic exists and is led by this broker."""
        state = PartitionState(
            TopicPartition("__consumer_offsets", 0),
            NO_UUID,
            1,
            LeaderAndIsr(broker_id, 0, (1,)),
            (1,),
        )
        self.cache.update([state], [Node(1, "host", 9092)])

    def call(self, body, version):
        """The answer to a request, None while it is open."""
        context = Context(version)
        stem = type(body).__name__.removesuffix("Request")
        name = "".join(f"_{c.lower()}" if c.isupper() else c for c in stem)
        answer = getattr(self.handlers, f"handle{name}")(context, body)
        if answer is not None:
            context.respond(answer)
        return context.reply.value

    def join(self, version, **fields):
        values = {"group_id": "g", "session_timeout_ms": 10_000, **fields}
        values.setdefault("protocols", [JoinGroupRequestProtocol(name="range", metadata=b"m")])
        context = Context(version)
        body = JoinGroupRequest(protocol_type="consumer", **values)
        self.handlers.handle_join_group(context, body)
        self.world.advance(0)
        return context.reply.value

    def find(self, version, key="g", key_type=0):
        """The coordinator of one key, asked for in the form of the version."""
        if version < 4:
            return self.call(FindCoordinatorRequest(key=key, key_type=key_type), version)
        body = FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
        (coordinator,) = self.call(body, version).coordinators
        assert coordinator.key == key
        return coordinator


@pytest.fixture
def broker():
    """A broker with an empty offsets topic that it leads."""
    broker = Broker()
    broker.lead(1)
    return broker


@pytest.mark.parametrize("version", range(7))
def test_coordinator_is_the_leader_of_the_groups_partition(broker, version):
    """Old versions ask for one key, since version 4 for several."""
    found = broker.find(version)

    assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "host", 9092)


@pytest.mark.parametrize("version", range(7))
def test_offsets_topic_is_created_when_it_is_first_needed(version):
    """Until it has a leader there is no coordinator; one creation is enough."""
    broker = Broker()
    missing = [broker.find(version), broker.find(version)]
    assert {found.error_code for found in missing} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert (missing[0].node_id, missing[0].host, missing[0].port) == (-1, "", -1)
    broker.world.advance(0)

    assert broker.creations == 1
    assert broker.find(version).node_id == 1


def test_failed_creation_is_logged_and_tried_again(caplog):
    """The next client that asks has another try."""
    broker = Broker()
    broker.creation_error = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "too few brokers")
    broker.find(3)
    broker.world.advance(0)
    assert "too few brokers" in caplog.text
    broker.creation_error = None
    broker.find(3)
    broker.world.advance(0)

    assert broker.find(3).node_id == 1


def test_partition_without_a_live_leader_has_no_coordinator(broker):
    """The client has to ask again."""
    broker.lead(2)

    assert broker.find(3).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.creations == 0


@pytest.mark.parametrize("version", range(1, 7))
def test_transactions_are_refused_in_words(broker, version):
    """Clients give up at once, and say why."""
    refused = broker.find(version, key_type=TRANSACTION_KEY)

    assert not ErrorCode.of(refused.error_code).retriable
    assert "transactions" in refused.error_message


def test_unknown_kinds_of_keys_are_refused(broker):
    """Share groups have no coordinator here."""
    assert broker.find(6, key_type=SHARE_KEY).error_code == ErrorCode.INVALID_REQUEST


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


@pytest.mark.parametrize("version", range(6))
def test_describe_and_list_answer_in_every_version(broker, version):
    """State and members as far as the version shows them."""
    broker.join(3)
    described = broker.call(DescribeGroupsRequest(groups=["g", "nobody"]), version)
    listed = broker.call(ListGroupsRequest(), version)

    assert [g.group_state for g in described.groups] == ["CompletingRebalance", "Dead"]
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
    """The table of the family has the eight APIs of classic groups."""
    assert sorted(broker.handlers.apis()) == [10, 11, 12, 13, 14, 15, 16, 42]
