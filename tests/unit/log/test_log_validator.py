"""What is checked, refused and changed before a batch is appended."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from crc32c import crc32c
from log_world import NOW_MS, new_batch

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.errors import ErrorCode, KafkaError, RefusedRecordsError
from ottla.log import batch_validation, log_validator
from ottla.log.log_validator import (
    INLINE_BYTES,
    INLINE_MESSAGE_SET_BYTES,
    INLINE_RECOMPRESSED_BYTES,
    INLINE_UNPACKED_BYTES,
    AppendOrigin,
    LargeBatchError,
    LogValidator,
    most_unpacked_bytes,
)
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.record.conversion import build_message_set
from ottla.record.record import Record
from ottla.record.record_batch import RecordBatch, set_log_append_time

CLIENT = AppendOrigin.CLIENT
BROKER = BrokerConfig.parse({})


def validator(**settings: object) -> LogValidator:
    overrides = {name.replace("_", "."): str(value) for name, value in settings.items()}
    return LogValidator(TopicConfig.of(BROKER, overrides))


def validate(data: bytes, rules: LogValidator | None = None, origin: AppendOrigin = CLIENT):
    return (rules or validator()).validate(memoryview(bytearray(data)), NOW_MS, origin)


def error_of(data: bytes, rules: LogValidator | None = None) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        validate(data, rules)
    return caught.value.error


def damaged(position: int, layout: str, value: int, *values: bytes) -> bytes:
    """A batch with one field of its header replaced and the CRC made right again."""
    data = bytearray(new_batch(*(values or (b"a", b"b"))))
    struct.pack_into(layout, data, position, value)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return bytes(data)


def test_good_batch_is_taken_in_place():
    """No copy of the bytes is made."""
    data = memoryview(bytearray(new_batch(b"a", b"b")))
    batch, max_timestamp_ms, append_time_ms = validator().validate(data, NOW_MS, CLIENT)

    assert batch.buffer is data
    assert (max_timestamp_ms, append_time_ms) == (NOW_MS, -1)


def test_bytes_that_cannot_be_written_to_are_copied():
    """The broker's own coordinators hand over bytes."""
    data = new_batch(b"a")
    batch, _, _ = validator().validate(memoryview(data), NOW_MS, CLIENT)

    assert not batch.buffer.readonly
    assert bytes(batch.buffer) == data


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (damaged(16, ">b", 1), ErrorCode.CORRUPT_MESSAGE),
        (damaged(16, ">b", 3), ErrorCode.INVALID_RECORD),
        (damaged(8, ">i", 48), ErrorCode.CORRUPT_MESSAGE),
        (damaged(8, ">i", -1), ErrorCode.CORRUPT_MESSAGE),
        (damaged(8, ">i", 2**31 - 1), ErrorCode.CORRUPT_MESSAGE),
        (damaged(23, ">i", 5), ErrorCode.INVALID_RECORD),
        (damaged(23, ">i", -1), ErrorCode.INVALID_RECORD),
        (damaged(57, ">i", 3), ErrorCode.INVALID_RECORD),
        (damaged(57, ">i", 1), ErrorCode.INVALID_RECORD),
        (damaged(57, ">i", -1), ErrorCode.INVALID_RECORD),
        (damaged(21, ">h", 7), ErrorCode.CORRUPT_MESSAGE),
        (damaged(21, ">h", 0x20), ErrorCode.INVALID_RECORD),
        (damaged(21, ">h", 0x10), ErrorCode.INVALID_RECORD),
        (damaged(43, ">q", 5), ErrorCode.INVALID_RECORD),
        (new_batch(b"a") + new_batch(b"b"), ErrorCode.INVALID_RECORD),
        (new_batch(b"a") + b"x", ErrorCode.INVALID_RECORD),
        (new_batch(b"a")[:-1], ErrorCode.CORRUPT_MESSAGE),
        (new_batch(b"a")[:60], ErrorCode.CORRUPT_MESSAGE),
        (new_batch(b"a")[:16], ErrorCode.CORRUPT_MESSAGE),
        (b"", ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_malformed_batch_is_refused(data, error):
    """Lies about magic, length, counts, codec and origin."""
    assert error_of(data) is error


def test_every_flipped_bit_is_refused():
    """The fields that the CRC leaves out are overwritten anyway, or are checked themselves."""
    data = new_batch(b"abc")
    stamped = set(range(8)) | set(range(12, 16))

    for position in set(range(len(data))) - stamped:
        for bit in range(8):
            wrong = bytearray(data)
            wrong[position] ^= 1 << bit
            assert error_of(bytes(wrong)) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def test_batch_above_max_message_bytes_is_too_large():
    """The limit itself is not."""
    data = new_batch(b"x" * 100)

    validate(data, validator(max_message_bytes=len(data)))
    validate(data, validator(segment_bytes=len(data)))
    limit = len(data) - 1
    with pytest.raises(KafkaError, match=f"above max.message.bytes={limit}") as too_large:
        validate(data, validator(max_message_bytes=limit))
    with pytest.raises(KafkaError, match=f"above segment.bytes={limit}") as larger_than_a_file:
        validate(data, validator(segment_bytes=limit))

    assert too_large.value.error is ErrorCode.MESSAGE_TOO_LARGE
    assert larger_than_a_file.value.error is ErrorCode.RECORD_LIST_TOO_LARGE


def test_batch_is_too_large_by_its_size_as_it_was_sent():
    """A producer gets the same answer whether the topic would store its batch smaller or not."""
    data = new_batch(b"x" * 1000)
    settings = {"compression_type": "gzip", "max_message_bytes": len(data)}

    assert validate(data, validator(**settings))[0].size_in_bytes < len(data)
    settings["max_message_bytes"] -= 1
    assert error_of(data, validator(**settings)) is ErrorCode.MESSAGE_TOO_LARGE


def test_message_set_above_max_message_bytes_is_too_large():
    """The limit itself is not; the set is measured, and the batch that is made of it as well."""
    records = [Record(0, NOW_MS, b"k", bytes(500), ())] * 9
    data = build_message_set(records, 1, CompressionType.NONE)

    assert validate(data, validator(max_message_bytes=len(data)))[0].record_count == 9
    limit = len(data) - 1
    with pytest.raises(
        KafkaError, match=f"of {len(data)} bytes is above max.message.bytes={limit}"
    ):
        validate(data, validator(max_message_bytes=limit))


def test_bytes_behind_a_batch_are_counted_in_the_refusal():
    """A client or coordinator sends one batch at a time, and reads here how much was too much."""
    for origin in AppendOrigin:
        with pytest.raises(KafkaError, match=": 3 bytes follow the first") as caught:
            validate(new_batch(b"a") + b"xyz", origin=origin)
        assert caught.value.error is ErrorCode.INVALID_RECORD


def test_records_of_a_coordinator_are_trusted():
    """They are only read where the topic bounds their timestamps."""
    data = damaged(57, ">i", 3)
    data = data[:23] + struct.pack(">i", 2) + data[27:]
    data = data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]

    assert validate(data, origin=AppendOrigin.COORDINATOR)[0].record_count == 3
    with pytest.raises(KafkaError, match="INVALID_RECORD"):
        validate(data, validator(message_timestamp_after_max_ms=9), AppendOrigin.COORDINATOR)


def padded(size: int, build: Callable[[bytes], bytes]) -> bytes:
    """What `build` makes of a value that brings it to this size."""
    data = build(bytes(size - 200))
    data = build(bytes(size - 200 + size - len(data)))
    assert len(data) == size
    return data


def old_message(value: bytes) -> bytes:
    record = Record(0, NOW_MS, None, value, ())
    return build_message_set([record], 1, CompressionType.NONE)


@pytest.mark.parametrize(
    ("limit", "settings", "build"),
    [
        (INLINE_RECOMPRESSED_BYTES, {"compression_type": "gzip"}, new_batch),
        (INLINE_BYTES, {"max_message_bytes": 2**21}, new_batch),
        (INLINE_BYTES, {"max_message_bytes": 2**21, "compression_type": "uncompressed"}, new_batch),
        (INLINE_MESSAGE_SET_BYTES, {}, old_message),
    ],
)
def test_large_batch_is_not_looked_through_on_the_loop(limit, settings, build):
    """The limit itself is; a large one is as good as others when it is looked through elsewhere."""
    rules = validator(**settings)

    assert validate(padded(limit, build), rules)
    data = memoryview(bytearray(padded(limit + 1, build)))
    with pytest.raises(LargeBatchError) as caught:
        rules.validate(data, NOW_MS, CLIENT)
    data[:] = bytes(len(data))
    assert caught.value.validate()[0].record_count == 1


@pytest.mark.parametrize("stored", ["producer", "gzip"])
def test_batch_that_unpacks_to_much_is_not_looked_through_on_the_loop(stored):
    """It may be small: its unpacked records count, also where they need not be packed again."""
    rules = validator(compression_type=stored)
    for size, is_large in ((INLINE_RECOMPRESSED_BYTES, False), (INLINE_UNPACKED_BYTES, True)):
        data = new_batch(bytes(size), compression=CompressionType.GZIP)
        if not is_large:
            assert bytes(validate(data, rules)[0].buffer) == data
            continue
        with pytest.raises(LargeBatchError) as caught:
            validate(data, rules)
        assert bytes(caught.value.validate()[0].buffer) == data


def test_batch_of_a_coordinator_may_be_larger_than_clients_may_send():
    """Only the size of a segment limits it."""
    data = new_batch(b"x" * 100)

    validate(data, validator(max_message_bytes=50), AppendOrigin.COORDINATOR)
    with pytest.raises(KafkaError, match="RECORD_LIST_TOO_LARGE"):
        validate(data, validator(segment_bytes=100), AppendOrigin.COORDINATOR)


def test_batch_of_a_coordinator_that_was_damaged_is_refused():
    """It has come over the network, as the marker of a transaction does."""
    data = bytearray(new_batch(b"x"))
    data[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        validate(bytes(data), origin=AppendOrigin.COORDINATOR)

    assert caught.value.error is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_batch_of_a_coordinator_keeps_to_the_times_of_the_topic(timestamp_type):
    """Unless it gets the time of the broker in any case."""
    rules = validator(message_timestamp_type=timestamp_type, message_timestamp_after_max_ms=1000)
    data = new_batch(b"x", timestamp_ms=NOW_MS + 1001)
    if timestamp_type == "LogAppendTime":
        assert validate(data, rules, AppendOrigin.COORDINATOR)[1] == NOW_MS
    else:
        with pytest.raises(KafkaError, match="INVALID_TIMESTAMP"):
            validate(data, rules, AppendOrigin.COORDINATOR)
    validate(new_batch(b"x", timestamp_ms=NOW_MS + 1000), rules, AppendOrigin.COORDINATOR)


def test_largest_timestamp_is_that_of_the_records_whatever_the_header_says():
    """A few clients write none; look-ups by time go by the header."""
    for wrong in (-1, 5, NOW_MS + 9):
        batch, max_timestamp_ms, _ = validate(damaged(35, ">q", wrong))

        assert batch.max_timestamp == max_timestamp_ms == NOW_MS
        assert RecordBatch(bytes(batch.buffer)).max_timestamp == NOW_MS
        batch.verify()


def test_only_records_out_of_the_bounds_are_named():
    """The bound itself is inside, on either side, and so is a record without a timestamp."""
    distances = (1000, 1001, -1000, -1001)
    records = [(NOW_MS + each, b"k", b"v", ()) for each in distances]
    rules = validator(message_timestamp_difference_max_ms=1000)
    with pytest.raises(RefusedRecordsError) as caught:
        validate(build_batch(records), rules)

    assert set(caught.value.record_errors) == {1, 3}
    assert "ahead of" in caught.value.record_errors[1]
    assert "behind" in caught.value.record_errors[3]


def test_compacted_topic_needs_a_key_in_every_record():
    """Without one the record could never be found again."""
    rules = validator(cleanup_policy="compact")
    keyless = build_batch([(NOW_MS, b"k", b"v", ()), (NOW_MS, None, b"v", ())])

    validate(new_batch(b"v"), rules)
    assert error_of(keyless, rules) is ErrorCode.INVALID_RECORD


def test_log_append_time_replaces_the_timestamps():
    """The batch gets the broker's time and a new CRC."""
    data = new_batch(b"a", b"b", timestamp_ms=5)
    batch, max_timestamp_ms, append_time_ms = validate(
        data, validator(message_timestamp_type="LogAppendTime")
    )
    stored = RecordBatch(batch.buffer)
    stored.verify()

    assert max_timestamp_ms == append_time_ms == NOW_MS
    assert [record.timestamp_ms for record in stored.records()] == [NOW_MS, NOW_MS]


def test_claim_of_log_append_time_is_refused_where_the_producer_sets_the_time():
    """A client cannot set the broker's mark."""
    data = bytearray(new_batch(b"a"))
    set_log_append_time(data, 0, 5)

    assert error_of(bytes(data)) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize(
    ("setting", "distance_ms", "fits"),
    [
        ("message_timestamp_after_max_ms", 1000, True),
        ("message_timestamp_after_max_ms", 1001, False),
        ("message_timestamp_before_max_ms", -1000, True),
        ("message_timestamp_before_max_ms", -1001, False),
        ("message_timestamp_difference_max_ms", -1001, False),
        ("message_timestamp_difference_max_ms", 1001, False),
        ("message_timestamp_after_max_ms", -(10**9), True),
        ("message_timestamp_before_max_ms", 10**9, True),
    ],
)
def test_timestamps_stay_within_the_bounds_of_the_topic(setting, distance_ms, fits):
    """A second either way is allowed here, and the bound itself is inside."""
    records = [(NOW_MS, b"k", b"v", ()), (NOW_MS + distance_ms, b"k", b"v", ())]
    rules = validator(**{setting: 1000})

    if fits:
        validate(build_batch(records), rules)
    else:
        assert error_of(build_batch(records), rules) is ErrorCode.INVALID_TIMESTAMP


def test_records_without_a_timestamp_are_within_all_bounds():
    """-1 means that the producer has none."""
    _, max_timestamp_ms, _ = validate(
        new_batch(b"a", timestamp_ms=-1), validator(message_timestamp_difference_max_ms=1000)
    )

    assert max_timestamp_ms == -1


@pytest.mark.parametrize(
    ("times", "refused"),
    [
        ((1000, -1000), None),
        ((1001, 0), "ahead of"),
        ((0, -1001), "behind"),
        ((-1001, 1001), "ahead of"),
        ((-1 - NOW_MS, -1 - NOW_MS), None),
        ((-1 - NOW_MS, 1000), None),
        ((-1 - NOW_MS, 1001), "ahead of"),
        ((-2 - NOW_MS, 0), "behind"),
    ],
)
def test_timestamps_of_very_many_records_are_checked_without_naming_records(
    times, refused, monkeypatch
):
    """Naming them would take much memory; the bounds are the same, and -1 is no timestamp."""
    monkeypatch.setattr(log_validator, "MAX_NAMED_RECORDS", 1)
    data = build_batch([(NOW_MS + each, b"k", b"v", ()) for each in times])
    rules = validator(message_timestamp_difference_max_ms=1000)
    if refused is None:
        assert validate(data, rules)[0].record_count == 2
    else:
        with pytest.raises(RefusedRecordsError, match=refused) as caught:
            validate(data, rules)
        assert caught.value.record_errors == {}


def test_old_record_beside_one_without_a_timestamp_is_refused():
    """-1 is the smallest of the two, and no reason to take the other."""
    records = [(each, b"k", b"v", ()) for each in (-1, NOW_MS - 1001, NOW_MS)]
    with pytest.raises(RefusedRecordsError) as caught:
        validate(build_batch(records), validator(message_timestamp_before_max_ms=1000))

    assert list(caught.value.record_errors) == [1]


def test_records_at_fault_are_named_up_to_a_number_of_records(monkeypatch):
    """A batch with just so many still has its records named."""
    for module in (batch_validation, log_validator):
        monkeypatch.setattr(module, "MAX_NAMED_RECORDS", 2)
    for count, named in ((2, [0, 1]), (3, [])):
        assert list(refused([(NOW_MS, None, b"v", ())] * count, cleanup_policy="compact")) == named
        late = [(NOW_MS + 2000, b"k", b"v", ())] * count
        assert list(refused(late, message_timestamp_after_max_ms=1000)) == named


@pytest.mark.parametrize("name", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_batch_is_stored_in_the_codec_of_the_topic(name):
    """Recompression keeps the records and the producer's fields."""
    data = new_batch(
        b"a" * 100,
        b"b",
        producer_id=7,
        producer_epoch=2,
        base_sequence=40,
        is_transactional=True,
    )
    source = build_batch([(1, b"k", b"v" * 50, (("h", b"x"),))], CompressionType.LZ4)
    rules = validator(compression_type=name)
    expected = CompressionType.NONE if name == "uncompressed" else CompressionType.of(name)

    for sent in (data, source):
        batch, _, _ = validate(sent, rules)
        stored = RecordBatch(batch.buffer)
        stored.verify()
        assert stored.compression is expected
        assert list(stored.records()) == list(RecordBatch(sent).records())
        assert (stored.producer_id, stored.producer_epoch, stored.base_sequence) == (
            (7, 2, 40) if sent is data else (-1, -1, -1)
        )
        assert stored.is_transactional == (sent is data)


@pytest.mark.parametrize(("name", "low", "high"), [("gzip", 1, 9), ("lz4", 1, 12), ("zstd", 1, 19)])
def test_broker_compresses_with_the_level_of_the_topic(name, low, high):
    """compression.gzip.level and its like (KIP-390): more work makes less data."""
    data = new_batch(*(b"%d" % (number * number) for number in range(3000)))
    sizes = []
    for level in (low, high):
        rules = validator(**{"compression_type": name, f"compression_{name}_level": level})
        sizes.append(validate(data, rules)[0].size_in_bytes)

    assert sizes[0] > sizes[1]


def test_records_that_are_none_are_not_recompressed():
    """What cannot be read must not be given a checksum of ours."""
    data = damaged(57, ">i", 3)  # it says three records, and has two
    data = data[:23] + struct.pack(">i", 2) + data[27:]
    data = data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]

    assert error_of(data, validator(compression_type="gzip")) is ErrorCode.INVALID_RECORD


def test_codec_of_the_producer_is_kept_by_default():
    """Bytes are not touched."""
    data = build_batch([(1, b"k", b"v" * 50, ())], CompressionType.ZSTD)
    batch, _, _ = validate(data)

    assert bytes(batch.buffer) == data


def refused(records: list[tuple], **settings: object) -> dict[int, str]:
    with pytest.raises(RefusedRecordsError) as caught:
        validate(build_batch(records), validator(**settings))
    return caught.value.record_errors


def test_records_at_fault_are_named_by_their_index():
    """Those without a key on a compacted topic, and those out of the bounds of time (KIP-467)."""
    keys = [(NOW_MS, key, b"v", ()) for key in (b"a", None, b"b", None)]
    times = [(NOW_MS + ms, b"k", b"v", ()) for ms in (0, 2000, -2000, 500)]

    assert list(refused(keys, cleanup_policy="compact")) == [1, 3]
    ahead, behind = refused(times, message_timestamp_difference_max_ms=1000).items()
    assert (ahead[0], behind[0]) == (1, 2)
    assert "ahead of" in ahead[1]
    assert "behind" in behind[1]
    assert list(refused(times, message_timestamp_before_max_ms=1000)) == [2]


@pytest.mark.parametrize(
    ("size", "most"), [(66_000, 9 << 20), (1 << 20, 31 << 20), (1 << 30, 64 << 20)]
)
def test_batch_may_unpack_to_a_multiple_of_its_size(size, most):
    """Small batches may be of any ratio, large ones of that of text, and none takes more."""
    assert most_unpacked_bytes(size) <= most
    assert most_unpacked_bytes(size) >= min(20 * size, 64 << 20)
