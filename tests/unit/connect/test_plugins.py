"""How a worker finds the class that a property file names."""

from __future__ import annotations

import pytest

from ottla.connect.connectors.files import FileStreamSink, FileStreamSource
from ottla.connect.plugins import BUILT_IN, CONNECTORS, Plugins, name_of
from ottla.errors import ConfigError

MINE = """
from ottla.connect.connector import SourceConnector


class Mine(SourceConnector):
    version = "7"
"""


@pytest.mark.parametrize(
    "word",
    [
        "FileStreamSource",
        "FileStreamSourceConnector",
        "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "ottla.connect.connectors.files.FileStreamSource",
    ],
)
def test_names_that_mean_the_file_source(word):
    """Kafka's names, short and long, and our import path."""
    assert Plugins().connector(word) is FileStreamSource


def test_file_is_a_plugin(tmp_path):
    """A file with one connector needs no installation."""
    path = tmp_path / "lone_file.py"
    path.write_text(MINE)

    assert Plugins().connector(str(path)).__name__ == "Mine"
    assert Plugins().connector(f"{path}:Mine").__name__ == "Mine"
    with pytest.raises(ConfigError, match="there is no connector Other"):
        Plugins().connector(f"{path}:Other")


def test_folder_of_plugins(tmp_path):
    """Files in plugin.path are found by the name of the class, and listed."""
    (tmp_path / "from_folder.py").write_text(MINE)
    plugins = Plugins([str(tmp_path)])

    assert plugins.connector("Mine").version == "7"
    assert ("from_folder.Mine", "7") in [
        (name, version) for name, _, version in plugins.list(CONNECTORS)
    ]


def test_file_with_several_needs_a_name(tmp_path):
    """The error has the names to choose from."""
    path = tmp_path / "several.py"
    path.write_text(MINE + MINE.replace("class Mine", "class Other"))

    with pytest.raises(ConfigError, match=r"must have one connector \(it has Mine, Other\)"):
        Plugins().connector(str(path))


def test_listing_has_kafkas_names():
    """The list has the file connectors with a version."""
    found = {name: plugin for name, plugin, _ in Plugins().list(CONNECTORS)}

    assert found["org.apache.kafka.connect.file.FileStreamSinkConnector"] is FileStreamSink


def test_unknown_name_has_a_hint():
    """A misspelt name is answered with the near one."""
    with pytest.raises(ConfigError, match="did you mean FileStreamSource"):
        Plugins().connector("FileStreamSorce")


def test_broken_plugin_says_why(tmp_path):
    """What a file raises when it is imported is in the error."""
    path = tmp_path / "broken_plugin.py"
    path.write_text("1 / 0\n")

    with pytest.raises(ConfigError, match="cannot be imported: ZeroDivisionError"):
        Plugins().connector(str(path))


def test_missing_folder_is_refused(tmp_path):
    """A misspelt plugin.path is told at once."""
    with pytest.raises(ConfigError, match=r"plugin\.path=.*must be a folder"):
        Plugins([str(tmp_path / "nowhere")])


def test_class_that_is_no_connector_is_refused():
    """The sentence says what is wanted."""
    with pytest.raises(ConfigError, match="must be a SourceConnector or SinkConnector"):
        Plugins().connector("pathlib.Path")


@pytest.mark.parametrize("group", BUILT_IN)
def test_what_comes_with_ottla_is_what_its_name_says(group):
    """Each name of Kafka's is that of the class that is found under it."""
    plugins = Plugins()

    for name in BUILT_IN[group]:
        assert name_of(plugins.find(group, name)) == name


def test_connector_is_found_by_the_path_that_it_had():
    """SqlSink was in the file of SqlSource, and settings that say so go on."""
    former = Plugins().connector("ottla.connect.connectors.sql.SqlSink")

    assert former is Plugins().connector("SqlSink")
