"""A Spark driver whose stream appends a topic to a table: stream_appender.py SERVERS FOLDER N

It reads N records for each micro-batch, and says "loading" before the first.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ottla.pipelines.patient_query import PatientQuery
from ottla.pipelines.runner import spark_session
from ottla.warehouse.sinks import AppendSink
from ottla.warehouse.table_location import Place

WAIT_S = 60


def main(servers, folder, per_batch):
    spark = spark_session("appender", short_run=True)
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", servers)
    reader = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=per_batch)
    stream = reader.option("subscribe", "from").load().writeStream
    stream = stream.option("checkpointLocation", str(Path(folder) / "checkpoint"))
    stream = stream.foreachBatch(AppendSink(Place.of(Path(folder) / "table")))
    print("loading", flush=True)
    query = PatientQuery(stream.trigger(availableNow=True))
    while not query.wait(WAIT_S):
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
