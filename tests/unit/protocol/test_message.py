"""Message objects, and what encoding and decoding refuse."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from ottla.protocol.api_keys import MESSAGES, ApiKey
from ottla.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.protocol.group import HeartbeatRequest, JoinGroupResponse, ListGroupsRequest
from ottla.protocol.message import (
    Request,
    Response,
    decode,
    decode_versioned,
    encode,
    encode_versioned,
    request_class,
)
from ottla.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.offsets_topic import OffsetCommitKey
from ottla.protocol.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.topics import CreatableTopicResult, CreateTopicsResponse
from ottla.protocol.types import String, field

# Values of the wrong type, which a type checker must not see as such.
NOTHING: Any = None
HALF: Any = 1.5
BYTES: Any = b"g"


def test_message_starts_with_its_defaults() -> None:
    """Lists are new ones for each message."""
    first, second = FetchRequest(), FetchRequest(max_wait_ms=5)
    first.topics.append(FetchTopic())

    assert (first.max_bytes, first.rack_id, first.replica_state) == (0x7FFFFFFF, "", None)
    assert (second.max_wait_ms, second.topics) == (5, [])


def test_message_has_no_other_attributes() -> None:
    """A misspelt field is an error, in the constructor and later."""
    with pytest.raises(TypeError, match="max_wait"):
        FetchRequest(max_wait=5)
    with pytest.raises(AttributeError):
        FetchRequest().max_wait = 5


def test_messages_compare_by_value() -> None:
    """Equal fields make equal messages, of the same class only; they cannot be hashed."""
    assert FetchTopic(topic="a") == FetchTopic(topic="a")
    assert FetchTopic(topic="a") != FetchTopic(topic="b")
    assert FetchTopic() != ForgottenTopic()
    with pytest.raises(TypeError):
        hash(FetchTopic())


def test_message_shows_what_differs_from_the_defaults() -> None:
    """Records are not shown, they may be large."""
    message = TopicProduceData(
        name="t", partition_data=[PartitionProduceData(index=1, records=b"x" * 1000)]
    )

    assert repr(message) == (
        "TopicProduceData(name='t', "
        "partition_data=[PartitionProduceData(index=1, records=<records>)])"
    )


def test_every_api_has_a_request_and_a_response() -> None:
    """They name each other, and agree on key, versions and flexibility."""
    for key in MESSAGES:
        request = request_class(key)
        response = request.response_class
        assert request.api_key is response.api_key is ApiKey(key)
        assert request.versions == response.versions
        assert request.flexible == response.flexible
        assert request.__name__.removesuffix("Request") == response.__name__.removesuffix(
            "Response"
        )


def test_api_key_without_messages_is_refused() -> None:
    """The error is the one that a server answers with or closes on."""
    with pytest.raises(RemoteProtocolError, match="API key 999") as raised:
        request_class(999)
    assert raised.value.error is ErrorCode.UNSUPPORTED_VERSION


def test_version_outside_the_range_is_whose_fault_it_is() -> None:
    """Encoding it is ours, decoding it the peer's; both say which versions there are."""
    with pytest.raises(LocalProtocolError, match=r"ProduceRequest has versions 0-13, not 14"):
        encode(ProduceRequest(), 14)
    with pytest.raises(RemoteProtocolError, match=r"ProduceRequest has versions 0-13, not -1") as e:
        decode(ProduceRequest, -1, b"")
    assert e.value.error is ErrorCode.UNSUPPORTED_VERSION


def test_field_that_a_version_lacks_decodes_to_its_default() -> None:
    """Handlers need not ask for the version to read a field."""
    data = encode(FetchRequest(max_wait_ms=1), 0)

    message = decode(FetchRequest, 0, data)

    assert message == FetchRequest(max_wait_ms=1)


def test_value_that_a_version_cannot_express_is_refused() -> None:
    """Dropping it silently would change the meaning."""
    message = HeartbeatRequest(group_id="g", group_instance_id="i")

    with pytest.raises(
        LocalProtocolError, match="HeartbeatRequest v2: group_instance_id: 'i' has no place"
    ):
        encode(message, 2)


def test_ignorable_value_is_dropped_where_a_version_lacks_it() -> None:
    """Throttle time and hints are only for those who understand them."""
    partition = PartitionProduceResponse(
        index=1, log_start_offset=7, current_leader=LeaderIdAndEpoch(leader_id=2)
    )
    message = ProduceResponse(
        responses=[TopicProduceResponse(partition_responses=[partition])], throttle_time_ms=9
    )

    assert decode(ProduceResponse, 0, encode(message, 0)).responses == [
        TopicProduceResponse(partition_responses=[PartitionProduceResponse(index=1)])
    ]


@pytest.mark.parametrize(
    ("message", "version", "told"),
    [
        (MetadataRequest(topics=None), 0, "topics: null where"),
        (JoinGroupResponse(protocol_name=None), 6, "protocol_name: null where"),
        (ProduceRequest(acks=NOTHING), 3, "acks, timeout_ms, topic_data: required argument"),
        (ProduceRequest(acks=40000), 3, "acks, timeout_ms, topic_data: "),
        (ProduceRequest(timeout_ms=HALF), 9, "acks, timeout_ms, topic_data: "),
        (HeartbeatRequest(group_id="x" * 32768), 0, "group_id: "),
        (HeartbeatRequest(group_id="x" * 32768), 4, "group_id: a string of 32768 bytes"),
        (HeartbeatRequest(group_id="\ud800"), 0, r"group_id: '\ud800' is no text"),
        (HeartbeatRequest(group_id=BYTES), 0, "group_id: "),
    ],
)
def test_value_that_does_not_fit_is_our_fault(message: Any, version: int, told: str) -> None:
    """The error names message, version and field."""
    with pytest.raises(LocalProtocolError) as raised:
        encode(message, version)

    assert f"{type(message).__name__} v{version}: {told}" in str(raised.value)


@pytest.mark.parametrize(
    ("cls", "version", "data", "told"),
    [
        (HeartbeatRequest, 0, b"\0\1g\0", "generation_id, member_id: it ends too early"),
        (HeartbeatRequest, 0, b"\xff\xff\0\0\0\1\0\1m", "group_id: null where"),
        (HeartbeatRequest, 0, b"\xff\xfe\0\0\0\1\0\1m", "group_id: length -2 is negative"),
        (HeartbeatRequest, 0, b"\0\1\xff\0\0\0\1\0\1m", "group_id: 'utf-8' codec"),
        (HeartbeatRequest, 3, b"\0\0\0\0\0\1\0\1m\xff\xfe", "group_instance_id: length -2"),
        (HeartbeatRequest, 4, b"\0\0\0\0\1\2m\0\0", "group_id: null where"),
        (HeartbeatRequest, 4, b"\x80\0", "group_id: null in a varint of several bytes"),
        (HeartbeatRequest, 4, b"\xff\xff\xff\xff\xff\1", "group_id: a varint is longer than 5"),
        (HeartbeatRequest, 4, b"\xff\xff\xff\xff\x7f", "group_id: the varint 34359738367"),
        (HeartbeatRequest, 4, b"\x82\x80\x02" + bytes(32769), "group_id: a string of 32769 bytes"),
        (MetadataRequest, 0, b"\xff\xff\xff\xff", "topics: null where"),
        (MetadataRequest, 1, b"\xff\xff\xff\xfe", "topics: length -2 is negative"),
        (MetadataRequest, 1, b"\x7f\xff\xff\xff", "topics: 2147483647 elements announced"),
        (MetadataRequest, 9, b"\xff\xff\xff\xff\x0f", "topics: 4294967294 elements announced"),
        (ListGroupsRequest, 3, b"\xff\xff\xff\xff\x0f", "4294967295 tagged fields announced"),
        (ListGroupsRequest, 3, b"\1\5\x7fxx", "tag 5 has 127 bytes, but only 2 follow"),
    ],
)
def test_bytes_that_do_not_fit_are_the_peers_fault(
    cls: Any, version: int, data: bytes, told: str
) -> None:
    """The error names message, version, mostly the field, and the rule."""
    with pytest.raises(RemoteProtocolError) as raised:
        decode(cls, version, data)

    assert f"{cls.__name__} v{version}: {told}" in str(raised.value)


@pytest.mark.parametrize("version", [8, 9])
def test_elements_of_arrays_count_alike_in_compact_versions(version: int) -> None:
    """Those of all arrays together; an array by itself is none, whichever way its size is sent."""
    partitions = [PartitionProduceData(index=n) for n in range(3)]
    topics = [TopicProduceData(name="t", partition_data=partitions)] * 2
    data = encode(ProduceRequest(topic_data=topics), version)

    assert len(decode(ProduceRequest, version, data, most=8).topic_data) == 2
    with pytest.raises(RemoteProtocolError, match="3 elements announced, but only 2 more"):
        decode(ProduceRequest, version, data, most=7)


def test_known_tag_with_another_size_is_refused() -> None:
    """A tagged field must fill the size that it announces."""
    data = encode(FetchRequest(cluster_id="abc"), 12)
    assert data.endswith(b"\1\0\4\4abc")

    with pytest.raises(RemoteProtocolError, match="cluster_id: tag 0 is 1 bytes off"):
        decode(FetchRequest, 12, data[:-6] + b"\0\5\4abc\0")


def test_tagged_fields_come_in_any_order() -> None:
    """They are written by ascending tag, and read as they come; the last one counts."""
    tags = b"\3" + b"\1\x0d" + bytes(3) + b"\5" + bytes(8) + b"\0" + b"\0\2\2a" + b"\0\2\2b"
    data = encode(FetchRequest(), 15)

    message = decode(FetchRequest, 15, data[:-1] + tags)

    assert message.cluster_id == "b"
    assert message.replica_state is not None
    assert message.replica_state.replica_id == 5


def test_unknown_tags_are_skipped_in_nested_structs() -> None:
    """A newer peer may add tagged fields anywhere."""
    message = FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=1)])])
    data = encode(message, 12)
    partition_end = data.index(bytes([0, 0, 0, 0]) + b"\0\0\1\1\0")
    assert data[partition_end + 4 :] == b"\0\0\1\1\0"

    grown = data[: partition_end + 4] + b"\1\x63\3abc" + data[partition_end + 5 :]

    assert decode(FetchRequest, 12, grown) == message


def test_struct_of_defaults_is_not_written() -> None:
    """A tagged field that has its default is left out, so a struct of defaults is."""
    partition = PartitionProduceResponse(current_leader=LeaderIdAndEpoch())
    bare = ProduceResponse(
        responses=[TopicProduceResponse(partition_responses=[PartitionProduceResponse()])]
    )
    message = ProduceResponse(responses=[TopicProduceResponse(partition_responses=[partition])])

    assert encode(message, 10) == encode(bare, 10)


def test_uuid_is_sixteen_bytes() -> None:
    """It is written as it is, and read back as a UUID."""
    topic_id = UUID("12345678-1234-5678-1234-567812345678")
    message = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)])

    data = encode(message, 12)

    assert data == b"\2" + topic_id.bytes + b"\0\0" + b"\1\0\0"
    assert decode(MetadataRequest, 12, data) == message


def test_decode_reads_from_a_position() -> None:
    """A header may come before the message."""
    message = MetadataResponse(cluster_id="c")
    data = encode(message, 5)

    assert decode(MetadataResponse, 5, memoryview(b"header" + data), 6) == message


def test_versioned_message_carries_its_version() -> None:
    """The reader needs to be told no version."""
    key = OffsetCommitKey(group="g", topic="t", partition=1)

    data = encode_versioned(key, 1)

    assert data[:2] == b"\0\1"
    assert decode_versioned(OffsetCommitKey, data) == key


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\2\0\1g", b"\xff\xff\0\1g"])
def test_versioned_message_of_another_version_is_refused(data: bytes) -> None:
    """A message without any version is refused as well."""
    with pytest.raises(RemoteProtocolError, match="OffsetCommitKey"):
        decode_versioned(OffsetCommitKey, data)


def test_request_without_a_key_is_not_registered() -> None:
    """A base class for requests of one family is possible."""

    class FamilyRequest(Request):
        """A base of other requests."""

    assert FamilyRequest.versions == (1, 0)


def test_object_of_a_base_leaves_its_classes_their_constructors():
    """An answer without fields may be made before any other answer is."""

    class Told(Response, versions="0"):
        name: str = field(String)

    assert repr(Response()) == "Response()"
    assert Told(name="x").name == "x"


@pytest.mark.parametrize("letter", ["x", "é", "\U0001f600"])
@pytest.mark.parametrize("version", [5, 1], ids=["flexible", "before"])
def test_text_of_an_error_is_cut_to_fit(version, letter):
    """It may name whatever a peer has sent."""
    topic = CreatableTopicResult(name="t", error_code=1, error_message=letter * 40_000)
    data = encode(CreateTopicsResponse(topics=[topic]), version)
    (found,) = decode(CreateTopicsResponse, version, data).topics

    assert found.error_message == letter * 1000


@pytest.mark.parametrize("name", ["\udcff", "caf\udce9", "\ud800" * 5000])
def test_text_that_utf_8_does_not_have_is_shown(name):
    """A shell hands on any bytes as a name; the words of a codec would not say which."""
    request = HeartbeatRequest(group_id=name, generation_id=1, member_id="m")

    with pytest.raises(LocalProtocolError) as raised:
        encode(request, 2)

    assert raised.value.message.startswith("HeartbeatRequest v2: group_id: '")
    assert raised.value.message.endswith("' is no text of UTF-8")
    assert len(raised.value.message) < 1000
