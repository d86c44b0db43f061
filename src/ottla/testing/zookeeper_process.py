"""A real ZooKeeper server in a process of its own, as `ottla zookeeper` starts it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from pathlib import Path

from ottla.testing.server_process import ServerProcess


class ZooKeeperProcess(ServerProcess):
    """`ottla zookeeper` on a free loopback port; the port stays the same over restarts.

    Needs Java and PySpark's jars. Settings are ZooKeeper's own, as `tickTime=500`.
    """

    command = "zookeeper"
    title = "ZooKeeper"
    ready = re.compile(r"ready at (\S+) \(process (\d+)\)")

    def __init__(self, data_dir: Path, **overrides: str | int) -> None:
        settings = {
            "dataDir": str(data_dir),
            "clientPortAddress": "127.0.0.1",
            "tickTime": "500",
        }
        given = {name: str(value) for name, value in overrides.items()}
        super().__init__(data_dir, settings | given)
        self.server_pid = 0

    @property
    def connect(self) -> str:
        """The value for `zookeeper.connect`; a chroot may follow."""
        return f"127.0.0.1:{self.port}"

    @property
    def address_settings(self) -> dict[str, str]:
        return {"clientPort": str(self.port)}

    def take(self, ready: re.Match[str]) -> None:
        super().take(ready)
        self.server_pid = int(ready[2])

    def pause(self) -> None:
        """Pause the server: it answers no request until `resume`, as if the machine hung."""
        os.kill(self.server_pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the server; it continues where it was."""
        os.kill(self.server_pid, signal.SIGCONT)

    def kill(self) -> None:
        """The server ends at once, as by kill -9."""
        assert self.process is not None, "ZooKeeper was not started"
        # The server is the child of the process that watches it, which ends when the server does.
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.kill(self.server_pid, signal.SIGKILL)
        self._reap()
