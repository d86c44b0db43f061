"""What brokers ask of a controller, at awkward moments."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.controller_requests import (
    AlterPartitionPartitionData,
    AlterPartitionRequest,
    AlterPartitionTopicData,
    BrokerState,
)
from ottla.server.handlers.controller_requests import ControllerRequestsHandler
from ottla.structs import TopicPartition
from ottla.testing import mock_runtime

TOPIC_ID = UUID(int=7)


class JustElected:
    """A controller that has yet to read which topics there are."""

    is_active = True
    refusal = None

    def __init__(self):
        self.context = self
        self.topics = {}
        self.broker_epochs = {}

    def topic_name(self, topic_id):
        return self.topics.get(topic_id)

    async def until_idle(self):
        self.topics[TOPIC_ID] = "t"

    async def alter_partitions(self, broker_id, broker_epoch, changes, broker_epochs):
        self.broker_epochs = broker_epochs
        if self.refusal is not None:
            return dict.fromkeys(changes, self.refusal)
        return {partition: state._replace(version=9) for partition, state in changes.items()}


def change(index=0, broker_epoch=5):
    """Broker 1 leads a partition, and has it in sync as the process of that epoch."""
    return AlterPartitionPartitionData(
        partition_index=index,
        leader_epoch=3,
        partition_epoch=8,
        new_isr_with_epochs=[BrokerState(broker_id=1, broker_epoch=broker_epoch)],
    )


def request(*partitions):
    return AlterPartitionRequest(
        broker_id=1,
        broker_epoch=5,
        topics=[AlterPartitionTopicData(topic_id=TOPIC_ID, partitions=list(partitions))],
    )


def test_controller_that_was_just_elected_reads_before_it_knows_no_topic():
    """UNKNOWN_TOPIC_ID would leave the leader in doubt about its in-sync replicas."""
    response = mock_runtime().scheduler.run(
        ControllerRequestsHandler(JustElected()).alter_partition(request(change()))
    )

    (topic,) = response.topics
    (result,) = topic.partitions
    assert (result.error_code, result.isr, result.partition_epoch) == (0, [1], 9)


@pytest.mark.parametrize(
    ("topic", "refusal", "error"),
    [
        ({"topic_id": UUID(int=8)}, None, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"topic_name": "gone"}, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic_id": TOPIC_ID}, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_partition_that_is_not_changed_has_its_error(topic, refusal, error):
    """A topic is unknown by what the leader calls it: its id, or before there were ids its name."""
    controller = JustElected()
    controller.refusal = None if refusal is None else KafkaError(refusal)
    if "topic_name" in topic:
        controller.alter_partitions = no_changes
    body = request()
    body.topics = [AlterPartitionTopicData(partitions=[change()], **topic)]
    handler = ControllerRequestsHandler(controller)
    response = mock_runtime().scheduler.run(handler.alter_partition(body))

    ((result,),) = (each.partitions for each in response.topics)
    assert (result.partition_index, result.error_code) == (0, error)


async def no_changes(*asked):
    """Of what the controller does not know nothing is said."""
    return {}


def test_broker_that_is_no_controller_refuses_changes():
    """Its leader has to ask the other one."""
    controller = JustElected()
    controller.is_active = False
    with pytest.raises(KafkaError) as caught:
        mock_runtime().scheduler.run(
            ControllerRequestsHandler(controller).alter_partition(request(change()))
        )

    assert caught.value.error is ErrorCode.NOT_CONTROLLER


def test_each_partition_names_the_processes_that_are_in_sync_with_it():
    """A broker was started again meanwhile: what its last process had, the new one may lack."""
    controller = JustElected()
    body = request(change(0, broker_epoch=4), change(1, broker_epoch=5))
    mock_runtime().scheduler.run(ControllerRequestsHandler(controller).alter_partition(body))

    assert controller.broker_epochs == {
        TopicPartition("t", 0): {1: 4},
        TopicPartition("t", 1): {1: 5},
    }
