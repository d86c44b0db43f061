"""Topics that a request gives by their ids get the names that the broker knows."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.message import Struct, request_class
from ottla.protocol.offsets import OffsetCommitRequestTopic
from ottla.server.handlers.named_topics import (
    FIRST_VERSIONS,
    UNRESOLVED,
    name_topics,
    unknown_error,
)
from ottla.structs import NO_UUID

KNOWN = UUID(int=1)


@pytest.mark.parametrize("key", FIRST_VERSIONS)
def test_first_versions_are_those_of_the_messages(key):
    """The first in which the topics of a request have ids."""
    request = request_class(key)
    (first,) = {
        field.versions.first
        for struct in structs_of(request)
        for field in struct.fields
        if field.name == "topic_id"
    }

    assert FIRST_VERSIONS[key] == first


def structs_of(struct):
    """A message and the structs in it."""
    yield struct
    for field in struct.fields:
        element = getattr(field.type, "element", None)
        if isinstance(element, type) and issubclass(element, Struct):
            yield from structs_of(element)


def test_ids_are_replaced_by_names_and_names_stay():
    """One that was found, or not found, before stays: the check of rights was about that."""
    topics = [
        OffsetCommitRequestTopic(topic_id=KNOWN),
        OffsetCommitRequestTopic(topic_id=KNOWN, name=UNRESOLVED),
        OffsetCommitRequestTopic(topic_id=KNOWN, name="other"),
        OffsetCommitRequestTopic(topic_id=UUID(int=2)),
        OffsetCommitRequestTopic(topic_id=NO_UUID, name="named"),
        OffsetCommitRequestTopic(topic_id=NO_UUID),
    ]
    name_topics(topics, {KNOWN: "mine"}.get)

    assert [topic.name for topic in topics] == [
        "mine",
        UNRESOLVED,
        "other",
        UNRESOLVED,
        "named",
        UNRESOLVED,
    ]


@pytest.mark.parametrize(
    ("name", "has_ids", "error"),
    [
        (UNRESOLVED, True, ErrorCode.UNKNOWN_TOPIC_ID),
        ("mine", True, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("other", False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (UNRESOLVED, False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_error_names_what_the_client_has_given(name, has_ids, error):
    """A partition that a known topic lacks is unknown by its number."""
    assert unknown_error(name, has_ids=has_ids) is error
