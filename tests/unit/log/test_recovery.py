"""Starting after a crash: torn tails, garbage, lost and lying side files, leftovers."""

from __future__ import annotations

import struct

import pytest
from log_world import NOW_MS, LogWorld, new_batch, numbers, read_all, values

from ottla.log.log_validator import AppendOrigin
from ottla.record.batch_builder import build_batch
from ottla.record.record_batch import CorruptRecordError
from ottla.runtime.scheduler import at_once

PRODUCER = {"producer_id": 7, "producer_epoch": 0}
END = 60


@pytest.fixture
def written(world: LogWorld) -> LogWorld:
    """Sixty batches of an idempotent producer, in several segments and four epochs."""
    for number in range(END):
        world.append(b"%d" % number, epoch=number // 15, base_sequence=number, **PRODUCER)
    return world


def repairs(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(r.message for r in caplog.records if r.message.startswith("Recovered"))


def check_serves(world: LogWorld, end: int) -> None:
    """The log has its first `end` records, knows epochs and producer, and takes more."""
    log = world.log()
    assert values(read_all(log)) == numbers(0, end)
    assert log.leader_epoch_cache.entries == [
        (epoch, 15 * epoch) for epoch in range(4) if 15 * epoch < end
    ]
    for number in range(end - 5, end):
        again = world.append(b"%d" % number, epoch=3, base_sequence=number, **PRODUCER)
        assert (again.is_duplicate, again.first_offset) == (True, number)
    world.append(b"%d" % end, epoch=3, base_sequence=end, **PRODUCER)
    assert values(read_all(log)) == numbers(0, end + 1)
    assert at_once(log.fetch_offset_by_timestamp(NOW_MS))[1] == 0


# -- the end of the log


@pytest.mark.parametrize("clean", [False, True])
def test_nothing_is_lost_when_nothing_is_damaged(written: LogWorld, clean):
    """kill -9 leaves the page cache, a clean stop leaves everything."""
    written.restart(clean=clean)

    check_serves(written, END)


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("cut", range(1, 101))
def test_log_with_its_end_cut_off_keeps_the_whole_batches(written: LogWorld, cut, clean):
    """1 to 100 bytes are missing, whether the last stop was clean or not."""
    active = written.log().segments.active
    sizes = [len(new_batch(b"00", base_sequence=1, **PRODUCER))] * 3
    path, size = active.path, active.size
    written.stop() if clean else written.kill()
    written.disk.open(path).truncate(size - cut)
    written.start()

    lost = 1 if cut <= sizes[0] else 2
    check_serves(written, END - lost)


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize(
    "garbage",
    [b"\0", bytes(5000), b"\xff" * 77, bytes(range(256)), new_batch(b"x")[:-1], new_batch(b"x")],
    ids=["zero", "zeros", "ones", "bytes", "torn batch", "old offset"],
)
def test_garbage_behind_the_end_is_cut_off(written: LogWorld, garbage, clean, caplog):
    """Zeros of blocks that were never written, and anything else."""
    path, size = written.active_path(), written.log().segments.active.size
    written.stop() if clean else written.kill()
    written.disk.open(path).pwrite(garbage, size)
    written.start()

    assert f"from {size + len(garbage)} to {size} bytes" in repairs(caplog)
    assert written.disk.file_size(path) == size
    check_serves(written, END)


def test_flipped_bit_in_the_unflushed_tail_cuts_the_log_there(written: LogWorld, caplog):
    """The CRC catches it."""
    log = written.log()
    position = log.segments.active.position_of(END - 3) + 65
    path = log.segments.active.path
    written.kill()
    byte = written.disk.open(path).pread(1, position)
    written.disk.open(path).pwrite(bytes([byte[0] ^ 8]), position)
    written.start()

    assert "CRC-32C" in repairs(caplog)
    check_serves(written, END - 3)


def test_segments_behind_a_cut_are_dropped_with_a_message(written: LogWorld, caplog):
    """A hole must never be served."""
    log = written.log()
    third = log.segments.items[2]
    position, end = third.position_of(third.base_offset + 2), third.base_offset + 2
    count = len(log.segments)
    written.kill()
    written.disk.open(third.path).pwrite(b"\xff" * 20, position)
    written.start()

    assert repairs(caplog).count("dropped segment") == count - 3
    assert len(written.log().segments) == 3
    check_serves(written, end)


@pytest.mark.parametrize("clean", [False, True])
def test_flushed_segments_are_never_cut(written: LogWorld, clean):
    """A bit that fell over in one of them spoils one batch for its readers and no other."""
    log = written.log()
    first = log.segments.first
    position = first.position_of(5) + 65
    log.flush()
    written.runtime.scheduler.run_ready()
    written.manager.checkpoints.write_recovery_points()
    written.runtime.scheduler.run_ready()
    written.stop() if clean else written.kill()
    written.disk.open(first.path).pwrite(b"\xff", position)
    written.start()

    log = written.log()
    assert log.log_end_offset == END
    with pytest.raises(CorruptRecordError, match="CRC"):
        read_all(log, 0)
    assert values(read_all(log, first.base_offset + 6)) == numbers(6, END)


def test_batches_of_an_older_epoch_behind_newer_ones_are_cut_off(world: LogWorld, caplog):
    """A power loss may undo a truncation in part: what was cut off must not come back."""
    world.append(b"0", epoch=5)
    size = world.log().segments.active.size
    old = bytearray(new_batch(b"1", base_offset=1))
    old[12:16] = (4).to_bytes(4, "big")
    path = world.active_path()
    world.kill()
    world.disk.open(path).pwrite(old, size)
    world.start()

    assert "epoch 4, after one of 5" in repairs(caplog)
    assert values(read_all(world.log())) == [b"0"]


# -- files beside the log


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("damage", ["missing", "zeroed", "torn", "empty", "ones"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
@pytest.mark.parametrize("which", [0, 1, -1])
def test_damaged_side_files_are_made_anew(written: LogWorld, which, suffix, damage, clean):
    """Of the first, a middle or the newest segment."""
    written.log()
    written.stop() if clean else written.kill()
    path = written.log().dir
    name = [n for n in written.disk.list_dir(path) if n.endswith(suffix)][which]
    file, size = written.disk.open(f"{path}/{name}"), written.disk.file_size(f"{path}/{name}")
    if damage == "missing":
        written.disk.unlink(f"{path}/{name}")
    elif damage in ("zeroed", "ones"):
        file.pwrite((b"\0" if damage == "zeroed" else b"\xff") * size, 0)
    else:
        file.truncate(max(0, size - 3) if damage == "torn" else 0)
    written.start()

    check_serves(written, END)
    log = written.log()
    assert [log.read(o, 1, max_offset=END, min_one_message=True).records.size for o in range(END)]
    assert all(segment.max_timestamp_ms == NOW_MS for segment in log.segments)


@pytest.mark.parametrize("clean", [False, True])
def test_snapshots_that_belong_to_no_segment_are_removed(written: LogWorld, clean):
    """All but the newest, from which the next start reads on; one behind the end is none of it."""

    def snapshots() -> set[int]:
        return {int(name[:20]) for name in written.names() if name.endswith(".snapshot")}

    segments = set(written.log().segments.base_offsets)
    data = written.disk.read_bytes(written.path(f"{max(segments):020d}.snapshot"))
    strays = (3, END + 10)
    for offset in strays:
        assert offset not in segments
        written.overwrite(written.path(f"{offset:020d}.snapshot"), data)
    written.restart(clean=clean)

    assert snapshots() & set(strays) == set()
    assert segments - {0} <= snapshots() <= segments | {END}
    assert END in snapshots() or not clean
    check_serves(written, END)


def test_index_that_is_made_anew_is_named_in_the_log(written: LogWorld, caplog):
    """The disk may be at its end, and the operator reads of it there."""
    segment = written.log().segments.items[1]
    written.stop()
    written.overwrite(segment.offset_index.path, b"1234567")
    written.start()

    assert f"rebuilt the indexes of segment {segment.base_offset} (" in repairs(caplog)
    assert "no whole entries" in repairs(caplog)


@pytest.mark.parametrize("clean", [False, True])
def test_all_snapshots_lost_and_the_producers_are_found_in_the_log(written: LogWorld, clean):
    """Duplicates are recognised all the same."""
    written.stop() if clean else written.kill()
    directory = written.log().dir
    for name in written.disk.list_dir(directory):
        if name.endswith(".snapshot"):
            written.disk.unlink(f"{directory}/{name}")
    written.start()

    check_serves(written, END)


def test_retries_across_a_roll_are_recognised_after_a_restart(world: LogWorld):
    """A snapshot keeps one batch of a producer; the log has the others."""
    for number in range(5):
        world.append(b"x" * 100, base_sequence=number, **PRODUCER)
    world.log().roller.roll()
    for clean in (False, True):
        world.restart(clean=clean)
        for number in range(5):
            assert world.append(b"x" * 100, base_sequence=number, **PRODUCER).is_duplicate


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("contents", [None, b"", b"0\n1\n", b"garbage", b"0\n2\n5 10\n3 0\n"])
def test_damaged_leader_epochs_are_read_out_of_the_batches(written: LogWorld, contents, clean):
    """Every batch carries its epoch."""
    path = written.path("leader-epoch-checkpoint")
    written.log().flush()
    written.runtime.scheduler.run_ready()
    written.stop() if clean else written.kill()
    written.disk.unlink(path)
    if contents is not None:
        written.overwrite(path, contents)
    written.start()

    check_serves(written, END)


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("offset", [1, 7, 16, 40])
def test_epochs_of_deleted_records_are_known_when_the_records_are_back(
    written: LogWorld, offset, clean
):
    """Where a log starts is written down now and then; epochs are with every flush."""
    log = written.log()
    log.update_high_watermark(END)
    log.maybe_increment_log_start_offset(offset)
    written.append(b"%d" % END, epoch=4, base_sequence=END, **PRODUCER)
    log.flush()
    written.runtime.scheduler.run_ready()
    written.stop() if clean else written.kill()
    written.overwrite("/data/log-start-offset-checkpoint", b"0\n0\n")
    written.start()

    log = written.log()
    assert log.log_start_offset == 0
    assert log.leader_epoch_cache.entries == [(epoch, 15 * epoch) for epoch in range(5)]


def test_batches_of_before_there_were_epochs_are_not_read_for_them(world: LogWorld, caplog):
    """Their log was upgraded: that its epochs begin later is no sign of anything.

    A header that cannot be read shows whether all were looked at.
    """
    for number in range(60):
        world.append(b"%d" % number, epoch=-1 if number < 40 else 3)
    segment = world.log().segments.items[1]
    position = segment.position_of(segment.base_offset + 5)
    world.stop()
    file = world.disk.open(segment.path)
    file.pwrite(b"\xff" * 12, position)
    file.close()
    world.start()

    assert world.log().leader_epoch_cache.entries == [(3, 40)]
    assert "is damaged" not in caplog.text


def test_epochs_that_batches_deny_are_forgotten(written: LogWorld):
    """Power was lost after a cut and a new beginning: the file tells of an epoch that is gone.

    Where it was believed, a follower with records of that epoch kept them beside others.
    """
    path = written.path("leader-epoch-checkpoint")
    written.runtime.scheduler.run_ready()
    written.kill()
    written.overwrite(path, b"0\n3\n0 0\n1 15\n2 20\n")
    written.start()

    check_serves(written, END)


@pytest.mark.parametrize("contents", [None, b"", b"nonsense", b"0\n1\ntopic 0 x\n"])
def test_damaged_recovery_checkpoint_means_that_all_is_scanned(written: LogWorld, contents, caplog):
    """Which is slower, and as good."""
    written.log().flush()
    written.runtime.scheduler.run_ready()
    written.kill()
    if contents is not None:
        written.overwrite("/data/recovery-point-offset-checkpoint", contents)
    written.start()

    assert "from offset 0 to 60" in repairs(caplog)
    check_serves(written, END)


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_gap_that_a_crash_leaves_is_where_the_log_ends(policy, caplog):
    """A gap ends the log, also of a compacted topic whose checkpoints say that nothing was."""
    world = LogWorld()
    world.configure(cleanup_policy=policy)
    for _ in range(60):
        world.append(b"v", key=b"k")
    world.kill()
    cut = world.log().segments.items[1]
    world.disk.open(cut.path).truncate(0)
    world.start()

    assert world.log().log_end_offset == cut.base_offset
    assert "are gone" in caplog.text


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("offset", [1, 4, 9, 49])
def test_segment_that_begins_within_the_one_before_is_not_kept(policy, offset, caplog):
    """A loss of power has undone a cut: the old batches are there, and so is the next segment."""
    world = LogWorld(**{"log.cleaner.enable": "false"})
    world.configure(segment_bytes=100_000, cleanup_policy=policy)
    world.append_many(50)
    first = world.active_path()
    before = world.disk.contents(first)
    world.runtime.scheduler.run(world.manager.truncate(world.log(), offset))
    world.log().roller.roll()
    world.append_many(5)
    world.kill()
    world.overwrite(first, before)
    world.start()

    assert values(read_all(world.log())) == numbers(0, 50)
    assert f"segment {offset} begins before 50" in repairs(caplog)
    world.append_many(3)
    assert values(read_all(world.restart())) == numbers(0, 53)


def test_only_segments_behind_the_recovery_point_are_scanned(written: LogWorld, caplog):
    """The line says how much that was."""
    written.runtime.scheduler.run_ready()
    written.manager.checkpoints.write_recovery_points()
    written.runtime.scheduler.run_ready()
    active = written.log().segments.active
    written.restart()

    assert repairs(caplog) == (
        f"Recovered /data/topic-0: checked {active.size} bytes in 1 segments "
        f"from offset {active.base_offset} to 60"
    )


def test_log_start_survives_with_its_checkpoint(written: LogWorld):
    """After a crash it may be the older one, never a later one than there are records."""
    written.log().maybe_increment_log_start_offset(25)
    assert written.restart(clean=True).log_start_offset == 25
    written.overwrite("/data/log-start-offset-checkpoint", b"0\n1\ntopic 0 7000\n")
    written.stop()
    written.overwrite("/data/log-start-offset-checkpoint", b"0\n1\ntopic 0 7000\n")
    written.start()

    log = written.log()
    assert (log.log_start_offset, log.log_end_offset) == (0, END)
    assert values(read_all(log)) == numbers(0, END)


def test_log_that_lost_all_behind_its_start_begins_there_anew(written: LogWorld):
    """Offsets that were given once are not given again."""
    written.log().maybe_increment_log_start_offset(58)
    written.manager.checkpoints.write_log_start_offsets()
    written.runtime.scheduler.run_ready()
    paths = [segment.path for segment in written.log().segments]
    written.kill()
    for path in paths:
        written.disk.open(path).truncate(0)
    log = written.restart()

    assert (log.log_start_offset, log.log_end_offset) == (58, 58)
    assert [name for name in written.names() if name.endswith(".log")] == [f"{58:020d}.log"]
    assert written.append(b"x").first_offset == 58


# -- leftovers


def test_deleted_and_temporary_files_are_swept_away(written: LogWorld):
    """Deleted and temporary files go, and the remains of a segment without batches."""
    written.kill()
    directory = written.log().dir
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000007.index.deleted",
        "00000000000000000007.log.cleaned",
        "00000000000000000003.index",
        "leader-epoch-checkpoint.tmp",
    ):
        written.overwrite(f"{directory}/{name}", b"x")
    before = len(written.disk.list_dir(directory))
    written.start()

    names = written.names()
    assert not [n for n in names if n.endswith((".deleted", ".cleaned", ".tmp"))]
    assert "00000000000000000003.index" not in names
    assert len(names) <= before - 5 + 1
    check_serves(written, END)


def test_finished_swap_takes_the_place_of_what_it_was_cleaned_from(written: LogWorld, caplog):
    """The cleaner had made all of its files and was renaming them."""
    log = written.log()
    second, fourth = log.segments.items[1], log.segments.items[3]
    merged = b"".join(segment.file.pread(segment.size, 0) for segment in log.segments.items[1:3])
    written.kill()
    directory = log.dir
    written.overwrite(f"{directory}/{second.base_offset:020d}.log.swap", merged)
    written.start()

    bases = written.log().segments.base_offsets
    assert bases[:3] == (0, second.base_offset, fourth.base_offset)
    assert written.log().segments.items[1].size == len(merged)
    assert f"finished the swap of {second.base_offset:020d}.log.swap" in repairs(caplog)
    check_serves(written, END)


def test_swap_that_was_not_finished_is_undone(written: LogWorld):
    """A `.cleaned` file says that what it replaces is still needed (KAFKA-6264)."""
    log = written.log()
    bases = log.segments.base_offsets
    second = log.segments.items[1]
    written.kill()
    path = f"{log.dir}/{second.base_offset:020d}.log"
    written.overwrite(path + ".swap", second.file.pread(100, 0))
    written.overwrite(path + ".cleaned", b"half")
    written.start()

    assert written.log().segments.base_offsets == bases
    check_serves(written, END)


# -- transactions


def test_aborted_transactions_are_found_by_the_scan(world: LogWorld):
    """The transaction index is made anew from the markers."""
    producer = {**PRODUCER, "is_transactional": True}
    log = world.log()
    for number in range(3):
        world.append(b"x", base_sequence=number, **producer)
        marker = build_batch(
            [(NOW_MS, struct.pack(">hh", 0, number % 2), bytes(6), ())], is_control=True, **producer
        )
        log.append_as_leader(memoryview(marker), 0, now_ms=0, origin=AppendOrigin.COORDINATOR)
    world.append(b"open", base_sequence=3, **producer)
    before = log.segments.active.txn_index.entries()
    assert [(a.first_offset, a.last_offset) for a in before] == [(0, 1), (4, 5)]

    for clean in (False, True):
        log = world.restart(clean=clean)
        assert log.segments.active.txn_index.entries() == before
        log.update_high_watermark(log.log_end_offset)
        assert log.last_stable_offset == 6
