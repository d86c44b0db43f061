"""Starts Spark for pipelines, quiet and quick to be ready: on this machine, or on a cluster.

On this machine Spark makes local files without a process for each.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import struct
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.pipelines.python_daemon import ForkServer
from ottla.runtime.java import require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
NO_LIMIT = str(2**31 - 1)
RAW_FILES = "org.apache.hadoop.fs.RawLocalFileSystem"
PYTHONS = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
"""Where Spark is told by which programs it starts Python: the second one, where it plans."""
CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing"

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
    "spark.hadoop.fs.file.impl": RAW_FILES,
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
# Settings for driver and tasks in one process; a cluster has its own.
LOCAL_SETTINGS = {
    # As many shuffle partitions as cores: each one is a task of some 30 ms, however little it does.
    "spark.sql.shuffle.partitions": "2",
    # Workers are forked with their imports done, and are not searched for garbage after each task.
    "spark.python.daemon.module": "ottla.pipelines.python_daemon",
    # Over TCP each task in Python waits 40 ms: the system holds back messages that Spark sends in
    # two parts.
    "spark.python.unix.domain.socket.enabled": "true",
    # Checkpoints are written through `fs.file.impl`, which becomes LOCAL_FILES.
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{CHECKPOINTS}.FileSystemBasedCheckpointFileManager"
    ),
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
}
JVM_FLAGS = (
    f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-Xshare:auto",
)
# The JVM has 240 MB for the code of two compilers, and 48 MB for that of one: a few dozen queries
# fill these, and from then on code is thrown away and compiled again.
ONE_COMPILER = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
# A pipeline that is over in seconds is better served by code that is compiled once, and quickly.
SHORT_RUN_FLAGS = (*ONE_COMPILER, "-XX:+UseSerialGC")
# The compiler for code that runs often keeps a core busy for minutes: FEW_CORES have none to spare.
SMALL_BATCHES_FLAGS = ONE_COMPILER
FEW_CORES = 2


def spark_session(
    app_name: str,
    *,
    master: str = "local[2]",
    settings: Mapping[str, str] | None = None,
    short_run: bool = False,
    small_batches: bool = False,
    log_path: Path | None = None,
) -> SparkSession:
    """A session, on this machine unless the master says otherwise; raises JavaMissingError where
    Spark cannot run.

    `short_run` makes the JVM compile for a quick start and not for speed in the long run;
    `small_batches` does so where a machine has few cores, for streams with little to do. With
    `log_path` the output of the JVM and its Python workers goes to that file.
    """
    require_java()
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    # Spark prints each mistake in a query as JSON with its whole trace, before it is raised.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)

    is_local = master.startswith("local")
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    own = {**SETTINGS, **LOCAL_SETTINGS} if is_local else SETTINGS
    flags = (*JVM_FLAGS, *_compiler_flags(short_run, small_batches and is_local))
    builder = SparkSession.builder.appName(app_name).master(master)
    builder = builder.config("spark.driver.extraJavaOptions", " ".join(flags))
    for name, value in {**own, **(settings or {})}.items():
        builder = builder.config(name, value)
    logged = nullcontext() if log_path is None else _stderr_to(log_path)
    with logged, _python_for_spark(is_local), _signals_deferred():
        spark = builder.getOrCreate()
        if is_local:
            use_local_files(spark)
        return spark


@contextmanager
def _python_for_spark(is_local: bool) -> Iterator[None]:
    """A session that begins meanwhile has the driver's Python run its tasks, not any `python3`.

    Beside the driver it is forked with its imports done. A user that has chosen another has that
    one.
    """
    python, names = sys.executable, [name for name in PYTHONS if name not in os.environ]
    if is_local and len(names) == len(PYTHONS) and hasattr(os, "pidfd_open"):
        server = _fork_server()
        python = server.python if server.is_usable else python
    try:
        for name in names:
            os.environ[name] = python
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)


@cache
def _fork_server() -> ForkServer:
    server = ForkServer()
    atexit.register(server.close)
    return server


def _compiler_flags(short_run: bool, small_batches: bool) -> tuple[str, ...]:
    if short_run:
        return SHORT_RUN_FLAGS
    has_few_cores = (os.cpu_count() or 1) <= FEW_CORES
    return SMALL_BATCHES_FLAGS if small_batches and has_few_cores else ()


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


LOCAL_FILES = "ottla.LocalFiles"
SET_PERMISSION = "(Lorg/apache/hadoop/fs/Path;Lorg/apache/hadoop/fs/permission/FsPermission;)V"
JAVA_8 = 52
PUBLIC, PUBLIC_CLASS = 0x0001, 0x0021
# Instructions of the JVM.
ALOAD_0, INVOKESPECIAL, RETURN = b"\x2a", b"\xb7", b"\xb1"


def use_local_files(spark: SparkSession) -> None:
    """Have a session whose tasks are in the driver make local files without running `chmod`.

    Sessions with another `fs.file.impl` than RAW_FILES are left alone.

    Hadoop runs `chmod` for each local file that it makes, as it has no native library: some 10 ms,
    and a micro-batch makes six files. The class below leaves the permissions to the umask. In Java:

        package ottla;
        public class LocalFiles extends RawLocalFileSystem {
            public void setPermission(Path path, FsPermission permission) {}
        }
    """
    context = spark.sparkContext
    jvm, settings = context._jvm, context._jsc.hadoopConfiguration()
    if jvm is None or settings.get("fs.file.impl") != RAW_FILES:
        return
    with tempfile.TemporaryDirectory(prefix="ottla-") as folder:
        path = Path(folder, *LOCAL_FILES.split(".")).with_suffix(".class")
        path.parent.mkdir()
        path.write_bytes(local_files_class())
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        loader.addURL(jvm.java.io.File(folder).toURI().toURL())
        settings.set("fs.file.impl", LOCAL_FILES)
        files, root = jvm.org.apache.hadoop.fs.FileSystem, jvm.java.net.URI("file:///")
        files.get(root, settings).close()  # the one of RAW_FILES, which all share
        files.get(root, settings)


def local_files_class() -> bytes:
    """The class LOCAL_FILES, compiled."""
    constants: list[bytes] = []

    def constant(tag: int, layout: str, *values: int, text: bytes = b"") -> int:
        entry = struct.pack(f">B{layout}", tag, *values) + text
        if entry not in constants:
            constants.append(entry)
        return constants.index(entry) + 1

    def text(value: str) -> int:
        return constant(1, "H", len(value), text=value.encode())

    def class_of(name: str) -> int:
        return constant(7, "H", text(name.replace(".", "/")))

    def method(name: str, signature: str, code: bytes, stack: int, variables: int) -> bytes:
        body = struct.pack(">HHI", stack, variables, len(code)) + code + bytes(4)
        head = struct.pack(">4H", PUBLIC, text(name), text(signature), 1)
        return head + struct.pack(">HI", text("Code"), len(body)) + body

    this, parent = class_of(LOCAL_FILES), class_of(RAW_FILES)
    parents_init = constant(10, "HH", parent, constant(12, "HH", text("<init>"), text("()V")))
    init = ALOAD_0 + INVOKESPECIAL + struct.pack(">H", parents_init) + RETURN
    methods = method("<init>", "()V", init, 1, 1) + method(
        "setPermission", SET_PERMISSION, RETURN, 0, 3
    )
    return b"".join(
        (
            struct.pack(">IHHH", 0xCAFEBABE, 0, JAVA_8, len(constants) + 1),
            *constants,
            struct.pack(">6H", PUBLIC_CLASS, this, parent, 0, 0, 2),
            methods,
            struct.pack(">H", 0),
        )
    )
