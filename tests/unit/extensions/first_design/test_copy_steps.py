"""Messages of the first design as steps of a copy, and the places between them."""

from __future__ import annotations

import pytest
from byte_logs_world import GZIP, entry, region_of, wrapped

import ottla
from ottla.extensions.first_design import copy_steps
from ottla.extensions.first_design.copy_steps import (
    CopyPlace,
    CopyStep,
    last_place,
    some_of,
    steps_of,
)
from ottla.record.batch_builder import build_batch
from ottla.record.compression import compress


def payloads(steps: list[CopyStep]) -> list[tuple[bytes | None, bytes]]:
    return [(step.payload, step.place.encode()) for step in steps]


def test_places_are_written_and_read():
    """Of other headers none is a place."""
    for place in (CopyPlace(0), CopyPlace(1250), CopyPlace(7, 3)):
        assert CopyPlace.decode(place.encode()) == place
    for other in (None, b"", b"x", b"1/", b"/1", b"-1", b"1/2/3"):
        assert CopyPlace.decode(other) is None


def test_steps_continue_in_the_middle_of_a_set_and_stop_at_a_message_that_is_cut_off():
    """Each gives the place behind it."""
    data = entry(b"a") + wrapped(b"b", b"c", b"d") + entry(b"e")
    after_set = b"%d" % (len(data) - 10)
    whole = [(b"a", b"10"), (b"b", b"10/1"), (b"c", b"10/2"), (b"d", after_set)]
    whole.append((b"e", b"%d" % len(data)))

    assert payloads([*steps_of(region_of(data), CopyPlace())]) == whole
    assert payloads([*steps_of(region_of(data[:-1]), CopyPlace())]) == whole[:-1]
    assert payloads([*steps_of(region_of(data[10:]), CopyPlace(10, 1))]) == whole[2:]
    assert payloads([*steps_of(region_of(data[10:]), CopyPlace(10, 2))]) == whole[3:]


def test_steps_are_taken_some_at_a_time(monkeypatch):
    """By their number and by their bytes, so that no batch is very large."""
    monkeypatch.setattr(copy_steps, "MOST_RECORDS", 2)
    monkeypatch.setattr(copy_steps, "MOST_RECORD_BYTES", 3)
    payloads = (b"a", b"b", b"ccc", None)
    steps = iter([CopyStep(CopyPlace(1), payload) for payload in payloads])

    assert [len(some_of(steps)) for _ in range(4)] == [2, 1, 1, 0]


def test_damaged_messages_are_steps_that_say_so():
    """With a length that can be, the next message is found; else those before are copied first."""
    damaged = bytearray(entry(b"b"))
    damaged[-1] ^= 1
    steps = [*steps_of(region_of(entry(b"a") + damaged + entry(b"c")), CopyPlace())]
    assert payloads(steps) == [(b"a", b"10"), (None, b"20"), (b"c", b"30")]
    assert "position 10" in steps[1].problem
    nested = wrapped(b"x")
    inner = entry(compress(GZIP, nested), 1, GZIP)
    assert "not one of messages" in next(steps_of(region_of(inner), CopyPlace())).problem
    zeros = entry(b"a") + bytes(8)
    assert payloads([*steps_of(region_of(zeros), CopyPlace())]) == [(b"a", b"10")]
    with pytest.raises(ottla.KafkaError, match="no message begins at 10"):
        list(steps_of(region_of(bytes(8)), CopyPlace(10)))


def test_set_that_decompresses_to_very_much_is_left_out(monkeypatch):
    """A few bytes may stand for very many."""
    monkeypatch.setattr(copy_steps, "MAX_SET_BYTES", 100)
    steps = [*steps_of(region_of(wrapped(b"x" * 200) + entry(b"a")), CopyPlace())]

    assert [step.payload for step in steps] == [None, b"a"]
    assert "limit of 100 bytes" in steps[0].problem


def test_last_place_is_that_of_the_last_record_that_has_one():
    """Records of others, and of other brokers' messages, stand between them."""
    header = [(("next.id.7", b"10"),), (), (("next.id.7", b"no"),), (("next.id.8", b"20"),)]
    batch = build_batch([(0, None, b"v", headers) for headers in header], base_offset=5)

    assert last_place(region_of(batch), 5, "next.id.7") == (CopyPlace(10), 9)
    assert last_place(region_of(b""), 5, "next.id.7") == (None, 5)
