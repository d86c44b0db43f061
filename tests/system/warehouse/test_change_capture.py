"""The pipeline change_capture: a table in step with a compacted topic, whatever is run twice."""

from __future__ import annotations

from collections import Counter

import pytest

from ottla.pipelines import change_capture
from ottla.pipelines.execution import CHECKPOINTS, TABLES, Execution, RunOptions
from ottla.pipelines.pipeline import Event, FeedRequest, load_pipeline
from ottla.pipelines.topics import create_topics, publish
from ottla.warehouse.delta import history
from ottla.warehouse.table_location import Place

pytestmark = pytest.mark.spark

CHANGES, CUSTOMERS = "customer-changes", "customers"
NEW = b'{"name": "Eve", "city": "Lima", "balance": 1, "changed_at": "2026-03-02T08:00:00Z"}'


RECORD = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
USED = (NEW, b"{}", b'{"name": null}', b'{"name": "Bo", "other": 1}', None)
UNUSED = {
    b"not json": "the value is no JSON object",
    b"": "the value is no JSON object",
    b"[1]": "the value is no JSON object",
    b"7": "the value is no JSON object",
    b'{"balance": 1': "the value is no JSON object",
    b'{"balance": 12.5}': "balance is no bigint",
    b'{"balance": 9223372036854775808}': "balance is no bigint",
    b'{"changed_at": "yesterday"}': "changed_at is no timestamp",
    b'{"changed_at": "+12026-01-01T00:00:00Z"}': "changed_at is no timestamp",
    b'{"balance": "x", "changed_at": "x"}': "balance is no bigint, changed_at is no timestamp",
}


@pytest.mark.wide
def test_what_changes_nothing_has_a_reason(spark):
    """Records are changes or left out; each of these has its reason, and none has two."""
    values = [*USED, *UNUSED]
    rows = [(b"k", value, "t", 0, n, None) for n, value in enumerate(values)]
    rows.append((None, NEW, "t", 0, len(rows), None))
    records = spark.createDataFrame(rows, RECORD)

    reasons = records.withColumn("reason", change_capture.left_out()).orderBy("offset").collect()
    changed = change_capture.changes(records).orderBy("_offset").collect()

    expected = [*(None for _ in USED), *UNUSED.values(), "the record has no key"]
    assert [row.reason for row in reasons] == expected
    assert [row._offset for row in changed] == list(range(len(USED)))
    counted = change_capture.unused(records).collect()
    assert {row.reason: row.records for row in counted} == Counter(filter(None, expected))
    plan = (
        records.select(change_capture.left_out().alias("reason"))
        ._jdf.queryExecution()
        .optimizedPlan()
    )
    assert plan.toString().count("from_json") == 2, "as a row, and as it was given"


@pytest.mark.wide
def test_table_is_what_the_newest_changes_say(spark, broker, tmp_path):
    """Upserts and deletes over several batches, one of which Spark runs again."""
    pipeline, servers = load_pipeline("change_capture"), broker.bootstrap_servers
    create_topics(servers, pipeline)
    options = RunOptions(max_offsets_per_trigger=400)

    def run():
        execution = Execution(spark, pipeline, servers, tmp_path, options)
        execution.run_once(lambda at_s, batch: None)
        return execution.write_tables(tmp_path / "report")

    publish(servers, pipeline.feeds["sample"](FeedRequest(1_000, seed=1)))
    before = run()["completeness"].rows[0]
    commits = tmp_path / CHECKPOINTS / CUSTOMERS / "commits"
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    (commits / str(last)).unlink()
    publish(servers, [Event(CHANGES, b"eve", NEW), Event(CHANGES, b"zoe", None)])
    after = run()["completeness"].rows[0]

    faults = dict.fromkeys(("missing", "surplus", "outdated"), 0)
    keys = before["keys"]
    counts = {"in_topic": 1_000, "changes": 1_000, "left_out": 0}
    assert before == {**counts, "rows": keys, "keys": keys, **faults}
    counts = {"in_topic": 1_002, "changes": 1_002, "left_out": 0}
    assert after == {**counts, "rows": keys + 1, "keys": keys + 1, **faults}
    found = history(Place.of(tmp_path / TABLES / CUSTOMERS), 20)
    batches = [int(each["facts"]["ottla.batch"]) for each in found if each["facts"]]
    assert batches == list(range(last + 1, -1, -1))
    assert last >= 2
