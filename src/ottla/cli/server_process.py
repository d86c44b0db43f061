"""A server as a child process: started, waited for, watched, stopped.

The child ends when the process that started it ends, so that none is left behind.
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Final

from ottla.cli.command_error import CommandError
from ottla.cli.jmx_options import without_jmx
from ottla.runtime.child_process import ending_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.cli.cluster_servers import Server

READY: Final = re.compile(r" ready at ")
STARTUP_TIMEOUT_S: Final = 60.0
PATIENCE_S: Final = 10.0
STOP_TIMEOUT_S: Final = 120.0
"""A broker brings every log to disk: with thousands of them that takes more than a moment."""
OWN_ERROR: Final = re.compile(r"^ottla \w+: (.*)$", re.MULTILINE)
TAIL: Final = 4096


class Child:
    """One process; its log is appended to its file."""

    def __init__(self, server: Server) -> None:
        self.server = server
        with server.log.open("ab") as log:
            self._log_start = log.tell()
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=without_jmx(),
                # Ctrl-C comes to the whole process group; the order of stopping is ours.
                process_group=0,
                preexec_fn=ending_with_parent(),  # noqa: PLW1509 - it takes no lock
            )

    @property
    def command(self) -> list[str]:
        """The command line of the process."""
        return [
            sys.executable,
            "-P",
            "-m",
            "ottla",
            self.server.command,
            str(self.server.properties),
        ]

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    @property
    def start_command(self) -> str:
        """The command that starts this server again by hand."""
        return f"ottla {self.server.command} {self.server.properties}"

    def wait_until_ready(self) -> None:
        """Return when the server serves; CommandError when it ended or takes too long."""
        killer = threading.Timer(STARTUP_TIMEOUT_S, self.process.kill)
        killer.start()
        try:
            assert self.process.stdout is not None, "it is a pipe"
            for line in self.process.stdout:
                if READY.search(line):
                    return
        finally:
            killer.cancel()
        self.process.wait()
        raise CommandError(f"{self.server.name} did not start: {self.last_words()}")

    def last_words(self) -> str:
        """Why it has ended, as far as it could say, and where to read on."""
        with self.server.log.open("rb") as log:
            log.seek(0, 2)
            log.seek(max(self._log_start, log.tell() - TAIL))
            text = log.read().decode("utf-8", "replace")
        said = OWN_ERROR.findall(text)
        return f"{said[-1] if said else f'status {self.process.poll()}'} (see {self.server.log})"

    def stop(
        self,
        on_delay: Callable[[], object],
        patience_s: float = PATIENCE_S,
        timeout_s: float = STOP_TIMEOUT_S,
    ) -> bool:
        """End the process in order, and by force if it takes too long: then False.

        `on_delay` is called when a waiting user may wonder about the reason.
        """
        self.process.send_signal(signal.SIGTERM)
        # A process that was stopped by SIGSTOP handles SIGTERM only after this.
        self.process.send_signal(signal.SIGCONT)
        for limit_s, act in ((patience_s, on_delay), (timeout_s - patience_s, self.kill)):
            try:
                self.process.wait(limit_s)
            except subprocess.TimeoutExpired:
                act()
            else:
                return True
        return False

    def kill(self) -> None:
        """End the process at once."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
