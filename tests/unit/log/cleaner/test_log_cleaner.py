"""Compaction as its users see it: which records stay, where, and for how long."""

from __future__ import annotations

import errno

import pytest
from cleaner_world import CleanerWorld
from log_world import read_all, values

from ottla.errors import ErrorCode, KafkaError
from ottla.log.cleaner.log_cleaner import LogToClean
from ottla.log.indexes.index_file import AbortedTxn
from ottla.log.log_retention import truncate_to
from ottla.record.compression import CompressionType
from ottla.structs import TopicPartition


def test_last_value_of_each_key_stays(world):
    """The example of the user whose mail address changes twice (K01), in order (K04)."""
    for user, mail in [(b"1", b"a"), (b"2", b"x"), (b"1", b"b"), (b"1", b"c"), (b"3", b"y")]:
        world.put((user, mail))
    world.roll_and_clean()

    assert world.pairs() == [(1, b"2", b"x"), (3, b"1", b"c"), (4, b"3", b"y")]


def test_active_segment_is_left_alone(world):
    """The head of the log has every record, whatever was compacted behind it (K02, K10)."""
    world.put((b"k", b"1"))
    world.put((b"k", b"2"))
    world.roll()
    world.put((b"k", b"3"))
    world.put((b"k", b"4"))
    world.clean()

    assert values(world.records()) == [b"2", b"3", b"4"]


def test_offsets_of_removed_records_lead_to_the_next_one(world):
    """Reading from 36, 37 or 38 begins at 38 when 36 and 37 are gone (K03)."""
    for offset in range(36):
        world.put((b"%d" % offset, b"v"))
    world.put((b"k", b"36"), (b"k", b"37"))
    world.put((b"k", b"38"))
    world.roll_and_clean()

    for start in (36, 37, 38):
        assert [record.offset for record in read_all(world.log(), start)] == [38]


def test_records_in_the_middle_of_a_batch_are_removed(world):
    """The batch keeps its first and last offset, and its other records their own (L12)."""
    world.put((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"d", b"1"))
    world.put((b"a", b"2"), (b"c", b"2"))
    world.roll_and_clean()

    batch = world.batches()[0]
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (0, 3, 2)
    assert world.pairs()[:2] == [(1, b"b", b"1"), (3, b"d", b"1")]


@pytest.mark.parametrize("codec", CompressionType)
def test_compressed_batches_keep_their_codec(world, codec):
    """A batch out of which records were taken is compressed as it was."""
    world.put((b"a", b"x" * 50), (b"b", b"y" * 50), compression=codec)
    world.put((b"a", b"z" * 50), compression=codec)
    world.roll_and_clean()

    assert world.pairs() == [(1, b"b", b"y" * 50), (2, b"a", b"z" * 50)]
    assert {batch.compression for batch in world.batches()} == {codec}


def test_max_timestamp_is_that_of_the_records_that_stay(world):
    """And the time index finds them (L14)."""
    world.put((b"a", b"1", 3000), (b"b", b"1", 1000), (b"c", b"1", 2000))
    world.put((b"a", b"2", 500))
    world.roll_and_clean()

    assert world.batches()[0].max_timestamp == 2000
    assert world.log().fetch_offset_by_timestamp(1500)[:2] == (2000, 2)
    assert world.log().fetch_offset_by_timestamp(2500) is None


def test_small_segments_become_one(world):
    """As long as they fit into segment.bytes; none of the old files stays for good."""
    for number in range(60):
        world.put((b"%d" % (number % 3), b"%d" % number))
    world.roll_and_clean()
    count = len(world.log().segments)
    world.put((b"0", b"60"))
    world.roll_and_clean()
    world.runtime.advance(2000)

    assert count > 5
    assert len(world.log().segments) < 5
    assert values(world.records()) == [b"58", b"59", b"60"]
    assert not [name for name in world.names() if name.endswith(".deleted")]


def test_segment_bytes_bounds_what_becomes_one(world):
    """Records that all stay make as many segments as before."""
    for number in range(30):
        world.put((b"%d" % number, b"v" * 20))
    world.roll()
    before = world.log().segments.base_offsets
    world.clean()

    assert world.log().segments.base_offsets == before
    assert all(segment.size <= 400 for segment in world.log().segments)


def test_second_round_removes_what_the_first_one_left(world):
    """New records make older ones superfluous that were clean."""
    world.put((b"a", b"1"))
    world.put((b"b", b"1"))
    world.roll_and_clean()
    world.put((b"a", b"2"))
    world.roll_and_clean()

    assert world.pairs() == [(1, b"b", b"1"), (2, b"a", b"2")]


# -- tombstones


def test_tombstone_deletes_its_key_and_goes_later(world):
    """Everything before it goes at once, it stays for delete.retention.ms (K05, K06, K07)."""
    world.put((b"a", b"1"))
    world.put((b"b", b"1"))
    world.put((b"a", None))
    world.roll_and_clean()
    assert world.pairs() == [(1, b"b", b"1"), (2, b"a", None)]

    world.runtime.advance(4999)
    world.clean()
    assert world.pairs() == [(1, b"b", b"1"), (2, b"a", None)]

    world.runtime.advance(1)
    world.clean()
    assert world.pairs() == [(1, b"b", b"1")]


def test_delete_horizon_is_counted_from_the_first_compaction(world):
    """However old the tombstone is, readers have delete.retention.ms from then on (KIP-534)."""
    now_ms = world.runtime.clock.now_ms()
    world.put((b"a", None, now_ms - 100_000), (b"b", b"1", now_ms - 100_000))
    world.roll_and_clean()

    batch = world.batches()[0]
    assert batch.delete_horizon_ms == now_ms + 5000
    assert [record.timestamp_ms for record in batch.records()] == [now_ms - 100_000] * 2
    assert batch.max_timestamp == now_ms - 100_000

    world.runtime.advance(2000)
    world.put((b"c", b"1"))
    world.roll_and_clean()
    assert world.batches()[0].delete_horizon_ms == now_ms + 5000


def test_key_that_was_deleted_can_come_back(world):
    """A tombstone that is not the last record of its key goes like any other."""
    world.put((b"a", b"1"))
    world.put((b"a", None))
    world.put((b"a", b"2"))
    world.roll_and_clean()

    assert world.pairs() == [(2, b"a", b"2")]


def test_tombstone_goes_although_nothing_is_written(world):
    """When its time has come the log is compacted again, without a new record."""
    world.put((b"a", None))
    world.put((b"b", b"1"))
    world.roll_and_clean()
    world.runtime.advance(6000)
    world.clean()

    assert world.pairs() == [(1, b"b", b"1")]


def test_append_time_survives_the_delete_horizon():
    """Where the broker's clock sets the timestamps, they are not in the base timestamp."""
    world = CleanerWorld()
    world.configure(message_timestamp_type="LogAppendTime")
    now_ms = world.runtime.clock.now_ms()
    world.put((b"a", None), (b"b", b"1"))
    world.roll_and_clean()

    assert [record.timestamp_ms for record in world.records()] == [now_ms, now_ms]
    assert world.batches()[0].delete_horizon_ms == now_ms + 5000


# -- producers and transactions


def test_last_batch_of_a_producer_stays_without_records(world):
    """Its sequence number is what recognises a retry, also after a restart (L13)."""
    world.put((b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    world.put((b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=1)
    world.put((b"a", b"3"))
    world.roll_and_clean()

    assert world.pairs() == [(2, b"a", b"3")]
    kept = [(b.base_sequence, b.record_count) for b in world.batches() if b.producer_id == 7]
    assert kept == [(1, 0)]
    world.disk.unlink(world.path("00000000000000000003.snapshot"))
    world.restart()
    with pytest.raises(KafkaError) as caught:
        world.put((b"a", b"4"), producer_id=7, producer_epoch=0, base_sequence=5)
    assert caught.value.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_batch_of_a_forgotten_producer_goes(world):
    """Nobody asks for the sequence of a producer that has expired."""
    world.put((b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    world.put((b"a", b"2"))
    world.log().producer_state_manager.producers.clear()
    world.roll_and_clean()

    assert [batch.base_offset for batch in world.batches()] == [1]


def transactional(producer_id: int, sequence: int) -> dict:
    return {
        "producer_id": producer_id,
        "producer_epoch": 0,
        "base_sequence": sequence,
        "is_transactional": True,
    }


def test_aborted_records_go_and_supersede_nothing(world):
    """The value before the aborted one is the last one."""
    world.put((b"a", b"1"))
    world.put((b"a", b"2"), **transactional(7, 0))
    world.end_transaction(7, commit=False)
    world.roll_and_clean()

    assert world.pairs() == [(0, b"a", b"1")]


def test_abort_marker_stays_until_its_data_are_gone(world):
    """And for delete.retention.ms after that; the transaction index says so as long."""
    world.put((b"a", b"1"), **transactional(7, 0))
    world.end_transaction(7, commit=False)
    world.put((b"b", b"1"))
    world.log().producer_state_manager.producers.clear()
    world.roll_and_clean()
    segment = world.log().segments.first
    assert [batch.base_offset for batch in world.batches()] == [1, 2]
    assert segment.txn_index.entries() == [AbortedTxn(7, 0, 1, 2)]

    for number in (2, 3):
        world.put((b"b", b"%d" % number))
        world.roll_and_clean()
        world.runtime.advance(6000)
    assert world.log().segments.first.txn_index.entries() == []
    world.clean()
    assert [batch.base_offset for batch in world.batches()] == [4]


def test_commit_marker_stays_as_long_as_its_data(world):
    """Readers of committed records wait for it."""
    world.put((b"a", b"1"), **transactional(7, 0))
    world.end_transaction(7, commit=True)
    world.roll_and_clean()
    world.runtime.advance(6000)
    world.put((b"b", b"1"))
    world.roll_and_clean()

    assert world.pairs() == [(0, b"a", b"1"), (2, b"b", b"1")]
    assert [batch.base_offset for batch in world.batches() if batch.is_control] == [1]
    assert world.batches()[1].delete_horizon_ms is None


def test_nothing_is_cleaned_from_an_open_transaction_on(world):
    """Whether its records supersede others is not known yet."""
    world.put((b"a", b"1"))
    world.put((b"a", b"2"))
    world.roll()
    world.put((b"a", b"3"), **transactional(7, 0))
    world.put((b"a", b"4"))
    world.roll_and_clean()
    assert values(world.records()) == [b"2", b"3", b"4"]

    world.end_transaction(7, commit=True)
    world.clean()
    assert values(world.records()) == [b"4"]


def test_records_above_the_high_watermark_are_left(world):
    """They may still be truncated, and what they supersede would be lost."""
    world.put((b"a", b"1"))
    world.roll()
    log = world.log()
    world.put((b"a", b"2"))
    log.high_watermark = 1
    world.roll_and_clean()

    assert values(read_all(log)) == [b"1", b"2"]


# -- limits


def test_map_that_is_too_small_needs_several_rounds():
    """Each round goes as far as the keys fit; in the end the log is as compact."""
    world = CleanerWorld(
        **{
            "log.cleaner.io.buffer.load.factor": "0.01",
            "log.cleaner.dedupe.buffer.size": str(1 << 20),
        }
    )
    world.configure(segment_bytes=100_000)
    keys = 1000
    for value in (b"1", b"2"):
        for start in range(0, keys, 100):
            world.put(*((b"%d" % key, value) for key in range(start, start + 100)))
    world.roll()
    world.cleaner.clean_filthiest()
    world.runtime.scheduler.run_ready()

    assert values(world.records()) == [b"2"] * keys
    assert world.log().cleaned_offset == 2 * keys


def test_throttled_cleaning_waits_between_its_steps():
    """At a hundred bytes a second, a round takes its bytes divided by a hundred."""
    world = CleanerWorld(**{"log.cleaner.io.max.bytes.per.second": "100"})
    for number in range(20):
        world.put((b"k", b"%d" % number))
    world.roll()
    size = world.log().size_in_bytes
    world.clean()
    assert len(world.records()) == 20

    world.runtime.advance(size * 10)
    assert len(world.records()) == 20
    world.runtime.advance(2 * size * 10)
    assert len(world.records()) == 1


def test_limit_that_is_lifted_lets_the_round_go_on_at_once():
    """log.cleaner.io.max.bytes.per.second can change while a round waits because of it."""
    world = CleanerWorld(**{"log.cleaner.io.max.bytes.per.second": "1"})
    for number in range(20):
        world.put((b"k", b"%d" % number))
    world.roll_and_clean()
    assert len(world.records()) == 20

    config = world.cleaner._config.replace(log_cleaner_io_max_bytes_per_second="1e9")
    world.cleaner.update_config(config)
    world.runtime.advance(10)
    assert len(world.records()) == 1


def test_changed_backoff_and_threads_count_at_once():
    """The next look for logs comes after the new log.cleaner.backoff.ms; more threads look now."""
    world = CleanerWorld(**{"log.cleaner.threads": "0"})
    world.put((b"k", b"1"))
    world.put((b"k", b"2"))
    world.roll_and_clean()
    assert len(world.records()) == 2
    config = world.cleaner._config.replace(log_cleaner_threads="1")
    world.cleaner.update_config(config)
    world.runtime.advance(1)
    assert len(world.records()) == 1

    world.put((b"k", b"3"))
    world.roll()
    world.cleaner.update_config(config.replace(log_cleaner_backoff_ms="100"))
    world.runtime.advance(99)
    assert len(world.records()) == 2
    world.runtime.advance(2)
    assert len(world.records()) == 1


def test_round_gets_the_memory_that_is_set_now(world):
    """log.cleaner.dedupe.buffer.size, shared by the threads, and the two of the buffers."""
    world.put((b"k", b"1"))
    world.roll()
    changes = {
        "log_cleaner_threads": "2",
        "log_cleaner_dedupe_buffer_size": str(8 << 20),
        "log_cleaner_io_buffer_size": "400000",
        "log_cleaner_io_buffer_load_factor": "0.5",
    }
    world.cleaner.update_config(world.cleaner._config.replace(**changes))
    segments = tuple(world.log().segments.items[:1])
    plan = world.cleaner._plan(LogToClean(world.log(), segments, 0, 0, 1, 0, True))

    world.clean()

    assert (plan.dedupe_bytes, plan.buffer_bytes, plan.load_factor) == (4 << 20, 100_000, 0.5)


def test_checkpoint_survives_a_restart(world):
    """What is clean is not read again; the file has Kafka's name."""
    world.put((b"a", b"1"))
    world.put((b"a", b"2"))
    world.roll_and_clean()
    assert world.log().cleaned_offset == 2

    assert world.restart().cleaned_offset == 2
    assert world.disk.read_bytes("/data/cleaner-offset-checkpoint") == b"0\n1\ntopic 0 2\n"


def test_truncation_makes_what_follows_dirty(world):
    """Also when it is compacted again before the next look at the log."""
    world.put((b"a", b"1"))
    world.put((b"b", b"1"))
    world.roll_and_clean()
    truncate_to(world.log(), 1)

    assert world.log().cleaned_offset == 1


def test_deleted_topic_leaves_no_checkpoint(world):
    """A new topic of the same name begins dirty."""
    world.put((b"a", b"1"))
    world.roll_and_clean()
    world.manager.delete_log(TopicPartition("topic", 0))
    world.runtime.scheduler.run_ready()

    assert world.restart().cleaned_offset == 0


def test_compact_and_delete_go_together(world):
    """Old segments go, and what stays is compacted."""
    world.configure(cleanup_policy="compact,delete", retention_ms=10_000)
    world.put((b"old", b"1"))
    world.roll()
    world.runtime.advance(20_000)
    world.put((b"a", b"1"))
    world.put((b"a", b"2"))
    world.manager.delete_old_segments()
    world.roll_and_clean()

    assert world.pairs() == [(2, b"a", b"2")]


def test_topic_that_is_not_compacted_is_left_alone(world):
    """Whatever its keys are."""
    world.configure(cleanup_policy="delete")
    world.put((b"a", b"1"))
    world.put((b"a", b"2"))
    world.roll_and_clean()

    assert len(world.records()) == 2


def test_records_without_a_key_go(world):
    """They were written while the topic was not compacted; the cleaner says how many it removed."""
    world.configure(cleanup_policy="delete")
    world.put((None, b"1"), (b"a", b"1"))
    world.configure(cleanup_policy="compact")
    world.roll_and_clean()

    assert world.pairs() == [(1, b"a", b"1")]


def test_null_key_is_refused_on_a_compacted_topic(world):
    """Nothing could ever supersede it."""
    with pytest.raises(KafkaError) as caught:
        world.put((None, b"1"))
    assert caught.value.error is ErrorCode.INVALID_RECORD


def test_cleaner_can_be_switched_off():
    """log.cleaner.enable=false: no log is compacted."""
    assert CleanerWorld(**{"log.cleaner.enable": "false"}).cleaner is None


def test_cleaner_looks_for_work_by_itself():
    """Every log.cleaner.backoff.ms."""
    world = CleanerWorld(**{"log.cleaner.backoff.ms": "15000"})
    world.put((b"a", b"1"))
    world.put((b"a", b"2"))
    world.roll()
    world.runtime.advance(14_000)
    assert len(world.records()) == 2
    world.runtime.advance(1_000)
    assert len(world.records()) == 1


# -- what goes wrong


@pytest.mark.parametrize(
    ("position", "damage", "reason"),
    [(65, b"\xff", "CRC"), (70, b"\x01", "offsets"), (16, b"\x01", "magic")],
)
def test_damaged_log_is_passed_over(world, position, damage, reason):
    """It is marked, with the reason, and other logs are compacted (K17)."""
    world.put((b"a", b"1"))
    world.put((b"a", b"2"))
    segment = world.log().segments.first
    world.roll()
    segment.file.pwrite(damage, position)
    world.clean()

    assert reason in world.cleaner.uncleanable[world.log()]
    assert not world.leftovers()
    world.clean()
    assert world.log().cleaned_offset == 0


def test_full_disk_ends_the_round_and_the_next_one_succeeds(world):
    """Nothing is lost, no file is left over, and the log is not called uncleanable (F19)."""
    for number in range(10):
        world.put((b"%d" % (number % 8), b"%d" % number))
    world.roll()
    world.disk.fail("pwrite", "*.cleaned", error=errno.ENOSPC)
    world.clean()
    assert len(world.records()) == 10
    assert not world.leftovers()
    assert not world.cleaner.uncleanable

    world.clean()
    assert values(world.records()) == [b"%d" % number for number in range(2, 10)]


def test_rename_that_fails_takes_the_directory_offline(world):
    """Half a swap can only be mended by a start, which does it."""
    for number in range(10):
        world.put((b"k%d" % (number % 2), b"%d" % number))
    world.roll()
    world.disk.fail("rename", "*.index.swap")
    world.clean()
    assert world.log().log_dir.is_offline

    world.restart()
    assert values(world.records())[-2:] == [b"8", b"9"]
    assert not world.leftovers()
    world.log().update_high_watermark(10)
    world.clean()
    assert values(world.records()) == [b"8", b"9"]
