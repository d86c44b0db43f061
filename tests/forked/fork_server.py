"""The program from which commands of Ottla are forked: it has imported what they need, once.

`forked_process` starts it, and asks it for a process by a message on its standard input, a socket:
arguments, environment and folder as JSON, and with it the three standard streams. It answers with
the number of the process, which has gone over to whoever adopts orphans by then.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import threading

IMPORTED = (
    "ottla.cli.main",
    "ottla.cli.broker",
    "ottla.cli.topics",
    "ottla.cli.console_producer",
    "ottla.cli.console_consumer",
    "ottla.server.broker_process",
    *(
        f"ottla.server.handlers.{name}"
        for name in ("configs", "group", "log_dirs", "offsets", "topics", "transactions")
    ),
    "ottla.coordinator.group.group_coordinator",
    "ottla.coordinator.transaction.transaction_coordinator",
    "ottla.server.own_transactions",
    "ottla.server.cluster_link",
    "ottla.replication.fetcher",
    *(f"ottla.clients.admin.{name}" for name in ("admin", "configs", "groups", "topics")),
    "ottla.security.sasl",
    "ottla.registry.zookeeper",
    "ottla.connect.worker",
    "ottla.security.scram",
    "ottla",
)
"""What most commands import by themselves; a module more or less is only a matter of speed."""
LONGEST = 1 << 20
STREAMS = 3


def serve(asked: socket.socket) -> dict[str, object]:
    """Fork until nobody asks any more; returns, in each child, what it is to do."""
    while True:
        message, streams, _, _ = socket.recv_fds(asked, LONGEST, STREAMS)
        if not message:
            sys.exit()
        job = json.loads(message)
        assert threading.active_count() == 1, "a fork would lose the other threads"
        reader, writer = os.pipe()
        # The one between ends at once, so that the process is an orphan from its beginning.
        between = os.fork()
        if between == 0:
            between = os.getpid()
            child = os.fork()
            if child == 0:
                while os.getppid() == between:
                    os.sched_yield()  # its parent is to be the one that has asked for it
                os.close(reader)
                os.close(writer)
                asked.close()
                take(streams)
                return job
            if job["process_group"] >= 0:
                os.setpgid(child, job["process_group"])
            os.write(writer, b"%d" % child)
            os._exit(0)
        os.close(writer)
        number = os.read(reader, 20)
        os.waitpid(between, 0)
        for each in (reader, *streams):
            os.close(each)
        asked.sendall(number)


def take(streams: list[int]) -> None:
    """Make these the standard streams of the process, as Python has them when it starts."""
    for number, each in enumerate(streams):
        os.dup2(each, number)
        os.close(each)
    whole = {"encoding": "utf-8", "closefd": False}  # they live as long as the process
    sys.stdin = open(0, **whole)  # noqa: SIM115
    sys.stdout = open(1, "w", **whole)  # noqa: SIM115
    sys.stderr = open(2, "w", errors="backslashreplace", **whole)  # noqa: SIM115
    sys.stdout.reconfigure(line_buffering=sys.stdout.isatty())
    sys.stderr.reconfigure(line_buffering=True)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr


def run(job: dict[str, object]) -> None:
    """What `python -m` does with these arguments."""
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["env"])
    sys.stdout.reconfigure(write_through=bool(os.environ.get("PYTHONUNBUFFERED")))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    module, *sys.argv[1:] = job["words"]
    show(sys.executable, "-m", module, *sys.argv[1:])
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def show(*words: str) -> None:
    """Have `ps` show these words, in the place that the server's own arguments take."""
    with open("/proc/self/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    text = b"".join(word.encode() + b"\0" for word in words)[: end - begin - 1]
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, text, len(text))


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    run(serve(socket.socket(fileno=os.dup(0))))
