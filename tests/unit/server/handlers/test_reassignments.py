"""Elections and reassignments: what reaches the controller, and how its outcomes are answered."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.message import encode
from ottla.protocol.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.server.handlers.reassignments import ReassignmentsHandler
from ottla.structs import ElectionType, TopicPartition
from ottla.testing import mock_runtime

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
REFUSAL = KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "it leads already")
NOT_CONTROLLER = KafkaError(ErrorCode.NOT_CONTROLLER, "ask another one")


class Controller:
    """It notes what it is asked, and answers with `outcomes` or fails."""

    def __init__(self):
        assigned = SimpleNamespace(assignment={0: (1, 2), 1: (2, 3)})
        self.context = SimpleNamespace(topics={"t": assigned})
        self.asked = []
        self.outcomes = {}
        self.failure = None

    async def elect_leaders(self, *asked):
        return self.answer(*asked)

    async def alter_partition_reassignments(self, wishes):
        self.asked.append(wishes)
        return dict.fromkeys(wishes)

    async def list_partition_reassignments(self, wanted):
        return self.answer(wanted)

    def answer(self, *asked):
        self.asked.append(asked)
        if self.failure is not None:
            raise self.failure
        return self.outcomes


@pytest.fixture
def controller() -> Controller:
    return Controller()


def ask(controller, call, body, version=1):
    handler = ReassignmentsHandler(controller)
    coroutine = getattr(handler, call)(SimpleNamespace(api_version=version), body)
    answer = mock_runtime().scheduler.run(coroutine)
    assert encode(answer, version)
    return answer


def elected(answer):
    return {
        (topic.topic, p.partition_id): (p.error_code, p.error_message)
        for topic in answer.replica_election_results
        for p in topic.partition_result
    }


def test_leaders_of_named_partitions_are_elected(controller):
    """Each has its own outcome."""
    controller.outcomes = {T0: None, T1: REFUSAL}
    topics = [ElectLeadersTopicPartitions(topic="t", partitions=[0, 1])]
    body = ElectLeadersRequest(election_type=1, topic_partitions=topics)

    assert elected(ask(controller, "handle_elect_leaders", body)) == {
        T0: (0, None),
        T1: (ErrorCode.ELECTION_NOT_NEEDED, "it leads already"),
    }
    assert controller.asked == [(ElectionType.UNCLEAN, [T0, T1])]


def test_leaders_of_all_partitions_are_elected_where_none_is_named(controller):
    """Null is not an empty list."""
    for topics, wanted in ((None, None), ([], [])):
        body = ElectLeadersRequest(election_type=0, topic_partitions=topics)
        ask(controller, "handle_elect_leaders", body)
        assert controller.asked.pop() == (ElectionType.PREFERRED, wanted)


@pytest.mark.parametrize(("election_type", "error"), [(0, NOT_CONTROLLER), (2, None)])
def test_failure_of_the_whole_is_told_where_the_version_has_a_place_for_it(
    controller, election_type, error
):
    """Version 0 names it for each partition."""
    controller.failure = error
    code = ErrorCode.NOT_CONTROLLER if error else ErrorCode.INVALID_REQUEST
    topics = [ElectLeadersTopicPartitions(topic="t", partitions=[0])]
    body = ElectLeadersRequest(election_type=election_type, topic_partitions=topics)

    (outcome,) = elected(ask(controller, "handle_elect_leaders", body, version=0)).values()
    assert outcome[0] == code
    with pytest.raises(KafkaError) as caught:
        ask(controller, "handle_elect_leaders", body, version=1)
    assert caught.value.error is code
    body = ElectLeadersRequest(election_type=election_type, topic_partitions=None)
    assert elected(ask(controller, "handle_elect_leaders", body, version=0)) == {}


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
    controller.outcomes = {T0: ongoing}
    topics = [ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 1])]
    for named, wanted in ((topics, [T0, T1]), (None, None)):
        body = ListPartitionReassignmentsRequest(topics=named)
        (topic,) = ask(controller, "handle_list_partition_reassignments", body, version=0).topics
        (found,) = topic.partitions

        assert controller.asked.pop() == (wanted,)
        assert (topic.name, found.partition_index) == T0
        assert (found.replicas, found.adding_replicas, found.removing_replicas) == (
            [1, 2, 3],
            [3],
            [1],
        )
