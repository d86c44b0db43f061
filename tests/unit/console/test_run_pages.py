"""The page of a run: records, queries and the report, which runs in a sandbox."""

from __future__ import annotations

import json

import pytest
from visitor import Visitor, visit

from ottla import Producer
from ottla.console.run_pages import REPORT_PATH
from ottla.structs import PROGRESS_TOPIC

REPORT = "<!doctype html><script>document.title = 'mine'</script><h1>All arrived</h1>"
BATCH = {
    "pipeline": "web_traffic",
    "query": "web_traffic",
    "run": "r1",
    "state": "running",
    "report": "report.html",
    "began_ms": 1,
    "at_ms": 2,
    "batch": 3,
    "rows": 10,
    "seconds": 0.5,
    "lag": 7,
    "late": 0,
    "state_rows": 1,
    "malformed": 0,
}


def test_run_has_its_records_queries_and_report(ottla_fresh_broker, tmp_path):
    """The report may come later; its policy keeps it away from the console."""
    broker, report = ottla_fresh_broker, tmp_path / "report.html"
    broker.create_topic("web-traffic", 2)
    broker.create_topic(PROGRESS_TOPIC, 1)
    with Producer(broker.bootstrap_servers) as producer:
        for _ in range(5):
            producer.send("web-traffic", b"GET /")
        producer.send(PROGRESS_TOPIC, json.dumps(BATCH).encode())

    async def walk(visitor: Visitor) -> None:
        early = (await visitor.get("/run.json")).json
        assert (early["report_bytes"], early["records"]) == (None, 5)
        waiting = await visitor.get(REPORT_PATH)
        assert "not written its report yet" in waiting.text
        report.write_text(REPORT)
        data = (await visitor.get("/run.json")).json
        assert [(each["name"], each["records"]) for each in data["topics"]] == [("web-traffic", 5)]
        assert [each["lag"] for each in data["queries"]] == [7]
        assert data["report_bytes"] == len(REPORT)
        page = (await visitor.get("/run")).text
        assert f'src="{REPORT_PATH}"' in page
        assert 'aria-current="page"' in page
        shown = await visitor.get(REPORT_PATH)
        assert shown.text == REPORT
        assert shown.header("content-security-policy").startswith("sandbox allow-scripts;")
        assert shown.header("cache-control") == "no-store"

    visit(broker.bootstrap_servers, walk, report=str(report))


def test_report_is_for_those_who_were_let_in(ottla_broker, tmp_path):
    """The token guards it as it guards the pages."""
    report = tmp_path / "report.html"
    report.write_text(REPORT)

    async def walk(visitor: Visitor) -> None:
        refused = await visitor.get(REPORT_PATH)
        assert (refused.status, "All arrived" in refused.text) == (401, False)

    visit(ottla_broker.bootstrap_servers, walk, is_in=False, report=str(report))


@pytest.mark.parametrize("path", ["/run", "/run.json", REPORT_PATH])
def test_console_without_a_run_has_no_page_of_it(ottla_broker, path):
    """Nor an entry in the rail."""

    async def walk(visitor: Visitor) -> None:
        assert (await visitor.get(path)).status == 404
        assert "<span>Run</span>" not in (await visitor.get("/")).text

    visit(ottla_broker.bootstrap_servers, walk)
