"""docs/start/quickstart-cluster.md as it stands: three brokers, a replicated topic, a dead leader.

The test has ports and directories of its own, and reads the page's broker ids as those that have
the same places among the replicas.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from page import LIMIT_S, ROOT, Page, Shell

from ottla.runtime.free_port import free_port
from ottla.testing import wait_until

REPLICAS = re.compile(r"Replicas: ([\d,]+)")
ZOOKEEPER_PORT, PORTS = "2181", ["9092", "9093", "9094"]


class Reader:
    """Somebody who types the commands of the page and looks at what comes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {shown: str(free_port("127.0.0.1")) for shown in (ZOOKEEPER_PORT, *PORTS)}
        self.brokers = {shown: shown for shown in "012"}
        self.shell = Shell(folder, self.translated)
        self.killed = 0
        shutil.copytree(ROOT / "config", folder / "config")
        for path in (folder / "config").iterdir():
            path.write_text(self.translated(path.read_text().replace("#listeners=", "listeners=")))
        with (folder / "config" / "zookeeper.properties").open("a") as file:
            file.write("clientPortAddress=127.0.0.1\n")

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

    def describe(self, command: str, shown: list[str]) -> None:
        """Look until it is as shown; a broker that was killed is not missed at once."""
        printed: list[str] = []

        def is_as_shown() -> bool:
            printed[:] = self.shell.run(command)
            if not self.killed:
                self._learn(printed[1], shown[1])
            expected = [shown[0], re.sub(r"(?<=[ ,])[012]\b", self._broker, shown[1])]
            return "\tPartition: " in expected[1] and printed == expected

        wait_until(is_as_shown, f"{command} to print {shown}", LIMIT_S, seen=lambda: printed)

    def _learn(self, printed: str, shown: str) -> None:
        actual, written = (REPLICAS.search(text)[1].split(",") for text in (printed, shown))
        self.brokers = dict(zip(written, actual, strict=True))

    def _broker(self, match: re.Match[str]) -> str:
        before = match.string[: match.start()]
        return match[0] if before.endswith("Partition: ") else self.brokers[match[0]]

    def consume(self, command: str, shown: list[str]) -> None:
        """Read until what is shown has come, then press Ctrl-C."""
        process = self.shell.begin(command, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        printed = [process.stdout.readline().rstrip("\n") for _ in shown[:-1]]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT_S)
        assert [*printed, "^C"] == shown

    def look_up(self, command: str) -> None:
        """Find the process of the leader; only of this test's there may be none too many."""
        leader = self.brokers["1"]
        name = "server.properties" if leader == "0" else f"server-{leader}.properties"
        lines = self.shell.run(command.replace("server-1.properties", name))
        own = {process.pid for process in self.shell.started}
        (self.killed,) = own & {int(line.split()[1]) for line in lines}

    def do(self, command: str, shown: list[str]) -> None:
        """Type one command."""
        if command.endswith(" &"):
            self.shell.start(command.removesuffix(" &"))
        elif " --describe " in command:
            self.describe(command, shown)
        elif "console-producer" in command:
            self.shell.run(command, typed="".join(f"{line}\n" for line in shown[:-1]))
        elif "console-consumer" in command:
            self.consume(command, shown)
        elif command.startswith("ps "):
            self.look_up(command)
        elif command.startswith("kill -9 "):
            os.kill(self.killed, signal.SIGKILL)
        else:
            assert self.shell.run(command) == shown


@pytest.fixture
def reader(java, tmp_path):
    """At the top of a copy of what the page needs; all servers end with the test."""
    reader = Reader(tmp_path)
    yield reader
    reader.shell.close()


@pytest.mark.wide
def test_quick_start_runs_as_printed(reader):
    """Records that the dead leader had are read from another one."""
    commands = Page("docs/start/quickstart-cluster.md").conversations()
    for command, shown in commands:
        reader.do(command, shown)

    assert len(commands) == 18
    assert reader.killed
