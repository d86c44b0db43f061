"""A broker in a process of its own, as a person starts it: for tests and for benchmarks."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

READY = re.compile(r"ready at (\S+)")
STARTUP_SECONDS = 30
SHUTDOWN_SECONDS = 30


class BrokerProcess:
    """`ottla broker` on a free loopback port; the port stays the same over restarts."""

    def __init__(self, data_dir: Path, **overrides: str | int) -> None:
        self.data_dir = data_dir
        self.overrides = {
            "broker.id": "0",
            "log.dirs": str(data_dir),
            # Not Kafka's 3 s, to be quick; not 0, which kafka-python's first join does not expect:
            # it may then share out topics whose metadata it has not got yet.
            "group.initial.rebalance.delay.ms": "200",
        }
        self.overrides |= {name.replace("_", "."): str(value) for name, value in overrides.items()}
        self.log_path = data_dir.with_name(data_dir.name + ".broker.log")
        self.port = 0
        self.module = "ottla"
        self.process: subprocess.Popen[str] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """Everything that the broker has logged, over all its starts."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    @property
    def pid(self) -> int:
        assert self.process is not None, "the broker was not started"
        return self.process.pid

    def start(self) -> BrokerProcess:
        """Start and wait until the broker says that it is ready."""
        settings = {"listeners": f"PLAINTEXT://127.0.0.1:{self.port}", **self.overrides}
        command = [sys.executable, "-m", self.module, "broker"]
        for name, value in settings.items():
            command += ["--override", f"{name}={value}"]
        with self.log_path.open("a", encoding="utf-8") as log:
            # In a group of its own: Ctrl-C in a terminal is for whoever started it, who stops it.
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, process_group=0
            )
        killer = threading.Timer(STARTUP_SECONDS, self.process.kill)
        killer.start()
        try:
            assert self.process.stdout is not None
            for line in self.process.stdout:
                if match := READY.search(line):
                    self.port = int(match[1].rpartition(":")[2])
                    return self
        finally:
            killer.cancel()
        self._reap()
        raise RuntimeError(f"the broker did not become ready; it logged:\n{self.log}")

    def kill(self) -> None:
        """The process ends at once, as by kill -9."""
        assert self.process is not None, "the broker was not started"
        self.process.kill()
        self._reap()

    def stop(self) -> int:
        """A clean stop; returns the exit status."""
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        try:
            return self._reap()
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def _reap(self) -> int:
        assert self.process is not None, "the broker was not started"
        status = self.process.wait(SHUTDOWN_SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None
        return status
