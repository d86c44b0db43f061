"""Producer snapshots: bytes built by hand, round trip, and damage at every byte."""

from __future__ import annotations

import random
import struct

import pytest
from breadth import some
from crc32c import crc32c

from ottla.log import producer_snapshot
from ottla.log.producer_snapshot import (
    CorruptSnapshotError,
    SnapshotImage,
    decode_snapshot,
    encode_snapshot,
)
from ottla.log.producer_state_entry import BatchMetadata, ProducerStateEntry


def two_producers() -> list[ProducerStateEntry]:
    idle = ProducerStateEntry(9, 1, 4, 77)
    busy = ProducerStateEntry(7, 2, -1, 1000, 5)
    busy.batches = (BatchMetadata(3, 8, 1, 900), BatchMetadata(6, 11, 2, 1000))
    return [busy, idle]


def test_snapshot_has_the_layout_of_kafka():
    """Version 1, CRC-32C of the rest, count, 46 bytes for each producer with its last batch."""
    body = (
        struct.pack(">i", 2)
        + struct.pack(">qhiqiqiq", 7, 2, 6, 11, 2, 1000, -1, 5)
        + struct.pack(">qhiqiqiq", 9, 1, -1, -1, 0, 77, 4, -1)
    )

    assert encode_snapshot(two_producers()) == struct.pack(">hI", 1, crc32c(body)) + body


def test_decoded_snapshot_has_the_last_batch_of_each_producer():
    """The older ones are looked up in the log."""
    producers = decode_snapshot("s", encode_snapshot(two_producers()))

    assert list(producers[7].batches) == [BatchMetadata(6, 11, 2, 1000)]
    assert producers[7].current_txn_first_offset == 5
    assert (producers[9].producer_epoch, producers[9].coordinator_epoch) == (1, 4)
    assert not producers[9].batches


def test_snapshot_of_nobody_is_read_back():
    """Ten bytes."""
    assert decode_snapshot("s", encode_snapshot([])) == {}


def test_snapshot_cut_anywhere_is_refused():
    """A torn write is found by size or CRC."""
    data = encode_snapshot(two_producers())

    for size in range(len(data)):
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot("s", data[:size])


def test_snapshot_with_a_flipped_bit_is_refused():
    """Wherever it is."""
    data = encode_snapshot(two_producers())

    for position in range(len(data)):
        wrong = bytearray(data)
        wrong[position] ^= 1
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot("s", bytes(wrong))


@pytest.mark.parametrize("count", [-1, 0, 1, 3])
def test_snapshot_of_another_count_is_refused(count):
    """Though its CRC is right: a producer that is missing would be free to write twice."""
    body = struct.pack(">i", count) + encode_snapshot(two_producers())[10:]
    with pytest.raises(CorruptSnapshotError, match=f"{count} producers do not fit 102 bytes"):
        decode_snapshot("s", struct.pack(">hI", 1, crc32c(body)) + body)


@pytest.mark.parametrize("seed", some(range(16)))
def test_image_of_many_producers_is_what_they_are(seed, monkeypatch):
    """Whatever they do meanwhile: they come, change, go and come again."""
    monkeypatch.setattr(producer_snapshot, "CHANGED_AT_ONCE", 3)
    chance, producers = random.Random(seed), {n: ProducerStateEntry(n) for n in range(10)}
    image = SnapshotImage(producers)
    for _ in range(300):
        producer_id = chance.randrange(20)
        image.note(producer_id)
        if chance.random() < 0.3:
            producers.pop(producer_id, None)
        else:
            state = producers.setdefault(producer_id, ProducerStateEntry(producer_id))
            state.producer_epoch = chance.randrange(100)
        if chance.random() < 0.1:
            assert decode_snapshot("f", image.encode()) == producers

    assert decode_snapshot("f", image.encode()) == producers
    assert len(image.encode()) == len(encode_snapshot(producers.values()))
