"""Message sets, coders, and the filters of topics."""

from __future__ import annotations

import zlib

import pytest

from ottla.clients.legacy import (
    Blacklist,
    DefaultEncoder,
    Message,
    MessageSet,
    StringDecoder,
    StringEncoder,
    Whitelist,
)
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.record.batch_builder import build_batch, build_end_transaction_marker
from ottla.record.control_record import ControlRecordType, EndTransactionMarker
from ottla.record.record_batch import assign_offset


def batch(base_offset: int, *values: bytes) -> bytes:
    return build_batch([(1000, None, value, ()) for value in values], base_offset=base_offset)


def test_a_message_set_begins_at_the_offset_that_was_asked_for():
    """A batch is not cut on its way; what stands before the offset is passed over."""
    messages = MessageSet(batch(10, b"a", b"b", b"c") + batch(13, b"d"), 11)

    assert [(m.message.payload, m.offset, m.next_offset) for m in messages] == [
        (b"b", 11, 12),
        (b"c", 12, 13),
        (b"d", 13, 14),
    ]
    assert messages.next_offset == 14


@pytest.mark.parametrize("offset", [2, 3])
def test_batches_before_the_offset_and_markers_of_transactions_are_passed_over(offset):
    """A set goes on behind a marker, and does not look at what was read before."""
    damaged = bytearray(batch(0, b"old", b"old"))
    damaged[-2] ^= 1
    commit = EndTransactionMarker(ControlRecordType.COMMIT, 0)
    marker = bytearray(build_end_transaction_marker(commit, 1000, 7, 0))
    assign_offset(marker, 0, 4, 0)
    messages = MessageSet(bytes(damaged) + batch(2, b"a", b"b") + bytes(marker), offset)

    assert [m.message.payload for m in messages] == [b"a", b"b"][offset - 2 :]
    assert messages.next_offset == 5
    assert messages.error_code == 0


@pytest.mark.parametrize(
    ("message", "size"),
    [
        (Message(None), 0),
        (Message(b"abc"), 3),
        (Message(None, b"k"), 1),
        (Message(b"abc", b"key"), 6),
    ],
)
def test_size_of_a_message_is_that_of_its_key_and_payload(message, size):
    """A message without a payload has the checksum of nothing."""
    assert message.size == size
    assert message.checksum == zlib.crc32(b"abc" if message.payload else b"")


def test_a_batch_that_is_cut_off_is_left_out():
    """The next fetch brings it whole."""
    data = batch(0, b"a") + batch(1, b"b")[:-1]
    messages = MessageSet(data, 0)

    assert [m.message.payload for m in messages] == [b"a"]
    assert messages.next_offset == 1
    assert messages.valid_bytes == len(batch(0, b"a")) < messages.size_in_bytes == len(data)


def test_an_empty_set_goes_on_where_it_began():
    """Nothing there means: ask again for the same offset."""
    messages = MessageSet(b"", 7)

    assert list(messages) == []
    assert messages.next_offset == 7


def test_the_error_of_a_fetch_is_raised_when_the_set_is_read():
    """One bad partition does not spoil the others of a multifetch."""
    error = KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "offset 9")
    messages = MessageSet(b"", 9, error)

    assert messages.error_code == 1
    with pytest.raises(KafkaError, match="offset 9"):
        list(messages)


def test_damage_is_found_when_the_set_is_read():
    """The CRC of a batch is checked before its messages are handed out."""
    data = bytearray(batch(0, b"abc"))
    data[-2] ^= 1

    with pytest.raises(KafkaError, match="CRC"):
        list(MessageSet(data, 0))


def test_coders_turn_data_into_messages_and_back():
    """Text is UTF-8; without a coder a message is what it is."""
    message = StringEncoder().to_message("grün")

    assert StringDecoder().to_event(message) == "grün"
    assert StringDecoder().to_event(Message(None)) is None
    assert DefaultEncoder().to_message(message) is message
    assert DefaultEncoder().to_message(b"x") == Message(b"x")
    assert DefaultEncoder().to_message(None) == Message(None)
    assert message.checksum == zlib.crc32("grün".encode())
    with pytest.raises(KafkaError, match=r"serializer\.class"):
        DefaultEncoder().to_message(7)


def test_filters_are_lists_of_patterns():
    """Commas separate them, blanks and quotes drop out."""
    assert Whitelist(" 'web, mail.*' ").matching(["web", "mail-1", "webs"]) == ["mail-1", "web"]
    assert Blacklist("web,mail.*").matching(["web", "mail-1", "webs"]) == ["webs"]
    assert not Blacklist("web").is_topic_allowed("__consumer_offsets")
    assert Blacklist("web").is_topic_allowed("__consumer_offsets", exclude_internal_topics=False)


def test_a_filter_that_is_no_pattern_is_refused():
    """Before anything is asked of ZooKeeper."""
    with pytest.raises(ConfigError, match=r"topic filter 'a\('"):
        Whitelist("a(")
