"""What a compacted log was told, and what it must still say to readers of committed records."""

from __future__ import annotations

from typing import NamedTuple

from cleaner_world import CleanerWorld

from ottla.record.memory_records import batches


class Entry(NamedTuple):
    """What was appended at an offset: a record, or (key None) the end of a transaction."""

    key: bytes | None
    value: bytes | None
    producer_id: int | None = None
    is_commit: bool = False


class Model:
    """Everything that was ever appended, by offset."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def is_committed(self, offset: int) -> bool:
        entry = self.entries[offset]
        if entry.producer_id is None:
            return True
        endings = (
            later.is_commit
            for later in self.entries[offset:]
            if later.key is None and later.producer_id == entry.producer_id
        )
        return next(endings, False)

    def has_open_transaction(self, producer_id: int) -> bool:
        kinds = [
            entry.key is not None for entry in self.entries if entry.producer_id == producer_id
        ]
        return bool(kinds) and kinds[-1]

    def last_records(self, end: int) -> dict[bytes, tuple[int, bytes | None]]:
        """Offset and value of the last committed record of each key before an offset."""
        last: dict[bytes, tuple[int, bytes | None]] = {}
        for offset, entry in enumerate(self.entries[:end]):
            if entry.key is not None and self.is_committed(offset):
                last[entry.key] = (offset, entry.value)
        return last


def dictionary_of(world: CleanerWorld, model: Model) -> dict[bytes, bytes]:
    """The committed records of a log as a dictionary; each is what was appended at its offset."""
    log = world.log()
    aborted = [entry for segment in log.segments for entry in segment.txn_index.entries()]
    producer_of = {
        offset: batch.producer_id
        for batch in world.batches()
        for offset in range(batch.base_offset, batch.next_offset)
    }
    state: dict[bytes, bytes | None] = {}
    previous = -1
    for offset, key, value in world.pairs():
        assert (key, value) == model.entries[offset][:2]
        assert offset > previous
        previous = offset
        is_aborted = any(
            entry.producer_id == producer_of[offset]
            and entry.first_offset <= offset <= entry.last_offset
            for entry in aborted
        )
        if not is_aborted and offset < log.last_stable_offset:
            state[key] = value
    return {key: value for key, value in state.items() if value is not None}


def check_answers(world: CleanerWorld, end: int) -> None:
    """No answer to a consumer is without a record, unless none follows before the end.

    librdkafka takes such an answer for a record that did not fit, and gives up in the end.
    """
    log = world.log()
    offsets_of_records = [
        batch.last_offset
        for batch in world.batches()
        if batch.record_count and batch.last_offset < end
    ]
    offset = log.log_start_offset
    while offset < end:
        data = log.read(offset, 200, max_offset=end, min_one_message=True, skips_empty=True)
        found = [] if data.records is None else list(batches(data.records.read()))
        following = [last for last in offsets_of_records if last >= offset]
        assert any(batch.record_count for batch in found) or not following
        if not found:
            return
        assert found[-1].next_offset > offset
        offset = found[-1].next_offset
