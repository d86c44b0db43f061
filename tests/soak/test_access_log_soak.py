"""A million lines of an access log, one in twenty of them damaged."""

from __future__ import annotations

import gzip

from log_fuzzer import LogFuzzer

from ottla.pipelines.access_log import AccessLog

LINES = 1_000_000


def test_ledger_of_a_million_lines_adds_up(tmp_path):
    """Read = requests + left out, each line is what it was made as, and no byte is passed over."""
    fuzzer = LogFuzzer(7, LINES)
    path = tmp_path / "access.log.gz"
    size = 0
    with gzip.open(path, "wb", compresslevel=1) as file:
        for line in fuzzer.lines():
            size += file.write(line + b"\n")

    log = AccessLog(path)
    published = sum(1 for _ in log.lines())

    assert published == log.ledger.lines == LINES
    assert log.ledger.requests.total() == fuzzer.sound
    assert log.ledger.left_out.total() == fuzzer.faults.total()
    assert log.reached == (LINES, size)
