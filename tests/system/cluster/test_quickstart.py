"""docs/quickstart-cluster.md as it stands: three brokers, a replicated topic, a dead leader.

The test has ports and directories of its own, and reads the page's broker ids as those that have
the same places among the replicas.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "quickstart-cluster.md"
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
REPLICAS = re.compile(r"Replicas: ([\d,]+)")
LIMIT_S = 40
ZOOKEEPER_PORT, PORTS = "2181", ["9092", "9093", "9094"]


def free_ports(count: int) -> list[str]:
    """Ports that nobody uses, all of them different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Reader:
    """Somebody who types the commands of the page and looks at what comes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = dict(zip([ZOOKEEPER_PORT, *PORTS], free_ports(4), strict=True))
        self.brokers = {shown: shown for shown in "012"}
        self.servers: dict[str, subprocess.Popen[str]] = {}
        self.killed = 0
        shutil.copytree(ROOT / "config", folder / "config")
        for path in (folder / "config").iterdir():
            path.write_text(self.translated(path.read_text().replace("#listeners=", "listeners=")))
        with (folder / "config" / "zookeeper.properties").open("a") as file:
            file.write("clientPortAddress=127.0.0.1\n")
        self.environment = dict(
            os.environ, PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        )

    def translated(self, text: str) -> str:
        """The page's words with this test's ports, folders and brokers."""

        def port(match: re.Match[str]) -> str:
            shown = match[0]
            if shown in PORTS and "localhost" in text:
                shown = PORTS[int(self.brokers[str(PORTS.index(shown))])]
            return self.ports[shown]

        text = re.sub(r"\b(2181|909[234])\b", port, text)
        text = text.replace("PLAINTEXT://:", "PLAINTEXT://127.0.0.1:")
        return text.replace("/tmp/", f"{self.folder}/")

    def start(self, command: str) -> None:
        """A server in the background; returns when it is ready."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {self.translated(command)}"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.servers[command.rpartition(" ")[2]] = process
        assert process.stdout is not None
        assert any(" is ready at " in line for line in process.stdout), command

    def run(self, command: str, typed: str = "") -> list[str]:
        """A command that ends; what it printed."""
        done = subprocess.run(
            ["bash", "-c", self.translated(command)],
            cwd=self.folder,
            env=self.environment,
            input=typed,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def describe(self, command: str, shown: list[str]) -> None:
        """Look until it is as shown; a broker that was killed is not missed at once."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            printed = self.run(command)
            if not self.killed:
                self._learn(printed[1], shown[1])
            expected = [shown[0], re.sub(r"(?<=[ ,])[012]\b", self._broker, shown[1])]
            if "\tPartition: " in expected[1] and printed == expected:
                return
            assert time.monotonic() < deadline, (printed, expected)

    def _learn(self, printed: str, shown: str) -> None:
        actual, written = (REPLICAS.search(text)[1].split(",") for text in (printed, shown))
        self.brokers = dict(zip(written, actual, strict=True))

    def _broker(self, match: re.Match[str]) -> str:
        before = match.string[: match.start()]
        return match[0] if before.endswith("Partition: ") else self.brokers[match[0]]

    def consume(self, command: str, shown: list[str]) -> None:
        """Read until what is shown has come, then press Ctrl-C."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {self.translated(command)}"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        printed = [process.stdout.readline().rstrip("\n") for _ in shown[:-1]]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT_S)
        assert [*printed, "^C"] == shown

    def look_up(self, command: str) -> None:
        """Find the process of the leader; only of this test's there may be none too many."""
        leader = self.brokers["1"]
        name = "server.properties" if leader == "0" else f"server-{leader}.properties"
        lines = self.run(command.replace("server-1.properties", name))
        own = {process.pid for process in self.servers.values()}
        (self.killed,) = own & {int(line.split()[1]) for line in lines}

    def do(self, command: str, shown: list[str]) -> None:
        """Type one command."""
        if command.endswith(" &"):
            self.start(command.removesuffix(" &"))
        elif " --describe " in command:
            self.describe(command, shown)
        elif "console-producer" in command:
            self.run(command, typed="".join(f"{line}\n" for line in shown[:-1]))
        elif "console-consumer" in command:
            self.consume(command, shown)
        elif command.startswith("ps "):
            self.look_up(command)
        elif command.startswith("kill -9 "):
            os.kill(self.killed, signal.SIGKILL)
        else:
            assert self.run(command) == shown


@pytest.fixture
def reader(java, tmp_path):
    """At the top of a copy of what the page needs; all servers end with the test."""
    reader = Reader(tmp_path)
    yield reader
    for process in reversed(reader.servers.values()):
        process.terminate() if "zookeeper" in str(process.args) else process.kill()
        process.communicate()


def conversations(text: str) -> list[tuple[str, list[str]]]:
    """Commands of a console block, each with what is shown below it."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def test_quick_start_runs_as_printed(reader):
    """Records that the dead leader had are read from another one."""
    commands = [pair for text in BLOCK.findall(PAGE.read_text()) for pair in conversations(text)]
    for command, shown in commands:
        reader.do(command, shown)

    assert len(commands) == 18
    assert reader.killed
