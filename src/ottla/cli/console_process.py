"""A console beside a broker or a cluster, as a child process: `--console`.

It ends with the process that started it: its standard input ends then. Its lines, of which the
first has the URL, stand among those of that process.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Final

from ottla.cli.jmx_options import without_jmx
from ottla.cli.options import add_flag
from ottla.cli.terminal import interruptible
from ottla.config.metrics_config import LOOPBACK

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Iterable
    from pathlib import Path
    from typing import Self

    from ottla.cli.terminal import Terminal
    from ottla.structs import EndPoint

PORT: Final = 8090
STOP_S: Final = 5.0
LOOK_S: Final = 0.5
PLAIN: Final = "PLAINTEXT"


def add_console_of_run(parser: ArgumentParser) -> None:
    """`--console` of a command that runs pipelines and ends by itself."""
    add_flag(
        parser,
        "--console",
        "Start `ottla console` beside it, whose page Run shows records as they arrive, the queries "
        f"and the report, at port {PORT} of this machine or at a free one; its line has the URL. "
        "After the run it stays until Ctrl-C.",
    )


def add_console(parser: ArgumentParser) -> None:
    """`--console`."""
    add_flag(
        parser,
        "--console",
        "Start `ottla console` beside it, which shows topics, records and groups in a browser, at "
        f"port {PORT} of this machine or at a free one; its line has the URL.",
    )


class ConsoleProcess:
    """The child; `stop` may be called at any time, and twice, as the end of a block does."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._process: subprocess.Popen[bytes] | None = None

    def start_at(self, end_points: Iterable[EndPoint]) -> None:
        """Start it for a broker's listeners; a note where none of them is plain."""
        plain = [each for each in end_points if each.security_protocol == PLAIN]
        if not plain:
            self._terminal.note(
                "--console: no listener is PLAINTEXT; "
                "start `ottla console` with --login or --command-config"
            )
            return
        host = plain[0].host or LOOPBACK
        self.start(f"[{host}]:{plain[0].port}" if ":" in host else f"{host}:{plain[0].port}")

    def start(self, servers: str, report: Path | None = None) -> None:
        """Start it for brokers at these addresses, and for the report that a run will write."""
        self._terminal.out.flush()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "ottla", "console", "-b", servers),
                *("--listen", f"{LOOPBACK}:{PORT if is_free(PORT) else 0}", "--log-level", "WARN"),
                "--end-with-input",
                *(("--report", str(report.absolute())) if report is not None else ()),
            ],
            stdin=subprocess.PIPE,  # which ends with this process, however that ends
            env=without_jmx(),
            process_group=0,  # Ctrl-C comes to the whole process group; the order is ours
        )

    def stay(self) -> None:
        """Where it was started, wait for Ctrl-C or SIGTERM, or until it has ended by itself."""
        process, over = self._process, threading.Event()
        if process is None:
            return
        self._terminal.print("the console stays until Ctrl-C")
        self._terminal.out.flush()
        with interruptible(over):
            while process.poll() is None and not over.wait(LOOK_S):
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it, at the latest after a few seconds."""
        if self._process is None:
            return
        self._process.terminate()
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def is_free(port: int) -> bool:
    """Whether nobody listens at a port of this machine."""
    try:
        with socket.create_server((LOOPBACK, port)):
            return True
    except OSError:
        return False
