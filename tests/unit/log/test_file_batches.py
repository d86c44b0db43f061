"""Walking over the batches of a file: headers, whole batches, and bytes that are none."""

from __future__ import annotations

import struct
import zlib

import pytest
from log_world import new_batch

from ottla.log.file_batches import read_batch, read_batches, read_headers
from ottla.record.record_batch import CorruptRecordError
from ottla.testing import MemoryDisk

PATH = "/segment.log"


def file_of(*parts: bytes):
    file = MemoryDisk().open(PATH, create=True)
    file.pwrite(b"".join(parts), 0)
    return file


def three_batches() -> list[bytes]:
    return [new_batch(b"a" * 10), new_batch(b"b" * 5000, b"c"), new_batch(b"d")]


@pytest.mark.parametrize("chunk_bytes", [61, 64, 100, 4096, 1 << 20])
def test_headers_are_read_with_any_chunk_size(chunk_bytes):
    """A header may straddle what is read at once."""
    parts = three_batches()
    file = file_of(*parts)
    found = [
        (position, batch.size_in_bytes)
        for position, batch in read_headers(file, 0, file.size(), chunk_bytes)
    ]

    sizes = [len(part) for part in parts]
    assert found == [(0, sizes[0]), (sizes[0], sizes[1]), (sizes[0] + sizes[1], sizes[2])]


@pytest.mark.parametrize("chunk_bytes", [12, 61, 100, 4096, 1 << 20])
def test_whole_batches_are_read_with_any_chunk_size(chunk_bytes):
    """A batch that is larger than the chunk is read in one piece."""
    parts = three_batches()
    file = file_of(*parts)
    positions = []
    for position, batch in read_batches(file, 0, file.size(), max(chunk_bytes, 61)):
        assert bytes(batch.view) == parts[len(positions)]
        positions.append(position)

    assert len(positions) == 3


@pytest.mark.parametrize("chunk_bytes", [61, 4096, 1 << 20])
@pytest.mark.parametrize("read", [read_headers, read_batches])
def test_walk_keeps_to_its_range(read, chunk_bytes):
    """From any batch to any other, whatever lies around them."""
    parts = [*three_batches(), old_message(1), new_batch(b"e")]
    file = file_of(*parts)
    borders = [0]
    for part in parts:
        borders.append(borders[-1] + len(part))
    for first in range(6):
        for last in range(first, 6):
            walk = read(file, borders[first], borders[last], chunk_bytes)
            assert [position for position, _ in walk] == borders[first:last]


@pytest.mark.parametrize("cut", range(1, len(new_batch(b"d")) + 1))
def test_batch_that_is_cut_off_anywhere_ends_the_walk(cut):
    """All whole batches come first, then the error, unless nothing of the last one is left."""
    parts = three_batches()
    file = file_of(*parts)
    end = file.size() - cut
    file.truncate(end)
    walk = read_batches(file, 0, end)

    assert [position for position, _ in (next(walk), next(walk))] == [0, len(parts[0])]
    if cut == len(parts[2]):
        assert next(walk, None) is None
    else:
        with pytest.raises(CorruptRecordError):
            next(walk)


@pytest.mark.parametrize("garbage", [bytes(100), b"\xff" * 100, bytes(range(1, 101)), b"\x00"])
def test_garbage_is_no_batch(garbage):
    """Zeros, ones and anything else behind the last batch."""
    part = new_batch(b"a")
    file = file_of(part, garbage)

    for read in (read_batches, read_headers):
        walk = read(file, 0, file.size())
        next(walk)
        with pytest.raises(CorruptRecordError):
            next(walk)


def test_flipped_bit_is_found_by_the_crc():
    """The batches before it are whole."""
    first, second = new_batch(b"a"), bytearray(new_batch(b"b" * 100))
    second[90] ^= 4
    file = file_of(first, second)
    walk = read_batches(file, 0, file.size())
    next(walk)

    with pytest.raises(CorruptRecordError, match="CRC"):
        next(walk)


def test_read_batch_gives_the_whole_of_a_header():
    """Its records can be decoded."""
    file = file_of(*three_batches())
    headers = list(read_headers(file, 0, file.size()))
    position, header = headers[1]

    assert [record.value for record in read_batch(file, position, header).records()] == [
        b"b" * 5000,
        b"c",
    ]


def old_message(magic: int, value: bytes = b"abc") -> bytes:
    body = struct.pack(">bb", magic, 0) + bytes(8 * magic)
    body += struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", 5, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize("chunk_bytes", [61, 64, 100, 4096])
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_walked_over(magic, chunk_bytes):
    """A log from before Kafka 0.11 is no garbage, alone or before batches of today."""
    parts = [
        old_message(magic),
        old_message(magic, bytes(200)),
        new_batch(b"x"),
        old_message(magic, b""),
    ]
    file = file_of(*parts)

    headers = list(read_headers(file, 0, file.size(), chunk_bytes))
    whole = list(read_batches(file, 0, file.size(), chunk_bytes))
    assert [batch.size_in_bytes for _, batch in headers] == [len(part) for part in parts]
    assert [bytes(batch.view) for _, batch in whole] == parts
    assert [position for position, _ in headers] == [position for position, _ in whole]
    assert [bytes(read_batch(file, p, header).view) for p, header in headers] == parts


@pytest.mark.parametrize(
    "data", [bytes(100), b"\x01" * 100, old_message(1)[:-1], bytes(20), bytes(16), bytes(17)]
)
@pytest.mark.parametrize("read", [read_headers, read_batches])
def test_other_bytes_are_no_old_messages(data, read):
    """Zeros, garbage and a message that is cut off are not taken for one."""
    file = file_of(data)

    with pytest.raises(CorruptRecordError):
        list(read(file, 0, file.size()))


def test_damaged_message_of_an_old_format_is_found():
    """Its CRC-32 is checked as that of a batch is."""
    data = bytearray(old_message(1))
    data[-1] ^= 1
    file = file_of(bytes(data))

    with pytest.raises(CorruptRecordError, match="CRC-32 is"):
        list(read_batches(file, 0, file.size()))


@pytest.mark.parametrize(
    ("parts", "chunk_bytes", "reads"),
    [
        ([old_message(0, bytes(100))] * 3, 4096, 1),
        ([old_message(1), old_message(1, bytes(200))], 100, 2),
        (three_batches(), 1 << 20, 1),
        (three_batches(), 100, 3),
        ([old_message(1, bytes(9)), new_batch(b"x")], 4096, 1),
        ([new_batch(b"x")] * 2, len(new_batch(b"x")) + 61, 1),
    ],
)
def test_headers_take_no_more_reads_than_they_need(parts, chunk_bytes, reads):
    """What one read of the file gives is used up to its last byte."""
    disk = MemoryDisk()
    file = disk.open(PATH, create=True)
    file.pwrite(b"".join(parts), 0)
    calls: list[str] = []
    disk.on_call = lambda name, path: calls.append(name)

    assert len(list(read_headers(file, 0, file.size(), chunk_bytes))) == len(parts)
    assert calls.count("pread") == reads


@pytest.mark.parametrize("read", [read_headers, read_batches])
@pytest.mark.parametrize("before", [b"", new_batch(b"x"), old_message(1)])
@pytest.mark.parametrize("last", [new_batch(bytes(500)), old_message(0, bytes(500))])
def test_last_batch_may_be_larger_than_what_is_read_at_once(read, before, last):
    """It ends with the file; where its last byte is missing, that is said with its size."""
    file = file_of(before, last)
    end = file.size()

    assert [position for position, _ in read(file, 0, end, 100)][-1] == len(before)
    with pytest.raises(CorruptRecordError, match=f"{len(last)}.* {len(last) - 1} "):
        list(read(file, 0, end - 1, 100))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (new_batch(b"x")[:16], "16 bytes are too few for the header of a batch"),
        (new_batch(b"x")[:17], "17 bytes are too few for the header of a batch"),
        (new_batch(b"x")[:60], "60 bytes are too few for the header of a batch"),
        (new_batch(b"x")[:61], "the batch at offset 0: of its 70 bytes only 61 are there"),
        (old_message(0)[:17], "of the 29 bytes of a message only 17 are there"),
        (old_message(1)[:36], "of the 37 bytes of a message only 36 are there"),
        (b"\x07" * 80, "magic 7 is not 2"),
    ],
)
def test_end_of_a_walk_over_whole_batches_says_what_is_missing(data, what):
    """An operator reads it in the line about the recovery."""
    file = file_of(data)
    with pytest.raises(CorruptRecordError, match=what):
        list(read_batches(file, 0, file.size()))
