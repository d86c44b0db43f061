"""Transactions of a producer: what is said when, what is tried again, and what is the end."""

from __future__ import annotations

import threading
from functools import partial
from uuid import UUID

import pytest
from mock_kafka import HANG_UP, Later, MockCluster
from transaction_world import LIMIT_MS, TransactionWorld, add_answer, offsets_answer
from virtual_thread import virtual_threads

from ottla import Consumer, Producer
from ottla.clients.committed_offsets import ConsumerGroupMetadata, GroupMembership
from ottla.clients.producer.transaction_manager import (
    NEXT_STATES,
    ProducerTransactionState,
    StateMachine,
)
from ottla.clients.producer.transactions import PreparedTransaction, TransactionCompleter
from ottla.clients.topic_offsets import KnownTopics, OffsetAndMetadata
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.group import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.produce import ProduceRequest
from ottla.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
)
from ottla.record.record_batch import RecordBatch
from ottla.runtime.timing import Deadline
from ottla.structs import NO_UUID, TopicPartition
from ottla.testing import wait_until

OFFSETS = {TopicPartition("pages", 0): OffsetAndMetadata(7)}
GROUP = ConsumerGroupMetadata("copiers", GroupMembership(3, "member-1", None))
S = ProducerTransactionState


@pytest.fixture
def world(runtime, cluster) -> TransactionWorld:
    """A producer in its first transaction."""
    return TransactionWorld(runtime, cluster).begun()


@pytest.mark.parametrize("state", ProducerTransactionState)
@pytest.mark.parametrize("following", ProducerTransactionState)
def test_state_follows_only_as_the_table_says(state, following):
    """Whatever is not in the table is refused, by name, and changes nothing."""
    machine = StateMachine("till")
    machine.state = state
    if following in NEXT_STATES[state]:
        machine.become(following, "the call")
        assert machine.state is following
    else:
        with pytest.raises(KafkaError, match="the call"):
            machine.become(following, "the call")
        assert machine.state is state


def test_nothing_but_an_abort_follows_an_abortable_error():
    """No call at all is allowed after a fatal error."""
    assert NEXT_STATES[S.ABORTABLE_ERROR] - {S.FATAL_ERROR} == {S.ABORTING}
    assert NEXT_STATES[S.FATAL_ERROR] == frozenset()


def test_end_of_a_transaction_does_not_wait_for_records_that_linger(runtime, cluster):
    """What was queued before goes at once, and in the next transaction records linger again."""
    world = TransactionWorld(runtime, cluster, linger_ms=3000).begun()
    world.send("a")
    world.call("commit")
    assert runtime.clock.monotonic_ms() < 100
    assert world.log == [b"a"]
    world.call("begin")
    world.send("b")
    world.run(2999)
    assert world.log == [b"a"]


def test_partitions_are_named_once_before_their_first_batch(world, cluster):
    """In the version that is for clients, with transactional batches behind it."""
    for value in "ab":
        world.send(value)
        world.run(10)
    world.call("commit")

    assert world.conversation() == ["init -1", "add", "produce", "produce", "commit"]
    assert [v for r, v in cluster[0].requests if isinstance(r, AddPartitionsToTxnRequest)] == [3]
    (request, _) = world.sent()
    batch = RecordBatch(request.topic_data[0].partition_data[0].records)
    assert batch.is_transactional
    assert request.transactional_id == "till"


def test_partitions_are_named_again_in_the_next_transaction(world):
    """Its numbers go on where the last one's ended."""
    for _ in range(2):
        world.send("a")
        world.run(10)
        world.call("commit")
        world.call("begin")

    assert world.conversation()[1:] == ["add", "produce", "commit"] * 2
    assert world.batches == [(0, 0, 1), (0, 1, 1)]


def test_partitions_are_not_named_where_produce_does_it(runtime, cluster):
    """Groups are not named either with transaction.version 2; each end begins an epoch."""
    cluster.features["transaction.version"] = 2
    world = TransactionWorld(runtime, cluster).begun()
    cluster[0].on(EndTxnRequest, world.end_with_bump)
    for name in ("commit", "abort"):
        world.send("a")
        world.run(10)
        world.call("send_offsets", OFFSETS, GROUP)
        world.call(name)
        world.call("begin")

    said = ["produce", "commit offsets"]
    assert world.conversation() == ["init -1", *said, "commit", *said, "abort"]
    assert world.batches == [(0, 0, 1), (1, 0, 1)]
    kinds = (ProduceRequest, TxnOffsetCommitRequest, EndTxnRequest)
    assert {(type(r), v) for r, v in cluster[0].requests if isinstance(r, kinds)} == {
        (ProduceRequest, 12),
        (TxnOffsetCommitRequest, 5),
        (EndTxnRequest, 5),
    }


def test_versions_that_raise_the_epoch_are_left_alone_elsewhere(world, cluster):
    """They would mean what the producer does not do."""
    world.send("a")
    world.run(10)
    world.call("send_offsets", OFFSETS, GROUP)
    world.call("commit")

    kinds = (ProduceRequest, TxnOffsetCommitRequest, EndTxnRequest)
    assert [v for r, v in cluster[0].requests if isinstance(r, kinds)] == [11, 4, 4]


def test_transaction_without_records_is_not_spoken_of(world):
    """Committed or aborted, the coordinator has not heard of it."""
    world.call("commit")
    world.call("begin")
    world.call("abort")

    assert world.conversation() == ["init -1"]


def test_coordinator_is_found_by_the_transactional_id(runtime):
    """Records go to their leader, all else to the coordinator."""
    cluster = MockCluster(runtime, 2)
    cluster.topics["pages"] = 2
    cluster.coordinator = 1
    world = TransactionWorld(runtime, cluster).begun()
    world.send("a")
    world.run(100)
    world.call("commit")

    asked = [r for b in cluster.brokers.values() for r in b.sent(FindCoordinatorRequest)]
    assert [(r.key_type, r.coordinator_keys) for r in asked] == [(1, ["till"])]
    assert len(cluster[0].sent(ProduceRequest)) == 1
    assert len(cluster[1].sent(EndTxnRequest)) == 1


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        None,
    ],
    ids=lambda code: code.name if code else "hang up",
)
def test_what_may_pass_is_tried_again(runtime, cluster, code):
    """In every request to the coordinator; whoever is no coordinator is looked for anew."""
    world = TransactionWorld(runtime, cluster)
    refusals = {
        InitProducerIdRequest: (InitProducerIdResponse(error_code=code or 0), world.init),
        AddPartitionsToTxnRequest: (add_answer(code or 0), add_answer()),
        AddOffsetsToTxnRequest: (
            AddOffsetsToTxnResponse(error_code=code or 0),
            AddOffsetsToTxnResponse(),
        ),
        TxnOffsetCommitRequest: (offsets_answer(code or 0), offsets_answer()),
        EndTxnRequest: (EndTxnResponse(error_code=code or 0), EndTxnResponse()),
    }
    for kind, (refusal, agreement) in refusals.items():
        cluster[0].on(kind, refusal if code else HANG_UP, agreement)
    world.begun()
    future = world.send("a")
    world.run(2000)
    world.call("send_offsets", OFFSETS, GROUP)
    world.call("commit")

    assert future.result(0).offset == 0
    assert world.state == "READY"
    assert {len(cluster[0].sent(kind)) for kind in refusals} == {2}
    lookups = len(cluster[0].sent(FindCoordinatorRequest))
    assert (lookups == 2) == (
        code in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    )


def test_call_that_ran_out_of_time_goes_on_when_it_is_made_again(world, cluster):
    """A commit whose answer is lost may have happened: an abort is refused meanwhile."""
    world.send("a")
    world.run(10)
    cluster[0].on(EndTxnRequest, None)
    with pytest.raises(KafkaTimeoutError, match="500 ms"):
        world.call("commit", limit_ms=500)
    with pytest.raises(KafkaError, match="abort_transaction: producer till is COMMITTING"):
        world.call("abort")
    cluster[0].on(EndTxnRequest, EndTxnResponse())
    world.call("commit", limit_ms=60_000)

    assert world.state == "READY"
    assert set(world.conversation()[3:]) == {"commit"}


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
@pytest.mark.parametrize("where", ["add", "produce", "offsets", "end"])
def test_fenced_producer_can_only_be_closed(world, cluster, code, where):
    """Whoever says it, in whichever words; nothing more is sent."""
    cluster[0].on(*{
        "add": (AddPartitionsToTxnRequest, add_answer(code)),
        "produce": (ProduceRequest, world.refuse(code)),
        "offsets": (TxnOffsetCommitRequest, offsets_answer(code)),
        "end": (EndTxnRequest, EndTxnResponse(error_code=code)),
    }[where])  # fmt: skip
    future = world.send("a")
    world.run(10)
    if where == "end":
        with pytest.raises(KafkaError, match="another producer has taken over"):
            world.call("commit")
    else:
        with pytest.raises(KafkaError, match="another producer has taken over"):
            world.call("send_offsets", OFFSETS, GROUP)
    said = len(world.conversation())
    for call in ("init", "begin", "commit", "abort"):
        with pytest.raises(KafkaError) as caught:
            world.call(call)
        assert caught.value.error is ErrorCode.PRODUCER_FENCED
    with pytest.raises(KafkaError, match="taken over"):
        world.transactions.check_may_send()

    assert (future.exception(0) is None) == (where in ("offsets", "end"))
    assert len(world.conversation()) == said


def test_partition_that_is_refused_leaves_only_the_abort(world, cluster):
    """Its records fail, a commit is refused, and the transaction after the abort works."""
    cluster[0].on(
        AddPartitionsToTxnRequest, add_answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED), add_answer()
    )
    cluster[0].on(EndTxnRequest, EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE))
    future = world.send("a")
    world.run(10)
    with pytest.raises(KafkaError, match="must be aborted") as caught:
        world.call("commit")
    world.call("abort")
    world.call("begin")
    world.send("b")
    world.run(10)

    assert caught.value.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert isinstance(future.exception(0), KafkaError)
    assert world.log == [b"b"]
    assert world.batches == [(0, 0, 1)]


def test_lost_batch_is_followed_by_an_abort_and_a_new_epoch(world, cluster):
    """The numbers of the lost one are missing, so the coordinator gives another epoch (KIP-360)."""
    cluster[0].on(ProduceRequest, world.refuse(ErrorCode.INVALID_RECORD), world.append)
    world.send("a")
    world.run(10)
    world.call("abort")
    world.call("begin")
    world.send("b")
    world.run(10)

    assert world.conversation() == [
        "init -1",
        "add",
        "produce",
        "abort",
        "init 0",
        "add",
        "produce",
    ]
    assert world.batches == [(1, 0, 1)]


@pytest.mark.parametrize("before", [False, True])
def test_producer_whose_id_has_expired_writes_nothing_more(world, cluster, before):
    """Another one may have had the id meanwhile; it was unused for long, so that nobody knows."""
    forgotten = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if before:
        world.send("a")
        world.run(10)
    cluster[0].on(AddPartitionsToTxnRequest, add_answer(forgotten), add_answer())
    world.send("b", partition=1)
    world.run(10)
    assert world.state == "FATAL_ERROR"
    for call in ("abort", "commit", "begin"):
        with pytest.raises(KafkaError, match=r"transactional\.id\.expiration\.ms") as refusal:
            world.call(call)
        assert refusal.value.error is forgotten

    said = ["add", "produce"] if before else []
    assert world.conversation() == ["init -1", *said, "add"]


def test_producer_whose_id_has_expired_hears_of_it_with_its_batch(runtime, cluster):
    """In transaction.version 2 nothing is asked before it."""
    cluster.features["transaction.version"] = 2
    world = TransactionWorld(runtime, cluster).begun()
    cluster[0].on(ProduceRequest, world.refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    future = world.send("a")
    world.run(10)

    assert (world.state, world.log) == ("FATAL_ERROR", [])
    assert future.exception(0).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_batch_that_returns_during_an_abort_is_dropped(world, cluster):
    """It would otherwise be sent in the next transaction."""
    cluster[0].on(ProduceRequest, "hold", world.append)
    future = world.send("a")
    world.run(10)
    (held,) = cluster[0].held
    answer = world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)(held.request, 9)
    world.runtime.scheduler.call_later(100, lambda: held.answer(answer))
    world.call("abort")
    world.call("begin")
    world.send("b")
    world.run(1000)

    assert "the transaction was aborted" in str(future.exception(0))
    assert world.log == [b"b"]


def test_abort_before_the_first_step_of_adding_partitions_leaves_nothing_behind(world):
    """A task that is cancelled before it begins runs no line; another one is made none the less."""

    async def abort_at_once() -> None:
        assert not world.transactions.may_send(TopicPartition("pages", 1))
        await world.transactions.abort(Deadline(world.runtime.clock, LIMIT_MS))

    world.runtime.scheduler.run(abort_at_once())
    world.call("begin")
    world.send("b")
    world.call("commit")

    assert world.log == [b"b"]


def test_partitions_that_were_not_added_yet_are_no_longer_wanted_after_an_abort(world, cluster):
    """The abort does not wait for the answer, and the next transaction begins with none."""

    def end(request, version):
        (held,) = cluster[0].held  # brokers answer the requests of a connection in their order
        held.answer(add_answer()(held.request, version))
        return EndTxnResponse()

    cluster[0].on(AddPartitionsToTxnRequest, "hold", add_answer())
    cluster[0].on(EndTxnRequest, end)
    world.send("a", partition=1)
    world.run(10)
    began_ms = world.runtime.clock.monotonic_ms()
    world.call("abort")
    assert world.runtime.clock.monotonic_ms() == began_ms
    world.call("begin")
    world.send("b")
    world.run(100)

    _, request = cluster[0].sent(AddPartitionsToTxnRequest)
    assert [topic.partitions for topic in request.v3_and_below_topics] == [[0]]
    assert world.log == [b"b"]


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("work", ["records", "offsets"])
def test_each_transaction_is_ended_where_something_was_written(runtime, cluster, work, level):
    """Records or offsets are enough, and below level 2 each transaction names them anew."""
    cluster.features["transaction.version"] = level
    world = TransactionWorld(runtime, cluster).begun()
    if level == 2:
        cluster[0].on(EndTxnRequest, world.end_with_bump)
    for _ in range(2):
        if work == "records":
            world.send("a")
            world.run(10)
        else:
            world.call("send_offsets", OFFSETS, GROUP)
        world.call("commit")
        world.call("begin")

    named = {"records": ["add"], "offsets": ["offsets"]}[work] if level == 1 else []
    written = {"records": "produce", "offsets": "commit offsets"}[work]
    assert world.conversation()[1:] == [*named, written, "commit"] * 2


@pytest.mark.parametrize("confirmed", ["nothing", "records", "offsets", "the one before"])
def test_abort_that_the_coordinator_knows_nothing_of(runtime, cluster, confirmed):
    """It is as good as done where no request of this transaction was accepted, else fatal."""
    world = TransactionWorld(runtime, cluster).begun()
    if confirmed == "the one before":
        world.send("a")
        world.run(10)
        world.call("commit")
        world.call("begin")
    elif confirmed == "records":
        world.send("a")
        world.run(10)
    elif confirmed == "offsets":
        world.call("send_offsets", OFFSETS, GROUP)
    cluster[0].on(AddPartitionsToTxnRequest, add_answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    cluster[0].on(EndTxnRequest, EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE))
    world.send("b", partition=1)
    world.run(10)
    if confirmed in ("nothing", "the one before"):
        world.call("abort")
        assert world.state == "READY"
    else:
        with pytest.raises(KafkaError) as caught:
            world.call("abort")
        assert caught.value.error is ErrorCode.INVALID_TXN_STATE
        assert world.state == "FATAL_ERROR"


def test_abort_that_is_refused_is_an_error(world, cluster):
    """Although nothing was accepted before: the coordinator has something to say."""
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    cluster[0].on(AddPartitionsToTxnRequest, add_answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    cluster[0].on(EndTxnRequest, EndTxnResponse(error_code=code))
    world.send("a")
    world.run(10)
    with pytest.raises(KafkaError) as caught:
        world.call("abort")

    assert caught.value.error is code


def test_init_that_is_refused_is_an_error(runtime, cluster):
    """Nothing can be done after it."""
    world = TransactionWorld(runtime, cluster)
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    cluster[0].on(InitProducerIdRequest, InitProducerIdResponse(error_code=code))
    with pytest.raises(KafkaError, match="transactional id till: init_transactions") as caught:
        world.call("init")

    assert caught.value.error is code
    assert world.state == "FATAL_ERROR"


def test_prepare_is_refused_at_once_outside_of_a_transaction(world, cluster):
    """The refusal does not wait for another call's requests."""
    cluster[0].on(ProduceRequest, None)
    world.send("a")
    with pytest.raises(KafkaTimeoutError):
        world.call("commit", limit_ms=100)
    now_ms = world.runtime.clock.monotonic_ms()
    with pytest.raises(KafkaError, match="prepare_transaction: producer till is COMMITTING"):
        world.call("prepare")

    assert world.runtime.clock.monotonic_ms() == now_ms


@pytest.mark.parametrize(
    ("code", "limits"),
    [
        (ErrorCode.CONCURRENT_TRANSACTIONS, (50, 130)),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, (1000, 4000)),
    ],
)
def test_end_of_the_transaction_before_is_asked_for_often(runtime, cluster, code, limits):
    """Its markers are written soon; other causes of a refusal may last."""
    world = TransactionWorld(runtime, cluster)
    refusals = [InitProducerIdResponse(error_code=code)] * 5
    cluster[0].on(InitProducerIdRequest, *refusals, world.init)
    world.call("init")

    assert limits[0] <= runtime.clock.monotonic_ms() <= limits[1]


def test_coordinator_that_has_moved_is_found_at_its_new_address(runtime):
    """Nothing else would ask for the metadata that say so."""
    cluster = MockCluster(runtime, 2)
    cluster.topics["pages"] = 2
    cluster.coordinator = 1
    world = TransactionWorld(runtime, cluster).begun()
    world.call("send_offsets", OFFSETS, GROUP)
    cluster[1].stop()
    cluster[1].port += 500
    cluster[1].start()
    world.call("commit")

    assert world.state == "READY"
    assert len(cluster[1].sent(EndTxnRequest)) == 1


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ((0, ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.TOPIC_AUTHORIZATION_FAILED), 2),
        ((ErrorCode.NOT_COORDINATOR, ErrorCode.TOPIC_AUTHORIZATION_FAILED), 1),
        ((0, ErrorCode.OPERATION_NOT_ATTEMPTED), 1),
    ],
)
def test_worst_of_several_errors_is_the_reason(world, cluster, codes, expected):
    """What was not attempted has its reason elsewhere, and a permanent one comes first."""
    cluster.topics["pages"] = 3

    def answer(request, version):
        response = offsets_answer()(request, version)
        for partition in response.topics[0].partitions:
            partition.error_code = codes[partition.partition_index]
        return response

    cluster[0].on(TxnOffsetCommitRequest, answer)
    offsets = {TopicPartition("pages", n): OffsetAndMetadata(7) for n in range(len(codes))}
    with pytest.raises(KafkaError, match=f"cannot have the offset pages-{expected}") as caught:
        world.call("send_offsets", offsets, GROUP)

    assert caught.value.error is codes[expected]


@pytest.mark.parametrize(
    ("own", "given", "expected", "version"),
    [
        (NO_UUID, NO_UUID, NO_UUID, 5),
        (UUID(int=5), NO_UUID, UUID(int=5), 6),
        (NO_UUID, UUID(int=6), UUID(int=6), 6),
        (UUID(int=5), UUID(int=6), UUID(int=5), 6),
    ],
)
def test_offsets_with_the_ids_of_their_topics_are_sent_by_id(
    runtime, cluster, own, given, expected, version
):
    """They have them as positions of a consumer, or by its metadata (KIP-1319)."""
    cluster.features["transaction.version"] = 2
    world = TransactionWorld(runtime, cluster).begun()
    offsets = {key: value._replace(topic_id=own) for key, value in OFFSETS.items()}
    known = dict.fromkeys(OFFSETS, KnownTopics(given))
    world.call("send_offsets", offsets, GROUP._replace(topics=known))
    ((request, sent),) = [
        each for each in cluster[0].requests if isinstance(each[0], TxnOffsetCommitRequest)
    ]

    assert sent == version
    assert {topic.topic_id for topic in request.topics} == {expected}


@pytest.mark.parametrize(("newest", "versions"), [(6, [6, 5]), (5, [5])])
def test_offsets_without_the_id_of_a_topic_are_sent_by_name_beside_others(
    runtime, cluster, newest, versions
):
    """The others keep theirs where the coordinator knows ids."""
    cluster.features["transaction.version"] = 2
    cluster[0].versions[ApiKey.TXN_OFFSET_COMMIT] = (0, newest)
    world = TransactionWorld(runtime, cluster).begun()
    offsets = {
        TopicPartition("pages", 0): OffsetAndMetadata(7, topic_id=UUID(int=5)),
        TopicPartition("other", 0): OffsetAndMetadata(8),
    }
    world.call("send_offsets", offsets, GROUP)
    sent = [each for each in cluster[0].requests if isinstance(each[0], TxnOffsetCommitRequest)]

    assert [version for _, version in sent] == versions
    assert [[(topic.name, topic.topic_id) for topic in request.topics] for request, _ in sent] == (
        [[("", UUID(int=5))], [("other", NO_UUID)]]
        if newest == 6
        else [[("pages", NO_UUID), ("other", NO_UUID)]]
    )


@pytest.mark.parametrize("heard_after_ms", [0, 3000, None])
def test_offset_in_a_topic_that_is_gone_ends_the_transaction_soon(runtime, cluster, heard_after_ms):
    """A coordinator that has not heard of a new topic is asked again; but that does not last."""
    cluster.features["transaction.version"] = 2
    world = TransactionWorld(runtime, cluster).begun()
    began_ms = runtime.clock.monotonic_ms()

    def answer(request, version):
        late_ms = runtime.clock.monotonic_ms() - began_ms
        is_known = heard_after_ms is not None and late_ms >= heard_after_ms
        code = 0 if is_known else ErrorCode.UNKNOWN_TOPIC_ID
        return offsets_answer(code)(request, version)

    cluster[0].on(TxnOffsetCommitRequest, answer)
    cluster[0].on(EndTxnRequest, world.end_with_bump)
    offsets = {key: value._replace(topic_id=UUID(int=5)) for key, value in OFFSETS.items()}
    if heard_after_ms is None:
        with pytest.raises(KafkaError, match="The topic of the offset was deleted") as caught:
            world.call("send_offsets", offsets, GROUP, limit_ms=60_000)
        assert caught.value.error is ErrorCode.TRANSACTION_ABORTABLE
        world.call("abort")
    else:
        world.call("send_offsets", offsets, GROUP, limit_ms=60_000)

    assert runtime.clock.monotonic_ms() - began_ms < 8000


def test_abort_waits_for_what_is_on_the_wire_and_drops_the_rest(runtime, cluster):
    """EndTxn comes after the last batch, or that one would be part of no transaction."""
    world = TransactionWorld(runtime, cluster, batch_size=1).begun()
    world.send("first")
    world.run(10)
    cluster[0].on(ProduceRequest, lambda request, version: Later(300, world.append(request, 0)))
    futures = [world.send(value) for value in ("on the wire", "queued 1", "queued 2")]
    world.run(0)
    on_wire = len(world.sent()) - 1
    begun_ms = runtime.clock.monotonic_ms()
    world.call("abort")

    assert runtime.clock.monotonic_ms() - begun_ms >= 299
    assert world.conversation()[-1] == "abort"
    assert [future.exception(0) is None for future in futures] == [
        number < on_wire for number in range(3)
    ]


@pytest.mark.parametrize("outcome", [None, ErrorCode.INVALID_RECORD])
@pytest.mark.parametrize("is_on_wire", [False, True])
@pytest.mark.parametrize("end", ["commit", "prepare"])
def test_record_accepted_before_the_end_belongs_to_the_transaction(
    world, cluster, end, is_on_wire, outcome
):
    """Queued or on the wire, it is delivered first; if it is refused, so is the end."""
    answer = world.refuse(outcome) if outcome else world.append
    cluster[0].on(ProduceRequest, lambda request, version: Later(300, answer(request, 0)))
    future = world.send("sent by another thread")
    if is_on_wire:
        world.run(10)
    if outcome is None:
        world.call(end)
    else:
        with pytest.raises(KafkaError, match="must be aborted") as caught:
            world.call(end)
        assert caught.value.error is outcome

    assert (future.exception(0) is None) == (outcome is None)
    assert ("commit" in world.conversation()) == (end == "commit" and outcome is None)


@pytest.mark.parametrize("end", ["commit", "prepare", "abort"])
def test_record_that_comes_too_late_is_in_no_transaction(world, cluster, end):
    """A thread that passed the first look while another one ends the transaction is refused."""
    world.send("a")
    world.run(10)
    cluster[0].on(EndTxnRequest, lambda request, version: Later(300, EndTxnResponse()))
    late = []

    def send_late() -> None:
        try:
            world.send("late")
        except KafkaError as error:
            late.append(error.error)

    world.runtime.scheduler.call_later(1, send_late)
    world.call(end)
    world.run(10)
    assert late == [ErrorCode.INVALID_TXN_STATE]
    if end != "prepare":
        world.call("begin")
        world.send("b")
        world.run(10)
        assert world.log == [b"a", b"b"]


def test_thread_that_waits_for_room_is_refused_when_the_transaction_ends(world):
    """It would otherwise write into the next one."""
    accumulator = world.core.accumulator
    accumulator._used = accumulator.limits.buffer_memory
    caught = []

    def send() -> None:
        try:
            world.send("waits")
        except KafkaError as error:
            caught.append(error.error)

    thread = threading.Thread(target=send)
    thread.start()
    wait_until(lambda: accumulator._waiting, "the thread waits for room")
    accumulator._used = 0
    world.transactions._refuse_records("commit_transaction")
    thread.join()

    assert caught == [ErrorCode.INVALID_TXN_STATE]


@pytest.mark.parametrize("outcome", [0, ErrorCode.ILLEGAL_GENERATION])
def test_commit_waits_for_offsets_that_another_thread_sends(world, cluster, outcome):
    """EndTxn would overtake them, and the group would not have what the transaction promised."""
    late_answer = offsets_answer(outcome)
    cluster[0].on(TxnOffsetCommitRequest, lambda r, v: Later(300, late_answer(r, v)))
    deadline = Deadline(world.runtime.clock, LIMIT_MS)
    offsets = world.transactions.send_offsets(OFFSETS, GROUP, deadline)
    sent = world.runtime.scheduler.spawn(offsets, "offsets")
    world.run(10)
    if outcome:
        with pytest.raises(KafkaError) as caught:
            world.call("commit")
        assert caught.value.error is outcome
        assert sent.exception().error is outcome
    else:
        world.call("commit")
        assert sent.done()

    assert world.conversation()[1:] == ["offsets", "commit offsets"] + ["commit"] * (not outcome)


def test_offsets_that_ran_out_of_time_may_be_sent_again(world, cluster):
    """The transaction is as good as before."""
    cluster[0].on(TxnOffsetCommitRequest, None)
    with pytest.raises(KafkaTimeoutError):
        world.call("send_offsets", OFFSETS, GROUP, limit_ms=100)
    cluster[0].on(TxnOffsetCommitRequest, offsets_answer())
    world.call("send_offsets", OFFSETS, GROUP)
    world.call("commit")

    assert world.state == "READY"


def test_commit_fails_where_offsets_of_another_thread_ran_out_of_time(world, cluster):
    """They were accepted before the commit was called, and are in no transaction."""
    cluster[0].on(TxnOffsetCommitRequest, None)
    deadline = Deadline(world.runtime.clock, 300)
    offsets = world.transactions.send_offsets(OFFSETS, GROUP, deadline)
    sent = world.runtime.scheduler.spawn(offsets, "offsets")
    world.run(10)
    with pytest.raises(KafkaError, match="must be aborted"):
        world.call("commit")

    assert isinstance(sent.exception(), KafkaTimeoutError)
    assert "commit" not in world.conversation()


def test_commit_that_ran_out_of_time_waits_for_the_records_again(world, cluster):
    """The same call continues: EndTxn still comes after the last record."""
    cluster[0].on(ProduceRequest, lambda request, version: Later(3000, world.append(request, 0)))
    future = world.send("a")
    with pytest.raises(KafkaTimeoutError):
        world.call("commit", limit_ms=100)
    assert "commit" not in world.conversation()
    world.call("commit")

    assert future.exception(0) is None
    assert world.conversation()[-2:] == ["produce", "commit"]


def test_offsets_name_the_member_that_commits(world, cluster):
    """Its generation goes along, so that one which was replaced is refused (KIP-447)."""
    world.call("send_offsets", OFFSETS, GROUP)
    world.call("send_offsets", OFFSETS, GROUP)
    world.call("commit")
    request = cluster[0].sent(TxnOffsetCommitRequest)[0]

    assert (request.group_id, request.generation_id, request.member_id) == (
        "copiers",
        3,
        "member-1",
    )
    assert request.topics[0].partitions[0].committed_offset == 7
    assert world.conversation()[1:] == ["offsets", "commit offsets", "commit offsets", "commit"]


@pytest.mark.parametrize("instance", ["static", None])
@pytest.mark.parametrize("member", ["member-1", ""])
def test_old_group_coordinator_is_not_asked_without_the_member(runtime, cluster, member, instance):
    """Rather an error than a commit that nothing protects; a group's name alone needs none."""
    group = ConsumerGroupMetadata("copiers", GroupMembership(3, member, instance))
    world = TransactionWorld(runtime, cluster).begun()
    world.call("send_offsets", OFFSETS, group)
    (request,) = cluster[0].sent(TxnOffsetCommitRequest)
    is_member = bool(member or instance)
    assert (request.generation_id, request.member_id, request.group_instance_id) == (
        (3, member, instance) if is_member else (-1, "", None)
    )
    world.call("commit")

    for broker in cluster.brokers.values():
        broker.stop()
        broker.versions[ApiKey.TXN_OFFSET_COMMIT] = (0, 2)
        broker.start()
    world.call("begin")
    if is_member:
        with pytest.raises(KafkaError, match="TXN_OFFSET_COMMIT"):
            world.call("send_offsets", OFFSETS, group)
    else:
        world.call("send_offsets", OFFSETS, group)
    assert len(cluster[0].sent(TxnOffsetCommitRequest)) == 1 + (not is_member)


def test_member_that_was_replaced_can_only_abort(world, cluster):
    """Other than a fenced producer it can go on afterwards."""
    cluster[0].on(TxnOffsetCommitRequest, offsets_answer(ErrorCode.ILLEGAL_GENERATION))
    with pytest.raises(KafkaError, match="group copiers cannot have the offset"):
        world.call("send_offsets", OFFSETS, GROUP)
    with pytest.raises(KafkaError, match="must be aborted"):
        world.call("commit")
    world.call("abort")

    assert world.state == "READY"


def test_producer_goes_on_under_another_id(runtime, cluster):
    """The producer keeps its connection, counts from 0, and leaves its prepared transaction."""
    world = TransactionWorld(runtime, cluster).begun()
    for name in ("till", "desk"):
        if name == "desk":
            world.transactions = world.core.take_id(name)
            world.expected.clear()  # the leader knows each id by a producer id of its own
            world.begun()
        world.send(name)
        world.run(10)
        runtime.scheduler.run(world.transactions.prepare(Deadline(runtime.clock, 1000)))

    assert world.conversation() == ["init -1", "add", "produce"] * 2
    assert [request.transactional_id for request in world.sent()] == ["till", "desk"]
    assert [sequence for _, sequence, _ in world.batches] == [0, 0]
    assert world.log == [b"till", b"desk"]


def test_producer_keeps_its_id_in_a_transaction(world):
    """What is open under it would be forgotten."""
    with pytest.raises(KafkaError, match="take_id: producer till is IN_TRANSACTION"):
        world.transactions.check_may_leave()
    world.call("commit")
    world.transactions.check_may_leave()


def test_completer_may_be_older_than_what_it_completes(ottla_fresh_broker):
    """A coordinator refuses a connection older than the producer's; then there is a newer one."""
    servers = ottla_fresh_broker.bootstrap_servers
    with TransactionCompleter(servers) as completer:
        for name in ("till", "desk"):
            with Producer(servers, transactional_id=name) as producer:
                producer.init_transactions()
                producer.begin_transaction()
                producer.send("pages", name.encode(), partition=0)
                prepared = producer.prepare_transaction()
            assert completer.complete([prepared]) == {}

    committed = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    with Consumer(servers, enable_auto_commit=False, **committed) as consumer:
        consumer.assign([TopicPartition("pages", 0)])
        found = []
        while len(found) < 2:
            found += [record.value for record in consumer.poll(60)]
    assert found == [b"till", b"desk"]


def test_records_outside_of_a_transaction_are_refused(runtime, cluster):
    """Before the first one, between two, and before the id was taken over."""
    world = TransactionWorld(runtime, cluster)
    for step in ("init", "begin", "commit"):
        if world.state != "IN_TRANSACTION":
            with pytest.raises(KafkaError, match=f"send: producer till is {world.state}"):
                world.transactions.check_may_send()
        world.call(step)
    with pytest.raises(KafkaError, match="READY"):
        world.transactions.check_may_send()


def test_init_without_a_coordinator_ends_in_time(runtime, cluster):
    """The call succeeds when it is made again and there is a coordinator."""
    world = TransactionWorld(runtime, cluster)
    default = cluster[0].answers[FindCoordinatorRequest]
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    cluster[0].on(FindCoordinatorRequest, lambda r, v: unavailable(default(r, v), code))
    with pytest.raises(KafkaTimeoutError):
        world.call("init", limit_ms=1000)
    cluster[0].on(FindCoordinatorRequest, default)
    world.call("init")

    assert world.state == "READY"


def unavailable(response: FindCoordinatorResponse, code: int) -> FindCoordinatorResponse:
    for coordinator in response.coordinators:
        coordinator.error_code = code
    return response


PREPARED = PreparedTransaction("till", 42, 3)


@pytest.fixture
def completer_of(runtime, cluster, monkeypatch):
    """Makes completers whose calls run in virtual time."""
    virtual_threads(monkeypatch, runtime, "ottla.clients.producer.transactions")
    return partial(TransactionCompleter, cluster.bootstrap_servers)


@pytest.mark.parametrize("limits", [(10_000, 1000), (100_000, 90_000)])
def test_completer_returns_why_a_transaction_could_not_be_ended(
    runtime, cluster, completer_of, limits
):
    """The time of the transaction is over first, and not that of the call, whatever the limits."""
    max_block_ms, request_timeout_ms = limits
    cluster[0].on(EndTxnRequest, None)
    settings = {"max_block_ms": max_block_ms, "request_timeout_ms": request_timeout_ms}
    with completer_of(**settings) as completer:
        errors = completer.complete([PREPARED])

    assert list(errors) == [PREPARED]
    assert "the coordinator of till did not carry it out" in errors[PREPARED].message
    assert runtime.clock.monotonic_ms() == max_block_ms


def test_closed_completer_leaves_nothing_behind(runtime, cluster, completer_of):
    """No connection and no timer."""
    cluster[0].on(EndTxnRequest, EndTxnResponse())
    with completer_of() as completer:
        assert completer.complete([PREPARED], commit=False) == {}
        assert cluster[0].connections
    runtime.advance(0)

    ((request),) = cluster[0].sent(EndTxnRequest)
    assert (request.producer_id, request.producer_epoch, request.committed) == (42, 3, False)
    assert cluster[0].connections == []
    assert runtime.scheduler.loop.next_due_ms() is None
