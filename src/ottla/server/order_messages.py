"""The controller's requests to brokers: conversion between the protocol's structs and ours.

Requests are written in the newest version only, and read in every version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

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
    from uuid import UUID


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


def update_metadata_request(update: MetadataUpdate) -> UpdateMetadataRequest:
    """The metadata for a broker's clients; the partitions of a deleted topic have no leader."""
    topics = [
        UpdateMetadataTopicState(
            topic_name=name,
            topic_id=topic_id,
            partition_states=[_written_metadata(state) for state in of_topic],
        )
        for (name, topic_id), of_topic in _by_topic(update.states).items()
    ]
    for name in update.deleted_topics:
        gone = UpdateMetadataPartitionState(leader=LEADER_DURING_DELETE, leader_epoch=NO_EPOCH)
        topics.append(UpdateMetadataTopicState(topic_name=name, partition_states=[gone]))
    return UpdateMetadataRequest(
        topic_states=topics,
        live_brokers=[_written_broker(broker) for broker in update.brokers],
        type=FULL_TYPE if update.is_full else UNKNOWN_TYPE,
    )


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


def metadata_update(body: UpdateMetadataRequest) -> MetadataUpdate:
    """All that an UpdateMetadata request says."""
    states, deleted_topics = metadata_states(body)
    return MetadataUpdate(states, live_brokers(body), deleted_topics, body.type == FULL_TYPE)


def metadata_states(body: UpdateMetadataRequest) -> tuple[list[PartitionState], list[str]]:
    """The partitions of an UpdateMetadata request, and the names of topics that are gone."""
    named = [
        (topic.topic_name, topic.topic_id, state)
        for topic in body.topic_states
        for state in topic.partition_states
    ]
    named += [(state.topic_name, NO_UUID, state) for state in body.ungrouped_partition_states]
    deleted = {name: None for name, _, state in named if state.leader == LEADER_DURING_DELETE}
    states = [
        PartitionState(
            TopicPartition(name, state.partition_index),
            topic_id,
            state.controller_epoch,
            LeaderAndIsr(state.leader, state.leader_epoch, tuple(state.isr), state.zk_version),
            tuple(state.replicas),
            False,
            tuple(state.offline_replicas),
        )
        for name, topic_id, state in named
        if state.leader != LEADER_DURING_DELETE
    ]
    return states, list(deleted)


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
