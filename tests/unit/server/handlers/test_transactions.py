"""Transactions through their APIs, over real logs: every version, late frames, offsets, markers."""

import itertools
from uuid import UUID

import pytest
from transaction_broker import COMMITTED, T0, UNCOMMITTED, TransactionBroker

from ottla.coordinator.transaction.transaction_verifier import TransactionVerifier
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.record.memory_records import batches
from ottla.replication.partition_leader import PIPELINE_MS
from ottla.runtime.scheduler import at_once
from ottla.server.handlers.transactional_produce import TransactionalProduce
from ottla.structs import INTERNAL_TOPICS

INVALID = ErrorCode.INVALID_TXN_STATE


@pytest.fixture
def broker():
    return TransactionBroker()


@pytest.fixture
def producer(broker):
    """Producer id and epoch of the transactional id "x"."""
    error, *producer = broker.init()
    assert not error
    return tuple(producer)


def values(result):
    """The values of all records that were read, control records left out."""
    buffer = result.records.read() if result.records else b""
    return [
        record.value
        for batch in batches(buffer)
        if not batch.is_control
        for record in batch.records()
    ]


def fetch_offset(broker, require_stable=True):
    """Offset and error of the group's offset in T0."""
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id="g", topics=topics)]
    body = OffsetFetchRequest(groups=groups, require_stable=require_stable)
    (partition,) = broker.call(body, 8).groups[0].topics[0].partitions
    return partition.committed_offset, partition.error_code


@pytest.mark.parametrize("version", range(4))
def test_transaction_in_every_version(broker, version):
    """From the first request to the last."""
    _, *producer = broker.init(version=version)
    assert broker.add(producer, 0, version=version) == [0]
    assert broker.produce(producer, 0, b"v") == 0
    assert broker.add_offsets(producer, version=version) == 0
    assert broker.commit_offset(producer, 5, version=version) == 0
    assert broker.end(producer, version=version) == 0

    assert values(broker.fetch()) == [b"v"]
    assert fetch_offset(broker) == (5, 0)


@pytest.mark.parametrize(
    ("version", "error"),
    [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)],
)
def test_word_for_having_been_fenced_depends_on_the_version(broker, producer, version, error):
    """Old clients know but one (KIP-588)."""
    broker.init()
    assert broker.add(producer, 0, version=version) == [error]
    assert broker.add_offsets(producer, version=version) == error
    assert broker.end(producer, version=version) == error
    stale = {"producer_id": producer[0], "producer_epoch": 9}
    assert broker.init(3, **stale)[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert broker.init(4, **stale)[0] == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(("count", "is_refused"), [(2_000, False), (2_001, True)])
def test_very_many_topics_are_not_added_in_one_request(broker, producer, count, is_refused):
    """A transaction may have them all the same."""
    topics = [AddPartitionsToTxnTopic(name=f"t{n}", partitions=[0]) for n in range(count)]
    body = AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=topics)
    body.v3_and_below_producer_id, body.v3_and_below_producer_epoch = producer

    if is_refused:
        with pytest.raises(KafkaError, match="of 2001 topics, of at most 2000"):
            broker.call(body, 3)
    else:
        assert len(broker.call(body, 3).results_by_topic_v3_and_below) == count


def test_unknown_partition_spoils_the_whole_request(broker, producer):
    """Nothing is added in part."""
    assert broker.add(producer, 0, 7) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert broker.end(producer) == INVALID


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
@pytest.mark.parametrize("version", range(4))
def test_client_cannot_take_internal_topics_into_a_transaction(broker, producer, topic, version):
    """Markers would be written into the coordinators' own logs, whatever the client's rights."""
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert broker.add(producer, 0, version=version, topic=topic) == [refused]

    assert broker.end(producer) == INVALID


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
@pytest.mark.parametrize("version", [9, 12])
def test_batch_for_an_internal_topic_is_in_no_transaction(broker, producer, topic, version):
    """From version 12 on the request itself takes its partitions in: these it does not."""
    before = broker.log(topic).log_end_offset
    context = broker.begin_produce(producer, 0, b"v", version=version, topic=topic)

    assert code_of(context) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert broker.log(topic).log_end_offset == before
    assert broker.end(producer) == INVALID


def test_readers_of_committed_records_stop_at_an_open_transaction(broker, producer):
    """Readers stop at an open transaction, and get the list of aborted ones to leave out."""
    broker.add(producer, 0)
    broker.produce(producer, 0, b"a")
    assert broker.fetch().last_stable_offset == 0
    assert values(broker.fetch()) == []
    assert values(broker.fetch(isolation=UNCOMMITTED)) == [b"a"]
    broker.end(producer, commit=False)
    found = broker.fetch()

    assert (found.last_stable_offset, found.high_watermark) == (2, 2)
    assert [(a.producer_id, a.first_offset) for a in found.aborted_transactions] == [
        (producer[0], 0)
    ]
    assert broker.fetch(isolation=UNCOMMITTED).aborted_transactions is None
    broker.add(producer, 0)
    broker.produce(producer, 1, b"b")
    broker.end(producer)
    assert broker.fetch(2).aborted_transactions == []


def test_offset_by_time_is_one_that_the_reader_may_have(broker, producer):
    """Not one in an open transaction."""
    broker.add(producer, 0)
    broker.produce(producer, 0, b"a")
    partition = broker.replica_manager.partition(T0)

    assert at_once(partition.fetch_offset_for_timestamp(0, COMMITTED)).offset == -1
    assert at_once(partition.fetch_offset_for_timestamp(0, UNCOMMITTED)).offset == 0
    assert at_once(partition.fetch_offset_for_timestamp(-1, COMMITTED)).offset == 0
    assert at_once(partition.fetch_offset_for_timestamp(-2, COMMITTED)).offset == 0


@pytest.mark.parametrize(("version", "error"), [(10, INVALID), (11, 120)])
def test_batch_outside_of_a_transaction_is_refused(broker, producer, version, error):
    """Before a partition is added, and after its transaction has ended (KIP-890)."""
    assert broker.produce(producer, 0, b"early", version) == error
    broker.add(producer, 0)
    broker.produce(producer, 0, b"in time", version)
    broker.end(producer)

    assert broker.produce(producer, 1, b"late", version) == error
    assert broker.log().last_stable_offset == broker.log().log_end_offset == 2


def test_late_batch_does_not_get_into_the_next_transaction(broker, producer):
    """There its sequence number is not the next one."""
    broker.add(producer, 0)
    broker.produce(producer, 0, b"first")
    broker.end(producer, commit=False)
    broker.add(producer, 0)
    broker.produce(producer, 1, b"second")

    assert broker.produce(producer, 5, b"late") == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    broker.end(producer)
    assert values(broker.fetch(2)) == [b"second"]


def test_late_end_does_not_end_the_next_transaction(broker, producer):
    """It comes by a connection that the producer has given up since."""
    broker.add(producer, 0, session=1)
    broker.end(producer, session=2)
    broker.add(producer, 0, session=2)
    broker.produce(producer, 0, b"open")

    assert broker.end(producer, session=1) == ErrorCode.NOT_COORDINATOR
    assert broker.fetch().last_stable_offset < broker.fetch().high_watermark


def test_fenced_producer_cannot_write(broker, producer):
    """Its batches are refused, and what it had written is aborted."""
    broker.add(producer, 0)
    broker.produce(producer, 0, b"zombie")
    broker.init()

    assert broker.produce(producer, 1, b"more") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert broker.log().last_stable_offset == 2


def test_transactional_batch_needs_a_transactional_id(broker, producer):
    """Nobody could say which coordinator to ask."""
    broker.add(producer, 0)
    error = broker.produce(producer, 0, b"v", transactional_id=None, is_transactional=True)

    assert error == INVALID
    assert broker.produce((55, 0), 0, b"plain", transactional_id=None) == 0


def test_plain_batch_of_a_transactional_producer_needs_no_transaction(broker, producer):
    """As long as none is open."""
    assert broker.produce(producer, 0, b"v", is_transactional=False) == 0
    broker.add(producer, 0)
    broker.produce(producer, 1, b"v")

    assert broker.produce(producer, 2, b"v", is_transactional=False) == INVALID


def test_coordinator_that_is_not_at_hand_is_asked_again(broker, producer):
    """Producers know a retriable error that is not about transactions."""
    broker.add(producer, 0)
    broker.coordinators.transactions.on_resignation(0)

    assert broker.produce(producer, 0, b"v") == ErrorCode.NOT_ENOUGH_REPLICAS


def test_answer_of_the_coordinator_may_come_later(broker, producer, asked):
    """The bytes of the request are kept; and a marker in between makes the batch a late one."""
    assert [broker.produce(producer, n, b"v%d" % n) for n in range(2)] == [None, None]
    assert broker.log().log_end_offset == 0
    asked[0]({T0: ErrorCode.NONE})
    assert values(broker.fetch(isolation=UNCOMMITTED)) == [b"v0"]
    write_marker(broker, producer)
    asked[1]({T0: ErrorCode.NONE})

    assert values(broker.fetch(isolation=UNCOMMITTED)) == [b"v0"]


@pytest.fixture
def asked(broker):
    """The coordinator's answers, to be given by the test."""
    asked = []
    verifier = TransactionVerifier(
        broker.runtime,
        broker.replica_manager,
        lambda: lambda producer, partitions, answer, adds: asked.append(answer),
    )
    broker.produce_handler.transactional = TransactionalProduce(broker.replica_manager, verifier)
    return asked


@pytest.mark.parametrize("first", [0, 7])
def test_pipeline_does_not_overtake_a_batch_that_could_not_be_verified(
    broker, producer, asked, first
):
    """The second batch was appended, so that the first, sent again, was out of order for ever."""
    broker.runtime.advance(PIPELINE_MS + 1)  # it has led for long enough
    sequences = (first, first + 1, first + 2)
    pipeline = [broker.begin_produce(producer, n, b"%d" % n) for n in sequences]
    asked[0]({T0: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
    for answer in asked[1:]:
        answer({T0: ErrorCode.NONE})
    assert [code_of(each) for each in pipeline] == [
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,  # retried by all; a gap would abort the transaction
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ]
    broker.runtime.advance(PIPELINE_MS + 1)
    late = broker.begin_produce(producer, sequences[2], b"late")
    again = [broker.begin_produce(producer, n, b"%d" % n) for n in sequences]
    for answer in asked[3:]:
        answer({T0: ErrorCode.NONE})

    assert code_of(late) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [code_of(each) for each in again] == [0, 0, 0]
    assert values(broker.fetch(isolation=UNCOMMITTED)) == [b"%d" % n for n in sequences]


def test_transaction_that_adds_its_partitions_begins_with_0(broker, producer):
    """It has an epoch of its own, so that another batch has overtaken the first."""
    broker.runtime.advance(PIPELINE_MS + 1)  # it has led for long enough
    error = broker.produce(producer, 1, b"b", version=12)
    begun = broker.produce(producer, 0, b"a", version=12)

    assert error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert begun == 0


@pytest.mark.parametrize("adds", [True, False])
def test_batch_of_an_epoch_that_nobody_has_keeps_no_coordinator_at_work(broker, producer, adds):
    """Its producer is asked about once, though the partition remembers the larger epoch."""
    producer_id, epoch = producer
    version = 12 if adds else 11
    assert broker.produce((producer_id, epoch + 1000), 0, b"invented", version)
    broker.add(producer, 0)

    assert broker.produce(producer, 0, b"v", version) == INVALID


@pytest.mark.parametrize("end", ["marker", "truncation"])
def test_question_that_the_log_has_overtaken_is_asked_again(broker, producer, asked, end):
    """Where a transaction adds its partitions: nothing is wrong with it."""
    produce = broker.begin_produce(producer, 0, b"v", version=12)
    if end == "marker":
        write_marker(broker, producer)
    else:
        broker.log().producer_state_manager.load_snapshot(0, 0)
    for _ in range(2):
        asked.pop()({T0: ErrorCode.NONE})

    assert asked == []
    assert code_of(produce) == 0


def write_marker(
    broker, producer, commit=True, coordinator_epoch=0, version=1, client=(), **fields
):
    """The error code of a marker for T0; `client` says by which connection of whom it comes."""
    marker = WritableTxnMarker(
        producer_id=producer[0],
        producer_epoch=producer[1],
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        coordinator_epoch=coordinator_epoch,
        **fields,
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    (result,) = broker.call(request, version, **dict(client)).markers
    return result.topics[0].partitions[0].error_code


@pytest.mark.parametrize("version", [0, 1])
def test_hanging_transaction_can_be_ended_by_hand(broker, producer, version):
    """With a marker that does not come from before the last one."""
    broker.add(producer, 0)
    broker.produce(producer, 0, b"v")
    assert write_marker(broker, producer, commit=False, coordinator_epoch=3, version=version) == 0
    assert broker.log().last_stable_offset == 2

    old = (producer[0], producer[1] - 1)
    assert write_marker(broker, old) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert write_marker(broker, producer) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert broker.call(WriteTxnMarkersRequest(), 1).markers == []


@pytest.mark.parametrize("outcome", [True, False])
def test_marker_of_a_connection_that_its_broker_has_replaced_is_not_written(
    broker, producer, outcome
):
    """It was sent again by the newer one; the transaction that is open now has the same epoch."""
    broker.add(producer, 0)
    broker.produce(producer, 0, b"first")
    newer = {"session": 8, "client_id": "broker-2"}
    assert write_marker(broker, producer, client=newer) == ErrorCode.NONE
    broker.add(producer, 0)
    broker.produce(producer, 1, b"open")

    late = {"session": 7, "client_id": "broker-2"}
    assert write_marker(broker, producer, outcome, client=late) == ErrorCode.NETWORK_EXCEPTION
    assert broker.fetch().last_stable_offset < broker.fetch().high_watermark
    assert write_marker(broker, producer, client=newer) == ErrorCode.NONE
    assert values(broker.fetch(2)) == [b"open"]


def test_connections_of_other_senders_are_no_newer_ones(broker, producer):
    """Each broker has its own, and administrators may have several."""
    for client in (
        {"session": 9, "client_id": "broker-2"},
        {"session": 5, "client_id": "broker-3"},
        {"session": 8, "client_id": "admin"},
        {"session": 4, "client_id": "admin"},
        {"session": 9, "client_id": "broker-2"},
        {"session": 10, "client_id": "broker-2"},
    ):
        assert write_marker(broker, producer, client=client) == ErrorCode.NONE


@pytest.mark.parametrize("outcome", [True, False])
def test_marker_that_comes_again_does_not_end_the_next_transaction(broker, producer, outcome):
    """Where ends raise epochs, its epoch is that of the transaction that is open now (KIP-1228)."""
    broker.add(producer, 0)
    broker.produce(producer, 0, b"first")
    broker.end(producer, version=5)
    following = producer[0], producer[1] + 1
    repeated = {"commit": outcome, "version": 2, "transaction_version": 2}
    assert write_marker(broker, following, **repeated) == ErrorCode.NONE
    broker.add(following, 0)
    broker.produce(following, 0, b"open")

    assert write_marker(broker, following, **repeated) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert broker.fetch().last_stable_offset < broker.fetch().high_watermark
    broker.produce(following, 1, b"open still")
    broker.end(following, version=5)
    assert values(broker.fetch(2)) == [b"open", b"open still"]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("versions", [*itertools.product((3, 5), repeat=3)])
def test_each_transaction_ends_in_the_way_that_its_producer_asks_for(
    broker, producer, versions, commit, restarts
):
    """Where transaction.version is lowered in between, the epoch stays; the markers are written."""
    sequence = 0
    for number, version in enumerate(versions):
        assert broker.add(producer, 0) == [0]
        assert broker.produce(producer, sequence, b"%d" % number) == 0
        if restarts:
            broker.kill_and_restart()
        assert broker.end(producer, commit, version=version) == 0
        fetched = broker.fetch()
        assert fetched.last_stable_offset == fetched.high_watermark == 2 * number + 2
        sequence += 1
        if version == 5:
            producer, sequence = (producer[0], producer[1] + 1), 0
    assert broker.init(producer_id=producer[0], producer_epoch=producer[1])[0] == 0


def test_offsets_in_an_open_transaction_are_unstable(broker, producer):
    """Whoever asks for stable ones waits; the others get what counts now (KIP-447)."""
    broker.add_offsets(producer)
    assert fetch_offset(broker) == (-1, 0)
    broker.commit_offset(producer, 5)
    assert fetch_offset(broker) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert fetch_offset(broker, require_stable=False) == (-1, 0)
    broker.end(producer)
    assert fetch_offset(broker) == (5, 0)

    broker.add_offsets(producer)
    broker.commit_offset(producer, 9)
    assert fetch_offset(broker, require_stable=False) == (5, 0)
    broker.end(producer, commit=False)
    assert fetch_offset(broker) == (5, 0)


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_an_open_transaction_survive_a_crash(broker, producer, commit):
    """They count, or not, when the transaction ends after the restart."""
    broker.add_offsets(producer)
    broker.commit_offset(producer, 5)
    broker.kill_and_restart()
    assert fetch_offset(broker) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    broker.end(producer, commit)
    expected = (5, 0) if commit else (-1, 0)
    assert fetch_offset(broker) == expected
    broker.kill_and_restart()
    assert fetch_offset(broker) == expected


@pytest.mark.parametrize("is_made_again", [True, False])
def test_offsets_of_a_topic_that_is_deleted_while_they_are_verified_are_refused(
    broker, producer, is_made_again
):
    """They would be offsets of the topic that is made under its name afterwards."""
    broker.add_offsets(producer)
    verifier = broker.coordinators.verifier
    verify, held = verifier.verify, []
    verifier.verify = lambda *arguments, **options: held.append((arguments, options))
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    body = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    context = broker.begin(body, 3)
    state = broker.cache.topic("t").partitions[0]
    broker.cache.update([], [], ["t"])
    if is_made_again:
        broker.cache.update([state._replace(topic_id=UUID(int=9))], [])
    ((arguments, options),) = held
    verify(*arguments, **options)

    (result,) = context.answer.topics[0].partitions
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.end(producer) == 0
    assert fetch_offset(broker) == (-1, 0)


def test_offsets_outside_of_a_transaction_are_refused(broker, producer):
    """The group's partition has not been added, or the transaction has ended."""
    assert broker.commit_offset(producer, 5) == INVALID
    broker.add_offsets(producer)
    broker.end(producer)
    assert broker.commit_offset(producer, 5) == INVALID
    broker.add_offsets(producer)
    broker.init()

    assert broker.commit_offset(producer, 5) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert fetch_offset(broker) == (-1, 0)


def test_late_offsets_do_not_get_into_the_next_transaction(broker, producer):
    """They come by a connection that the producer has given up since, and would lead it back."""
    for offset in (5, 9):
        broker.add_offsets(producer)
        assert broker.commit_offset(producer, offset, session=2) == 0
        if offset == 9:
            assert broker.commit_offset(producer, 3, session=1) == ErrorCode.NOT_COORDINATOR
        broker.end(producer)

    assert fetch_offset(broker) == (9, 0)


@pytest.mark.parametrize(
    ("member", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"generation_id": 1, "member_id": "m"}, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_offsets_of_a_member_are_those_of_its_generation(broker, producer, member, error):
    """Without a generation the producer's epoch alone decides (KIP-447)."""
    broker.add_offsets(producer)

    assert broker.commit_offset(producer, 5, **member) == error


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_verify_several_transactions_at_once(broker, producer, version):
    """Brokers verify or add for several at once; v5 says that one can be aborted (KIP-890)."""
    topics = [AddPartitionsToTxnTopic(name="t", partitions=[0])]

    def ask(verify_only):
        asked = AddPartitionsToTxnTransaction(
            transactional_id="x",
            producer_id=producer[0],
            producer_epoch=producer[1],
            verify_only=verify_only,
            topics=topics,
        )
        answer = broker.call(AddPartitionsToTxnRequest(transactions=[asked]), version)
        (result,) = answer.results_by_transaction
        return result.topic_results[0].results_by_partition[0].partition_error_code

    refused = INVALID if version == 4 else ErrorCode.TRANSACTION_ABORTABLE
    assert [ask(True), ask(False), ask(True)] == [refused, 0, 0]
    assert broker.call(AddPartitionsToTxnRequest(), version).results_by_transaction == []


def test_transaction_goes_on_after_a_crash(broker, producer):
    """Coordinator and log know of it; nothing has to be verified twice."""
    broker.add(producer, 0)
    broker.produce(producer, 0, b"before")
    broker.kill_and_restart()
    assert broker.produce(producer, 1, b"after") == 0
    broker.end(producer)

    assert values(broker.fetch()) == [b"before", b"after"]


def test_empty_transactional_id_is_refused(broker):
    """It is not the same as none."""
    body = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)
    assert broker.call(body, 4).error_code == ErrorCode.INVALID_REQUEST


def test_batch_of_version_12_names_its_partition_itself(broker, producer):
    """The batch adds its partition, and the end begins an epoch with numbers from 0 (KIP-890)."""
    assert broker.produce(producer, 0, b"a", version=12) == 0
    assert broker.commit_offset(producer, 7, version=5) == 0
    answer = broker.call(ending(producer), 5)

    following = (answer.producer_id, answer.producer_epoch)
    assert (answer.error_code, *following) == (0, producer[0], producer[1] + 1)
    assert broker.produce(producer, 1, b"late", version=12) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert broker.commit_offset(producer, 8, version=5) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert broker.produce(following, 0, b"b", version=12) == 0
    assert values(broker.fetch()) == [b"a"]


def test_batch_waits_while_the_transaction_before_is_ending(broker, producer):
    """Its partition is taken in once the markers are out; if that takes long, it comes again."""
    assert broker.produce(producer, 0, b"a", version=12) == 0
    leaders = broker.coordinators.transactions.markers._leaders
    write, held = leaders.write_markers, []
    leaders.write_markers = lambda *arguments: held.append(arguments)
    broker.call(ending(producer), 5)
    following = (producer[0], producer[1] + 1)
    contexts = [broker.begin_produce(following, 0, b"b", version=12)]
    broker.runtime.advance(200)
    assert code_of(contexts[0]) == ErrorCode.NOT_ENOUGH_REPLICAS
    contexts.append(broker.begin_produce(following, 0, b"b", version=12))
    write(*held.pop())
    broker.runtime.advance(20)

    assert code_of(contexts[1]) == 0
    assert broker.log().log_end_offset == 3  # two batches, and a marker between them


def ending(producer):
    """The request to commit."""
    producer_id, epoch = producer
    return EndTxnRequest(
        transactional_id="x", producer_id=producer_id, producer_epoch=epoch, committed=True
    )


def code_of(context):
    return context.answer.responses[0].partition_responses[0].error_code
