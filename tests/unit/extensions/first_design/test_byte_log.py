"""The log of one partition of the first design: bytes of its files, ids, reading, recovery."""

from __future__ import annotations

import errno
import struct
import zlib

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.first_design.byte_log import (
    TornAppendError,
    directory_name,
    load_log,
    parse_directory,
    segment_name,
)
from ottla.record.legacy_positional import positional_messages
from ottla.structs import TopicPartition
from ottla.testing import MemoryDisk

PARTITION = TopicPartition("my_topic", 0)
DIRECTORY = "/logs/my_topic_0"
FIRST = f"{DIRECTORY}/00000000000.kafka"
NOW_MS = 1_000_000


def entry(payload: bytes, magic: int = 0) -> bytes:
    """An entry made by hand: length, magic, in magic 1 attributes, CRC of the payload, payload."""
    body = bytes([magic]) + bytes(magic) + struct.pack(">I", zlib.crc32(payload)) + payload
    return struct.pack(">i", len(body)) + body


class LogWorld:
    """One log on a disk in memory; `mended` loads it again, as after a crash."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.disk.make_dirs("/logs")
        self.log = load_log(self.disk, PARTITION, DIRECTORY, NOW_MS, None)

    def append(self, *messages: bytes, now_ms: int = NOW_MS) -> None:
        self.log.append(b"".join(messages), len(messages), now_ms)

    def flush(self) -> None:
        up_to, count = self.log.end, self.log.unflushed_count
        self.log.flush_job("/logs", NOW_MS)()
        self.log.note_flushed(up_to, count)

    def read(self, position: int, size: int = 1_000_000) -> bytes:
        region = self.log.read(position, size, NOW_MS)
        return b"" if region is None else region.read()

    def load(self, recovery_point: int | None) -> None:
        self.disk.end_process()
        self.log = load_log(self.disk, PARTITION, DIRECTORY, NOW_MS, recovery_point)


@pytest.fixture
def world() -> LogWorld:
    """A new log."""
    return LogWorld()


def test_two_partitions_of_my_topic_are_two_directories_my_topic_0_and_my_topic_1():
    """The number stands behind the last line, whatever the topic is called."""
    names = [directory_name(TopicPartition("my_topic", number)) for number in (0, 1)]

    assert names == ["my_topic_0", "my_topic_1"]
    assert [parse_directory(name) for name in names] == [("my_topic", 0), ("my_topic", 1)]
    assert parse_directory("a_1_0") == ("a_1", 0)
    assert [parse_directory(name) for name in ("x", "x_", "_0", "x_01", "x-0", "é_0")] == [None] * 6


def test_log_file_is_a_sequence_of_lengths_and_messages(world):
    """Four bytes N, then N bytes: nothing else is in the file."""
    world.append(entry(b"hello"), entry(b"world", 1))

    assert world.disk.contents(FIRST) == bytes.fromhex(
        "0000000a 00 3610a686 68656c6c6f"  # 1 + 4 + 5: magic 0, CRC, payload
        "0000000b 01 00 3a771143 776f726c64"  # 1 + 1 + 4 + 5: magic 1, attributes, CRC, payload
    )


def test_entry_of_magic_0_is_length_1_plus_4_plus_n_magic_crc_and_payload(world):
    """The CRC-32 covers the n bytes of the payload, and nothing of the header."""
    world.append(entry(b"abc"))

    assert world.disk.contents(FIRST) == bytes.fromhex("00000008 00 352441c2") + b"abc"
    assert zlib.crc32(b"abc") == 0x352441C2


def test_entry_of_magic_1_has_attributes_whose_low_bits_are_the_codec(world):
    """Length 1 + 1 + 4 + n, magic, attributes, CRC-32 of the payload, payload: not that of 0.10."""
    body = b"\1\1" + bytes.fromhex("352441c2") + b"abc"
    world.append(struct.pack(">i", 9) + body)

    assert world.disk.contents(FIRST) == bytes.fromhex("00000009 01 01 352441c2") + b"abc"
    (found,) = positional_messages(world.disk.contents(FIRST))
    assert (found.magic, found.codec, found.payload) == (1, 1, b"abc")


def test_message_id_is_the_byte_position_and_the_next_id_is_4_plus_n_further(world):
    """Reading at an id gives the message, at the end nothing."""
    messages = [entry(b"x" * size) for size in (0, 1, 300)]
    world.append(*messages)
    world.flush()

    position = 0
    for message in messages:
        assert world.read(position, len(message)) == message
        position += 4 + struct.unpack_from(">i", message)[0]
    assert position == world.log.end
    assert world.read(position) == b""


def test_segment_file_is_named_after_the_position_of_its_first_message(world):
    """The first file is all zeros with the suffix .kafka; its name has more digits if needed."""
    world.append(entry(b"a" * 89))
    world.log.roll(NOW_MS)
    world.append(entry(b"b"))

    assert world.disk.list_dir(DIRECTORY) == ["00000000000.kafka", "00000000098.kafka"]
    assert segment_name(2**40) == "1099511627776.kafka"
    assert segment_name(0) == "00000000000.kafka"


def test_files_of_a_broker_of_07_are_read_and_continued(world):
    """It has written 20 digits where its design has 11; what is no position is left alone."""
    world.log.close()
    world.disk.unlink(FIRST)
    for start, text in ((0, b"a"), (10, b"b")):
        world.disk.replace(f"{DIRECTORY}/{start:020d}.kafka", entry(text))
    for name in ("99999999999999999999.kafka", "x.kafka", "1.kafka.deleted", "00000000000.log"):
        world.disk.replace(f"{DIRECTORY}/{name}", b"other")
    for recovery_point in (0, None):
        world.load(recovery_point)
        assert world.read(0) == entry(b"a")
        assert (world.log.start, world.log.flushed) == (0, 20)
    world.append(entry(b"c"))
    world.flush()

    assert world.read(10) == entry(b"b") + entry(b"c")


def test_segment_rolls_when_it_exceeds_its_size_or_its_age(world):
    """As 0.7 does: a file that has just reached the size still takes more."""
    assert not world.log.must_roll(0, 10**9, NOW_MS)
    world.append(entry(b"a"))

    assert not world.log.must_roll(10, 10**9, NOW_MS)
    assert world.log.must_roll(9, 10**9, NOW_MS)
    assert not world.log.must_roll(10, 1000, NOW_MS + 1000)
    assert world.log.must_roll(10, 1000, NOW_MS + 1001)


def test_appends_go_only_to_the_last_file(world):
    """Those before do not change again."""
    world.append(entry(b"a"))
    before = world.disk.contents(FIRST)
    world.log.roll(NOW_MS)
    world.append(entry(b"b"), entry(b"c"))

    assert world.disk.contents(FIRST) == before
    assert world.disk.contents(f"{DIRECTORY}/00000000010.kafka") == entry(b"b") + entry(b"c")


def test_messages_are_shown_to_readers_when_they_are_on_disk(world):
    """Until then the log ends before them, for readers and in its list of offsets."""
    world.append(entry(b"a"))

    assert world.read(0) == b""
    assert world.log.offsets_before(-1, 10, NOW_MS) == [0]
    with pytest.raises(KafkaError, match="0 to 0"):
        world.read(10)
    world.flush()
    assert world.read(0) == entry(b"a")
    assert world.log.offsets_before(-1, 10, NOW_MS) == [10, 0]


def test_position_that_is_not_there_is_out_of_range(world):
    """Before the first and behind the last message; less than no bytes are no size to fetch."""
    world.append(entry(b"a"))
    world.log.roll(NOW_MS)
    world.append(entry(b"b"))
    world.flush()
    world.log.drop(world.log.segments[:1])

    for position in (-1, 0, 9, 21, 2**63 - 1):
        with pytest.raises(KafkaError) as refused:
            world.read(position)
        assert refused.value.error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert world.read(10) == entry(b"b")
    with pytest.raises(KafkaError) as refused:
        world.read(10, -1)
    assert refused.value.error is ErrorCode.INVALID_FETCH_SIZE


def test_read_ends_with_the_segment_and_with_the_size_that_is_asked_for(world):
    """The next segment is read by the next fetch; the last message may be cut off."""
    world.append(entry(b"aa"), entry(b"bb"))
    world.log.roll(NOW_MS)
    world.append(entry(b"cc"))
    world.flush()

    assert world.read(0) == entry(b"aa") + entry(b"bb")
    assert world.read(0, 15) == (entry(b"aa") + entry(b"bb"))[:15]
    assert world.read(22) == entry(b"cc")
    assert world.read(22, 0) == b""


def test_offsets_before_a_time_are_the_starts_of_segments_newest_first(world):
    """By when the files were last written to; -1 is the end and all, -2 the first."""
    for number in range(3):
        world.append(entry(b"a"), now_ms=NOW_MS + number * 100)
        world.log.roll(NOW_MS)
    world.append(entry(b"a"), now_ms=NOW_MS + 300)
    world.flush()

    def offsets(time_ms: int, most: int = 10) -> list[int]:
        return world.log.offsets_before(time_ms, most, NOW_MS + 400)

    assert offsets(-1) == [40, 30, 20, 10, 0]
    assert offsets(-1, 2) == [40, 30]
    assert offsets(-2) == [0]
    assert offsets(NOW_MS + 150) == [10, 0]
    assert offsets(NOW_MS - 1) == []
    assert offsets(-1, 0) == offsets(-1, -5) == []


def test_retention_takes_whole_segments_the_oldest_first(world):
    """While they are too old, or as long as the size is kept without them; none not on disk."""
    for number in range(4):
        world.append(entry(b"a"), now_ms=NOW_MS + number * 100)
        world.log.roll(NOW_MS)
    log = world.log

    assert log.breached(0, -1, NOW_MS + 10**6) == []
    world.flush()

    def starts(max_age_ms: int, max_bytes: int) -> list[int]:
        return [each.start for each in log.breached(max_age_ms, max_bytes, NOW_MS + 400)]

    assert starts(250, -1) == [0, 10]
    assert starts(-1, 20) == [0, 10]
    assert starts(-1, 21) == [0]
    assert starts(-1, 40) == starts(-1, -1) == starts(400, 100) == []
    assert starts(0, -1) == [0, 10, 20, 30]  # the last file has no messages, and stays


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("tail", ["lost", "zeros", "other bytes"])
def test_recovery_cuts_the_log_behind_the_last_valid_message(world, magic, tail):
    """A crash at every byte of the last message: it is lost, zeros, or something else is there."""
    whole = entry(b"first", magic)
    last = entry(b"second", magic)
    for size in range(len(last)):
        world.disk.replace(FIRST, whole + last[:size])
        rest = bytes(len(last) - size) if tail == "zeros" else b"\xa5" * (len(last) - size)
        if tail != "lost":
            world.disk.replace(FIRST, whole + last[:size] + rest)
        world.load(0)
        is_same = tail == "zeros" and last[size:] == rest
        assert world.log.end == len(whole) + len(last) * is_same, size
        assert world.read(0)[: len(whole)] == whole
        world.append(entry(b"more"))
        world.flush()
        assert world.read(0).endswith(entry(b"more"))


def test_recovery_keeps_a_message_that_ends_with_the_file(world):
    """A message is valid if it ends where the file ends, or before."""
    world.append(entry(b"all"))
    world.load(0)

    assert world.read(0) == entry(b"all")


def test_recovery_drops_the_segments_behind_a_damaged_one(world):
    """Ids would not adjoin; segments before the recovery point are not looked at."""
    for text in (b"a", b"b", b"c"):
        world.append(entry(text))
        world.log.roll(NOW_MS)
    damaged = bytearray(entry(b"b"))
    damaged[-1] ^= 1
    world.disk.replace(f"{DIRECTORY}/00000000010.kafka", damaged)
    world.load(20)
    assert world.log.end == 30
    world.load(0)

    assert world.log.end == 10
    assert world.disk.list_dir(DIRECTORY) == ["00000000000.kafka", "00000000010.kafka"]


def test_log_without_a_file_in_its_middle_begins_behind_it(world):
    """No crash loses a file from before the recovery point; those before it are left alone."""
    for text in (b"a", b"b", b"c"):
        world.append(entry(text))
        world.log.roll(NOW_MS)
    world.disk.unlink(f"{DIRECTORY}/00000000010.kafka")
    for point in (None, 30):
        world.load(point)
        assert (world.log.start, world.log.end) == (20, 30)
    assert world.disk.exists(FIRST)


def test_message_longer_than_a_scan_is_recovered(world, monkeypatch):
    """It is read as a whole when its length is known; garbage for a length costs no memory."""
    monkeypatch.setattr("ottla.extensions.first_design.byte_log.SCAN_BYTES", 16)
    messages = [entry(b"x" * 100), entry(b"y" * 3), entry(b"z" * 50)]
    world.append(*messages)
    world.disk.replace(FIRST, b"".join(messages) + bytes.fromhex("7fffffff00"))
    world.load(0)

    assert world.read(0) == b"".join(messages)


def test_append_that_fails_leaves_nothing_behind(world):
    """A full disk: what was written is cut off, and the next append is at the same position."""
    world.append(entry(b"a"))
    world.disk.fill(3)
    with pytest.raises(OSError, match="space") as refused:
        world.append(entry(b"bbb"))
    world.disk.capacity_in_bytes = None
    world.append(entry(b"c"))
    world.flush()

    assert refused.value.errno == errno.ENOSPC
    assert world.read(0) == entry(b"a") + entry(b"c")


def test_append_that_can_not_be_cut_off_says_so(world):
    """Then nobody knows what the file holds."""
    world.append(entry(b"a"))
    world.disk.fail("pwrite")
    world.disk.fail("truncate")

    with pytest.raises(TornAppendError):
        world.append(entry(b"b"))


def test_files_that_are_not_used_are_closed_and_opened_again(world):
    """A broker with many partitions does not keep all of them open."""
    world.append(entry(b"a"))
    world.log.close_unused(NOW_MS + 1)
    assert world.log.segments[0]._file is not None  # it is not on disk yet
    world.flush()
    world.log.close_unused(NOW_MS + 1)

    assert world.log.segments[0]._file is None
    assert world.read(0) == entry(b"a")
