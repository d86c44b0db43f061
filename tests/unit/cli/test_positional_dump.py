"""`ottla dump-log` on segments of older Kafkas, and the segments of today that it makes of them."""

from __future__ import annotations

import pytest

from ottla.record.compression import CompressionType, compress
from ottla.record.conversion import build_message_set
from ottla.record.legacy_positional import encode_positional
from ottla.record.memory_records import batches
from ottla.record.record import Record

RECORDS = [Record(5 + n, 1000 + n, b"k", b"v%d" % n, ()) for n in range(3)]
GZIP = CompressionType.GZIP


@pytest.fixture
def file(tmp_path):
    """Writes a file and returns its path."""

    def write(name: str, data: bytes) -> str:
        path = tmp_path / name
        path.write_bytes(data)
        return str(path)

    return write


@pytest.mark.parametrize(("magic", "time"), [(0, "NoTimestampType: -1"), (1, "CreateTime: 1000")])
def test_old_message_is_a_line(ottla, file, magic, time):
    """An old message has the fields of its format, as Kafka 2.3 prints them."""
    data = build_message_set(RECORDS[:1], magic)
    outcome = ottla("dump-log", "--files", file(f"{5:020d}.log", data), "--print-data-log")

    crc = int.from_bytes(data[12:16], "big")
    assert outcome.status == 0
    assert outcome.lines[2:] == [
        f"offset: 5 position: 0 {time} size: {len(data)} magic: {magic} compresscodec: NONE "
        f"crc: {crc} isvalid: true",
        f"| offset: 5 {time} keysize: 1 valuesize: 2 isvalid: true key: k payload: v0",
    ]


def test_messages_of_a_compressed_set_are_shown(ottla, file):
    """Under the line of their wrapper."""
    data = build_message_set(RECORDS, 1, GZIP)
    lines = ottla("dump-log", "--files", file(f"{5:020d}.log", data), "--deep-iteration").lines

    assert lines[2].startswith("offset: 7 position: 0 CreateTime: 1002 ")
    assert [line.split()[2] for line in lines[3:]] == ["5", "6", "7"]


def test_damaged_old_message_is_told(ottla, file):
    """The damage is one line, and the command fails."""
    data = bytearray(build_message_set(RECORDS[:1], 1))
    data[-1] ^= 1
    outcome = ottla("dump-log", "--files", file(f"{5:020d}.log", bytes(data)))

    assert outcome.status == 1
    assert outcome.lines[2].endswith("isvalid: false")


def test_old_segment_is_converted(ottla, file, tmp_path):
    """Offsets, keys and timestamps stay."""
    data = build_message_set(RECORDS[:1], 0) + build_message_set(RECORDS[1:], 1, GZIP)
    path = file(f"{5:020d}.log", data)
    outcome = ottla("dump-log", "--files", path, "--convert-to", str(tmp_path / "new"))

    assert outcome.status == 0
    made = list(batches((tmp_path / "new" / f"{5:020d}.log").read_bytes()))
    for batch in made:
        batch.verify()
    assert {batch.magic for batch in made} == {2}
    assert [record for batch in made for record in batch.records()] == [
        RECORDS[0]._replace(timestamp_ms=-1),
        *RECORDS[1:],
    ]


def test_converted_segment_overwrites_nothing(ottla, file, tmp_path):
    """Least of all the one that it is made of."""
    data = build_message_set(RECORDS, 1)
    path = file(f"{5:020d}.log", data)
    outcome = ottla("dump-log", "--files", path, "--convert-to", str(tmp_path))

    assert outcome.status != 0
    assert "is there already" in outcome.err
    assert (tmp_path / f"{5:020d}.log").read_bytes() == data


def test_segment_of_0_7_is_shown(ottla, file):
    """Messages have positions; those of a compressed set share that of their wrapper."""
    inner = encode_positional(b"a", 0) + encode_positional(b"b", 1)
    first = encode_positional(b"first", 0)
    wrapper = encode_positional(compress(GZIP, inner), 1, GZIP)
    path = file("00000000000.kafka", first + wrapper + b"\0\0")
    outcome = ottla("dump-log", "--files", path, "--format", "0.7", "--print-data-log")

    assert outcome.status == 0
    assert outcome.lines == [
        f"Dumping {path}",
        "Starting offset: 0",
        "offset: 0 payloadsize: 5 magic: 0 compresscodec: NONE "
        f"crc: {int.from_bytes(first[5:9], 'big')} isvalid: true",
        "| offset: 0 payloadsize: 5 payload: first",
        f"offset: 14 payloadsize: {len(wrapper) - 10} magic: 1 compresscodec: GZIP "
        f"crc: {int.from_bytes(wrapper[6:10], 'big')} isvalid: true",
        "| offset: 14 payloadsize: 1 payload: a",
        "| offset: 14 payloadsize: 1 payload: b",
        "Found 2 invalid bytes at the end of 00000000000.kafka",
    ]


def test_segments_of_0_7_are_converted_in_a_row(ottla, file, tmp_path):
    """Their messages are numbered from 0 over all files, since they had no numbers."""
    first = b"".join(encode_positional(b"%d" % n, n % 2) for n in range(10))
    second = encode_positional(
        compress(GZIP, encode_positional(b"10", 0) + encode_positional(b"11", 0)), 1, GZIP
    )
    paths = [file("00000000000.kafka", first), file(f"{len(first):011d}.kafka", second)]
    outcome = ottla(
        "dump-log",
        "--files",
        ",".join(paths),
        "--format",
        "0.7",
        "--convert-to",
        str(tmp_path / "new"),
    )

    assert outcome.status == 0
    made = sorted((tmp_path / "new").iterdir())
    assert [path.name for path in made] == [f"{0:020d}.log", f"{10:020d}.log"]
    records = [r for path in made for batch in batches(path.read_bytes()) for r in batch.records()]
    assert records == [Record(n, -1, None, b"%d" % n, ()) for n in range(12)]


def test_damaged_segment_of_0_7_is_told(ottla, file):
    """Nothing can be found behind the place."""
    data = bytearray(encode_positional(b"a", 0) + encode_positional(b"b", 0))
    data[-1] ^= 1
    outcome = ottla(
        "dump-log", "--files", file("00000000000.kafka", bytes(data)), "--format", "0.7"
    )

    assert outcome.status == 1
    assert "the message at position 10: CRC-32 is" in outcome.err


def test_segment_of_0_7_is_not_guessed(ottla, file):
    """Its magic 0 and 1 mean something else than those of later formats."""
    outcome = ottla("dump-log", "--files", file("00000000000.kafka", encode_positional(b"a", 0)))

    assert "Ignoring unknown file" in outcome.err


def test_help_names_what_takes_a_converted_directory_over(ottla, capsys):
    """A broker refuses a directory that its registry does not know, unless it adopts it."""
    ottla("dump-log", "--help")

    assert "--adopt-log-dirs" in "".join(capsys.readouterr().out.split())
