"""The examples of docs/clients.md, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_examples_of_the_clients_page_run(start_broker):
    """From top to bottom, in one program, against a new broker."""
    address = start_broker().bootstrap_servers
    text = PAGE.read_text(encoding="utf-8")
    examples = EXAMPLE.findall(text)
    program: dict[str, object] = {}
    for example in examples:
        before = text.count("\n", 0, text.index(example))
        source = "\n" * before + example.replace("localhost:9092", address)
        exec(compile(source, str(PAGE), "exec"), program)

    assert len(examples) >= 12
