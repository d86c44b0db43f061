"""A log that was cut is as one that was never longer; so are its files after a loss of power."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest
from breadth import some
from log_world import (
    PARTITION,
    LogWorld,
    numbers,
    parts_of_live,
    read_all,
    values,
    write_eventfully,
)

from ottla.errors import ErrorCode, KafkaError
from ottla.log import recovery
from ottla.log.log import Log
from ottla.log.log_truncation import producers_before, truncate_fully_and_start_at, truncate_to
from ottla.log.recovery import restore_producers
from ottla.runtime.scheduler import at_once


def parts_without_empty_end(log: Log) -> dict[str, object]:
    """The parts of a log; it makes no difference whether the last segment has begun already."""
    parts = parts_of_live(log)
    segments = [each for each in parts["segments"] if each[1]]
    return {**parts, "segments": segments, "tail": parts["tail"] if log.segments.active.size else 0}


def borders(log: Log) -> list[int]:
    """Offsets around the beginnings of segments, and some others."""
    found = {base + each for base in log.segments.base_offsets for each in (-1, 0, 1)}
    return sorted({*found, 5, 33, 77, log.log_end_offset - 1} & set(range(1, log.log_end_offset)))


def test_cut_log_is_as_one_that_was_never_longer(eventful: LogWorld):
    """Segments, indexes, producers, transactions and epochs, wherever it is cut."""
    log = eventful.log()
    offsets = borders(log)
    expected: dict[int, dict[str, object]] = {}
    for offset in offsets:
        shorter = LogWorld()
        write_eventfully(shorter, until=offset)
        expected[offset] = parts_without_empty_end(shorter.log())
    eventful.runtime.scheduler.run_ready()
    for offset in reversed(offsets):
        truncate_to(log, offset)
        found = parts_without_empty_end(log)
        assert found["segments"] == expected[offset]["segments"]
        assert found["tail"] in (0, expected[offset]["tail"])
        for name in ("epochs", "open", "producers"):
            assert found[name] == expected[offset][name]
        assert (log.log_end_offset, log.high_watermark) == (offset, offset)
        assert log.recovery_point <= offset
        assert max(log.producer_state_manager.snapshot_offsets, default=0) <= offset
    again = parts_without_empty_end(eventful.restart())
    assert again["segments"][0][:3] == expected[offsets[0]]["segments"][0][:3]


@pytest.mark.parametrize("offset", [5, 27, 42, 77])
def test_cut_log_is_the_same_after_a_loss_of_power(eventful: LogWorld, offset):
    """After a loss of power nothing that was cut comes back, even if it had been on disk."""
    log = eventful.log()
    log.flush()
    eventful.runtime.scheduler.run_ready()
    eventful.disk.sync_all()
    eventful.runtime.scheduler.run(eventful.manager.truncate(log, offset))
    expected = parts_without_empty_end(log)
    eventful.append(b"new", epoch=50)
    log.flush()
    eventful.runtime.scheduler.run_ready()
    eventful.kill()
    eventful.disk.crash()
    log = eventful.restart()

    assert log.log_end_offset == offset + 1
    assert values(read_all(log))[-1] == b"new"
    assert log.leader_epoch_cache.entries == [*expected["epochs"], (50, offset)]


def test_cut_at_or_behind_the_end_only_drops_epochs_without_records(eventful: LogWorld):
    """Their leader may be of the past."""
    log = eventful.log()
    end, before = log.log_end_offset, parts_of_live(log)
    calls: list[str] = []
    eventful.disk.on_call = lambda name, path: calls.append(name)
    for offset in (end, end + 5):
        log.leader_epoch_cache.assign(99, offset)
        calls.clear()
        truncate_to(log, offset)
        assert calls == []
        assert parts_of_live(log) == before
        assert log.log_end_offset == end


@pytest.mark.parametrize("begin_at", [0, 7])
def test_cut_of_a_log_that_holds_nothing_writes_nothing(begin_at):
    """A broker that starts follows thousands of these, and each write is waited for."""
    world = LogWorld()
    log = world.log()
    if begin_at:
        truncate_fully_and_start_at(log, begin_at)
    calls: list[str] = []
    world.disk.on_call = lambda name, path: calls.append(name)
    world.runtime.scheduler.run(world.manager.truncate(log, begin_at))
    truncate_to(log, begin_at)

    assert calls == []
    assert (log.log_start_offset, log.log_end_offset) == (begin_at, begin_at)


@pytest.mark.parametrize("where", ["start", "cleaned"])
def test_cut_before_an_offset_of_the_log_takes_it_back(eventful: LogWorld, where):
    """A log begins, and is clean, no further than it goes."""
    log = eventful.log()
    if where == "start":
        log.maybe_increment_log_start_offset(40)
    else:
        log.cleaned_offset = 40
    truncate_to(log, 60)
    assert (log.log_start_offset, log.cleaned_offset) == ((40, 0) if where == "start" else (0, 40))
    truncate_to(log, 30)

    assert (log.log_start_offset, log.cleaned_offset) == ((30, 0) if where == "start" else (0, 30))


@pytest.mark.parametrize("begin_at", [0, 27, 30, 500])
def test_log_that_begins_anew_has_nothing_but_its_start(eventful: LogWorld, begin_at):
    """Whether a segment begins there already or not; also after a loss of power."""
    log = eventful.log()
    assert 27 in log.segments.base_offsets
    log.flush()
    eventful.runtime.scheduler.run_ready()
    eventful.disk.sync_all()
    revision = max(segment.revision for segment in log.segments)
    kept = [segment for segment in log.segments.items[:1] if segment.base_offset == begin_at]
    truncate_fully_and_start_at(log, begin_at)
    (segment,) = log.segments

    assert kept in ([], [segment])
    assert not kept or segment.revision > revision
    assert (segment.base_offset, segment.size, segment.file.size()) == (begin_at, 0, 0)
    assert segment.bytes_since_last_index_entry == 0
    assert (len(segment.offset_index), len(segment.time_index)) == (0, 0)
    assert segment.txn_index.entries() == []
    assert segment.position_of(begin_at) is None
    state = log.producer_state_manager
    assert (state.producers, state.ongoing_txns, state.snapshot_offsets) == ({}, {}, ())
    assert log.leader_epoch_cache.entries == []
    assert {log.log_start_offset, log.log_end_offset, log.cleaned_offset} == {begin_at}
    assert (log.high_watermark, log.recovery_point <= begin_at) == (begin_at, True)
    eventful.append(b"new", epoch=50)
    log.flush()
    eventful.runtime.scheduler.run_ready()
    eventful.runtime.advance(2000)
    assert [name for name in eventful.names() if name.endswith(".log")] == [f"{begin_at:020d}.log"]
    eventful.manager.checkpoints.write_log_start_offsets()
    eventful.runtime.scheduler.run_ready()
    eventful.kill()
    eventful.disk.crash()
    log = eventful.restart()
    assert (log.log_start_offset, values(read_all(log))) == (begin_at, [b"new"])


@pytest.mark.parametrize("begin_at", [0, 27, 30])
def test_names_of_a_log_that_begins_anew_are_on_disk_at_once(eventful: LogWorld, begin_at):
    """An old segment that came back would be taken for a part of it."""
    log = eventful.log()
    eventful.disk.sync_all()
    truncate_fully_and_start_at(log, begin_at)
    eventful.kill()
    eventful.disk.crash()

    assert [n for n in eventful.names() if n.endswith(".log")] == [f"{begin_at:020d}.log"]


@pytest.mark.parametrize("offset", [5, 27])
def test_names_of_cut_segments_are_gone_from_the_disk_at_once(eventful: LogWorld, offset):
    """They would leave a hole behind what is appended next."""
    log = eventful.log()
    eventful.disk.sync_all()
    truncate_to(log, offset)
    eventful.kill()
    eventful.disk.crash()

    names = [int(name[:20]) for name in eventful.names() if name.endswith(".log")]
    assert max(names) <= offset


def test_cut_before_the_first_segment_begins_anew_there(eventful: LogWorld):
    """A follower whose leader is far behind it."""
    log = eventful.log()
    log.maybe_increment_log_start_offset(45)
    log.remove_segments(log.segments.items[:3])
    truncate_to(log, 30)
    assert (log.segments.base_offsets, log.log_end_offset) == ((30,), 30)
    truncate_to(log, 20)

    assert (log.segments.base_offsets, log.log_end_offset) == ((20,), 20)
    assert log.log_start_offset == 20


@pytest.mark.parametrize("cut", [truncate_to, truncate_fully_and_start_at])
def test_cut_that_fails_half_way_takes_the_directory_offline(eventful: LogWorld, cut):
    """Neither what was there nor what should be can be relied on; nothing more is cut then."""
    log = eventful.log()
    eventful.disk.fail("fsync_dir")
    with pytest.raises(KafkaError) as caught:
        cut(log, 30)
    assert (caught.value.error, log.log_dir.is_offline) == (ErrorCode.KAFKA_STORAGE_ERROR, True)
    before = log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        cut(log, 3)

    assert (caught.value.error, log.log_end_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, before)
    with pytest.raises(KafkaError):
        cut(log, before + 10)


def test_snapshot_behind_the_cut_is_removed(eventful: LogWorld):
    """It was taken at the end of the log when the broker stopped, where no segment begins."""
    log = eventful.restart(clean=True)
    end = log.log_end_offset
    assert log.producer_state_manager.latest_snapshot_offset == end
    truncate_to(log, end - 1)

    assert log.producer_state_manager.latest_snapshot_offset < end
    assert f"{end:020d}.snapshot" not in eventful.names()


def test_snapshot_at_the_cut_stays(eventful: LogWorld):
    """It has the state of just those batches that are left."""
    log = eventful.log()
    offset = log.segments.base_offsets[3]
    truncate_to(log, offset)

    assert log.producer_state_manager.latest_snapshot_offset == offset


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize(("start", "cut"), [(40, 40), (40, 35), (None, None)])
def test_log_without_records_is_free_for_older_epochs(eventful: LogWorld, start, cut, is_clean):
    """What is left of deleted records stands in no file before those of another history.

    Such batches were of a later epoch: at the next start what came behind them was cut off.
    """
    log = eventful.log()
    start = log.log_end_offset if start is None else start
    cut = start if cut is None else cut
    log.maybe_increment_log_start_offset(start)
    producers = dict(log.producer_state_manager.producers) if cut == log.log_end_offset else None
    eventful.runtime.scheduler.run(eventful.manager.truncate(log, cut))
    assert (log.log_start_offset, log.log_end_offset, log.size_in_bytes) == (cut, cut, 0)
    assert producers is None or log.producer_state_manager.producers == producers
    known = {
        number: each.last_sequence for number, each in log.producer_state_manager.producers.items()
    }
    eventful.append(b"of another history", epoch=0)
    log.flush()
    eventful.runtime.scheduler.run_ready()
    log = eventful.restart(clean=is_clean)

    assert values(read_all(log)) == [b"of another history"]
    assert log.leader_epoch_cache.entries == [(0, cut)]
    found = log.producer_state_manager.producers
    assert known
    assert {number: each.last_sequence for number, each in found.items()} == known


@pytest.mark.parametrize("start", [0, 47])
def test_batch_that_holds_the_cut_may_be_sent_again(start):
    """It goes as a whole, and a producer that has no answer yet sends it once more."""
    world = LogWorld()
    header = {"producer_id": 7, "producer_epoch": 0}
    world.append(*numbers(0, 40), base_sequence=0, **header)
    world.append(*numbers(40, 50), base_sequence=40, **header)
    log = world.log()
    log.maybe_increment_log_start_offset(start)
    truncate_to(log, 45)
    info = world.append(*numbers(40, 50), base_sequence=40, **header)

    assert info.first_offset == 45


def producers_of(log: Log) -> object:
    """All that is known of the producers, and the same read once more from the files."""
    read = log.producer_state_manager.with_same_snapshots()
    at_once(restore_producers(read, log.segments, log.log_end_offset))
    return [
        (each.producers, each.ongoing_txns, each.unreplicated_txns, each.end_offset)
        for each in (log.producer_state_manager, read)
    ]


@pytest.mark.parametrize("offset", range(30, 100, 6))
@pytest.mark.parametrize("headers", [1, 3, 1000])
def test_producers_are_read_in_slices_before_the_log_is_cut(eventful, monkeypatch, headers, offset):
    """A segment may have a million batches; nobody waits for that."""
    monkeypatch.setattr(recovery, "HEADERS_IN_A_SLICE", headers)
    log = eventful.log()
    snapshots = log.producer_state_manager.snapshot_offsets
    left = offset - max(each for each in (0, *snapshots) if each <= offset)
    turns = len(list(producers_before(log, offset)))
    eventful.runtime.scheduler.run(eventful.manager.truncate(log, offset))

    assert log.log_end_offset == offset
    assert turns == left // headers
    known, read = producers_of(log)
    assert known == read


def retain(world: LogWorld) -> None:
    world.configure(retention_bytes=world.log().size_in_bytes // 2)
    assert at_once(world.manager.delete_old_segments())


def delete(world: LogWorld) -> None:
    world.manager.delete_log(PARTITION)


def append(world: LogWorld) -> None:
    world.append(b"more")


@pytest.mark.parametrize("change", [retain, delete, append])
def test_cut_of_a_log_that_changes_while_its_producers_are_read(eventful, monkeypatch, change):
    """What was read of it before does not count."""
    monkeypatch.setattr(recovery, "HEADERS_IN_A_SLICE", 1)
    log = eventful.log()
    offset = log.log_end_offset - 2
    work = producers_before(log, offset)
    next(work)
    change(eventful)

    if log.is_deleted:
        with pytest.raises(KafkaError):
            truncate_to(log, offset, at_once(work))
        return
    assert at_once(work) is None
    truncate_to(log, offset)
    known, read = producers_of(log)
    assert known == read


def test_cut_that_is_not_wanted_after_a_pause_is_none(eventful, monkeypatch):
    """The replica has become the leader while its log was read."""
    monkeypatch.setattr(recovery, "HEADERS_IN_A_SLICE", 1)
    log, answers = eventful.log(), iter([True, False])
    before = log.log_end_offset
    cut = eventful.manager.truncate(log, before - 2, lambda: next(answers))
    eventful.runtime.scheduler.run(cut)

    assert log.log_end_offset == before


@pytest.mark.parametrize("is_offline", [False, True])
def test_error_while_producers_are_read_leaves_the_log_as_it_is(eventful, is_offline):
    """Nothing was cut yet, so that one which passes ends no directory."""
    log = eventful.log()
    before, offset = log.log_end_offset, log.log_end_offset - 2
    eventful.disk.fail("read_bytes", "*.snapshot", error=errno.EIO if is_offline else errno.EMFILE)
    with pytest.raises(KafkaError) as caught:
        eventful.runtime.scheduler.run(eventful.manager.truncate(log, offset))

    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.log_dir.is_offline, log.log_end_offset) == (is_offline, before)
    if not is_offline:
        eventful.runtime.scheduler.run(eventful.manager.truncate(log, offset))
        assert log.log_end_offset == offset


def test_start_that_was_taken_back_is_on_disk(eventful: LogWorld):
    """With the one of before, the next start would take the records before it for deleted ones."""
    log = eventful.log()
    log.maybe_increment_log_start_offset(40)
    eventful.manager.checkpoints.write_log_start_offsets()
    eventful.runtime.scheduler.run(eventful.manager.truncate(log, 30))
    eventful.append(b"of another history")
    log.flush()
    eventful.runtime.scheduler.run_ready()
    log = eventful.restart()

    assert (log.log_start_offset, values(read_all(log))) == (30, [b"of another history"])


@pytest.mark.parametrize("cut", ["truncate", "truncate_fully_and_start_at"])
@pytest.mark.parametrize("offset", [27, 30])
def test_cut_that_ends_at_any_call_of_the_disk_leaves_no_overlap(cut, offset):
    """The records that are left lie between start and end, each at its place, and more can follow.

    A new segment inside an old one hid what the old one had behind it.
    """
    calls: list[str] = []

    def cut_until(failing: int) -> LogWorld:
        """Cut a log on a disk that has failed from one of its calls on."""

        def note(name: str, path: str) -> None:
            calls.append(name)
            if len(calls) > failing:
                raise OSError(errno.EIO, name, path)

        world = LogWorld()
        write_eventfully(world)
        world.log().maybe_increment_log_start_offset(40)
        world.log().flush()
        world.runtime.scheduler.run_ready()
        world.manager.checkpoints.write_recovery_points()
        world.runtime.scheduler.run_ready()
        calls.clear()
        world.disk.on_call = note
        with suppress(KafkaError):
            world.runtime.scheduler.run(getattr(world.manager, cut)(world.log(), offset))
        world.disk.on_call = None
        return world

    cut_until(1000)
    assert len(calls) < 1000
    for failing in some(range(len(calls))):
        world = cut_until(failing)
        log = world.restart()
        end = log.log_end_offset
        for start in range(log.log_start_offset, end):
            assert [each.offset for each in read_all(log, start)] == list(range(start, end))
        world.append(b"new", epoch=50)
        assert read_all(log)[-1].offset == end
