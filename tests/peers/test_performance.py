"""`make bench-peers` measures a row, beside Apache Kafka."""

from __future__ import annotations

import json

from benchmarks.peers.bench_performance import main
from benchmarks.peers.perf_page import Numbers
from benchmarks.peers.perf_rows import APART, MEMORY, RATE


def test_a_row_alone_is_measured_and_shown(tmp_path):
    """A small run of one row: all subjects have a rate, and the page that is made shows it."""
    results, page = tmp_path / "results.json", tmp_path / "page.md"
    sizes = ["--rounds", "1", "--records", "20000"]
    main([*sizes, "--rows", "alone-producer", "--results", str(results), "--to", str(page)])

    numbers = Numbers(json.loads(results.read_text(encoding="utf-8")))
    rates = numbers.medians("alone-producer", APART, RATE)
    assert len(rates) == len(numbers.subjects) >= 2
    assert all(rate is not None and rate > 0 for rate in rates)
    assert None not in numbers.medians("alone-producer", APART, MEMORY)
    assert f"| one producer | {rates[0]:,.0f} |" in page.read_text(encoding="utf-8")
