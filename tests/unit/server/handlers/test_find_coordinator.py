"""FindCoordinator in all its versions: leaders of partitions, topics that come into being."""

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.group import FindCoordinatorRequest
from ottla.protocol.message import encode
from ottla.server.handlers.find_coordinator import FindCoordinatorHandler, KeyType
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import (
    NO_UUID,
    BrokerEndPoints,
    EndPoint,
    LeaderAndIsr,
    PartitionState,
    TopicPartition,
)
from ottla.testing import mock_runtime

GROUP_KEY, TRANSACTION_KEY, SHARE_KEY = 0, 1, 2


class Context:
    """A request's context."""

    listener_name = "PLAINTEXT"

    def __init__(self, api_version):
        self.api_version = api_version


END_POINT = EndPoint("PLAINTEXT", "PLAINTEXT", "host", 9092)


class Broker:
    """The handler in a cluster whose internal topics may not exist yet."""

    def __init__(self):
        self.scheduler = mock_runtime().scheduler
        self.cache = MetadataCache("cluster")
        self.created = []
        self.creation_error = None
        key_types = {
            GROUP_KEY: KeyType("__consumer_offsets", lambda key: 0, may_be_empty=True),
            TRANSACTION_KEY: KeyType("__transaction_state", lambda key: 0),
        }
        self.handler = FindCoordinatorHandler(key_types, self.cache, self.scheduler, self.create)

    async def create(self, topic):
        if self.creation_error is not None:
            raise self.creation_error
        self.created.append(topic)
        self.lead(1, topic)

    def lead(self, broker_id, topic="__consumer_offsets"):
        """The topic exists and is led by this broker."""
        state = PartitionState(
            TopicPartition(topic, 0), NO_UUID, 1, LeaderAndIsr(broker_id, 0, (1,)), (1,)
        )
        self.cache.update([state], [BrokerEndPoints(1, 1, (END_POINT,))])

    def find(self, version, key="g", key_type=GROUP_KEY):
        """The coordinator of one key, asked for in the form of the version."""
        body = FindCoordinatorRequest(key_type=key_type)
        if version < 4:
            body.key = key
        else:
            body.coordinator_keys = [key]
        answer = self.handler.handle_find_coordinator(Context(version), body)
        encode(answer, version)
        if version < 4:
            return answer
        (coordinator,) = answer.coordinators
        assert coordinator.key == key
        return coordinator


@pytest.fixture
def broker():
    """A broker with an empty offsets topic that it leads."""
    broker = Broker()
    broker.lead(1)
    return broker


@pytest.mark.parametrize("version", range(7))
def test_coordinator_is_the_leader_of_the_groups_partition(broker, version):
    """Old versions ask for one key, since version 4 for several."""
    found = broker.find(version)

    assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "host", 9092)


@pytest.mark.parametrize("version", range(7))
def test_offsets_topic_is_created_when_it_is_first_needed(version):
    """Until it has a leader there is no coordinator; one creation is enough."""
    broker = Broker()
    missing = [broker.find(version), broker.find(version)]
    assert {found.error_code for found in missing} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert (missing[0].node_id, missing[0].host, missing[0].port) == (-1, "", -1)
    broker.scheduler.advance(0)

    assert broker.created == ["__consumer_offsets"]
    assert broker.find(version).node_id == 1


def test_failed_creation_is_logged_and_tried_again(caplog):
    """The next client that asks has another try."""
    broker = Broker()
    broker.creation_error = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "too few brokers")
    broker.find(3)
    broker.scheduler.advance(0)
    assert "too few brokers" in caplog.text
    broker.creation_error = None
    broker.find(3)
    broker.scheduler.advance(0)

    assert broker.find(3).node_id == 1


def test_partition_without_a_live_leader_has_no_coordinator(broker):
    """The client has to ask again."""
    broker.lead(2)

    assert broker.find(3).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.created == []


@pytest.mark.parametrize("version", range(1, 7))
def test_transactional_ids_have_a_coordinator_of_their_own(version):
    """The leader of another topic, which is created when it is first needed."""
    broker = Broker()
    assert broker.find(version, key_type=TRANSACTION_KEY).error_code == (
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    )
    broker.scheduler.advance(0)

    assert broker.created == ["__transaction_state"]
    assert broker.find(version, key_type=TRANSACTION_KEY).node_id == 1
    assert broker.cache.topic("__consumer_offsets") is None


def test_empty_transactional_id_is_refused(broker):
    """Old clients keep offsets under an empty group, but nobody writes under an empty id."""
    assert broker.find(3, key="").error_code == 0
    assert broker.find(3, key="", key_type=TRANSACTION_KEY).error_code == ErrorCode.INVALID_REQUEST


def test_unknown_kinds_of_keys_are_refused(broker):
    """Share groups have no coordinator here."""
    assert broker.find(6, key_type=SHARE_KEY).error_code == ErrorCode.INVALID_REQUEST
