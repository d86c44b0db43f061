"""What a session brings along: how its code is compiled, and a class for local files."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from ottla.pipelines.runner import (
    LOCAL_FILES,
    SHORT_RUN_FLAGS,
    SMALL_BATCHES_FLAGS,
    _compiler_flags,
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
    """Or where the run is short, however many there are."""
    monkeypatch.setattr(os, "cpu_count", lambda: cores)

    assert _compiler_flags(short_run, small_batches) == flags


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
