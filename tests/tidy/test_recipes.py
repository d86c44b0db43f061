"""The recipes of CONTRIBUTING.md name every place: each is followed by an example that is there."""

from __future__ import annotations

import re

import pytest
from sources import ROOT

WORD = re.compile(r"`([^`]+)`")
SEARCHED = ("src", "docs")
TEXT = {".py", ".md", ".toml", ".properties"}
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^### (An? .*?)\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))


def example(title: str) -> re.Pattern[str]:
    """What a heading names, however the code spells it."""
    names = [name.replace(".", "[._]") for name in WORD.findall(title)]
    return re.compile("|".join(names))


def places(recipe: str) -> set[str]:
    """The files that the recipe names by their paths."""
    return {word for word in WORD.findall(recipe) if word.startswith(("src/", "docs/", "tests/"))}


def mentions(wanted: re.Pattern[str]) -> set[str]:
    """The files of src and docs in which the example stands."""
    return {
        str(path.relative_to(ROOT))
        for folder in SEARCHED
        for path in (ROOT / folder).rglob("*")
        if path.suffix in TEXT and wanted.search(path.read_text(encoding="utf-8"))
    }


def test_there_is_a_recipe_for_what_is_added_often():
    """Of ten lines each, and with an example."""
    assert [title.split(":")[0] for title in RECIPES] == [
        "An API",
        "A setting",
        "A message that is stored",
        "A command",
        "A metric",
        "A pipeline",
    ]
    assert all(len(recipe.strip().splitlines()) <= 10 for recipe in RECIPES.values())


@pytest.mark.parametrize("title", RECIPES)
def test_recipe_names_every_place(title):
    """The example stands in each file that is named, and src and docs have no hidden one."""
    named, wanted = places(RECIPES[title]), example(title)

    assert not [place for place in named if not (ROOT / place).is_file()]
    assert mentions(wanted) <= named
    assert not [
        place
        for place in named
        if place.startswith(SEARCHED)
        if not wanted.search(place + (ROOT / place).read_text(encoding="utf-8"))
    ]
