"""The table of APIs: what is served, what is refused, and how handlers answer."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from struct import pack
from types import SimpleNamespace

import pytest
from apis_world import Client, Family, ask

from ottla.errors import ErrorCode, KafkaError
from ottla.network.request_context import RequestContext
from ottla.network.request_watch import RequestWatch
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.api_versions import ApiVersionsRequest
from ottla.protocol.group import HeartbeatRequest, HeartbeatResponse, ListGroupsRequest
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.list_offsets import ListOffsetsRequest
from ottla.protocol.metadata import MetadataRequest, MetadataRequestTopic
from ottla.registry.embedded import EmbeddedRegistry
from ottla.runtime import real_runtime
from ottla.server.api import LateFamily
from ottla.server.apis import Apis
from ottla.server.handlers.api_versions import ApiVersionsHandler, Features
from ottla.server.request_meter import RequestMeter
from ottla.testing import mock_runtime


@pytest.fixture
def apis():
    runtime = mock_runtime()
    table = Apis(runtime)
    features = Features(runtime, EmbeddedRegistry(runtime, "/data/registry"))
    table.register(ApiVersionsHandler(table.supported, features))
    return table


@pytest.fixture
def client():
    return Client()


def test_api_versions_says_what_is_registered(apis, client):
    """Exactly the registered APIs, each with its versions, narrowed where a family says so."""
    apis.register(Family(ApiKey.HEARTBEAT, lambda context, body: HeartbeatResponse()))
    apis.register(Family(ApiKey.LIST_OFFSETS, (lambda context, body: None, 1, 9)))

    answer = ask(apis, client, ApiVersionsRequest(), 0)

    assert [(api.api_key, api.min_version, api.max_version) for api in answer.api_keys] == [
        (ApiKey.LIST_OFFSETS, 1, 9),
        (ApiKey.HEARTBEAT, 0, 4),
        (ApiKey.API_VERSIONS, 0, 4),
    ]


@pytest.mark.parametrize(("version", "supported"), [(3, []), (4, [("transaction.version", 0, 2)])])
def test_api_versions_has_the_features(apis, client, version, supported):
    """Those whose lowest level is 0 are told only to clients that can read that (KIP-584)."""
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = ask(apis, client, request, version)

    assert [
        (each.name, each.min_version, each.max_version) for each in answer.supported_features
    ] == supported
    assert (answer.finalized_features, answer.finalized_features_epoch) == ([], -1)


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("bad name", "1"), ("good", "-")])
def test_software_names_are_checked(apis, client, name, version):
    """From version 3 on a client names itself in letters, digits, dots and dashes (KIP-511)."""
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)

    assert ask(apis, client, request, 3).error_code == ErrorCode.INVALID_REQUEST


def test_an_unknown_version_of_api_versions_is_answered_in_v0(apis, client):
    """The refusal names the versions of ApiVersions itself."""
    client.hand_over(apis, pack(">hhih", ApiKey.API_VERSIONS, 99, 7, -1) + b"\0")

    _, answer = decode_response(ApiVersionsRequest, 0, client.sent[0])
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [api.api_key for api in answer.api_keys] == [ApiKey.API_VERSIONS]


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"\0", "malformed"),
        (pack(">hhih", 999, 0, 1, -1), "API key 999"),
        (pack(">hhih", ApiKey.HEARTBEAT, 0, 1, -1), "unsupported API key 12"),
        (pack(">hhih", ApiKey.LIST_GROUPS, 4, 1, -1) + b"\0", "API key 16"),
    ],
)
def test_what_does_not_follow_the_protocol_is_closed(apis, client, frame, reason):
    """The reason is given to the connection, and nothing is answered."""
    client.hand_over(apis, frame)

    assert reason in client.closed
    assert client.sent == []


def test_storm_of_what_does_not_follow_the_protocol_has_one_line(apis, caplog):
    """A probe of another system comes every second, and a client that is none comes at once."""
    caplog.set_level(logging.INFO)
    clients = [Client(host=host) for host in ["10.0.0.1"] * 5 + ["10.0.0.2"]]
    for client in clients:
        client.hand_over(apis, b"\0")

    assert all("malformed" in client.closed for client in clients)
    assert caplog.text.count("malformed") == 2


def raising(error):
    def handler(context, body):
        raise error

    return handler


def test_a_kafka_error_becomes_the_answer(apis, client):
    """A handler may raise; the code goes where the answer has a place for it."""
    error = KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "no such group")
    apis.register(Family(ApiKey.HEARTBEAT, raising(error)))

    answer = ask(apis, client, HeartbeatRequest(), 0)

    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_bug_in_a_handler_is_an_unknown_server_error(apis, client, caplog):
    """The client is answered, and the log has the traceback."""
    apis.register(Family(ApiKey.LIST_GROUPS, raising(ZeroDivisionError("oh"))))

    answer = ask(apis, client, ListGroupsRequest(), 0)

    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "ZeroDivisionError" in caplog.text


def test_an_error_without_a_place_in_the_answer_closes(apis, client, caplog):
    """Metadata has no error of its own below version 13."""
    apis.register(Family(ApiKey.METADATA, raising(ZeroDivisionError("oh"))))

    assert ask(apis, client, MetadataRequest(topics=None), 1) is None
    assert "UNKNOWN_SERVER_ERROR" in client.closed


def test_an_error_of_metadata_is_answered_where_there_is_a_place(apis, client):
    """Version 13 has one for the whole request (KIP-1102)."""
    apis.register(Family(ApiKey.METADATA, raising(ZeroDivisionError("oh"))))

    answer = ask(apis, client, MetadataRequest(topics=None), 13)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert client.closed is None


def test_a_coroutine_answers_when_it_is_done(client):
    """A handler may wait for the registry; its answer is sent then."""

    async def handler(context, body):
        await asyncio.sleep(0)
        return HeartbeatResponse(error_code=27)

    runtime = mock_runtime()
    apis = Apis(runtime, [Family(ApiKey.HEARTBEAT, handler)])
    client.hand_over(apis, encode_request(0, 7, "test", HeartbeatRequest())[4:])
    runtime.scheduler.advance(0)

    _, answer = decode_response(HeartbeatRequest, 0, client.sent[0])
    assert answer.error_code == 27


def test_client_does_not_wait_for_what_was_given_up(client):
    """A handler may wait for a task of others, which they cancel; the client asks again."""

    async def play():
        runtime = real_runtime(asyncio.get_running_loop())
        shared = asyncio.get_running_loop().create_future()

        async def handler(context, body):
            await shared

        apis = Apis(runtime)
        apis.register(Family(ApiKey.HEARTBEAT, handler))
        client.hand_over(apis, encode_request(0, 1, "c", HeartbeatRequest())[4:])
        await asyncio.sleep(0)
        shared.cancel()
        await client.is_over.wait()
        await runtime.close()

    asyncio.run(play())
    assert client.closed == "HeartbeatRequest was given up"


def test_answer_that_cannot_be_sent_closes(client):
    """Nor could the error that it is answered with: the client waited for ever."""

    async def play():
        runtime = real_runtime(asyncio.get_running_loop())

        async def handler(context, body):
            context.amend = lambda response: iter(())[0]
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

        apis = Apis(runtime)
        apis.register(Family(ApiKey.HEARTBEAT, handler))
        client.hand_over(apis, encode_request(0, 1, "c", HeartbeatRequest())[4:])
        await client.is_over.wait()
        await runtime.close()

    asyncio.run(play())
    assert client.closed == "HeartbeatRequest has no answer that can be sent"


def test_error_within_a_long_request_closes(client, caplog, monkeypatch, core_source):
    """As in a short one, which the processor sees to: nobody would answer it."""

    def broken(body):
        raise KeyError("ours")

    async def play():
        runtime = real_runtime(asyncio.get_running_loop())
        apis = Apis(runtime)
        apis.register(Family(ApiKey.METADATA, lambda context, body: None))
        monkeypatch.setattr(apis, "_sliced", lambda api, body: broken(body))
        topics = [MetadataRequestTopic(name=f"t{n}") for n in range(20_000)]
        frame = encode_request(9, 1, "c", MetadataRequest(topics=topics))[4:]
        client.hand_over(apis, frame)
        await client.is_over.wait()
        await runtime.close()

    asyncio.run(play())
    assert client.closed == "its request cannot be decoded"
    assert "ours" in caplog.text


def test_a_request_is_answered_in_its_own_version(apis, client):
    """An old version of ListOffsets has no leader epochs, and is encoded without them."""
    from ottla.protocol.list_offsets import ListOffsetsPartition, ListOffsetsTopic
    from ottla.replication.replica_requests import OffsetResult
    from ottla.server.handlers.list_offsets import ListOffsetsHandler

    class Offsets:
        def fetch_offset(self, *_):
            yield from ()
            return OffsetResult(ErrorCode.NONE, 5, 6, 7)

    apis.register(ListOffsetsHandler(Offsets(), apis.slices))
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[partition])])

    old = ask(apis, client, request, 3).topics[0].partitions[0]
    new = ask(apis, client, request, 4).topics[0].partitions[0]

    assert (old.offset, new.offset, new.leader_epoch) == (6, 6, 7)


class Late:
    """Makes a family at its first request, and says how often."""

    def __init__(self, *served):
        self.made = 0
        self.served = served
        self.asked = []

    def __call__(self):
        self.made += 1

        def handle(context, body):
            self.asked.append(type(body).__name__)
            return HeartbeatResponse(error_code=27)

        return SimpleNamespace(apis=lambda: dict.fromkeys(self.served, handle))


def test_a_late_family_is_made_with_its_first_request(apis, client):
    """Its versions are told before that; afterwards nothing stands before its handlers."""
    late = Late(ApiKey.HEARTBEAT, ApiKey.LIST_GROUPS)
    apis.register(
        LateFamily(late, *late.served, narrowed={ApiKey.LIST_GROUPS: (1, 2)}),
    )
    told = {key: versions for key, *versions in apis.supported()}
    assert (told[ApiKey.HEARTBEAT], told[ApiKey.LIST_GROUPS]) == ([0, 4], [1, 2])
    assert late.made == 0

    answers = [ask(apis, client, HeartbeatRequest(), 4).error_code for _ in range(2)]

    assert (answers, late.made, late.asked) == ([27, 27], 1, ["HeartbeatRequest"] * 2)
    assert {key: versions for key, *versions in apis.supported()} == told
    assert not [key for key in late.served if isinstance(apis._apis[key].handler, partial)]


def test_a_late_handler_stays_wrapped(apis, client):
    """What was put around it before it was made is asked each time, and it is made once."""
    late, seen = Late(ApiKey.HEARTBEAT), []
    apis.register(LateFamily(late, ApiKey.HEARTBEAT))
    apis.wrap(
        ApiKey.HEARTBEAT,
        lambda handler: lambda context, body: seen.append("around") or handler(context, body),
    )

    answers = [ask(apis, client, HeartbeatRequest(), 4).error_code for _ in range(2)]

    assert (answers, seen, late.made) == ([27, 27], ["around"] * 2, 1)


def test_contexts_are_made_by_what_charges_for_requests(apis, client):
    """While there is something; it hears of the request, and when its handler has returned."""
    made, asked = [], []

    class Charged(RequestContext):
        """A context of its own kind."""

    def new_context(connection, header, received_ms, size, start_ns):
        asked.append((header.client_id, size > 0, start_ns))
        return Charged(connection, header, received_ms)

    def handle(context, body):
        made.append(type(context))
        return HeartbeatResponse()

    apis.register(Family(ApiKey.HEARTBEAT, handle))
    apis.runtime.clock.advance(1)
    ask(apis, client, HeartbeatRequest(), 4)
    apis.new_context = new_context
    ask(apis, client, HeartbeatRequest(), 4)
    apis.new_context = None
    ask(apis, client, HeartbeatRequest(), 4)

    assert made == [RequestContext, Charged, RequestContext]
    assert asked == [("test", True, apis.runtime.clock.monotonic_ns())]


def test_requests_are_counted_and_some_are_measured(apis, client):
    """One of three here, and each of an API that nothing watches yet."""
    measured, ended = [], []
    watch = RequestWatch(ended.append)

    def measure(context, body, size):
        measured.append((context.header.api_key, size))
        meter.until_timed = 3
        return watch

    apis.meter = meter = RequestMeter(measure)
    meter.watches[ApiKey.HEARTBEAT] = watch
    apis.register(Family(ApiKey.HEARTBEAT, lambda context, body: HeartbeatResponse()))
    for request, version in (
        (HeartbeatRequest(), 0),
        (HeartbeatRequest(), 1),
        (ApiVersionsRequest(), 0),
        *[(HeartbeatRequest(), 1)] * 3,
    ):
        ask(apis, client, request, version)

    sizes = [len(encode_request(version, 7, "test", HeartbeatRequest())) - 4 for version in (0, 1)]
    assert measured[::2] == [(ApiKey.HEARTBEAT, size) for size in sizes]
    assert [api_key for api_key, _ in measured[1::2]] == [ApiKey.API_VERSIONS]
    assert watch.versions == {1: 3}
    assert len(ended) == 6
