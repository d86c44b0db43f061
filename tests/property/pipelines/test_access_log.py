"""Logs with faults: what is read is what is sound and what is not, in every pipeline alike."""

from __future__ import annotations

import pyarrow as pa
import pytest
from log_fuzzer import LogFuzzer

from ottla.pipelines import crawlers, monitoring, web_traffic
from ottla.pipelines.access_log import AccessLog
from ottla.pipelines.line_rows import rows_of_lines
from ottla.pipelines.logged_request import request_of
from ottla.pipelines.pipeline import FeedRequest

LINES = 2_000


@pytest.mark.parametrize("seed", range(3))
def test_ledger_of_a_faulty_log_adds_up(tmp_path, seed):
    """Sound lines are requests and the others are left out; feeds and tasks count the same."""
    fuzzer = LogFuzzer(seed, LINES)
    path = tmp_path / "access.log"
    path.write_bytes(b"".join(line + b"\n" for line in fuzzer.lines()))

    logs = {name: AccessLog(path) for name in ("web_traffic", "crawlers", "monitoring")}
    feeds = {"web_traffic": web_traffic, "crawlers": crawlers, "monitoring": monitoring}
    events = {
        name: list(module.PIPELINE.feeds["log"](FeedRequest(0, 0, logs[name])))
        for name, module in feeds.items()
    }

    for log in logs.values():
        assert (log.ledger.requests.total(), log.ledger.lines) == (fuzzer.sound, LINES)
        assert log.ledger.left_out.total() == fuzzer.faults.total()
        assert log.ledger == logs["web_traffic"].ledger
    values = [event.value for event in events["web_traffic"]]
    assert len(values) == len(events["crawlers"]) == LINES
    assert sum(request_of(value) is not None for value in values) == fuzzer.sound
    assert problems_of(values) == logs["web_traffic"].ledger.left_out
    requests = [e.value for e in events["monitoring"] if b'"metric": "requests"' in e.value]
    assert sum(float(each.split(b'"value": ')[1].split(b",")[0]) for each in requests) == (
        fuzzer.sound
    )


def problems_of(values):
    """How often each reason stands in the rows that Spark's tasks make of these records."""
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": ["t"] * len(values),
            "partition": [0] * len(values),
            "offset": range(len(values)),
            "value": pa.array(values, pa.binary()),
        }
    )
    found = {}
    for rows in rows_of_lines([batch]):
        for problem in rows["problem"].to_pylist():
            if problem is not None:
                found[problem] = found.get(problem, 0) + 1
    return found
