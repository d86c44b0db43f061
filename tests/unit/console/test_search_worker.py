"""The process of a search: its job, its progress, and its limits."""

from __future__ import annotations

import asyncio
import json

from topics_of_records import interleaved

from ottla.console import search_worker as room
from ottla.console.newest_first import Limits
from ottla.console.record_search import decoded


def job(servers: str, **changes) -> dict:
    return {
        "client": {"bootstrap.servers": servers},
        "topic": "orders",
        "text": "value.status = 'error'",
        "now_ms": 0,
        "isolation": 0,
        "spans": [[each, 0, 20] for each in range(3)],
        "count": 100,
        "masks": [],
        **changes,
    }


def test_worker_reads_a_job_and_writes_lines(ottla_fresh_broker, monkeypatch):
    """How far it is, then the result."""
    interleaved(ottla_fresh_broker)
    monkeypatch.setattr(room, "SAY_EVERY_MS", 0)
    lines: list[dict] = []

    room.work(job(ottla_fresh_broker.bootstrap_servers), lines.append)
    *progress, last = json.loads(json.dumps(lines))
    assert progress[0]["read"] == 60
    assert len(decoded(last).records) == 15


def test_worker_stops_at_its_limits(ottla_fresh_broker, monkeypatch):
    """And names what is left."""
    interleaved(ottla_fresh_broker)
    monkeypatch.setattr(room, "LIMITS", Limits(records=1))
    spans = [[each, 0, 10] for each in range(3)]
    wanted = job(ottla_fresh_broker.bootstrap_servers, spans=spans, text="nothing")

    found = asyncio.run(room.run(wanted, lambda line: None))
    assert found.is_spent
    assert found.records == []
