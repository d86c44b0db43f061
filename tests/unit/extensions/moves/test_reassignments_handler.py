"""Reassignments: what reaches the controller, and how its outcomes are answered."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla.errors import ErrorCode
from ottla.extensions.moves.reassignment import PartitionReassigner
from ottla.extensions.moves.reassignments_handler import ReassignmentsHandler
from ottla.protocol.message import encode
from ottla.protocol.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.structs import TopicPartition
from ottla.testing import mock_runtime

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Controller:
    """It notes what it is asked, and has all that is under way."""

    def __init__(self):
        assigned = SimpleNamespace(assignment={0: (1, 2), 1: (2, 3)})
        self.context = SimpleNamespace(topics={"t": assigned})
        self.asked = []

    async def do(self, name, operation):
        return await operation(self)

    def find(self, cls):
        assert cls is PartitionReassigner
        return self

    async def alter(self, wishes):
        self.asked.append(wishes)
        return dict.fromkeys(wishes)


@pytest.fixture
def controller() -> Controller:
    return Controller()


def ask(controller, call, body, version=1):
    handler = ReassignmentsHandler(controller)
    coroutine = getattr(handler, call)(SimpleNamespace(api_version=version), body)
    answer = mock_runtime().scheduler.run(coroutine)
    assert encode(answer, version)
    return answer


@pytest.mark.parametrize("may_change", [True, False])
def test_number_of_replicas_changes_only_where_the_request_allows_it(controller, may_change):
    """A reassignment that is given up, and one of an unknown partition, reach the controller."""
    wishes = {T0: [3, 4], T1: [1, 2, 3], U0: [1]}
    partitions = [
        ReassignablePartition(partition_index=index, replicas=replicas)
        for (_, index), replicas in [*list(wishes.items())[:2], (("t", 2), None)]
    ]
    other = [ReassignablePartition(partition_index=0, replicas=[1])]
    body = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_change,
        topics=[
            ReassignableTopic(name="t", partitions=partitions),
            ReassignableTopic(name="u", partitions=other),
        ],
    )
    answer = ask(controller, "handle_alter_partition_reassignments", body)
    (asked,) = controller.asked

    refused = set() if may_change else {T1}
    whole = {T0: (3, 4), T1: (1, 2, 3), TopicPartition("t", 2): None, U0: (1,)}
    assert asked == {tp: replicas for tp, replicas in whole.items() if tp not in refused}
    codes = {
        TopicPartition(topic.name, p.partition_index): p.error_code
        for topic in answer.responses
        for p in topic.partitions
    }
    code = ErrorCode.INVALID_REPLICATION_FACTOR
    assert codes == {tp: code if tp in refused else 0 for tp in whole}


def test_reassignments_under_way_are_listed(controller):
    """All of them, or those of named partitions."""
    ongoing = SimpleNamespace(replicas=(1, 2, 3), adding=(3,), removing=(1,))
    under_way = {T0: ongoing, U0: ongoing}
    controller.under_way, controller.changing = lambda: under_way, under_way.get
    topics = [ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 1])]
    for named, wanted in ((topics, [T0]), (None, [T0, U0])):
        body = ListPartitionReassignmentsRequest(topics=named)
        answer = ask(controller, "handle_list_partition_reassignments", body, version=0)
        found = [(topic.name, each) for topic in answer.topics for each in topic.partitions]

        assert [(name, each.partition_index) for name, each in found] == wanted
        for _, each in found:
            assert each.replicas == [1, 2, 3]
            assert (each.adding_replicas, each.removing_replicas) == ([3], [1])
