"""Finding coordinators: what each version of a broker is asked, and when it is asked again."""

from __future__ import annotations

import pytest
from mock_kafka import HOST, MockCluster

from ottla.clients.group_coordination import CoordinatorLink, find_coordinator
from ottla.clients.metadata import Metadata
from ottla.clients.network_client import NetworkClient
from ottla.config.client_config import AdminConfig
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError
from ottla.protocol.group import (
    KEY_TYPE_GROUP,
    KEY_TYPE_TRANSACTION,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.metadata import MetadataRequest, MetadataResponse
from ottla.runtime.timing import Deadline
from ottla.structs import Node

NOT_YET = FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)


class LinkWorld:
    """A client, and its link to the coordinator of `g`."""

    def __init__(self, runtime, cluster: MockCluster) -> None:
        self.runtime, self.cluster = runtime, cluster
        config = AdminConfig.parse({"bootstrap.servers": cluster.bootstrap_servers})
        self.client = NetworkClient(runtime, config)
        self.metadata = Metadata(self.client)
        self.link = CoordinatorLink(self.metadata, self.client, "g")

    def deadline(self, ms: int = 1000) -> Deadline:
        return Deadline(self.runtime.clock, ms)

    def node_id(self, ms: int = 1000) -> int:
        return self.runtime.scheduler.run(self.link.node_id(self.deadline(ms)))

    def use(self, last_version: int) -> None:
        self.cluster[0].versions[FindCoordinatorRequest.api_key] = (0, last_version)

    def asked(self) -> int:
        return sum(len(b.sent(FindCoordinatorRequest)) for b in self.cluster.brokers.values())


@pytest.fixture
def world(runtime, cluster) -> LinkWorld:
    return LinkWorld(runtime, cluster)


@pytest.mark.parametrize("version", [0, 1, 3, 4])
@pytest.mark.parametrize("key_type", [KEY_TYPE_GROUP, KEY_TYPE_TRANSACTION])
def test_each_version_is_asked_for_the_key_in_its_own_way(world, cluster, version, key_type):
    """Version 1 knows transactional ids as well, and version 4 several keys."""
    world.use(version)
    call = find_coordinator(world.client, "k", world.deadline(), key_type)
    if version == 0 and key_type == KEY_TYPE_TRANSACTION:
        with pytest.raises(KafkaError) as caught:
            world.runtime.scheduler.run(call)
        assert caught.value.error is ErrorCode.UNSUPPORTED_VERSION
        return
    node = world.runtime.scheduler.run(call)
    (request,) = cluster[0].sent(FindCoordinatorRequest)

    assert node == Node(0, HOST, cluster[0].port)
    assert request.key_type == key_type
    assert request.key == ("k" if version < 4 else "")
    assert request.coordinator_keys == (["k"] if version == 4 else [])


@pytest.mark.parametrize("version", [3, 4])
def test_refusal_says_whose_coordinator_was_looked_for(world, cluster, version):
    """It is raised at once."""
    world.use(version)
    default = cluster[0].answers[FindCoordinatorRequest]

    def refuse(request, version):
        response = default(request, version)
        found = response.coordinators[0] if response.coordinators else response
        found.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return response

    cluster[0].on(FindCoordinatorRequest, refuse)
    with pytest.raises(KafkaError, match="coordinator of group g"):
        world.node_id()

    assert world.asked() == 1


def test_coordinator_is_remembered_until_it_is_said_to_have_moved(world):
    """Other errors are none of its business."""
    for code in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
        world.link.note(KafkaError(code, "no"))
        assert world.node_id() == 0
    assert world.asked() == 1
    for count, code in enumerate(
        [
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NETWORK_EXCEPTION,
            ErrorCode.REQUEST_TIMED_OUT,
        ],
        2,
    ):
        world.link.note(KafkaError(code, "moved"))
        assert world.node_id() == 0
        assert world.asked() == count


def test_coordinator_that_the_metadata_do_not_know_is_looked_up_in_newer_ones(runtime):
    """Its address is needed; one that is known costs no other request."""
    cluster = MockCluster(runtime, 2)
    cluster.coordinator = 1
    world = LinkWorld(runtime, cluster)

    def without_broker_1(request, version):
        response = cluster.metadata(request)
        return MetadataResponse(brokers=response.brokers[:1], cluster_id="mock-cluster")

    for broker in cluster.brokers.values():
        broker.on(MetadataRequest, without_broker_1, cluster_metadata(cluster))
    runtime.scheduler.run(world.metadata.update(world.deadline()))
    assert world.client.node_ids == [0]
    assert world.node_id() == 1
    assert world.client.node_ids == [0, 1]
    world.link.forget()
    before = sum(len(b.sent(MetadataRequest)) for b in cluster.brokers.values())
    assert world.node_id() == 1

    assert sum(len(b.sent(MetadataRequest)) for b in cluster.brokers.values()) == before


def cluster_metadata(cluster: MockCluster):
    return lambda request, version: cluster.metadata(request)


def test_coordinator_that_is_not_there_yet_is_asked_for_with_pauses(world, cluster):
    """The error after the time has the missing coordinator, and the reason."""
    world.use(3)
    cluster[0].on(FindCoordinatorRequest, NOT_YET)
    began_ms = world.runtime.clock.monotonic_ms()
    with pytest.raises(KafkaTimeoutError, match=r"group g has no coordinator \(.*group g"):
        world.node_id(2000)
    taken_ms = world.runtime.clock.monotonic_ms() - began_ms
    count = world.asked()
    cluster[0].on(FindCoordinatorRequest, NOT_YET, cluster[0]._find_coordinator)

    assert taken_ms == 2000
    assert 4 <= count <= 12
    assert world.node_id() == 0
