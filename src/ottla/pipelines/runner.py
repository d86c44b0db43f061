"""Starts Spark for pipelines, quiet and quick to be ready: on this machine, or on a cluster."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
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
    "spark.sql.adaptive.enabled": "false",
    # Sizing each row costs more than sending it where rows have headers (SPARK-51316).
    "spark.sql.execution.arrow.maxBytesPerBatch": NO_LIMIT,
    # Moments with their zone, to the microsecond, as every reader of Parquet knows them.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.metricsEnabled": "false",
    # Local checkpoints need no checksum files beside them.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
# Settings for driver and tasks in one process; a cluster has its own.
LOCAL_SETTINGS = {
    # As many shuffle partitions as cores: each one is a task of some 30 ms, however little it does.
    "spark.sql.shuffle.partitions": "2",
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
    log_path: Path | None = None,
) -> SparkSession:
    """A session, on this machine unless the master says otherwise; raises JavaMissingError where
    Spark cannot run.

    `short_run` makes the JVM compile for a quick start and not for speed in the long run. With
    `log_path` the output of the JVM and its Python workers goes to that file.
    """
    require_java()
    from pyspark.sql import SparkSession

    # Workers run the driver's Python, even if `python3` is another.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    is_local = master.startswith("local")
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    own = {**SETTINGS, **LOCAL_SETTINGS} if is_local else SETTINGS
    flags = (*JVM_FLAGS, *SHORT_RUN_FLAGS) if short_run else JVM_FLAGS
    builder = SparkSession.builder.appName(app_name).master(master)
    builder = builder.config("spark.driver.extraJavaOptions", " ".join(flags))
    for name, value in {**own, **(settings or {})}.items():
        builder = builder.config(name, value)
    with nullcontext() if log_path is None else _stderr_to(log_path), _signals_deferred():
        return builder.getOrCreate()


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Processes that are started meanwhile write their errors to a file, as long as they live."""
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


@contextmanager
def _signals_deferred() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM to the end: a JVM that is just starting would be left behind.

    Spark's own handler of Ctrl-C, which talks to the JVM in the middle of another call, is removed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    handlers = {
        number: signal.signal(number, lambda got, frame: arrived.append(got))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for late in arrived:
        signal.raise_signal(late)
