"""The loops over records in plain Python: always there, and the reference for the compiled ones.

They are tuned for CPython: one-byte and two-byte varints are read in place, and anything rarer goes
to `decode_varint`. They also make every error's message: the compiled loops only find that a batch
is malformed, and leave the message to the plain ones.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeAlias

from ottla.record.consumer_record import ConsumerRecord, placed
from ottla.record.record import (
    BatchHeader,
    CorruptRecordError,
    FieldsOfRecord,
    Record,
    RecordHeaders,
    decode_varint,
    decode_varlong,
    encode_varint,
)
from ottla.structs import NO_TIMESTAMP

if TYPE_CHECKING:
    from typing_extensions import Buffer

COMPILED = False
MIN_RECORD_BYTES = 7
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

# The parts of a record from a producer: timestamp in ms, key, value, headers.
NewRecord: TypeAlias = tuple[int, bytes | None, bytes | None, RecordHeaders]
# See `_layout`.
_Reader: TypeAlias = Callable[[bytes, int], tuple[int, bytes, bytes, int, int]]
_Layout: TypeAlias = tuple[_Reader, _Reader, int, int, int]


class RecordSurvey(NamedTuple):
    """The timestamps of a batch, the first offset with the largest one, and how many null keys."""

    min_timestamp_ms: int
    max_timestamp_ms: int
    offset_of_max_timestamp: int
    null_key_count: int


_SMALL = 8192
# For `_Survey`: the first and the second byte of the varints of 64 to 8191, which repeat every
# 8192, and how many offset deltas have varints of at most three bytes. Each process builds them.
_LOW_BYTES = bytes(range(0x80, 0x100, 2)) * (_SMALL // 64)
_HIGH_BYTES = b"".join(bytes((high,)) * 64 for high in range(_SMALL // 64))
# The varints of 0 to 8191, in one byte and in two.
_VARINTS = [bytes((raw,)) for raw in range(0, 0x80, 2)]
_VARINTS += map(bytes, zip(_LOW_BYTES[64:], _HIGH_BYTES[64:], strict=True))
_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)
# The largest raw (zig-zag) varint of two bytes, and timestamps too far off to add such a delta to.
_SHORT_RAW = 2 * _SMALL - 1
_FAR = 1 << 62

# More for `_Survey`.
_WITHOUT_TOP_BIT = bytes(byte & 0x7F for byte in range(256))
_WITH_TOP_BIT = bytes(byte | 0x80 for byte in range(256))
_TOPPED = bytes(range(128, 256))
_QUICK_RECORDS = 1 << 20
# Its two quick loops: how many records they take at once, and the longest varints of timestamps
# that they read.
_EQUAL_AT_ONCE, _SHORT_AT_ONCE = 2048, 256
_EQUAL_TIME_BYTES, _SHORT_TIME_BYTES = 4, 5
# How many records of equal size are worth a try, and for how many records the next try is put off
# where there were none.
_EQUAL_RECORDS = 16
_SHORTEST_WAIT, _LONGEST_WAIT = 64, 4096
# No size that a varint of one byte can hold; more than any timestamp and any count; further than
# any data reach.
_OTHER_KEY = -1
_NEVER = 1 << 64
_NOWHERE = 1 << 62

EMPTY_SURVEY = RecordSurvey(NO_TIMESTAMP, NO_TIMESTAMP, -1, 0)


def encode_records(records: Sequence[NewRecord]) -> tuple[Buffer, int, int]:
    """The records section of a batch, and the base and the maximum timestamp of its header."""
    if not records:
        return b"", NO_TIMESTAMP, NO_TIMESTAMP
    base_timestamp = max_timestamp = records[0][0]
    parts: list[bytes] = []
    append, varints, small = parts.append, _VARINTS, _SMALL
    for offset_delta, (timestamp, key, value, headers) in enumerate(records):
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        delta = timestamp - base_timestamp
        prefix = b"\x00%b%b%b%b" % (
            varints[delta] if 0 <= delta < small else _encode_delta(timestamp, base_timestamp),
            varints[offset_delta] if offset_delta < small else encode_varint(offset_delta),
            _NULL if key is None else _sized(key),
            _NULL if value is None else _size(value),
        )
        suffix = encode_headers(headers) if headers else _NO_HEADERS
        length = len(prefix) + len(suffix) + len(value or b"")
        append(varints[length] if length < small else encode_varint(length))
        append(prefix)
        if value:
            append(value)
        append(suffix)
    return b"".join(parts), base_timestamp, max_timestamp


def encode_values(values: Iterable[bytes | None]) -> Buffer:
    """The records section for values only: no keys, no headers, all of the same timestamp."""
    return encode_records([(0, None, value, ()) for value in values])[0]


def _encode_delta(timestamp: int, base_timestamp: int) -> bytes:
    delta = timestamp - base_timestamp
    for number in (timestamp, base_timestamp, delta):
        if not INT64_MIN <= number <= INT64_MAX:
            raise ValueError(
                f"timestamp {timestamp} in a batch that begins at {base_timestamp}: "
                f"{number} does not fit into 64 bits"
            )
    return encode_varint(delta)


def _size(data: bytes) -> bytes:
    size = len(data)
    return _VARINTS[size] if size < _SMALL else encode_varint(size)


def _sized(data: bytes) -> bytes:
    return _size(data) + data


def encode_headers(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    parts = [b""]
    for key, value in headers:
        parts.append(_sized(key.encode()))
        parts.append(_NULL if value is None else _sized(value))
    parts[0] = encode_varint(len(parts) // 2)
    return b"".join(parts)


def decode_records(batch: BatchHeader, payload: Buffer) -> list[Record]:
    """Every record of a batch, whose uncompressed records section is `payload`."""
    return list(map(tuple.__new__, repeat(Record), _decode(batch, payload)))


def _decode(batch: BatchHeader, payload: Buffer) -> list[FieldsOfRecord]:
    data = bytes(payload)
    check_count(batch, len(data))
    records: list[FieldsOfRecord] = []
    position = 0
    try:
        while len(records) < batch.record_count:
            position = _decode_short_records(batch, data, position, records)
            if len(records) < batch.record_count:
                previous_delta = records[-1][0] - batch.base_offset if records else -1
                record, position = _decode_record(batch, data, position, previous_delta)
                records.append(record)
    except IndexError:
        raise corrupt(batch, len(records), "the bytes end in the middle of it") from None
    except CorruptRecordError as error:
        raise corrupt(batch, len(records), error.message) from None
    if position != len(data):
        raise _garbage(batch, len(data) - position)
    return records


def decode_consumer_records(
    batch: BatchHeader, payload: Buffer, topic: str, partition: int
) -> list[ConsumerRecord]:
    """The same with their place, as consumers return them."""
    return placed(_decode(batch, payload), batch, topic, partition)


def survey_records(batch: BatchHeader, payload: Buffer, start: int = 0) -> RecordSurvey:
    """Check every record, and sum up the facts about all of them that a leader needs.

    The records section is `payload` from `start` on. No record is made, however many there are.
    """
    data = _section(payload, start)
    check_count(batch, len(data))
    return _Survey(batch, data).run() if batch.record_count or data else EMPTY_SURVEY


def refuse_record(
    batch: BatchHeader,
    payload: Buffer,
    start: int,
    position: int,
    index: int,
    previous_delta: int,
) -> NoReturn:
    """Raise the error of record `index`, at `position` from `start` of `payload`.

    Behind the last record, any byte is wrong.
    """
    data = _section(payload, start)
    if index == batch.record_count:
        raise _garbage(batch, len(data) - position)
    _check_attributes(batch, data, position, index)
    _decode_one(batch, data, position, index, previous_delta)
    raise AssertionError(f"record {index} of {batch} is as it should be")


def _section(payload: Buffer, start: int) -> bytes:
    if isinstance(payload, bytes) and not start:
        return payload
    return bytes(memoryview(payload)[start:])


class _Survey:
    """The sums over the first `index` records, which end at `position`.

    Three loops check records, each of them everything about a record. The first checks many that
    are of equal size at once. The second checks one after the other, unless one of its varints is
    long. Both leave any doubt to the third, which is slow and raises the errors.
    """

    __slots__ = (
        "batch",
        "data",
        "index",
        "max_delta",
        "max_offset_delta",
        "min_delta",
        "next_try",
        "null_keys",
        "position",
        "previous_delta",
        "quick_end",
        "timestamp",
        "wait",
    )

    def __init__(self, batch: BatchHeader, data: bytes) -> None:
        self.batch, self.data = batch, data
        is_append_time = batch.is_log_append_time
        self.timestamp = batch.max_timestamp if is_append_time else batch.base_timestamp
        self.position = self.index = self.null_keys = 0
        self.previous_delta = -1
        # Of the timestamps, from `timestamp` on.
        self.min_delta, self.max_delta, self.max_offset_delta = _NEVER, -_NEVER, 0
        # The quick loops take records with consecutive offsets, up to this one.
        self.quick_end = min(batch.record_count, batch.last_offset_delta + 1, _QUICK_RECORDS)
        if is_append_time or not -_FAR <= self.timestamp <= _FAR:
            self.quick_end = 0
        # Where records of equal size are looked for next, and how long not after that.
        self.next_try = 0 if self.quick_end >= _EQUAL_RECORDS else _NEVER
        self.wait = 0

    def run(self) -> RecordSurvey:
        """Check all records; CorruptRecordError at the first that is malformed."""
        count, size = self.batch.record_count, len(self.data)
        while self.index < count:
            is_quick = self.index < self.quick_end and self.previous_delta == self.index - 1
            if is_quick and (self._skip_equal_records() or self._skip_short_records()):
                continue
            self._skip_record()
        if self.position != size:
            raise _garbage(self.batch, size - self.position)
        return RecordSurvey(
            self.timestamp + self.min_delta,
            self.timestamp + self.max_delta,
            self.batch.base_offset + self.max_offset_delta,
            self.null_keys,
        )

    def _skip_record(self) -> None:
        """Skip any record; CorruptRecordError if it is malformed."""
        batch = self.batch
        _check_attributes(batch, self.data, self.position, self.index)
        record, self.position = _decode_one(
            batch, self.data, self.position, self.index, self.previous_delta
        )
        self.previous_delta = record.offset - batch.base_offset
        self.index += 1
        self.null_keys += record.key is None
        self._note(record.timestamp_ms - self.timestamp, self.previous_delta)

    def _note(self, time_delta: int, offset_delta: int) -> None:
        if time_delta < self.min_delta:
            self.min_delta = time_delta
        if time_delta > self.max_delta:
            self.max_delta, self.max_offset_delta = time_delta, offset_delta

    def _skip_short_records(self) -> bool:
        """Skip records up to one with a longer varint, or a flaw; whether there were any.

        All fields but the value are read by one call, which takes no longer than three bytes that
        are read one by one. Their layout is that of the first record, up to one with another; only
        the length and the key may be of another size.
        """
        data, position, index, steps = self.data, self.position, self.index, _steps()
        null_keys, last_time = 0, b""
        end_index = min(self.quick_end, self.next_try, index + _SHORT_AT_ONCE, _offset_limit(index))
        try:
            read_short, read_long, usual_key, key_at, value_at = _layout_at(data, position, index)
            for offset in _offset_varints(index, end_index):
                if data[position] < 128:
                    length, time, found, key, value = read_short(data, position)
                    start = position
                else:
                    length, time, found, key, value = read_long(data, position)
                    start = position + 1
                if found != offset:
                    break
                if key == usual_key:
                    at = start + value_at
                else:
                    at = start + key_at
                    if key > 127:
                        key += data[at + 1] << 8
                    at += steps[key]
                    value = data[at]
                    if value > 127:
                        value += data[at + 1] << 8
                at += steps[value]
                end = position + steps[length]
                at = _skip_short_headers(data, at, end) if data[at] else at + 1
                if at != end or (time != last_time and not self._note_time(time, index)):
                    break
                if key == 1:
                    null_keys += 1
                last_time, position = time, end
                index += 1
        except (IndexError, struct.error):
            pass
        is_taken = index > self.index
        self.position, self.index, self.previous_delta = position, index, index - 1
        self.null_keys += null_keys
        return is_taken

    def _note_time(self, fields: bytes, index: int) -> bool:
        """Note the timestamp of a record; false unless `fields` are no attributes and a varint."""
        raw = fields[-1]
        if fields[0] or raw > 127:
            return False
        for byte in fields[-2:0:-1]:
            if byte < 128:
                return False
            raw = raw << 7 | byte & 0x7F
        self._note((raw >> 1) ^ -(raw & 1), index)
        return True

    def _skip_equal_records(self) -> bool:
        """Skip records that lie at equal distances; whether there were any.

        After a try in vain the next one is put off, the longer the more of them there were.
        """
        if self.index < self.next_try:
            return False
        shape = _shape(self.data, self.position, self.index)
        is_taken = shape is not None and self._skip_columns(*shape)
        self.wait = 0 if is_taken else max(_SHORTEST_WAIT, min(2 * self.wait, _LONGEST_WAIT))
        self.next_try = self.index + self.wait
        return is_taken

    def _skip_columns(
        self, size: int, time_at: int, offset_at: int, is_null: bool, fixed: list[int]
    ) -> bool:
        """Skip records of the shape of the next one; whether there were enough of them.

        In records of the same shape a field is in the same column of each, and a column is checked
        at once. There are no headers. The timestamps may differ.
        """
        index, data, start = self.index, self.data, self.position
        count = min(
            self.quick_end - index,
            _EQUAL_AT_ONCE,
            _offset_limit(index) - index,
            (len(data) - start) // size,
        )
        for column in fixed:
            found = data[start + column : start + count * size : size]
            if found != found[:1] * count:
                count -= len(found.lstrip(found[:1]))
        if count < _EQUAL_RECORDS:
            return False
        end = start + count * size
        expected = _offset_columns(index, count)
        for column, wanted in enumerate(expected, offset_at):
            if data[start + column : end : size] != wanted:
                return False
        columns = [data[start + column : end : size] for column in range(time_at, offset_at)]
        if not self._note_times(columns, index):
            return False
        self.position = end
        self.index += count
        self.previous_delta = self.index - 1
        self.null_keys += count if is_null else 0
        return True

    def _note_times(self, columns: list[bytes], index: int) -> bool:
        """Note the timestamps of a run from the columns of their bytes; false if not varints."""
        *more, last = columns
        if len(columns) > _EQUAL_TIME_BYTES or not last.isascii():
            return False
        if any(column.translate(None, _TOPPED) for column in more):
            return False
        # One integer for the bytes of each varint, so that equal ones are found at once.
        rows = bytearray(_EQUAL_TIME_BYTES * len(last))
        for place, column in enumerate(columns):
            rows[place::_EQUAL_TIME_BYTES] = column
        numbers = struct.unpack(f"<{len(last)}I", rows)
        deltas = {_read_row(number): number for number in set(numbers)}
        self._note(min(deltas), index)
        latest = max(deltas)
        if latest > self.max_delta:
            self._note(latest, index + numbers.index(deltas[latest]))
        return True


def _read_row(number: int) -> int:
    """The timestamp delta whose varint has these bytes, the first of them the lowest."""
    raw = (
        number & 0x7F
        | number >> 1 & 0x7F << 7
        | number >> 2 & 0x7F << 14
        | number >> 3 & 0x7F << 21
    )
    return (raw >> 1) ^ -(raw & 1)


def _shape(data: bytes, start: int, index: int) -> tuple[int, int, int, bool, list[int]] | None:
    """How the record at `start` is laid out; None if it has headers or there is no other behind.

    Its size, where its timestamp delta and its offset delta begin, whether its key is null, and
    the columns that are the same in each record of that layout.
    """
    try:
        length, body = decode_varint(data, start)
        # The length of a record further on rules out most that are not of equal size.
        further = start + (_EQUAL_RECORDS - 1) * (body + length - start)
        if not data.startswith(data[start:body], further):
            return None
        _, offset_at = decode_varint(data, body + 1)
        key_at = offset_at + _offset_size(index)
        key_size, at = decode_varint(data, key_at)
        value_at = at + max(0, key_size)
        value_size, at = decode_varint(data, value_at)
        end = at + max(0, value_size)
        if data[body] or data[end] or end + 1 != body + length or min(key_size, value_size) < -1:
            return None
    except (IndexError, CorruptRecordError):
        return None
    fixed = [
        *range(body - start + 1),
        *range(key_at - start, value_at - start - max(0, key_size)),
        *range(value_at - start, at - start),
        end - start,
    ]
    return end + 1 - start, body + 1 - start, offset_at - start, key_size < 0, fixed


def _layout_at(data: bytes, position: int, index: int) -> _Layout:
    """The layout of the record at `position`; IndexError where the data end too early."""
    time_at = position + (2 if data[position] < 128 else 3)
    time_size = 1
    while data[time_at + time_size - 1] > 127 and time_size < _SHORT_TIME_BYTES:
        time_size += 1
    offset_size = _offset_size(index)
    key = data[time_at + time_size + offset_size]
    is_short = key == 1 or (key < 128 and not key & 1)
    return _layout(time_size, offset_size, key if is_short else _OTHER_KEY)


@cache
def _layout(time_size: int, offset_size: int, key: int) -> _Layout:
    """Readers of records with varints of these sizes and a key whose encoded size is `key`.

    The readers are for lengths of one byte and of two. They return the length, the attributes with
    the timestamp delta, the offset delta, the first byte of the key's size, and the two bytes
    behind such a key, which begin with the value's size. Then come `key`, where the key's size
    lies, and where the value's does: one byte further on if the length takes two.
    """
    key_at = 2 + time_size + offset_size
    key_bytes = max(0, key >> 1)
    fields = f"{1 + time_size}s{offset_size}sB{key_bytes}xH"
    short, long = struct.Struct(f"<B{fields}"), struct.Struct(f"<H{fields}")
    return short.unpack_from, long.unpack_from, key, key_at, key_at + 1 + key_bytes


@cache
def _steps() -> list[int]:
    """How far it is from a size to the end of the sized bytes, by the two bytes of the size.

    The first byte is the lower half of the index, and the second does not matter if the first is
    the whole size. A null takes a step of 1. A size that is wrong or has a third byte leads
    nowhere.
    """
    one_byte = [_NOWHERE if raw & 1 else 1 + (raw >> 1) for raw in range(128)]
    one_byte[1] = 1
    steps = []
    for second in range(128):
        steps += one_byte
        first_step = 2 + (second << 6)
        steps += [_NOWHERE if raw & 1 else first_step + (raw >> 1) for raw in range(128)]
    return steps + (one_byte + [_NOWHERE] * 128) * 128


def _offset_size(index: int) -> int:
    """How many bytes the varint of an offset delta takes."""
    return 1 if index < 64 else 2 if index < _SMALL else 3


def _offset_varints(index: int, end: int) -> Iterable[bytes]:
    """The varints of the offset deltas from `index` to below `end`, at most `_offset_limit`."""
    if index < _SMALL:
        return _VARINTS[index:end]
    return map(bytes, zip(*_offset_columns(index, end - index), strict=True))


def _offset_limit(index: int) -> int:
    """Where the run of offset deltas ends whose varints differ only in their first two bytes."""
    return 64 if index < 64 else index - index % _SMALL + _SMALL


def _offset_columns(index: int, count: int) -> list[bytes]:
    """The first, second and third bytes of the varints of `count` offset deltas from `index` on.

    They must not reach beyond `_offset_limit`.
    """
    first = index % _SMALL
    low, high = _LOW_BYTES[first : first + count], _HIGH_BYTES[first : first + count]
    if index < 64:
        return [low.translate(_WITHOUT_TOP_BIT)]
    if index < _SMALL:
        return [low, high]
    return [low, high.translate(_WITH_TOP_BIT), bytes((index // _SMALL,)) * count]


def _skip_short_headers(data: bytes, at: int, end: int) -> int:
    """Where the headers of a record end, or -1 if a varint of theirs is long or wrong."""
    count, steps = data[at], _steps()
    at += 1
    if count > 127 or count & 1 or end > len(data):
        return -1
    for place in range(count):  # the raw varint: a key and a value for each header
        size = data[at]
        if size > 127:
            size += data[at + 1] << 8
        elif size == 1 and not place & 1:
            return -1
        at += steps[size]
    return at


def _decode_short_records(
    batch: BatchHeader, data: bytes, position: int, records: list[FieldsOfRecord]
) -> int:
    """Decode records up to one with a longer varint or with a flaw, and return where that starts.

    Almost all records have varints of one or two bytes. A varint that is read here as two bytes
    comes out above `_SHORT_RAW` if a third one follows.
    """
    if not -_FAR <= batch.base_timestamp <= _FAR:
        return position
    base_offset, base_timestamp = batch.base_offset, batch.base_timestamp
    append_time = batch.max_timestamp if batch.is_log_append_time else None
    delta_limit = batch.last_offset_delta << 1
    previous = (records[-1][0] - base_offset) << 1 if records else -1
    append, size = records.append, len(data)
    try:
        for _ in range(batch.record_count - len(records)):
            length = data[position]
            at = position + 1
            if length > 127:
                length += (data[at] << 7) - 128
                at += 1
            end = at + (length >> 1)
            time = data[at + 1]
            at += 2
            if time > 127:
                time += (data[at] << 7) - 128
                at += 1
            delta = data[at]
            at += 1
            if delta > 127:
                delta += (data[at] << 7) - 128
                at += 1
            key, at = _decode_short_bytes(data, at)
            value, at = _decode_short_bytes(data, at)
            if at >= end or (length | time | delta) > _SHORT_RAW or (length | delta) & 1:
                return position
            headers, at = _decode_headers(data, at, end) if data[at] else ((), at + 1)
            if at != end or end > size or not previous < delta <= delta_limit:
                return position
            previous = delta
            if append_time is None:
                timestamp = base_timestamp + ((time >> 1) ^ -(time & 1))
            else:
                timestamp = append_time
            append((base_offset + (delta >> 1), timestamp, key, value, headers))
            position = end
    except IndexError:
        return position
    return position


def _decode_short_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size = data[at]
    at += 1
    if size == 1:
        return None, at
    if size > 127:
        size += (data[at] << 7) - 128
        at += 1
    end = at + (size >> 1)
    return data[at:end], len(data) if size & 1 or size > 16383 else end


def _check_attributes(batch: BatchHeader, data: bytes, position: int, index: int) -> None:
    """Refuse attributes of a record: none are defined, and some clients do not expect them."""
    try:
        _, position = decode_varint(data, position)
        attributes = data[position]
    except (IndexError, CorruptRecordError):
        return  # something else is wrong
    if attributes:
        raise corrupt(batch, index, f"its attributes {attributes:#04x} are none that are defined")


def _decode_one(
    batch: BatchHeader, data: bytes, position: int, index: int, previous_delta: int
) -> tuple[Record, int]:
    """Record number `index`, and where it ends; the error names the malformed field."""
    try:
        return _decode_record(batch, data, position, previous_delta)
    except IndexError:
        raise corrupt(batch, index, "the bytes end in the middle of it") from None
    except CorruptRecordError as error:
        raise corrupt(batch, index, error.message) from None


def _decode_record(
    batch: BatchHeader, data: bytes, position: int, previous_delta: int
) -> tuple[Record, int]:
    length, position = decode_varint(data, position)
    end = position + length
    if length < 0 or end > len(data):
        raise CorruptRecordError(
            f"its length {length} does not fit into the {len(data) - position} bytes that are left"
        )
    timestamp_delta, position = decode_varlong(data, position + 1)
    offset_delta, position = decode_varint(data, position)
    if not previous_delta < offset_delta <= batch.last_offset_delta:
        raise CorruptRecordError(
            f"its offset delta {offset_delta} is not between the one before, {previous_delta}, "
            f"and the batch's last, {batch.last_offset_delta}"
        )
    key, position = _decode_bytes(data, position, end, "key")
    value, position = _decode_bytes(data, position, end, "value")
    headers, position = _decode_headers(data, position, end)
    if position != end:
        raise CorruptRecordError(f"its length {length} is not what its fields take up")
    timestamp = (
        batch.max_timestamp if batch.is_log_append_time else batch.base_timestamp + timestamp_delta
    )
    if not INT64_MIN <= timestamp <= INT64_MAX:
        raise CorruptRecordError(f"its timestamp {timestamp} does not fit into 64 bits")
    return Record(batch.base_offset + offset_delta, timestamp, key, value, headers), position


def _decode_bytes(data: bytes, position: int, end: int, what: str) -> tuple[bytes | None, int]:
    size, position = decode_varint(data, position)
    if size == -1:
        return None, position
    if size < 0 or position + size > end:
        raise CorruptRecordError(
            f"the size {size} of its {what} does not fit into the {end - position} bytes left of it"
        )
    return data[position : position + size], position + size


def _decode_headers(data: bytes, position: int, end: int) -> tuple[RecordHeaders, int]:
    count, position = decode_varint(data, position)
    if count == 0:
        return (), position
    if count < 0 or 2 * count > end - position:
        raise CorruptRecordError(
            f"its {count} headers do not fit into the {end - position} bytes left of it"
        )
    headers = []
    for _ in range(count):
        key, position = _decode_bytes(data, position, end, "header key")
        if key is None:
            raise CorruptRecordError("a header of it has no key")
        value, position = _decode_bytes(data, position, end, "header value")
        # Invalid UTF-8 is replaced, as Java does: one bad producer must not stop every reader.
        headers.append((key.decode("utf-8", "replace"), value))
    return tuple(headers), position


def check_count(batch: BatchHeader, payload_size: int) -> None:
    """Refuse a header whose count or last offset cannot be true, before memory is sized by it."""
    count = batch.record_count
    if count < 0 or count * MIN_RECORD_BYTES > payload_size:
        raise CorruptRecordError(
            f"the batch at offset {batch.base_offset} says that it has {count} records, "
            f"in {payload_size} bytes"
        )
    if not INT64_MIN <= batch.last_offset <= INT64_MAX:
        raise CorruptRecordError(
            f"the last offset delta {batch.last_offset_delta} of the batch at offset "
            f"{batch.base_offset} leads past 64 bits"
        )


def _garbage(batch: BatchHeader, size: int) -> CorruptRecordError:
    return CorruptRecordError(
        f"the batch at offset {batch.base_offset} has {size} bytes of garbage "
        f"behind its {batch.record_count} records"
    )


def corrupt(batch: BatchHeader, index: int, what: str) -> CorruptRecordError:
    """The error for record number `index` of a batch."""
    return CorruptRecordError(f"record {index} of the batch at offset {batch.base_offset}: {what}")
