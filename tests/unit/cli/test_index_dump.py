"""`ottla dump-log` on indexes."""

import struct

import pytest

from ottla.record.batch_builder import BatchBuilder

STEM = "00000000000000000100"


def batch(base_offset: int, timestamp_ms: int) -> bytes:
    builder = BatchBuilder(base_offset=base_offset)
    builder.append(timestamp_ms, None, b"a")
    builder.append(timestamp_ms + 1, None, b"b")
    return builder.build()


BATCHES = [batch(100, 1000), batch(102, 2000), batch(104, 3000)]
SIZE = len(BATCHES[0])


@pytest.fixture
def files(tmp_path):
    """A segment of three batches of two records, and an index with these entries beside it."""

    def write(suffix: str, layout: str, *entries: tuple[int, ...]) -> str:
        (tmp_path / f"{STEM}.log").write_bytes(b"".join(BATCHES))
        index = tmp_path / f"{STEM}{suffix}"
        index.write_bytes(b"".join(struct.pack(layout, *entry) for entry in entries))
        return str(index)

    return write


def test_offset_index_shows_its_entries(ottla, files):
    """Each entry is the last offset of a batch and where the batch begins."""
    path = files(".index", ">ii", (3, SIZE), (5, 2 * SIZE))

    outcome = ottla("dump-log", "--files", path)

    assert outcome.status == 0
    assert outcome.lines[1:] == [
        f"offset: 103 position: {SIZE}",
        f"offset: 105 position: {2 * SIZE}",
    ]


def test_offset_index_that_the_segment_contradicts_is_reported(ottla, files):
    """The offset in the index and the one in the log are shown."""
    path = files(".index", ">ii", (2, SIZE), (5, 10_000))

    outcome = ottla("dump-log", "--files", path, "--verify-index-only")

    assert outcome.status == 1
    assert outcome.lines[1:] == []
    assert outcome.err == (
        f"Mismatches in :{path}\n"
        "  Index offset: 102, log offset: 103\n"
        "  Index offset: 105, log offset: -1\n"
    )


def test_zeros_at_the_end_of_an_index_are_left_out(ottla, files):
    """Kafka makes the files of an active segment large beforehand."""
    path = files(".index", ">ii", (3, SIZE), (0, 0), (0, 0))

    assert ottla("dump-log", "--files", path).lines[1:] == [f"offset: 103 position: {SIZE}"]


def test_sanity_check_is_that_of_the_broker(ottla, files):
    """An index that would be rebuilt at the next start fails."""
    good = files(".index", ">ii", (3, SIZE))
    passed = ottla("dump-log", "--files", good, "--index-sanity-check")
    bad = files(".index", ">ii", (3, 10_000))
    failed = ottla("dump-log", "--files", bad, "--index-sanity-check")

    assert passed.lines[1:] == [f"{good} passed sanity check."]
    assert failed.status == 1
    assert bad in failed.err


def test_torn_index_is_one_line(ottla, files):
    """Half an entry is named as what it is."""
    path = files(".index", ">i", (3,))

    outcome = ottla("dump-log", "--files", path)

    assert outcome.status == 1
    assert "no whole entries" in outcome.err
    assert outcome.err.count("\n") == 1


def test_time_index_shows_its_entries(ottla, files):
    """Each entry is a timestamp and the last offset of the batch that it came with."""
    path = files(".timeindex", ">qi", (1001, 1), (3001, 5))

    outcome = ottla("dump-log", "--files", path)

    assert outcome.status == 0
    assert outcome.lines[1:] == ["timestamp: 1001 offset: 101", "timestamp: 3001 offset: 105"]


def test_time_index_that_the_segment_contradicts_is_reported(ottla, files):
    """Other timestamps, offsets that are no batch's last one, and disorder are told apart."""
    path = files(".timeindex", ">qi", (1001, 1), (999, 3), (3001, 4))

    outcome = ottla("dump-log", "--files", path, "--verify-index-only")

    assert outcome.status == 1
    assert outcome.err == (
        f"Found timestamp mismatch in :{path}\n"
        "  Index timestamp: 999, log timestamp: 2001\n"
        f"Found out of order timestamp in :{path}\n"
        "  Index timestamp: 999, Previously indexed timestamp: 1001\n"
        "The following indexed offsets are not found in the log.\n"
        "  Indexed offset: 104, found log offset: 105\n"
    )


def test_time_index_passes_the_sanity_check(ottla, files):
    """Its entries are whole."""
    path = files(".timeindex", ">qi", (1001, 1))

    outcome = ottla("dump-log", "--files", path, "--index-sanity-check")

    assert outcome.lines[1:] == [f"{path} passed sanity check."]
