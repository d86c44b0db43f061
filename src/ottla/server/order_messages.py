"""The controller's requests to brokers: conversion between the protocol's structs and ours.

Requests are written in the newest version only, and read in every version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode
from ottla.protocol.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from ottla.protocol.message import encode_in_slices
from ottla.protocol.types import Bytes, Part, field
from ottla.protocol.update_metadata import (
    FULL_TYPE,
    SECURITY_PROTOCOLS,
    UNKNOWN_TYPE,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.runtime.scheduler import Work
from ottla.server.slicing import freed
from ottla.structs import (
    LEADER_DURING_DELETE,
    NO_EPOCH,
    NO_UUID,
    BrokerEndPoints,
    EndPoint,
    LeaderAndIsr,
    MetadataUpdate,
    Node,
    PartitionState,
    StopReplicaPartition,
    TopicPartition,
    by_topic,
)

if TYPE_CHECKING:
    from asyncio import Future
    from uuid import UUID

STATES_AT_ONCE: Final = 1_500
BROKER_EPOCH_AT: Final = 9
"""In an encoded update: behind the controller's id, its kind and its epoch."""
NEWEST_UPDATE: Final = UpdateMetadataRequest.max_version


class EncodedUpdateMetadata(UpdateMetadataRequest, versions=str(NEWEST_UPDATE), flexible="6+"):
    """An update that is encoded once for all brokers; each gets its own epoch."""

    made: Future[bytes] = field(Bytes, versions="none")


def _by_topic(states: Iterable[PartitionState]) -> dict[tuple[str, UUID], list[PartitionState]]:
    """The states of each topic, which has a name and an id."""
    return by_topic(((state.topic_partition.topic, state.topic_id), state) for state in states)


def leader_and_isr_request(
    states: Sequence[PartitionState], brokers: Iterable[Node]
) -> LeaderAndIsrRequest:
    """The partitions that a broker must lead and follow, with the leaders' addresses only."""
    leaders = {state.leader for state in states}
    return LeaderAndIsrRequest(
        topic_states=[
            LeaderAndIsrTopicState(
                topic_name=name,
                topic_id=topic_id,
                partition_states=[_written_state(state) for state in of_topic],
            )
            for (name, topic_id), of_topic in _by_topic(states).items()
        ],
        live_leaders=[
            LeaderAndIsrLiveLeader(broker_id=node.id, host_name=node.host, port=node.port)
            for node in brokers
            if node.id in leaders
        ],
    )


def _written_state(state: PartitionState) -> LeaderAndIsrPartitionState:
    leader, leader_epoch, isr, version = state.leader_and_isr
    return LeaderAndIsrPartitionState(
        partition_index=state.topic_partition.partition,
        controller_epoch=state.controller_epoch,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=list(isr),
        partition_epoch=version,
        replicas=list(state.replicas),
        adding_replicas=list(state.adding_replicas),
        removing_replicas=list(state.removing_replicas),
        is_new=state.is_new,
    )


def ordered_states(body: LeaderAndIsrRequest) -> list[PartitionState]:
    """The partitions of a LeaderAndIsr request."""
    found = [
        _read_state(topic.topic_name, topic.topic_id, state)
        for topic in body.topic_states
        for state in topic.partition_states
    ]
    for state in body.ungrouped_partition_states:
        found.append(_read_state(state.topic_name, NO_UUID, state))
    return found


def _read_state(topic: str, topic_id: UUID, state: LeaderAndIsrPartitionState) -> PartitionState:
    leader_and_isr = LeaderAndIsr(
        state.leader, state.leader_epoch, tuple(state.isr), state.partition_epoch
    )
    return PartitionState(
        TopicPartition(topic, state.partition_index),
        topic_id,
        state.controller_epoch,
        leader_and_isr,
        tuple(state.replicas),
        state.is_new,
        (),
        tuple(state.adding_replicas),
        tuple(state.removing_replicas),
    )


def leader_nodes(body: LeaderAndIsrRequest) -> list[Node]:
    """The addresses of the leaders in a LeaderAndIsr request."""
    return [Node(each.broker_id, each.host_name, each.port) for each in body.live_leaders]


def leader_and_isr_errors(
    response: LeaderAndIsrResponse, names: Mapping[UUID, str]
) -> dict[TopicPartition, ErrorCode]:
    """The results by partition; topics of v5 and newer are named by their ids."""
    errors = {
        TopicPartition(each.topic_name, each.partition_index): ErrorCode.of(each.error_code)
        for each in response.partition_errors
    }
    for topic in response.topics:
        name = names.get(topic.topic_id)
        if name is not None:
            for each in topic.partition_errors:
                errors[TopicPartition(name, each.partition_index)] = ErrorCode.of(each.error_code)
    return errors


def stop_replica_request(partitions: Iterable[StopReplicaPartition]) -> StopReplicaRequest:
    """The replicas that a broker must stop."""
    topics: dict[str, list[StopReplicaPartitionState]] = {}
    for (name, index), leader_epoch, delete in partitions:
        topics.setdefault(name, []).append(
            StopReplicaPartitionState(
                partition_index=index, leader_epoch=leader_epoch, delete_partition=delete
            )
        )
    return StopReplicaRequest(
        topic_states=[
            StopReplicaTopicState(topic_name=name, partition_states=states)
            for name, states in topics.items()
        ]
    )


def stopped_partitions(body: StopReplicaRequest) -> list[StopReplicaPartition]:
    """The partitions of a StopReplica request."""
    found = [
        StopReplicaPartition(
            TopicPartition(topic.topic_name, state.partition_index),
            state.leader_epoch,
            state.delete_partition,
        )
        for topic in body.topic_states
        for state in topic.partition_states
    ]
    old = [
        TopicPartition(each.topic_name, each.partition_index) for each in body.ungrouped_partitions
    ]
    old += [
        TopicPartition(topic.name, index)
        for topic in body.topics
        for index in topic.partition_indexes
    ]
    return found + [StopReplicaPartition(each, NO_EPOCH, body.delete_partitions) for each in old]


def stop_replica_errors(response: StopReplicaResponse) -> dict[TopicPartition, ErrorCode]:
    """The results by partition."""
    return {
        TopicPartition(each.topic_name, each.partition_index): ErrorCode.of(each.error_code)
        for each in response.partition_errors
    }


def encoded_update(
    controller_id: int, controller_epoch: int, update: MetadataUpdate
) -> Work[bytes]:
    """The metadata for the clients of any broker, made in slices.

    The partitions of a deleted topic have no leader.
    """
    topics: dict[tuple[str, UUID], UpdateMetadataTopicState] = {}
    for number, state in enumerate(update.states, 1):
        name, topic_id = key = state.topic_partition.topic, state.topic_id
        if key not in topics:
            topics[key] = UpdateMetadataTopicState(topic_name=name, topic_id=topic_id)
        topics[key].partition_states.append(_written_metadata(state))
        if not number % STATES_AT_ONCE:
            yield
    request = UpdateMetadataRequest(
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        topic_states=list(topics.values()),
        live_brokers=[_written_broker(broker) for broker in update.brokers],
        type=FULL_TYPE if update.is_full else UNKNOWN_TYPE,
    )
    topics.clear()
    for name in update.deleted_topics:
        gone = UpdateMetadataPartitionState(leader=LEADER_DURING_DELETE, leader_epoch=NO_EPOCH)
        request.topic_states.append(
            UpdateMetadataTopicState(topic_name=name, partition_states=[gone])
        )
    body = yield from encode_in_slices(request, NEWEST_UPDATE)
    if len(update.states) >= STATES_AT_ONCE:
        parts = [request]
        del request
        yield from freed(parts)
    return body


def _put_epoch_in(request: EncodedUpdateMetadata, out: bytearray, parts: list[Part]) -> memoryview:
    body, epoch = memoryview(request.made.result()), request.broker_epoch
    parts += (out, body[:BROKER_EPOCH_AT], epoch.to_bytes(8, signed=True))
    return body[BROKER_EPOCH_AT + 8 :]


EncodedUpdateMetadata.encoders[NEWEST_UPDATE] = _put_epoch_in


def _written_metadata(state: PartitionState) -> UpdateMetadataPartitionState:
    leader, leader_epoch, isr, version = state.leader_and_isr
    return UpdateMetadataPartitionState(
        partition_index=state.topic_partition.partition,
        controller_epoch=state.controller_epoch,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=list(isr),
        zk_version=version,
        replicas=list(state.replicas),
        offline_replicas=list(state.offline_replicas),
    )


def _written_broker(broker: BrokerEndPoints) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker.id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=end_point.port,
                host=end_point.host,
                listener=end_point.listener_name,
                security_protocol=SECURITY_PROTOCOLS.index(end_point.security_protocol),
            )
            for end_point in broker.endpoints
        ],
        rack=broker.rack,
    )


def metadata_update(body: UpdateMetadataRequest) -> Work[MetadataUpdate]:
    """All that an UpdateMetadata request says, read and freed in slices."""
    parts, brokers, is_full = [body], live_brokers(body), body.type == FULL_TYPE
    named = chain(
        (
            (each.topic_name, each.topic_id, s)
            for each in body.topic_states
            for s in each.partition_states
        ),
        ((state.topic_name, NO_UUID, state) for state in body.ungrouped_partition_states),
    )
    del body
    deleted, states = dict[str, None](), list[PartitionState]()
    for number, (name, topic_id, state) in enumerate(named, 1):
        if state.leader == LEADER_DURING_DELETE:
            deleted[name] = None
        else:
            states.append(_read_metadata(name, topic_id, state))
        if not number % STATES_AT_ONCE:
            yield
    if len(states) >= STATES_AT_ONCE:
        yield from freed(parts)
    return MetadataUpdate(states, brokers, list(deleted), is_full)


def _read_metadata(
    topic: str, topic_id: UUID, state: UpdateMetadataPartitionState
) -> PartitionState:
    return PartitionState(
        TopicPartition(topic, state.partition_index),
        topic_id,
        state.controller_epoch,
        LeaderAndIsr(state.leader, state.leader_epoch, tuple(state.isr), state.zk_version),
        tuple(state.replicas),
        False,
        tuple(state.offline_replicas),
    )


def live_brokers(body: UpdateMetadataRequest) -> list[BrokerEndPoints]:
    """The brokers of an UpdateMetadata request."""
    return [
        BrokerEndPoints(broker.id, NO_EPOCH, tuple(_end_points(broker)), broker.rack)
        for broker in body.live_brokers
    ]


def _end_points(broker: UpdateMetadataBroker) -> Iterable[EndPoint]:
    if broker.v0_host:
        yield EndPoint(SECURITY_PROTOCOLS[0], SECURITY_PROTOCOLS[0], broker.v0_host, broker.v0_port)
    for end_point in broker.endpoints:
        protocol = SECURITY_PROTOCOLS[end_point.security_protocol]
        yield EndPoint(end_point.listener or protocol, protocol, end_point.host, end_point.port)
