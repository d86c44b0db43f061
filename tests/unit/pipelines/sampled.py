"""The sample files of a pipeline: its inputs as DataFrames, and what is expected of them."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

from ottla import pipelines
from ottla.pipelines.pipeline import iso
from ottla.pipelines.records import rows_of
from ottla.pipelines.site_traffic import START

RECORD = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"


def folder(name):
    """Where the samples of a pipeline are."""
    return Path(pipelines.__file__).parent / "samples" / name


def input_rows(spark, name, source):
    """The rows of an input, a line of its file being a record; those of .tsv files have keys."""
    (path,) = folder(name).glob(f"{source.topic}.*")
    separator = b"\t" if path.suffix == ".tsv" else b" "
    records = []
    for offset, line in enumerate(path.read_bytes().splitlines()):
        key, _, value = line.partition(separator)
        records.append(
            (key, value or None if path.suffix == ".tsv" else line, source.topic, 0, offset, START)
        )
    return rows_of(spark.createDataFrame(records, RECORD).coalesce(1), source)


def parameters(name):
    """Those that the samples were made for, where the defaults are not."""
    path = folder(name) / "parameters.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def expected_rows(name, section):
    """The rows of a table of the report."""
    text = (folder(name) / "expected" / f"{section}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def plain_rows(frame):
    """The rows of a DataFrame as JSON would have them, in their order."""
    return [
        {name: plain(value) for name, value in row.items()} for row in frame.toArrow().to_pylist()
    ]


def plain(value):
    """A moment as text, bytes as text; anything else as it is."""
    if isinstance(value, datetime):
        return iso(value)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
