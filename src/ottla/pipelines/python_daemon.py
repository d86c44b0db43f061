"""Spark's Python processes, forked from one with their imports.

Spark starts eight of them for a streaming query, to find, plan, read and write its topics. Each
imports PySpark for itself, from a zip file whose modules it compiles: 0.8 s of a core.

- Beside a driver, a `ForkServer` has the imports done. Its `python` is the interpreter that Spark
  runs (`PYSPARK_PYTHON`): it has the server fork, and lives as long as the forked process.
- Elsewhere, a session whose setting `spark.python.daemon.module` names this module starts it in
  the place of `pyspark.daemon`. It forks the workers of tasks with their imports done.

The garbage collector does not look at modules imported before the fork.
"""

from __future__ import annotations

import gc
import json
import os
import re
import runpy
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from typing import Final

IMPORTS: Final = (
    "pyspark.worker",
    "pyarrow",
    "ottla.clients.admin.admin",
    "ottla.clients.partition_reader",
    "ottla.clients.producer.producer",
    "ottla.record.columnar",
    "ottla.spark.exactly_once",
    "ottla.spark.lookup",
    "ottla.spark.readers",
    "ottla.spark.row_writer",
    "ottla.spark.writers",
)
"""What the tasks of the source and of the sink import; nothing here starts a thread of Python."""

PLANNING: Final = (
    "pandas",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark_ottla",
)
"""What else is imported where a source is planned, and where a sink commits."""

NUMBER: Final = struct.Struct("!I")
"""The length of a request, with which the standard streams come; and its answer, a process."""
STREAMS: Final = 3
PYSPARK_ZIP: Final = re.compile(r"/(pyspark|py4j-[^/]*-src)\.zip$")
PATIENCE_S: Final = 60
"""How long a launcher may take to say what it wants."""

Job = tuple[list[str], str, dict[str, str]]
"""The words after `python -m`, the folder to be in, and the environment."""


def prepare(*more: str) -> None:
    """Import the modules, and exempt all that is there from the garbage collector."""
    # Its threads would not outlive the fork, and Spark's tasks share the cores anyway.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in (*IMPORTS, *more):
        import_module(name)
    gc.collect()
    gc.freeze()


class ForkServer:
    """The process that forks for Spark's sessions of this one, and ends with it."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="ottla-python-")
        path = os.path.join(self._folder, "socket")
        self.python = os.path.join(self._folder, "python")
        """The interpreter for Spark: a program that takes the arguments of Python."""
        command = shlex.join([sys.executable, "-IS", __file__, "fork", path])
        with open(self.python, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec {command} "$@"\n')
        os.chmod(self.python, 0o700)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            number = listener.fileno()
            words = [
                "-P",
                "-m",
                "ottla.pipelines.python_daemon",
                "serve",
                str(number),
                self._folder,
            ]
            self._process = subprocess.Popen(
                [sys.executable, *words],
                stdin=subprocess.PIPE,
                pass_fds=[number],
                # As Spark has it: a text has the same hash in all of its workers.
                env={"PYTHONHASHSEED": "0", **os.environ},
            )

    @property
    def is_usable(self) -> bool:
        """Whether it runs, and the system lets launchers be started and wait for a process."""
        try:
            os.close(os.pidfd_open(self._process.pid))  # containers may forbid it
        except OSError:
            return False
        return self._process.poll() is None and os.access(self.python, os.X_OK)

    def close(self) -> None:
        """End the server; its forked processes live on, and later ones are not forked."""
        self._process.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)


def launch(path: str, words: list[str]) -> None:
    """Have the server at a socket fork `python` with these words, and wait for its end.

    A process that a server does not fork is started as ever: other words, or when the driver has
    ended.
    """
    try:
        process = _fork(path, words)
    except OSError:
        os.execv(sys.executable, [sys.executable, *words])
    try:
        forked = os.pidfd_open(process)
    except ProcessLookupError:
        return  # it has ended already
    signal.signal(signal.SIGTERM, lambda number, _: signal.pidfd_send_signal(forked, number))
    select.select([forked], [], [])


def _fork(path: str, words: list[str]) -> int:
    """The number of the process that the server has forked for the launcher."""
    if words[:1] != ["-m"]:
        raise ProcessLookupError("only modules are run by the server")
    request = json.dumps([words[1:], os.getcwd(), dict(os.environ)]).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(server, [NUMBER.pack(len(request))], range(STREAMS))
        server.sendall(request)
        return _number(_received(server, NUMBER.size))


def serve(listener: socket.socket, folder: str) -> Job:
    """Fork for launchers until the driver has ended; returns in each child, with its request."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as for Spark's JVM
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children that have ended leave nothing behind
    while True:
        ready, _, _ = select.select([0, listener.fileno()], [], [])
        if 0 in ready:
            shutil.rmtree(folder, ignore_errors=True)
            sys.exit()
        launcher, _ = listener.accept()
        with launcher:
            launcher.settimeout(PATIENCE_S)
            streams: list[int] = []
            try:
                size, streams, _, _ = socket.recv_fds(launcher, NUMBER.size, STREAMS)
                job: Job = json.loads(_received(launcher, _number(size)))
                process = os.fork()
                if process == 0:
                    listener.close()
                    for number, each in enumerate(streams):
                        os.dup2(each, number)
                    return job
                launcher.sendall(NUMBER.pack(process))
            except OSError as error:
                print(f"ottla: a Python process of Spark was not forked: {error}", file=sys.stderr)
            finally:
                for each in streams:
                    os.close(each)


def run(job: Job) -> None:
    """The work of `python -m` with these words, folder and environment."""
    (module, *arguments), folder, environment = job
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    # PySpark is there already: its zip files would be read again for what is not.
    own = environment.get("PYTHONPATH", "").split(os.pathsep)
    own = [path for path in own if path and not PYSPARK_ZIP.search(path)]
    sys.path[:0] = [folder, *(path for path in own if path not in sys.path)]
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionResetError(f"{size - len(data)} of {size} bytes are missing")
        data += part
    return data


def _number(data: bytes) -> int:
    if len(data) < NUMBER.size:
        raise ConnectionResetError(f"{data!r} is no number of {NUMBER.size} bytes")
    (number,) = NUMBER.unpack(data)
    return int(number)


def main() -> None:
    """Serve workers until Spark closes the standard input."""
    from pyspark.daemon import manager

    prepare()
    manager()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["fork", path, *words]:
            launch(path, words)
        case ["serve", number, folder]:
            prepare(*PLANNING)
            run(serve(socket.socket(fileno=int(number)), folder))
        case _:
            main()
