"""docs/operate/security.md as it stands: certificates, a broker, the tools and three clients."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from page import Page, PageReader

import ottla

PORTS = ("9092", "9093", "9094", "9095")


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[PageReader]:
    """Whose broker ends with the test."""
    somebody = PageReader(tmp_path, *PORTS)
    yield somebody
    somebody.shell.close()
    with warnings.catch_warnings():  # kafka-python leaves sockets to the collector
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_page_on_security_is_true(reader: PageReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """From top to bottom; in the end the records of all four producers are there."""
    monkeypatch.chdir(reader.folder)
    program: dict[str, object] = {}
    do = {
        "properties": reader.write,
        "console": reader.type,
        "python": lambda text: exec(reader.translated(text), program),
        "text": lambda text: None,
    }
    for language, text in Page("docs/operate/security.md").blocks():
        do[language](text)

    with ottla.Consumer(
        f"localhost:{reader.ports['9093']}", program["secure"], auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([ottla.TopicPartition("secrets", 0)])
        values = []
        while len(values) < 4:
            values += [record.value for record in consumer.poll(1000)]
    assert values == [b"sealed", b"from ottla", b"from librdkafka", b"from kafka-python"]
