"""The same commands on a standalone Spark cluster of two workers."""

from __future__ import annotations

import os
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
from spark_cluster import Cluster

import ottla
from ottla.warehouse.delta import sql

MEMORY = "512m"


@pytest.fixture
def cluster(java, tmp_path):
    cluster = Cluster(tmp_path, worker_count=2)
    yield cluster
    cluster.stop()


def run(cluster, *words):
    """A command as a user gives it, with this machine as the driver's address."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *words, "--master", cluster.url],
        capture_output=True,
        check=False,
        text=True,
        cwd=cluster.folder,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_EXECUTOR_MEMORY": MEMORY},
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_tasks_of_a_load_run_on_both_workers(cluster, start_broker, tmp_path):
    """Each executor writes files of its own; the driver commits them."""
    servers = start_broker().bootstrap_servers
    with ottla.Admin(servers) as admin:
        admin.create_topics([ottla.NewTopic("numbers", 4)])
    with ottla.Producer(servers, linger_ms=5) as producer:
        for number in range(20_000):
            producer.send("numbers", b"%d" % number)
    where = ("--bootstrap-server", servers, "--topic", "numbers", "--table", str(tmp_path / "lake"))

    said = run(cluster, "warehouse", "load", *where, "--conf", f"spark.executor.memory={MEMORY}")

    found = sql(tmp_path / "lake", "SELECT value FROM records")["value"].to_pylist()
    assert sorted(map(int, found)) == list(range(20_000))
    assert "20,000 rows in 4 files" in said
    assert cluster.executors() == [1, 1]


def test_pipeline_counts_on_a_cluster_as_it_does_here(cluster, tmp_path):
    """Sample events, a stateful stream, and the tables of the report."""
    events = ("--events", "2000", "--seed", "3", "--output")

    run(cluster, "pipeline", "run", "word_count", "--once", *events, str(tmp_path / "there"))
    here = [sys.executable, "-m", "ottla", "pipeline", "run", "word_count", "--once", *events]
    subprocess.run([*here, str(tmp_path / "here")], check=True, timeout=200)

    there, here = (
        pq.read_table(tmp_path / place / "word_count" / "words").sort_by("word").to_pylist()
        for place in ("there", "here")
    )
    assert there == here
    assert len(there) > 5
    assert cluster.executors() == [1, 1]
