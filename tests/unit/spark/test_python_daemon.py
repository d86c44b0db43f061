"""The Python daemon: what it imports, and what a process that it forks finds there."""

from __future__ import annotations

import os
import struct
import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install .[spark]")

CHECK = """
import gc, sys, threading
from ottla.spark import python_daemon
python_daemon.prepare()
assert threading.active_count() == 1
missing = [name for name in python_daemon.IMPORTS if name not in sys.modules]
print(len(missing), gc.get_freeze_count() > 10_000, len(gc.get_objects()) < 1_000)
"""


def test_workers_find_their_modules_and_nothing_for_the_collector():
    """After the imports there is one thread of Python, and hardly an object to look through."""
    done = subprocess.run(
        [sys.executable, "-c", CHECK], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["0", "True", "True"], done.stderr


def test_the_daemon_says_its_port_and_ends_with_its_input():
    """Spark reads the port as four bytes, and ends the daemon by closing its input."""
    daemon = subprocess.Popen(
        [sys.executable, "-m", "ottla.spark.python_daemon", "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHON_UNIX_DOMAIN_ENABLED": "false"},
    )
    try:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        (port,) = struct.unpack("!i", daemon.stdout.read(4))
        assert 0 < port < 65536
        daemon.stdin.close()
        daemon.wait(60)  # Spark does not look at its status
    finally:
        daemon.kill()
        daemon.stdout.close()
        daemon.wait()
