"""The topic APIs: requests in, one result per topic out."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.controller.broker_registration import ensure_persistent_paths, register_broker
from ottla.controller.controller import Controller
from ottla.errors import ErrorCode, KafkaError
from ottla.network.request_context import NO_QUOTA
from ottla.protocol.message import encode
from ottla.protocol.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from ottla.registry import paths
from ottla.registry.embedded import EmbeddedRegistry
from ottla.replication.replica_requests import DeleteRecordsResult
from ottla.server.dynamic_config import DynamicConfig
from ottla.server.handlers.topics import TopicsHandler
from ottla.structs import EndPoint, TopicPartition
from ottla.testing import mock_runtime

MOST_TURNS = 100
"""So many turns of the loop an election may take."""


class SilentOrders:
    """A broker that does as it is told."""

    def add_broker(self, broker):
        pass

    def remove_broker(self, broker_id):
        pass

    def leader_and_isr(self, controller_epoch, broker_id, states, brokers, on_answer):
        on_answer({})

    def stop_replica(self, controller_epoch, broker_id, partitions, on_answer):
        on_answer({each.topic_partition: ErrorCode.NONE for each in partitions})

    async def settle(self):
        """Every order is carried out at once."""

    def update_metadata(self, controller_epoch, broker_ids, update):
        pass


class Replicas:
    """Cuts every log at the wanted offset."""

    def __init__(self) -> None:
        self.asked: dict[TopicPartition, int] = {}

    def delete_records(self, timeout_ms, offsets, respond):
        self.asked = dict(offsets)
        respond({tp: DeleteRecordsResult(offset, ErrorCode.NONE) for tp, offset in offsets.items()})


class World:
    """A handler with everything behind it, on one broker."""

    def __init__(self, **settings) -> None:
        self.runtime = mock_runtime()
        self.config = BrokerConfig(**settings)
        self.registry = EmbeddedRegistry(self.runtime, "/data/registry")
        self.replicas = Replicas()
        self.quota = NO_QUOTA
        self.runtime.scheduler.run(self._start())

    async def _start(self) -> None:
        await self.registry.start()
        await ensure_persistent_paths(self.registry)
        await register_broker(self.registry, 0, [EndPoint("PLAINTEXT", "PLAINTEXT", "h", 1)], 0)
        self.controller = Controller(self.runtime, self.registry, self.config, SilentOrders(), 0)
        await self.controller.startup()
        dynamic = DynamicConfig(self.runtime, self.registry, self.config, 0)
        await dynamic.start()
        self.handler = TopicsHandler(self.runtime, self.controller, self.replicas, dynamic)

    def ask(self, verb: str, body, api_version: int):
        """The response, which must be one that can be sent."""
        context = SimpleNamespace(api_version=api_version, quota=self.quota)
        handle = getattr(self.handler, f"handle_{verb}")
        response = self.runtime.scheduler.run(handle(context, body))
        assert encode(response, api_version)
        return response

    def create(self, *topics: CreatableTopic, api_version: int = 7, **options):
        body = CreateTopicsRequest(topics=list(topics), **options)
        return {
            result.name: result for result in self.ask("create_topics", body, api_version).topics
        }


@pytest.fixture
def world() -> World:
    """No topics yet."""
    return World()


def topic(name: str, partitions: int = -1, factor: int = -1, **others) -> CreatableTopic:
    """A topic of a request."""
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **others)


def test_created_topic_is_described(world):
    """Id, counts and all settings with their source (KIP-525)."""
    configs = [CreatableTopicConfig(name="retention.ms", value="5")]
    result = world.create(topic("t", 2, 1, configs=configs))["t"]
    settings = {config.name: config for config in result.configs}

    assert result.error_code == 0
    assert result.topic_id == world.controller.context.topics["t"].topic_id
    assert (result.num_partitions, result.replication_factor) == (2, 1)
    assert (settings["retention.ms"].value, settings["retention.ms"].config_source) == ("5", 1)
    assert settings["segment.bytes"].config_source == 5


@pytest.mark.parametrize("api_version", range(8))
def test_every_version_can_be_answered(world, api_version):
    """With a success and a failure in it."""
    results = world.create(topic("t", 1, 1), topic("/", 1, 1), api_version=api_version)

    assert results["t"].error_code == 0
    assert results["/"].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_assignments_are_taken_over(world):
    """Partition by partition."""
    assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[0])]
    world.create(topic("t", assignments=assignments))

    assert world.controller.context.topics["t"].assignment == {0: (0,)}


def test_thousands_of_unknown_settings_are_refused(world):
    """With one short answer."""
    configs = [CreatableTopicConfig(name=f"x{n}", value="y") for n in range(3000)]

    assert world.create(topic("t", configs=configs))["t"].error_code == ErrorCode.INVALID_CONFIG


def test_operation_that_takes_too_long_goes_on(world):
    """The client is told in time; the topic is there later."""
    result = world.create(topic("t"), timeout_ms=0)["t"]
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    world.runtime.scheduler.run_ready()

    assert "t" in world.controller.context.topics


def test_not_the_controller_is_said_for_each_topic(world):
    """The response has no error of its own."""
    world.controller.resign()
    results = world.create(topic("a"), topic("b"))

    assert {result.error_code for result in results.values()} == {ErrorCode.NOT_CONTROLLER}


def test_topics_are_deleted_by_name_and_by_id(world):
    """In the order of the request, with both in the answer."""
    world.create(topic("a"), topic("b"))
    topic_id = world.controller.context.topics["b"].topic_id
    body = DeleteTopicsRequest(
        topics=[DeleteTopicState(name="a"), DeleteTopicState(name=None, topic_id=topic_id)],
        timeout_ms=1000,
    )
    ids = [world.controller.context.topics[name].topic_id for name in "ab"]
    response = world.ask("delete_topics", body, 6)

    assert [(r.name, r.topic_id, r.error_code) for r in response.responses] == [
        ("a", ids[0], 0),
        ("b", ids[1], 0),
    ]
    assert not world.controller.context.topics


def test_each_wrong_deletion_has_its_error(world):
    """Unknown name, unknown id, neither, both, twice."""
    world.create(topic("a"), topic("b"))
    known = world.controller.context.topics["a"].topic_id
    stranger = known.__class__(int=7)
    states = [
        DeleteTopicState(name="no"),
        DeleteTopicState(name=None, topic_id=stranger),
        DeleteTopicState(name=None),
        DeleteTopicState(name="a", topic_id=known),
        DeleteTopicState(name="b"),
        DeleteTopicState(name="b"),
    ]
    response = world.ask("delete_topics", DeleteTopicsRequest(topics=states, timeout_ms=9), 6)

    assert [result.error_code for result in response.responses] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert len(world.controller.context.topics) == 2


def test_topic_that_a_new_controller_has_not_read_yet_is_deleted_by_its_id(world):
    """In the moment after its election it took the topic for an unknown one."""
    world.create(topic("a"))
    topic_id = world.controller.context.topics["a"].topic_id

    async def be_elected_anew() -> ErrorCode:
        world.controller.resign()
        await world.registry.delete(paths.CONTROLLER)
        starting = world.runtime.scheduler.spawn(world.controller.startup(), "start")
        for _ in range(MOST_TURNS):
            if not world.controller.is_active:
                await asyncio.sleep(0)
        state = DeleteTopicState(name=None, topic_id=topic_id)
        body = DeleteTopicsRequest(topics=[state], timeout_ms=9)
        answer = await world.handler.handle_delete_topics(
            SimpleNamespace(api_version=6, quota=NO_QUOTA), body
        )
        await starting
        return ErrorCode.of(answer.responses[0].error_code)

    assert world.runtime.scheduler.run(be_elected_anew()) is ErrorCode.NONE
    assert not world.controller.context.topics


@pytest.mark.parametrize(
    ("api_version", "error"),
    [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)],
)
def test_old_clients_do_not_know_that_deletion_can_be_disabled(api_version, error):
    """The code came with version 3."""
    world = World(delete_topic_enable=False)
    world.create(topic("a"))
    body = DeleteTopicsRequest(topic_names=["a"], timeout_ms=9)
    response = world.ask("delete_topics", body, api_version)

    assert [result.error_code for result in response.responses] == [error]


def test_partitions_are_created(world):
    """With an assignment and without; null and none are the same."""
    world.create(topic("a", 1), topic("b", 1), topic("c", 1))
    body = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name="a", count=3, assignments=None),
            CreatePartitionsTopic(
                name="b", count=2, assignments=[CreatePartitionsAssignment(broker_ids=[0])]
            ),
            CreatePartitionsTopic(name="c", count=1, assignments=[]),
        ],
        timeout_ms=9,
    )
    response = world.ask("create_partitions", body, 3)

    assert [(result.name, result.error_code) for result in response.results] == [
        ("a", 0),
        ("b", 0),
        ("c", ErrorCode.INVALID_PARTITIONS),
    ]
    assert len(world.controller.context.topics["a"].assignment) == 3


def test_records_are_deleted_where_they_may_be(world):
    """Not in internal topics, nor where no topic can be."""
    answers = []
    context = SimpleNamespace(
        api_version=2, respond=answers.append, wait_for=lambda operation: None
    )
    body = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=name, partitions=[DeleteRecordsPartition(partition_index=1, offset=5)]
            )
            for name in ("t", "__consumer_offsets", "../t")
        ]
    )
    world.handler.handle_delete_records(context, body)
    results = {result.name: result.partitions[0] for result in answers[0].topics}

    assert encode(answers[0], 2)
    assert world.replicas.asked == {TopicPartition("t", 1): 5}
    assert (results["t"].low_watermark, results["t"].error_code) == (5, 0)
    for name in ("__consumer_offsets", "../t"):
        assert results[name].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert results[name].low_watermark == -1


class CountedPartitions:
    """A quota of six partitions, which strict requests must keep."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, bool]] = []

    def admit_mutations(self, count: int, *, is_strict: bool) -> None:
        if is_strict and sum(each for each, _ in self.asked) + count > 6:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self.asked.append((count, is_strict))


def test_partitions_count_against_the_quota_of_the_client(world):
    """Created, added and deleted ones, but none of a trial run (KIP-599)."""
    world.quota = quota = CountedPartitions()
    world.create(topic("trial", 100, 1), validate_only=True)
    results = world.create(topic("t", 2, 1), topic("u", 5, 1), topic("/", 5, 1))
    assert results["t"].error_code == 0
    assert results["u"].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED

    more = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=4)], timeout_ms=60_000
    )
    assert world.ask("create_partitions", more, 3).results[0].error_code == 0
    gone = DeleteTopicsRequest(topic_names=["t"], timeout_ms=60_000)
    refused = world.ask("delete_topics", gone, 5).responses[0]
    assert refused.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert quota.asked == [(2, True), (2, True)]


def test_older_versions_are_carried_out_beyond_the_quota(world):
    """They do not know the error; the client is held afterwards."""
    world.quota = quota = CountedPartitions()
    assert world.create(topic("t", 10, 1), api_version=5)["t"].error_code == 0
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=11)], timeout_ms=60_000
    )
    assert world.ask("create_partitions", more, 2).results[0].error_code == 0
    gone = DeleteTopicsRequest(topic_names=["t"], timeout_ms=60_000)
    assert world.ask("delete_topics", gone, 4).responses[0].error_code == 0
    assert quota.asked == [(10, False), (1, False), (11, False)]
