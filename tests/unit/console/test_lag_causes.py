"""The rules that explain lag: each finds its cause, names its numbers, and finds nothing else."""

from __future__ import annotations

import pytest

from ottla.console import lag_causes
from ottla.console.lag_causes import (
    HoldingTransaction,
    Observations,
    Rebalance,
    Track,
    WaitingRecord,
    duration,
    explain,
    rate,
)
from ottla.console.lag_history import OffsetSample
from ottla.structs import TopicPartition, replace

P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))
BEGAN_MS, NOW_MS = 0, 60_000
READERS = {"m-1": "worker-1"}


def track(committed: tuple[int, int], ends: tuple[int, int], **fields: object) -> Track:
    """A partition at the begin and at the end of a minute; worker-1 reads it."""
    samples = [
        [OffsetSample(BEGAN_MS, offsets[0]), OffsetSample(NOW_MS, offsets[1])]
        for offsets in (committed, ends)
    ]
    given = {"start": 0, "stable": ends[1], "leader": 1, "reader": "m-1"} | fields
    return Track(*samples, **given)


def seen(*tracks: Track, **fields: object) -> Observations:
    """A group that reads these partitions of a topic."""
    by_partition = dict(zip((P0, P1, P2), tracks, strict=False))
    given = {"state": "Stable", "readers": READERS, "tracks": by_partition} | fields
    return Observations(group="billing", window_ms=60_000, now_ms=NOW_MS, **given)


KEEPS_UP = track((100, 700), (100, 700))
SLOW = track((0, 60), (100, 700))
SILENT = replace(KEEPS_UP, ends=KEEPS_UP.ends[:1])
STOPPED = track((10, 10), (20, 700))

CASES = {
    "retention": (
        seen(track((10, 10), (500, 700), start=300), KEEPS_UP),
        "290 records that the group had not read are deleted: orders-0 begins at offset 300, "
        "the group is at 10",
        "ottla configs --describe --entity-type topics --entity-name orders",
    ),
    "nobody_reads": (
        seen(track((10, 10), (20, 700), reader=""), state="Empty", readers={}),
        "nobody reads: the group is Empty and has no members; 690 records wait",
        "ottla consumer-groups --describe --group billing --members",
    ),
    "rebalances": (
        seen(
            track((0, 5), (100, 200)),
            rebalances=[Rebalance(1), Rebalance(2, ("worker-2",)), Rebalance(3, (), ("worker-2",))],
        ),
        "3 rebalances within 1 min; left: worker-2; joined: worker-2",
        "ottla consumer-groups --describe --group billing --members --verbose",
    ),
    "stopped": (
        seen(STOPPED, records={P0: WaitingRecord(10, 5, 12, "k", "{oops", "no JSON: bad")}),
        "worker-1 has been at offset 10 of orders-0 for at least 1 min although 690 records wait; "
        "the record there: key k, 12 bytes, no JSON: bad",
        "ottla console-consumer --topic orders --partition 0 --offset 10 --max-messages 1",
    ),
    "open_transaction": (
        seen(
            track((10, 10), (20, 700), stable=10),
            transactions={P0: HoldingTransaction(10, 77, None, NOW_MS - 30_000)},
        ),
        "an open transaction holds readers of committed records back at offset 10 of orders-0: "
        "690 offsets behind it; it is of producer 77 (an id that no coordinator knows, so that it "
        "hangs), which has written nothing for 30 s",
        "ottla transactions abort --topic orders --partition 0 --start-offset 10",
    ),
    "skew": (
        seen(track((0, 600), (100, 7000)), KEEPS_UP, KEEPS_UP, hot_keys={P0: [("eu", 1200)]}),
        "orders-0 has 100% of the lag (6,400 of 6,400); the group reads 3 partitions; most "
        "frequent keys there: eu (1,200)",
        "ottla tail orders -n 20",
    ),
    "leader_absent": (
        seen(track((0, 0), (0, 0), leader=-1)),
        "orders-0 has no leader",
        "ottla topics --describe --unavailable-partitions --topic orders",
    ),
    "leader_silent": (
        seen(SILENT, KEEPS_UP),
        "the lag of orders-0 is not known: broker 1 does not answer",
        "ottla broker-api-versions",
    ),
    "too_slow": (
        seen(SLOW, SLOW),
        "reads 2.0/s where 20/s come; 10 readers would keep up, now there is 1, but 2 partitions "
        "can have no more than 2",
        "ottla lag billing --watch",
    ),
    "catching_up": (
        seen(track((0, 1260), (2000, 2060)), track((0, 1260), (2000, 2060))),
        "is catching up: reads 42/s where 2.0/s come; done in 40 s",
        "ottla lag billing --watch",
    ),
}


@pytest.mark.parametrize("rule", CASES)
def test_rule_finds_its_cause(rule):
    """It leads, with its sentence and its command."""
    observations, sentence, command = CASES[rule]
    cause = explain(observations)[0]

    assert (cause.rule, cause.sentence, cause.command) == (rule, sentence, command)
    assert cause.numbers


@pytest.mark.parametrize(
    "observations",
    [
        seen(KEEPS_UP, KEEPS_UP),
        seen(),
        seen(track((700, 700), (700, 700), reader=""), state="Empty", readers={}),
    ],
    ids=["keeps up", "reads nothing", "has read all and left"],
)
def test_group_without_lag_has_no_cause(observations):
    """A group that has read all is not behind, whoever reads."""
    assert explain(observations) == []


def test_every_cause_that_is_found_is_listed():
    """In the order of the rules: what was deleted comes before who has stopped."""
    found = explain(seen(track((10, 10), (500, 700), start=300), KEEPS_UP, KEEPS_UP))

    assert [cause.rule for cause in found] == ["retention", "stopped", "skew"]


def test_reader_that_waits_for_a_transaction_has_not_stopped():
    """The record at its offset is not the cause."""
    held = seen(track((10, 10), (20, 700), stable=10))

    assert [cause.rule for cause in explain(held)] == ["open_transaction"]


def test_transaction_that_holds_little_back_is_no_cause():
    """Readers have other things to read first."""
    little = seen(track((0, 60), (100, 700), stable=690), track((0, 60), (100, 700)))

    assert [cause.rule for cause in explain(little)] == ["too_slow"]


def test_program_without_membership_reads():
    """Commits that move are those of a reader, if the group has no members."""
    moves = seen(track((10, 60), (20, 700), reader=""), state="Empty", readers={})

    assert lag_causes.nobody_reads(moves) is None


def test_group_that_rebalances_is_not_called_without_readers():
    """Its partitions are about to be assigned."""
    waits = seen(track((10, 10), (20, 700), reader=""), state="PreparingRebalance")

    assert lag_causes.nobody_reads(waits) is None


def test_partitions_without_a_reader_are_named():
    """The others are read."""
    half = seen(track((10, 10), (20, 30), reader=""), KEEPS_UP)
    cause = lag_causes.nobody_reads(half)

    assert cause is not None
    assert cause.sentence == "orders-0 has no reader; 20 records wait"


def test_reader_that_is_busy_elsewhere_has_not_stopped():
    """It comes to a partition now and then; after two minutes it has stopped there all the same."""
    assert [cause.rule for cause in explain(seen(STOPPED, SLOW))] == ["too_slow"]
    late = [OffsetSample(BEGAN_MS, 10), OffsetSample(NOW_MS + 60_000, 10)]
    long = seen(replace(STOPPED, committed=late), SLOW)

    assert [cause.rule for cause in explain(long)] == ["stopped", "too_slow"]


def test_reader_stops_at_its_last_commit():
    """What it read before does not matter, nor a time in which nothing waited."""
    commits = [OffsetSample(BEGAN_MS, 5), OffsetSample(10_000, 10), OffsetSample(NOW_MS, 10)]
    ends = [OffsetSample(BEGAN_MS, 10), OffsetSample(25_000, 700)]
    reader = Track(commits, ends, 0, 700, 1, reader="m-1")
    assert reader.stopped_ms == 35_000
    assert reader.has_stopped
    assert not replace(reader, ends=[OffsetSample(35_000, 700)]).has_stopped


def test_short_window_says_nothing_of_rates_and_of_readers_that_stopped():
    """A commit may be due in a moment."""
    short = replace(seen(SLOW, STOPPED), window_ms=5_000)
    tracks = {
        partition: replace(each, committed=each.committed[1:])
        for partition, each in short.tracks.items()
    }

    assert explain(replace(short, tracks=tracks)) == []


def test_readers_needed_are_counted_without_rounding_errors():
    """Three times as many records as are read need three readers, in a window of any length."""
    group = seen(track((0, 120), (100, 460)))
    causes = [lag_causes.too_slow(replace(group, window_ms=each)) for each in range(60_000, 60_400)]

    assert {each and each.numbers["readers_needed"] for each in causes} == {3}


def test_offset_behind_the_end_is_no_lag():
    """It was committed to an earlier topic of this name."""
    assert track((900, 900), (100, 100)).lag == 0


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (492_000, "8 min 12 s"),
        (11_100_000, "3 h 5 min"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_duration_has_its_two_largest_units(ms, text):
    """A unit of which there is none is left out."""
    assert duration(ms) == text


def test_rates_have_a_decimal_place_where_they_are_small():
    """A record every other second is not none."""
    assert [rate(each) for each in (0.5, 9.9, 10, 4100)] == ["0.5/s", "9.9/s", "10/s", "4,100/s"]


def test_commands_name_any_group():
    """An id with blanks and quotes is one word of a shell."""
    cause = lag_causes.catching_up(replace(CASES["catching_up"][0], group="it's; rm -rf"))

    assert cause is not None
    assert cause.command == """ottla lag 'it'"'"'s; rm -rf' --watch"""
