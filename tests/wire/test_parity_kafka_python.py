"""The bytes of every message and version against those that kafka-python makes and reads."""

from __future__ import annotations

from itertools import chain
from typing import Any
from uuid import UUID

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
import pytest
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

from ottla.protocol.__main__ import messages
from ottla.protocol.api_versions import ApiVersionsResponse
from ottla.protocol.header import decode_request_header, encode_request, encode_response
from ottla.protocol.message import Message, Request, decode, encode, join
from ottla.protocol.metadata_records import METADATA_RECORDS
from ottla.protocol.offsets_topic import VALUES
from ottla.protocol.types import Array
from ottla.structs import NO_UUID

EXAMPLES = 6
ROOMS = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
)
PEERS = dict(chain.from_iterable(vars(room).items() for room in ROOMS)) | {
    "ConsumerProtocolAssignment": ConsumerProtocolAssignment,
    "ConsumerProtocolSubscription": ConsumerProtocolSubscription,
}
# Stored by brokers, never sent: no client knows them. test_hand_checked.py has their bytes. And
# delegation tokens, telemetry and the protocol of KIP-848, which this client does not speak; kio
# has them.
WITHOUT_PEER = {
    *(key.__name__ for key in VALUES),
    *(value.__name__ for value in VALUES.values()),
    *(record.__name__ for record in METADATA_RECORDS.values()),
    *(
        f"{api}{kind}"
        for api in ("LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown")
        for kind in ("Request", "Response")
    ),
    *(
        f"{api}DelegationToken{kind}"
        for api in ("Create", "Renew", "Expire", "Describe")
        for kind in ("Request", "Response")
    ),
    *(
        f"{api}{kind}"
        for api in ("GetTelemetrySubscriptions", "PushTelemetry")
        for kind in ("Request", "Response")
    ),
    "AlterPartitionRequest",
    "AlterPartitionResponse",
    "TransactionLogKey",
    "TransactionLogValue",
    "PartitionsSchema",  # a part of that value, which is encoded by itself
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
}
# Versions that only brokers before 4.0 speak to each other, or that Kafka 4.4 brought (KIP-1319);
# these have hand-made bytes as well.
UNKNOWN_TO_PEER = {
    "TxnOffsetCommitRequest": (6,),
    "TxnOffsetCommitResponse": (6,),
    "WriteTxnMarkersRequest": range(1),
    "WriteTxnMarkersResponse": range(1),
    "OffsetForLeaderEpochRequest": range(2),
    "OffsetForLeaderEpochResponse": range(2),
}
CASES = [
    pytest.param(cls, version, id=f"{cls.__name__}-v{version}")
    for cls in messages().values()
    if cls.__name__ not in WITHOUT_PEER
    for version in range(cls.min_version, cls.max_version + 1)
    if version not in UNKNOWN_TO_PEER.get(cls.__name__, ())
]


def read_by_peer(cls: type[Message], version: int, data: bytes) -> Any:
    peer = PEERS[cls.__name__]
    if not hasattr(cls, "api_key"):
        return peer.decode(data, version=version, header=False)
    message = peer.decode(data, version=version)
    message._header = None
    return message


def written_by_peer(cls: type[Message], version: int, message: Any) -> bytes:
    if not hasattr(cls, "api_key"):
        return bytes(message.encode(version=version, header=False))
    return bytes(message.encode(version=version))


def assert_same(ours: Any, theirs: Any, type: Any, version: int) -> None:
    if hasattr(type, "fields") and (ours is None or theirs is None):
        # A tagged struct is absent where all of its fields have their defaults.
        assert (ours or type()) == type()
    elif ours is None:
        assert theirs is None
    elif isinstance(type, Array):
        assert len(ours) == len(theirs)
        for our_item, their_item in zip(ours, theirs, strict=True):
            assert_same(our_item, their_item, type.element, version)
    elif hasattr(type, "fields"):
        for field in type.fields:
            # It has these as sets of operations, under another name.
            if version in field.versions and not field.name.endswith("authorized_operations"):
                name = field.name
                assert_same(getattr(ours, name), getattr(theirs, name), field.type, version)
    elif isinstance(ours, UUID):
        assert ours == (theirs or NO_UUID)
    else:
        assert ours == theirs


@pytest.mark.parametrize(("cls", "version"), CASES)
def test_message_is_the_same_to_kafka_python(cls: type[Message], version: int, fill: Any) -> None:
    """Both sides read the same values from the bytes, and both write the same bytes for them."""
    for seed in range(EXAMPLES):
        message = fill(cls, version, seed)
        if isinstance(message, ApiVersionsResponse):
            message.error_code = 0  # It takes any answer with an error for v0.
        data = encode(message, version)

        peer_message = read_by_peer(cls, version, data)

        assert_same(message, peer_message, cls, version)
        written = written_by_peer(cls, version, peer_message)
        assert written == data
        again = decode(cls, version, written)
        assert encode(again, version) == data


@pytest.mark.parametrize(
    ("cls", "version"), [case for case in CASES if issubclass(case.values[0], Request)]
)
def test_frames_are_the_same_to_kafka_python(cls: type[Request], version: int, fill: Any) -> None:
    """Size and header of request and response are those that kafka-python makes."""
    request, response = fill(cls, version, 1), fill(cls.response_class, version, 2)
    if isinstance(response, ApiVersionsResponse):
        response.error_code = 0
    peer_request = read_by_peer(cls, version, encode(request, version))
    peer_request.with_header(correlation_id=77, client_id="clientë")
    peer_response = read_by_peer(cls.response_class, version, encode(response, version))
    peer_response.API_VERSION = version
    peer_response.with_header(correlation_id=77)

    frame = encode_request(version, 77, "clientë", request)
    header, _ = decode_request_header(frame[4:])
    answer = join(encode_response(header, response))

    assert frame == peer_request.encode(version=version, header=True, framed=True)
    assert answer == peer_response.encode(header=True, framed=True)


def test_every_message_has_a_peer_or_is_known_to_have_none() -> None:
    """A message added later is compared too, or named in WITHOUT_PEER."""
    assert set(messages()) - set(PEERS) == WITHOUT_PEER
