"""Property files that commands read."""

from __future__ import annotations

import pytest

from ottla.cli.command_error import CommandError
from ottla.cli.property_files import load_properties


def test_properties_are_read_from_a_file(tmp_path):
    """Comments and blank lines are left out."""
    path = tmp_path / "client.properties"
    path.write_text("# a comment\n\nlinger.ms=5\nclient.id = a\n")

    assert load_properties(str(path)) == {"linger.ms": "5", "client.id": "a"}


def test_missing_file_is_named(tmp_path):
    """The message has the path and the reason."""
    with pytest.raises(CommandError, match=r"cannot read .*none: No such file"):
        load_properties(str(tmp_path / "none"))


def test_file_that_is_no_text_is_refused(tmp_path):
    """Binary data is no property file."""
    path = tmp_path / "client.properties"
    path.write_bytes(b"\xff\xfe=")

    with pytest.raises(CommandError, match="not UTF-8"):
        load_properties(str(path))
