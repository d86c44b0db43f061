"""docs/security.md as it stands: certificates, a broker, the tools and three clients."""

from __future__ import annotations

import gc
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from page import Page, Shell, conversations

import ottla
from ottla.runtime.network import free_port


class Reader:
    """Somebody who does what the page says, in a folder and on ports of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {
            port: str(free_port("127.0.0.1")) for port in ("9092", "9093", "9094", "9095")
        }
        self.shell = Shell(folder, self.translated)

    @property
    def address(self) -> str:
        return f"localhost:{self.ports['9093']}"

    def translated(self, text: str) -> str:
        return re.sub(r"\b909[2345]\b", lambda match: self.ports[match[0]], text)

    def write(self, block: str) -> None:
        """A file that is named in the block's first line."""
        first, _, rest = block.partition("\n")
        if first.startswith("# "):
            (self.folder / first[2:]).write_text(self.translated(rest))

    def type(self, block: str) -> None:
        """Commands, each with what the page shows below it."""
        for command, shown in conversations(block):
            if command.endswith("&"):
                self.shell.start(command.rstrip("& "))
            else:
                assert self.shell.run(command) == shown, command


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """Whose broker ends with the test."""
    somebody = Reader(tmp_path)
    yield somebody
    somebody.shell.close()
    with warnings.catch_warnings():  # kafka-python leaves sockets to the collector
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_page_on_security_is_true(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """From top to bottom; in the end the records of all four producers are there."""
    monkeypatch.chdir(reader.folder)
    program: dict[str, object] = {}
    do = {
        "properties": reader.write,
        "console": reader.type,
        "python": lambda text: exec(reader.translated(text), program),
        "text": lambda text: None,
    }
    for language, text in Page("docs/security.md").blocks():
        do[language](text)

    with ottla.Consumer(
        reader.address, program["secure"], auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([ottla.TopicPartition("secrets", 0)])
        values = []
        while len(values) < 4:
            values += [record.value for record in consumer.poll(1000)]
    assert values == [b"sealed", b"from ottla", b"from librdkafka", b"from kafka-python"]
