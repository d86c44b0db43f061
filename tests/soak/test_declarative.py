"""The example for Spark Declarative Pipelines: the functions of word_count, run by Spark's tool."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

import ottla

EXAMPLE = Path(__file__).parents[2] / "examples" / "declarative"
TOPIC = "streams-plaintext-input"
PACKAGES = ("grpc", "grpc_status", "google.rpc", "yaml")


def missing_packages():
    """What Spark Connect needs beside the extra of this package."""
    return [name for name in PACKAGES if find_spec(name.partition(".")[0]) is None]


@pytest.mark.skipif(bool(missing_packages()), reason=f"missing: {', '.join(missing_packages())}")
def test_example_counts_words_over_two_runs(start_broker, java, tmp_path):
    """The second run adds what is new to the streaming table, and computes the view anew."""
    servers = start_broker().bootstrap_servers
    with ottla.Admin(servers) as admin:
        admin.create_topics([ottla.NewTopic(TOPIC, 2)])
    project = tmp_path / "project"
    shutil.copytree(EXAMPLE, project)
    specification = project / "spark-pipeline.yml"
    text = specification.read_text(encoding="utf-8")
    storage = f"storage: file://{tmp_path}/storage"
    specification.write_text(text.replace("storage: file:///tmp/ottla-declarative", storage))
    expected = Counter()
    for line in ("all streams lead to ottla", "hello ottla streams"):
        with ottla.Producer(servers) as producer:
            producer.send(TOPIC, line.encode())
        run(project, servers)
        expected.update(line.split())
        counts = pq.read_table(project / "spark-warehouse" / "word_counts").to_pylist()
        assert {row["word"]: row["count"] for row in counts} == expected


def run(project, servers):
    tool = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"
    environment = {
        **os.environ,
        "OTTLA_SERVERS": servers,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        [str(tool), "run", "--conf", "spark.sql.catalogImplementation=hive"],
        capture_output=True,
        check=False,
        text=True,
        cwd=project,
        env=environment,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
