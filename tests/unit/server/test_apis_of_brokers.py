"""What brokers ask of each other is answered on their listener, and refused on others (B11)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.network.connection import NO_QUOTA
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.fetch import FetchRequest, ReplicaState
from ottla.protocol.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from ottla.protocol.transactions import WriteTxnMarkersRequest
from ottla.server.apis import Apis, keep_to_brokers
from ottla.testing import mock_runtime


class Everything:
    """Handlers that answer whatever they are asked."""

    def apis(self):
        return {
            ApiKey.LEADER_AND_ISR: lambda context, body: LeaderAndIsrResponse(),
            ApiKey.FETCH: lambda context, body: "records",
            ApiKey.WRITE_TXN_MARKERS: lambda context, body: "written",
        }


@pytest.fixture
def ask():
    """The answer to a request on a listener, or its error."""

    def send(body, listener, **rights):
        apis = Apis(mock_runtime(), [Everything()])
        keep_to_brokers(apis, "BROKERS", **rights)
        try:
            context = SimpleNamespace(
                listener_name=listener, client_host="somewhere", quota=NO_QUOTA
            )
            return apis._apis[body.api_key].handler(context, body)
        except KafkaError as error:
            return error.error

    return send


def test_controllers_orders_are_for_brokers(ask):
    """A client cannot give them."""
    refused = ask(LeaderAndIsrRequest(), "CLIENTS")

    assert refused is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert isinstance(ask(LeaderAndIsrRequest(), "BROKERS"), LeaderAndIsrResponse)


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
