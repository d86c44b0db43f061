"""The examples of docs/use/legacy.md, as they stand there."""

from __future__ import annotations

from page import Page


def test_examples_of_the_legacy_page_run(start_broker, zookeeper, unique, capsys):
    """From top to bottom, in one program, against a new broker on ZooKeeper."""
    connect = f"{zookeeper.connect}/{unique('legacy-docs')}"
    broker = start_broker(zookeeper_connect=connect)

    def translated(text: str) -> str:
        text = text.replace("localhost:2181", connect)
        return text.replace('"localhost", 9092', f'"127.0.0.1", {broker.port}')

    assert Page("docs/use/legacy.md").run_python(translated) == 4
    printed = capsys.readouterr().out
    assert "500 0" in printed
    assert "pages 0 1 /about.html" in printed
    assert "1 b'/about.html'" in printed
