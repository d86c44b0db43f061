"""The examples of docs/legacy.md, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "legacy.md"
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_examples_of_the_legacy_page_run(start_broker, znodes, capsys):
    """From top to bottom, in one program, against a new broker on ZooKeeper."""
    broker = start_broker(zookeeper_connect=znodes.connect)
    text = PAGE.read_text(encoding="utf-8")
    program: dict[str, object] = {}
    examples = EXAMPLE.findall(text)
    for example in examples:
        before = text.count("\n", 0, text.index(example))
        source = example.replace("localhost:2181", znodes.connect)
        source = source.replace('"localhost", 9092', f'"127.0.0.1", {broker.port}')
        exec(compile("\n" * before + source, str(PAGE), "exec"), program)

    assert len(examples) == 4
    printed = capsys.readouterr().out
    assert "500 0" in printed
    assert "pages 0 1 /about.html" in printed
    assert "1 b'/about.html'" in printed
