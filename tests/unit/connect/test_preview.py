"""What a connector would do, without doing it."""

from __future__ import annotations

import pytest

from ottla import Admin, Producer
from ottla.connect.preview import Preview
from ottla.connect.tolerance import ToleranceExceededError
from ottla.errors import ConfigError

WORKER = {
    "bootstrap.servers": "127.0.0.1:1",
    "key.converter": "StringConverter",
    "value.converter": "StringConverter",
    "offset.storage.file.filename": "never-written",
}


def preview(properties, most=20, **worker):
    return list(Preview(WORKER | worker, properties).records(most, 60_000))


def test_source_is_read_from_its_beginning(tmp_path, monkeypatch):
    """No broker is asked, and no file written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("a\nb\nc\n")
    properties = {"connector.class": "FileStreamSource", "file": "in.txt", "topic": "t"}
    found = preview(properties, 2)

    assert [(record.topic, record.value) for record in found] == [("t", "a"), ("t", "b")]
    assert found[0].place == "{'filename': 'in.txt'}@{'position': 2}"
    assert len(preview(properties)) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_what_cannot_be_read_is_left_out_if_it_is_tolerated():
    """As a worker would do; else its error is shown."""
    properties = {"connector.class": "connect_kit.MoodySource", "raises": "unread", "topic": "t"}

    found = preview(properties | {"errors.tolerance": "all"})
    assert [each.value for each in found] == ["0", "2"]
    with pytest.raises(ToleranceExceededError, match="number 1 cannot be read"):
        preview(properties)


def test_transforms_and_tasks_are_seen():
    """All tasks one after the other, after the transforms."""
    properties = {
        "connector.class": "connect_kit.Splitting",
        "tasks.max": "2",
        "topic": "t",
        "transforms": "route",
        "transforms.route.type": "RegexRouter",
        "transforms.route.regex": "(.*)",
        "transforms.route.replacement": "$1-new",
    }
    assert [(record.topic, record.value) for record in preview(properties)] == [
        ("t-new", "0"),
        ("t-new", "1"),
    ]


def test_sink_is_shown_what_it_would_get(ottla_fresh_broker, tmp_path):
    """Nothing is put, and no group has offsets."""
    servers = ottla_fresh_broker.bootstrap_servers
    with Producer(servers) as producer:
        for value in (b"a", b"b"):
            producer.send("t", value, key=b"k")
    out = tmp_path / "out.txt"
    properties = {"connector.class": "FileStreamSink", "file": str(out), "topics": "t"}
    found = preview(properties, **{"bootstrap.servers": servers})

    assert [(record.key, record.value, record.place) for record in found] == [
        ("k", "a", "t-0@0"),
        ("k", "b", "t-0@1"),
    ]
    assert not out.exists()
    with Admin(servers) as admin:
        assert admin.list_groups() == []


def test_a_sink_is_not_shown_what_it_would_not_get(ottla_fresh_broker, tmp_path):
    """A record that cannot be read, where errors.tolerance=all leaves it out."""
    servers = ottla_fresh_broker.bootstrap_servers
    with Producer(servers) as producer:
        for value in (b"a", b"\xff", b"b"):
            producer.send("t", value)
    properties = {"connector.class": "FileStreamSink", "file": str(tmp_path / "o"), "topics": "t"}
    found = preview(properties | {"errors.tolerance": "all"}, **{"bootstrap.servers": servers})

    assert [record.value for record in found] == ["a", "b"]


def test_missing_topics_are_named(ottla_fresh_broker):
    """Not created by looking."""
    properties = {"connector.class": "FileStreamSink", "topics": "none"}
    with pytest.raises(ConfigError, match="topics=none: must be topics that are there"):
        preview(properties, **{"bootstrap.servers": ottla_fresh_broker.bootstrap_servers})
    assert ottla_fresh_broker.topics() == []


@pytest.mark.parametrize("name", ["MirrorSourceConnector", "PostgresSource", "MqttSource"])
def test_source_that_changes_what_it_reads_is_refused(name):
    """Nothing is started: a mirror would copy, a slot would stay, a session would move."""
    with pytest.raises(ConfigError, match=f"connector.class={name}: has no preview: "):
        preview({"connector.class": name})
