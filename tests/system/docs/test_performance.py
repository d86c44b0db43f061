"""docs/operate/performance.md has the rows that `make bench-peers` has measured."""

from __future__ import annotations

import json

import pytest
from benchmarks.peers.bench_performance import PAGE, RESULTS, Results
from benchmarks.peers.perf_page import COMPILED, OTTLA, Numbers, page
from benchmarks.peers.perf_rows import (
    APART,
    COST,
    GROSS,
    IN_RATE,
    MEAN,
    MEMORY,
    OTHERS,
    OUT_RATE,
    P50,
    P99,
    P999,
    RATE,
    ROWS,
    SECONDS,
    SHARE,
    SHARED,
    STORED_PARTS,
    Sizes,
    net_cost,
    part_name,
    rates_by_part,
)
from benchmarks.peers.perf_tools import Latency, Produced, consumed, latency, produced

CLASSIC = (
    "one producer, no replication",
    "one producer, 3x asynchronous replication",
    "one producer, 3x synchronous replication",
    "three producers, 3x asynchronous replication",
    "one consumer",
    "three consumers",
    "a producer and a consumer",
)
PRODUCER_SAID = """\
152 records sent, 30.4 records/sec (0.00 MB/sec), 2049.2 ms avg latency, 2102.0 ms max latency.
400 records sent, 80.000000 records/sec (0.01 MB/sec), 13.01 ms avg latency, 21.00 ms max latency, \
11 ms 50th, 20 ms 95th, 21 ms 99th, 21 ms 99.9th.
"""
CONSUMER_SAID = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, \
rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
2026-11-23 14:43:05:678, 2026-11-23 14:43:31:173, 190.7349, 7.4813, 2000000, 78446.7543, 8443, \
17052, 11.1855, 117288.2946
"""
LATENCY_SAID = """\
0\t12.5
Avg latency: 2.1234 ms

Percentiles: 50th = 2, 99th = 5, 99.9th = 9
"""


SUBJECTS = {OTTLA: "source", COMPILED: "compiled", "kafka-4.4": "Apache Kafka 4.4.0"}


@pytest.fixture
def results(tmp_path):
    """Two rounds of every row, in which each number of each subject is another one."""
    results = Results(tmp_path / "results.json")
    sizes = Sizes(300_000, 1000, 1000, 20, 60)
    about = dict.fromkeys(("machine", "limits", "python", "java", "client"), "x")
    given = {"date": "2026-11-23", "subjects": SUBJECTS, "rounds": 2, "nice": -10}
    results.begin([], about | given | {"sizes": sizes._asdict()})
    names = (RATE, GROSS, SECONDS, MEMORY, OTHERS, MEAN, P50, P99, P999, SHARE, IN_RATE, OUT_RATE)
    parts = [part_name(number) for number in range(STORED_PARTS)]
    value = 1000.0
    for row in results.pending:
        for layout in row.layouts:
            for subject in SUBJECTS:
                for _ in range(2):
                    measured = {name: value + 7 * at for at, name in enumerate((*names, *parts))}
                    results.note(row, layout, subject, measured)
                    value += 1000
    results.finish(results.pending)
    idle = {subject: {SHARE: 50.0, MEMORY: 100.0} for subject in SUBJECTS}
    results.content["idle"] = {"1": idle, "3": idle}
    return results


def shown(results, key, layout, name):
    """The line of a row whose title is that of the number, or of the row itself."""
    (row,) = [row for row in ROWS if row.key == key]
    medians = Numbers(results.content).medians(key, layout, name)
    assert None not in medians
    return Numbers(results.content).line(
        row.title if name in (RATE, COST) and key != "reference" else name, medians
    )


def test_a_page_stands_beside_its_numbers():
    """The page is what is made of the numbers that were measured, or not there."""
    assert PAGE.exists() == RESULTS.exists()
    if PAGE.exists():
        content = json.loads(RESULTS.read_text(encoding="utf-8"))
        assert page(content) == PAGE.read_text(encoding="utf-8")
        for layouts in content["rows"].values():
            for subjects in layouts.values():
                assert set(subjects) == set(content["subjects"])


@pytest.mark.parametrize("title", CLASSIC)
def test_the_classic_table_has_its_rows(results, title):
    """The rows of the benchmark that Kafka's documentation refers to, rates and CPU time."""
    (row,) = [row for row in ROWS if row.title == title and row.brokers == 3]
    text = page(results.content).splitlines()

    for layout in row.layouts:
        for name in (RATE, COST):
            assert shown(results, row.key, layout, name) in text


def test_latency_and_stored_data_have_tables(results):
    """The two rows of the classic benchmark that are more than one number."""
    numbers, text = Numbers(results.content), page(results.content).splitlines()

    assert numbers.line("mean, apart, ms", numbers.medians("latency", APART, MEAN)) in text
    assert numbers.line("p99.9, apart, ms", numbers.medians("latency", APART, P999)) in text
    for number, title in enumerate(
        ("0.00 to 0.25", "0.25 to 0.50", "0.50 to 0.75", "0.75 to 1.00")
    ):
        values = numbers.medians("stored", APART, part_name(number))
        assert numbers.line(f"{title} GB", values) in text


def test_the_reference_load_is_scaled_down(results):
    """A sixtieth of partitions, records and bytes, with the CPU time and memory it takes."""
    text = page(results.content)

    assert "60 brokers, 50,000 partitions" in text
    assert "833 partitions, 13,333 records of 375 bytes a second" in text
    for name in (RATE, IN_RATE, OUT_RATE, SHARE, COST, MEMORY):
        assert shown(results, "reference", SHARED, name) in text.splitlines()


def test_a_number_that_is_missing_is_not_made_up(results):
    """A row that was not measured has dashes."""
    del results.content["rows"]["producers"]

    dashes = " | ".join(["-"] * 5)
    title = "three producers, 3x asynchronous replication"
    assert f"| {title} | {dashes} |" in page(results.content).splitlines()


def test_a_ratio_is_ours_by_theirs():
    """The first number is Ottla's; where something is missing there is no ratio."""
    numbers = Numbers({"subjects": dict.fromkeys((OTTLA, "kafka-3.9", "kafka-4.4"), "x")})

    assert numbers.line("row", [150.0, 100.0, 300.0]) == "| row | 150 | 100 | 300 | 1.50 | 0.50 |"
    assert numbers.line("row", [1.5, None, 3.0]) == "| row | 1.50 | - | 3.00 | - | 0.50 |"


def test_both_kinds_of_ottla_have_a_ratio():
    """From the source and compiled, to each of the others."""
    numbers = Numbers({"subjects": dict.fromkeys((OTTLA, COMPILED, "kafka-4.4"), "x")})

    assert numbers.line("row", [1.5, 4.5, 3.0]) == "| row | 1.50 | 4.50 | 3.00 | 0.50 | 1.50 |"


def test_what_the_tools_print_is_understood():
    """The windows and the whole of the producer, the consumer without its joining, latency."""
    windows, whole = produced(PRODUCER_SAID)

    assert windows == [Produced(152, 30.4, 0.0)]
    assert whole == Produced(400, 80.0, 0.01)
    assert consumed(CONSUMER_SAID) == (2_000_000, 117288.2946)
    assert latency(LATENCY_SAID) == Latency(2.1234, 2, 5, 9)
    for understand in (produced, consumed, latency):
        with pytest.raises(ValueError, match="no "):
            understand("Exception in thread main\n")


def test_cpu_time_is_told_where_it_can_be(results):
    """What a broker takes without clients does not count, and no round is left out."""
    assert net_cost(3.0, 2.0, 0.5) == 2.0
    assert net_cost(0.9, 2.0, 0.5) == 0.0
    measured = results.content["rows"]["producers"][APART][OTTLA]
    measured[GROSS], measured[SECONDS] = [9.0, 1.0], [4.0, 2.0]
    assert Numbers(results.content).median("producers", APART, OTTLA, COST) == 3.5


def test_stored_data_are_shown_in_parts():
    """A window counts where it begins, and rates are weighted by time."""
    windows = [
        Produced(100, 100, 0),
        Produced(100, 50, 0),
        Produced(150, 50, 0),
        Produced(50, 5, 0),
    ]

    assert rates_by_part(windows, 400) == {
        part_name(0): 100,
        part_name(1): 50,
        part_name(2): 50,
        part_name(3): 5,
    }
    assert rates_by_part([Produced(200, 10, 0), Produced(200, 10, 0)], 400) == {
        part_name(0): 10,
        part_name(2): 10,
    }
    nothing = Produced(0, 0, 0)
    assert rates_by_part([nothing, Produced(100, 20, 0)], 400) == {part_name(0): 10}


def test_a_run_that_was_cut_short_continues(tmp_path):
    """Rows that are under way keep their values; rows that are named begin again."""
    first, second = ROWS[:2]
    results = Results(tmp_path / "results.json")
    results.begin([first.key, second.key], {"rounds": 2})
    results.note(first, APART, OTTLA, {RATE: 1.0})

    again = Results(tmp_path / "results.json")
    again.begin([], {"rounds": 2})
    assert [row.key for row in again.pending] == [first.key, second.key]
    assert again.rounds(first, APART, OTTLA) == 1
    assert again.rounds(first, SHARED, OTTLA) == 0

    again.finish([first, second])
    once_more = Results(tmp_path / "results.json")
    once_more.begin([second.key], {"rounds": 2})
    assert [row.key for row in once_more.pending] == [second.key]
    assert once_more.rounds(first, APART, OTTLA) == 1
