"""Elections: what reaches the controller, and how its outcomes are answered."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.message import encode
from ottla.protocol.reassignments import ElectLeadersRequest, ElectLeadersTopicPartitions
from ottla.runtime import Slices
from ottla.server.handlers.elections import ElectionsHandler
from ottla.structs import ElectionType, TopicPartition
from ottla.testing import mock_runtime

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
REFUSAL = KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "it leads already")
NOT_CONTROLLER = KafkaError(ErrorCode.NOT_CONTROLLER, "ask another one")


class Controller:
    """It notes what it is asked, and answers with `outcomes` or fails."""

    def __init__(self):
        self.asked = []
        self.outcomes = {}
        self.failure = None

    async def elect_leaders(self, *asked):
        self.asked.append(asked)
        if self.failure is not None:
            raise self.failure
        return self.outcomes


@pytest.fixture
def controller() -> Controller:
    return Controller()


def ask(controller, call, body, version=1):
    handler = ElectionsHandler(controller, Slices())
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
