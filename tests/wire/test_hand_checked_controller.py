"""Requests that only brokers before Kafka 4.0 send each other, byte by byte by hand."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.protocol.controller_requests import (
    AlterPartitionPartitionData,
    AlterPartitionPartitionResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicData,
    AlterPartitionTopicResult,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from ottla.protocol.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from ottla.protocol.message import Message, decode, encode
from ottla.protocol.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)

ID = UUID(int=0x0102030405060708090A0B0C0D0E0F10)
CONTROLLER = "00000001 00000007"
BROKER_EPOCH = "0000000000000009"
STATE = "00000002 00000007 00000003 00000004"


def leader_and_isr(**more: Any) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=2,
        controller_epoch=7,
        leader=3,
        leader_epoch=4,
        isr=[3],
        partition_epoch=5,
        replicas=[3, 1],
        is_new=True,
        **more,
    )


def metadata_state(**more: Any) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=2,
        controller_epoch=7,
        leader=3,
        leader_epoch=4,
        isr=[3],
        zk_version=5,
        replicas=[3, 1],
        **more,
    )


CASES = [
    (
        LeaderAndIsrRequest(
            controller_id=1,
            controller_epoch=7,
            ungrouped_partition_states=[leader_and_isr(topic_name="t")],
            live_leaders=[LeaderAndIsrLiveLeader(broker_id=3, host_name="h", port=9)],
        ),
        1,
        f"{CONTROLLER} 00000001 0001 74 {STATE} 00000001 00000003 00000005"
        "00000002 00000003 00000001 01   00000001 00000003 0001 68 00000009",
    ),
    (
        LeaderAndIsrRequest(
            controller_id=1,
            controller_epoch=7,
            broker_epoch=9,
            type=1,
            topic_states=[
                LeaderAndIsrTopicState(
                    topic_name="t",
                    topic_id=ID,
                    partition_states=[
                        leader_and_isr(
                            adding_replicas=[1], removing_replicas=[], leader_recovery_state=1
                        )
                    ],
                )
            ],
            live_leaders=[LeaderAndIsrLiveLeader(broker_id=3, host_name="h", port=9)],
        ),
        7,
        f"00000001 00 00000007 {BROKER_EPOCH} 01  02 02 74 {ID.hex}"
        f"02 {STATE} 02 00000003 00000005 03 00000003 00000001 02 00000001 01 01 01 00 00"
        "02 00000003 02 68 00000009 00 00",
    ),
    (
        LeaderAndIsrResponse(
            error_code=11,
            partition_errors=[
                LeaderAndIsrPartitionError(topic_name="t", partition_index=2, error_code=56)
            ],
        ),
        3,
        "000b 00000001 0001 74 00000002 0038",
    ),
    (
        LeaderAndIsrResponse(
            topics=[
                LeaderAndIsrTopicError(
                    topic_id=ID,
                    partition_errors=[LeaderAndIsrPartitionError(partition_index=2, error_code=56)],
                )
            ]
        ),
        5,
        f"0000 02 {ID.hex} 02 00000002 0038 00 00 00",
    ),
    (
        StopReplicaRequest(
            controller_id=1,
            controller_epoch=7,
            delete_partitions=True,
            ungrouped_partitions=[StopReplicaPartitionV0(topic_name="t", partition_index=2)],
        ),
        0,
        f"{CONTROLLER} 01 00000001 0001 74 00000002",
    ),
    (
        StopReplicaRequest(
            controller_id=1,
            controller_epoch=7,
            broker_epoch=9,
            topics=[StopReplicaTopicV1(name="t", partition_indexes=[2])],
        ),
        2,
        f"{CONTROLLER} {BROKER_EPOCH} 00 02 02 74 02 00000002 00 00",
    ),
    (
        StopReplicaRequest(
            controller_id=1,
            controller_epoch=7,
            broker_epoch=9,
            topic_states=[
                StopReplicaTopicState(
                    topic_name="t",
                    partition_states=[
                        StopReplicaPartitionState(
                            partition_index=2, leader_epoch=-2, delete_partition=True
                        )
                    ],
                )
            ],
        ),
        4,
        f"00000001 00 00000007 {BROKER_EPOCH} 02 02 74 02 00000002 fffffffe 01 00 00 00",
    ),
    (
        StopReplicaResponse(
            partition_errors=[
                StopReplicaPartitionError(topic_name="t", partition_index=2, error_code=74)
            ]
        ),
        4,
        "0000 02 02 74 00000002 004a 00 00",
    ),
    (
        UpdateMetadataRequest(
            controller_id=1,
            controller_epoch=7,
            ungrouped_partition_states=[metadata_state(topic_name="t")],
            live_brokers=[UpdateMetadataBroker(id=3, v0_host="h", v0_port=9)],
        ),
        0,
        f"{CONTROLLER} 00000001 0001 74 {STATE} 00000001 00000003 00000005"
        "00000002 00000003 00000001  00000001 00000003 0001 68 00000009",
    ),
    (
        UpdateMetadataRequest(
            controller_id=1,
            controller_epoch=7,
            broker_epoch=9,
            topic_states=[
                UpdateMetadataTopicState(
                    topic_name="t",
                    topic_id=ID,
                    partition_states=[metadata_state(offline_replicas=[1])],
                )
            ],
            live_brokers=[
                UpdateMetadataBroker(
                    id=3,
                    endpoints=[
                        UpdateMetadataEndpoint(port=9, host="h", listener="L", security_protocol=3)
                    ],
                    rack="r",
                )
            ],
        ),
        8,
        f"00000001 00 00000007 {BROKER_EPOCH} 02 02 74 {ID.hex}"
        f"02 {STATE} 02 00000003 00000005 03 00000003 00000001 02 00000001 00 00"
        "02 00000003 02 00000009 02 68 02 4c 0003 00 02 72 00 00",
    ),
    (UpdateMetadataResponse(error_code=77), 8, "004d 00"),
    (ControlledShutdownRequest(broker_id=3), 1, "00000003"),
    (ControlledShutdownRequest(broker_id=3, broker_epoch=9), 3, f"00000003 {BROKER_EPOCH} 00"),
    (
        ControlledShutdownResponse(
            remaining_partitions=[RemainingPartition(topic_name="t", partition_index=2)]
        ),
        3,
        "0000 02 02 74 00000002 00 00",
    ),
    (
        AlterPartitionRequest(
            broker_id=3,
            broker_epoch=9,
            topics=[
                AlterPartitionTopicData(
                    topic_name="t",
                    partitions=[
                        AlterPartitionPartitionData(
                            partition_index=2, leader_epoch=4, new_isr=[3], partition_epoch=5
                        )
                    ],
                )
            ],
        ),
        0,
        f"00000003 {BROKER_EPOCH} 02 02 74 02 00000002 00000004 02 00000003 00000005 00 00 00",
    ),
    (
        AlterPartitionResponse(
            topics=[
                AlterPartitionTopicResult(
                    topic_name="t",
                    partitions=[
                        AlterPartitionPartitionResult(
                            partition_index=2,
                            leader_id=3,
                            leader_epoch=4,
                            isr=[3],
                            leader_recovery_state=1,
                            partition_epoch=6,
                        )
                    ],
                )
            ]
        ),
        1,
        "00000000 0000 02 02 74 02 00000002 0000 00000003 00000004 02 00000003 01 0000000600 00 00",
    ),
]


@pytest.mark.parametrize(
    ("message", "version", "data"),
    [pytest.param(*case, id=f"{type(case[0]).__name__}-v{case[1]}") for case in CASES],
)
def test_controller_message_has_the_bytes_of_its_definition(
    message: Message, version: int, data: str
) -> None:
    """Written as by hand, and read back as it was."""
    assert encode(message, version).hex() == bytes.fromhex(data).hex()
    assert decode(type(message), version, bytes.fromhex(data)) == message
