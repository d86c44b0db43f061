"""How administrative requests find their broker, and what becomes of those that do not."""

from __future__ import annotations

import pytest
from admin_world import CONTROLLER, COORDINATOR, admin_of, asked
from mock_kafka import HANG_UP, Later

from ottla import ConfigResource, KafkaError, NewTopic, TopicPartition
from ottla.clients.admin.admin_client import BulkError, checked
from ottla.clients.admin.log_dirs import TopicPartitionReplica
from ottla.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.protocol.group import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    FindCoordinatorRequest,
)
from ottla.protocol.log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.protocol.metadata import MetadataRequest
from ottla.protocol.topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ottla.protocol.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from ottla.structs import Node


def created(code: int = 0) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=code)])


def deleted(code: int = 0) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g", error_code=code)])


def test_controller_that_has_moved_is_looked_up(virtual_admin, cluster):
    """The old one says that it is none any more; the metadata know the new one."""

    def move(request, version):
        cluster.controller = 2
        return created(ErrorCode.NOT_CONTROLLER)

    cluster[CONTROLLER].on(CreateTopicsRequest, move)
    cluster[2].on(CreateTopicsRequest, created())
    virtual_admin.create_topics(["t"])

    assert [node_id for node_id, _ in asked(cluster, CreateTopicsRequest)] == [1, 2]


def test_controller_is_waited_for(virtual_admin, cluster, runtime):
    """As long as there is none, the metadata are asked for again."""
    cluster.controller = -1
    runtime.scheduler.call_later(500, lambda: setattr(cluster, "controller", 0))
    cluster[0].on(CreateTopicsRequest, created())
    virtual_admin.create_topics(["t"])

    assert len(asked(cluster, CreateTopicsRequest)) == 1
    assert 500 <= runtime.clock.monotonic_ms() < 3000


def test_cluster_without_a_controller_is_given_up(runtime, cluster, monkeypatch):
    """After default.api.timeout.ms, with the reason."""
    cluster.controller = -1
    limits = {"default_api_timeout_ms": 2000, "request_timeout_ms": 1000}
    with (
        admin_of(runtime, cluster, monkeypatch, **limits) as admin,
        pytest.raises(KafkaError, match="there is no controller"),
    ):
        admin.create_topics(["t"])

    assert 1000 < runtime.clock.monotonic_ms() <= 2000


def test_known_controller_is_not_looked_up_again(virtual_admin, cluster):
    """One request for the metadata serves both calls."""
    cluster[CONTROLLER].on(CreateTopicsRequest, created())
    for _ in range(2):
        virtual_admin.create_topics(["t"])

    assert len(asked(cluster, MetadataRequest)) == 1


def test_coordinator_is_remembered_until_it_has_moved(virtual_admin, cluster):
    """Then it is looked up once more, and asked."""
    cluster[COORDINATOR].on(DeleteGroupsRequest, deleted())
    for _ in range(2):
        virtual_admin.delete_groups(["g"])
    assert len(asked(cluster, FindCoordinatorRequest)) == 1

    cluster.coordinator = 0
    cluster[COORDINATOR].on(DeleteGroupsRequest, deleted(ErrorCode.NOT_COORDINATOR))
    cluster[0].on(DeleteGroupsRequest, deleted())
    virtual_admin.delete_groups(["g"])

    assert [node_id for node_id, _ in asked(cluster, DeleteGroupsRequest)] == [0, 2, 2, 2]
    assert len(asked(cluster, FindCoordinatorRequest)) == 2


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (2, 3)])
def test_retries_bound_the_attempts(runtime, cluster, monkeypatch, retries, attempts):
    """The last answer is the result."""
    cluster[CONTROLLER].on(CreateTopicsRequest, created(ErrorCode.REQUEST_TIMED_OUT))
    with (
        admin_of(runtime, cluster, monkeypatch, retries=retries) as admin,
        pytest.raises(KafkaError, match="REQUEST_TIMED_OUT: topic t"),
    ):
        admin.create_topics(["t"])

    assert len(asked(cluster, CreateTopicsRequest)) == attempts


def test_broker_may_work_no_longer_than_the_call_lasts(runtime, cluster, monkeypatch):
    """request.timeout.ms, or what is left of default.api.timeout.ms."""
    cluster[CONTROLLER].on(
        CreateTopicsRequest, Later(700, created(ErrorCode.REQUEST_TIMED_OUT)), created()
    )
    limits = {"default_api_timeout_ms": 1500, "request_timeout_ms": 1000}
    with admin_of(runtime, cluster, monkeypatch, **limits) as admin:
        admin.create_topics([NewTopic("t", 1, 1)])

    first, second = (request.timeout_ms for _, request in asked(cluster, CreateTopicsRequest))
    assert first == 1000
    assert 500 < second < 800


def test_idle_connections_are_closed(runtime, cluster, monkeypatch):
    """After connections.max.idle.ms; the next call opens one."""
    with admin_of(runtime, cluster, monkeypatch, connections_max_idle_ms=10_000) as admin:
        admin.list_topics()
        assert sum(len(broker.connections) for broker in cluster.brokers.values()) == 1
        runtime.advance(20_000)
        assert not any(broker.connections for broker in cluster.brokers.values())
        assert admin.list_topics() == {"pages"}


def test_closed_client_leaves_nothing_behind(runtime, cluster, monkeypatch):
    """No connection, and nothing that is done from time to time."""
    with admin_of(runtime, cluster, monkeypatch) as admin:
        admin.list_topics()
    runtime.advance(1000)
    assert runtime.scheduler.loop.next_due_ms() is None
    requests = len(asked(cluster, MetadataRequest))
    runtime.advance(3_600_000)

    assert not any(broker.connections for broker in cluster.brokers.values())
    assert len(asked(cluster, MetadataRequest)) == requests


BROKERS = (0, 1, 2)
REPLICAS = dict.fromkeys((TopicPartitionReplica("pages", 0, broker) for broker in BROKERS), "/a")
AT_KNOWN_BROKERS = {
    "settings": (
        lambda admin: admin.describe_configs(map(ConfigResource.broker, BROKERS)),
        DescribeConfigsRequest,
        lambda request, version: DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(resource_type=4, resource_name=each.resource_name)
                for each in request.resources
            ]
        ),
    ),
    "directories": (
        lambda admin: admin.describe_log_dirs(BROKERS),
        DescribeLogDirsRequest,
        DescribeLogDirsResponse(),
    ),
    "moves": (
        lambda admin: admin.alter_replica_log_dirs(REPLICAS),
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirsResponse(),
    ),
    "producers": (
        lambda admin: admin.describe_producers([TopicPartition("pages", 0)], 2),
        DescribeProducersRequest,
        DescribeProducersResponse(
            topics=[TopicResponse(name="pages", partitions=[PartitionResponse()])]
        ),
    ),
    "deletion": (
        lambda admin: admin.delete_topics(["t"]),
        DeleteTopicsRequest,
        DeleteTopicsResponse(responses=[DeletableTopicResult(name="t")]),
    ),
    "versions": (lambda admin: admin.api_versions(2), MetadataRequest, None),
}


@pytest.mark.parametrize(
    ("call", "kind", "answer"), AT_KNOWN_BROKERS.values(), ids=AT_KNOWN_BROKERS
)
def test_known_brokers_are_not_looked_up_again(virtual_admin, cluster, runtime, call, kind, answer):
    """The first call asks for the metadata before it asks the brokers, and the second does not."""
    for broker in cluster.brokers.values():
        if answer is not None:
            broker.on(kind, answer)
    for _ in range(2):
        call(virtual_admin)

    assert len(asked(cluster, MetadataRequest)) == 1
    assert runtime.clock.monotonic_ms() == 0


AT_EACH_BROKER = {name: AT_KNOWN_BROKERS[name] for name in ("settings", "directories", "moves")}


@pytest.mark.parametrize(("call", "kind", "answer"), AT_EACH_BROKER.values(), ids=AT_EACH_BROKER)
def test_broker_that_hangs_keeps_back_no_answer_of_another(
    runtime, cluster, monkeypatch, call, kind, answer
):
    """The others are asked at the same time, and once; the one that hangs has an error."""
    for broker in cluster.brokers.values():
        broker.on(kind, answer)
    cluster[1].on(kind, None)
    limits = {"default_api_timeout_ms": 4000, "request_timeout_ms": 1000}
    with admin_of(runtime, cluster, monkeypatch, **limits) as admin:
        try:
            results = call(admin)
        except BulkError as error:
            results = error.results

    failed = [isinstance(results.get(key), KafkaError) for key in sorted(results, key=str)]
    assert failed == [False, True, False] or failed == [True]
    asked_ids = [node_id for node_id, _ in asked(cluster, kind)]
    assert (asked_ids.count(0), asked_ids.count(2)) == (1, 1)


@pytest.mark.parametrize(("limit_ms", "answer_ms"), [(100_000, 90_000), (3000, 2900)])
def test_call_of_two_steps_has_time_for_both(runtime, cluster, monkeypatch, limit_ms, answer_ms):
    """default.api.timeout.ms is the limit of each step, and the I/O thread waits for both."""
    limits = {"default_api_timeout_ms": limit_ms, "request_timeout_ms": answer_ms}
    for broker in cluster.brokers.values():
        answer = broker._metadata
        broker.on(
            MetadataRequest,
            lambda request, version, answer=answer: Later(answer_ms - 1, answer(request, version)),
        )
    with admin_of(runtime, cluster, monkeypatch, **limits) as admin:
        assert list(admin.describe_topics()) == ["pages"]
    assert runtime.clock.monotonic_ms() == 2 * (answer_ms - 1)


def test_call_goes_on_with_another_broker(virtual_admin, cluster):
    """Where any broker has the answer, one that hangs up is not the end."""
    cluster[0].on(MetadataRequest, HANG_UP)
    cluster[1].on(MetadataRequest, HANG_UP)

    assert virtual_admin.list_topics() == {"pages"}


def test_cluster_is_described_by_its_metadata(virtual_admin, cluster):
    """The brokers in the order of their ids, and the controller among them."""
    described = virtual_admin.describe_cluster()

    assert described.cluster_id == "mock-cluster"
    assert described.nodes == [Node(n, "mock", 9000 + n) for n in (0, 1, 2)]
    assert described.controller == described.nodes[CONTROLLER]


def test_versions_are_those_of_the_broker_that_is_named(virtual_admin, cluster):
    """Each API under its name, and under its number if this client does not know it."""
    cluster[2].versions[int(ApiKey.FETCH)] = (4, 11)

    assert virtual_admin.api_versions(2)[ApiKey.FETCH] == (4, 11)
    assert virtual_admin.api_versions(1)[ApiKey.FETCH] != (4, 11)


def test_results_are_returned_where_none_is_an_error():
    """Results without an error are returned as they are."""
    assert checked({"a": 1, "b": None}) == {"a": 1, "b": None}


@pytest.mark.parametrize(
    ("count", "words"),
    [(1, "no topic"), (2, "no topic (and 1 more)"), (3, "no topic (and 2 more)")],
)
def test_first_error_is_raised_with_all_results(count, words):
    """It says how many more there are."""
    error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic")
    results = {"fine": 1, **dict.fromkeys(range(count), error)}
    with pytest.raises(BulkError) as caught:
        checked(results)

    assert caught.value.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert caught.value.message == words
    assert caught.value.results == results
