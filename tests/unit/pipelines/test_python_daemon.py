"""The Python daemon: what it imports, and what a process that it forks finds there."""

from __future__ import annotations

import os
import select
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.pipelines.python_daemon import ForkServer

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install .[spark]")

CHECK = """
import gc, sys, threading
from ottla.pipelines import python_daemon
python_daemon.prepare()
assert threading.active_count() == 1
missing = [name for name in python_daemon.IMPORTS if name not in sys.modules]
print(len(missing), gc.get_freeze_count() > 10_000, len(gc.get_objects()) < 1_000)
"""

SHOWN = """
import os, sys, time
ours = ("LC_CTYPE", "OPENBLAS_NUM_THREADS", "PWD", "_")
print({
    "words": sys.argv, "name": __name__, "folder": os.getcwd(), "typed": sys.stdin.read(),
    "environment": {k: v for k, v in os.environ.items() if k not in ours}, "zone": time.tzname,
    "first": sys.path[:2], "is_imported": "pyspark.worker" in sys.modules,
})
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
        [sys.executable, "-m", "ottla.pipelines.python_daemon", "pyspark.worker"],
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


@pytest.fixture(scope="module")
def server():
    """One that is usable: it may still be importing, and whom it is asked by waits."""
    if not hasattr(os, "pidfd_open"):
        pytest.skip("only Linux has pidfd_open, by which a launcher waits for what was forked")
    server = ForkServer()
    assert server.is_usable
    yield server
    server.close()
    assert not server.is_usable


def run(server, *words, **options):
    """What a program of that Python prints."""
    return subprocess.check_output([server.python, *words], timeout=60, text=True, **options)


def test_forked_python_is_as_a_new_one(server, tmp_path):
    """Its module, arguments, folder, environment and streams are those of `python -m`."""
    (tmp_path / "shown.py").write_text(SHOWN)
    other = {"COLOUR": "red", "TZ": "Asia/Tokyo", "PYTHONPATH": "/a/pyspark.zip:/b/mine.zip"}
    options = {"cwd": tmp_path, "env": {**os.environ, **other}, "input": "typed"}

    forked = run(server, "-m", "shown", "b c", **options)
    words = [sys.executable, "-m", "shown", "b c"]
    new = subprocess.check_output(words, timeout=60, text=True, **options)

    shown, expected = eval(forked), eval(new)
    assert shown.pop("is_imported")
    assert not expected.pop("is_imported")
    assert shown.pop("first") == [str(tmp_path), "/b/mine.zip"]
    assert expected.pop("first") == [str(tmp_path), "/a/pyspark.zip"]
    assert shown == expected


def test_no_thread_is_lost_by_a_fork(server, tmp_path):
    """There is one, and that of jemalloc, Arrow's allocator, which starts it in a child again."""
    (tmp_path / "threads.py").write_text(
        "import os; tasks = f'/proc/{os.getppid()}/task'\n"
        "print(*(open(f'{tasks}/{each}/comm').read().strip() for each in os.listdir(tasks)))"
    )
    main, *others = run(server, "-m", "threads", cwd=tmp_path).split()
    assert main.startswith("python")
    assert set(others) <= {"jemalloc_bg_thd"}


def test_what_is_no_module_is_started_as_ever(server):
    """Spark asks its Python for its version."""
    assert run(server, "-c", "print(6 * 7)") == "42\n"


def test_forked_python_ends_with_its_launcher(server, tmp_path):
    """Spark ends a Python process by SIGTERM, which the launcher passes on."""
    (tmp_path / "waits.py").write_text("import os; print(os.getpid(), flush=True); input()")
    launcher = subprocess.Popen(
        [server.python, "-m", "waits"], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    forked = os.pidfd_open(int(launcher.stdout.readline()))

    launcher.terminate()

    assert launcher.wait(60) == 0
    assert select.select([forked], [], [], 60)[0]
    os.close(forked)
    launcher.communicate()


def test_python_is_started_as_ever_when_the_server_has_ended(tmp_path):
    """A driver may be killed while its JVM lives on: nothing is left, and nothing fails."""
    server = ForkServer()
    python = tmp_path / "python"
    python.write_bytes(Path(server.python).read_bytes())
    python.chmod(0o700)
    folder = Path(server.python).parent

    server.close()

    assert not folder.exists()
    assert subprocess.check_output([python, "-m", "this"], timeout=60).startswith(b"The Zen")
