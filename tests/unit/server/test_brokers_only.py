"""What brokers ask of each other is answered on their listener, and refused on others."""

from __future__ import annotations

import asyncio
import logging

import pytest
from apis_world import Client, Context
from rights_world import call

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.controller_requests import AlterPartitionRequest, AlterPartitionTopicData
from ottla.protocol.fetch import FetchRequest, ReplicaState
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from ottla.protocol.message import versions_of
from ottla.protocol.transactions import (
    AddPartitionsToTxnRequest,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.protocol.update_metadata import UpdateMetadataRequest, UpdateMetadataTopicState
from ottla.runtime import real_runtime
from ottla.security.principal import KafkaPrincipal
from ottla.server.apis import Apis
from ottla.server.brokers_only import keep_to_brokers
from ottla.server.slicing import MAX_ELEMENTS
from ottla.testing import mock_runtime


class Everything:
    """Handlers that answer whatever they are asked."""

    def apis(self):
        return {
            ApiKey.LEADER_AND_ISR: lambda context, body: LeaderAndIsrResponse(),
            ApiKey.FETCH: lambda context, body: "records",
            ApiKey.WRITE_TXN_MARKERS: lambda context, body: "written",
            ApiKey.ADD_PARTITIONS_TO_TXN: lambda context, body: "added",
        }


def ask_with(body, listener, api_version=0, **rights):
    """The answer to a request on a listener, or its error."""
    apis = Apis(mock_runtime(), [Everything()])
    keep_to_brokers(apis, "BROKERS", **rights)
    context = Context(api_version, listener_name=listener)
    try:
        return apis._apis[body.api_key].handler(context, body)
    except KafkaError as error:
        return error.error


@pytest.fixture
def ask():
    return ask_with


def test_controllers_orders_are_for_brokers(ask):
    """A client cannot give them."""
    refused = ask(LeaderAndIsrRequest(), "CLIENTS")

    assert refused is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert isinstance(ask(LeaderAndIsrRequest(), "BROKERS"), LeaderAndIsrResponse)


@pytest.mark.parametrize("listener", ["BROKERS", "NEXT"])
def test_brokers_may_have_several_listeners_while_theirs_changes(listener):
    """No broker was heard by those that were not changed yet."""
    apis = Apis(mock_runtime(), [Everything()])
    keep_to_brokers(apis, "BROKERS", "NEXT")
    handler = apis._apis[ApiKey.LEADER_AND_ISR].handler

    answer = handler(Context(listener_name=listener), LeaderAndIsrRequest())
    assert isinstance(answer, LeaderAndIsrResponse)
    with pytest.raises(KafkaError):
        handler(Context(listener_name="CLIENTS"), LeaderAndIsrRequest())
    assert [each(Context(listener_name="NEXT")) for each in apis.may_be_broker] == [True]


def test_refusal_is_told_to_whoever_listens():
    """Such as to a log of what was denied."""
    apis, told = Apis(mock_runtime(), [Everything()]), []
    keep_to_brokers(apis, "BROKERS")
    apis.on_refused_request = told.append
    contexts = [Context(listener_name=listener) for listener in ("BROKERS", "CLIENTS")]
    handler = apis._apis[ApiKey.LEADER_AND_ISR].handler
    handler(contexts[0], LeaderAndIsrRequest())
    with pytest.raises(KafkaError):
        handler(contexts[1], LeaderAndIsrRequest())

    assert told == contexts[1:]


def test_client_that_asks_like_a_broker_again_and_again_has_one_line(caplog):
    """It need not even connect again."""
    caplog.set_level(logging.INFO)
    apis = Apis(mock_runtime(), [Everything()])
    keep_to_brokers(apis, "BROKERS")
    handler = apis._apis[ApiKey.LEADER_AND_ISR].handler
    for _ in range(5):
        with pytest.raises(KafkaError):
            handler(Context(listener_name="CLIENTS"), LeaderAndIsrRequest())

    assert caplog.text.count("is refused") == 1


def test_administrators_end_transactions_where_rights_are_asked_for(ask):
    """On any listener then (KIP-664); without an authorizer only brokers do."""
    body = WriteTxnMarkersRequest()

    assert ask(body, "CLIENTS") is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert ask(body, "CLIENTS", has_rights=True) == "written"
    orders = ask(LeaderAndIsrRequest(), "CLIENTS", has_rights=True)
    assert orders is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("who", "is_refused"),
    [
        ({}, False),
        ({"replica_id": 1}, True),
        ({"replica_id": 0}, True),
        ({"replica_state": ReplicaState(replica_id=0)}, True),
        ({"replica_state": ReplicaState(replica_id=1)}, True),
        ({"replica_state": ReplicaState(replica_id=-1)}, False),
        ({"replica_id": 2, "replica_state": ReplicaState(replica_id=-1)}, True),
    ],
)
def test_clients_fetch_as_clients(ask, who, is_refused):
    """In the old form of the request and in the new one."""
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    assert ask(FetchRequest(**who), "CLIENTS") == (refused if is_refused else "records")
    assert ask(FetchRequest(**who), "BROKERS") == "records"


@pytest.mark.parametrize(("version", "is_refused"), [(3, False), (4, True), (5, True)])
def test_partitions_of_many_transactions_are_added_by_brokers(version, is_refused):
    """From v4 on one request speaks for any transactional id (KIP-890)."""
    body = AddPartitionsToTxnRequest()
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    assert (ask_with(body, "CLIENTS", api_version=version) is refused) == is_refused
    assert ask_with(body, "BROKERS", api_version=version) == "added"


def test_listener_that_comes_while_the_broker_runs_is_one_for_clients(ottla_fresh_broker):
    """A broker that began with one listener keeps what is for brokers to that one."""

    body = WriteTxnMarkersRequest()
    ann = KafkaPrincipal("User", "ann")

    refused = call(ottla_fresh_broker, ann, body, 1, listener_name="ADDED_LATER")
    assert "CLUSTER_AUTHORIZATION_FAILED" in str(refused)
    assert isinstance(call(ottla_fresh_broker, ann, body, 1), WriteTxnMarkersResponse)


LARGE = [
    (LeaderAndIsrRequest, "topic_states", LeaderAndIsrTopicState()),
    (StopReplicaRequest, "topic_states", StopReplicaTopicState()),
    (UpdateMetadataRequest, "topic_states", UpdateMetadataTopicState()),
    (AlterPartitionRequest, "topics", AlterPartitionTopicData()),
]


@pytest.mark.parametrize("who", ["broker", "on another listener", "without the right"])
@pytest.mark.parametrize(("request_", "array", "element"), LARGE)
def test_request_as_large_as_those_of_brokers_is_read_for_them_alone(request_, array, element, who):
    """It was read for all, into ten times its bytes, and only then were rights looked at."""
    key, version, served = ApiKey(request_.api_key), versions_of(request_.api_key)[1], []
    body = request_(**{array: [element] * (MAX_ELEMENTS + 1)})

    class Counting:
        def apis(self):
            return {key: self.serve}

        def serve(self, context, body):
            served.append(body)
            return request_.response_class()

    async def ask():
        runtime = real_runtime(asyncio.get_running_loop())
        apis = Apis(runtime, [Counting()])
        keep_to_brokers(apis, "BROKERS")
        apis.may_be_broker.append(lambda context: who != "without the right")
        client = Client(listener_name="CLIENTS" if "listener" in who else "BROKERS")
        client.hand_over(apis, encode_request(version, 7, "test", body)[4:])
        await client.is_over.wait()
        await runtime.close()
        return client

    client = asyncio.run(ask())
    assert bool(served) is (who == "broker")
    _, answer = decode_response(request_, version, client.sent[0])
    assert answer.error_code == (ErrorCode.NONE if served else ErrorCode.INVALID_REQUEST)
