"""Features can be deleted: nothing outside `extensions/` knows them by name."""

from __future__ import annotations

from sources import Source, house
from test_arrows import imported_modules

KNOWN: dict[str, set[str]] = {}
"""The features that a feature may import from; without them it cannot be had."""


def feature_of(name: str) -> str | None:
    """The feature whose module has this dotted name."""
    words = name.split(".")
    return words[2] if words[:2] == ["ottla", "extensions"] and len(words) > 2 else None


def features() -> list[tuple[Source, str]]:
    """Each module of a feature, with the feature."""
    return [
        (source, source.path.parent.name)
        for source in house()
        if source.room == "extensions" and source.path.parent.name != "extensions"
    ]


def test_nothing_outside_imports_a_feature():
    """Neither at its top, nor in a function, nor for types: the folder can be deleted."""
    assert not [
        f"{source.name}:{line} imports {name}"
        for source in house()
        if source.room != "extensions"
        for line, name in imported_modules(source)
        if name.startswith("ottla.extensions")
    ]


def test_features_know_each_other_only_as_declared():
    """A feature that imports another goes with it; the table above says so."""
    assert features()
    assert not [
        f"{source.name}:{line} imports {name}"
        for source, feature in features()
        for line, name in imported_modules(source)
        if feature_of(name) not in (None, feature, *KNOWN.get(feature, ()))
    ]
