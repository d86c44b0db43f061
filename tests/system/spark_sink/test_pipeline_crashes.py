"""A pipeline whose driver dies at chosen moments: each figure and each alert is there once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from committed_records import committed_values
from pipeline_crash_driver import run

from ottla.pipelines.pipeline import FeedRequest, load_pipeline
from ottla.pipelines.topics import create_topics, publish

pytestmark = pytest.mark.spark

DRIVER = Path(__file__).with_name("pipeline_crash_driver.py")
LIMIT_S = 300
FACTS = ("host", "metric", "minute", "samples")


def crash(servers, folder, moment, batch):
    """A driver that kills itself; whatever it has started goes with it."""
    path = folder / "driver.log"
    with path.open("w") as log:
        driver = subprocess.Popen(
            [sys.executable, str(DRIVER), servers, str(folder), moment, str(batch)],
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
    try:
        status = driver.wait(LIMIT_S)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
    assert status == -signal.SIGKILL, path.read_text()[-5000:]


@pytest.mark.parametrize("moment", ["some are committed"])
@pytest.mark.wide
def test_figures_and_alerts_are_there_once_although_the_driver_dies(
    start_broker, spark, tmp_path, moment
):
    """A figure that is written again would be there twice with the same number of samples."""
    pipeline, servers = load_pipeline("monitoring"), start_broker().bootstrap_servers
    create_topics(servers, pipeline)
    publish(servers, pipeline.feeds["sample"](FeedRequest(400, seed=1)))

    crash(servers, tmp_path, moment, batch=1)
    execution = run(spark, servers, tmp_path)

    topics = execution.topics()
    expected = pipeline.build(topics, execution.parameters)
    for output in pipeline.outputs:
        found = topics[output.topic].select(expected[output.topic].columns)
        assert rows(found) == rows(expected[output.topic]), output.topic
    figures = map(json.loads, committed_values(servers, "metrics-per-minute", partitions=3))
    times = Counter(tuple(each[name] for name in FACTS) for each in figures)
    assert set(times.values()) == {1}
    alerts = Counter(committed_values(servers, "alerts", partitions=3))
    assert set(alerts.values()) == {1}


def rows(frame):
    """The rows of a DataFrame as text, in no order; sums depend on the order of their parts."""
    return sorted(str([plain(value) for value in row]) for row in frame.collect())


def plain(value):
    return round(value, 6) if isinstance(value, float) else value
