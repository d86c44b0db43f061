"""Real PostgreSQL, MariaDB, mosquitto and logs through a worker that is killed: a ledger of all.

Rows, messages and lines come numbered, some of them odd; servers are restarted, columns come and
go, logs are rotated. In the end each is in its topic or reported, and each record of a topic is in
its sinks or in their dead letters.
"""

from __future__ import annotations

import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Event

import pytest
from mosquitto import HINT, PROGRAM
from numbered_data import (
    EVENTS,
    ORDERS,
    LogWriter,
    MessageWriter,
    write_events,
    write_orders,
    write_records,
)
from real_ledger import Ledger
from real_world import QUIET_S, RAW, RealWorld

from ottla.testing import wait_until

RAW_TABLE = "CREATE TABLE raw (n bigint PRIMARY KEY, text varchar(100), num float, flag boolean)"


@pytest.fixture(params=[True, False], ids=["exactly-once", "at-least-once"])
def world(request, tmp_path):
    """All servers, with the tables."""
    if PROGRAM is None:
        pytest.skip(HINT)
    with TemporaryDirectory(prefix="ottla-soak-") as folder:
        Path(folder).chmod(0o755)
        found = RealWorld(tmp_path, Path(folder), request.param)
        found.postgres.execute(EVENTS)
        found.postgres.execute(RAW_TABLE)
        found.mariadb.execute(ORDERS, RAW_TABLE)
        found.is_exactly_once = request.param
        yield found
        found.stop()


@pytest.mark.parametrize("seed", [1])
def test_each_row_line_and_message_is_there_or_reported(world, soak_seconds, seed):
    """The ledger at the end has nothing missing, and nothing twice that is promised once."""
    stop, random, began_s = Event(), Random(seed), time.monotonic()
    messages, lines = MessageWriter(world.mosquitto.port), LogWriter(world.folder / "logs")
    ledger = Ledger(world, messages, lines)
    world.start_connectors()
    works = [
        (write_events, stop, world.postgres.connection),
        (write_orders, stop, world.mariadb.port),
        (messages.write, stop),
        (lines.write, stop),
        (write_records, stop, world.servers, RAW),
        (world.hurt, stop),
    ]
    with ThreadPoolExecutor(len(works)) as pool:
        running = [pool.submit(*work, Random(random.random())) for work in works]
        wait(running, soak_seconds, FIRST_COMPLETED)  # one ends early if it has failed
        stop.set()
        for each in running:
            each.result()
    ended_s = time.monotonic()
    world.settle()
    wait_until(messages.is_done, "acknowledgements", QUIET_S)
    messages.close()
    wait_until(ledger.look, "an even ledger", QUIET_S + soak_seconds // 2, seen=ledger.table)
    print(
        *(f"{name} {count}," for name, count in {**world.did, "rotate": lines.rotations}.items()),
        f"even {time.monotonic() - ended_s:.0f} s after a load of {ended_s - began_s:.0f} s",
        ledger.table(),
    )
    once = ["events", "orders", "lines"] if world.is_exactly_once else []
    files = ["rows-parquet", "raw-parquet", "raw-json", "texts-json"]
    assert not {name: ledger[name].twice for name in (*once, *files) if ledger[name].twice}
