"""ElectLeaders (43).

Behaviour: each partition succeeds or fails alone; a broker that is not the controller answers
NOT_CONTROLLER. An election is answered when it is decided.

Version notes: v0 elects preferred replicas only and has no error for the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.controller.controller import Controller
from ottla.errors import ErrorCode, KafkaError
from ottla.network.request_context import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.reassignments import (
    ElectLeadersPartitionResult,
    ElectLeadersReplicaElectionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from ottla.runtime import Slices
from ottla.server.api import Handler, error_code, error_message
from ottla.structs import ElectionType, TopicPartition

FIRST_VERSION_WITH_TOP_LEVEL_ERROR: Final = 1
SLICE_OUTCOMES: Final = 2_000


class ElectionsHandler:
    """Brings the wishes of administrators for other leaders to the controller."""

    def __init__(self, controller: Controller, slices: Slices) -> None:
        self.controller = controller
        self.slices = slices

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {ApiKey.ELECT_LEADERS: self.handle_elect_leaders}

    async def handle_elect_leaders(
        self, context: RequestContext, body: ElectLeadersRequest
    ) -> ElectLeadersResponse:
        wanted = None
        if body.topic_partitions is not None:
            wanted = [
                TopicPartition(topic.topic, index)
                for topic in body.topic_partitions
                for index in topic.partitions
            ]
        try:
            kind = election_type(body.election_type)
            outcomes = await self.controller.elect_leaders(kind, wanted)
        except KafkaError as error:
            if context.api_version >= FIRST_VERSION_WITH_TOP_LEVEL_ERROR:
                raise
            outcomes = dict.fromkeys(wanted or (), error)
        topics: dict[str, list[ElectLeadersPartitionResult]] = {}
        async for (name, index), outcome in self.slices.over(outcomes.items(), SLICE_OUTCOMES):
            topics.setdefault(name, []).append(
                ElectLeadersPartitionResult(
                    partition_id=index,
                    error_code=error_code(outcome),
                    error_message=error_message(outcome),
                )
            )
        return ElectLeadersResponse(
            replica_election_results=[
                ElectLeadersReplicaElectionResult(topic=name, partition_result=results)
                for name, results in topics.items()
            ]
        )


def election_type(number: int) -> ElectionType:
    """INVALID_REQUEST for an unknown kind of election."""
    try:
        return ElectionType(number)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{number} is not a kind of election (0 or 1)"
        ) from None
