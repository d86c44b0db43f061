"""`ottla streams`: what it refuses before it deletes anything."""

from __future__ import annotations

import pytest
from command_here import run_here

from ottla import Admin, TopicPartition
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


@pytest.mark.parametrize("is_there", [False, True])
def test_reset_leaves_the_topics_of_an_application_whose_id_begins_alike(
    ottla_fresh_broker, tmp_path, is_there
):
    """They may be its state. It is known by its groups, while it has any."""
    broker, servers = ottla_fresh_broker, ottla_fresh_broker.bootstrap_servers
    for topic in ("app-out-changelog", "app-2-out-changelog", "app-2-x-repartition", "app2-out"):
        broker.create_topic(topic)
    with Admin(servers) as admin:
        for group in (f"app-{QUERY}", *([f"app-2-{QUERY}"] if is_there else [])):
            admin.alter_group_offsets(group, {TopicPartition("app2-out", 0): 1})

    options = ("--bootstrap-server", servers, "--state-dir", tmp_path)
    said = run_here("streams", "reset", *options, "--application-id", "app").stdout.splitlines()

    of_other = ["app-2-out-changelog", "app-2-x-repartition"]
    assert broker.topics() == [*(of_other if is_there else []), "app2-out"]
    assert f"deleted the group app-{QUERY}" in said
    left = [f"left the topic {name}: it may be of the application app-2" for name in of_other]
    assert [line for line in said if line.startswith("left")] == (left if is_there else [])


def test_reset_names_what_is_missing(tool):
    """The option, or what is wrong with it; nothing is asked of a broker."""
    assert "missing required option --application-id" in tool("streams", "reset").err
    assert "ACTION may be reset, not 'start'" in tool("streams", "start").err
