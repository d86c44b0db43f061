"""The matrix: every API, without rights, with DESCRIBE alone and with all, on what is there or not.

The codes are those of Kafka 3.9.
"""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from rights_matrix import (
    ADMIN,
    ALICE,
    CLUSTER,
    DENIED,
    GROUP,
    KAFKA_CLUSTER,
    MISSING,
    ROWS,
    THERE,
    TOPIC,
    TXID,
    Op,
    Right,
    Row,
    add_partitions,
    fetch_request,
    offset_commit,
    produce_request,
)
from rights_world import acl, call, error_codes

from ottla.config.broker_config import BrokerConfig
from ottla.coordinator.group.consumer.name_pattern import NamePattern
from ottla.errors import ErrorCode, KafkaError, LocalProtocolError, RemoteProtocolError
from ottla.extensions.rights.access_checks import checks, put_checks
from ottla.extensions.rights.asking import Asking
from ottla.extensions.rights.authorizer import Authorizer
from ottla.extensions.rights.rights import Rights
from ottla.protocol import (
    consumer_group,
    delegation_tokens,
    describe_cluster,
    fetch,
    group,
    metadata,
    topics,
    transactions,
)
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.header import RequestHeader
from ottla.protocol.message import request_class
from ottla.record.conversion import encode_message
from ottla.record.record import Record
from ottla.replication.replica_requests import READ_AT_ONCE
from ottla.security.acls import AclPermissionType, ResourceType
from ottla.server.apis import Apis
from ottla.server.handlers.fetch import MAX_USELESS
from ottla.structs import INTERNAL_TOPICS
from ottla.testing import InProcessBroker, mock_runtime, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.security.principal import KafkaPrincipal

AUTHORIZED = BrokerConfig(
    authorizer_class_name="kafka.security.authorizer.AclAuthorizer", super_users="User:admin"
)

OF_CLUSTERS = {
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
}
"""A single broker does not serve them."""
LISTED = {
    ApiKey.LIST_GROUPS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}
"""Nothing is denied there, and what may not be seen is left out."""
FREE = {
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
}
"""No right is needed."""
OF_OWNERS = {ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN}
"""Owner and renewers may do it, whatever ACLs say."""


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    """With a topic, and the super user admin."""
    with InProcessBroker(
        authorizer_class_name="kafka.security.authorizer.AclAuthorizer",
        super_users="User:admin",
        delegation_token_secret_key="of all brokers",
    ) as broker:
        broker.create_topic(THERE)
        for name in INTERNAL_TOPICS:  # coordinators are there for any of the tests, alone too
            broker.run(broker.broker.controller.auto_create_topic(name))
        wait_until(lambda: not broker.broker.coordinators.groups.manager.is_loading, "coordinators")
        yield broker


@pytest.fixture(autouse=True)
def no_acls(request: pytest.FixtureRequest) -> None:
    """Each test begins without ACLs."""
    if "broker" in request.fixturenames:
        request.getfixturevalue("broker").broker.find(Rights).authorizer.table.replace({})


def allow(broker: InProcessBroker, *rights: Right) -> None:
    broker.broker.find(Rights).authorizer.table.add(acl(*right, "User:alice") for right in rights)


def title(row: Row) -> str:
    return f"{row.key.name}{' ' if row.name else ''}{row.name}"


@pytest.mark.parametrize("row", [row for row in ROWS if row.key not in OF_CLUSTERS], ids=title)
def test_denials_are_those_of_kafka(broker: InProcessBroker, row: Row) -> None:
    """In all versions; what is not there is told apart by nobody who may not describe it."""
    message = request_class(row.key)
    first = max(message.min_version, row.first_version)
    for version in range(first, min(message.max_version, row.last_version) + 1):
        told = {}
        for topic in (THERE, MISSING):
            broker.broker.find(Rights).authorizer.table.replace({})
            denied = call(broker, ALICE, row.body(version, topic), version)
            told[topic] = repr(denied).replace(repr(topic), "x")
            assert error_codes(denied) == row.none, f"v{version} {topic} without rights: {denied}"

            allow(
                broker,
                (Op.DESCRIBE, TOPIC, topic),
                (Op.DESCRIBE, GROUP, "g"),
                (Op.DESCRIBE, GROUP, "k"),
                (Op.DESCRIBE, GROUP, "x"),
                (Op.DESCRIBE, TXID, "t"),
                (Op.DESCRIBE, CLUSTER, KAFKA_CLUSTER),
            )
            described = call(broker, ALICE, row.body(version, topic), version)
            codes = error_codes(described) & DENIED
            assert codes == row.describe, f"v{version} {topic} with DESCRIBE: {described}"

            if row.full(topic):
                broker.broker.find(Rights).authorizer.table.replace({})
                allow(broker, *row.full(topic))
                served = call(broker, ALICE, row.body(version, topic), version)
                assert not error_codes(served) & DENIED, f"v{version} {topic}: {served}"
        assert told[THERE] == told[MISSING], f"v{version}: the answer tells what there is"


def test_every_api_has_a_row_and_is_in_the_matrix():
    """A new API cannot forget to ask: a broker with an authorizer would not start."""
    with_messages = {key for key in ApiKey if has_messages(key)}
    table = checks(None, auto_create=False)

    assert with_messages <= table.keys()
    assert with_messages <= {row.key for row in ROWS} | LISTED | FREE | OF_OWNERS


def has_messages(key: ApiKey) -> bool:
    try:
        request_class(key)
    except RemoteProtocolError:
        return False
    return True


class Forgotten:
    """A family whose API has no row in the table."""

    def apis(self) -> dict[ApiKey, Any]:
        return {ApiKey.VOTE: (lambda context, body: None, 0, 0)}


def test_broker_does_not_start_with_an_api_that_nobody_checks():
    """It would be served to everybody."""
    apis = Apis(mock_runtime(), [Forgotten()])

    with pytest.raises(LocalProtocolError, match="VOTE is served without a check"):
        put_checks(apis, None, None, auto_create=False)


@pytest.mark.parametrize("row", [row for row in ROWS if row.body is not fetch_request], ids=title)
def test_what_is_denied_is_never_handled(row):
    """Where nothing is allowed no handler sees a name; a fetch is judged in its session."""
    seen: list[str] = []
    authorizer = Authorizer(mock_runtime(), None, AUTHORIZED)
    context = SimpleNamespace(
        principal=ALICE,
        client_host="10.0.0.1",
        amend=None,
        close_reason="",
        header=RequestHeader(int(row.key), 0, 1, "c"),
    )
    cache = SimpleNamespace(topic=lambda name: None, topic_name=lambda id: None, topics=list)
    check = checks(cache, auto_create=True)[row.key]
    for version in range(max(row.first_version, request_class(row.key).min_version), 99):
        if version > min(row.last_version, request_class(row.key).max_version):
            break
        context.api_version = version
        body = row.body(version, THERE)
        with suppress(KafkaError):  # the error of the whole request
            if check(Asking(authorizer, context), body) is None:
                seen.append(repr(body))

    assert not [body for body in seen if THERE in body]
    assert authorizer.denied_count


def test_lists_leave_out_what_may_not_be_seen(broker):
    """Topics, groups and transactional ids; nothing says that there are more."""
    commit = offset_commit(2, THERE)
    assert call(broker, ADMIN, commit, 2).topics[0].partitions[0].error_code == 0
    broker.create_topic("other")
    all_topics = metadata.MetadataRequest(topics=None)

    def names(principal: KafkaPrincipal) -> set[str]:
        return {topic.name for topic in call(broker, principal, all_topics, 9).topics}

    def groups(principal: KafkaPrincipal) -> set[str]:
        answer = call(broker, principal, group.ListGroupsRequest(), 4)
        return {each.group_id for each in answer.groups}

    def described(principal: KafkaPrincipal) -> set[str]:
        body = metadata.DescribeTopicPartitionsRequest(response_partition_limit=100)
        return {topic.name for topic in call(broker, principal, body, 0).topics}

    assert {THERE, "other"} <= names(ADMIN)
    assert {THERE, "other"} <= described(ADMIN)
    assert "g" in groups(ADMIN)
    assert names(ALICE) == groups(ALICE) == described(ALICE) == set()
    allow(broker, (Op.READ, TOPIC, "other"), (Op.READ, GROUP, "g"))
    assert names(ALICE) == described(ALICE) == {"other"}
    assert groups(ALICE) == {"g"}
    assert call(broker, ALICE, metadata.MetadataRequest(topics=[]), 0).topics[0].name == "other"


def test_old_request_that_is_denied_does_not_become_one_for_everything(broker):
    """Metadata v0 without names asks for all topics: what was refused once left such a request."""
    allow(broker, (Op.DESCRIBE, TOPIC, "other"))
    asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=THERE)])

    (topic,) = call(broker, ALICE, asked, 0).topics

    assert (topic.name, topic.error_code) == (THERE, 29)


def test_what_is_denied_does_not_keep_the_rest_back(broker):
    """Each topic has its own result: one is written, fetched and committed, the other is not."""
    broker.create_topic("mine")
    before = len(broker.records(THERE))
    allow(broker, *((op, TOPIC, "mine") for op in (Op.READ, Op.WRITE)), (Op.READ, GROUP, "g"))
    produced = produce_request(9, "mine")
    produced.topic_data.append(produce_request(9, THERE).topic_data[0])
    fetched = fetch_request(11, "mine")
    fetched.topics.append(fetch_request(11, THERE).topics[0])
    committed = offset_commit(6, "mine")
    committed.topics.append(offset_commit(6, THERE).topics[0])

    responses = call(broker, ALICE, produced, 9).responses
    assert {t.name: t.partition_responses[0].error_code for t in responses} == {
        "mine": 0,
        THERE: 29,
    }
    responses = call(broker, ALICE, fetched, 11).responses
    assert {t.topic: t.partitions[0].error_code for t in responses} == {"mine": 0, THERE: 29}
    responses = call(broker, ALICE, committed, 6).topics
    assert {t.name: t.partitions[0].error_code for t in responses} == {"mine": 0, THERE: 29}
    assert len(broker.records("mine")) == 1
    assert len(broker.records(THERE)) == before


def test_right_that_is_taken_away_ends_an_open_fetch_session(broker):
    """The next incremental fetch names no partition, and is judged all the same."""
    broker.create_topic("session")
    allow(broker, (Op.READ, TOPIC, "session"))
    first = fetch_request(11, "session")
    first.session_epoch = 0
    session_id = call(broker, ALICE, first, 11).session_id
    assert session_id
    broker.broker.find(Rights).authorizer.table.add(
        [acl(Op.READ, TOPIC, "session", "User:alice", AclPermissionType.DENY)]
    )

    again = fetch.FetchRequest(max_bytes=1000, session_id=session_id, session_epoch=1)
    (topic,) = call(broker, ALICE, again, 11).responses

    assert topic.partitions[0].error_code == 29


def test_topic_id_that_is_unknown_is_told_before_the_right(broker):
    """UNKNOWN_TOPIC_ID for one that nobody has, the denial for one that there is."""
    topic_id = broker.broker.cache.topic(THERE).topic_id
    for asked, expected in ((topic_id, 29), (UUID(int=5), 100)):
        body = fetch_request(13, "")
        body.topics[0].topic_id = asked
        assert error_codes(call(broker, ALICE, body, 13)) == {expected}
        body = metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=None, topic_id=asked)]
        )
        (topic,) = call(broker, ALICE, body, 12).topics
        assert (topic.error_code, topic.name) == (expected, None)
        body = topics.DeleteTopicsRequest(
            topics=[topics.DeleteTopicState(name=None, topic_id=asked)], timeout_ms=1000
        )
        (deleted,) = call(broker, ALICE, body, 6).responses
        assert (deleted.error_code, deleted.name) == (expected, None)


def test_produce_without_an_answer_is_denied_by_closing(broker):
    """acks=0: what the same request may write is written."""
    broker.create_topic("fire")
    allow(broker, (Op.WRITE, TOPIC, "fire"))
    body = produce_request(9, "fire")
    body.topic_data.append(produce_request(9, THERE).topic_data[0])
    body.acks = 0

    assert call(broker, ALICE, body, 9) == f"closed: acks=0 produce to {THERE} is denied"
    assert len(broker.records("fire")) == 1
    body.topic_data = body.topic_data[1:]
    assert "is denied" in call(broker, ALICE, body, 9)


@pytest.mark.parametrize("magic", [0, 1])
def test_batches_of_old_formats_need_no_transactional_id(broker, magic):
    """Whatever stands where a newer batch has its attributes: a key, or bits of a timestamp."""
    allow(broker, (Op.WRITE, TOPIC, THERE))
    for bits in range(256):
        record = Record(0, bits << 24, bytes([bits]) * 4, b"v" * 50, ())
        body = produce_request(magic + 1, THERE)
        body.topic_data[0].partition_data[0].records = memoryview(
            bytearray(encode_message(record, magic))
        )
        (answer,) = call(broker, ALICE, body, magic + 1).responses

        assert answer.partition_responses[0].error_code == 0


def test_operations_that_are_told_are_those_that_are_allowed(broker):
    """By Metadata, DescribeCluster and DescribeGroups (KIP-430)."""
    allow(
        broker,
        (Op.WRITE, TOPIC, THERE),
        (Op.READ, GROUP, "g"),
        (Op.CREATE, CLUSTER, "kafka-cluster"),
    )

    asked = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=THERE)],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    answer = call(broker, ALICE, asked, 9)
    assert answer.topics[0].topic_authorized_operations == 1 << Op.WRITE | 1 << Op.DESCRIBE
    assert answer.cluster_authorized_operations == 0, "none are told without DESCRIBE"
    assert call(broker, ADMIN, asked, 9).topics[0].topic_authorized_operations == 3576
    assert call(broker, ADMIN, asked, 9).cluster_authorized_operations == 8096
    body = describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True)
    allow(broker, (Op.DESCRIBE, CLUSTER, "kafka-cluster"))
    bits = call(broker, ALICE, body, 0).cluster_authorized_operations
    assert bits == 1 << Op.CREATE | 1 << Op.DESCRIBE
    described = group.DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    (found,) = call(broker, ALICE, described, 3).groups
    assert found.authorized_operations == 1 << Op.READ | 1 << Op.DESCRIBE
    (found,) = call(broker, ADMIN, described, 3).groups
    assert found.authorized_operations == 328


def test_settings_of_a_new_topic_are_shown_to_those_who_may_see_them(broker):
    """KIP-525: the topic is created, and its settings are left out."""
    allow(broker, (Op.CREATE, TOPIC, "fresh"))
    body = topics.CreateTopicsRequest(
        topics=[topics.CreatableTopic(name="fresh", num_partitions=1, replication_factor=1)],
        timeout_ms=1000,
    )

    (created,) = call(broker, ALICE, body, 5).topics

    assert (created.error_code, created.topic_config_error_code) == (0, 29)
    assert (created.num_partitions, created.configs) == (-1, [])
    assert "fresh" in broker.topics()


def test_subscription_to_a_topic_that_may_not_be_described_is_denied(broker):
    """An assignment would tell how many partitions it has."""
    allow(broker, (Op.READ, GROUP, "k"))
    body = consumer_group.ConsumerGroupHeartbeatRequest(
        group_id="k",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[THERE],
        topic_partitions=[],
    )

    assert call(broker, ALICE, body, 0).error_code == 29


def test_topic_is_not_created_by_a_producer_that_may_not_create(broker):
    """Metadata of a topic that is missing creates it; without CREATE that is denied."""
    allow(broker, (Op.WRITE, TOPIC, "auto"))
    asked = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name="auto")], allow_auto_topic_creation=True
    )
    (topic,) = call(broker, ALICE, asked, 9).topics
    assert topic.error_code == 29
    assert "auto" not in broker.topics()

    allow(broker, (Op.CREATE, TOPIC, "auto"))
    (topic,) = call(broker, ALICE, asked, 9).topics
    assert topic.error_code == 0
    assert "auto" in broker.topics()


def test_transaction_that_may_not_write_one_topic_gets_none(broker):
    """AddPartitionsToTxn: the others are OPERATION_NOT_ATTEMPTED."""
    allow(broker, (Op.WRITE, TXID, "t"), (Op.WRITE, TOPIC, "mine"))
    body = add_partitions(3, "mine")
    body.v3_and_below_topics.append(add_partitions(3, THERE).v3_and_below_topics[0])

    results = call(broker, ALICE, body, 3).results_by_topic_v3_and_below

    assert {t.name: t.results_by_partition[0].partition_error_code for t in results} == {
        "mine": int(ErrorCode.OPERATION_NOT_ATTEMPTED),
        THERE: 29,
    }


@pytest.mark.parametrize(
    ("right", "seen"),
    [
        (None, False),
        ((Op.DESCRIBE, ResourceType.DELEGATION_TOKEN, "*"), True),
        ((Op.DESCRIBE_TOKENS, ResourceType.USER, "User:admin"), True),
        ((Op.DESCRIBE_TOKENS, ResourceType.USER, "User:bob"), False),
    ],
)
def test_tokens_of_others_are_seen_with_a_right_to_them(broker, right, seen):
    """To the token or to its owner; the owner sees its own without."""
    made = call(broker, ADMIN, delegation_tokens.CreateDelegationTokenRequest(), 3)
    if right is not None:
        allow(broker, right)

    def tokens(principal: KafkaPrincipal) -> list[str]:
        answer = call(
            broker, principal, delegation_tokens.DescribeDelegationTokenRequest(owners=None), 3
        )
        return [each.token_id for each in answer.tokens]

    assert made.token_id in tokens(ADMIN)
    assert (made.token_id in tokens(ALICE)) is seen
    call(
        broker,
        ADMIN,
        delegation_tokens.ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1),
        2,
    )


def test_group_is_not_described_with_topics_out_of_sight(broker):
    """Neither what an expression has found nor what other members read tells of a topic."""
    heartbeat = consumer_group.ConsumerGroupHeartbeatRequest(
        group_id="sighted",
        member_id="m",
        rebalance_timeout_ms=1000,
        topic_partitions=[],
        subscribed_topic_names=[],
        subscribed_topic_regex=".*",
    )
    describe = consumer_group.ConsumerGroupDescribeRequest(group_ids=["sighted"])
    may_describe = (Op.DESCRIBE, GROUP, "sighted")
    allow(broker, (Op.READ, GROUP, "sighted"), may_describe)

    assert call(broker, ALICE, heartbeat, 1).assignment.topic_partitions == []
    assert call(broker, ALICE, describe, 1).groups[0].error_code == 0
    heartbeat.member_id, heartbeat.subscribed_topic_regex = "n", ".+"
    assert call(broker, ADMIN, heartbeat, 1).error_code == 0
    (group,) = call(broker, ALICE, describe, 1).groups
    assert group.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert group.members == []
    allow(broker, may_describe, (Op.DESCRIBE, TOPIC, "*"))
    (group,) = call(broker, ALICE, describe, 1).groups
    assert (group.error_code, len(group.members)) == (0, 2)


def test_expression_of_a_list_is_matched_with_what_is_seen_only(broker, monkeypatch):
    """An id out of sight costs its broker nothing, and its expression tells nothing of it."""
    asked = []
    matching = NamePattern.matching
    monkeypatch.setattr(
        NamePattern, "matching", lambda self, names: matching(self, asked.extend(names) or asked)
    )
    for name in ("seen", "hidden"):
        body = transactions.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1)
        assert call(broker, ADMIN, body, 4).error_code in (0, 15, 16)
    allow(broker, (Op.DESCRIBE, TXID, "seen"))
    body = transactions.ListTransactionsRequest(transactional_id_pattern=".*")

    listed = call(broker, ALICE, body, 2).transaction_states
    assert asked == [each.transactional_id for each in listed] == ["seen"]


def fetch_of(name: str, count: int) -> fetch.FetchRequest:
    partitions = [fetch.FetchPartition(partition=n, partition_max_bytes=1) for n in range(count)]
    topic = fetch.FetchTopic(topic=name, partitions=partitions)
    return fetch.FetchRequest(max_wait_ms=0, session_epoch=0, topics=[topic])


def test_fetch_of_what_may_not_be_read_leaves_no_session_behind(broker):
    """Denied and unknown topics make no session, which would keep them after its client."""
    allow(broker, (Op.READ, TOPIC, "missing"))
    for name in (THERE, "missing"):
        answer = call(broker, ALICE, fetch_of(name, MAX_USELESS + 1), 11)
        assert (answer.error_code, answer.session_id) == (0, 0)
        assert len(answer.responses[0].partitions) == MAX_USELESS + 1
    assert call(broker, ALICE, fetch_of(THERE, MAX_USELESS), 11).session_id
    wide = call(broker, ALICE, fetch_of(THERE, READ_AT_ONCE + 1), 11)
    assert (wide.error_code, wide.session_id) == (0, 0)
    assert {each.error_code for each in wide.responses[0].partitions} == {29}
