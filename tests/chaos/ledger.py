"""Transactions over all partitions of a topic, some aborted, and what readers may see of them.

Every record names its transaction and its place in it, so that each poll can be checked when it
returns: nothing of a transaction that is open or aborted, nothing left out, everything in order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Fate(Enum):
    """How far a transaction is, as its writer knows."""

    OPEN = "open"
    ENDING = "being committed"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "committed or aborted; its producer was not told"


class Entry(NamedTuple):
    """A record of a writer's transaction; all of a writer are numbered in one sequence."""

    writer: str
    transaction: int
    number: int

    @property
    def value(self) -> bytes:
        return f"{self.writer} {self.transaction} {self.number}".encode()

    @classmethod
    def of(cls, value: bytes) -> Entry:
        writer, transaction, number = value.decode().split()
        return cls(writer, int(transaction), int(number))


@dataclass
class Ledger:
    """What was written, by writers and partitions, and the fate of each transaction."""

    fates: dict[tuple[str, int], Fate] = field(default_factory=dict)
    written: defaultdict[tuple[str, int], list[Entry]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """By writer and partition, in order."""

    def note(self, writer: str, transaction: int, fate: Fate) -> None:
        self.fates[writer, transaction] = fate

    def note_sent(self, partition: int, entry: Entry) -> None:
        self.written[entry.writer, partition].append(entry)

    def fate(self, entry: Entry) -> Fate:
        return self.fates[entry.writer, entry.transaction]

    def count(self, fate: Fate) -> int:
        """How many transactions have this fate."""
        return sum(each is fate for each in list(self.fates.values()))


class CommittedView:
    """What one reader of committed records was shown, checked record by record."""

    def __init__(self, name: str, ledger: Ledger, partitions: Iterable[int]) -> None:
        self.name = name
        self.ledger = ledger
        self.shown: dict[int, list[tuple[int, Entry]]] = {each: [] for each in partitions}
        self.aborted: list[str] = []
        """Records of transactions that were open or aborted when they were shown."""
        self.gaps: list[str] = []
        self.reordered: list[str] = []
        """What came twice as well."""
        self._next: defaultdict[tuple[str, int], int] = defaultdict(int)

    def note(self, partition: int, offset: int, value: bytes) -> None:
        """The reader was shown a record."""
        entry = Entry.of(value)
        what = f"{self.name}: {entry} at {partition}, {offset}"
        shown = self.shown[partition]
        fate = self.ledger.fate(entry)
        if fate in (Fate.OPEN, Fate.ABORTED):
            self.aborted.append(f"{what}, which is {fate.value}")
        if shown and offset <= shown[-1][0]:
            self.reordered.append(f"{what}, after offset {shown[-1][0]}")
        shown.append((offset, entry))
        self._pass(partition, entry, what)

    def _pass(self, partition: int, entry: Entry, what: str) -> None:
        """Go on behind the record in what its writer sent to the partition."""
        place = entry.writer, partition
        sent = self.ledger.written[place]
        start = self._next[place]
        end = next((i for i in range(start, len(sent)) if sent[i] == entry), -1)
        if end < 0:
            self.reordered.append(f"{what}, after {sent[start - 1] if start else 'nothing'}")
            return
        left_out = [each for each in sent[start:end] if self.ledger.fate(each) is Fate.COMMITTED]
        if left_out:
            self.gaps.append(f"{what} came without {left_out[:3]}")
        self._next[place] = end + 1

    def wrong_at_the_end(self) -> Iterator[str]:
        """What is wrong once all transactions have ended and all was read."""
        seen = {entry for shown in self.shown.values() for _, entry in shown}
        whole: defaultdict[tuple[str, int], set[Entry]] = defaultdict(set)
        for sent in self.ledger.written.values():
            for entry in sent:
                whole[entry.writer, entry.transaction].add(entry)
        for key, entries in whole.items():
            fate, missing = self.ledger.fates[key], entries - seen
            if fate is Fate.COMMITTED and missing:
                yield f"{self.name}: of {key}, which is committed, {len(missing)} records are lost"
            elif fate is Fate.ABORTED and missing != entries:
                yield f"{self.name}: {key}, which is aborted, is there"
            elif missing and missing != entries:
                yield f"{self.name}: {key} is there in part, {len(missing)} are missing"
