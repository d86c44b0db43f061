"""Classes and functions that are found by their place."""

from __future__ import annotations

import pytest

from ottla.config.place import found_at, is_there, wanted_by
from ottla.errors import ConfigError

GONE = "ottla.gone.thing:Thing"


def test_name_is_found_in_its_module():
    """The module is imported by that."""
    assert found_at(f"{__name__}:GONE") == GONE


def test_folder_is_there_or_not():
    """Nothing in it is imported; its parts may need what is not installed."""
    assert is_there("ottla.config.place:found_at")
    assert not is_there("ottla.gone.thing:Thing")


def test_error_names_the_setting_that_wants_a_missing_place():
    """A broker says why it does not start."""
    with pytest.raises(ConfigError, match=r"log\.dirs needs ottla\.gone\.thing, which is not"):
        wanted_by("log.dirs", GONE)
