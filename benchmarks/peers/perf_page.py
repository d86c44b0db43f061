"""docs/operate/performance.md: tables of the medians in benchmarks/results, and words.

A test compares the page with what this makes of the file: a number on the page was measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.peers.perf_rows import (
    APART,
    CLUSTER,
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
    READ_FACTOR,
    REFERENCE_BROKERS,
    REFERENCE_MB,
    REFERENCE_PARTITIONS,
    REFERENCE_RECORDS,
    REFERENCE_SIZE,
    ROWS,
    SECONDS,
    SHARE,
    SHARED,
    STORED_PARTS,
    STORED_SIZE,
    Row,
    net_cost,
    part_name,
)
from benchmarks.peers.perf_subjects import COMPILED
from benchmarks.peers.perf_subjects import SOURCE as OTTLA

LATENCIES = (MEAN, P50, P99, P999)
WORDS = {APART: "brokers and clients on cores of their own", SHARED: "all cores shared"}

HEAD = """\
# Performance

Kafka's classic benchmark, with Apache Kafka itself beside it: one run, one machine, and Kafka's own
performance tools as clients of all. `make bench-peers` measures everything again and writes this
page ([peers.md](../internals/peers.md) says what it needs); a row alone is measured by
`make bench-peers BENCH_ARGS="--rows latency"`, and a run that was cut short continues where it
stopped. The numbers of each round are in
[benchmarks/results/performance.json](../../benchmarks/results/performance.json).

## How it was measured
"""

METHOD = """\
Records of 100 bytes in six partitions; batches of 8 KiB and a buffer of 64 MiB in the producer; all
else as each project delivers it. That is the method of the benchmark to which Kafka's documentation
refers, but there each of three brokers and three clients had a machine; here they share one, over
loopback. Rates are not comparable with those, only side by side.

- *Apart*: brokers are bound to one core, clients to the others. *Shared*: everything runs on all
  cores, and the client often is the limit.
- The subjects take turns in each round, and each round begins with another one. The tables show
  medians; stored data and the reference load are measured in the first round alone. Before, each
  subject was warmed up: {records:,} records were written to it, and read. These are what consumers
  read later. A JVM gets quicker for some rounds more, brokers that replicate most of all: medians
  of more rounds are fairer to it. A tool is a new JVM each time, which gets warm while it measures;
  that is alike for all.
- CPU seconds are those of all brokers together, from the start of the tools to their end, minus
  what the brokers take while nobody asks them for anything: the least that was seen before a round.
  They hold on a busy machine as well; rates hardly do. Ottla's three brokers need a ZooKeeper
  server, which is counted as theirs; each of Kafka's is a controller of KRaft, too.
- A ratio is Ottla's number divided by Kafka's: better above 1 for rates, and below 1 for CPU
  seconds, latency and memory.
"""
CORE = {
    False: """\
- Ottla's core was not compiled; [compiled.md](compiled.md#measured) has what that changes.
""",
    True: """\
- Ottla runs twice: from its source, and with its core compiled from the same source
  ([compiled.md](compiled.md)). Both have the compiled loops over records.
""",
}
"""By whether Ottla is there with a compiled core."""


class Numbers:
    """The medians in the file, and its subjects, Ottla first."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content
        self.subjects: dict[str, str] = content["subjects"]
        self.ours = [key for key in self.subjects if key in (OTTLA, COMPILED)]
        self.peers = [key for key in self.subjects if key not in self.ours]

    def line(self, title: str, values: Sequence[float | None]) -> str:
        """Ottla's numbers, those of its peers, and the ratios of each to each of these."""
        ours, theirs = values[: len(self.ours)], values[len(self.ours) :]
        ratios = [a / b if a is not None and b else None for b in theirs for a in ours]
        cells = [shown(each) for each in values] + [
            "-" if each is None else f"{each:.2f}" for each in ratios
        ]
        return f"| {title} | {' | '.join(cells)} |"

    def median(self, row: str, layout: str, subject: str, name: str) -> float | None:
        """None where it was not measured."""
        measured = self.content["rows"].get(row, {}).get(layout, {}).get(subject, {})
        if name == COST and GROSS in measured:
            share = self.idle_share(row, subject)
            rounds = zip(measured[GROSS], measured[SECONDS], strict=True)
            return statistics.median(net_cost(gross, seconds, share) for gross, seconds in rounds)
        return statistics.median(measured[name]) if name in measured else None

    def idle_share(self, row: str, subject: str) -> float:
        """Of a core, that the subject's brokers of this row take while nobody asks."""
        (brokers,) = (each.brokers for each in ROWS if each.key == row)
        return float(self.content["idle"][str(brokers)][subject][SHARE]) / 100

    def medians(self, row: str, layout: str, name: str) -> list[float | None]:
        """Of each subject."""
        return [self.median(row, layout, subject, name) for subject in self.subjects]

    def all_values(self, name: str) -> list[float]:
        """Of every row, layout, subject and round."""
        return [
            value
            for layouts in self.content["rows"].values()
            for subjects in layouts.values()
            for measured in subjects.values()
            for value in measured.get(name, ())
        ]


def shown(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def table(numbers: Numbers, lines: Sequence[str], title: str = "") -> str:
    names = list(numbers.subjects.values())
    ours = ["Ottla"] if len(numbers.ours) == 1 else ["source", "compiled"]
    ratios = [
        f"{each} / {numbers.subjects[key].removeprefix('Apache ')}"
        for key in numbers.peers
        for each in ours
    ]
    head = f"| {' | '.join([title, *names, *ratios])} |"
    rule = "|" + "---|" + "---:|" * (len(names) + len(ratios))
    return "\n".join([head, rule, *lines]) + "\n"


def rows_of(brokers: int, with_rate: bool = True) -> list[Row]:
    """The rows with a rate of their own, or those with latencies."""
    special = {"stored", "reference"}
    rows = [row for row in ROWS if row.brokers == brokers and row.key not in special]
    return [row for row in rows if row.key.endswith("latency") is not with_rate]


def tables_of(numbers: Numbers, brokers: int) -> list[str]:
    """Rates, costs and latencies with so many brokers."""
    rows, parts = rows_of(brokers), []
    for name, what in ((RATE, "Records a second"), (COST, "CPU seconds per million records")):
        for layout in (APART, SHARED):
            lines = [
                numbers.line(row.title, numbers.medians(row.key, layout, name))
                for row in rows
                if layout in row.layouts
            ]
            if lines:
                parts += [f"{what}, {WORDS[layout]}:\n", table(numbers, lines)]
    (row,) = rows_of(brokers, with_rate=False)
    parts.append(
        "End-to-end latency: a record is sent with acks=all and read, then the next one.\n"
    )
    lines = [
        numbers.line(
            f"{name.replace(', ms', '')}, {layout}, ms", numbers.medians(row.key, layout, name)
        )
        for layout in row.layouts
        for name in LATENCIES
    ]
    parts.append(table(numbers, lines))
    return parts


def stored(numbers: Numbers) -> list[str]:
    size = numbers.content["sizes"]["stored_mb"] / 1000
    lines = [
        numbers.line(
            f"{size * number / STORED_PARTS:.2f} to {size * (number + 1) / STORED_PARTS:.2f} GB",
            numbers.medians("stored", APART, part_name(number)),
        )
        for number in range(STORED_PARTS)
    ]
    return [
        f"Throughput over stored data: records of {STORED_SIZE:,} bytes a second, with three\n"
        "replicas, by how much is stored already; brokers and clients on cores of their own.\n",
        table(numbers, lines, "of a replica"),
    ]


def reference(numbers: Numbers) -> list[str]:
    sizes = numbers.content["sizes"]
    scale = sizes["scale"]
    words = (
        f"The load that Kafka's documentation refers to has {REFERENCE_BROKERS} brokers, "
        f"{REFERENCE_PARTITIONS:,} partitions\nwith two replicas, "
        f"{REFERENCE_RECORDS:,} records a second, {REFERENCE_MB} MB/s in and 1 GB/s out. "
        f"One of {scale} parts of it, on three brokers:\n"
        f"{REFERENCE_PARTITIONS // scale:,} partitions, {REFERENCE_RECORDS // scale:,} records of "
        f"{REFERENCE_SIZE} bytes a second for {sizes['reference_seconds']} s,\n"
        "two producers and five consumers, which share the cores with the brokers.\n"
    )
    names = (RATE, IN_RATE, OUT_RATE, SHARE, COST, MEMORY)
    lines = [numbers.line(name, numbers.medians("reference", SHARED, name)) for name in names]
    return [words, table(numbers, lines)]


def memory(numbers: Numbers) -> list[str]:
    lines = []
    for count, words in ((1, "one broker"), (CLUSTER, "three brokers")):
        idle = numbers.content["idle"].get(str(count), {})
        for name in (MEMORY, SHARE):
            values = [idle.get(subject, {}).get(name) for subject in numbers.subjects]
            lines.append(numbers.line(f"{words}, before the load, {name}", values))
        keys = [row.key for row in ROWS if row.brokers == count]
        values = [most(numbers, keys, subject) for subject in numbers.subjects]
        lines.append(numbers.line(f"{words}, the most after a row, memory, MB", values))
    return [
        "Resident memory of all processes together. What Ottla's brokers share of Python's code\n"
        "counts for each. A broker of Kafka has its usual heap of 1 GB.\n",
        table(numbers, lines),
    ]


def most(numbers: Numbers, keys: Sequence[str], subject: str) -> float | None:
    values = [
        value
        for key in keys
        for layout in numbers.content["rows"].get(key, {}).values()
        for value in layout.get(subject, {}).get(MEMORY, ())
    ]
    return max(values, default=None)


def counted(numbers: Numbers) -> str:
    """The rounds of the rows that are measured in each round, as "3 rounds" or "3 to 7 rounds"."""
    long = {row.key for row in ROWS if row.is_long}
    counts = {
        max(map(len, measured.values()))
        for key, layouts in numbers.content["rows"].items()
        for subjects in layouts.values()
        for measured in subjects.values()
        if key not in long and measured
    }
    least, most = min(counts, default=0), max(counts, default=0)
    return f"{'' if least == most else f'{least} to '}{most} round{'s' * (most != 1)}"


def conditions(numbers: Numbers) -> str:
    content = numbers.content
    others = numbers.all_values(OTHERS)
    busy = f"{statistics.median(others):.0f} %" if others else "-"
    names = ", ".join(numbers.subjects.values())
    return (
        f"- {content['date']}: {counted(numbers)}, "
        f"{content['sizes']['records']:,} records a client. {names}.\n"
        f"- Clients: the performance tools of Apache Kafka {content['client']}. "
        f"Python {content['python']}; {content['java']}.\n"
        f"- {content['machine']}; {content['limits']}.\n"
        f"- Other work took {busy} of the machine at the same time (median of all measurements);\n"
        f"  everything here ran at a niceness of {content['nice']}.\n"
    )


def section(title: str, parts: Sequence[str]) -> str:
    return "\n".join([f"## {title}\n", *parts])


SECTIONS: tuple[tuple[str, Callable[[Numbers], list[str]]], ...] = (
    ("Three brokers: the classic table", lambda n: tables_of(n, CLUSTER) + stored(n)),
    ("One broker", lambda n: tables_of(n, 1)),
    ("The reference load, scaled down", reference),
    ("Memory, and what nothing costs", memory),
)


def tables(content: dict[str, Any]) -> str:
    """All that was measured, as it stands on the page."""
    numbers = Numbers(content)
    return "\n".join(section(title, make(numbers)) for title, make in SECTIONS)


def page(content: dict[str, Any]) -> str:
    numbers = Numbers(content)
    method = METHOD.format(records=READ_FACTOR * content["sizes"]["records"])
    method += CORE[COMPILED in numbers.subjects]
    return f"{HEAD}\n{method}{conditions(numbers)}\n{tables(content)}"
