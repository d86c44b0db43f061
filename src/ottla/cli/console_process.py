"""A console beside a broker or a cluster, as a child process: `--console`.

It ends with the process that started it: its standard input ends then. Its lines, of which the
first has the URL, stand among those of that process.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from ottla.cli.jmx_options import without_jmx
from ottla.cli.options import add_flag
from ottla.config.metrics_config import LOOPBACK

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Iterable

    from ottla.cli.terminal import Terminal
    from ottla.structs import EndPoint

PORT: Final = 8090
STOP_S: Final = 5.0
PLAIN: Final = "PLAINTEXT"


def add_console(parser: ArgumentParser) -> None:
    """`--console`."""
    add_flag(
        parser,
        "--console",
        "Start `ottla console` beside it, which shows topics, records and groups in a browser, at "
        f"port {PORT} of this machine or at a free one; its line has the URL.",
    )


class ConsoleProcess:
    """The child; `stop` may be called at any time, and twice."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._process: subprocess.Popen[bytes] | None = None

    def start_at(self, end_points: Iterable[EndPoint]) -> None:
        """Start it for a broker's listeners; a note where none of them is plain."""
        plain = [each for each in end_points if each.security_protocol == PLAIN]
        if not plain:
            self._terminal.note(
                "--console: no listener is PLAINTEXT; start `ottla console` with --command-config"
            )
            return
        host = plain[0].host or LOOPBACK
        self.start(f"[{host}]:{plain[0].port}" if ":" in host else f"{host}:{plain[0].port}")

    def start(self, servers: str) -> None:
        """Start it for brokers at these addresses."""
        self._terminal.out.flush()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "ottla", "console", "-b", servers),
                *("--listen", f"{LOOPBACK}:{PORT if is_free(PORT) else 0}", "--log-level", "WARN"),
                "--end-with-input",
            ],
            stdin=subprocess.PIPE,  # which ends with this process, however that ends
            env=without_jmx(),
            process_group=0,  # Ctrl-C comes to the whole process group; the order is ours
        )

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
