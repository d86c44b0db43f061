"""A Spark driver that copies a topic: python spark_copier.py SERVERS FROM TO CHECKPOINT N [endless]

It reads N records for each micro-batch, says "running" when the first one is through, and ends when
everything that was there is copied, unless it waits for more without an end.
"""

from __future__ import annotations

import sys

from ottla.pipelines.patient_query import PatientQuery
from ottla.pipelines.runner import spark_session

WAIT_S = 60


def start_copy(spark, servers, source, target, folder, per_batch, endless=None):
    """The query that goes on where the one before it in the same folder has ended."""
    servers = {"kafka.bootstrap.servers": servers}
    reader = spark.readStream.format("ottla").options(**servers, subscribe=source)
    rows = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=per_batch).load()
    writer = rows.select("key", "value").writeStream.format("ottla").options(**servers)
    writer = writer.option("topic", target).option("checkpointLocation", folder)
    trigger = {"processingTime": "0 seconds"} if endless else {"availableNow": True}
    return PatientQuery(writer.trigger(**trigger))


def main(*arguments):
    query = start_copy(spark_session("copier", short_run=True), *arguments)
    while query.current.lastProgress is None and not query.wait(1):
        pass
    print("running", flush=True)
    while not query.wait(WAIT_S):
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
