"""Clients in a thread of a program whose main thread has ended: a last line may start it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import threading

import ottla

servers = sys.argv[1]


def run():
    threading.main_thread().join()
    with ottla.Producer(servers) as producer:
        producer.send("t", "hello").result(60)
    settings = {"group.id": "g", "auto.offset.reset": "earliest"}
    with ottla.Consumer(servers, settings, topics=["t"]) as reader:
        while not (records := reader.poll(500)):
            pass
    with ottla.Admin(servers) as admin:
        print(records[0].value.decode(), "t" in admin.list_topics())


threading.Thread(target=run).start()
"""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_clients_work_after_the_main_thread(ottla_fresh_broker, tmp_path: Path, host: str) -> None:
    """Only a process has a main thread that ends: Python's executors end with it."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    servers = f"{host}:{ottla_fresh_broker.port}"
    words = [sys.executable, program, servers]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=120)

    assert (done.returncode, done.stdout, done.stderr) == (0, "hello True\n", "")
