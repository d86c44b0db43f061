"""docs/operate/quotas.md as it stands: a broker, the commands and the program on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from page import Page, Shell, conversations

from ottla.runtime.free_port import free_port


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """Somebody who types what the page shows, on a port of their own."""
    port = str(free_port("127.0.0.1"))
    shell = Shell(tmp_path, lambda text: re.sub(r"\b9092\b", port, text))
    yield shell
    shell.close()


def test_page_on_quotas_is_true(shell: Shell) -> None:
    """From top to bottom: what is set is shown, and the producer ends though it is held."""
    for language, text in Page("docs/operate/quotas.md").blocks():
        if language == "python":
            exec(shell.translated(text), {})
        for command, shown in conversations(text) if language == "console" else ():
            if command.endswith("&"):
                shell.start(command.rstrip("& "))
            else:
                assert shell.run(command) == shown, command
