"""What a session brings along: its compiler, its Python, and a class for local files."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest
from pyspark.errors import AnalysisException

import ottla
from ottla.pipelines import runner
from ottla.pipelines.patient_query import VARIABLES, PatientQuery
from ottla.pipelines.runner import (
    LOCAL_FILES,
    PYTHONS,
    SHORT_RUN_FLAGS,
    SMALL_BATCHES_FLAGS,
    _compiler_flags,
    _python_for_spark,
    local_files_class,
    use_local_files,
)


@pytest.mark.parametrize(
    ("cores", "short_run", "small_batches", "flags"),
    [
        (2, False, True, SMALL_BATCHES_FLAGS),
        (2, False, False, ()),
        (4, False, True, ()),
        (4, True, True, SHORT_RUN_FLAGS),
    ],
)
def test_code_is_compiled_once_where_cores_are_few(
    monkeypatch, cores, short_run, small_batches, flags
):
    """One compiler is used with few cores, and in short runs with however many."""
    monkeypatch.setattr(os, "cpu_count", lambda: cores)

    assert _compiler_flags(short_run, small_batches) == flags


@pytest.mark.parametrize(
    ("is_local", "is_usable", "python"),
    [(True, True, "forked"), (True, False, sys.executable), (False, True, sys.executable)],
)
def test_python_is_forked_beside_the_driver(monkeypatch, is_local, is_usable, python):
    """Elsewhere, and where nothing can be forked, it is the driver's own; only Spark is told."""
    for name in PYTHONS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "pidfd_open", None, raising=False)  # as on Linux
    server = SimpleNamespace(python="forked", is_usable=is_usable)
    monkeypatch.setattr(runner, "_fork_server", lambda: server)

    with _python_for_spark(is_local):
        assert [os.environ[name] for name in PYTHONS] == [python, python]

    assert not set(PYTHONS) & set(os.environ)


def test_python_that_was_chosen_is_run(monkeypatch):
    """One that only plans, or only works, is left alone as well."""
    monkeypatch.setenv("PYSPARK_PYTHON", "mine")
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)

    with _python_for_spark(is_local=True):
        assert [os.environ[name] for name in PYTHONS] == ["mine", sys.executable]


def test_class_names_itself_and_the_method_that_it_replaces():
    """As a file of the JVM, from Java 8 on."""
    content = local_files_class()

    assert content[:8] == bytes.fromhex("cafebabe00000034")
    for name in (b"ottla/LocalFiles", b"org/apache/hadoop/fs/RawLocalFileSystem", b"setPermission"):
        assert name in content


@pytest.mark.spark
def test_spark_makes_local_files_with_it(spark, tmp_path):
    """Those of a checkpoint, too; their permissions are what the umask leaves."""
    jvm, settings = spark.sparkContext._jvm, spark.sparkContext._jsc.hadoopConfiguration()
    path = jvm.org.apache.hadoop.fs.Path(f"file://{tmp_path}/made")
    files = path.getFileSystem(settings)
    files.create(path).close()

    umask = os.umask(0)
    os.umask(umask)
    assert files.getClass().getName() == LOCAL_FILES
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o666 & ~umask


def test_other_local_files_are_left_alone():
    """Whoever names a class in the settings gets it."""
    told = SimpleNamespace(get=lambda name: "org.apache.hadoop.fs.LocalFileSystem")
    context = SimpleNamespace(_jvm=object(), _jsc=SimpleNamespace(hadoopConfiguration=lambda: told))

    use_local_files(SimpleNamespace(sparkContext=context))


@pytest.mark.spark
def test_query_adds_no_variables_to_those_that_all_share(spark, start_broker, tmp_path):
    """Two that did so at once would spoil Spark's map, and with it all queries into topics."""
    servers = start_broker().bootstrap_servers
    with ottla.Producer(servers) as producer:
        producer.send("from", b"one")
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    shared = manager.lookupDataSource("ottla").dataSourceCls().envVars()
    for name in {*shared.keySet()} - {"PYTHONPATH", "SPARK_HOME"}:
        shared.remove(name)  # what queries before this one have added
    at_first = {*shared.keySet()}

    options = {"kafka.bootstrap.servers": servers}
    rows = spark.readStream.format("ottla").options(**options, subscribe="from")
    writer = rows.option("startingOffsets", "earliest").load().select("value").writeStream
    writer = writer.format("ottla").options(**options, topic="to").trigger(availableNow=True)
    query = PatientQuery(writer.option("checkpointLocation", str(tmp_path)))
    settled = {*shared.keySet()}
    query.wait(60)

    assert settled - at_first == {*VARIABLES}
    assert {*shared.keySet()} == settled


@pytest.mark.spark
def test_mistake_in_a_query_is_raised_and_not_printed(spark, capfd):
    """Spark's own logger would print a page of JSON before the sentence that the tool says."""
    with pytest.raises(AnalysisException, match="no_such_column"):
        spark.sql("SELECT no_such_column")

    assert "no_such_column" not in capfd.readouterr().err
