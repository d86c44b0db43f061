"""A loaded log against the one that was left: every part of it, and the files beside it."""

from __future__ import annotations

import pytest
from log_world import (
    DIR,
    PARTITION,
    WRITER,
    LogWorld,
    new_batch,
    parts,
    parts_of_live,
    read_all,
)

from ottla.config.topic_config import TopicConfig
from ottla.log.log import Log
from ottla.log.producer_state_manager import ProducerStateManager
from ottla.log.recovery import (
    WIDEST_LOSS,
    WINDOW_INDEX_ENTRIES,
    LoadedLog,
    LogSource,
    load_log,
    restore_producers,
    sync_recovered,
)
from ottla.runtime.scheduler import at_once

DIRECTORY = f"{DIR}/{PARTITION}"


def parts_of_loaded(loaded: LoadedLog) -> dict[str, object]:
    return parts(loaded.segments, loaded.producer_state_manager, loaded.leader_epoch_cache, True)


def source(world: LogWorld, **settings: object) -> LogSource:
    """What a start after a kill would load the log of partition 0 from."""
    now_ms = world.runtime.clock.now_ms()
    topic = TopicConfig.of(world.config, world.topic)
    return LogSource(world.disk, DIRECTORY, PARTITION, topic, now_ms, 10**9, **settings)


def reload(world: LogWorld, **settings: object) -> LoadedLog:
    return load(source(world, **settings))


def load(origin: LogSource) -> LoadedLog:
    loaded = load_log(origin)
    sync_recovered(loaded)
    return loaded


def check_files(world: LogWorld, loaded: LoadedLog) -> None:
    """The files say what is in memory, and none of them stays open but the newest one."""
    for segment in loaded.segments:
        for index in (segment.offset_index, segment.time_index):
            assert world.disk.contents(index.path) == bytes(index.raw_entries())
    assert set(world.disk.open_files) <= {loaded.segments.active.path}


@pytest.mark.parametrize("is_clean", [False, True])
def test_loaded_log_is_the_one_that_was_left(eventful: LogWorld, is_clean):
    """Segments, indexes, producers, transactions and epochs, by a scan or by what was written."""
    before = parts_of_live(eventful.log())
    assert len(before["segments"]) > 5
    assert all(len(part) > 1 for part in before["segments"][0][3:5])
    eventful.stop() if is_clean else eventful.kill()
    eventful.disk.end_process()
    origin = source(eventful, is_clean=is_clean)
    loaded = load(origin)

    assert parts_of_loaded(loaded) == before
    assert loaded.recovery_point == loaded.log_end_offset == eventful.log().log_end_offset
    assert (len(loaded.repairs), loaded.has_new_names) == (0 if is_clean else 1, False)
    assert (origin.is_loaded, origin.scanned_bytes) == (True, origin.bytes_to_scan)
    check_files(eventful, loaded)


@pytest.mark.parametrize(("is_clean", "scanned_from"), [(True, 0), (False, 0), (False, 3)])
def test_loaded_log_without_its_side_files_is_the_one_that_was_left(
    eventful: LogWorld, is_clean, scanned_from
):
    """The batches tell everything, and the files are made anew."""
    before = parts_of_live(eventful.log())
    recovery_point = eventful.log().segments.base_offsets[scanned_from]
    eventful.stop() if is_clean else eventful.kill()
    for name in eventful.names():
        if name.endswith((".index", ".timeindex", ".snapshot")) or name.startswith("leader"):
            eventful.disk.unlink(eventful.path(name))
    eventful.disk.end_process()
    loaded = reload(eventful, is_clean=is_clean, recovery_point=recovery_point)

    assert parts_of_loaded(loaded) == before
    assert (eventful.disk.contents(eventful.path("leader-epoch-checkpoint"))) == (
        loaded.leader_epoch_cache.contents()
    )
    assert not loaded.leader_epoch_cache.is_dirty
    check_files(eventful, loaded)


@pytest.mark.parametrize("is_clean", [False, True])
def test_log_that_was_cut_is_the_same_after_a_loss_of_power(eventful: LogWorld, is_clean):
    """It counts as flushed then: what was cut and dropped does not come back."""
    log = eventful.log()
    damaged = log.segments.active if is_clean else log.segments.items[-3]
    position = damaged.size - 20
    eventful.stop() if is_clean else eventful.kill()
    eventful.disk.open(damaged.path).pwrite(b"\xff" * 9, position)
    eventful.disk.sync_all()
    eventful.disk.end_process()
    loaded = reload(eventful, is_clean=is_clean)
    expected = parts_of_loaded(loaded)
    check_files(eventful, loaded)
    eventful.disk.crash()
    again = reload(eventful, is_clean=False, recovery_point=loaded.recovery_point)

    assert damaged.base_offset < loaded.log_end_offset < log.log_end_offset
    assert parts_of_loaded(again) == expected
    assert again.log_end_offset == loaded.log_end_offset
    assert len(again.segments) == len(log.segments) - (0 if is_clean else 2)


def test_clean_stop_is_not_believed_where_the_newest_batches_are_not_in_order(eventful: LogWorld):
    """A batch of an old offset behind the end is no part of the log."""
    before = parts_of_live(eventful.log())
    eventful.stop()
    active = eventful.log().segments.active
    eventful.disk.open(active.path).pwrite(new_batch(b"old", base_offset=3), active.size)
    loaded = reload(eventful, is_clean=True)

    assert parts_of_loaded(loaded) == before
    last = loaded.log_end_offset - 1
    assert f"a batch with offsets 3-3 cannot follow offset {last}" in loaded.repairs[-1]


@pytest.mark.parametrize("is_clean", [False, True])
def test_epochs_follow_the_ends_of_the_log(eventful: LogWorld, is_clean):
    """Those before its start are forgotten, and so are those that begin at its end."""
    end, epochs = eventful.log().log_end_offset, eventful.log().leader_epoch_cache.entries
    eventful.stop() if is_clean else eventful.kill()
    path = eventful.path("leader-epoch-checkpoint")
    eventful.overwrite(path, b"0\n3\n0 0\n1 60\n99 %d\n" % end)
    loaded = reload(eventful, is_clean=is_clean, log_start_offset=20, recovery_point=end)
    newest = [
        each for each in epochs if each.start_offset > eventful.log().segments.active.base_offset
    ]
    entries = loaded.leader_epoch_cache.entries

    assert entries[:2] == [(0, 20), (1, 60)]
    assert entries[3:] == ([] if is_clean else newest)
    assert eventful.disk.contents(path) == loaded.leader_epoch_cache.contents()


@pytest.mark.parametrize("is_clean", [False, True])
def test_log_in_a_new_directory_begins_at_its_start_offset(world: LogWorld, is_clean):
    """Its names have to be forced to disk with its first flush."""
    world.disk.make_dirs(DIR)
    loaded = reload(world, is_clean=is_clean, log_start_offset=25)

    assert (loaded.log_start_offset, loaded.log_end_offset) == (25, 25)
    assert (loaded.has_new_names, loaded.repairs) == (True, [])
    assert loaded.producer_state_manager.end_offset == 25
    assert not world.disk.exists(f"{DIRECTORY}/leader-epoch-checkpoint")
    assert [name for name in world.disk.list_dir(DIRECTORY) if name.endswith(".log")] == [
        f"{25:020d}.log"
    ]


@pytest.mark.parametrize("is_clean", [False, True])
def test_empty_log_may_have_new_names(world: LogWorld, is_clean):
    """Its first flush may not have come before the broker ended, and costs little."""
    world.log()
    world.stop() if is_clean else world.kill()

    assert reload(world, is_clean=is_clean).has_new_names


def test_log_that_begins_anew_behind_what_is_left_has_new_names(eventful: LogWorld):
    """What was before its start is named, and nothing of its producers is known."""
    eventful.kill()
    end = eventful.log().log_end_offset
    bases = eventful.log().segments.base_offsets
    loaded = reload(eventful, log_start_offset=end + 5)

    assert (loaded.log_start_offset, loaded.log_end_offset) == (end + 5, end + 5)
    assert (loaded.has_new_names, loaded.producer_state_manager.producers) == (True, {})
    assert loaded.repairs[1:] == [
        f"dropped segment {base}, before the log's start" for base in bases
    ]


def test_segment_is_as_old_as_its_file(eventful: LogWorld):
    """Where records have no times, segment.ms counts from there, and not from the start."""
    eventful.stop()
    modified_ms = eventful.disk.modified_ms(eventful.active_path())
    eventful.runtime.clock.advance(5000)
    loaded = reload(eventful, is_clean=True)

    assert loaded.segments.active.created_ms == modified_ms < eventful.runtime.clock.now_ms()


# -- gaps


@pytest.mark.parametrize(
    ("base", "policy", "settings", "end", "repair"),
    [
        (10, "delete", {}, 2, "offsets from 2 to 9 are gone"),
        (10, "compact", {}, 2, "offsets from 2 to 9 are gone"),
        (10, "compact", {"cleaned_offset": 9}, 2, "offsets from 2 to 9 are gone"),
        (10, "compact", {"cleaned_offset": 10}, 11, ""),
        (10, "delete", {"recovery_point": None}, 2, "offsets from 2 to 9 are gone"),
        (10, "compact", {"recovery_point": None}, 11, "took offsets from 2 to 9 for compacted"),
        (WIDEST_LOSS + 2, "delete", {}, 2, f"offsets from 2 to {WIDEST_LOSS + 1} are gone"),
        (WIDEST_LOSS + 3, "delete", {}, WIDEST_LOSS + 4, ""),
    ],
)
def test_gap_between_segments_is_a_loss_unless_compaction_may_have_left_it(
    world: LogWorld, base, policy, settings, end, repair
):
    """It may behind the cleaned offset never, and where the recovery points are lost anywhere."""
    world.topic["cleanup.policy"] = policy
    world.disk.make_dirs(DIRECTORY)
    for offset, count in ((0, 2), (base, 1)):
        data = new_batch(*[b"v"] * count, base_offset=offset)
        world.disk.open(f"{DIRECTORY}/{offset:020d}.log", create=True).pwrite(data, 0)
    loaded = reload(world, **settings)
    is_whole = end > base

    assert loaded.log_end_offset == end
    assert loaded.segments.base_offsets == ((0, base) if is_whole else (0,))
    assert repair in " ".join(loaded.repairs)
    assert ("dropped segment" in " ".join(loaded.repairs)) is not is_whole


@pytest.mark.parametrize(("last", "is_taken"), [(2**63 - 2, True), (2**63 - 1, False)])
def test_batch_behind_the_largest_offset_is_none(world: LogWorld, last, is_taken):
    """Behind it there would be no offset for the end of the log."""
    world.disk.make_dirs(DIRECTORY)
    name = f"{DIRECTORY}/{last:020d}.log"
    world.disk.open(name, create=True).pwrite(new_batch(b"v", base_offset=last), 0)
    loaded = reload(world)

    assert loaded.log_end_offset == (last + 1 if is_taken else last)


# -- swaps


def test_swap_without_batches_takes_the_place_of_its_segment(eventful: LogWorld):
    """The aborted transactions of what is gone go with it."""
    log = eventful.log()
    second = log.segments.items[1]
    assert second.txn_index.entries()
    eventful.kill()
    eventful.disk.end_process()
    eventful.disk.open(f"{second.path}.swap", create=True).close()
    loaded = reload(eventful, recovery_point=log.log_end_offset)

    assert loaded.segments.base_offsets == log.segments.base_offsets
    assert (loaded.segments.items[1].size, loaded.segments.items[1].txn_index.entries()) == (0, [])
    check_files(eventful, loaded)


# -- producers


def restored(log: Log, end_offset: int) -> ProducerStateManager:
    manager = ProducerStateManager(log.log_dir.disk, PARTITION, log.dir, 10**9)
    manager.find_snapshots(log.log_dir.disk.list_dir(log.dir))
    at_once(restore_producers(manager, log.segments, end_offset))
    return manager


def test_producers_are_restored_up_to_any_offset(eventful: LogWorld):
    """No batch at the offset or behind it counts, and none before it is left out."""
    log = eventful.log()
    sequences = {}
    for record in read_all(log):
        if record.value is not None and record.value.strip(b"v") == b"":
            sequences[record.offset] = len(sequences)
    for end in range(1, log.log_end_offset + 1):
        manager = restored(log, end)
        assert manager.end_offset == end
        last = max(offset for offset in sequences if offset < end)
        known = manager.producers[0].batches[-1]
        assert (known.last_offset, known.last_sequence) == (last, sequences[last])


@pytest.mark.parametrize("is_clean", [False, True])
def test_producer_whose_batches_were_deleted_is_known_from_the_snapshot(eventful, is_clean):
    """Its number goes on, wherever the log begins by now."""
    log = eventful.log()
    header = {"producer_id": 99, "producer_epoch": 0, "base_sequence": 0}
    eventful.append(b"once", **header)
    for _ in range(40):
        eventful.append(b"other")
    log.remove_segments(log.segments.items[:-1])
    eventful.stop() if is_clean else eventful.kill()
    loaded = reload(eventful, is_clean=is_clean)

    assert loaded.producer_state_manager.producers[99].last_sequence == 0


def test_start_reads_no_more_of_the_log_for_producers_than_its_last_stretch(world: LogWorld):
    """Each segment of one batch counts as one entry of an index."""
    for number in range(WINDOW_INDEX_ENTRIES + 20):
        world.append(b"%d" % number, base_sequence=number, **WRITER)
        world.log().roller.roll()
    log = world.log()
    read: set[str] = set()
    world.disk.on_call = lambda name, path: read.add(path) if name == "pread" else None
    manager = restored(log, log.log_end_offset)

    assert len(manager.producers[0].batches) == 5
    assert len([path for path in read if path.endswith(".log")]) == WINDOW_INDEX_ENTRIES


@pytest.mark.parametrize("field", [8, 16])
def test_damaged_header_among_the_flushed_batches_does_not_keep_a_log_from_loading(
    eventful: LogWorld, caplog, field
):
    """It spoils one batch for its readers, and what is known of the producers before it."""
    log = eventful.log()
    flushed = log.segments.items[-2]
    entry = flushed.offset_index.last_entry()
    eventful.kill()
    eventful.disk.open(flushed.path).pwrite(b"\xff", entry.position + field)
    loaded = reload(eventful, recovery_point=log.segments.active.base_offset)

    assert loaded.log_end_offset == log.log_end_offset
    assert loaded.producer_state_manager.producers[0].last_sequence == 75
    assert f"Some producers of {flushed.path} are not known" in caplog.text
