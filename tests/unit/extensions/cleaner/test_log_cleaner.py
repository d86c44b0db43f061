"""Compaction as its users see it: which records stay, where, and for how long."""

from __future__ import annotations

import errno

import pytest
from cleaner_world import CleanerWorld
from log_world import read_all, values

from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.cleaner.cleaning import plan_of
from ottla.extensions.cleaner.log_to_clean import LogToClean
from ottla.log.log_truncation import truncate_to
from ottla.log.transaction_index import AbortedTxn
from ottla.record.compression import CompressionType
from ottla.runtime.scheduler import at_once
from ottla.structs import TopicPartition


def test_last_value_of_each_key_stays(compacted):
    """The example of the user whose mail address changes twice, in order."""
    for user, mail in [(b"1", b"a"), (b"2", b"x"), (b"1", b"b"), (b"1", b"c"), (b"3", b"y")]:
        compacted.put((user, mail))
    compacted.roll_and_clean()

    assert compacted.pairs() == [(1, b"2", b"x"), (3, b"1", b"c"), (4, b"3", b"y")]


def test_active_segment_is_left_alone(compacted):
    """The head of the log has every record, whatever was compacted behind it."""
    compacted.put((b"k", b"1"))
    compacted.put((b"k", b"2"))
    compacted.roll()
    compacted.put((b"k", b"3"))
    compacted.put((b"k", b"4"))
    compacted.clean()

    assert values(compacted.records()) == [b"2", b"3", b"4"]


def test_offsets_of_removed_records_lead_to_the_next_one(compacted):
    """Reading from 36, 37 or 38 begins at 38 when 36 and 37 are gone."""
    for offset in range(36):
        compacted.put((b"%d" % offset, b"v"))
    compacted.put((b"k", b"36"), (b"k", b"37"))
    compacted.put((b"k", b"38"))
    compacted.roll_and_clean()

    for start in (36, 37, 38):
        assert [record.offset for record in read_all(compacted.log(), start)] == [38]


def test_records_in_the_middle_of_a_batch_are_removed(compacted):
    """The batch keeps its first and last offset, and its other records their own."""
    compacted.put((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"d", b"1"))
    compacted.put((b"a", b"2"), (b"c", b"2"))
    compacted.roll_and_clean()

    batch = compacted.batches()[0]
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (0, 3, 2)
    assert compacted.pairs()[:2] == [(1, b"b", b"1"), (3, b"d", b"1")]


@pytest.mark.parametrize("codec", CompressionType)
def test_compressed_batches_keep_their_codec(compacted, codec):
    """A batch out of which records were taken is compressed as it was."""
    compacted.put((b"a", b"x" * 50), (b"b", b"y" * 50), compression=codec)
    compacted.put((b"a", b"z" * 50), compression=codec)
    compacted.roll_and_clean()

    assert compacted.pairs() == [(1, b"b", b"y" * 50), (2, b"a", b"z" * 50)]
    assert {batch.compression for batch in compacted.batches()} == {codec}


def test_max_timestamp_is_that_of_the_records_that_stay(compacted):
    """The largest timestamp is that of the records that stay, and the time index finds them."""
    compacted.put((b"a", b"1", 3000), (b"b", b"1", 1000), (b"c", b"1", 2000))
    compacted.put((b"a", b"2", 500))
    compacted.roll_and_clean()

    assert compacted.batches()[0].max_timestamp == 2000
    assert at_once(compacted.log().fetch_offset_by_timestamp(1500))[:2] == (2000, 2)
    assert at_once(compacted.log().fetch_offset_by_timestamp(2500)) is None


def test_small_segments_become_one(compacted):
    """As long as they fit into segment.bytes; none of the old files stays for good."""
    for number in range(60):
        compacted.put((b"%d" % (number % 3), b"%d" % number))
    compacted.roll_and_clean()
    count = len(compacted.log().segments)
    compacted.put((b"0", b"60"))
    compacted.roll_and_clean()
    compacted.runtime.advance(2000)

    assert count > 5
    assert len(compacted.log().segments) < 5
    assert values(compacted.records()) == [b"58", b"59", b"60"]
    assert not [name for name in compacted.names() if name.endswith(".deleted")]


def test_segment_bytes_bounds_what_becomes_one(compacted):
    """Records that all stay make as many segments as before."""
    for number in range(30):
        compacted.put((b"%d" % number, b"v" * 20))
    compacted.roll()
    before = compacted.log().segments.base_offsets
    compacted.clean()

    assert compacted.log().segments.base_offsets == before
    assert all(segment.size <= 400 for segment in compacted.log().segments)


def test_second_round_removes_what_the_first_one_left(compacted):
    """New records make older ones superfluous that were clean."""
    compacted.put((b"a", b"1"))
    compacted.put((b"b", b"1"))
    compacted.roll_and_clean()
    compacted.put((b"a", b"2"))
    compacted.roll_and_clean()

    assert compacted.pairs() == [(1, b"b", b"1"), (2, b"a", b"2")]


# -- tombstones


def test_tombstone_deletes_its_key_and_goes_later(compacted):
    """Everything before it goes at once, it stays for delete.retention.ms."""
    compacted.put((b"a", b"1"))
    compacted.put((b"b", b"1"))
    compacted.put((b"a", None))
    compacted.roll_and_clean()
    assert compacted.pairs() == [(1, b"b", b"1"), (2, b"a", None)]

    compacted.runtime.advance(4999)
    compacted.clean()
    assert compacted.pairs() == [(1, b"b", b"1"), (2, b"a", None)]

    compacted.runtime.advance(1)
    compacted.clean()
    assert compacted.pairs() == [(1, b"b", b"1")]


def test_delete_horizon_is_counted_from_the_first_compaction(compacted):
    """However old the tombstone is, readers have delete.retention.ms from then on (KIP-534)."""
    now_ms = compacted.runtime.clock.now_ms()
    compacted.put((b"a", None, now_ms - 100_000), (b"b", b"1", now_ms - 100_000))
    compacted.roll_and_clean()

    batch = compacted.batches()[0]
    assert batch.delete_horizon_ms == now_ms + 5000
    assert [record.timestamp_ms for record in batch.records()] == [now_ms - 100_000] * 2
    assert batch.max_timestamp == now_ms - 100_000

    compacted.runtime.advance(2000)
    compacted.put((b"c", b"1"))
    compacted.roll_and_clean()
    assert compacted.batches()[0].delete_horizon_ms == now_ms + 5000


def test_key_that_was_deleted_can_come_back(compacted):
    """A tombstone that is not the last record of its key goes like any other."""
    compacted.put((b"a", b"1"))
    compacted.put((b"a", None))
    compacted.put((b"a", b"2"))
    compacted.roll_and_clean()

    assert compacted.pairs() == [(2, b"a", b"2")]


def test_tombstone_goes_although_nothing_is_written(compacted):
    """When its time has come the log is compacted again, without a new record."""
    compacted.put((b"a", None))
    compacted.put((b"b", b"1"))
    compacted.roll_and_clean()
    compacted.runtime.advance(6000)
    compacted.clean()

    assert compacted.pairs() == [(1, b"b", b"1")]


def test_append_time_survives_the_delete_horizon():
    """Where the broker's clock sets the timestamps, they are not in the base timestamp."""
    compacted = CleanerWorld()
    compacted.configure(message_timestamp_type="LogAppendTime")
    now_ms = compacted.runtime.clock.now_ms()
    compacted.put((b"a", None), (b"b", b"1"))
    compacted.roll_and_clean()

    assert [record.timestamp_ms for record in compacted.records()] == [now_ms, now_ms]
    assert compacted.batches()[0].delete_horizon_ms == now_ms + 5000


# -- producers and transactions


def test_last_batch_of_a_producer_stays_without_records(compacted):
    """Its sequence number is what recognises a retry, also after a restart."""
    compacted.put((b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    compacted.put((b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=1)
    compacted.put((b"a", b"3"))
    compacted.roll_and_clean()

    assert compacted.pairs() == [(2, b"a", b"3")]
    kept = [(b.base_sequence, b.record_count) for b in compacted.batches() if b.producer_id == 7]
    assert kept == [(1, 0)]
    compacted.disk.unlink(compacted.path("00000000000000000003.snapshot"))
    compacted.restart()
    with pytest.raises(KafkaError) as caught:
        compacted.put((b"a", b"4"), producer_id=7, producer_epoch=0, base_sequence=5)
    assert caught.value.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_batch_of_a_forgotten_producer_goes(compacted):
    """Nobody asks for the sequence of a producer that has expired."""
    compacted.put((b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    compacted.put((b"a", b"2"))
    compacted.log().producer_state_manager.producers.clear()
    compacted.roll_and_clean()

    assert [batch.base_offset for batch in compacted.batches()] == [1]


def transactional(producer_id: int, sequence: int) -> dict:
    return {
        "producer_id": producer_id,
        "producer_epoch": 0,
        "base_sequence": sequence,
        "is_transactional": True,
    }


def test_aborted_records_go_and_supersede_nothing(compacted):
    """The value before the aborted one is the last one."""
    compacted.put((b"a", b"1"))
    compacted.put((b"a", b"2"), **transactional(7, 0))
    compacted.end_transaction(7, commit=False)
    compacted.roll_and_clean()

    assert compacted.pairs() == [(0, b"a", b"1")]


def test_abort_marker_stays_until_its_data_are_gone(compacted):
    """The marker stays for delete.retention.ms after its data; so does its index entry."""
    compacted.put((b"a", b"1"), **transactional(7, 0))
    compacted.end_transaction(7, commit=False)
    compacted.put((b"b", b"1"))
    compacted.log().producer_state_manager.producers.clear()
    compacted.roll_and_clean()
    segment = compacted.log().segments.first
    assert [batch.base_offset for batch in compacted.batches()] == [1, 2]
    assert segment.txn_index.entries() == [AbortedTxn(7, 0, 1, 2)]

    for number in (2, 3):
        compacted.put((b"b", b"%d" % number))
        compacted.roll_and_clean()
        compacted.runtime.advance(6000)
    assert compacted.log().segments.first.txn_index.entries() == []
    compacted.clean()
    assert [batch.base_offset for batch in compacted.batches()] == [4]


def test_commit_marker_stays_as_long_as_its_data(compacted):
    """Readers of committed records wait for it."""
    compacted.put((b"a", b"1"), **transactional(7, 0))
    compacted.end_transaction(7, commit=True)
    compacted.roll_and_clean()
    compacted.runtime.advance(6000)
    compacted.put((b"b", b"1"))
    compacted.roll_and_clean()

    assert compacted.pairs() == [(0, b"a", b"1"), (2, b"b", b"1")]
    assert [batch.base_offset for batch in compacted.batches() if batch.is_control] == [1]
    assert compacted.batches()[1].delete_horizon_ms is None


def test_nothing_is_cleaned_from_an_open_transaction_on(compacted):
    """Whether its records supersede others is not known yet."""
    compacted.put((b"a", b"1"))
    compacted.put((b"a", b"2"))
    compacted.roll()
    compacted.put((b"a", b"3"), **transactional(7, 0))
    compacted.put((b"a", b"4"))
    compacted.roll_and_clean()
    assert values(compacted.records()) == [b"2", b"3", b"4"]

    compacted.end_transaction(7, commit=True)
    compacted.clean()
    assert values(compacted.records()) == [b"4"]


def test_records_above_the_high_watermark_are_left(compacted):
    """They may still be truncated, and what they supersede would be lost."""
    compacted.put((b"a", b"1"))
    compacted.roll()
    log = compacted.log()
    compacted.put((b"a", b"2"))
    log.high_watermark = 1
    compacted.roll_and_clean()

    assert values(read_all(log)) == [b"1", b"2"]


# -- limits


def test_map_that_is_too_small_needs_several_rounds():
    """Each round goes as far as the keys fit; in the end the log is as compact."""
    compacted = CleanerWorld(
        **{
            "log.cleaner.io.buffer.load.factor": "0.01",
            "log.cleaner.dedupe.buffer.size": str(1 << 20),
        }
    )
    compacted.configure(segment_bytes=100_000)
    keys = 1000
    for value in (b"1", b"2"):
        for start in range(0, keys, 100):
            compacted.put(*((b"%d" % key, value) for key in range(start, start + 100)))
    compacted.roll()
    compacted.cleaner.clean_filthiest()
    compacted.runtime.scheduler.run_ready()

    assert values(compacted.records()) == [b"2"] * keys
    assert compacted.log().cleaned_offset == 2 * keys


def test_throttled_cleaning_waits_between_its_steps():
    """At a hundred bytes a second, a round takes its bytes divided by a hundred."""
    compacted = CleanerWorld(**{"log.cleaner.io.max.bytes.per.second": "100"})
    for number in range(20):
        compacted.put((b"k", b"%d" % number))
    compacted.roll()
    size = compacted.log().size_in_bytes
    compacted.clean()
    assert len(compacted.records()) == 20

    compacted.runtime.advance(size * 10)
    assert len(compacted.records()) == 20
    compacted.runtime.advance(2 * size * 10)
    assert len(compacted.records()) == 1


def test_limit_that_is_lifted_lets_the_round_go_on_at_once():
    """log.cleaner.io.max.bytes.per.second can change while a round waits because of it."""
    compacted = CleanerWorld(**{"log.cleaner.io.max.bytes.per.second": "1"})
    for number in range(20):
        compacted.put((b"k", b"%d" % number))
    compacted.roll_and_clean()
    assert len(compacted.records()) == 20

    config = compacted.cleaner._config.replace(log_cleaner_io_max_bytes_per_second="1e9")
    compacted.cleaner.update_config(config)
    compacted.runtime.advance(10)
    assert len(compacted.records()) == 1


def test_changed_backoff_and_threads_count_at_once():
    """The next look for logs comes after the new log.cleaner.backoff.ms; more threads look now."""
    compacted = CleanerWorld(**{"log.cleaner.threads": "0"})
    compacted.put((b"k", b"1"))
    compacted.put((b"k", b"2"))
    compacted.roll_and_clean()
    assert len(compacted.records()) == 2
    config = compacted.cleaner._config.replace(log_cleaner_threads="1")
    compacted.cleaner.update_config(config)
    compacted.runtime.advance(1)
    assert len(compacted.records()) == 1

    compacted.put((b"k", b"3"))
    compacted.roll()
    compacted.cleaner.update_config(config.replace(log_cleaner_backoff_ms="100"))
    compacted.runtime.advance(99)
    assert len(compacted.records()) == 2
    compacted.runtime.advance(2)
    assert len(compacted.records()) == 1


def test_round_gets_the_memory_that_is_set_now(compacted):
    """log.cleaner.dedupe.buffer.size, shared by the threads, and the two of the buffers."""
    compacted.put((b"k", b"1"))
    compacted.roll()
    changes = {
        "log_cleaner_threads": "2",
        "log_cleaner_dedupe_buffer_size": str(8 << 20),
        "log_cleaner_io_buffer_size": "400000",
        "log_cleaner_io_buffer_load_factor": "0.5",
    }
    compacted.cleaner.update_config(compacted.cleaner._config.replace(**changes))
    segments = tuple(compacted.log().segments.items[:1])
    to_clean = LogToClean(compacted.log(), segments, 0, 0, 1, 0, True)
    plan = plan_of(to_clean, compacted.cleaner._config, compacted.runtime)

    compacted.clean()

    assert (plan.dedupe_bytes, plan.buffer_bytes, plan.load_factor) == (4 << 20, 100_000, 0.5)


def test_checkpoint_survives_a_restart(compacted):
    """What is clean is not read again; the file has Kafka's name."""
    compacted.put((b"a", b"1"))
    compacted.put((b"a", b"2"))
    compacted.roll_and_clean()
    assert compacted.log().cleaned_offset == 2

    assert compacted.restart().cleaned_offset == 2
    assert compacted.disk.read_bytes("/data/cleaner-offset-checkpoint") == b"0\n1\ntopic 0 2\n"


def test_truncation_makes_what_follows_dirty(compacted):
    """After a cut the rest is dirty, also if it is compacted before the next look at the log."""
    compacted.put((b"a", b"1"))
    compacted.put((b"b", b"1"))
    compacted.roll_and_clean()
    truncate_to(compacted.log(), 1)

    assert compacted.log().cleaned_offset == 1


def test_deleted_topic_leaves_no_checkpoint(compacted):
    """A new topic of the same name begins dirty."""
    compacted.put((b"a", b"1"))
    compacted.roll_and_clean()
    compacted.manager.delete_log(TopicPartition("topic", 0))
    compacted.runtime.scheduler.run_ready()

    assert compacted.restart().cleaned_offset == 0


def test_compact_and_delete_go_together(compacted):
    """Old segments go, and what stays is compacted."""
    compacted.configure(cleanup_policy="compact,delete", retention_ms=10_000)
    compacted.put((b"old", b"1"))
    compacted.roll()
    compacted.runtime.advance(20_000)
    compacted.put((b"a", b"1"))
    compacted.put((b"a", b"2"))
    at_once(compacted.manager.delete_old_segments())
    compacted.roll_and_clean()

    assert compacted.pairs() == [(2, b"a", b"2")]


def test_topic_that_is_not_compacted_is_left_alone(compacted):
    """Whatever its keys are."""
    compacted.configure(cleanup_policy="delete")
    compacted.put((b"a", b"1"))
    compacted.put((b"a", b"2"))
    compacted.roll_and_clean()

    assert len(compacted.records()) == 2


def test_records_without_a_key_go(compacted):
    """They were written while the topic was not compacted; the cleaner says how many it removed."""
    compacted.configure(cleanup_policy="delete")
    compacted.put((None, b"1"), (b"a", b"1"))
    compacted.configure(cleanup_policy="compact")
    compacted.roll_and_clean()

    assert compacted.pairs() == [(1, b"a", b"1")]


def test_null_key_is_refused_on_a_compacted_topic(compacted):
    """Nothing could ever supersede it."""
    with pytest.raises(KafkaError) as caught:
        compacted.put((None, b"1"))
    assert caught.value.error is ErrorCode.INVALID_RECORD


def test_cleaner_can_be_switched_off():
    """log.cleaner.enable=false: no log is compacted."""
    assert CleanerWorld(**{"log.cleaner.enable": "false"}).cleaner is None


def test_cleaner_looks_for_work_by_itself():
    """Every log.cleaner.backoff.ms."""
    compacted = CleanerWorld(**{"log.cleaner.backoff.ms": "15000"})
    compacted.put((b"a", b"1"))
    compacted.put((b"a", b"2"))
    compacted.roll()
    compacted.runtime.advance(14_000)
    assert len(compacted.records()) == 2
    compacted.runtime.advance(1_000)
    assert len(compacted.records()) == 1


# -- what goes wrong


@pytest.mark.parametrize(
    ("position", "damage", "reason"),
    [(65, b"\xff", "CRC"), (70, b"\x01", "offsets"), (16, b"\x01", "magic")],
)
def test_damaged_log_is_passed_over(compacted, position, damage, reason):
    """It is marked, with the reason, and other logs are compacted."""
    compacted.put((b"a", b"1"))
    compacted.put((b"a", b"2"))
    segment = compacted.log().segments.first
    compacted.roll()
    segment.file.pwrite(damage, position)
    compacted.clean()

    assert reason in compacted.cleaner.uncleanable[compacted.log()]
    assert not compacted.leftovers()
    compacted.clean()
    assert compacted.log().cleaned_offset == 0


def test_log_that_could_not_be_cleaned_is_tried_again_later(compacted, caplog):
    """After a minute, then after two: what was wrong with it may be mended by then."""
    compacted.put((b"a", b"1"))
    compacted.put((b"a", b"2"))
    segment = compacted.log().segments.first
    compacted.roll()
    whole = segment.file.pread(1, 65)
    segment.file.pwrite(b"\xff", 65)
    rounds = []
    for waited_ms in (0, 59_000, 1_000, 119_000, 1_000):
        compacted.runtime.advance(waited_ms)
        compacted.clean()
        rounds.append(caplog.text.count("cannot be compacted"))
    assert rounds == [1, 1, 2, 2, 3]

    segment.file.pwrite(whole, 65)
    compacted.runtime.advance(240_000)
    compacted.clean()
    assert not compacted.cleaner.uncleanable
    assert compacted.log().cleaned_offset > 0


def test_full_disk_ends_the_round_and_the_next_one_succeeds(compacted):
    """Nothing is lost, no file is left over, and the log is not called uncleanable."""
    for number in range(10):
        compacted.put((b"%d" % (number % 8), b"%d" % number))
    compacted.roll()
    compacted.disk.fail("pwrite", "*.cleaned", error=errno.ENOSPC)
    compacted.clean()
    assert len(compacted.records()) == 10
    assert not compacted.leftovers()
    assert not compacted.cleaner.uncleanable

    compacted.clean()
    assert values(compacted.records()) == [b"%d" % number for number in range(2, 10)]


def test_rename_that_fails_takes_the_directory_offline(compacted):
    """Half a swap can only be mended by a start, which does it."""
    for number in range(10):
        compacted.put((b"k%d" % (number % 2), b"%d" % number))
    compacted.roll()
    compacted.disk.fail("rename", "*.index.swap")
    compacted.clean()
    assert compacted.log().log_dir.is_offline

    compacted.restart()
    assert values(compacted.records())[-2:] == [b"8", b"9"]
    assert not compacted.leftovers()
    compacted.log().update_high_watermark(10)
    compacted.clean()
    assert values(compacted.records()) == [b"8", b"9"]


def test_compaction_makes_records_without_timestamps_no_younger(compacted):
    """Their age is that of the file: a log that is compacted often would never lose the oldest."""
    began_ms = compacted.runtime.clock.now_ms()
    for number in range(20):
        compacted.put((b"%d" % number, b"v", -1))
    compacted.runtime.advance(50_000)
    compacted.roll()
    for number in range(10):
        compacted.put((b"%d" % number, b"w", -1))
    compacted.roll()
    compacted.clean()
    assert len(compacted.records()) == 20

    first = compacted.log().segments.first
    assert compacted.log().cleaned_offset > 0
    assert first.largest_timestamp_ms() == began_ms
    assert compacted.restart(clean=True).segments.first.largest_timestamp_ms() == began_ms


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE])
def test_swap_that_is_given_up_and_cannot_be_removed_ends_the_directory(compacted, error):
    """A later start would finish it, and put old records into the place of newer ones."""
    for number in range(12):
        compacted.put((b"%d" % (number % 3), b"%d" % number))
    compacted.roll()
    compacted.runtime.scheduler.run_ready()
    calls = []

    def fail_after_the_rename(operation, path):
        calls.append((operation, path))
        if operation == "fsync_dir" and any(name == "rename" for name, _ in calls):
            raise OSError(error, "planted", path)
        if operation == "unlink" and path.endswith(".swap"):
            raise OSError(error, "planted", path)

    compacted.disk.on_call = fail_after_the_rename
    compacted.cleaner.clean_filthiest()
    compacted.runtime.advance(1000)
    compacted.disk.on_call = None

    assert any(name == "unlink" for name, _ in calls)
    assert compacted.log().log_dir.is_offline


def test_copy_left_behind_does_not_spoil_the_swap_of_another_segment(compacted):
    """A crash in the middle of a swap, with files of an older round that could not be removed."""
    for number in range(24):
        compacted.put((b"%d" % (number % 3), b"%d" % number))
    compacted.roll()
    compacted.runtime.scheduler.run_ready()
    second = compacted.log().segments.items[1]
    directory = compacted.log().dir
    disk = compacted.disk
    for suffix in (".log", ".index", ".timeindex"):
        path = f"{directory}/{second.base_offset:020d}{suffix}"
        file = disk.open(f"{path}.swap", create=True)
        file.pwrite(disk.read_bytes(path), 0)
        disk.rename(path, f"{path}.deleted")
        disk.open(f"{directory}/{0:020d}{suffix}.cleaned", create=True)
    wanted = [b"%d" % number for number in range(24)]

    assert [record.value for record in read_all(compacted.restart())] == wanted
