"""Every record of a batch checked, and the facts about them all, in plain Python; see `kernel`.

It is tuned for CPython: no record is made, and records that lie at equal distances are checked
many at once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from ottla.record.plain_decoding import FAR, decode_one
from ottla.record.plain_encoding import HIGH_BYTES, LOW_BYTES, SMALL, VARINTS
from ottla.record.record import (
    EMPTY_SURVEY,
    BatchHeader,
    CorruptRecordError,
    RecordSurvey,
    decode_varint,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

# See `_layout`.
_Reader: TypeAlias = Callable[[bytes, int], tuple[int, bytes, bytes, int, int]]
_Layout: TypeAlias = tuple[_Reader, _Reader, int, int, int]

_WITHOUT_TOP_BIT = bytes(byte & 0x7F for byte in range(256))
_WITH_TOP_BIT = bytes(byte | 0x80 for byte in range(256))
_TOPPED = bytes(range(128, 256))
_QUICK_RECORDS = 1 << 20
# The two quick loops of `_Survey`: how many records they take at once, and the longest varints of
# timestamps that they read.
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


def survey_records(batch: BatchHeader, payload: Buffer, start: int = 0) -> RecordSurvey:
    """Check every record, and sum up the facts about all of them that a leader needs.

    The records section is `payload` from `start` on. No record is made, however many there are.
    """
    data = _section(payload, start)
    batch.check_count(len(data))
    return _Survey(batch, data).run() if batch.record_count or data else EMPTY_SURVEY


def refuse_record(
    batch: BatchHeader, payload: Buffer, start: int, position: int, index: int, previous_delta: int
) -> NoReturn:
    """Raise the error of record `index`, at `position` from `start` of `payload`.

    Behind the last record, any byte is wrong.
    """
    data = _section(payload, start)
    if index == batch.record_count:
        raise batch.garbage(len(data) - position)
    _check_attributes(batch, data, position, index)
    decode_one(batch, data, position, index, previous_delta)
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
        if is_append_time or not -FAR <= self.timestamp <= FAR:
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
            raise self.batch.garbage(size - self.position)
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
        record, self.position = decode_one(
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
    return 1 if index < 64 else 2 if index < SMALL else 3


def _offset_varints(index: int, end: int) -> Iterable[bytes]:
    """The varints of the offset deltas from `index` to below `end`, at most `_offset_limit`."""
    if index < SMALL:
        return VARINTS[index:end]
    return map(bytes, zip(*_offset_columns(index, end - index), strict=True))


def _offset_limit(index: int) -> int:
    """Where the run of offset deltas ends whose varints differ only in their first two bytes."""
    return 64 if index < 64 else index - index % SMALL + SMALL


def _offset_columns(index: int, count: int) -> list[bytes]:
    """The first, second and third bytes of the varints of `count` offset deltas from `index` on.

    They must not reach beyond `_offset_limit`.
    """
    first = index % SMALL
    low, high = LOW_BYTES[first : first + count], HIGH_BYTES[first : first + count]
    if index < 64:
        return [low.translate(_WITHOUT_TOP_BIT)]
    if index < SMALL:
        return [low, high]
    return [low, high.translate(_WITH_TOP_BIT), bytes((index // SMALL,)) * count]


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


def _check_attributes(batch: BatchHeader, data: bytes, position: int, index: int) -> None:
    """Refuse attributes of a record: none are defined, and some clients do not expect them."""
    try:
        _, position = decode_varint(data, position)
        attributes = data[position]
    except (IndexError, CorruptRecordError):
        return  # something else is wrong
    if attributes:
        raise batch.corrupt_record(
            index, f"its attributes {attributes:#04x} are none that are defined"
        )
