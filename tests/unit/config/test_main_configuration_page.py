"""docs/operate/configuration is what the tables say."""

from __future__ import annotations

import re
from pathlib import Path

from ottla.config.__main__ import SECTIONS, configuration_pages
from ottla.config.topic_config import TopicConfig

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "operate" / "configuration"


def test_pages_are_up_to_date():
    """`python -m ottla.config` was run after the tables changed."""
    found = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}

    assert found == configuration_pages()


def test_every_setting_has_a_sentence():
    """The sentence of a setting ends with a full stop."""
    rows = [row for _, _, table in SECTIONS for row in table.keys.values()]

    assert not [row.name for row in rows if not row.doc.endswith(".")]


def test_every_setting_is_acted_on():
    """A setting that nothing looks at belongs to the list of known names, not in a table.

    Connect's workers look at some settings of connectors by their names.
    """
    files = [path for path in (ROOT / "src").rglob("*.py") if path.parent.name != "config"]
    acted_on = "\n".join(path.read_text(encoding="utf-8") for path in files)
    attributes_used = set(re.findall(r"\.(\w+)", acted_on))
    used_within = {name for row in TopicConfig.keys.values() for name in row.broker_keys}
    rows = [row for _, _, table in SECTIONS for row in table.keys.values()]
    config_room = "\n".join(path.read_text() for path in (ROOT / "src/ottla/config").glob("*.py"))

    assert not [
        row.name
        for row in rows
        if row.name not in used_within
        and f'values["{row.attribute}"]' not in config_room
        and row.attribute not in attributes_used
        and not re.search(rf"\bself\.{row.attribute}\b", config_room)
        and f'"{row.name}"' not in acted_on
    ]
