"""docs/configuration.md is what the tables say."""

from __future__ import annotations

from pathlib import Path

from ottla.config.documentation import SECTIONS, configuration_page

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_page_is_up_to_date():
    """`python -m ottla.config` was run after the tables changed."""
    assert PAGE.read_text(encoding="utf-8") == configuration_page()


def test_every_setting_has_a_sentence():
    """One that ends."""
    rows = [row for _, _, table in SECTIONS for row in table.keys.values()]

    assert not [row.name for row in rows if not row.doc.endswith(".")]
