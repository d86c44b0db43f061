"""Nodes of the registry as they are shown: their paths, and values that are hidden."""

from __future__ import annotations

import pytest

from ottla.registry.shown_node import data_text, is_path

SECRET = b'{"version":1,"config":{"SCRAM-SHA-512":"salt=c2FsdA==,stored_key=a2V5"}}'


@pytest.mark.parametrize(
    ("path", "data", "text"),
    [
        ("/config/users/ann", SECRET, '{"version": 1, "config": {"SCRAM-SHA-512": "[hidden]"}}'),
        ("/kafka/config/users/ann", b"no json", "[hidden]"),
        ("/config/users/ann/clients/x", b"no json", "[hidden]"),
        ("/delegation_token/tokens/x", b'{"version":"s","hmac":["k"]}', None),
        ("/config/brokers/0", b"[1]", "[hidden]"),
        ("/config/brokers/0", b"", ""),
        ("/config/topics/users", b'{"a": "b"}', '{"a": "b"}'),
        ("/x", b"\xff", "\\xff"),
    ],
)
def test_values_below_private_paths_are_hidden(path, data, text):
    """A version is a number there, or it is hidden as well."""
    hidden = '{"version": "[hidden]", "hmac": "[hidden]"}'
    assert data_text(path, data) == (hidden if text is None else text)


def test_paths_are_those_of_nodes():
    """No other text reaches ZooKeeper."""
    assert [is_path(each) for each in ("/", "/a/b")] == [True, True]
    assert not any(map(is_path, ("", "a", "//", "/a/", "/../a", "/a\0", "/" + "a" * 1_000)))
