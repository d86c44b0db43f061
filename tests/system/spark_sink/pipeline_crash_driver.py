"""A run of the pipeline `monitoring` that kills itself: SERVERS FOLDER MOMENT BATCH EVENTS

MOMENT is one of the sink's crash driver that is in the driver, BATCH the micro-batch of the query
in mode update in which it comes. The other query, of the alerts, is cut off wherever it is.
"""

from __future__ import annotations

import sys
from pathlib import Path

import sink_crash_driver

from ottla.pipelines.execution import Execution, RunOptions
from ottla.pipelines.pipeline import load_pipeline
from ottla.pipelines.runner import spark_session
from ottla.spark.exactly_once import BatchCommitter

PER_BATCH = RunOptions(max_offsets_per_trigger=200)


def run(spark, servers, folder):
    """The pipeline over what is in its topics, some records a micro-batch."""
    execution = Execution(spark, load_pipeline("monitoring"), servers, Path(folder), PER_BATCH)
    execution.run_once(lambda at_s, batch: None)
    return execution


def main(servers, folder, moment, batch):
    commit = BatchCommitter.commit

    def commit_and_maybe_die(committer, batch_id, messages):
        if batch_id == int(batch):
            sink_crash_driver.arm(moment)
        commit(committer, batch_id, messages)

    BatchCommitter.commit = commit_and_maybe_die
    run(spark_session("crashing", short_run=True), servers, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
