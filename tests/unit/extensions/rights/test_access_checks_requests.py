"""What checks leave of a request and put into its answer, for a client with some of the rights."""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace
from uuid import UUID

import pytest
from some_rights import EVE, asking

from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.rights import access_checks as checks
from ottla.extensions.rights.access_checks import TopicChecks
from ottla.protocol import metadata, offsets, topics, transactions
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.delegation_tokens import CreateDelegationTokenRequest
from ottla.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.record.batch_builder import build_batch
from ottla.runtime.scheduler import at_once
from ottla.security.acls import CLUSTER, AclOperation, ResourceType
from ottla.security.principal import ANONYMOUS, TokenPrincipal
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import NO_UUID, LeaderAndIsr, PartitionState, TopicPartition

READ, WRITE, CREATE, DESCRIBE = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DESCRIBE,
)
TOPIC, GROUP, TXID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def names(entries):
    return [each.name for each in entries]


# Offsets of groups


def fetched(name, *indexes):
    return offsets.OffsetFetchResponseTopics(
        name=name,
        partitions=[offsets.OffsetFetchResponsePartitions(partition_index=i) for i in indexes],
    )


def test_topics_of_groups_are_left_out_or_refused_one_by_one():
    """A group that is asked for all of its topics tells those that are seen."""
    asked = asking((DESCRIBE, GROUP, "some"), (DESCRIBE, GROUP, "all"), (DESCRIBE, TOPIC, "mine"))
    named = [
        offsets.OffsetFetchRequestTopics(name=n, partition_indexes=[0]) for n in ("mine", "other")
    ]
    body = offsets.OffsetFetchRequest(
        groups=[
            offsets.OffsetFetchRequestGroup(group_id="some", topics=named),
            offsets.OffsetFetchRequestGroup(group_id="all", topics=None),
            offsets.OffsetFetchRequestGroup(group_id="denied", topics=None),
        ]
    )
    assert checks.check_offset_fetch(asked, body) is None
    assert [group.group_id for group in body.groups] == ["some", "all"]
    assert names(body.groups[0].topics) == ["mine"]
    answer = offsets.OffsetFetchResponse(
        groups=[
            offsets.OffsetFetchResponseGroup(group_id="some", topics=[fetched("mine", 0)]),
            offsets.OffsetFetchResponseGroup(
                group_id="all", topics=[fetched("mine", 0), fetched("other", 0)]
            ),
            offsets.OffsetFetchResponseGroup(group_id="all", error_code=16),
        ]
    )
    at_once(asked.context.amend(answer))

    found = [(g.group_id, g.error_code, names(g.topics)) for g in answer.groups]
    denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert found == [
        ("some", 0, ["mine", "other"]),
        ("all", 0, ["mine"]),
        ("all", 16, []),
        ("denied", denied, []),
    ]
    assert answer.groups[0].topics[1].partitions[0].error_code == TOPIC_DENIED


MINE, OTHER, GONE = (UUID(int=number) for number in (1, 2, 3))
NAMES = {MINE: "mine", OTHER: "other"}


def by_id(cls, **lists):
    return [cls(topic_id=topic_id, **lists) for topic_id in (MINE, OTHER, GONE, NO_UUID)]


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (
            ApiKey.PRODUCE,
            13,
            ProduceRequest(
                acks=1,
                topic_data=by_id(TopicProduceData, partition_data=[PartitionProduceData(index=0)]),
            ),
        ),
        (
            ApiKey.OFFSET_COMMIT,
            10,
            offsets.OffsetCommitRequest(
                group_id="g",
                topics=by_id(
                    offsets.OffsetCommitRequestTopic,
                    partitions=[offsets.OffsetCommitRequestPartition(partition_index=0)],
                ),
            ),
        ),
        (
            ApiKey.TXN_OFFSET_COMMIT,
            6,
            transactions.TxnOffsetCommitRequest(
                transactional_id="x",
                group_id="g",
                topics=by_id(
                    transactions.TxnOffsetCommitRequestTopic,
                    partitions=[transactions.TxnOffsetCommitRequestPartition(partition_index=0)],
                ),
            ),
        ),
        (
            ApiKey.OFFSET_FETCH,
            10,
            offsets.OffsetFetchRequest(
                groups=[
                    offsets.OffsetFetchRequestGroup(
                        group_id="g",
                        topics=by_id(offsets.OffsetFetchRequestTopics, partition_indexes=[0]),
                    )
                ]
            ),
        ),
    ],
    ids=lambda value: value.name if isinstance(value, ApiKey) else "",
)
def test_topics_given_by_id_are_asked_about_by_name(key, version, body):
    """One that is denied is answered by its id; one that is not there is left to the handler."""
    cache = SimpleNamespace(topic_name=NAMES.get)
    asked = asking(
        *((READ, GROUP, "g"), (DESCRIBE, GROUP, "g"), (WRITE, TXID, "x")),
        *((READ, TOPIC, "mine"), (DESCRIBE, TOPIC, "mine"), (WRITE, TOPIC, "mine")),
        version=version,
    )
    body = deepcopy(body)
    assert checks.checks(cache, auto_create=False)[key](asked, body) is None
    (left,) = checks.lists_of_topics(body)
    assert [topic.topic_id for topic in left] == [MINE, GONE, NO_UUID]
    answer = body.response_class()
    if key is ApiKey.OFFSET_FETCH:
        answer.groups = [offsets.OffsetFetchResponseGroup(group_id="g")]
    at_once(asked.context.amend(answer))
    if key is ApiKey.PRODUCE:
        (denied,) = answer.responses
        lines = denied.partition_responses
    else:
        (denied,) = (answer.groups[0] if key is ApiKey.OFFSET_FETCH else answer).topics
        lines = denied.partitions

    assert denied.topic_id == OTHER
    assert [line.error_code for line in lines] == [TOPIC_DENIED]


@pytest.mark.parametrize("version", [1, 2, 7])
def test_offsets_of_a_group_out_of_reach_are_refused_where_there_is_a_place(version):
    """Since version 2 for the whole, before that for each partition."""
    wanted = [offsets.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    body = offsets.OffsetFetchRequest(group_id="g", topics=wanted)
    answer = checks.check_offset_fetch(asking(version=version), body)

    denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert answer.error_code == (denied if version >= 2 else 0)
    codes = [p.error_code for topic in answer.topics for p in topic.partitions]
    assert codes == ([] if version >= 2 else [denied])


def test_all_offsets_of_a_group_are_those_of_topics_in_sight():
    """Named ones are refused, and the others answered."""
    rights = [(DESCRIBE, GROUP, "g"), (DESCRIBE, TOPIC, "mine")]
    asked = asking(*rights, version=7)
    assert (
        checks.check_offset_fetch(asked, offsets.OffsetFetchRequest(group_id="g", topics=None))
        is None
    )
    found = [offsets.OffsetFetchResponseTopic(name=name) for name in ("mine", "other")]
    answer = offsets.OffsetFetchResponse(topics=found)
    at_once(asked.context.amend(answer))
    assert names(answer.topics) == ["mine"]

    asked = asking(*rights, version=7)
    wanted = [
        offsets.OffsetFetchRequestTopic(name=n, partition_indexes=[0]) for n in ("mine", "other")
    ]
    body = offsets.OffsetFetchRequest(group_id="g", topics=wanted)
    assert checks.check_offset_fetch(asked, body) is None
    assert names(body.topics) == ["mine"]
    answer = offsets.OffsetFetchResponse(topics=found[:1])
    at_once(asked.context.amend(answer))
    assert names(answer.topics) == ["mine", "other"]


# Transactions


@pytest.mark.parametrize(
    ("rights", "error"),
    [
        ([], ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ([(WRITE, TXID, "x")], ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ([(READ, GROUP, "g")], ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ([(WRITE, TXID, "x"), (READ, GROUP, "g")], None),
    ],
)
def test_offsets_are_added_to_a_transaction_with_both_rights(rights, error):
    """To the transactional id, and to read for the group."""
    body = transactions.AddOffsetsToTxnRequest(transactional_id="x", group_id="g")
    if error is None:
        assert checks.check_add_offsets_to_txn(asking(*rights), body) is None
    else:
        with pytest.raises(KafkaError) as caught:
            checks.check_add_offsets_to_txn(asking(*rights), body)
        assert caught.value.error is error


def test_transaction_is_described_without_topics_out_of_sight():
    """One whose id may not be described is refused."""
    asked = asking((DESCRIBE, TXID, "x"), (DESCRIBE, TOPIC, "mine"))
    body = transactions.DescribeTransactionsRequest(transactional_ids=["x", "y"])
    assert checks.check_describe_transactions(asked, body) is None
    assert body.transactional_ids == ["x"]
    state = transactions.DescribeTransactionsTransactionState(
        transactional_id="x",
        topics=[transactions.TopicData(topic=name) for name in ("mine", "other")],
    )
    answer = transactions.DescribeTransactionsResponse(transaction_states=[state])
    at_once(asked.context.amend(answer))
    first, second = answer.transaction_states

    assert [each.topic for each in first.topics] == ["mine"]
    assert second.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize(("size", "is_asked"), [(60, False), (61, True)])
def test_transactional_batch_is_known_by_its_header(size, is_asked):
    """Fewer bytes than one has are refused elsewhere."""
    batch = build_batch(
        [(1, b"k", b"v", ())], is_transactional=True, producer_id=7, producer_epoch=0
    )
    part = PartitionProduceData(index=0, records=memoryview(batch[:size]))
    topic = TopicProduceData(name="t", partition_data=[part])
    body = ProduceRequest(transactional_id="x", acks=1, topic_data=[topic])
    answer = checks.check_produce(asking((WRITE, TOPIC, "t")), body)

    assert (answer is not None) is is_asked


# Topics


def cache_of(*topic_names):
    cache = MetadataCache("cluster")
    state = LeaderAndIsr(1, 0, (1,))
    cache.update(
        [
            PartitionState(TopicPartition(name, 0), UUID(int=n), 1, state, (1,))
            for n, name in enumerate(topic_names, start=1)
        ],
        [],
    )
    return cache


@pytest.mark.parametrize(
    ("version", "wanted", "told"),
    [(0, [], ["mine"]), (1, [], ["mine", "other"]), (1, None, ["mine"])],
)
def test_list_of_all_topics_has_those_in_sight(version, wanted, told):
    """An empty list is all of them in version 0 alone, and then nothing that was named."""
    asked = asking((DESCRIBE, TOPIC, "mine"), version=version)
    body = metadata.MetadataRequest(topics=wanted)
    TopicChecks(cache_of("mine", "other"), False).check_metadata(asked, body)
    found = [metadata.MetadataResponseTopic(name=name) for name in ("mine", "other")]
    answer = metadata.MetadataResponse(topics=found)
    if asked.context.amend is not None:
        at_once(asked.context.amend(answer))

    assert names(answer.topics) == told


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [(("a", "b"), ["a", "b"]), (("a",), ["a"])],
)
def test_described_topics_are_those_in_sight_with_their_operations(seen, wanted):
    """Without any there is nothing to ask."""
    rights = [(DESCRIBE, TOPIC, name) for name in seen]
    asked = asking(*rights)
    body = metadata.DescribeTopicPartitionsRequest()
    check = TopicChecks(cache_of("a", "b"), False).check_describe_topic_partitions
    assert at_once(check(asked, body)) is None
    assert names(body.topics) == wanted
    topic = metadata.DescribeTopicPartitionsResponseTopic(name="a")
    answer = metadata.DescribeTopicPartitionsResponse(topics=[topic])
    at_once(asked.context.amend(answer))
    assert topic.topic_authorized_operations == 7

    assert at_once(check(asking(), metadata.DescribeTopicPartitionsRequest())).topics == []


@pytest.mark.parametrize(
    ("cursor", "named", "goes_on"),
    [
        (("b", 2), ["b", "d"], ("b", 2)),
        (("c", 2), ["d"], ("d", 0)),
        (("d", -1), ["d"], ("d", -1)),
        (("c", -1), ["d"], ("d", -1)),
    ],
)
def test_description_of_topics_goes_on_though_that_of_the_cursor_is_gone(cursor, named, goes_on):
    """Or though it is out of sight now; that it names no partition is refused all the same."""
    asked = asking(*((DESCRIBE, TOPIC, name) for name in "abd"))
    body = metadata.DescribeTopicPartitionsRequest(
        cursor=metadata.Cursor(topic_name=cursor[0], partition_index=cursor[1])
    )
    check = TopicChecks(cache_of("a", "b", "c", "d"), False).check_describe_topic_partitions

    assert at_once(check(asked, body)) is None
    assert names(body.topics) == named
    assert (body.cursor.topic_name, body.cursor.partition_index) == goes_on


def test_settings_of_a_created_topic_are_told_with_their_right():
    """A topic that was not created has none."""
    describe_configs = (AclOperation.DESCRIBE_CONFIGS, TOPIC, "mine")
    asked = asking((CREATE, *CLUSTER), describe_configs)
    assert checks.check_create_topics(asked, topics.CreateTopicsRequest()) is None
    found = [
        topics.CreatableTopicResult(name=name, error_code=code, num_partitions=3)
        for name, code in (("mine", 0), ("other", 0), ("failed", 36))
    ]
    at_once(asked.context.amend(topics.CreateTopicsResponse(topics=found)))

    assert [(t.topic_config_error_code, t.num_partitions) for t in found] == [
        (0, 3),
        (TOPIC_DENIED, -1),
        (0, 3),
    ]


@pytest.mark.parametrize(
    ("principal", "is_refused"), [(EVE, True), (ANONYMOUS, False), (TokenPrincipal(*EVE), False)]
)
def test_token_of_another_owner_needs_a_right(principal, is_refused):
    """Who may ask for none at all is told so by the handler; one's own needs none."""
    body = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="ann")
    answer = checks.check_create_token(asking(principal=principal), body)
    assert (answer is not None) is is_refused

    assert checks.check_create_token(asking(principal=EVE), CreateDelegationTokenRequest()) is None
