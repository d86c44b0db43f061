"""The bytes of every message and version that Kafka 4 still has against those that kio makes."""

from __future__ import annotations

import io
import re
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from kio.serial import entity_reader, entity_writer

from ottla.protocol.__main__ import messages
from ottla.protocol.message import Message, decode, encode
from ottla.protocol.metadata_records import METADATA_RECORDS
from ottla.protocol.offsets_topic import VALUES
from ottla.protocol.types import Array
from ottla.structs import NO_UUID

EXAMPLES = 4
EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
# kio follows Kafka 4.0, which dropped these versions (KIP-896), and has no message of the brokers'
# own topics. kafka-python reads and writes the former; test_hand_checked.py has the latter.
NOT_IN_KIO = {
    "DescribeLogDirsRequest": range(1),
    "DescribeLogDirsResponse": range(1),
    **{
        f"{api}Acls{kind}": range(1)
        for api in ("Describe", "Create", "Delete")
        for kind in ("Request", "Response")
    },
    **{
        f"{api}DelegationToken{kind}": range(1)
        for api in ("Create", "Renew", "Expire", "Describe")
        for kind in ("Request", "Response")
    },
    "ProduceRequest": range(3),
    "ProduceResponse": range(3),
    "FetchRequest": range(4),
    "FetchResponse": range(4),
    "ListOffsetsRequest": range(1),
    "ListOffsetsResponse": range(1),
    "OffsetCommitRequest": range(2),
    "OffsetCommitResponse": range(2),
    "OffsetFetchRequest": range(1),
    "OffsetFetchResponse": range(1),
    "CreateTopicsRequest": range(2),
    "CreateTopicsResponse": range(2),
    "DeleteTopicsRequest": range(1),
    "DeleteTopicsResponse": range(1),
    "DescribeConfigsRequest": range(1),
    "DescribeConfigsResponse": range(1),
    "WriteTxnMarkersRequest": range(1),
    "WriteTxnMarkersResponse": range(1),
    "OffsetForLeaderEpochRequest": range(2),
    "OffsetForLeaderEpochResponse": range(2),
    "LeaderAndIsrRequest": range(8),
    "LeaderAndIsrResponse": range(8),
    "StopReplicaRequest": range(5),
    "StopReplicaResponse": range(5),
    "UpdateMetadataRequest": range(9),
    "UpdateMetadataResponse": range(9),
    "ControlledShutdownRequest": range(1, 4),
    "ControlledShutdownResponse": range(1, 4),
    "TxnOffsetCommitRequest": (6,),  # of Kafka 4.4 (KIP-1319)
    "TxnOffsetCommitResponse": (6,),
    "AlterPartitionRequest": range(2),
    "AlterPartitionResponse": range(2),
    "TransactionLogKey": range(1),
    "TransactionLogValue": range(2),
    "PartitionsSchema": range(2),  # a part of that value
    "OffsetCommitValue": range(5),
    "GroupMetadataValue": range(5),
    **{key.__name__: range(key.min_version, key.max_version + 1) for key in VALUES},
    **{value.__name__: range(1) for value in VALUES.values() if value.max_version == 0},
    **{record.__name__: range(1) for record in METADATA_RECORDS.values()},
}
CASES = [
    pytest.param(cls, version, id=f"{name}-v{version}")
    for name, cls in messages().items()
    for version in range(cls.min_version, cls.max_version + 1)
    if version not in NOT_IN_KIO.get(name, ())
]


def peer_class(cls: type[Message], version: int) -> Any:
    name = cls.__name__
    kind = re.sub(r".*(Request|Response)$", r"\1", name).lower()
    api = name if kind == name.lower() else name.removesuffix(kind.capitalize())
    folder = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", api).lower()
    module = "data" if kind == name.lower() else kind
    return getattr(import_module(f"kio.schema.{folder}.v{version}.{module}"), name)


def plain(value: Any) -> Any:
    """A value of kio as the number or the UUID that is on the wire."""
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(milliseconds=1)
    return value


def assert_same(ours: Any, theirs: Any, type: Any, version: int) -> None:
    if hasattr(type, "fields") and theirs is None:
        assert ours is None
    elif hasattr(type, "fields"):
        ours = ours or type()
        for field in type.fields:
            if version in field.versions:
                name = field.name if hasattr(theirs, field.name) else field.name[: -len("_ms")]
                assert_same(getattr(ours, field.name), getattr(theirs, name), field.type, version)
    elif isinstance(type, Array) and ours is not None:
        assert len(ours) == len(theirs)
        for our_item, their_item in zip(ours, theirs, strict=True):
            assert_same(our_item, their_item, type.element, version)
    elif isinstance(ours, UUID):
        assert ours == (theirs or NO_UUID)
    else:
        assert ours == plain(theirs)


@pytest.mark.parametrize(("cls", "version"), CASES)
def test_message_is_the_same_to_kio(cls: type[Message], version: int, fill: Any) -> None:
    """Both sides read the same values from the bytes, and both write the same bytes for them."""
    peer = peer_class(cls, version)
    read, write = entity_reader(peer), entity_writer(peer)
    for seed in range(EXAMPLES):
        message = fill(cls, version, 1000 + seed)
        data = encode(message, version)

        peer_message, size = read(data, 0)

        assert size == len(data)
        assert_same(message, peer_message, cls, version)
        written = io.BytesIO()
        write(written, peer_message)
        assert written.getvalue() == data
        assert encode(decode(cls, version, written.getvalue()), version) == data


@pytest.mark.parametrize("kind", ["Request", "Response"])
@pytest.mark.parametrize("api", ["Create", "Renew", "Expire", "Describe"])
def test_first_version_of_delegation_tokens_is_as_the_second(
    api: str, kind: str, fill: Any
) -> None:
    """No library has it: Kafka's schema says that v1 is the same."""
    cls = messages()[f"{api}DelegationToken{kind}"]
    message = fill(cls, 0, 1)

    assert encode(message, 0) == encode(message, 1)
    assert decode(cls, 0, encode(message, 0)) == message
