"""WarehouseSink in a worker, with a real Spark driver that dies while it loads."""

from __future__ import annotations

import logging
import os

import psutil
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from driver_kills import fill
from load_kills import values

import ottla
from ottla.connect.connect_worker import ConnectWorker
from ottla.testing import wait_until

RECORDS = 800
IN_A_COMMIT = 200
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
LIMIT_S = 300


def rows(table):
    """How many rows have been committed."""
    try:
        return DeltaTable(table).count()
    except TableNotFoundError:
        return 0


def java_of_load():
    """The JVM of the driver that runs now; its parent is `ottla warehouse load`."""
    below = psutil.Process(os.getpid()).children(recursive=True)
    found = [each for each in below if "java" in each.name()]
    (java,) = [each for each in found if "load" in each.parent().cmdline()]
    return java


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.wide
def test_driver_that_is_killed_is_followed_by_one_that_ends_the_load(
    start_broker, java, fork_server, tmp_path, caplog
):
    """The task says that the load has ended and starts another; every row is there once."""
    caplog.set_level(logging.INFO)
    servers, table = start_broker().bootstrap_servers, tmp_path / "table"
    fill(servers, ["from"], RECORDS)
    worker_properties = {
        "bootstrap.servers": servers,
        "key.converter": STRINGS,
        "value.converter": STRINGS,
        "offset.storage.file.filename": str(tmp_path / "offsets"),
        "offset.flush.interval.ms": "200",
        "listeners": "http://127.0.0.1:0",
    }
    sink = {
        "name": "lake",
        "connector.class": "WarehouseSink",
        "bootstrap.servers": servers,
        "topics": "from",
        "table": str(table),
        "max.records": str(IN_A_COMMIT),
        "every.s": "1",
        "restart.backoff.ms": "1",
        "spark.log": str(tmp_path / "spark.log"),
    }

    def committed():
        return sum(each.offset for each in admin.list_group_offsets("connect-lake").values())

    with ConnectWorker.standalone(worker_properties) as worker, ottla.Admin(servers) as admin:
        worker.create(sink)
        wait_until(lambda: rows(table), "the first rows", LIMIT_S, seen=lambda: caplog.text)
        java_of_load().kill()
        wait_until(lambda: "lake: the load ended with" in caplog.text, "a word of it", LIMIT_S)
        before = rows(table)
        wait_until(lambda: committed() == RECORDS, "all rows", LIMIT_S, seen=lambda: caplog.text)
        states = [task["state"] for task in worker.status("lake")["tasks"]]

    assert 0 < before < RECORDS
    assert sorted(map(int, values(table, "delta"))) == list(range(RECORDS))
    assert states == ["RUNNING"]
