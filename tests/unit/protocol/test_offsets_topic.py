"""Keys of `__consumer_offsets`."""

from __future__ import annotations

import pytest

from ottla.errors import RemoteProtocolError
from ottla.protocol.message import encode_versioned
from ottla.protocol.offsets_topic import GroupMetadataKey, OffsetCommitKey, decode_key


@pytest.mark.parametrize("version", [0, 1])
def test_key_of_an_offset_is_told_by_its_version(version: int) -> None:
    """Keys of versions 0 and 1 are those of offsets."""
    key = OffsetCommitKey(group="g", topic="t", partition=3)

    assert decode_key(encode_versioned(key, version)) == key


def test_key_of_a_group_is_told_by_its_version() -> None:
    """Keys of version 2 are those of groups."""
    key = GroupMetadataKey(group="g")

    assert decode_key(memoryview(encode_versioned(key, 2))) == key


def test_key_of_another_kind_is_none() -> None:
    """Those of newer group protocols, which a loader must step over (KIP-848)."""
    assert decode_key(b"\0\x09\0\1g") is None
    assert decode_key(b"\0\x7fwhatever") is None


@pytest.mark.parametrize("data", [b"\0\1\0\1g", b"\0\2", b"\0\2\0\1g!"])
def test_broken_key_is_refused(data: bytes) -> None:
    """It says which key it was to be."""
    with pytest.raises(RemoteProtocolError, match="Key v"):
        decode_key(data)
