"""The causes of a group's lag, found by rules in what was observed of it.

Each rule is a pure function of `Observations` and returns a `Cause` with its numbers, a sentence
and a command, or None. The rules are tried in the order of `RULES`: the first cause found leads,
and all of them are listed, as one often brings about another.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Final

from ottla.clients.admin.descriptions import REBALANCING_STATES
from ottla.structs import NO_LEADER, NamedTuple, TopicPartition, Value, field

if TYPE_CHECKING:
    from ottla.console.lag_history import OffsetSample

SHORTEST_WINDOW_MS: Final = 10_000
"""For less time nothing is said of rates, nor that a reader has stopped: clients commit each 5 s
by default, so that in this time at least one commit is due."""
STOPPED_MS: Final = 30_000
STOPPED_THOUGH_BUSY_MS: Final = 120_000
MOST_OF: Final = 0.5
"""A part is most of a whole from this share on."""
TIMES_THE_OTHERS: Final = 4
"""A partition is skewed if its lag is so many times that of the others in the mean."""
LEAST_SKEWED: Final = 50
"""A partition with fewer records is not skewed: it may have most by chance."""
REBALANCES: Final = 3
NAMED: Final = 3
"""So many partitions, keys or members are named in a sentence; of more, the number is given."""


class WaitingRecord(NamedTuple):
    """The record at a committed offset, which is read next; key and value as text."""

    offset: int
    timestamp_ms: int
    size: int
    """Bytes of key and value."""
    key: str | None
    value: str
    error: str | None = None
    """The reason why the value is neither text nor JSON; None where it is."""


class HoldingTransaction(NamedTuple):
    """The open transaction with the lowest offset in a partition."""

    start_offset: int
    producer_id: int
    transactional_id: str | None
    """None where no coordinator knows it: the transaction hangs."""
    last_write_ms: int


class Track(Value):
    """A partition that a group reads: its committed offsets and log ends, the oldest first."""

    committed: Sequence[OffsetSample] = ()
    ends: Sequence[OffsetSample] = ()
    start: int | None = None
    """The first offset of the log."""
    stable: int | None = None
    """The last stable offset: readers of committed records get no further."""
    leader: int = NO_LEADER
    reader: str = ""
    """The id of the member to which the partition is assigned; empty: to none."""

    @property
    def offset(self) -> int:
        """The newest committed offset."""
        return self.committed[-1].offset

    @property
    def end(self) -> int:
        """The newest log end."""
        return self.ends[-1].offset

    @property
    def lag(self) -> int:
        """Records between the committed offset and the log end, as far as both are known.

        None of an offset behind the end: that is of an earlier topic of this name.
        """
        return max(0, self.end - self.offset) if self.committed and self.ends else 0

    @property
    def advance(self) -> int:
        """The distance that the committed offset has moved within the window."""
        return max(0, self.offset - self.committed[0].offset) if self.committed else 0

    @property
    def growth(self) -> int:
        """The records that have come within the window."""
        return max(0, self.end - self.ends[0].offset) if self.ends else 0

    @property
    def stopped_ms(self) -> int:
        """The time since the last commit while records waited; 0 where none waited."""
        if not self.lag:
            return 0
        since_ms = self.committed[-1].time_ms
        for sample in reversed(self.committed):
            if sample.offset != self.offset:
                break
            since_ms = sample.time_ms
        waits_ms = next(each.time_ms for each in self.ends if each.offset > self.offset)
        return self.committed[-1].time_ms - max(since_ms, waits_ms)

    @property
    def has_stopped(self) -> bool:
        """Whether a commit is overdue: for 30 s, or the whole of a shorter window."""
        if not self.committed:
            return False
        seen_ms = self.committed[-1].time_ms - self.committed[0].time_ms
        return self.stopped_ms >= max(SHORTEST_WINDOW_MS, min(STOPPED_MS, seen_ms))

    @property
    def held_back(self) -> int:
        """Records behind the last stable offset, which readers of committed ones cannot get."""
        if self.stable is None or not self.lag:
            return 0
        return max(0, self.end - max(self.stable, self.offset))


class Rebalance(NamedTuple):
    """A change of a group's members or of their partitions."""

    time_ms: int
    joined: Sequence[str] = ()
    left: Sequence[str] = ()


class Observations(Value):
    """All that was seen of a group within a window; the rules look at nothing else."""

    group: str
    state: str
    window_ms: int
    now_ms: int
    readers: Mapping[str, str] = field(default_factory=dict)
    """The client ids of the members, by member id."""
    tracks: Mapping[TopicPartition, Track] = field(default_factory=dict)
    rebalances: Sequence[Rebalance] = ()
    records: Mapping[TopicPartition, WaitingRecord] = field(default_factory=dict)
    """The records at the offsets where readers have stopped."""
    transactions: Mapping[TopicPartition, HoldingTransaction] = field(default_factory=dict)
    hot_keys: Mapping[TopicPartition, Sequence[tuple[str, int]]] = field(default_factory=dict)
    """The most frequent keys of a sample of a skewed partition, with their numbers."""
    knows_readers: bool = True
    """Whether brokers have told who the members are, and what each reads."""

    @property
    def lag(self) -> int:
        """The lag of all partitions together."""
        return sum(track.lag for track in self.tracks.values())

    @property
    def seconds(self) -> float:
        """The length of the window."""
        return max(1, self.window_ms) / 1000

    @property
    def read_per_s(self) -> float:
        """How fast the group reads, by its commits in partitions that have not stopped."""
        return sum(each.advance for each in self.tracks.values()) / self.seconds

    @property
    def written_per_s(self) -> float:
        """How fast records come into the partitions that have not stopped."""
        grown = [each.growth for each in self.tracks.values() if not each.has_stopped]
        return sum(grown) / self.seconds

    @property
    def has_rates(self) -> bool:
        """Whether the window is long enough for rates."""
        return self.window_ms >= SHORTEST_WINDOW_MS

    def stopped(self) -> list[TopicPartition]:
        """Partitions with a reader that has stopped, and that no transaction holds back.

        A reader that has much to read elsewhere may come to a partition only now and then.
        """
        busy = {each.reader for each in self.tracks.values() if each.lag and not each.has_stopped}
        return [
            partition
            for partition, track in sorted(self.tracks.items())
            if track.has_stopped
            and track.reader
            and track.held_back < track.lag
            and (track.reader not in busy or track.stopped_ms >= STOPPED_THOUGH_BUSY_MS)
        ]

    def held_back(self) -> list[TopicPartition]:
        """Partitions whose last stable offset is before their end, the most held back first."""
        held = [each for each, track in self.tracks.items() if track.held_back]
        return sorted(held, key=lambda each: (-self.tracks[each].held_back, each))

    def skewed(self) -> TopicPartition | None:
        """The partition that has most of the lag, if there is one."""
        lags = {each: track.lag for each, track in self.tracks.items()}
        if len(lags) < 2 or self.lag < LEAST_SKEWED:
            return None
        worst = max(sorted(lags), key=lambda each: lags[each])
        rest = self.lag - lags[worst]
        has_most = lags[worst] >= MOST_OF * self.lag
        return (
            worst if has_most and lags[worst] > TIMES_THE_OTHERS * rest / (len(lags) - 1) else None
        )


class Cause(NamedTuple):
    """One cause: the rule that found it, a sentence, its numbers, and a command.

    `partition` and `offset` are the place to look at, where there is one.
    """

    rule: str
    sentence: str
    numbers: Mapping[str, object]
    command: str
    partition: TopicPartition | None = None
    offset: int | None = None


Rule = Callable[[Observations], Cause | None]


def explain(seen: Observations) -> list[Cause]:
    """All causes that are found, the leading one first; none for a group that keeps up."""
    return [cause for rule in RULES if (cause := rule(seen)) is not None]


def retention(seen: Observations) -> Cause | None:
    """Retention, or a deletion of records, has overtaken the reader."""
    lost = {
        partition: track.start - track.offset
        for partition, track in seen.tracks.items()
        if track.committed and track.start is not None and track.start > track.offset
    }
    if not lost:
        return None
    worst = max(sorted(lost), key=lambda each: lost[each])
    start, offset = seen.tracks[worst].start, seen.tracks[worst].offset
    sentence = (
        f"{count(sum(lost.values()), 'record')} that the group had not read "
        f"{'is' if sum(lost.values()) == 1 else 'are'} deleted: {worst} begins at offset "
        f"{start:,}, the group is at {offset:,}{_more(lost)}"
    )
    numbers = {"deleted": sum(lost.values()), "partitions": len(lost), "log_start": start}
    command = f"ottla configs --describe --entity-type topics --entity-name {worst.topic}"
    return Cause("retention", sentence, numbers, command, worst, start)


def nobody_reads(seen: Observations) -> Cause | None:
    """The group has no members, or none for some of its partitions.

    Programs that assign partitions by themselves commit without being members.
    """
    if seen.state in REBALANCING_STATES or not seen.knows_readers:
        return None
    idle = [
        partition
        for partition, track in sorted(seen.tracks.items())
        if not track.reader and track.lag and not track.advance
    ]
    if not idle:
        return None
    lag = sum(seen.tracks[each].lag for each in idle)
    if seen.readers:
        sentence = f"{_names(idle)} {'has' if len(idle) == 1 else 'have'} no reader"
    else:
        sentence = f"nobody reads: the group is {seen.state} and has no members"
    sentence += f"; {count(lag, 'record')} {'waits' if lag == 1 else 'wait'}"
    numbers = {"members": len(seen.readers), "partitions_without_reader": len(idle), "lag": lag}
    return Cause("nobody_reads", sentence, numbers, _describe(seen, "--members"), idle[0])


def rebalances(seen: Observations) -> Cause | None:
    """Members come and go: while a group rebalances, nobody reads."""
    if len(seen.rebalances) < REBALANCES:
        return None
    left = sorted({member for each in seen.rebalances for member in each.left})
    joined = sorted({member for each in seen.rebalances for member in each.joined})
    sentence = f"{len(seen.rebalances)} rebalances within {duration(seen.window_ms)}"
    if left:
        sentence += f"; left: {_names(left)}"
    if joined:
        sentence += f"; joined: {_names(joined)}"
    numbers = {"rebalances": len(seen.rebalances), "left": left, "joined": joined}
    return Cause("rebalances", sentence, numbers, _describe(seen, "--members --verbose"))


def stopped(seen: Observations) -> Cause | None:
    """A reader stays at one offset although records wait: often it cannot process that record."""
    partitions = seen.stopped()
    if not partitions:
        return None
    worst = max(partitions, key=lambda each: seen.tracks[each].lag)
    track = seen.tracks[worst]
    since_ms = track.stopped_ms
    reader = seen.readers.get(track.reader, track.reader)
    sentence = (
        f"{reader} has been at offset {track.offset:,} of {worst} for at least "
        f"{duration(since_ms)} although {count(track.lag, 'record')} "
        f"{'waits' if track.lag == 1 else 'wait'}{_more(partitions)}"
    )
    numbers: dict[str, object] = {"stopped_partitions": len(partitions), "for_ms": since_ms}
    record = seen.records.get(worst)
    if record is not None:
        sentence += f"; the record there: {_record_text(record)}"
        numbers |= record._asdict()
    command = (
        f"ottla console-consumer --topic {worst.topic} --partition {worst.partition} "
        f"--offset {track.offset} --max-messages 1"
    )
    return Cause("stopped", sentence, numbers, command, worst, track.offset)


def open_transaction(seen: Observations) -> Cause | None:
    """An open transaction keeps readers of committed records from most of what waits."""
    partitions = seen.held_back()
    held = sum(seen.tracks[each].held_back for each in partitions)
    if not partitions or held < MOST_OF * seen.lag:
        return None
    worst = partitions[0]
    sentence = (
        f"an open transaction holds readers of committed records back at offset "
        f"{seen.tracks[worst].stable:,} of {worst}: {count(held, 'offset')} behind it"
    )
    numbers: dict[str, object] = {"held_back": held, "stable_offset": seen.tracks[worst].stable}
    found = seen.transactions.get(worst)
    command = f"ottla transactions find-hanging --topic {worst.topic}"
    if found is not None:
        owner = found.transactional_id or "an id that no coordinator knows, so that it hangs"
        silent_ms = max(0, seen.now_ms - found.last_write_ms)
        sentence += (
            f"; it is of producer {found.producer_id} ({owner}), "
            f"which has written nothing for {duration(silent_ms)}"
        )
        numbers |= found._asdict()
        if found.transactional_id is None:
            command = (
                f"ottla transactions abort --topic {worst.topic} --partition {worst.partition} "
                f"--start-offset {found.start_offset}"
            )
    return Cause("open_transaction", sentence, numbers, command, worst, seen.tracks[worst].stable)


def skew(seen: Observations) -> Cause | None:
    """One partition has most of the lag: more readers would not help."""
    worst = seen.skewed()
    if worst is None:
        return None
    track = seen.tracks[worst]
    share = track.lag / seen.lag
    sentence = (
        f"{worst} has {share:.0%} of the lag ({track.lag:,} of {seen.lag:,}); "
        f"the group reads {len(seen.tracks)} partitions"
    )
    keys = seen.hot_keys.get(worst, ())
    if keys:
        hottest = ", ".join(f"{key} ({number:,})" for key, number in keys[:NAMED])
        sentence += f"; most frequent keys there: {hottest}"
    numbers = {"share": round(share, 3), "partitions": len(seen.tracks), "hot_keys": list(keys)}
    command = f"ottla tail {worst.topic} -n 20"
    return Cause("skew", sentence, numbers, command, worst, track.offset)


def leader_absent(seen: Observations) -> Cause | None:
    """A partition has no leader: nobody can read it now."""
    without = sorted(each for each, track in seen.tracks.items() if track.leader == NO_LEADER)
    if not without:
        return None
    sentence = f"{_names(without)} {'has' if len(without) == 1 else 'have'} no leader"
    command = f"ottla topics --describe --unavailable-partitions --topic {without[0].topic}"
    return Cause("leader_absent", sentence, {"without_leader": len(without)}, command, without[0])


def leader_silent(seen: Observations) -> Cause | None:
    """A leader has not answered the newest look: the lag of its partitions is not known."""
    silent = sorted(
        each
        for each, track in seen.tracks.items()
        if track.leader != NO_LEADER and (not track.ends or track.ends[-1].time_ms < seen.now_ms)
    )
    if not silent:
        return None
    brokers = sorted({seen.tracks[each].leader for each in silent})
    noun = "broker" if len(brokers) == 1 else "brokers"
    sentence = (
        f"the lag of {_names(silent)} is not known: {noun} {_names(brokers)} "
        f"{'does' if len(brokers) == 1 else 'do'} not answer"
    )
    numbers = {"unknown": len(silent), "brokers": brokers}
    return Cause("leader_silent", sentence, numbers, "ottla broker-api-versions", silent[0])


def too_slow(seen: Observations) -> Cause | None:
    """The group reads slower than records come; so many readers would keep up."""
    read, written = seen.read_per_s, seen.written_per_s
    if not seen.has_rates or not seen.readers or not seen.lag or not 0 < read < written:
        return None
    partitions = len(seen.tracks)
    needed = ceil(round(len(seen.readers) * written / read, 3))  # 3 and a rounding error are 3
    sentence = f"reads {rate(read)} where {rate(written)} come; " + (
        f"{needed} readers would keep up, now there "
        f"{'is' if len(seen.readers) == 1 else 'are'} {len(seen.readers)}"
    )
    if needed > partitions:
        sentence += f", but {count(partitions, 'partition')} can have no more than {partitions}"
    numbers = {
        "read_per_s": round(read, 1),
        "written_per_s": round(written, 1),
        "readers": len(seen.readers),
        "readers_needed": needed,
        "partitions": partitions,
    }
    return Cause("too_slow", sentence, numbers, _watch(seen))


def catching_up(seen: Observations) -> Cause | None:
    """The group reads faster than records come, and the lag has an end."""
    read, written = seen.read_per_s, seen.written_per_s
    if not seen.has_rates or not seen.lag or read <= written:
        return None
    left_s = seen.lag / (read - written)
    sentence = (
        f"is catching up: reads {rate(read)} where {rate(written)} come; "
        f"done in {duration(round(left_s * 1000))}"
    )
    numbers = {
        "read_per_s": round(read, 1),
        "written_per_s": round(written, 1),
        "seconds_left": round(left_s),
    }
    return Cause("catching_up", sentence, numbers, _watch(seen))


RULES: Final[Sequence[Rule]] = (
    retention,
    nobody_reads,
    rebalances,
    stopped,
    open_transaction,
    skew,
    leader_absent,
    leader_silent,
    too_slow,
    catching_up,
)


def duration(ms: int) -> str:
    """A length of time in its two largest units: `8 min 12 s`, `3 h 5 min`."""
    seconds = max(0, ms) // 1000
    for length, unit, below, below_unit in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= length:
            rest = seconds % length // below
            return f"{seconds // length:,} {unit}" + (f" {rest} {below_unit}" if rest else "")
    return f"{seconds} s"


def rate(per_s: float) -> str:
    """Records a second: `4,100/s`, `0.4/s`."""
    return f"{per_s:,.0f}/s" if per_s >= 10 else f"{per_s:.1f}/s"


def count(number: int, noun: str) -> str:
    """`1 record`, `1,204 records`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _names(things: Sequence[object]) -> str:
    """The first few by name, and the number of the rest."""
    named = ", ".join(map(str, things[:NAMED]))
    return named if len(things) <= NAMED else f"{named} and {len(things) - NAMED} more"


def _more(things: Iterable[object]) -> str:
    others = len(list(things)) - 1
    return "" if others < 1 else f" (and {count(others, 'partition')} more)"


def _record_text(record: WaitingRecord) -> str:
    key = "no key" if record.key is None else f"key {record.key}"
    text = f"{key}, {count(record.size, 'byte')}"
    return f"{text}, {record.error}" if record.error else f"{text}, {record.value}"


def _describe(seen: Observations, options: str) -> str:
    return f"ottla consumer-groups --describe --group {shlex.quote(seen.group)} {options}"


def _watch(seen: Observations) -> str:
    return f"ottla lag {shlex.quote(seen.group)} --watch"
