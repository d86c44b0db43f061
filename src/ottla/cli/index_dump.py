"""The .index and .timeindex files: their entries, and whether they fit the segment beside them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from ottla.cli.command_error import CommandError
from ottla.cli.segment_file import base_offset, mapped
from ottla.log.index_file import CorruptIndexError, IndexFile
from ottla.log.offset_index import OffsetIndex, OffsetPosition
from ottla.log.time_index import TimeIndex, TimestampOffset
from ottla.record.memory_records import batch_at, batches
from ottla.record.record_batch import CorruptRecordError, RecordBatch
from ottla.runtime.local_disk import LocalDisk

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ottla.cli.terminal import Terminal

    EntryT = TypeVar("EntryT", OffsetPosition, TimestampOffset)


Pairs = list[tuple[int, int]]


def dump_offset_index(path: Path, arguments: Namespace, terminal: Terminal) -> bool:
    """Print the entries of an offset index and report those that the segment contradicts."""
    index = OffsetIndex(LocalDisk(), str(path), base_offset(path), path.stat().st_size)
    log = path.with_suffix(".log")
    if arguments.index_sanity_check:
        return _check_sanity(index, log, terminal)
    _open(index)
    mismatches: Pairs = []
    with mapped(log) as view:
        for entry in filled(index.entries(), index.base_offset):
            found = last_offset_at(view, entry.position)
            if found != entry.offset:
                mismatches.append((entry.offset, found))
            if not arguments.verify_index_only:
                terminal.print(f"offset: {entry.offset} position: {entry.position}")
    _report(f"Mismatches in :{path.absolute()}", "Index offset", "log offset", mismatches, terminal)
    return not mismatches


def dump_time_index(path: Path, arguments: Namespace, terminal: Terminal) -> bool:
    """Print the entries of a time index and report those that the segment contradicts."""
    index = TimeIndex(LocalDisk(), str(path), base_offset(path), path.stat().st_size)
    log = path.with_suffix(".log")
    if arguments.index_sanity_check:
        return _check_sanity(index, log, terminal)
    _open(index)
    entries = list(filled(index.entries(), index.base_offset))
    if not arguments.verify_index_only:
        for entry in entries:
            terminal.print(f"timestamp: {entry.timestamp_ms} offset: {entry.offset}")
    with mapped(log) as view:
        wrong_time, not_found = compare_times(entries, view)
    out_of_order = _out_of_order(entries)
    where = path.absolute()
    _report(
        f"Found timestamp mismatch in :{where}",
        "Index timestamp",
        "log timestamp",
        wrong_time,
        terminal,
    )
    _report(
        f"Found out of order timestamp in :{where}",
        "Index timestamp",
        "Previously indexed timestamp",
        out_of_order,
        terminal,
    )
    _report(
        "The following indexed offsets are not found in the log.",
        "Indexed offset",
        "found log offset",
        not_found,
        terminal,
    )
    return not (wrong_time or out_of_order or not_found)


def _out_of_order(entries: Sequence[TimestampOffset]) -> Pairs:
    """The times that are not after the one of the entry before, with that one."""
    return [
        (later.timestamp_ms, earlier.timestamp_ms)
        for earlier, later in pairwise(entries)
        if earlier.timestamp_ms >= later.timestamp_ms
    ]


def _open(index: IndexFile) -> None:
    try:
        index.open()
    except CorruptIndexError as error:
        raise CommandError(str(error)) from error


def compare_times(entries: Sequence[TimestampOffset], view: memoryview) -> tuple[Pairs, Pairs]:
    """Entries whose batch has another newest timestamp, and entries without a batch."""
    wrong_time: Pairs = []
    not_found: Pairs = []
    following = iter(batches(view))
    batch = next(following, None)
    for timestamp, offset in entries:
        while batch is not None and batch.last_offset < offset:
            batch = next(following, None)
        if batch is None or batch.last_offset != offset:
            not_found.append((offset, -1 if batch is None else batch.last_offset))
        elif (newest := newest_timestamp(batch)) != timestamp:
            wrong_time.append((timestamp, newest))
    return wrong_time, not_found


def newest_timestamp(batch: RecordBatch) -> int:
    """The newest timestamp of the records themselves; -1 where they cannot be read."""
    try:
        return max((record.timestamp_ms for record in batch.records()), default=-1)
    except CorruptRecordError:
        return -1


def last_offset_at(view: memoryview, position: int) -> int:
    """The last offset of the batch at a position; -1 where there is none."""
    try:
        return batch_at(view, position).last_offset
    except CorruptRecordError:
        return -1


def filled(entries: Iterator[EntryT], first_offset: int) -> Iterator[EntryT]:
    """The entries before the zeros that a crash may leave in a preallocated file."""
    for number, entry in enumerate(entries):
        if number and entry.offset == first_offset:
            return
        yield entry


def _check_sanity(index: IndexFile, log: Path, terminal: Terminal) -> bool:
    try:
        index.open()
        if isinstance(index, OffsetIndex):
            index.check(log.stat().st_size)
    except CorruptIndexError as error:
        terminal.note(str(error))
        return False
    terminal.print(f"{index.path} passed sanity check.")
    return True


def _report(title: str, left: str, right: str, pairs: Pairs, terminal: Terminal) -> None:
    if pairs:
        terminal.note(title)
    for first, second in pairs:
        terminal.note(f"  {left}: {first}, {right}: {second}")
