"""A server in a process of its own, as a person starts it on the command line."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from ottla.runtime.network import free_port

STARTUP_SECONDS = 120
SHUTDOWN_SECONDS = 120
"""A server that takes longer hangs; on a busy machine a start may take half a minute."""


class ServerProcess(ABC):
    """One command of `ottla` that serves; its port, at first any free one, outlives restarts.

    The data are in a folder, and what it logs is in a file beside that.
    """

    command: ClassVar[str]
    title: ClassVar[str]
    """The name of the server in errors."""
    ready: ClassVar[re.Pattern[str]]
    """The line it prints when it serves; the first group is its address."""

    def __init__(self, data_dir: Path, overrides: Mapping[str, str]) -> None:
        self.data_dir = data_dir
        self.overrides = dict(overrides)
        self.options: tuple[str, ...] = ()
        """Arguments of the command line besides the settings."""
        self.log_path = data_dir.with_name(f"{data_dir.name}.{self.command}.log")
        self.port = 0
        self.module = "ottla"
        self.process: subprocess.Popen[str] | None = None
        self._log_start = 0

    @property
    def log(self) -> str:
        """Everything that the server has logged, over all its starts."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    @property
    @abstractmethod
    def address_settings(self) -> dict[str, str]:
        """The settings that make it listen on its port, unless the overrides set another."""

    def start(self) -> Self:
        """Start and wait until the server says that it is ready."""
        return self.launch().wait_until_ready()

    def launch(self) -> Self:
        """Start without waiting, so that several servers can get ready together."""
        self.port = self.port or free_port("127.0.0.1")
        command = [sys.executable, "-m", self.module, self.command, *self.options]
        for name, value in {**self.address_settings, **self.overrides}.items():
            command += ["--override", f"{name}={value}"]
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            # In a process group of its own: Ctrl-C in a terminal reaches only the program that
            # started it, which then stops it.
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, process_group=0
            )
        return self

    def wait_until_ready(self) -> Self:
        """Wait for a launched server; RuntimeError if it ends instead."""
        process = self.running
        killer = threading.Timer(STARTUP_SECONDS, process.kill)
        killer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if match := self.ready.search(line):
                    self.take(match)
                    return self
        finally:
            killer.cancel()
        self._reap()
        said = self.log_path.read_bytes()[self._log_start :].decode("utf-8", "replace")
        raise RuntimeError(f"{self.title} did not become ready; it logged:\n{said}")

    def take(self, ready: re.Match[str]) -> None:
        """Take the address from the line that the server printed."""
        self.port = int(ready[1].rpartition(":")[2])

    def kill(self) -> None:
        """The process ends at once, as by kill -9."""
        self.running.kill()
        self._reap()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """A clean stop; returns the exit status."""
        if self.process is None:
            return 0
        self.process.send_signal(number)
        try:
            return self._reap()
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    @property
    def running(self) -> subprocess.Popen[str]:
        """The process, which must have been started."""
        assert self.process is not None, f"{self.title} was not started"
        return self.process

    def _reap(self) -> int:
        process = self.running
        status = process.wait(SHUTDOWN_SECONDS)
        if process.stdout is not None:
            process.stdout.close()
        self.process = None
        return status
