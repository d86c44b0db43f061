"""Loads a topic into a table while the driver is killed at random moments, again and again."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.parquet as pq
from driver_kills import Driver, fill

from ottla.warehouse.delta import DeltaHome, sql
from ottla.warehouse.table_location import Place
from ottla.warehouse.warehouse_load import LoadOptions, WarehouseLoad

APPENDER = Path(__file__).with_name("stream_appender.py")


def load_with_kills(
    servers, folder, *, records, per_commit, kills, longest_s, seed, kind="delta", spark=None
):
    """Every record has to be in the table once; returns how many drivers were killed at work.

    `kind` is a format, or "stream": a query that appends its batches to a Delta table. The last
    driver is a process as well, unless there is a session to end the load in.
    """
    fill(servers, ["from"], records)
    table = folder / "table"
    words = ["-m", "ottla", "warehouse", "load", "--bootstrap-server", servers, "--topic", "from"]
    words += ["--table", str(table), "--max-records", str(per_commit), "--format", kind]
    words += ["--spark-log", str(folder / "drivers.log")]
    endless = ["--continuous"]
    if kind == "stream":
        words, endless = [str(APPENDER), servers, str(folder), str(per_commit)], []
    driver = Driver([*words, *endless], folder, "loading", longest_s)
    moments = random.Random(seed)
    killed = sum(driver.run_and_kill(moments) for _ in range(kills))
    if spark is None:
        Driver(words, folder, "loading", longest_s).run_to_end()
    else:
        options = LoadOptions({"kafka.bootstrap.servers": servers, "subscribe": "from"})
        WarehouseLoad(spark, DeltaHome(Place.of(table)), options).run()

    found = sorted(map(int, values(table, kind)))
    assert found == list(range(records)), f"seed {seed}: {len(found)} of {records} records"
    return killed


def values(table, kind):
    """The values of all rows, as readers without Spark see them."""
    if kind != "parquet":
        return sql(table, "SELECT value FROM records")["value"].to_pylist()
    files = [path for path in table.rglob("*.parquet") if "_staging" not in path.parts]
    return [value for file in files for value in pq.read_table(file)["value"].to_pylist()]
