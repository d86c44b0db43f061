"""A real ZooKeeper server in a process of its own, as `ottla zookeeper` starts it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

READY = re.compile(r"ready at (\S+) \(process (\d+)\)")
STARTUP_SECONDS = 30
SHUTDOWN_SECONDS = 30


class ZooKeeperProcess:
    """`ottla zookeeper` on a free loopback port; the port stays the same over restarts.

    Needs Java and PySpark's jars. Settings are ZooKeeper's own, as `tickTime=500`.
    """

    def __init__(self, data_dir: Path, **overrides: str | int) -> None:
        self.data_dir = data_dir
        self.overrides = {
            "dataDir": str(data_dir),
            "clientPortAddress": "127.0.0.1",
            "tickTime": "500",
            **{name: str(value) for name, value in overrides.items()},
        }
        self.log_path = data_dir.with_name(data_dir.name + ".zookeeper.log")
        self.port = 0
        self.process: subprocess.Popen[str] | None = None
        self.server_pid = 0

    @property
    def connect(self) -> str:
        """What `zookeeper.connect` is to be, a chroot may follow."""
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """Everything that the server has logged, over all its starts."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def start(self) -> ZooKeeperProcess:
        """Start and wait until the server is ready."""
        settings = {"clientPort": str(self.port), **self.overrides}
        command = [sys.executable, "-m", "ottla", "zookeeper"]
        for name, value in settings.items():
            command += ["--override", f"{name}={value}"]
        with self.log_path.open("a", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        killer = threading.Timer(STARTUP_SECONDS, self.process.kill)
        killer.start()
        try:
            assert self.process.stdout is not None
            for line in self.process.stdout:
                if match := READY.search(line):
                    self.port = int(match[1].rpartition(":")[2])
                    self.server_pid = int(match[2])
                    return self
        finally:
            killer.cancel()
        self._reap()
        raise RuntimeError(f"ZooKeeper did not become ready; it logged:\n{self.log}")

    def pause(self) -> None:
        """The server answers nobody until `resume`, as if the machine hung."""
        os.kill(self.server_pid, signal.SIGSTOP)

    def resume(self) -> None:
        """The server goes on where it was."""
        os.kill(self.server_pid, signal.SIGCONT)

    def kill(self) -> None:
        """The server ends at once, as by kill -9."""
        assert self.process is not None, "ZooKeeper was not started"
        # The server is the child of the process that watches it, which ends when the server does.
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.kill(self.server_pid, signal.SIGKILL)
        self._reap()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """A clean stop; returns the exit status."""
        if self.process is None:
            return 0
        self.process.send_signal(number)
        return self._reap()

    def _reap(self) -> int:
        assert self.process is not None, "ZooKeeper was not started"
        status = self.process.wait(SHUTDOWN_SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None
        return status
