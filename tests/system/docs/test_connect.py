"""docs/use/connect.md as it stands: a broker, a worker, files to topics and to files again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from page import ROOT, Page, Shell

from ottla.runtime.free_port import free_port
from ottla.testing import InProcessBroker, wait_until


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """Somebody in a folder with the archive's config, with a broker and ports of their own."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    port = free_port("127.0.0.1")
    with InProcessBroker() as broker:
        names = {
            "localhost:9092": broker.bootstrap_servers,
            "8083": str(port),
            "/tmp/connect.offsets": str(tmp_path / "connect.offsets"),
            "offset.flush.interval.ms=10000": "offset.flush.interval.ms=50",
            "#listeners": "listeners",
        }

        def translated(text: str) -> str:
            for name, own in names.items():
                text = text.replace(name, own)
            return text

        worker = tmp_path / "config" / "connect-standalone.properties"
        worker.write_text(translated(worker.read_text()))
        shell = Shell(tmp_path, translated)
        shell.environment["OTTLA_CONNECT_URL"] = f"http://127.0.0.1:{port}"
        yield shell
        shell.close()


@pytest.mark.wide
def test_page_on_connect_is_true(shell: Shell) -> None:
    """From top to bottom: what is typed brings forth what is shown, in the end."""
    assert shell.folder is not None
    for program in Page("docs/use/connect.md").blocks_in("python"):
        name = program.splitlines()[0].removeprefix("# ")
        (shell.folder / name).write_text(program)
    for command, shown in Page("docs/use/connect.md").conversations():
        if command.endswith("&"):
            shell.begin(command.rstrip("& "))
            wait_until((shell.folder / "test.sink.txt").exists, "the sink's file")
        else:
            _wait_for(shell, command, shown)


def _wait_for(shell: Shell, command: str, shown: list[str]) -> None:
    """What a worker does takes effect soon, not at once; a command that changes is typed once."""
    if not shown:
        shell.run(command)
        return
    wait_until(
        lambda: shell.run(command) == [shell.translated(line) for line in shown],
        command,
        seen=lambda: shell.run(command),
    )
