"""The generated functions can be looked at, and errors say which field they are about."""

from __future__ import annotations

import inspect
import traceback

import pytest

from ottla.errors import RemoteProtocolError
from ottla.protocol.codegen import FunctionSource, constructor, field_at_fault
from ottla.protocol.group import HeartbeatRequest
from ottla.protocol.message import Struct, decode
from ottla.protocol.produce import ProduceRequest


def test_codec_is_made_once_for_a_version() -> None:
    """The codec is made on first use; then the same function serves."""
    assert ProduceRequest.decoders[3] is ProduceRequest.decoders[3]
    assert ProduceRequest.decoders[3] is not ProduceRequest.decoders[4]


def test_generated_source_can_be_inspected() -> None:
    """It is straight-line code: fixed-size fields beside each other are read in one go."""
    source = inspect.getsource(ProduceRequest.decoders[7])

    assert "m.acks, m.timeout_ms, n2 = unpack_hii(data, pos)" in source


def test_traceback_shows_the_generated_line() -> None:
    """Where the bytes did not fit."""
    with pytest.raises(RemoteProtocolError) as raised:
        decode(HeartbeatRequest, 0, b"\0\1\xff\0\0\0\1\0\1m")

    cause = raised.value.__cause__
    assert cause is not None
    assert "m.group_id = data[pos:stop].decode()" in "".join(traceback.format_exception(cause))


def test_constructor_knows_the_parameters() -> None:
    """Tools that inspect it see the fields."""
    parameters = inspect.signature(constructor(HeartbeatRequest)).parameters

    assert list(parameters) == [
        "self",
        "group_id",
        "generation_id",
        "member_id",
        "group_instance_id",
    ]


def test_struct_without_fields_can_be_made() -> None:
    """Some messages have none in any version."""

    class Nothing(Struct):
        """A struct without fields."""

    assert Nothing() == Nothing()


def test_line_knows_the_field_it_works_on() -> None:
    """Nested fields are named by their path."""
    source = FunctionSource("fail", "x")
    with source.inside("topics"), source.inside("name"):
        source.line("return x['missing']")
    function = source.compile("<ottla test>")

    with pytest.raises(KeyError) as raised:
        function({})

    assert field_at_fault(raised.value) == "topics.name"


def test_error_outside_generated_code_has_no_field() -> None:
    """Then there is nothing to name."""
    with pytest.raises(KeyError) as raised:
        {}["missing"]

    assert field_at_fault(raised.value) == ""
