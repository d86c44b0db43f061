"""What brokers ask of a controller, at awkward moments."""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.leader_and_isr import (
    AlterPartitionPartitionData,
    AlterPartitionRequest,
    AlterPartitionTopicData,
    BrokerState,
)
from ottla.server.handlers.controller_orders import ControllerRequestsHandler
from ottla.structs import TopicPartition
from ottla.testing import mock_runtime

TOPIC_ID = UUID(int=7)


class JustElected:
    """A controller that has yet to read which topics there are."""

    is_active = True

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


def test_each_partition_names_the_processes_that_are_in_sync_with_it():
    """A broker was started again meanwhile: what its last process had, the new one may lack."""
    controller = JustElected()
    body = request(change(0, broker_epoch=4), change(1, broker_epoch=5))
    mock_runtime().scheduler.run(ControllerRequestsHandler(controller).alter_partition(body))

    assert controller.broker_epochs == {
        TopicPartition("t", 0): {1: 4},
        TopicPartition("t", 1): {1: 5},
    }
