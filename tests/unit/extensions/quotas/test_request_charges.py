"""What requests to a table of APIs are charged with."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from apis_world import Client, Family, ask
from test_slicing import World

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.quotas.client_quotas import ClientQuotas
from ottla.extensions.quotas.request_charges import MeteredContext, charged_context
from ottla.network.request_context import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.group import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.header import decode_response
from ottla.protocol.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from ottla.server.apis import Apis
from ottla.server.slicing import LONG_FRAME_BYTES
from ottla.structs import ClientEntity
from ottla.testing import mock_runtime


@pytest.fixture
def apis() -> Apis:
    return Apis(mock_runtime())


@pytest.fixture
def client() -> Client:
    return Client()


def limit(apis, **overrides):
    """Limits of every client id; the connection is anonymous."""
    texts = {key: str(value) for key, value in overrides.items()}
    quotas = ClientQuotas(apis.runtime.clock, BrokerConfig())
    quotas.update(ClientEntity(client_id=""), texts)
    apis.new_context = partial(charged_context, quotas) if quotas.is_active else None


def test_requests_are_measured_while_there_are_quotas(apis, client):
    """Requests are measured while there are quotas only: without, contexts are the plain ones."""
    contexts = []

    def handle(context, body):
        contexts.append(type(context))
        return HeartbeatResponse()

    apis.register(Family(ApiKey.HEARTBEAT, handle))
    ask(apis, client, HeartbeatRequest(), 4)
    limit(apis, request_percentage=1)
    ask(apis, client, HeartbeatRequest(), 4)
    limit(apis)
    ask(apis, client, HeartbeatRequest(), 4)
    assert contexts == [RequestContext, MeteredContext, RequestContext]


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_client_over_its_quota_is_held_after_the_answer(apis, client, is_coroutine):
    """The response says for how long, whether it came at once or later (KIP-219)."""

    def work():
        apis.runtime.clock.advance(500)  # 50 % in 10 s: over 1 % by 4 x 10 s, and 1 s at most
        return HeartbeatResponse()

    async def work_later():
        return work()

    handler = work_later if is_coroutine else work
    apis.register(Family(ApiKey.HEARTBEAT, lambda context, body: handler()))
    apis.runtime.clock.advance(1)
    limit(apis, request_percentage=1)
    ask(apis, client, HeartbeatRequest(), 4)
    apis.runtime.scheduler.run_ready()
    _, response = decode_response(HeartbeatRequest, 4, client.sent[-1])
    assert response.throttle_time_ms == 1000
    assert client.muted_until_ms == apis.runtime.clock.monotonic_ms() + 1000


def test_requests_between_brokers_are_not_held(apis, client):
    """Leadership must move, whatever a quota says."""

    def work(context, body):
        apis.runtime.clock.advance(60_000)
        return LeaderAndIsrResponse()

    apis.register(Family(ApiKey.LEADER_AND_ISR, work))
    apis.runtime.clock.advance(1)
    limit(apis, request_percentage=1)
    ask(apis, client, LeaderAndIsrRequest(), 4)
    assert client.muted_until_ms == 0


def test_refused_request_of_a_pretended_broker_is_charged(apis, client):
    """Only who may ask what brokers ask is exempt: a refusal takes time as well."""

    def refuse(handler):
        def handle(context, body):
            apis.runtime.clock.advance(60_000)
            raise KafkaError.of(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "it is no broker")

        return handle

    apis.register(Family(ApiKey.LEADER_AND_ISR, lambda context, body: LeaderAndIsrResponse()))
    apis.wrap(ApiKey.LEADER_AND_ISR, refuse)
    apis.runtime.clock.advance(1)
    limit(apis, request_percentage=1)
    answer = ask(apis, client, LeaderAndIsrRequest(), 4)

    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert client.muted_until_ms > apis.runtime.clock.monotonic_ms()


@pytest.mark.parametrize("size", [1, LONG_FRAME_BYTES])
def test_waiting_for_an_answer_is_free(size):
    """The time of the handler is charged, however long the request is; what comes after is not."""
    contexts = []

    def handle(context: Any, body: HeartbeatRequest) -> None:
        contexts.append(context)
        world.runtime.clock.advance(50)

    world = World(ApiKey.HEARTBEAT, handle)
    world.runtime.clock.advance(1)
    limit(world.apis, request_percentage=1)
    assert world.ask(HeartbeatRequest(group_id="g" * size), 4) is None
    world.runtime.clock.advance(60_000)
    contexts[0].respond(HeartbeatResponse(error_code=int(ErrorCode.NONE)))

    assert world.client.muted_until_ms == 0
