"""What Spark knows of the source before it reads, and how it finds it."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StringType, StructField, StructType

import pyspark_ottla
from ottla.spark import OttlaSource
from ottla.spark.options import OptionError

GIVEN = {"kafka.bootstrap.servers": "x:1", "subscribe": "a"}


def test_registration_finds_the_source():
    """Spark takes DefaultSource of each package whose name begins with pyspark_."""
    assert pyspark_ottla.DefaultSource is OttlaSource
    assert OttlaSource.name() == "ottla"


def test_registration_imports_nothing_heavy():
    """An error or a second spent here would be every other source's too."""
    code = "import sys, pyspark_ottla; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()

    assert "ottla.spark.source" in loaded
    heavy = ("pyarrow", "pandas", "matplotlib", "asyncio", "ottla.clients", "ottla.protocol")
    assert not [name for name in loaded if name.startswith(heavy)]


def test_schema_says_wrong_options():
    """`load` asks for the schema first: what is wrong is told there."""
    with pytest.raises(OptionError, match="exactly one of subscribe"):
        OttlaSource({"kafka.bootstrap.servers": "x:1"}).schema()


def test_options_without_effect_are_told(caplog):
    """A pipeline that comes from Spark's Kafka source hears what is not acted on."""
    with caplog.at_level(logging.WARNING):
        OttlaSource(GIVEN | {"fetchOffset.numRetries": "3"}).schema()

    assert "option fetchOffset.numRetries has no effect" in caplog.text


def test_writers_check_before_anything_is_written():
    """Mode and columns are told where `save` is called."""
    source = OttlaSource({"kafka.bootstrap.servers": "x:1", "topic": "a"})
    schema = StructType([StructField("value", StringType())])

    with pytest.raises(OptionError, match="topics are only appended to"):
        source.writer(schema, True)
    with pytest.raises(OptionError, match="there must be a column `value`"):
        source.writer(StructType([StructField("v", StringType())]), False)
    assert isinstance(source.writer(schema, False), DataSourceArrowWriter)
    assert isinstance(source.streamWriter(schema, False), DataSourceStreamArrowWriter)
