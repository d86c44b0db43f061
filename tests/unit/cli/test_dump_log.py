"""`ottla dump-log` on segments."""

import struct

import pytest

from ottla.protocol.message import encode_versioned
from ottla.protocol.offsets_topic import OffsetCommitKey, OffsetCommitValue
from ottla.record.batch_builder import BatchBuilder
from ottla.record.compression import CompressionType

NAME = "00000000000000000005.log"


def batch(*values: bytes | None, base_offset: int = 5, **options: object) -> bytes:
    builder = BatchBuilder(base_offset=base_offset, **options)
    for number, value in enumerate(values):
        builder.append(1000 + number, b"k%d" % number, value, (("h", b"x"),))
    return builder.build()


@pytest.fixture
def segment(tmp_path):
    """Writes a segment file and returns its path."""

    def write(*parts: bytes) -> str:
        path = tmp_path / NAME
        path.write_bytes(b"".join(parts))
        return str(path)

    return write


def test_batch_is_a_line(ottla, segment):
    """File, starting offset and the header of each batch, as Kafka 2.3 prints them."""
    data = batch(b"a", b"b")
    path = segment(data)

    outcome = ottla("dump-log", "--files", path)

    crc = int.from_bytes(data[17:21], "big")
    assert outcome.status == 0
    assert outcome.lines == [
        f"Dumping {path}",
        "Starting offset: 5",
        "baseOffset: 5 lastOffset: 6 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 "
        "producerEpoch: -1 partitionLeaderEpoch: -1 isTransactional: false isControl: false "
        f"position: 0 CreateTime: 1001 size: {len(data)} magic: 2 compresscodec: NONE "
        f"crc: {crc} isvalid: true",
    ]


def test_deep_iteration_shows_records_without_contents(ottla, segment):
    """Sizes, sequence and the keys of headers, but neither key nor value."""
    path = segment(batch(b"a", None))

    assert ottla("dump-log", "--files", path, "--deep-iteration").lines[3:] == [
        "| offset: 5 CreateTime: 1000 keysize: 2 valuesize: 1 sequence: -1 headerKeys: [h]",
        "| offset: 6 CreateTime: 1001 keysize: 2 valuesize: -1 sequence: -1 headerKeys: [h]",
    ]


def test_print_data_log_shows_contents(ottla, segment):
    """Keys and values stand at the end of the line; of a tombstone there is only the key."""
    path = segment(batch(b"a", None))

    lines = ottla("dump-log", "--files", path, "--print-data-log").lines

    assert lines[3].endswith(" headerKeys: [h] key: k0 payload: a")
    assert lines[4].endswith(" headerKeys: [h] key: k1")


@pytest.mark.parametrize("codec", list(CompressionType))
def test_every_codec_is_read(ottla, segment, codec):
    """The name of the codec is shown and the records are decompressed."""
    path = segment(batch(b"a" * 100, compression=codec))

    lines = ottla("dump-log", "--files", path, "--print-data-log").lines

    assert f"compresscodec: {codec.name} " in lines[2]
    assert lines[3].endswith(f"payload: {'a' * 100}")


def test_sequences_of_an_idempotent_producer_wrap(ottla, segment):
    """After 2^31 - 1 comes 0."""
    path = segment(batch(b"a", b"b", producer_id=7, producer_epoch=1, base_sequence=2**31 - 1))

    lines = ottla("dump-log", "--files", path, "--deep-iteration").lines

    assert "producerId: 7 producerEpoch: 1" in lines[2]
    assert "sequence: 2147483647 " in lines[3]
    assert "sequence: 0 " in lines[4]


def test_decoders_can_be_chosen(ottla, segment):
    """A decoder shows the data even without --print-data-log."""
    path = segment(batch(bytes(7) + b"\x2a"))

    words = (
        "--value-decoder-class",
        "kafka.serializer.LongDecoder",
        "--key-decoder-class",
        "bytes",
    )

    assert ottla("dump-log", "--files", path, *words).lines[3].endswith("key: 6b30 payload: 42")


def test_offsets_decoder_reads_commits(ottla, segment):
    """Records of __consumer_offsets are shown as group, topic, partition and offset."""
    builder = BatchBuilder(base_offset=5)
    key = encode_versioned(OffsetCommitKey(group="g", topic="t", partition=0), 1)
    builder.append(0, key, encode_versioned(OffsetCommitValue(offset=9), 3))
    path = segment(builder.build())

    lines = ottla("dump-log", "--files", path, "--offsets-decoder").lines

    assert lines[3].endswith("key: offset::g:t:0 payload: 9")


FORGED = "g\n| offset: 9 owned\u2028\x0b\x85"


def test_names_of_groups_stay_in_their_lines(ottla, segment):
    """A line per record: a newline in a name would begin one that no record has."""
    builder = BatchBuilder(base_offset=5)
    key = encode_versioned(OffsetCommitKey(group=FORGED, topic="t", partition=0), 1)
    value = encode_versioned(OffsetCommitValue(offset=9, metadata=FORGED), 3)
    builder.append(0, key, value)
    path = segment(builder.build())

    lines = ottla("dump-log", "--files", path, "--offsets-decoder").lines

    assert len(lines) == 4
    assert r"key: offset::g\x0a| offset: 9 owned\u2028\x0b\u0085:t:0" in lines[3]


def test_contents_stay_in_their_lines(ottla, segment):
    """Keys and values are those of any client."""
    builder = BatchBuilder(base_offset=5)
    builder.append(0, FORGED.encode(), FORGED.encode())
    path = segment(builder.build())

    lines = ottla("dump-log", "--files", path, "--print-data-log").lines

    assert len(lines) == 4
    assert lines[3].count(r"g\x0a| offset: 9 owned\u2028\x0b\u0085") == 2


def test_end_of_a_transaction_is_shown(ottla, segment):
    """A control record says what it ends and under which coordinator."""
    builder = BatchBuilder(base_offset=5, producer_id=1, is_transactional=True, is_control=True)
    builder.append(0, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 3))
    path = segment(builder.build())

    lines = ottla("dump-log", "--files", path, "--print-data-log").lines

    assert "isTransactional: true isControl: true" in lines[2]
    assert lines[3].endswith("endTxnMarker: COMMIT coordinatorEpoch: 3")


def test_wrong_crc_is_not_valid(ottla, segment):
    """The batch is shown with isvalid: false, those behind it as well, and the status is 1."""
    broken = bytearray(batch(b"a"))
    broken[-1] ^= 1
    path = segment(bytes(broken), batch(b"b", base_offset=6))

    outcome = ottla("dump-log", "--files", path)

    assert outcome.status == 1
    assert [line.rpartition(" ")[2] for line in outcome.lines[2:]] == ["false", "true"]


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_torn_end_is_counted(ottla, segment, cut):
    """Bytes that are no whole batch are counted at the end of the file."""
    path = segment(batch(b"a"), batch(b"b", base_offset=6)[:cut])

    assert ottla("dump-log", "--files", path).lines[3:] == [
        f"Found {cut} invalid bytes at the end of {NAME}"
    ]


def test_garbage_is_reported(ottla, segment):
    """A length that cannot be one ends the dump of the file with the reason."""
    path = segment(batch(b"a"), bytes(100))

    outcome = ottla("dump-log", "--files", path)

    assert outcome.status == 1
    assert "batch length 0" in outcome.err
    assert outcome.lines[-1] == f"Found 100 invalid bytes at the end of {NAME}"


def test_gaps_are_listed(ottla, segment):
    """A compacted log has offsets that do not follow each other."""
    path = segment(batch(b"a"), batch(b"b", base_offset=9))

    outcome = ottla("dump-log", "--files", path, "--deep-iteration")

    assert outcome.status == 0
    assert outcome.err == f"Non-consecutive offsets in {path}\n  5 is followed by 9\n"


def test_records_beyond_the_limit_are_not_decompressed(ottla, segment):
    """--max-message-size bounds what a batch may become."""
    path = segment(batch(b"a" * 1000, compression=CompressionType.GZIP))

    outcome = ottla("dump-log", "--files", path, "--deep-iteration", "--max-message-size", 100)

    assert outcome.status == 1
    assert "the batch at offset 5" in outcome.err


def test_empty_segment_has_no_batches(ottla, segment):
    """A partition without records has an empty file."""
    assert ottla("dump-log", "--files", segment()).lines[1:] == ["Starting offset: 5"]


def test_several_files_are_dumped_in_turn(ottla, segment, tmp_path):
    """Names are separated by commas; files of an unknown kind are passed over."""
    other = tmp_path / "meta.properties"
    other.touch()

    outcome = ottla("dump-log", "--files", f"{segment(batch(b'a'))},{other}")

    assert outcome.lines[-1] == f"Dumping {other}"
    assert outcome.err == f"Ignoring unknown file {other}\n"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("00000000000000000009.log", "No such file or directory"),
        ("x.log", "No such file or directory"),
    ],
)
def test_file_that_cannot_be_read_is_one_line(ottla, tmp_path, name, line):
    """The path is named with the reason."""
    outcome = ottla("dump-log", "--files", tmp_path / name)

    assert outcome.status == 1
    assert name in outcome.err
    assert line in outcome.err
    assert (outcome.out, outcome.err.count("\n")) == ("", 1)


def test_file_that_is_no_segment_is_one_line(ottla, tmp_path):
    """Its name has to be an offset."""
    (tmp_path / "x.log").touch()

    assert (
        "x.log is not named after an offset" in ottla("dump-log", "--files", tmp_path / "x.log").err
    )


def test_files_are_required(ottla):
    """There is nothing to dump otherwise."""
    assert "missing required option --files" in ottla("dump-log").err
