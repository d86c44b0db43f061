"""Principals are read and written as Kafka writes them."""

from __future__ import annotations

import pytest

from ottla.security.principal import ANONYMOUS, KafkaPrincipal


@pytest.mark.parametrize("text", ["User:alice", "User:CN=a,O=b:c", "Group:x"])
def test_a_principal_is_read_and_written(text):
    """The first colon ends the type; what follows is the name."""
    assert str(KafkaPrincipal.parse(text)) == text


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice"])
def test_half_a_principal_is_refused(text):
    """A text without a type or a name is named in the error."""
    with pytest.raises(ValueError, match=f"type:name, as User:alice, not '{text}'"):
        KafkaPrincipal.parse(text)


def test_nobody_in_particular_is_anonymous():
    """The principal of a client that was not authenticated is Kafka's."""
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert KafkaPrincipal.user("ANONYMOUS") == ANONYMOUS
