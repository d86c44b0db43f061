"""What `import ottla` offers, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ottla
from ottla.clients.client_settings import merge_settings


def test_everything_that_is_announced_can_be_imported():
    """`__all__`, `dir()` and the attributes agree."""
    assert sorted(ottla.__all__) == dir(ottla)
    assert all(getattr(ottla, name) is not None for name in ottla.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = ottla.Nothing


def test_importing_ottla_imports_no_client():
    """Clients come with their first use, so that the command line starts quickly."""
    code = "import ottla, sys; print([m for m in sys.modules if m.startswith('ottla.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "['ottla.version']"


def test_settings_come_as_addresses_mapping_and_keywords():
    """Keywords win over the mapping, which may also come first."""
    expected = {"bootstrap.servers": "a:1", "linger.ms": 5, "acks": "1"}

    assert merge_settings("a:1", {"linger.ms": 3, "acks": "1"}, {"linger_ms": 5}) == expected
    assert merge_settings({"bootstrap.servers": "a:1", "acks": "1"}, None, {"linger_ms": 5}) == (
        expected
    )
