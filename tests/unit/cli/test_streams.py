"""`ottla streams`: what it refuses before it deletes anything."""

from __future__ import annotations

import pytest

from ottla.streams.naming import check_application_id, internal_topic, is_group_of, is_internal

QUERY = "592dc1fa-bae8-41c0-be3e-a9b1347cda34"


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", ".hidden"])
def test_an_application_id_is_no_path(name):
    """A reset deletes the folder of that name."""
    with pytest.raises(ValueError, match="application id"):
        check_application_id(name)


def test_an_application_has_its_own_topics_and_groups():
    """An application has no topics or groups of another whose id begins like its own."""
    assert is_internal(internal_topic("app", "words"), "app")
    assert not is_internal("app-words", "app")
    assert is_group_of(f"app-{QUERY}", "app")
    assert is_group_of(f"app-{QUERY}.2", "app")
    assert not is_group_of(f"app-2-{QUERY}", "app")
    assert not is_group_of("app-readers", "app")


def test_reset_names_what_is_missing(tool):
    """The option, or what is wrong with it; nothing is asked of a broker."""
    assert "missing required option --application-id" in tool("streams", "reset").err
    assert "ACTION may be reset, not 'start'" in tool("streams", "start").err
