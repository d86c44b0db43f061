"""Files of text that users name: what cannot be read is one line with its name."""

from __future__ import annotations

import os
import threading

import pytest

from ottla.cli import text_files
from ottla.cli.command_error import CommandError
from ottla.cli.property_files import load_properties
from ottla.cli.text_files import read_text

LATIN_1 = "caf\u00e9".encode("latin-1")


def test_text_is_read_as_utf_8(tmp_path):
    """The locale does not matter."""
    path = tmp_path / "a.txt"
    path.write_text("caf\u00e9\n", encoding="utf-8")

    assert read_text(str(path)) == "caf\u00e9\n"


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("none", None, "cannot read the plan {path}: No such file or directory"),
        ("", None, "cannot read the plan {path}: Is a directory"),
        ("a", LATIN_1, "the plan {path} is not UTF-8 text: unexpected end of data"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, content, why):
    """What it is, where, and the reason."""
    path = tmp_path / name if name else tmp_path
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(CommandError) as caught:
        read_text(str(path), "the plan")

    assert str(caught.value) == why.format(path=path)


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "--list", "--command-config"),
        ("console-consumer", "--topic", "t", "--consumer.config"),
        ("console-producer", "--topic", "t", "--producer.config"),
        ("delete-records", "--offset-json-file"),
        ("leader-election", "--election-type", "preferred", "--path-to-json-file"),
        ("reassign-partitions", "--execute", "--reassignment-json-file"),
        ("acls", "test"),
        ("users", "add", "alice", "--password-file"),
        ("consumer-groups", "--reset-offsets", "--group", "g", "--from-file"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("content", [LATIN_1, None], ids=["latin-1", "not there"])
def test_commands_name_a_file_that_they_cannot_read(tool, admin, tmp_path, words, content):
    """One line, and no word of Python."""
    admin.add_group("g")
    admin.describe_acls = lambda wanted=None: []
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    name, *options = words
    outcome = tool(name, *options, path)

    assert outcome.status == 1
    assert len(outcome.err.splitlines()) == 1
    assert str(path) in outcome.err
    assert "No such file" in outcome.err or "is not UTF-8 text" in outcome.err
    assert "--log-level DEBUG" not in outcome.err


def test_mark_of_the_encoding_is_no_part_of_the_text(tmp_path):
    """It would be a part of the first setting's name."""
    path = tmp_path / "a.properties"
    path.write_bytes(b"\xef\xbb\xbfclient.id=ab\r\n")

    assert load_properties(str(path)) == {"client.id": "ab"}


def test_file_without_an_end_is_refused(monkeypatch):
    """It would fill the memory."""
    monkeypatch.setattr(text_files, "MOST_BYTES", 1000)

    with pytest.raises(CommandError, match=r"cannot read the plan /dev/zero: it has more than"):
        read_text("/dev/zero", "the plan")


def test_pipe_is_read_to_its_end(tmp_path):
    """As shells make one of `<(...)`."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=("a=1\r\nb=2\r",))
    writer.start()

    assert load_properties(str(path)) == {"a": "1", "b": "2"}
    writer.join()


@pytest.mark.parametrize(
    "words",
    [
        ("delete-records", "--offset-json-file"),
        ("leader-election", "--election-type", "preferred", "--path-to-json-file"),
        ("reassign-partitions", "--execute", "--reassignment-json-file"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("content", ["[" * 100_000, "\ufeff{", '{"a": ' + "9" * 5000 + "}"])
def test_commands_name_a_file_that_is_no_json(tool, admin, tmp_path, words, content):
    """However deep it is, and with a mark at its beginning."""
    path = tmp_path / "file.json"
    path.write_text(content, encoding="utf-8")
    name, *options = words
    outcome = tool(name, *options, path)

    assert outcome.status == 1
    assert len(outcome.err.splitlines()) == 1
    assert f"{path} is not JSON: " in outcome.err
    assert "--log-level DEBUG" not in outcome.err


def test_empty_name_is_no_folder():
    """`--command-config "$FILE"` gives one where the variable is not set."""
    with pytest.raises(CommandError, match=r"^the property file has an empty name$"):
        load_properties("")


@pytest.mark.parametrize(
    "words",
    [
        ("broker", ""),
        ("broker", "--config", ""),
        ("connect-standalone", ""),
        ("topics", "--list", "--command-config", ""),
        ("console-producer", "--topic", "t", "--producer.config", ""),
        ("console-consumer", "--topic", "t", "--consumer.config", ""),
        ("consumer-perf-test", "--topic", "t", "--messages", "1", "--consumer.config", ""),
        ("verifiable-producer", "--topic", "t", "--producer.config", ""),
        ("configs", "--alter", "--topic", "t", "--add-config", "a=b", "--add-config-file", ""),
        ("users", "add", "alice", "--password-file", ""),
    ],
    ids=" ".join,
)
def test_empty_name_of_a_file_asks_for_no_defaults(ottla, clients, words):
    """A server without a login, or a client, is not what a script means whose variable is empty."""
    outcome = ottla(*words)

    assert outcome.status == 1
    assert " file has an empty name" in outcome.err
    assert clients.asked == []
