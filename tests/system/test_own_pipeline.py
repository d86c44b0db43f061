"""A pipeline of a user's own on Spark: its functions run in workers, and its records add up."""

from __future__ import annotations

import logging
from sys import path as folders_of_python

import pytest
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger

import ottla
from ottla.pipelines import load_pipeline, run_samples
from ottla.pipelines.execution import Execution, RunOptions
from ottla.testing import InProcessBroker

pytestmark = pytest.mark.spark

PIPELINE = """
from pathlib import Path

import vat
from pyspark.sql import functions as F

from ottla.pipelines import Input, Output, Pipeline, Section

@F.udf("double")
def gross(net):
    return vat.RATE * net + surcharge()

def surcharge():
    from letters.costs import STAMP
    return STAMP

PIPELINE = Pipeline(
    name="invoices",
    summary="Sums with tax.",
    inputs=(Input("invoices", "customer string, net double, paid timestamp, tags array<string>"),),
    outputs=(Output("invoices-gross"),),
    build=lambda topics, parameters: {
        "invoices-gross": topics["invoices"].select("customer", gross("net").alias("gross"))
    },
    sections=(
        Section("sums", "", "", lambda topics, given: topics["invoices-gross"].orderBy("gross")),
    ),
    samples={"invoices": Path(__file__).with_name("invoices.jsonl")},
)
"""
FILES = {
    "pipeline_of_invoices.py": PIPELINE,
    "vat.py": "RATE = 2.0\n",
    "letters/__init__.py": "",
    "letters/costs.py": "STAMP = 0.5\n",
    "letters/test_costs.py": "raise SystemExit\n",
    "venv/lib/heavy.py": "raise SystemExit\n",
    "invoices.jsonl": '{"customer": "a", "net": 1.25}\n{"customer": "b", "net": 10}\n',
}
VALUES = {
    None: "the record has no value",
    b"": "the value is no JSON object",
    b"[1": "the value is no JSON object",
    b'{"net": "ten"}': "net is no double",
    b'{"net": 1, "tags": "x"}': "tags is no array<string>",
    b'{"paid": "yesterday"}': "paid is no timestamp",
    b'{"paid": "+12026-01-01T10:00:00Z"}': "a time outside the years 1 to 9999",
    b'{"customer": "c", "net": 0, "tags": ["x"], "other": 1}': "used",
}


def test_own_pipeline_runs_in_workers_and_its_records_add_up(spark, tmp_path, monkeypatch):
    """What is beside its file is imported there; each record is used, or left out for a reason."""
    monkeypatch.setattr("sys.path", [*folders_of_python])
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    pipeline = load_pipeline(tmp_path / "pipeline_of_invoices.py")

    with InProcessBroker() as broker:
        servers = broker.bootstrap_servers
        tables = run_samples(pipeline, spark, servers, tmp_path / "run")
        assert [tuple(row.values()) for row in tables["sums"].rows] == [("a", 3.0), ("b", 20.5)]

        with ottla.Producer(servers) as producer:
            for value in VALUES:
                producer.send("invoices", value)
        execution = Execution(spark, pipeline, servers, tmp_path / "run", RunOptions())
        execution.run_once(lambda at_s, batch: None)
        rows = len(execution.write_tables(tmp_path / "run")["sums"].rows)

    ledger = {row["outcome"]: row["records"] for row in execution.tally.ledger()}
    expected = {reason: list(VALUES.values()).count(reason) for reason in VALUES.values()}
    assert ledger == expected | {"records read": len(VALUES)}
    assert rows == 2 + expected["used"]


def test_mistake_in_a_query_is_an_exception_and_nothing_else(spark):
    """Spark printed the whole plan as JSON before it, thirty screens of it."""
    with pytest.raises(AnalysisException):
        spark.range(1).select("no_such_column")

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        assert not PySparkLogger.getLogger(name).isEnabledFor(logging.ERROR)
