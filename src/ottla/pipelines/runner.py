"""Starts Spark for pipelines: on this machine, quiet, and quick to be ready."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.pipelines.java import require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
NO_LIMIT = str(2**31 - 1)

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    # As many shuffle partitions as cores: each one is a task of some 30 ms, however little it does.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    # Sizing each row costs more than sending it where rows have headers (SPARK-51316).
    "spark.sql.execution.arrow.maxBytesPerBatch": NO_LIMIT,
    "spark.sql.streaming.metricsEnabled": "false",
    # Local checkpoints need no checksum files beside them.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
}
JVM_FLAGS = (
    f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-Xshare:auto",
)
# A pipeline that is over in seconds is better served by code that is compiled once, and quickly.
SHORT_RUN_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def spark_session(
    app_name: str,
    *,
    master: str = "local[2]",
    settings: Mapping[str, str] | None = None,
    short_run: bool = False,
) -> SparkSession:
    """A session on this machine; raises JavaMissingError where Spark cannot run.

    `short_run` has the JVM compile for a quick start and not for speed in the long run.
    """
    require_java()
    from pyspark.sql import SparkSession

    # Workers run the Python that the driver runs, whatever `python3` is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    flags = (*JVM_FLAGS, *SHORT_RUN_FLAGS) if short_run else JVM_FLAGS
    builder = SparkSession.builder.appName(app_name).master(master)
    builder = builder.config("spark.driver.extraJavaOptions", " ".join(flags))
    for name, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
